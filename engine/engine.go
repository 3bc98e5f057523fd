// Package engine runs the policies in a fixed order and settles what they wish for. It
// is pure: Step(input) -> output, equal inputs give equal outputs, time is data. The
// shell (agent/) owns clocks, files and goroutines; a replay feeds a record's inputs in
// and compares the outputs.
//
// The order of a tick: tasks that came and went; what the host says of earlier writes;
// what operators say; the kill switch; the window that closed, if one did (observe, judge
// outliers, learn specs); the policies (policies.go), whose wishes become claims (grant.go);
// expiry and arbitration.
package engine

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/hardcap"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Params is everything that the configuration says to the engine.
type Params struct {
	Platform       string                 `json:"platform"` // CPU type
	Mode           model.Mode             `json:"mode"`     // of the hard-cap policy
	Sources        [model.NumSources]bool `json:"sources"`  // signals that may be used
	HistoryWindows int                    `json:"history_windows"`
	CapPeriodNsec  int64                  `json:"cap_period_nsec"` // section 5: 250 ms
	Outlier        outlier.Params         `json:"outlier"`
	Spec           localspec.Params       `json:"spec"`
	Hardcap        hardcap.Params         `json:"hardcap"`
	Limits         Limits                 `json:"limits"`
	CPU            CPUParams              `json:"cpu"`
	// EndRuns ends actions that nobody asks for any more. Records from before there was such a thing are without it, and are replayed as they were.
	EndRuns bool `json:"end_runs,omitempty"`
}

// Input is one tick. Everything that could change the engine's mind is in it.
type Input struct {
	Seq      uint64          `json:"seq"`
	MonoNsec int64           `json:"mono_nsec"`
	WallNsec int64           `json:"wall_nsec"`
	Snapshot *model.Snapshot `json:"-"` // nil on ticks without a reading; recorded apart
	Pulse    *model.Pulse    `json:"-"` // nil on ticks without one; recorded apart
	// Look is a reading of memory between windows; nil: there is none.
	Look       *model.Look         `json:"look,omitempty"`
	Results    []model.Result      `json:"results,omitempty"`
	Knobs      []model.KnobReading `json:"knobs,omitempty"`
	Commands   []model.Command     `json:"commands,omitempty"`
	KillSwitch bool                `json:"kill_switch,omitempty"`
	Restored   *Restored           `json:"restored,omitempty"` // on the first tick after a restart
	// Params are new parameters, from this tick on; nil: as before.
	Params *Params `json:"params,omitempty"`
	// Specs are what a fleet, or an earlier run, knows of jobs.
	Specs []model.Spec `json:"specs,omitempty"`
	// Priors are what a fleet has seen of jobs that hurt each other, in place of what it said of the same job before.
	Priors []model.Priors `json:"priors,omitempty"`
	// SLO are readings of latency sources that are new since the last tick.
	SLO []model.Latency `json:"slo,omitempty"`
}

// Output is what a tick leads to. Its slices are reused by the next Step.
type Output struct {
	Changes   []model.Change    `json:"changes,omitempty"`
	Decisions []model.Decision  `json:"decisions,omitempty"`
	Incidents []*model.Incident `json:"incidents,omitempty"` // new or changed, as they stand now
	Observed  bool              `json:"observed,omitempty"`  // a window closed
}

// Track is what the engine remembers of one task beside its history.
type Track struct {
	Num     model.TaskNum   `json:"num"`
	Flags   outlier.Flags   `json:"flags"`
	Beside  outlier.Flags   `json:"beside,omitzero"`  // of signal io, which is judged beside
	Starved outlier.Flags   `json:"starved,omitzero"` // of signal memory, likewise
	Verdict outlier.Verdict `json:"verdict"`          // of the last window
	Source  model.Source    `json:"source"`
	Signal  model.Value     `json:"signal"`
	CPU     model.Value     `json:"cpu"`
	Limit   float64         `json:"limit"` // outlier threshold; 0: no spec
	// Raw are all signals as they were measured, and ThrottledRate how many CFS periods a second
	// quotas throttled, in the last window. Nothing is decided by them here: people look at them.
	Raw           model.Measures `json:"raw"`
	ThrottledRate model.Value    `json:"throttled_rate"`
	// FigureNsec is when the task's latency was last held against its job's target; 0: never.
	FigureNsec int64 `json:"figure_nsec,omitempty"`
	// Excused is when it was last said that the task's distress is its own doing.
	ExcusedNsec int64 `json:"excused_nsec"`
}

