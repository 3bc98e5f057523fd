// Package cpuset keeps latency-critical and best-effort tasks on CPUs of their own, after
// ByteDance ("Cluster Level Co-location"): "all the online workloads run within a cpuset and
// offline workloads in another cpuset. They do not share logical or physical CPU cores",
// and the border between the two follows "the CPU load of all the online workloads".
// Exclusive LC tasks (Alibaba §4.1) keep whole physical cores besides.
//
// Intuition. A border is moved. LC's work comes in requests, and how many of them are there at
// once varies: LC's side is so large that few of them find all of its CPUs busy, by Erlang's
// formula for the mean load. When several times as many would, or LC's side was full in one
// pulse, BE's cores go to LC at once. In the other direction there is time: BE gets what LC
// does not need when the border has been at rest for a second, and the mean falls slowly.
//
// Hard cases, and what is done about them:
//
//   - LC is confined too, so a full set hides what LC would use if it could: the load that
//     is measured cannot pass the set. A set that is nearly full in one pulse is no
//     measurement but an alarm: LC gets everything down to BE's floor, and the next pulses
//     show what it really uses.
//   - Noise. Pulses of 50 ms vary far more than the load does, and the spare is there to
//     absorb just that. So a pulse by itself counts only when it fills the set, and the size
//     follows means: one of a fraction of a second, so that a rise is followed at once, and one
//     of seconds, so that a fall is followed later; the greater counts. Sizing every pulse and
//     keeping the maximum was rejected: it counts the noise twice.
//   - Loads that alarm again and again: LC takes back what was just given a few times a minute
//     at most, then nothing is given (pace.go).
//   - The load cannot be read. Absent is not zero: BE gets nothing meanwhile, and is put on
//     its floor after a while.
//   - Nobody to protect, nobody to confine, or too few cores for two sides: nobody is placed,
//     and that is said once. Where no BE task can be confined LC is not either: to hold LC to
//     a part of the machine helps only when BE keeps out of it.
//   - A task that may run on a part of the machine only is placed within that part, and left
//     alone where nothing remains of it. BE takes the cores to which LC tasks are bound so,
//     by whoever made them or by a stranger since, after all others. What a stranger wrote, an operator freed or the
//     kernel refused is left alone too; the load of an LC task counts wherever it runs.
//
// Which cores BE has (cores.go) is a fixed order and a border in it: BE has the first so
// many. A move therefore touches no more cores than it must, and the core that was given
// last is taken first.
package cpuset

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Status is whether the machine is divided, and if not, why.
type Status string

// The states of the partition.
const (
	Unknown      Status = "" // nothing was looked at yet
	Divided      Status = "divided"
	NoLC         Status = "no LC task"
	NoBE         Status = "no BE task"
	Unconfinable Status = "no BE task can be confined"
	TooFew       Status = "too few cores"
)

// State is the policy's memory.
type State struct {
	Status Status `json:"status"`

	// Order are the physical cores without those of exclusive tasks, in the order in which BE
	// takes them; it has the first BE of them, and shared LC tasks have the rest. None while
	// the machine is not divided.
	Order []int `json:"order,omitempty"`
	BE    int   `json:"be"`
	// Exclusive are the cores of exclusive tasks, ordered by task.
	Exclusive []Own `json:"exclusive,omitempty"`
	// LCCPUs and BECPUs are the logical CPUs of the two sides.
	LCCPUs model.CPUSet `json:"lc_cpus,omitzero"`
	BECPUs model.CPUSet `json:"be_cpus,omitzero"`
	// Pinned are the CPUs of LC tasks that may not run elsewhere: BE takes them last.
	Pinned model.CPUSet `json:"pinned,omitzero"`
	// FloorCores is BE's floor on this machine, LeastCores what shared LC tasks have at least
	// (none where there are no such tasks).
	FloorCores int `json:"floor_cores"`
	LeastCores int `json:"least_cores"`
	// UncountedCores is what exclusive tasks without cores of their own are taken to need: no
	// pulse has their load.
	UncountedCores int `json:"uncounted_cores,omitempty"`

	Load Load `json:"load"`
	Pace Pace `json:"pace"`

	// Placed has one entry a task, in the view's order.
	Placed []Placed `json:"placed,omitempty"`

	// plan is worked out from the above and the topology.
	plan  *plan
	spare []Placed // room for the next list
}

// Shared returns the CPUs on which shared LC tasks run, none where the policy does not say.
func (s *State) Shared() model.CPUSet { return s.LCCPUs }

// Note says in a few words how the machine is divided, or why it is not.
func (s *State) Note(now model.Mode) string {
	if s.Status != Divided {
		return string(s.Status)
	}
	note := fmt.Sprintf("LC %s, BE %s", s.LCCPUs, s.BECPUs)
	if now != model.ModeEnforce {
		note = "would be " + note
	}
	return note
}

// Rests reports that LC can get nothing more however much it needs: BE has its floor, or
// nobody is placed. The other way there is time.
func (s *State) Rests() bool { return s.Status != Divided || s.BE <= s.FloorCores }

// Step takes one tick.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	w.AsBefore = true
	if v.Topology == nil || len(v.Topology.CPUs) == 0 {
		return
	}
	look := v.Changed || s.Status == Unknown || len(s.Placed) != len(v.Tasks)
	before, lcBefore := s.BECPUs, s.LCCPUs
	if look {
		s.replan(p, v, w)
	}
	if s.plan == nil {
		s.plan = s.derive(p, machineOf(v.Topology))
	}
	load := s.Load.measure(p, v)
	if s.Status == Divided && s.LeastCores == 0 && !load.known {
		load = s.Load.nobody(v) // no shared LC task, so that there is nothing to read
	}
	if s.Status == Divided {
		was := s.BE
		why := s.move(p, v.NowNsec, load)
		if s.BE != was {
			s.setSides()
			s.sayMove(w, was, why)
		}
	}
	if look || s.BECPUs != before || s.LCCPUs != lcBefore {
		w.AsBefore = false
		s.place(p, v, w)
	}
}

// setSides works the two sets out from the border.
func (s *State) setSides() {
	s.LCCPUs, s.BECPUs = model.CPUSet{}, model.CPUSet{}
	for i := range s.plan.cores {
		if i < s.BE {
			s.BECPUs = s.BECPUs.Or(s.plan.cores[i].cpus)
		} else {
			s.LCCPUs = s.LCCPUs.Or(s.plan.cores[i].cpus)
		}
	}
	if s.parked() {
		s.BECPUs = s.plan.cores[0].cpus
	}
}

// sayMove tells that the border moved.
func (s *State) sayMove(w *policy.Wishes, was int, why moveReason) {
	pl := s.plan
	cores := len(pl.cores)
	had, has := pl.threads[cores-was], pl.threads[cores-s.BE]
	all := pl.threads[cores]
	facts := []model.Fact{model.FactCPUs.Is(float64(all - has)), model.FactLoad.Is(s.Load.Rate)}
	if had > 0 {
		facts = append(facts, model.FactUtilisation.Is(s.Load.Rate/float64(had)))
	}
	w.Decide(model.Decision{
		Kind: model.DecideResize, Facts: facts,
		Reason: fmt.Sprintf("%s: LC goes from %d to %d CPUs, BE from %d to %d", why.text(had, &s.Load), had, has, all-had, all-has),
	})
}
