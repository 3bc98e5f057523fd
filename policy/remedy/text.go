package remedy

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// tell is the decision that a task has less, or more.
func (h *Hold) tell(v *policy.View, x *Victim) model.Decision {
	d := model.Decision{Task: h.Task, Path: v.Table.Name(h.Task), Facts: x.facts()}
	switch h.Means {
	case Demotion:
		if d.Kind = model.DecideDemote; h.Amount > 0 {
			d.Kind = model.DecideStep
		}
	case Pool:
		d.Kind, d.Facts = model.DecidePool, append(d.Facts, model.FactCPUs.Is(h.Amount))
	case Ways:
		d.Kind, d.Facts = model.DecideDivide, append(d.Facts, model.FactWays.Is(h.Amount))
	case Bandwidth:
		d.Kind, d.Facts = model.DecideLevel, append(d.Facts, model.FactMemoryLevel.Is(h.Amount))
	case Pages:
		d.Kind, d.Facts = model.DecidePages, append(d.Facts, model.FactPagesLeft.Is(h.Amount))
	default:
		d.Kind, d.Facts = model.DecideCap, append(d.Facts, model.FactCap.Is(h.Amount), model.FactUsage.Is(h.Full))
	}
	return d
}

// takenBack are the facts of a step that is taken back. A cap is what the task has from now on, since who reckons what was taken goes by that.
func (h *Hold) takenBack(facts []model.Fact) []model.Fact {
	for i := range facts {
		if h.Means == CPU && facts[i].Name == model.FactCap.String() {
			facts[i] = model.FactCap.Is(h.Was)
		}
	}
	return facts
}

// text says what a task has and had.
func (h *Hold) text() string {
	switch h.Means {
	case Demotion:
		words := map[bool]string{false: "the least weight", true: "its own weight"}
		return fmt.Sprintf("%s, had %s", words[h.Amount > 0], words[h.Was > 0])
	case Pool:
		return fmt.Sprintf("CPUs %s, had %s", named(h.Place), named(h.Before))
	case Ways:
		return fmt.Sprintf("%.0f ways of the cache, had %.0f", h.Amount, h.Was)
	case Bandwidth:
		return fmt.Sprintf("level %.0f of memory bandwidth, had %.0f", h.Amount, h.Was)
	case Pages:
		return fmt.Sprintf("%.0f %% of its pages on the service's memory, had %.0f %%", 100*h.Amount, 100*h.Was)
	}
	return fmt.Sprintf("%.3g CPU, had %.3g", h.Amount, h.Was)
}

// text says how a service is.
func (x *Victim) text(v *policy.View) string {
	if x.Targeted {
		return fmt.Sprintf("%s takes %.3g ms, %.3g of its target", v.Table.Name(x.Task), x.Value, x.Ratio)
	}
	if x.Waiting {
		return fmt.Sprintf("%s waits for CPUs %.3g times as long as is usual at most", v.Table.Name(x.Task), x.Ratio)
	}
	return fmt.Sprintf("%s has a CPI of %.3g, %.3g of its threshold", v.Table.Name(x.Task), x.Value, x.Ratio)
}

func (x *Victim) facts() []model.Fact {
	facts := []model.Fact{model.FactSignal.Is(x.Value), model.FactThreshold.Is(x.Bound)}
	if x.Targeted {
		facts = []model.Fact{model.FactFigure.Is(x.Value), model.FactTarget.Is(x.Bound)}
	}
	if x.MPKI.Now > 0 {
		facts = append(facts, model.FactMPKI.Is(x.MPKI.Now))
	}
	if x.MPKI.N > 0 {
		facts = append(facts, model.FactMPKIQuiet.Is(x.MPKI.Quiet))
	}
	return facts
}

// cannotFix says once that nobody is left to take from; what helped is kept.
func (s *State) cannotFix(v *policy.View, w *policy.Wishes, x *Victim, text string) {
	if s.CannotFix = true; s.StuckNsec == 0 {
		s.StuckNsec = v.NowNsec
	}
	var tried []model.TaskNum
	for i := range s.Tried {
		if t := &s.Tried[i]; t.Victim == x.Task && !slices.Contains(tried, t.Task) {
			tried = append(tried, t.Task)
		}
	}
	d := model.Decision{Kind: model.DecideCannotFix, Task: x.Task, Path: v.Table.Name(x.Task), Facts: append(x.facts(), model.FactTried.Is(float64(len(tried)))), Reason: fmt.Sprintf("%s; %s; no best-effort task is left that could have less", x.text(v), text)}
	if len(s.Holds) > 0 {
		d.Reason += fmt.Sprintf("; %d holds helped, and are kept", len(s.Holds))
	}
	w.Once("cannot fix", d)
}
