package pressure

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Params are the policy's parameters. Shares are of the machine's memory, but for Some and Full.
type Params struct {
	// Low is the available share under which memory may be short, Reserve the one that is never to be reached, and
	// Enough the one from which on best-effort work is let back in.
	Low     float64 `json:"low"`
	Reserve float64 `json:"reserve"`
	Enough  float64 `json:"enough"`
	// Some and Full are the shares of a window in which a task, and all tasks, waited for memory (PSI), from which on
	// programs stall.
	Some float64 `json:"some"`
	Full float64 `json:"full"`
	// HorizonNsec is how far ahead it is looked when the reserve will be reached, and SoonNsec how near that is where only
	// the strongest means is fast enough.
	HorizonNsec int64 `json:"horizon_nsec"`
	SoonNsec    int64 `json:"soon_nsec"`
	// LookNsec is how far apart memory is read while little is available or it falls fast; 0: with windows alone.
	LookNsec int64 `json:"look_nsec"`
	// AtOnce is on how many tasks it acts at one look. ReclaimBytes is asked of one at most, 0: nothing, and every
	// EveryNsec.
	AtOnce       int   `json:"at_once"`
	ReclaimBytes int64 `json:"reclaim_bytes"`
	EveryNsec    int64 `json:"every_nsec"`
	// PatienceNsec is how long reclaim has to help before tasks are frozen, where Freeze allows that.
	PatienceNsec int64 `json:"patience_nsec"`
	Freeze       bool  `json:"freeze"`
	// CalmNsec is how long there must be enough before one is let back in, and again before the next; twice as long each
	// time memory was short again soon after.
	CalmNsec int64 `json:"calm_nsec"`
	// End is who may be ended where nothing milder has helped: tasks of that importance, and below. EndAfterNsec is how long that has to be so, but
	// where even the reserve is used up, and EndEveryNsec how long after one of them memory has to come back before the next.
	End          string `json:"end"`
	EndAfterNsec int64  `json:"end_after_nsec"`
	EndEveryNsec int64  `json:"end_every_nsec"`
	// StuckNsec is after how long with nothing left to do somebody else is asked to end a task.
	StuckNsec int64 `json:"stuck_nsec"`
	// Hook has the agent tell its hook of whom it freezes, lets go on and ends. Nothing is decided by it.
	Hook bool `json:"hook,omitempty"`
	// Order is who gives way first, and Then who of tasks that are alike in that; "" is Largest.
	Order string `json:"order"`
	Then  string `json:"then"`
	// HoldNsec is how long a task stays frozen that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
}

// The orders in which best-effort tasks give way. Those that are critical come last in each.
const (
	Largest        = "largest" // by what it will have at the next look
	Youngest       = "youngest"
	LeastImportant = "least-important"
	Cheapest       = "cheapest" // who has used least CPU time, which its end would lose
)

