// Package cache puts best-effort tasks into a class of service of their own, which fills a few ways of the
// last-level caches and no others, and has, where an operator says so, a level of memory bandwidth (ByteDance: two ways).
//
// Intuition. LC keeps all ways, so it loses nothing that it had. What BE reads once and never again then drives out
// BE's own lines and not those of LC. No antagonist has to be found for that, as with demotion on CPU.
//
// Hard cases. Fewer ways can be worse: a BE task that lived in its cache misses more with two ways, and what it loads
// from memory instead LC waits for, too. Or LC has no use for what it gets, and BE pays for nothing. So LC's CPI is
// compared, each task's with its own, in as many windows before as after. Where it did not fall by a share, and by more
// than twice the standard error, BE gets everything back for an hour. So nothing is divided before there is something to compare with; where LC tells no CPI
// within ten minutes it is, and nobody looks whether it was good. What changes in the load meanwhile looks like an
// effect of ours; that costs an hour without the policy, and no more.
//
// Where an operator says so the ways are exclusive: services have those that BE has not, in a class of their own. The
// root group keeps all ways, so whoever else is on the machine loses nothing, and the kernel's own mode `exclusive`, which suffers no
// overlap with the root group either, is not used. Services give up ways only while BE stands in its own, only where they keep half of all (PRM's
// bound) and a class is left, and have all back as soon as that does not help, or another program sets what their class
// has. Then it goes on as overlapping, and that is compared.
//
// Where an operator says so BE fills a few ways of the L2s, too: on a core whose two threads a service and batch work share, that is what
// they share first. It is one knob for all L2s (model.L2Ways), and judged with the rest.
//
// Some services may have a part of that for themselves: parts.go.
//
// What it does not do: it looks at BE as one, and divides alike on all sockets. A mask evicts nothing: what BE had lies
// there until somebody else loads over it.
//
// Off unless an operator says otherwise: control groups are few, and one that is another's makes `pqos -I` fail.
package cache

import (
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/tally"
)

// State is what the policy remembers.
type State struct {
	Wanted int `json:"wanted"` // BE tasks that are to be in the class
	Stands int `json:"stands"` // of them, those that are
	// Before and After are the services' CPI without division and with it, of so many windows each.
	Before tally.Tally `json:"before,omitzero"`
	After  tally.Tally `json:"after,omitzero"`
	// Without and With are what was counted in those windows.
	Without Counted `json:"without,omitzero"`
	With    Counted `json:"with,omitzero"`
	// SinceNsec is when the division came into force, 0: it is not; RestNsec until when there is none.
	SinceNsec int64 `json:"since_nsec,omitempty"`
	RestNsec  int64 `json:"rest_nsec,omitempty"`
	BegunNsec int64 `json:"begun_nsec,omitempty"` // when it was first looked at LC
	HaltNsec  int64 `json:"halt_nsec,omitempty"`  // since when policy remedy is at work, or balm has something on trial, so that no window counts; 0: neither is
	Waiting   bool  `json:"waiting,omitempty"`    // for windows to compare with
	Ways      int   `json:"ways,omitempty"`       // that BE gets
	Level     int   `json:"level,omitempty"`      // of bandwidth, 0: no limit
	Of        int   `json:"of,omitempty"`         // ways that there are
	L2        int   `json:"l2,omitempty"`         // ways of each L2 that BE gets, 0: all
	L2Of      int   `json:"l2_of,omitempty"`      // that each has
	// Own is how many ways services are to have for themselves, 0: they keep all. Asked is for how many it is wished. Apart: they have them.
	Own   int  `json:"own,omitempty"`
	Asked int  `json:"asked,omitempty"`
	Apart bool `json:"apart,omitempty"`
	// Vain: ways of their own did not help services; they keep all until the cache is divided anew. Keep is why they keep all, "" where
	// that is not for a reason.
	Vain bool   `json:"vain,omitempty"`
	Keep string `json:"keep,omitempty"`

	// Parts are those that services are asked to have of their own ways, Parted the ones that stand, as bits. Whole: they were in vain;
	// services share theirs until the cache is divided anew, or other parts are named. ShareNsec: until when they do as one was refused. KeepParts is why some share theirs, "" where they do not.
	Parts     []Part `json:"parts,omitempty"`
	Parted    uint32 `json:"parted,omitempty"`
	Whole     bool   `json:"whole,omitempty"`
	ShareNsec int64  `json:"share_nsec,omitempty"`
	KeepParts string `json:"keep_parts,omitempty"`
	Named     string `json:"named,omitempty"` // by the parameter

	named      []named
	there      [model.MaxParts]bool // named parts that have services
	looked     bool                 // that, and unnamed, are known
	unnamed    bool                 // some services have no part
	want, room []Part
	comparing  bool
}

