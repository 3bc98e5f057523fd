package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Status is what the agent says of itself and of the node.
type Status struct {
	Version    string            `json:"version"`
	Profile    string            `json:"profile"`
	Mode       string            `json:"mode"`        // as configured
	ModeNow    string            `json:"mode_now"`    // after kill switch and protection
	KillSwitch bool              `json:"kill_switch"` // the file is there
	ProtectOff []string          `json:"protect_off"` // jobs; "" stands for all
	StartedAt  time.Time         `json:"started_at"`
	Windows    uint64            `json:"windows"`
	Warnings   []string          `json:"warnings"`
	Node       NodeStatus        `json:"node"`
	Policies   []PolicyStatus    `json:"policies"`
	Tasks      []TaskStatus      `json:"tasks"`
	Specs      []*model.Spec     `json:"specs"`
	Held       []HeldStatus      `json:"held"`
	Incidents  []*model.Incident `json:"incidents"` // the latest, oldest first
	SLO        []SLOStatus       `json:"slo"`
	Fleet      *uplink.Status    `json:"fleet,omitempty"` // absent: this node is of no fleet
}

// NodeStatus is the node in the last window, in CPU-sec/sec.
type NodeStatus struct {
	CPUs  int         `json:"cpus"`
	Busy  model.Value `json:"busy"`
	Steal model.Value `json:"steal"` // what the hypervisor took
	LC    float64     `json:"lc"`    // of all LC tasks
	BE    float64     `json:"be"`    // of all BE tasks
	Other model.Value `json:"other"` // of no task
	// Pool is the pool of shared LC tasks, as the cpu_pool policy measured it last.
	Pool PoolStatus `json:"pool"`
	// Memory is each memory domain, as the bandwidth policy measured it last; none where it is off.
	Memory []MemoryStatus `json:"memory,omitempty"`
	// NoAges is why nobody tells how long pages lay idle, or guests alone do; "": the machine does.
	NoAges string `json:"no_ages,omitempty"`
}

// MemoryStatus is one memory domain (Alibaba §4.2).
type MemoryStatus struct {
	Domain      int32       `json:"domain"`
	Utilisation model.Value `json:"utilisation"` // U, a share of Peak
	Peak        float64     `json:"peak"`        // bytes a second; 0: not known
	Latency     model.Value `json:"latency"`     // ns
	BE          model.Value `json:"be"`          // bytes a second of BE, while it is in a class of its own
	Threshold   float64     `json:"threshold"`   // P, per cent of Peak; 0: not known
	Level       int         `json:"level"`       // of BE's class, in force
	Limited     bool        `json:"limited"`
}

// PoolStatus is the CPU pool of shared LC tasks (Alibaba §4.1).
type PoolStatus struct {
	Utilisation model.Value  `json:"utilisation"` // U, 0..1
	Limit       float64      `json:"limit"`       // above which quotas are halved
	CPUs        model.CPUSet `json:"cpus,omitzero"`
}

// PolicyStatus is how far one policy may go.
type PolicyStatus struct {
	Name string     `json:"name"`
	Mode model.Mode `json:"mode"` // as configured
	Now  model.Mode `json:"now"`  // after kill switch and protection
	Note string     `json:"note,omitempty"`
}

// TaskStatus is one task in its last window.
type TaskStatus struct {
	model.Task
	CPU       model.Value     `json:"cpu"` // CPU-sec/sec
	Source    model.Source    `json:"source"`
	Signal    model.Value     `json:"signal"`
	Threshold float64         `json:"threshold"` // 0: no spec yet
	Verdict   outlier.Verdict `json:"verdict"`
	// Raw are all signals as they were measured, the task's own queueing included.
	Raw model.Measures `json:"raw"`
	// Throttled is the share of the CFS periods that passed in which a quota on the task's
	// path, or of an LC or eligible task below it, stopped it; at most 1. Where its period is not known it is taken to
	// be the kernel's default.
	Throttled model.Value `json:"throttled"`
	// Idle is what is known of its idle memory; absent: nobody has read that.
	Idle *coldpages.Idle `json:"idle,omitempty"`
	// Domains is what it has of the last-level cache of each domain of resctrl, and moves to and from memory; absent: nobody counts that.
	Domains []model.DomainObservation `json:"domains,omitempty"`
	// Lacks says what the task does without, and why: "hardware counters: ...".
	Lacks []string `json:"lacks,omitempty"`
}

