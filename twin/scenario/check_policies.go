package scenario

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/internal/strictyaml"
	"github.com/commensal-io/commensal/model"
)

// notHere are sections of the agent's configuration that a scenario says otherwise.
var notHere = []string{"version", "profile", "mode", "hard_cap.mode", "tasks", "slo", "agent", "record"}

// checkPolicies makes the agent's configuration, checked by the agent's own rules.
func (p *Plan) checkPolicies(o Options) error {
	pol := &p.Scenario.Policies
	c, ok := config.Defaults(pol.Profile)
	if !ok {
		return p.doc.Errorf("policies.profile", "is %q; expected one of %s", short(pol.Profile), strings.Join(config.Profiles(), ", "))
	}
	c.Policies.SetModes(model.ModeOff) // a scenario that is about them says so
	var mode model.Mode
	if mode.UnmarshalText([]byte(pol.Mode)) != nil {
		return p.doc.Errorf("policies.mode", "is %q; expected off, observe or enforce", short(pol.Mode))
	}
	if err := p.within("policies.warm_up", pol.WarmUp); err != nil {
		return err
	}
	for _, key := range notHere {
		if p.doc.Has("policies.config." + key) {
			return p.doc.Errorf("policies.config."+key, "is said elsewhere in a scenario, or has no meaning here")
		}
	}
	if err := c.DecodeAt(p.doc, "policies.config"); err != nil {
		return err
	}
	if err := switches(&c, o.Switches); err != nil {
		return err
	}
	c.Policies.Mode = mode
	for i := range p.actors {
		t := &p.actors[i].task
		if t.Job == "" {
			continue
		}
		rule := config.Task{
			Match: t.Path, Job: t.Job, Class: t.Class.String(), Production: t.Production, Eligible: t.Eligible,
			Exclusive: t.Exclusive, Cores: t.Cores,
		}
		if t.Class == model.BE {
			rule.Importance = t.Importance.String()
		}
		c.Tasks = append(c.Tasks, rule)
	}
	if err := c.CheckAt(p.doc, "policies.config"); err != nil {
		return err
	}
	p.config = c
	return nil
}

// switches sets keys that the command line names.
func switches(c *config.Config, list []Setting) error {
	for _, s := range list {
		lines := strings.Split(s.Key, ".")
		text := s.Value
		for i := len(lines) - 1; i >= 0; i-- {
			text = fmt.Sprintf("{%q: %s}", lines[i], text)
		}
		doc, err := strictyaml.Parse("--policies", []byte(text))
		if err == nil {
			err = c.DecodeAt(doc, "")
		}
		if err != nil {
			return fmt.Errorf("--policies: %s=%s: %w", s.Key, s.Value, err)
		}
	}
	return nil
}

// checkSpecs checks what a fleet is said to have learned.
func (p *Plan) checkSpecs() error {
	for i := range p.Scenario.Specs {
		s := &p.Scenario.Specs[i]
		at := fmt.Sprintf("specs[%d]", i)
		var src model.Source
		if s.Source == "" {
			s.Source = model.SourceCPI.String()
		}
		if s.Samples == 0 {
			s.Samples = defaultSpecSamples
		}
		switch {
		case !p.hasJob(s.Job):
			return p.doc.Errorf(at+".job", "is %q; expected the job of a task", short(s.Job))
		case src.UnmarshalText([]byte(s.Source)) != nil:
			return p.doc.Errorf(at+".source", "is %q; expected cpi or slowdown", short(s.Source))
		case !(s.Mean > 0 && s.Mean <= 1e6):
			return p.doc.Errorf(at+".mean", "is %g; expected more than 0", s.Mean)
		case !(s.StdDev >= 0 && s.StdDev <= 1e6):
			return p.doc.Errorf(at+".stddev", "is %g; expected 0 or more", s.StdDev)
		case s.Samples < 2 || s.Samples > 1e12:
			return p.doc.Errorf(at+".samples", "is %d; expected 2 or more", s.Samples)
		}
		for j := range i {
			if o := &p.Scenario.Specs[j]; o.Job == s.Job && o.Source == s.Source {
				return p.doc.Errorf(at, "job %q has a spec of %s already in line %d", s.Job, s.Source, p.doc.Line(fmt.Sprintf("specs[%d]", j)))
			}
		}
	}
	return nil
}

// defaultSpecSamples is what a fleet has seen: local samples hardly move it.
const defaultSpecSamples = 100_000

// wholeWindow is measured when a scenario names no windows.
const wholeWindow = "all"

