// Package bandwidth holds best-effort work to a part of each memory's bandwidth while memory is busy and slow (Alibaba,
// §4.2: what it tunes Intel's DRC by), through the levels of memory bandwidth of its class of service.
//
// Intuition. Waiting for memory grows steeply near its peak, and what brings it there is batch work. A fixed limit that
// is low enough for that moment costs batch work an order of magnitude all day long. So a threshold P follows how much
// of the bandwidth is in use, U, and how long memory takes to answer, L: at U <= 20 % or L <= 200 ns there is no limit,
// above it falls in a line, down to 20 at U >= 60 %. Levels come down at once and go up by one a step.
//
// Hard cases. P is a number of DRC's; here it is per cent of the memory's bandwidth, for BE. Levels are no bytes on
// Intel, and what one does depends on cores and programs: it is learned, per memory (fit.go). What memory can deliver at
// the most Linux does not say: it is a parameter, or the largest rate that was seen, and without either there is no U and
// no limit. L is known where uncore counters are read; elsewhere LC's CPI stands in for it, and where there is none U alone
// decides (basis). What is read is a window old, so nothing follows from a reading that began before the last
// change (domain.go). And a limit may cost BE and help nobody: it is compared, and taken back (verify.go).
//
// With `adaptive` the thresholds are left aside, and the level is searched by LC's CPI alone (adapt.go).
//
// A memory is not a domain: caches that share one (AMD: up to sixteen a socket) are one memory here, whose U and BE are the sum of what is counted of
// each, and all of them have one level. What counts in bytes each may have an equal part of (ladder).
//
// What it does not do: it holds all BE alike. Intel's levels delay requests to all memories, so BE on one socket
// that reads another's memory is limited by its own socket's level, and the other's U.
package bandwidth

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/tally"
)

// State is what the policy remembers.
type State struct {
	Wanted  int      `json:"wanted"` // BE tasks that are to be in the class
	Stands  int      `json:"stands"` // of them, those that are
	Domains []Domain `json:"domains,omitempty"`
	Most    int      `json:"most,omitempty"`  // the level that is no limit, by which levels are counted
	Basis   Basis    `json:"basis,omitempty"` // what the last step went by
	Resting bool     `json:"resting,omitempty"`

	// Loose and Tight are LC's CPI in windows in which there should have been a limit and was none, and in which there was.
	Loose tally.Tally `json:"loose,omitzero"`
	Tight tally.Tally `json:"tight,omitzero"`
	// TightNsec is since when a limit stands that was not compared yet; FreeNsec until when there is none because it
	// did not help; KeptNsec until when nothing is compared because it did; Probing: BE is let go to be compared with.
	TightNsec int64 `json:"tight_nsec,omitempty"`
	FreeNsec  int64 `json:"free_nsec,omitempty"`
	KeptNsec  int64 `json:"kept_nsec,omitempty"`
	Probing   int   `json:"probing,omitempty"` // windows that it may yet take
	// Ran is how much CPU time BE takes while it is to have a limit, CPU-sec/sec; 0: not known.
	Ran float64 `json:"ran,omitempty"`

	Quiet   []Quiet `json:"quiet,omitempty"` // of adaptive: ordered by task
	changed bool    // a level is other than in the step before
}

// Basis says what a threshold is worked out from.
type Basis string

// The bases.
const (
	ByLatency Basis = "utilisation and latency"
	ByCPI     Basis = "utilisation and the services' CPI, as nobody tells memory's latency"
	ByUse     Basis = "utilisation alone, as nobody tells memory's latency or the services' CPI"
	BySearch  Basis = "the services' CPI alone"
)

// Step looks at what is new of memory and services, and wishes for levels.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	have := v.Levels(w)
	if have == nil {
		return
	}
	s.changed = false
	s.follow(have, v)
	s.look(p, have, v, w)
	if s.Resting = v.Comparing || v.Remedying; !s.Resting && v.Window.Closed {
		s.decide(p, have, v, w)
	}
	if w.AsBefore = !v.Changed && !s.changed; !w.AsBefore {
		s.wish(p, have, v, w)
	}
}