// Comparing reports whether windows are summed up that are to be compared: what others change for LC meanwhile would
// pass for an effect of ours.
func (s *State) Comparing() bool { return s.comparing }

// Step looks at a window, if one closed, and wishes for the division anew whenever something changed.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	s.comparing, s.looked = false, s.looked && !v.Changed
	have := s.offers(p, v, w)
	if have == nil {
		return
	}
	s.compare(p, have, v, w)
	waited, asked := s.Waiting, s.Asked
	if s.Asked = 0; s.Stands > 0 {
		s.Asked = s.Own
	}
	if s.Asked == 0 {
		s.want = nil
	}
	others := !slices.Equal(s.Parts, s.want)
	if others {
		s.Parts = slices.Clone(s.want)
	}
	s.Waiting = s.waits(p, v)
	s.comparing = v.Enforced() && v.NowNsec >= s.RestNsec && (s.Waiting || s.Before.Windows >= p.Windows && s.After.Windows < p.Windows)
	switch {
	case v.NowNsec < s.RestNsec:
		w.Why = "it did not help LC"
	case s.Waiting:
		w.Once("waits", model.Decision{Kind: model.DecideLeftAlone, Reason: "the cache is divided once it is known how LC does without"})
	case !v.Changed && s.RestNsec == 0 && !waited && s.Asked == asked && !others:
		w.AsBefore = true
	default:
		s.RestNsec = 0
		if s.wish(p, have, v, w); asked > 0 && s.Asked == 0 {
			w.Why = "services have all ways again"
		}
	}
}

// waits reports whether there is nothing yet that LC could be compared with afterwards.
func (s *State) waits(p *Params, v *policy.View) bool {
	now := v.NowNsec
	if s.HaltNsec > 0 {
		now = s.HaltNsec
	}
	return v.Enforced() && s.SinceNsec == 0 && s.Before.Windows < p.Windows && (s.BegunNsec == 0 || now-s.BegunNsec < p.PatienceNsec)
}

// offers works out what BE gets of the machine; nil where there is nothing to divide.
func (s *State) offers(p *Params, v *policy.View, w *policy.Wishes) *model.Classes {
	if v.Topology == nil {
		return nil
	}
	have := v.Topology.Classes
	if have == nil || len(have.Caches) == 0 && (p.Level == 0 || len(have.Memory) == 0) && (p.L2Ways == 0 || have.L2Ways == 0) {
		w.Once("nothing", model.Decision{Kind: model.DecideLeftAlone, Reason: "this machine has no cache ways to divide, or resctrl is not mounted"})
		return nil
	}
	s.Of, s.Ways, s.Level, s.L2, s.L2Of = have.Ways, 0, 0, 0, 0
	if n := max(p.Ways, have.Least); len(have.Caches) > 0 && n < have.Ways {
		s.Ways = n
	}
	if n := max(p.Level, have.LeastLevel); p.Level > 0 && len(have.Memory) > 0 && n < have.MostLevel {
		s.Level = n
	}
	if n := max(p.L2Ways, have.L2Least); p.L2Ways > 0 && n < have.L2Ways {
		s.L2, s.L2Of = n, have.L2Ways
	}
	s.Own = s.own(p, have, v, w)
	s.want = s.parting(p, have, v, w)
	return have
}

// everyL2 are the domains of the one knob that all L2s have.
var everyL2 = []int32{model.EveryDomain}

// nothing reports whether nothing is to be divided.
func (s *State) nothing() bool { return s.Ways == 0 && s.Level == 0 && s.L2 == 0 }

// own works out how many ways services get for themselves.
func (s *State) own(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) int {
	s.Keep = ""
	leave := func(word, why string) int {
		s.Keep = why
		w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Reason: why})
		return 0
	}
	n := s.Of - s.Ways
	switch {
	case p.Share != Exclusive || s.Ways == 0:
		return 0
	case s.Vain:
		s.Keep = "services keep all ways: those of their own did not help, or were too few"
		return 0
	case 2*n < s.Of:
		return leave("half", "services keep all ways: without those of best-effort work they would have fewer than half")
	case v.NotAlone(have) < 1:
		return leave("no class", "services keep all ways: no class of service is left for them")
	}
	for _, d := range have.Caches {
		switch k := v.Class(model.ClassLC, d, model.CacheWays); {
		case k.Void:
			return leave("void lc", "services keep all ways: another program sets what their class has")
		case k.Ours && !k.Pending && 2*(int(k.Now.Amount)+s.Asked-s.rest()) < s.Of: // others hold some
			s.Vain = true
			return leave("few", "services keep all ways: their class has fewer than half")
		}
	}
	return n
}