// checkMeasure checks the windows.
func (p *Plan) checkMeasure() error {
	s := p.Scenario
	if len(s.Measure) == 0 {
		from := min(s.Policies.WarmUp, s.Duration)
		if from == s.Duration {
			from = 0
		}
		s.Measure = []Window{{Name: wholeWindow, From: from, To: s.Duration}}
		return nil
	}
	if len(s.Measure) > maxWindows {
		return p.doc.Errorf("measure", "has %d windows; expected at most %d", len(s.Measure), maxWindows)
	}
	for i := range s.Measure {
		w := &s.Measure[i]
		at := fmt.Sprintf("measure[%d]", i)
		w.To = cmp.Or(w.To, s.Duration)
		if !nameForm.MatchString(w.Name) {
			return p.doc.Errorf(at+".name", "is %q; expected letters, digits, - and _, a letter first", short(w.Name))
		}
		for j := range i {
			if s.Measure[j].Name == w.Name {
				return p.doc.Errorf(at+".name", "is %q, which is also the name in line %d", w.Name, p.doc.Line(fmt.Sprintf("measure[%d].name", j)))
			}
		}
		if err := p.within(at+".from", w.From); err != nil {
			return err
		}
		if err := p.within(at+".to", w.To); err != nil {
			return err
		}
		if w.To <= w.From {
			return p.doc.Errorf(at+".to", "is %s, not after from, %s", w.To, w.From)
		}
	}
	return nil
}

// maxWindows keeps a result readable.
const maxWindows = 64

// checkExpect checks what a run is judged by.
func (p *Plan) checkExpect() error {
	x := &p.Scenario.Expect
	for _, list := range []struct {
		key   string
		names []string
	}{{"expect.named", x.Named}, {"expect.only_held", x.OnlyHeld}} {
		for i, name := range list.names {
			if _, err := p.targets(fmt.Sprintf("%s[%d]", list.key, i), name); err != nil {
				return err
			}
		}
	}
	if x.TimeToName < 0 || x.TimeToName > 0 && len(x.Named) == 0 {
		return p.doc.Errorf("expect.time_to_name", "is %s; expected a time, and who is to be named", x.TimeToName)
	}
	for i, d := range x.Decisions {
		at := fmt.Sprintf("expect.decisions[%d]", i)
		if names := model.DecisionKindNames(); !slices.Contains(names, d.Kind) {
			return p.doc.Errorf(at+".kind", "is %q; expected one of %s", short(d.Kind), strings.Join(names, ", "))
		}
		if d.Task != "" {
			if _, err := p.targets(at+".task", d.Task); err != nil {
				return err
			}
		}
	}
	for i := range x.Blame {
		if err := p.checkBlame(fmt.Sprintf("expect.blame[%d]", i), &x.Blame[i]); err != nil {
			return err
		}
	}
	for i := range x.Figures {
		if err := p.checkFigure(fmt.Sprintf("expect.figures[%d]", i), &x.Figures[i]); err != nil {
			return err
		}
	}
	for i := range x.Trends {
		if err := p.checkTrend(fmt.Sprintf("expect.trends[%d]", i), &x.Trends[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkFigureOf checks which figure of whom in which window is meant.
func (p *Plan) checkFigureOf(at, task, window, figure string) error {
	if _, err := p.targets(at+".task", task); err != nil {
		return err
	}
	if p.window(window) < 0 {
		return p.doc.Errorf(at+".window", "is %q; expected the name of a window under measure", short(window))
	}
	if _, ok := figures[figure]; !ok {
		return p.doc.Errorf(at+".figure", "is %q; expected one of %s", short(figure), strings.Join(FigureNames(), ", "))
	}
	return nil
}

func (p *Plan) checkFigure(at string, f *Figure) error {
	if err := p.checkFigureOf(at, f.Task, f.Window, f.Figure); err != nil {
		return err
	}
	if f.Over != "" && p.window(f.Over) < 0 {
		return p.doc.Errorf(at+".over", "is %q; expected the name of a window under measure", short(f.Over))
	}
	return p.checkRange(at, &f.Range)
}

func (p *Plan) checkBlame(at string, b *BlameWant) error {
	if untouchable[b.Of] == model.SuspectTask {
		if _, err := p.targets(at+".of", b.Of); err != nil {
			return err
		}
	}
	return p.checkRange(at, &b.Range)
}

func (p *Plan) checkRange(at string, g *Range) error {
	if g.Above == nil && g.Below == nil {
		return p.doc.Errorf(at, "bounds nothing; expected above, below or both")
	}
	for _, b := range []struct {
		key   string
		bound *float64
	}{{".above", g.Above}, {".below", g.Below}} {
		if b.bound != nil && math.IsNaN(*b.bound) {
			return p.doc.Errorf(at+b.key, "is no number")
		}
	}
	return nil
}

// window returns the index of a window, -1 when there is none of that name. "" is the
// only one.
func (p *Plan) window(name string) int {
	return slices.IndexFunc(p.Scenario.Measure, func(w Window) bool { return w.Name == name || name == "" && len(p.Scenario.Measure) == 1 })
}

// Seconds of the warm-up, for the runner.
func (p *Plan) warmUp() time.Duration { return p.Scenario.Policies.WarmUp }
