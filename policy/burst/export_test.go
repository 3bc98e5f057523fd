package burst

// What the tests on a node ask of the policy's own reckoning.

// Hot reports whether the task bursts.
func (t *Task) Hot(p *Params, nowNsec int64) bool { return t.hot(p, nowNsec) }

// Reserve is the level down to which a raise to m times the quota is within MaxOverspend.
func (t *Task) Reserve(p *Params, k, m float64) float64 { return t.reserve(p, k, m) }

// Capacity is what the ideal bucket holds.
func (t *Task) Capacity(p *Params) float64 { return t.capacity(p) }