// wish claims the class for all BE, and what it gets in each domain.
func (s *State) wish(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	if s.Wanted = 0; s.nothing() {
		w.Once("all", model.Decision{Kind: model.DecideLeftAlone, Reason: fmt.Sprintf("BE is to have %d ways, and the cache has no more", p.Ways)})
		return
	}
	s.Wanted = place(p, model.BE, func(*model.Task) model.TaskNum { return model.ClassBE }, v, w)
	w.Why = "it is not to be held to a part of the cache any more"
	if s.Wanted == 0 {
		return
	}
	limit(p, w, model.ClassBE, model.CacheWays, have.Caches, s.Ways)
	limit(p, w, model.ClassBE, model.MemoryBandwidth, have.Memory, s.Level)
	limit(p, w, model.ClassBE, model.L2Ways, everyL2, s.L2)
	if s.Asked > 0 && place(p, model.LC, s.classOf, v, w) > 0 {
		if s.resting() {
			limit(p, w, model.ClassLC, model.CacheWays, have.Caches, s.rest())
		}
		for _, part := range s.Parts {
			limit(p, w, model.ClassOfPart(part.Index), model.CacheWays, have.Caches, part.Ways)
		}
	}
	w.Once("divide", model.Decision{Kind: model.DecideDivide, Reason: "best-effort work gets " + s.share()})
}

// reason is that of a claim.
func reason(class model.TaskNum) string {
	switch {
	case class > model.ClassLC && model.OfServices(class):
		return "these services have a part of the services' ways for themselves"
	case class == model.ClassLC:
		return "services have the ways that best-effort work has not"
	}
	return "best-effort work fills a part of the cache"
}

// place claims for all tasks of a kind that each is in its class of service, and counts them.
func place(p *Params, of model.Class, classOf func(*model.Task) model.TaskNum, v *policy.View, w *policy.Wishes) (n int) {
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if t.Task.Class != of {
			continue
		}
		n++
		if word, why := t.Closed(model.ServiceClass); why != "" {
			w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: t.Task.Num, Path: t.Task.Path, Reason: why})
			continue
		}
		class := classOf(&t.Task)
		w.Claims = append(w.Claims, model.Claim{
			Target: model.OfTask(t.Task.Num), Kind: model.ClaimPlace, Value: model.InClass(class), Reason: reason(class), HoldNsec: p.HoldNsec,
		})
	}
	return n
}

// limit claims what a class has in each domain; 0: it is not limited.
func limit(p *Params, w *policy.Wishes, class model.TaskNum, kind model.KnobKind, domains []int32, amount int) {
	for _, d := range domains {
		if amount > 0 {
			w.Claims = append(w.Claims, model.Claim{
				Target: model.OfClass(class, d), Kind: model.ClaimCap, Value: model.Ask(kind),
				Cap: float64(amount), Uncounted: true, Reason: reason(class), HoldNsec: p.HoldNsec,
			})
		}
	}
}

// share says what BE gets.
func (s *State) share() string {
	var parts []string
	if s.Ways > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d ways of each last-level cache", s.Ways, s.Of))
	}
	if s.L2 > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d ways of each L2", s.L2, s.L2Of))
	}
	if s.Level > 0 {
		parts = append(parts, fmt.Sprintf("level %d of memory bandwidth", s.Level))
	}
	return strings.Join(parts, ", and ")
}

// limited reports whether a class has in every domain what it is to have. What was refused, or is another program's,
// does not stand, and then to be in the class is no division that could be judged.
func limited(class model.TaskNum, kind model.KnobKind, domains []int32, amount int, v *policy.View, w *policy.Wishes) bool {
	all := true
	for _, d := range domains {
		k := v.Class(class, d, kind)
		if all = all && (amount == 0 || k.Ours); amount > 0 && k.Void {
			w.Once("void class", model.Decision{
				Kind: model.DecideLeftAlone, Reason: fmt.Sprintf("another program sets %s of class %s: nothing is compared (%s)", kind, model.ClassName(class), k.Why),
			})
		}
	}
	return all
}

// stands looks how many BE tasks have what they are to have, and whether services have ways for themselves. Where that
// is other than before, what was summed up since says nothing any more.
func (s *State) stands(have *model.Classes, v *policy.View, w *policy.Wishes) {
	s.Stands = 0
	services, apart, parted := 0, s.Apart, s.Parted
	for i := range v.Tasks {
		switch t := &v.Tasks[i]; {
		case !t.Knobs[model.ServiceClass].Ours:
		case t.Task.Class == model.LC:
			services++
		default:
			s.Stands++
		}
	}
	ways := limited(model.ClassBE, model.CacheWays, have.Caches, s.Ways, v, w) // all are looked at, and said
	l2 := limited(model.ClassBE, model.L2Ways, everyL2, s.L2, v, w)
	if level := limited(model.ClassBE, model.MemoryBandwidth, have.Memory, s.Level, v, w); !ways || !level || !l2 {
		s.Stands = 0
	}
	s.Apart, s.Parted = s.Asked > 0 && s.Own > 0 && s.Stands > 0 && services > 0, 0
	if s.Apart && s.resting() {
		s.Apart = limited(model.ClassLC, model.CacheWays, have.Caches, s.Asked, v, w)
	}
	if s.Apart && len(s.Parts) > 0 {
		s.Parted, s.Apart = s.standing(have, v, w)
	}
	if s.Apart != apart || s.Parted != parted {
		s.SinceNsec, s.After, s.With = 0, tally.Tally{}, Counted{}
	}
}