// NodeTrack is the node in its last window, for people to look at.
type NodeTrack struct {
	CPUs        int         `json:"cpus"`
	ElapsedNsec int64       `json:"elapsed_nsec"` // 0: there was no window yet
	Busy        model.Value `json:"busy"`         // CPU-sec/sec of the whole node
	Unmanaged   model.Value `json:"unmanaged"`    // of it, what no task used
	Steal       model.Value `json:"steal"`        // CPU-sec/sec
}

// State is the engine's whole memory. It can be written to a checkpoint and read back.
type State struct {
	Tasks   model.TaskTable     `json:"tasks"`
	Tracks  []Track             `json:"tracks"` // ordered by Num, one a task
	Prev    *model.Snapshot     `json:"prev,omitempty"`
	Specs   localspec.State     `json:"specs"`
	History *antagonist.History `json:"history"`
	Hardcap hardcap.State       `json:"hardcap"`
	Ledger  Ledger              `json:"ledger"`
	CPU     CPUState            `json:"cpu"`
	// Policies are the policies in the order in which they run, and Told what they said.
	Policies []Standing `json:"policies"`
	Told     tellings   `json:"told,omitempty"`
	// Touched is who changed something of tasks, and when last.
	Touched []policy.Touch `json:"touched,omitempty"`
	// ProtectOff lists jobs whose protection an operator turned off on this node, and FleetOff those of the whole fleet; "" stands for all. Off is what either
	// says.
	ProtectOff []string  `json:"protect_off"`
	FleetOff   []string  `json:"fleet_off,omitempty"`
	Killed     bool      `json:"killed"`
	BECPU      float64   `json:"be_cpu"` // CPU-sec/sec of BE tasks in the last window
	Node       NodeTrack `json:"node"`
	// SLO is the last reading of each latency source, ordered by job.
	SLO []model.Latency `json:"slo,omitempty"`
	// Memory is the last reading of the machine's memory, without tasks; nil: there was none.
	Memory *model.Look `json:"memory,omitempty"`
}

// Engine is State with its parameters and scratch space.
type Engine struct {
	Params Params
	State  *State

	obs     model.Observation
	scratch scratch
	out     Output
}

// Window is what the window that closed last says; good until the next Step, and of use where its Output is Observed.
func (e *Engine) Window() *model.Observation { return &e.obs }

// New returns an engine that knows nothing yet.
func New(p Params) *Engine {
	s := &State{History: antagonist.NewHistory(max(1, p.HistoryWindows))}
	s.Specs.Platform = p.Platform
	s.standings()
	return &Engine{Params: p, State: s}
}

// standings gives each policy its entry: a checkpoint may be of a version that knew others.
func (s *State) standings() {
	list := make([]Standing, len(policyRows))
	for i := range policyRows {
		list[i].Policy = policyRows[i].name
		if j := slices.IndexFunc(s.Policies, func(o Standing) bool { return o.Policy == policyRows[i].name }); j >= 0 {
			list[i] = s.Policies[j]
		}
	}
	s.Policies = list
}

// Resume returns an engine with the state of a checkpoint.
func Resume(p Params, s *State) (*Engine, error) {
	if s.History == nil || s.History.Cap != max(1, p.HistoryWindows) {
		return nil, fmt.Errorf("checkpoint: history does not fit the parameters")
	}
	if err := s.History.Check(); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if len(s.Tracks) != len(s.Tasks.Tasks) {
		return nil, fmt.Errorf("checkpoint: %d tasks, %d tracks", len(s.Tasks.Tasks), len(s.Tracks))
	}
	s.standings()
	if s.Hardcap.Claims == nil { // before records of version 3 they stood in the ledger alone
		s.Hardcap.Claims = s.Ledger.claimsOf(model.PolicyHardcap)
	}
	return &Engine{Params: p, State: s}, nil
}