// HeldStatus is one knob with claims, or with something of ours in it.
type HeldStatus struct {
	Path  string           `json:"path"`
	Knob  model.KnobKind   `json:"knob"`
	State engine.KnobState `json:"state"`
	Cap   float64          `json:"cap"` // CPU-sec/sec; 0: none in force
	// Quota is what a policy lets the task use instead of what was found, CPU-sec/sec: no cap, and
	// mostly more; 0: nothing.
	Quota   float64       `json:"quota,omitempty"`
	Found   model.Setting `json:"found"`
	Written model.Setting `json:"written"`
	Claims  []model.Claim `json:"claims"`
	// NowNsec is the status's, by which claims expire.
	NowNsec int64   `json:"now_nsec"`
	Seconds float64 `json:"seconds_left"` // of the longest claim
	Why     string  `json:"why,omitempty"`
}

// Taken sums up what the task has of the last-level caches, in bytes, and moves to and from memory, in bytes a second, over all domains.
func (t *TaskStatus) Taken() (occupancy, moved model.Value) { return model.SumDomains(t.Domains) }

// Left returns the seconds until a claim of the knob expires.
func (h *HeldStatus) Left(c *model.Claim) float64 { return float64(c.ExpiresNsec-h.NowNsec) / 1e9 }

// status is called in the loop.
func (a *Agent) status() *Status {
	s := a.core.Engine.State
	st := &Status{
		Version: a.version, Profile: a.cfg.Profile, Mode: a.cfg.Policies.Mode.String(), ModeNow: s.Policies[0].Mode.String(), KillSwitch: s.Killed,
		ProtectOff: append([]string{}, s.ProtectOff...), StartedAt: a.started, Windows: a.core.counts.windows,
		Warnings: append([]string{}, a.core.Warnings...), Incidents: append([]*model.Incident{}, a.core.recent...),
		Tasks: make([]TaskStatus, 0, len(s.Tracks)), Specs: []*model.Spec{}, Held: make([]HeldStatus, 0, len(s.Ledger.Knobs)), SLO: a.slo.status(), Fleet: a.uplink.Status(),
	}
	st.Warnings = append(st.Warnings, a.core.failing()...)
	for i := range s.Tracks {
		st.Tasks = append(st.Tasks, a.task(&s.Tasks.Tasks[i], &s.Tracks[i]))
	}
	a.node(st)
	a.policies(st)
	a.lacking(st)
	st.Warnings = append(st.Warnings, Untouchable(st.Incidents)...)
	for i := range s.Specs.Entries {
		if sp := s.Specs.Entries[i].Spec; sp != nil {
			st.Specs = append(st.Specs, sp)
		}
	}
	if why := a.cfg.NoSpec(withoutSpec(s)); why != "" {
		st.Warnings = append(st.Warnings, why)
	}
	for i := range s.Ledger.Knobs {
		st.Held = append(st.Held, a.held(&s.Ledger.Knobs[i]))
	}
	return st
}

// withoutSpec counts the tasks of each job that has no spec.
func withoutSpec(s *engine.State) map[string]int {
	jobs := map[string]int{}
	for i := range s.Tasks.Tasks {
		jobs[s.Tasks.Tasks[i].Job]++
	}
	for i := range s.Specs.Entries {
		if e := &s.Specs.Entries[i]; e.Spec != nil {
			delete(jobs, e.Key.Job)
		}
	}
	return jobs
}

// briefIncidents is how many incidents a brief status has.
const briefIncidents = 12

// shorten leaves out what makes a status long and a live view does not show: specs, and of
// incidents all but the latest, of which the suspects. Incidents are shared with other
// answers, and are copied.
func (st *Status) shorten() {
	st.Specs = []*model.Spec{}
	st.Incidents = st.Incidents[max(0, len(st.Incidents)-briefIncidents):]
	for i, inc := range st.Incidents {
		c := *inc
		c.Rounds = slices.Clone(c.Rounds)
		for j := range c.Rounds {
			c.Rounds[j].Suspects = []model.Suspect{}
		}
		st.Incidents[i] = &c
	}
}

// defaultPeriodUsec is cfs_period_us of a group that nobody gave another one.
const defaultPeriodUsec = 100_000

