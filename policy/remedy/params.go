package remedy

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Params are the policy's parameters.
type Params struct {
	// Ways is how many ways of each last-level cache one task is left.
	Ways int `json:"ways"`
	// CPULeast is the least share of its CPU time that a task is left; 1: none is taken.
	CPULeast float64 `json:"cpu_least"`
	// Demote: who has the CPU that a service waits for may be made to give way.
	Demote bool `json:"demote"`
	// Pool: who has a CPU that a service waits for, or the sibling of one, may be moved off them. Records that are older than that do not name it.
	Pool bool `json:"pool,omitempty"`
	// Power: a service whose cores' clock fell is helped by CPU time first. Records that are older than that do not name it.
	Power bool `json:"power,omitempty"`
	// Apart: where services on another socket are in trouble goes on what they do not feel (apart.go). Records that are older than that do not name it.
	Apart bool `json:"apart,omitempty"`
	// Home: pages that were moved go back in time (home.go). Records that are older than that do not name it.
	Home bool `json:"home,omitempty"`
	// End is who may be ended where nothing else has helped: tasks of that importance, and below (policy.EndWords). EndAfterNsec is how long that has to be so.
	End          string `json:"end"`
	EndAfterNsec int64  `json:"end_after_nsec"`
	// Windows are so many of the victim's windows before a step and after it are compared.
	Windows int `json:"windows"`
	// Least is by how much, a share, a step has to bring the victim's CPI down at least, beyond noise. Records that are older than that do not name it.
	Least float64 `json:"least,omitempty"`
	// SettleNsec is how long after a change stands what services say of it counts: a latency source looks back for so long.
	SettleNsec int64 `json:"settle_nsec"`
	// Rise is by how much the victim's misses, or its memories' traffic, have to be above those of its quiet windows.
	Rise float64 `json:"rise"`
	// QuietNsec is how long services have to be well before a step is given back, Margin how many standard deviations their
	// figures have to be away from their targets even then. RetryNsec is how long it takes until one is given back all the
	// same, twice as long after each that brought trouble.
	QuietNsec int64   `json:"quiet_nsec"`
	Margin    float64 `json:"margin"`
	RetryNsec int64   `json:"retry_nsec"`
	// RestNsec is how long a step that did not help, or was refused, is not tried again.
	RestNsec int64 `json:"rest_nsec"`
	// BlindNsec is how long what was taken is kept while no service tells how it is, and a change is waited for.
	BlindNsec int64 `json:"blind_nsec"`
	// HoldNsec is how long a claim stands that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
}

// Defaults are the papers' figures, and ours where they say nothing.
func Defaults() Params {
	return Params{Ways: 2, CPULeast: 0.25, Demote: true, Pool: true, Power: true, Apart: true, Home: true, End: policy.EndNobody, EndAfterNsec: 300e9, Windows: 4, Least: 0.005, SettleNsec: 3e9, Rise: 0.1, QuietNsec: 15e9, Margin: 1.5, RetryNsec: 300e9, RestNsec: 600e9, BlindNsec: 180e9, HoldNsec: 60e9}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "ways", At: &p.Ways, Least: 2, Most: 64, Soak: [2]float64{2, 4}, Unit: "ways of each last-level cache", Why: "what one task is left of the cache, at once (ByteDance: two; PRM: the minimum at once)"},
		{Key: "cpu_least", At: &p.CPULeast, Least: 0.01, Most: 1, Soak: [2]float64{0.1, 1}, Unit: "a share of what it used", Why: "the last rung halves a task's CPU time down to this; 1: that is left to the hard cap"},
		{Key: "demote", At: &p.Demote, Soak: [2]float64{0.7, 0.3}, Why: "the first rung where what a service waits for is a CPU: who has it gives way to everybody (cpu.idle)"},
		{Key: "pool", At: &p.Pool, Soak: [2]float64{0.7, 0.3}, Why: "a rung after demotion, and the first where the service's core is contended: the task may not run on the service's CPUs, or their siblings (cpuset.cpus); not while policy cpuset enforces"},
		{Key: "power", At: &p.Power, Soak: [2]float64{0.7, 0.3}, Why: "where a service is slow for the clock of its cores, as counters tell (PRM's detection: a frequency below that of quiet times), CPU time comes first, of who uses most"},
		{Key: "apart", At: &p.Apart, Soak: [2]float64{0.3, 0.7}, Why: "on several sockets what is held beside one service is given back while another is in trouble that does not feel it, and that one's trouble does not pass for its harm"},
		{Key: "home", At: &p.Home, Soak: [2]float64{0.3, 0.7}, Why: "a task's pages that were moved for a service go back to the memory beside the task by two steps, as everything else is given back"},
		{Key: "end", At: &p.End, Words: policy.EndWords(), Why: "whose processes may be ended (cgroup.kill) where nothing else has helped a service that misses its target: tasks of that importance and below; never critical ones. There is no way back from it"},
		{Key: "end_after", At: model.Nsec(&p.EndAfterNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{1e9, 60e9}, Why: "so long there has to be nothing left to try, and the target missed, before one is ended, and between one end and the next"},
		{Key: "windows", At: &p.Windows, Least: 2, Most: 100, Soak: [2]float64{2, 5}, Why: "so many of the victim's windows before a step and after it are compared"},
		{Key: "least", At: &p.Least, Most: 0.5, Soak: [2]float64{0, 0.05}, Unit: "a share", Why: "a step that brings the victim's CPI down by less did not help, however steady its CPI is"},
		{Key: "settle", At: model.Nsec(&p.SettleNsec), Most: 600e9, Soak: [2]float64{0, 5e9}, Why: "after a change services are looked at no sooner (BALM §IV-A: their figures look back for 3 s)"},
		{Key: "rise", At: &p.Rise, Most: 10, Soak: [2]float64{0, 0.3}, Unit: "a share", Why: "so far the victim's misses are above those of its quiet windows where the cache is contended, and traffic where memory is (PRM: above a fence)"},
		{Key: "quiet", At: model.Nsec(&p.QuietNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{1e9, 20e9}, Why: "services have to be well for so long before a step is given back (PRM: after quiet cycles)"},
		{Key: "margin", At: &p.Margin, Most: 10, Soak: [2]float64{0, 3}, Unit: "standard deviations", Why: "so far the figures have to stay from their targets by what a step back is reckoned to cost"},
		{Key: "retry", At: model.Nsec(&p.RetryNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{5e9, 60e9}, Why: "after so long a step is given back although that is not so; after twice as long where it brought trouble, up to 16 times"},
		{Key: "rest", At: model.Nsec(&p.RestNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{5e9, 60e9}, Why: "a step that did not help this victim, or that was refused, is not tried again for so long"},
		{Key: "blind", At: model.Nsec(&p.BlindNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{2e9, 60e9}, Why: "while no service tells how it is for so long everything is given back"},
	}
}