// follow keeps the memories, and says what stands in each: the laxest level of its domains. Where levels count otherwise than before (resctrl was
// mounted anew) all begins anew, and else those memories that were not there.
func (s *State) follow(have *model.Classes, v *policy.View) {
	all := v.Memories(have)
	if s.Stands = 0; s.Most != have.MostLevel {
		s.Domains, s.Most = nil, have.MostLevel
	}
	if !slices.EqualFunc(s.Domains, all, func(d Domain, m model.Memory) bool { return d.ID == m.ID() }) {
		had := s.Domains
		s.Domains = make([]Domain, len(all))
		for i := range all {
			s.Domains[i] = Domain{ID: all[i].ID(), Level: have.MostLevel, InForce: have.MostLevel}
			if at := slices.IndexFunc(had, func(d Domain) bool { return d.ID == all[i].ID() }); at >= 0 {
				s.Domains[i] = had[at]
			}
		}
	}
	for i := range v.Tasks {
		if t := &v.Tasks[i]; t.Task.Class == model.BE && t.Knobs[model.ServiceClass].Ours {
			s.Stands++
		}
	}
	for i := range s.Domains {
		d, level, void := &s.Domains[i], 0, false
		for _, id := range all[i].Domains {
			k := v.Class(model.ClassBE, id, model.MemoryBandwidth)
			if void = void || k.Void; k.Ours {
				level = max(level, int(k.Now.Amount))
			} else {
				level = have.MostLevel
			}
		}
		if d.Void, d.Limited = void, level < have.MostLevel; level != d.InForce {
			d.InForce, d.SetNsec = level, v.NowNsec
		}
	}
}

// decide works out the levels of a window.
func (s *State) decide(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	if basis := s.basisOf(p, v); basis != s.Basis {
		s.Basis = basis
		w.Decide(model.Decision{Kind: model.DecideBasis, Reason: "memory bandwidth is divided by " + string(basis)})
	}
	switch {
	case slices.ContainsFunc(have.Memory, v.TriedIn): // services are compared together
	case p.Adaptive:
		s.learnQuiet(p, have, v)
	default:
		s.verify(p, v, w)
	}
	for i := range s.Domains {
		d := &s.Domains[i]
		if slices.ContainsFunc(v.Memories(have)[i].Domains, v.TriedIn) {
			continue
		}
		l := s.ladder(have, v, i)
		was := d.Level
		switch {
		case d.Void || v.NowNsec < s.FreeNsec || s.Probing > 0:
			d.Level = have.MostLevel
		case !p.Adaptive:
			d.hold(p, &l, v.Enforced())
		case v.Enforced():
			s.search(p, &l, i, have, v)
		}
		if d.Level != was {
			s.changed = true
			w.Decide(d.tell(was))
		}
	}
}

// basisOf says what there is to go by.
func (s *State) basisOf(p *Params, v *policy.View) Basis {
	cpi, known := false, false
	for i := range v.Window.Victims {
		cpi = cpi || v.Window.Victims[i].Source == model.SourceCPI
	}
	latency := false
	for i := range s.Domains {
		latency = latency || s.Domains[i].Latency.Outcome == model.OK
		known = known || s.Domains[i].Utilisation.Outcome == model.OK
	}
	switch {
	case p.Adaptive:
		return BySearch
	case !known:
		return s.Basis
	case latency:
		return ByLatency
	case cpi:
		return ByCPI
	}
	return ByUse
}

const reason = "batch work's memory bandwidth is held to a threshold"

// wish claims the class for all BE, which counts what they move also without a limit, and the limits.
func (s *State) wish(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	s.Wanted = 0
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if t.Task.Class != model.BE {
			continue
		}
		s.Wanted++
		if word, why := t.Closed(model.ServiceClass); why != "" {
			w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: t.Task.Num, Path: t.Task.Path, Reason: why})
			continue
		}
		w.Claims = append(w.Claims, model.Claim{
			Target: model.OfTask(t.Task.Num), Kind: model.ClaimPlace, Value: model.InClass(model.ClassBE), Reason: reason, HoldNsec: p.HoldNsec,
		})
	}
	w.Why = "memory has room again"
	for i := range s.Domains {
		d := &s.Domains[i]
		if d.Void {
			w.Once("void class", model.Decision{Kind: model.DecideLeftAlone, Reason: fmt.Sprintf("another program sets memory bandwidth of class be at memory %d", d.ID)})
			continue
		}
		if s.Wanted == 0 || !d.limits(have) {
			continue
		}
		for _, id := range v.Memories(have)[i].Domains {
			w.Claims = append(w.Claims, model.Claim{
				Target: model.OfClass(model.ClassBE, id), Kind: model.ClaimCap, Value: model.Ask(model.MemoryBandwidth),
				Cap: float64(d.Level), Uncounted: true, Reason: reason, HoldNsec: p.HoldNsec,
			})
		}
	}
}

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	if len(s.Domains) == 0 {
		return "no levels of memory bandwidth here"
	}
	text := "by " + string(s.Basis)
	if s.Basis == "" {
		text = "nothing is known of memory yet"
	}
	switch {
	case s.Resting:
		return text + "; rests while cache or remedy compares"
	case s.FreeNsec > 0:
		return text + "; it did not help LC: no limit for now"
	case now == model.ModeEnforce:
		return fmt.Sprintf("%s; %d of %d BE tasks", text, s.Stands, s.Wanted)
	}
	return text + "; would limit"
}