// task is one task in its last window.
func (a *Agent) task(task *model.Task, t *engine.Track) TaskStatus {
	st := TaskStatus{
		Task: *task, CPU: t.CPU, Source: t.Source, Signal: t.Signal, Threshold: t.Limit, Verdict: t.Verdict,
		Raw: t.Raw, Throttled: t.ThrottledRate,
		Idle: a.core.Engine.State.CPU.ColdPages.Idle(&a.core.Engine.Params.CPU.ColdPages, task),
	}
	st.Domains = slices.Clone(a.core.Engine.Domains(task.Num))
	if st.Throttled.Outcome == model.OK && st.Throttled.V > 0 {
		found, _ := a.core.Engine.State.Ledger.InForce(task.Num, model.CPUBandwidth)
		st.Throttled.V = min(1, st.Throttled.V*float64(cmp.Or(max(found.PeriodUsec, 0), defaultPeriodUsec))/1e6)
	}
	return st
}

// node sums up the tasks, which must be in st already.
func (a *Agent) node(st *Status) {
	e := a.core.Engine
	n := &e.State.Node
	st.Node = NodeStatus{CPUs: n.CPUs, Busy: n.Busy, Steal: n.Steal, Other: n.Unmanaged}
	for i := range st.Tasks {
		t := &st.Tasks[i]
		switch {
		case t.CPU.Outcome != model.OK:
		case t.Class == model.LC:
			st.Node.LC += t.CPU.V
		case t.Class == model.BE:
			st.Node.BE += t.CPU.V
		}
	}
	if e.Params.Needs().Ages == (model.AskedAges{}) {
		st.Node.NoAges = "no policy asks for that; " + model.PolicyColdPages + " does in mode observe, and takes nothing"
	}
	cpus, _ := e.PoolCPUs()
	st.Node.Pool = PoolStatus{Utilisation: e.State.CPU.CPUPool.Utilisation, Limit: e.Params.CPU.CPUPool.UtilisationHigh, CPUs: cpus}
	for i := range e.State.CPU.Bandwidth.Domains {
		d := &e.State.CPU.Bandwidth.Domains[i]
		st.Node.Memory = append(st.Node.Memory, MemoryStatus{
			Domain: d.ID, Utilisation: d.Utilisation, Peak: d.PeakBytes, Latency: d.Latency, BE: d.BE, Threshold: d.P, Level: d.InForce, Limited: d.Limited,
		})
	}
}

// policies says how far each policy may go, and what there is to know of it.
func (a *Agent) policies(st *Status) {
	for _, m := range a.core.Engine.Modes() {
		st.Policies = append(st.Policies, PolicyStatus{Name: m.Policy, Mode: m.Configured, Now: m.Now, Note: m.Note})
	}
}

// maxNames bounds the names in a warning; each task says itself what it lacks.
const maxNames = 8

// lacking says of the machine and of each task what they do without, and warns once a reason.
func (a *Agent) lacking(st *Status) {
	h, ok := a.core.Host.(*linux.Host)
	if !ok {
		return
	}
	st.Warnings, st.Node.NoAges = h.Warnings(st.Warnings), cmp.Or(st.Node.NoAges, h.NoAges())
	names := map[string][]string{}
	var order []string
	for _, l := range h.Lacks(nil) {
		i, ok := slices.BinarySearchFunc(st.Tasks, l.Task, func(t TaskStatus, n model.TaskNum) int { return cmp.Compare(t.Num, n) })
		if !ok {
			continue // the engine has not heard of it yet
		}
		text := l.What + ": " + l.Why
		st.Tasks[i].Lacks = append(st.Tasks[i].Lacks, text)
		if names[text] == nil {
			order = append(order, text)
		}
		names[text] = append(names[text], l.Path)
	}
	for _, text := range order {
		list := names[text]
		who := strings.Join(list[:min(len(list), maxNames)], ", ")
		if n := len(list) - maxNames; n > 0 {
			who += fmt.Sprintf(" and %d more", n)
		}
		st.Warnings = append(st.Warnings, who+": no "+text)
	}
}

func (a *Agent) held(k *engine.Knob) HeldStatus {
	h := HeldStatus{
		Knob: k.Kind, Path: a.core.Engine.State.Tasks.NameOf(k.Target), State: k.State, Found: k.Found, Written: k.Written,
		Claims: append([]model.Claim{}, k.Claims...), Why: k.Why, NowNsec: a.core.in.MonoNsec,
	}
	// Where what was found is no limit, and lower than the cap, it is not ours to change.
	if k.Ours && k.Kind.Spec().CPUs != nil && k.Written.QuotaUsec >= 0 {
		if now := k.Written.Ratio(); k.AskedFor == model.Set || now > k.Found.Ratio() {
			h.Quota = now
		} else {
			h.Cap = now
		}
	}
	for _, c := range k.Claims {
		h.Seconds = max(h.Seconds, h.Left(&c))
	}
	return h
}