// Step takes one tick. The output is good until the next one.
func (e *Engine) Step(in *Input) *Output {
	e.out = Output{Changes: e.out.Changes[:0], Decisions: e.out.Decisions[:0], Incidents: e.out.Incidents[:0]}
	if in.Restored != nil {
		e.restore(in)
	}
	e.told(in)
	if in.Snapshot != nil {
		e.tasks(in)
	}
	e.learn(in)
	for i := range in.Commands {
		e.command(in, &in.Commands[i])
		e.moved() // policies see in this step what an operator did: one that was read back at it does, too
	}
	e.killSwitch(in)
	e.scratch.victims, e.scratch.beside = e.scratch.victims[:0], e.scratch.beside[:0]
	e.window(in)
	e.look(in)
	e.policies(in)
	e.doubt(in)
	e.settle(in)
	return &e.out
}

// tasks takes in who came and who went.
func (e *Engine) tasks(in *Input) {
	s := e.State
	e.lookAtSnapshot(in.Snapshot)
	for _, n := range in.Snapshot.Removed {
		t := s.Tasks.Get(n)
		if t == nil {
			continue
		}
		s.Specs.Forget(e.Params.Spec, t)
		s.Tasks.Remove(n)
		s.Tracks = slices.DeleteFunc(s.Tracks, func(t Track) bool { return t.Num == n })
		s.History.Forget(n)
		s.Ledger.Gone(model.OfTask(n), in.MonoNsec)
		s.Told.forget(func(t *told) bool { return t.Task == n })
		s.Touched = slices.DeleteFunc(s.Touched, func(t policy.Touch) bool { return t.Task == n })
	}
	for _, t := range in.Snapshot.Added {
		s.Tasks.Add(t)
		s.History.Ensure(t.Num)
		i, ok := slices.BinarySearchFunc(s.Tracks, t.Num, func(a Track, n model.TaskNum) int { return int(int64(a.Num) - int64(n)) })
		if !ok {
			s.Tracks = slices.Insert(s.Tracks, i, Track{Num: t.Num})
		}
	}
	for _, sh := range in.Snapshot.Shields {
		s.Ledger.shield(sh, in.MonoNsec)
		if d := (model.Decision{Kind: model.DecideLeftAlone, Task: sh.Task, Reason: sh.Why}); sh.Why != "" {
			e.decide(in, d)
		}
	}
	for _, k := range in.Snapshot.Settings {
		if k.Outcome == model.OK {
			s.Ledger.Bases.put(k.Target, k.Value)
		} else {
			s.Ledger.Bases.drop(k.Target, k.Value.Knob)
		}
	}
}

// learn takes in what became of earlier writes, and what held knobs say now.
func (e *Engine) learn(in *Input) {
	for i := range in.Results {
		r := &in.Results[i]
		e.answered(in, r)
		if kind, reason := e.State.Ledger.Learn(r, in.MonoNsec); kind != model.DecideNothing {
			e.decide(in, model.Decision{Kind: kind, Task: r.Task(), Path: e.State.Tasks.NameOf(r.Target), Reason: reason})
		}
		e.moved()
	}
	for i := range in.Knobs {
		k := &in.Knobs[i]
		if kind, reason := e.State.Ledger.Compare(k, in.MonoNsec); kind != model.DecideNothing {
			e.decide(in, model.Decision{Kind: kind, Task: k.Task(), Path: e.State.Tasks.NameOf(k.Target), Reason: reason})
			e.touched(in, k.Target, k.Value.Knob, model.Set, byStranger)
			e.moved()
		}
	}
}

// killSwitch releases everything when the file appears, and says when it goes.
func (e *Engine) killSwitch(in *Input) {
	if in.KillSwitch {
		e.State.Ledger.DropAll()
	}
	if in.KillSwitch == e.State.Killed {
		return
	}
	e.State.Killed = in.KillSwitch
	reason := "the kill switch is gone: policies are as configured"
	if in.KillSwitch {
		reason = "the kill switch is there: everything is released and nothing is held"
	} else {
		e.State.Hardcap.Wake()
	}
	e.decide(in, model.Decision{Kind: model.DecideKill, Reason: reason})
}

// decide records a decision that is not part of an incident's own story.
func (e *Engine) decide(in *Input, d model.Decision) {
	d.MonoNsec, d.WallNsec = in.MonoNsec, in.WallNsec
	if d.Path == "" && d.Task != 0 { // hosts number tasks from 1: 0 is the whole node
		d.Path = e.State.Tasks.Name(d.Task)
	}
	e.out.Decisions = append(e.out.Decisions, d)
}