// Defaults are ours: the paper (Alibaba §3.2) names utilisation and PSI, and no thresholds.
func Defaults() Params {
	return Params{
		Low: 0.10, Reserve: 0.04, Enough: 0.15, Some: 0.10, Full: 0.02, HorizonNsec: 60e9, SoonNsec: 10e9,
		AtOnce: 1, ReclaimBytes: 512 << 20, EveryNsec: 5e9, PatienceNsec: 10e9, Freeze: true, CalmNsec: 30e9,
		End: policy.EndNobody, EndAfterNsec: 60e9, EndEveryNsec: 10e9, StuckNsec: 300e9, Order: LeastImportant, Then: Largest, LookNsec: 250e6, HoldNsec: 30e9,
	}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	const hours = 24 * 3600e9
	return []model.Param{
		{Key: "enough", At: &p.Enough, Most: 1, Soak: [2]float64{0.9, 1}, Unit: "share of memory", Why: "with so much available best-effort work is let back in"},
		{Key: "low", At: &p.Low, Most: 1, Soak: [2]float64{0.4, 0.9}, Unit: "share of memory", Why: "with less available memory may be short: best-effort work gives way once programs stall, or the reserve is in sight"},
		{Key: "reserve", At: &p.Reserve, Most: 1, Soak: [2]float64{0, 0.1}, Unit: "share of memory", Why: "what is always to be available"},
		{Key: "some", At: &p.Some, Most: 1, Soak: [2]float64{0, 1}, Unit: "share of the time", Why: "programs stall: a task waits for memory (PSI of the machine, some; Alibaba §3.2)"},
		{Key: "full", At: &p.Full, Most: 1, Soak: [2]float64{0, 1}, Unit: "share of the time", Why: "programs stall: all that have work do (PSI of the machine, full)"},
		{Key: "horizon", At: model.Nsec(&p.HorizonNsec), Most: hours, Soak: [2]float64{1e9, 60e9}, Why: "how far ahead the reserve is seen coming, as available memory falls"},
		{Key: "soon", At: model.Nsec(&p.SoonNsec), Most: hours, Soak: [2]float64{1e9, 20e9}, Why: "nearer than this reclaim is too slow"},
		{Key: "look", At: model.Nsec(&p.LookNsec), Most: hours, Soak: [2]float64{50e6, 1e9}, Why: "between two readings while little is available or the reserve is in sight; at once where programs begin to stall (PSI trigger); 0: windows alone"},
		{Key: "at_once", At: &p.AtOnce, Least: 1, Most: 1000, Soak: [2]float64{1, 4}, Unit: "tasks", Why: "that have to give way at one look"},
		{Key: "reclaim_bytes", At: &p.ReclaimBytes, Most: 1 << 40, Soak: [2]float64{0, 1 << 28}, Unit: "bytes", Why: "taken back of one task at a time at most (cgroup v2); 0: nothing"},
		{Key: "every", At: model.Nsec(&p.EveryNsec), Most: hours, Soak: [2]float64{1e9, 10e9}, Why: "between two rounds of that"},
		{Key: "patience", At: model.Nsec(&p.PatienceNsec), Most: hours, Soak: [2]float64{0, 10e9}, Why: "for so long that has to help before tasks are frozen"},
		{Key: "freeze", At: &p.Freeze, Soak: [2]float64{0.3, 0.7}, Why: "tasks may be frozen (cgroup.freeze, on v1 freezer.state); never critical ones"},
		{Key: "calm", At: model.Nsec(&p.CalmNsec), Most: hours, Soak: [2]float64{1e9, 20e9}, Why: "enough for so long before one is let back in, and before the next; doubled, up to 16 times, when that was too soon"},
		{Key: "end", At: &p.End, Words: policy.EndWords(), Why: "whose processes may be ended (cgroup.kill) where nothing milder helps: tasks of that importance and below; never critical ones. There is no way back from it"},
		{Key: "end_after", At: model.Nsec(&p.EndAfterNsec), Most: hours, Soak: [2]float64{0, 30e9}, Why: "for so long less than low has to be available with nobody left to freeze, before one is ended; with less than reserve the next look is enough"},
		{Key: "end_every", At: model.Nsec(&p.EndEveryNsec), Least: 1e9, Most: hours, Soak: [2]float64{1e9, 20e9}, Why: "between one end and the next: what is freed takes its time"},
		{Key: "stuck", At: model.Nsec(&p.StuckNsec), Most: hours, Soak: [2]float64{1e9, 60e9}, Why: "short for so long with nothing left to do: it is said that somebody else must end a task"},
		{Key: "hook", At: &p.Hook, Why: "whom this policy freezes, lets go on and ends, and what came of it, is told to agent.hook_program and agent.hook_url, as each cannot-fix is"},
		{Key: "order", At: &p.Order, Words: []string{Largest, Youngest, LeastImportant, Cheapest}, Why: "who gives way first; cheapest: who has used least CPU time. Critical tasks come last in each"},
		{Key: "then", At: &p.Then, Words: []string{Largest, Youngest, Cheapest}, Why: "who of tasks that are alike in that"},
	}
}

// TakesBackNsec is how soon memory comes back for sure; 0: it does not, since who is frozen keeps what cannot be reclaimed.
func (p *Params) TakesBackNsec() int64 {
	if p.End == "" || p.End == policy.EndNobody {
		return 0
	}
	return p.EndEveryNsec
}

// leastLook is as often as memory is read at most: 20 times a second.
const leastLook = 50e6

// Check finds parameters that do not fit each other.
func (p *Params) Check() (key, why string) {
	switch {
	case p.Reserve >= p.Low:
		return "reserve", "is not below low: nothing milder could be done before it is reached"
	case p.Enough < p.Low:
		return "enough", "is below low: tasks would be let back in while memory is short"
	case p.SoonNsec > p.HorizonNsec:
		return "soon", "is further than horizon"
	case p.LookNsec > 0 && p.LookNsec < leastLook:
		return "look", "is less than 50ms; expected that, or 0: windows alone"
	}
	return "", ""
}
