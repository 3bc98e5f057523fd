package twin_test

import (
	"fmt"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/outlier"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// The policies beyond CPI² on the simulated machine's physics: each scene is played with
// the switch off and on, from the same seed, and what differs is the point.

// neighbour is a BE task of a scene.
type neighbour struct {
	name   string
	guilty bool
	task   machine.TaskConfig
	num    model.TaskNum
}

// outcome is what a scene came to.
type outcome struct {
	windows, bad int // of all services after the onset, with evidence
	// first is when a guilty one was first held, in seconds from the onset; -1: never.
	first int
	// Seconds held, and CPU-seconds used, by name.
	innocent, guilty map[string]int
	cpu              map[string]float64
	writes           int
	recovered        int
	nudged           float64
	incidents        map[string]*model.Incident
}

func (o *outcome) suffering() float64 { return float64(o.bad) / float64(max(1, o.windows)) }

// stream is a task that streams through memory.
func stream(threads int, phases ...machine.Phase) machine.TaskConfig {
	return machine.TaskConfig{
		Threads: threads, CPI: 0.6, APKI: 40, Overlap: 10, WriteShare: 0.3,
		Curve: machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{40, 39, 38}}, Work: &machine.Work{Phases: phases},
	}
}

// registers is a task that computes without touching memory.
func registers(threads int, phases ...machine.Phase) machine.TaskConfig {
	return machine.TaskConfig{
		Threads: threads, CPI: 0.8, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}},
		Work: &machine.Work{Phases: phases},
	}
}

func phase(seconds, jitter, cpus float64) machine.Phase {
	return machine.Phase{Nsec: int64(seconds * 1e9), Jitter: jitter, CPUs: cpus}
}

