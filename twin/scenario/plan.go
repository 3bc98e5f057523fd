package scenario

import (
	"fmt"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/internal/strictyaml"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Plan is a scenario that was found possible, ready to be played as often as one likes.
type Plan struct {
	Scenario *Scenario
	Settings []Setting // of the sweeps

	doc     *strictyaml.Doc
	machine machine.Config
	config  config.Config
	actors  []actor
	groups  map[string]int // of Scenario.Control
	judged  bool           // the expectations are for this profile and mode
}

// actor is one task: a task of the file, or one of its count.
type actor struct {
	name  string
	entry int // of Scenario.Tasks
	task  model.Task
	cfg   machine.TaskConfig
	group int // of Scenario.Control; -1: none
}

// newPlan checks a scenario and prepares it.
func newPlan(doc *strictyaml.Doc, s *Scenario, o Options) (*Plan, error) {
	p := &Plan{Scenario: s, doc: doc, groups: map[string]int{}, judged: true}
	p.override(o)
	for _, step := range []func() error{
		p.checkTop, func() error { return s.Machine.check(doc) }, p.checkTasks, p.checkGroups, p.checkTimeline,
		func() error { return p.checkPolicies(o) }, p.checkSpecs, p.checkMeasure, p.checkExpect,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// override takes what the command line says instead of the file.
func (p *Plan) override(o Options) {
	s := p.Scenario
	if o.Seed != nil {
		s.Seed = *o.Seed
	}
	if o.Profile != "" && o.Profile != s.Policies.Profile {
		s.Policies.Profile, p.judged = o.Profile, false
	}
	if o.Mode != "" && o.Mode != s.Policies.Mode {
		s.Policies.Mode, p.judged = o.Mode, false
	}
	p.judged = p.judged && len(o.Switches) == 0
}

func (p *Plan) checkTop() error {
	s, doc := p.Scenario, p.doc
	switch {
	case s.Name == "":
		return doc.Errorf("name", "is missing; expected a name")
	case s.Duration <= 0 || s.Duration > maxDuration:
		return doc.Errorf("duration", "is %s; expected more than 0s and at most %s", s.Duration, maxDuration)
	case len(s.Tasks) == 0:
		return doc.Errorf("tasks", "is missing; expected at least one task")
	}
	if err := s.Machine.check(doc); err != nil {
		return err
	}
	p.machine = s.Machine.config()
	return p.onGrid("duration", s.Duration)
}

// onGrid refuses times between two steps of the physics.
func (p *Plan) onGrid(key string, t time.Duration) error {
	if step := p.Scenario.Machine.Step; t%step != 0 {
		return p.doc.Errorf(key, "is %s; expected a multiple of the machine's step, %s", t, step)
	}
	return nil
}

// within refuses times that the scenario does not have.
func (p *Plan) within(key string, t time.Duration) error {
	if t < 0 || t > p.Scenario.Duration {
		return p.doc.Errorf(key, "is %s; expected 0s to the scenario's duration, %s", t, p.Scenario.Duration)
	}
	return p.onGrid(key, t)
}

// find returns the actors that a name stands for: all of a task's count, or one of them.
func (p *Plan) find(name string) []int {
	var found []int
	for i := range p.actors {
		a := &p.actors[i]
		if a.name == name || p.Scenario.Tasks[a.entry].Name == name {
			found = append(found, i)
		}
	}
	return found
}

// targets is find for a key that has to name something.
func (p *Plan) targets(key, name string) ([]int, error) {
	found := p.find(name)
	if len(found) > 0 {
		return found, nil
	}
	var known []string
	for i := range p.Scenario.Tasks {
		known = append(known, p.Scenario.Tasks[i].Name)
	}
	hint := ""
	if near := strictyaml.Nearest(name, known); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return nil, p.doc.Errorf(key, "is %q; expected the name of a task%s", short(name), hint)
}

// Errorf is an error about a key of the plan's file, for beds that cannot play everything:
// one line with the file's name and the key's line.
func (p *Plan) Errorf(key, format string, args ...any) error {
	return p.doc.Errorf(key, format, args...)
}

// MachineConfig returns the machine of the plan, for beds of other kinds.
func (p *Plan) MachineConfig() machine.Config { return p.machine }

// Config returns the agent's configuration without its tasks.
func (p *Plan) Config() config.Config { return p.config }

// Tasks returns what the agent is to be told of every task, in the order of the file.
func (p *Plan) Tasks() []model.Task {
	tasks := make([]model.Task, len(p.actors))
	for i := range p.actors {
		tasks[i] = p.actors[i].task
	}
	return tasks
}