// compare takes a window in, and gives everything back where LC is worse off than before.
func (s *State) compare(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	s.stands(have, v, w)
	halt := v.Remedying || slices.ContainsFunc(have.Memory, v.TriedIn) // services are compared together
	if !halt && s.HaltNsec > 0 {
		s.BegunNsec, s.HaltNsec = min(v.NowNsec, s.BegunNsec+v.NowNsec-s.HaltNsec), 0
	} else if halt && s.HaltNsec == 0 {
		s.HaltNsec = v.NowNsec
	}
	if s.BegunNsec == 0 || v.NowNsec < s.RestNsec {
		s.BegunNsec = v.NowNsec
	}
	switch {
	case s.Stands == 0 || !v.Enforced():
		s.SinceNsec, s.After, s.With = 0, tally.Tally{}, Counted{}
	case s.SinceNsec == 0:
		s.SinceNsec = v.NowNsec
	}
	switch {
	case halt: // what is tried changes for LC would pass for an effect of ours
	case v.NowNsec < s.RestNsec: // what is before is summed up once the rest is over
	case s.SinceNsec == 0 && (s.Before.Windows < p.Windows || !v.Enforced()):
		if s.Before.Windows >= p.Windows {
			s.Before, s.Without = tally.Tally{}, Counted{} // what was long ago says little
		}
		if s.Before.Add(&v.Window); p.Counted {
			s.Without.add(v)
		}
	case s.SinceNsec != 0 && v.NowNsec-s.SinceNsec >= p.SettleNsec && s.Before.Windows >= p.Windows && s.After.Windows < p.Windows:
		if p.Counted {
			s.With.add(v)
		}
		if s.After.Add(&v.Window); s.After.Windows == p.Windows {
			s.judge(p, v, w)
		}
	}
}

// judge compares the windows before with those after.
func (s *State) judge(p *Params, v *policy.View, w *policy.Wishes) {
	ratio, noise := s.After.Beside(&s.Before)
	d := model.Decision{
		Kind: model.DecideKept, Facts: []model.Fact{model.FactRatio.Is(ratio)},
		Reason: fmt.Sprintf("with %s for best-effort work%s LC's CPI is %.3g times what it was without", s.share(), s.others(), ratio),
	}
	fell, worse := ratio <= 1-p.Gain && (p.Gain == 0 || 1-ratio >= 2*noise), ""
	if s.Parted != 0 {
		worse = s.worse(p, v)
	}
	counted, not := s.With.beside(&s.Without, p.Gain)
	if fell && worse == "" && s.Level == 0 && s.L2 == 0 { // less memory bandwidth, and lines of the L2s, help otherwise
		worse = not
	}
	if d.Reason += counted; !fell || worse != "" {
		d.Reason += worse
		switch d.Kind = model.DecideTakenBack; { // milder ways are left
		case s.Parted != 0:
			s.Whole, s.want = true, nil
			d.Reason += ": services share their ways again"
		case s.Apart:
			s.Vain, s.Own, s.want = true, 0, nil
			d.Reason += ": services have all ways again"
		default:
			s.RestNsec, s.Before, s.Without, s.BegunNsec, s.Vain, s.Whole = v.NowNsec+p.RestNsec, tally.Tally{}, Counted{}, 0, false, false
		}
	}
	w.Decide(d)
}

// apart says where services stand that are to have ways for themselves.
func (s *State) apart() string {
	switch {
	case s.Apart:
		return fmt.Sprintf("; services have the other %d", s.Asked) + s.parts()
	case s.Keep != "":
		return "; " + s.Keep
	case s.Own > 0:
		return fmt.Sprintf("; services are to have the other %d, and have all", s.Own)
	}
	return ""
}

// others says what services have, where it is not all.
func (s *State) others() string {
	if !s.Apart {
		return ""
	}
	if s.Parted != 0 {
		return " and the others for services, in parts"
	}
	return " and the others for services"
}

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	switch {
	case s.nothing():
		return "nothing to divide"
	case s.RestNsec > 0:
		return "it did not help LC: not now"
	case now == model.ModeEnforce:
		return fmt.Sprintf("%d of %d BE tasks have %s%s", s.Stands, s.Wanted, s.share(), s.apart())
	}
	return fmt.Sprintf("would give %d BE tasks %s", s.Wanted, s.share())
}
