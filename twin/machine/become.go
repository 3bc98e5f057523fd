package machine

import "fmt"

// Become changes what a task's instructions are like and, for closed-loop work, its
// phases: CPI, APKI, Curve, Apart, Overlap, Prefetched, WriteShare and Work of cfg. What it has
// in caches and in memory, its place and its limits stay.
func (m *Machine) Become(num int, cfg TaskConfig) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	next := t.cfg
	next.CPI, next.APKI, next.Curve = cfg.CPI, cfg.APKI, cfg.Curve
	next.Apart, next.Overlap, next.Prefetched, next.WriteShare = cfg.Apart, cfg.Overlap, cfg.Prefetched, cfg.WriteShare
	if t.cfg.Work != nil {
		if cfg.Work == nil {
			return fmt.Errorf("machine: task %s does work, not requests", t.cfg.Name)
		}
		next.Work = cfg.Work
	}
	if err := next.Check(&m.cfg); err != nil {
		return err
	}
	if next.Work != t.cfg.Work {
		t.phase = phase{}
	}
	t.cfg = next
	for s := range t.perf {
		p := &t.perf[s]
		p.misses = t.missesWith(p.bytes)
		p.keeps = t.keeps(p.bytes, p.misses)
	}
	return nil
}