// stage is newScene with another seed and another spread of the services' own CPI.
func stage(t *testing.T, seed uint64, spread float64) *scene {
	t.Helper()
	c := machine.Skylake()
	c.Sockets = 1
	m, err := machine.New(c, seed)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{host: twin.NewHost(m, true), incidents: map[string]*model.Incident{}}
	for i := range 5 {
		task := model.Task{Path: fmt.Sprintf("/web/%d", i), Job: "web", Class: model.LC, Production: true}
		n, err := s.host.Start(task, machine.TaskConfig{
			Name: task.Path, Threads: 4, CPI: 1, APKI: 12, Overlap: 2, WriteShare: 0.2, Spread: spread, SpreadNsec: 1e9,
			Curve:    machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{6, 3, 2, 1.5, 1.2, 1}},
			Requests: &machine.Requests{PerSecond: 2000, Instructions: 500e3, Variation: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.services = append(s.services, n)
	}
	return s
}

// theatre is the services of newScene and whoever a scene adds, on one socket.
func theatre(t *testing.T, seed uint64, spread float64, params func(*engine.Params), seconds int, cast ...neighbour) *outcome {
	t.Helper()
	s := stage(t, seed, spread)
	c, ok := config.Defaults(config.ProfileSingleNode)
	if !ok {
		t.Fatal("no profile single-node")
	}
	c.Policies.Mode = model.ModeEnforce
	p := c.Params("skylake")
	params(&p)
	e := engine.New(p)
	s.enter(t, false, cast)
	s.play(t, e, 300)
	s.enter(t, true, cast)
	return s.watch(t, e, seconds, cast)
}

// enter starts the guilty or the innocent.
func (s *scene) enter(t *testing.T, guilty bool, cast []neighbour) {
	t.Helper()
	for i := range cast {
		n := &cast[i]
		if n.guilty != guilty {
			continue
		}
		n.task.Name = n.name
		task := model.Task{Path: "/batch/" + n.name, Job: n.name, Class: model.BE, Importance: model.BestEffort}
		num, err := s.host.Start(task, n.task)
		if err != nil {
			t.Fatal(err)
		}
		n.num = num
	}
}

// watch plays on and keeps the books.
func (s *scene) watch(t *testing.T, e *engine.Engine, seconds int, cast []neighbour) *outcome {
	t.Helper()
	o := &outcome{first: -1, innocent: map[string]int{}, guilty: map[string]int{}, cpu: map[string]float64{}}
	held := map[model.TaskNum]bool{}
	for sec := range seconds {
		before := e.State.Ledger.NextChange
		s.play(t, e, 1)
		o.writes += int(e.State.Ledger.NextChange - before)
		for _, k := range s.host.Knobs(nil) {
			held[k.Task()] = true
		}
		for i := range e.State.Tracks {
			tr := &e.State.Tracks[i]
			if task := e.State.Tasks.Get(tr.Num); task != nil && task.Class == model.LC && tr.Verdict.Evidence() {
				o.windows++
				if tr.Verdict == outlier.Outlier {
					o.bad++
				}
			}
			for j := range cast {
				if cast[j].num == tr.Num && tr.CPU.Outcome == model.OK {
					o.cpu[cast[j].name] += tr.CPU.V
				}
			}
		}
		now := map[model.TaskNum]bool{}
		for _, k := range s.host.Knobs(nil) {
			now[k.Task()] = true
		}
		for i := range cast {
			n := &cast[i]
			if !now[n.num] {
				continue
			}
			if n.guilty {
				o.guilty[n.name]++
				if o.first < 0 {
					o.first = sec
				}
			} else {
				o.innocent[n.name]++
			}
		}
	}
	for _, inc := range s.incidents {
		if inc.State == model.Recovered {
			o.recovered++
		}
	}
	o.nudged, o.incidents = e.State.Hardcap.NudgedLost, s.incidents
	return o
}

func (o *outcome) String() string {
	return fmt.Sprintf("suffering %.1f %% of %d windows, first guilty held after %d s, held guilty %v s, innocent %v s, cpu %v, %d writes, %d of %d incidents recovered, nudges cost %.1f CPU-s",
		100*o.suffering(), o.windows, o.first, o.guilty, o.innocent, o.cpu, o.writes, o.recovered, len(o.incidents), o.nudged)
}

// switches returns a change of the parameters that turns policies on.
func switches(groups, feedback, confirm bool) func(*engine.Params) {
	return func(p *engine.Params) {
		p.Hardcap.Groups.Enabled, p.Hardcap.Feedback.Enabled, p.Hardcap.Confirm.Enabled = groups, feedback, confirm
	}
}

func seedOnly(*engine.Params) {}

// innocentShare is the share of the innocents' time in which they were held.
func (o *outcome) innocentShare(seconds, innocents int) float64 {
	sum := 0
	for _, s := range o.innocent {
		sum += s
	}
	return float64(sum) / float64(seconds*innocents)
}

// Three streams in bursts of their own, each too weak to stand out, beside two innocents: with
// groups on the services suffer at most two thirds as much, and the innocents are let be.
func TestGroupsOnTheTwin(t *testing.T) {
	cast := func() []neighbour {
		return []neighbour{
			{name: "s1", guilty: true, task: stream(3, phase(4, 0.3, 3), phase(5, 0.3, 0.1))},
			{name: "s2", guilty: true, task: stream(3, phase(5, 0.3, 3), phase(6, 0.3, 0.1))},
			{name: "s3", guilty: true, task: stream(3, phase(6, 0.3, 3), phase(7, 0.3, 0.1))},
			{name: "steady", task: registers(6)},
			{name: "bursty", task: registers(3, phase(5, 0.3, 3), phase(5, 0.3, 0.1))},
		}
	}
	off := theatre(t, 7, 0.04, seedOnly, 600, cast()...)
	on := theatre(t, 7, 0.04, switches(true, false, false), 600, cast()...)
	all := theatre(t, 7, 0.04, switches(true, true, true), 600, cast()...)
	t.Logf("off: %s\ngroups: %s\nall: %s", off, on, all)
	if on.suffering() > off.suffering()*2/3 || all.suffering() > off.suffering()*2/3 {
		t.Errorf("suffering: off %.2f, groups %.2f, all %.2f", off.suffering(), on.suffering(), all.suffering())
	}
	if a, b := on.innocentShare(600, 2), all.innocentShare(600, 2); a > 0.02 || b > 0.02 {
		t.Errorf("innocents were held %.1f %% of the time, with all switches %.1f %%", 100*a, 100*b)
	}
}

// A stream that misses the threshold, and an innocent with its very rhythm: by the correlation
// alone nobody is held or the wrong one; a nudge tells them apart.
func TestConfirmOnTheTwin(t *testing.T) {
	cast := func() []neighbour {
		return []neighbour{
			{name: "copy", task: registers(8, phase(8, 0, 8), phase(4, 0, 0.02))},
			{name: "stream", guilty: true, task: stream(6, phase(8, 0, 6), phase(4, 0, 0.1))},
			{name: "steady", task: registers(6)},
		}
	}
	off := theatre(t, 7, 0.04, seedOnly, 600, cast()...)
	on := theatre(t, 7, 0.04, switches(false, false, true), 600, cast()...)
	t.Logf("off: %s\nconfirm: %s", off, on)
	if on.suffering() > off.suffering()/2 {
		t.Errorf("suffering: off %.2f, confirm %.2f", off.suffering(), on.suffering())
	}
	if s := on.innocentShare(600, 2); s > 0.01 {
		t.Errorf("innocents were held %.1f %% of the time", 100*s)
	}
}

// A stream that never pauses, before services whose own CPI varies as a fleet's does. Against
// CPI²'s cap held equally long, the cap that follows the victims leaves it several times
// the work, while they suffer little more.
func TestFeedbackOnTheTwin(t *testing.T) {
	cast := func() []neighbour {
		return []neighbour{{name: "stream", guilty: true, task: stream(8)}, {name: "steady", task: registers(8)}}
	}
	long := func(p *engine.Params) { p.Hardcap.DurationNsec = p.Hardcap.Feedback.MaxDurationNsec }
	off := theatre(t, 7, 0.09, long, 600, cast()...)
	on := theatre(t, 7, 0.09, switches(false, true, false), 600, cast()...)
	t.Logf("held as long: %s\nfeedback: %s", off, on)
	if on.cpu["stream"] < 4*off.cpu["stream"] {
		t.Errorf("the antagonist got %.0f CPU-seconds with feedback, %.0f without", on.cpu["stream"], off.cpu["stream"])
	}
	if on.suffering() > off.suffering()+0.1 {
		t.Errorf("suffering: %.2f, with feedback %.2f", off.suffering(), on.suffering())
	}
	if on.writes > 120 {
		t.Errorf("%d writes in ten minutes", on.writes)
	}
}
