package hardcap

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Repeated small harm (Params.Repeat).
//
// Intuition. A batch job that slows a service down by a little, again and again, is nudged again and again: each time
// the services get somewhat better, by less than one nudge can prove, and each time the suspect is let go. What no
// single nudge shows ten of them do. So what each has shown is added up for the pair of jobs, the one that suffers and the one that was
// held; and for the pair of all services of the node and that job, since whoever fills the cache hurts all of them.
//
// What is added up. Signals fell by z standard errors while the suspect was held. If it does nothing, z is
// around 0; if it hurts by one standard error, z is around 1; the likelihood of the second over the first is exp(z - 1/2). The sum of the logarithms is the
// evidence, never below 0, and log(1/doubt) is asked for. That bounds the error: for one that does nothing each
// factor is 1 on average, so that the sum over all starting points of the products grows by at most 1 each time (Shiryaev and Roberts), and so
// at least 1/doubt experiments pass on average before a pair that is innocent is taken for guilty. Fading and what
// is cut off below only make it less.
//
// Hard cases:
//   - Who suffers was picked because it suffered: the next window is better of itself. Somebody who is 2 standard deviations off by chance in
//     three windows out of four would fall by picked standard errors; spread over all who are asked, that is taken off.
//   - Services are not independent, and their noise is not that of their specs: load moves all of them. The same difference in
//     the windows before, when nobody was held or let go, says how far it swings of itself; the evidence is measured in these swings.
//   - One coincidence: an experiment adds at most half of what is asked for, so that two of them agree at least.
//   - Jobs change: evidence halves in HalfLife, and goes when a hold that it led to does not help.
//   - A fleet may have seen the pair elsewhere (Hear). Its word is a prior: the logarithm of the odds that the victim recovers when the other is
//     held, at the least, but no more than a part of what is asked for. It is a head start, as in J. M. Lucas and R. B. Crosier, "Fast Initial
//     Response for CUSUM Quality-Control Schemes", Technometrics 24, 1982, who give half of what is asked for. Experiments that speak against the pair use
//     it up, however often it is said again, and from then on the bound above holds. Until then an innocent one is decided with a chance of
//     doubt^(1-prior), one in seven. With half, one experiment of full weight has to agree on this very machine.
//
// Whose pair is decided is held without a nudge, and with AtOnce as soon as it runs and a victim has a bad window: an anomaly, three of
// them, is what it takes to suspect somebody, not to recognise him.

// Repeat are the parameters of evidence that lasts.
type Repeat struct {
	Enabled bool `json:"enabled"`
	// HalfLifeNsec is how long it takes the evidence to become half of it.
	HalfLifeNsec int64 `json:"half_life_nsec"`
	// Doubt is the chance that one accepts: at least 1/Doubt experiments pass on average before an innocent pair is decided.
	Doubt float64 `json:"doubt"`
	// AtOnce: who is known for guilty is held at the first bad window.
	AtOnce bool `json:"at_once"`
	// Prior is what a fleet's word is worth at most, as a share of the evidence that is asked for; 0: nothing.
	Prior float64 `json:"prior,omitempty"`
}

// Rows describes the parameters that the configuration sets.
func (r *Repeat) Rows() []model.Param {
	return []model.Param{
		{Key: "enabled", At: &r.Enabled, Soak: [2]float64{0.6, 0.4}, Why: "beyond CPI²: what nudges have shown of two jobs is added up"},
		{Key: "half_life", At: model.Nsec(&r.HalfLifeNsec), Least: 1e9, Most: model.Unbounded, Soak: [2]float64{10e9, 600e9}, Why: "in which evidence becomes half of it"},
		{Key: "doubt", At: &r.Doubt, Least: 1e-6, Most: 0.5, Unit: "a probability", Why: "one in so many experiments with an innocent pair may decide against it"},
		{Key: "at_once", At: &r.AtOnce, Soak: [2]float64{0.6, 0.4}, Why: "hold who is known for guilty at the first bad window, not at the anomaly"},
		{Key: "prior", At: &r.Prior, Most: 0.9, Unit: "a share", Why: "what a fleet's word on two jobs is worth at most, of the evidence asked for: a head start, never enough alone; 0: nothing"},
	}
}

// Pair is what is known of two jobs. Only those with evidence are kept, and those of which a fleet says something.
type Pair struct {
	Victim     string  `json:"victim,omitempty"` // a job; "": all services of the node together
	Antagonist string  `json:"antagonist"`       // a job, or the path of a task that has none
	Evidence   float64 `json:"evidence"`         // of this machine, as it was at AtNsec; below 0: how much of the fleet's is used up
	Times      int     `json:"times"`            // experiments that it rests on
	AtNsec     int64   `json:"at_nsec"`
	Fleet      Heard   `json:"fleet,omitzero"`
}

// Heard is what a fleet says of a pair (model.Prior).
type Heard struct {
	Odds      float64 `json:"odds"` // logarithm of the least odds that the victim recovers
	Incidents int     `json:"incidents"`
	Nodes     int     `json:"nodes"`
	AtNsec    int64   `json:"at_nsec"` // when it was said last
}

// maxPairs bounds them: those of ten services with 25 batch jobs, which is more than a machine has, in some 20 kB. Beyond it the one with least evidence goes.
const maxPairs = 256

// picked is by how many standard errors who was picked for suffering gets better of itself, at most: 2.4 deviations, the mean
// of what is above 2, against three windows before and one during the nudge.
const picked = 2

// jobOf names one side of a pair.
func jobOf(t *model.Task) string { return cmp.Or(t.Job, t.Path) }

func (s *State) findPair(victim, suspect string) (int, bool) {
	return slices.BinarySearchFunc(s.Pairs, Pair{Victim: victim, Antagonist: suspect}, func(a, b Pair) int {
		return cmp.Or(strings.Compare(a.Antagonist, b.Antagonist), strings.Compare(a.Victim, b.Victim))
	})
}

// asked is the evidence that decides.
func (r *Repeat) asked() float64 { return -math.Log(r.Doubt) }

// left is how much is left of evidence from a moment.
func (r *Repeat) left(atNsec, nowNsec int64) float64 {
	return math.Exp2(-max(0, float64(nowNsec-atNsec)) / max(1, float64(r.HalfLifeNsec)))
}

// faded is this machine's evidence at a moment. What of a fleet's word is used up stays so.
func (r *Repeat) faded(p *Pair, nowNsec int64) float64 {
	if p.Evidence <= 0 {
		return p.Evidence
	}
	return p.Evidence * r.left(p.AtNsec, nowNsec)
}

// prior is what the fleet's word is worth at a moment.
func (r *Repeat) prior(p *Pair, nowNsec int64) float64 {
	return min(p.Fleet.Odds, r.Prior*r.asked()) * r.left(p.Fleet.AtNsec, nowNsec)
}

// total is all evidence at a moment.
func (r *Repeat) total(p *Pair, nowNsec int64) float64 {
	return r.faded(p, nowNsec) + r.prior(p, nowNsec)
}

// decided returns the pair that speaks against a suspect for a victim's job, nil where the evidence does not do.
func (s *State) decided(p *Params, nowNsec int64, victim string, suspect *model.Task) *Pair {
	if !p.Repeat.Enabled || suspect == nil {
		return nil
	}
	for _, v := range []string{victim, ""} {
		if i, ok := s.findPair(v, jobOf(suspect)); ok && p.Repeat.total(&s.Pairs[i], nowNsec) >= p.Repeat.asked() {
			return &s.Pairs[i]
		}
	}
	return nil
}

// addUp takes in what an experiment has shown.
func (s *State) addUp(r *Repeat, nowNsec int64, victim, suspect string, sigmas float64) {
	step := min(sigmas-0.5, r.asked()/2)
	if math.IsNaN(step) {
		return
	}
	i, ok := s.findPair(victim, suspect)
	p := Pair{Victim: victim, Antagonist: suspect}
	if ok {
		p = s.Pairs[i]
	}
	prior := r.prior(&p, nowNsec)
	p.Evidence, p.Times, p.AtNsec = max(r.faded(&p, nowNsec)+step, -prior), p.Times+1, nowNsec
	switch keep := p.Evidence > 0 || prior >= leastEvidence; {
	case keep && ok:
		s.Pairs[i] = p
	case keep:
		s.Pairs = slices.Insert(s.Pairs, i, p)
		s.dropPairs(r, nowNsec)
	case ok:
		s.Pairs = slices.Delete(s.Pairs, i, i+1)
	}
}

// dropPairs keeps to the bound. What this machine found out itself outlasts what it was told.
func (s *State) dropPairs(r *Repeat, nowNsec int64) {
	own := func(p *Pair) int { return min(p.Times, 1) }
	for len(s.Pairs) > maxPairs {
		least := 0
		for i := range s.Pairs {
			p, l := &s.Pairs[i], &s.Pairs[least]
			if cmp.Or(cmp.Compare(own(p), own(l)), cmp.Compare(r.total(p, nowNsec), r.total(l, nowNsec))) < 0 {
				least = i
			}
		}
		s.Pairs = slices.Delete(s.Pairs, least, least+1)
	}
}

// experiment adds up what a nudge has shown of a suspect: for all services together, and for each job of them.
func (s *State) experiment(p *Params, in *policy.View, inc *Incident, suspect *model.Task, windows int) {
	if !p.Repeat.Enabled || suspect == nil {
		return
	}
	jobs := []string{""}
	for i := range in.Window.Victims {
		if t := in.Table.Get(in.Window.Victims[i].Num); t != nil && t.Job != "" && !slices.Contains(jobs, t.Job) {
			jobs = append(jobs, t.Job)
		}
	}
	for _, job := range jobs {
		if z, asked := s.swings(in, inc.Source, job, windows); asked > 0 {
			s.addUp(&p.Repeat, in.NowNsec, job, jobOf(suspect), z)
		}
	}
}

// swings is by how much the signals of a job's tasks, or of all, fell in the last windows against those before, measured by how far they
// swing of themselves, without what those owe to their having been picked.
func (s *State) swings(in *policy.View, src model.Source, job string, windows int) (sigmas float64, asked int) {
	z, asked := fell(in, src, job, 0, windows)
	if asked == 0 {
		return 0, 0
	}
	return (z - picked/math.Sqrt(float64(asked))) / s.swing(in, src, job, windows), asked
}

// fewSwings is how many differences it takes to say how far they swing, and unknownSwing what is taken where there are fewer: that of
// twenty services of which any two go together by 0.15.
const (
	fewSwings    = 3
	unknownSwing = 2
)

// swing is how far such a difference swings of itself, in the standard errors that it should have, as far as the windows before tell: half of them, so that
// the onset of the harm does not count, and only those between which nobody was nudged.
func (s *State) swing(in *policy.View, src model.Source, job string, windows int) float64 {
	var of [64]float64 // history may be longer: the latest do
	list := of[:0]
	for skip := windows; skip+windows+badBefore < in.History.Filled && len(list) < len(of); skip++ {
		from, to := in.History.EndedNsec(skip+windows+badBefore), in.History.EndedNsec(skip)
		if slices.ContainsFunc(s.NudgedAt, func(at int64) bool { return from-(to-from) < at && at < to }) {
			continue
		}
		if z, n := fell(in, src, job, skip, windows); n > 0 {
			list = append(list, math.Abs(z))
		}
	}
	if len(list) < fewSwings {
		return unknownSwing
	}
	slices.Sort(list)
	return max(1, list[len(list)/2]/medianOfNormal)
}

// medianOfNormal is the median of a normal variable's size, in its standard deviations.
const medianOfNormal = 0.6745

// forgetPair takes evidence back that led to a hold in vain: that of the pair, a fleet's word with it, and half of what speaks against the suspect
// for all services.
func (s *State) forgetPair(r *Repeat, nowNsec int64, inc *Incident, suspect *model.Task) {
	if suspect == nil {
		return
	}
	if i, ok := s.findPair(inc.VictimJob, jobOf(suspect)); ok && inc.VictimJob != "" {
		if p := &s.Pairs[i]; r.prior(p, nowNsec) >= leastEvidence {
			p.Evidence, p.AtNsec = -r.prior(p, nowNsec), nowNsec
		} else {
			s.Pairs = slices.Delete(s.Pairs, i, i+1)
		}
	}
	if i, ok := s.findPair("", jobOf(suspect)); ok {
		s.Pairs[i].Evidence /= 2
	}
}

// recognise finds a task that is known for guilty, runs free and may have hurt a victim in the window that closed. In that window the
// services suffered together more than before, by more than noise.
func (s *State) recognise(p *Params, in *policy.View, inc *Incident) (antagonist.Score, *Pair, bool) {
	ap := &p.Antagonist[inc.Source]
	if z, _ := fell(in, inc.Source, "", 0, 1); z > -sureSigmas {
		return antagonist.Score{}, nil, false
	}
	in.History.Correlate(ap, inc.Victim, inc.Threshold, &s.analysis)
	needed, _ := ap.Needed(&s.analysis)
	sc, pair, ok := s.knownOf(p, in, inc, needed)
	if !ok || in.History.RecentUsage(sc.Num, 1) < max(leastUntouchable, sc.Usage/2) {
		return antagonist.Score{}, nil, false
	}
	return sc, pair, true
}

// openKnown starts an incident for a victim that has a bad window while one that is known for guilty runs free.
func (s *State) openKnown(p *Params, in *policy.View, out *policy.Wishes, v *policy.Victim) {
	if !p.Repeat.Enabled || !p.Repeat.AtOnce || in.Mode != model.ModeEnforce || len(s.Pairs)+len(s.Tested) == 0 {
		return
	}
	if v.Anomalous || !v.Protected || v.Verdict != outlier.Outlier || s.busy(v.Num, in.NowNsec) {
		return
	}
	inc := s.incidentOf(p, in, v)
	inc.Early = true
	sc, pair, ok := s.recognise(p, in, &inc)
	if !ok {
		return
	}
	s.NextID++
	s.Incidents = append(s.Incidents, inc)
	facts := append([]model.Fact{model.FactSignal.Is(v.Signal), model.FactThreshold.Is(v.Threshold)}, pair.facts(p, in.NowNsec)...)
	s.say(in, out, &s.Incidents[len(s.Incidents)-1], model.Decision{
		Kind: model.DecideAnomaly, Task: v.Num, Facts: facts,
		Reason: fmt.Sprintf("%s %.3g is above %.3g while %s runs, which %s", v.Source, v.Signal, v.Threshold, in.Table.Name(sc.Num), pair.text(p, in.NowNsec)),
	})
}

// facts are the evidence as numbers.
func (of *Pair) facts(p *Params, nowNsec int64) []model.Fact {
	if of == nil {
		return nil
	}
	facts := []model.Fact{model.FactEvidence.Is(p.Repeat.total(of, nowNsec)), model.FactEvidenceAsked.Is(p.Repeat.asked()), model.FactExperiments.Is(float64(of.Times))}
	if prior := p.Repeat.prior(of, nowNsec); prior > 0 {
		facts = append(facts, model.FactPrior.Is(prior))
	}
	return facts
}

// text is the evidence in words.
func (of *Pair) text(p *Params, nowNsec int64) string {
	if of == nil {
		return "was found guilty a while ago"
	}
	text := fmt.Sprintf("hurts %s: evidence %.1f of %.1f asked for, from %d experiments", cmp.Or(of.Victim, "the services of this machine"), p.Repeat.total(of, nowNsec), p.Repeat.asked(), of.Times)
	if p.Repeat.prior(of, nowNsec) > 0 {
		text += "; " + of.heard(p, nowNsec)
	}
	return text
}

// heard is the fleet's word in words.
func (of *Pair) heard(p *Params, nowNsec int64) string {
	return fmt.Sprintf("the fleet saw this pair %d times on %d nodes: prior %.1f of %.1f asked for", of.Fleet.Incidents, of.Fleet.Nodes, p.Repeat.prior(of, nowNsec), p.Repeat.asked())
}

// Hear takes in what a fleet says of who hurts a job, in place of what it said before; of whom it says nothing now, that fades. It returns what is to
// be told: nil where it says nothing new. What cannot be is passed over.
func (s *State) Hear(p *Params, said *model.Priors, nowNsec int64) *model.Decision {
	r := &p.Repeat
	if !r.Enabled || r.Prior <= 0 || said.Job == "" {
		return nil
	}
	news, most := 0, Pair{}
	for i := range said.Pairs {
		pr := &said.Pairs[i]
		if pr.Check() != nil {
			continue
		}
		at, ok := s.findPair(said.Job, pr.Antagonist)
		pair := Pair{Victim: said.Job, Antagonist: pr.Antagonist}
		if ok {
			pair = s.Pairs[at]
		}
		before := r.prior(&pair, nowNsec)
		pair.Fleet = Heard{Odds: oddsOf(pr.Confidence), Incidents: pr.Incidents, Nodes: pr.Nodes, AtNsec: nowNsec}
		now := r.prior(&pair, nowNsec)
		switch {
		case ok:
			s.Pairs[at] = pair // where it is worth nothing, too: it takes the place of what was said before
		case now >= leastEvidence:
			s.Pairs = slices.Insert(s.Pairs, at, pair)
			s.dropPairs(r, nowNsec)
		}
		if math.Abs(now-before) >= toldAgain {
			if news++; now >= r.prior(&most, nowNsec) {
				most = pair
			}
		}
	}
	s.Pairs = slices.DeleteFunc(s.Pairs, func(o Pair) bool {
		return o.Fleet != (Heard{}) && o.Evidence <= 0 && r.prior(&o, nowNsec) < leastEvidence
	})
	if news == 0 {
		return nil
	}
	d := &model.Decision{Kind: model.DecideSpec, Path: said.Job, Facts: most.facts(p, nowNsec), Reason: fmt.Sprintf("%s may hurt %s: %s", most.Antagonist, said.Job, most.heard(p, nowNsec))}
	if news > 1 {
		d.Reason += fmt.Sprintf("; it has news of %d others, no worse", news-1)
	}
	return d
}

// oddsOf is the logarithm of the odds of a probability, where these are even at least.
func oddsOf(chance float64) float64 {
	chance = min(chance, 1-1e-9)
	return max(0, math.Log(chance/(1-chance)))
}

// toldAgain is by how much a prior has to change to be told again: odds of 1.6 to 1.
const toldAgain = 0.5

// KeptPair is a pair as it outlives a restart: its time is by the wall clock, in whole seconds.
type KeptPair struct {
	Pair
	WallNsec int64 `json:"wall_nsec"`
}

// KeepPairs returns the pairs at a moment.
func (s *State) KeepPairs(monoNsec, wallNsec int64) []KeptPair {
	var list []KeptPair
	for _, p := range s.Pairs {
		if p.Evidence <= 0 {
			continue // what a fleet says it says again
		}
		k := KeptPair{p, wallNsec - (monoNsec - p.AtNsec)}
		k.WallNsec -= k.WallNsec % 1e9
		k.AtNsec, k.Fleet = 0, Heard{}
		list = append(list, k)
	}
	return list
}

// RestorePair takes a pair up again that an earlier run had kept. It reports whether there is anything left of it.
func (s *State) RestorePair(r *Repeat, k *KeptPair, monoNsec, wallNsec int64) bool {
	p := k.Pair
	p.Fleet = Heard{}
	p.AtNsec = monoNsec - max(0, wallNsec-k.WallNsec)
	i, ok := s.findPair(p.Victim, p.Antagonist)
	if ok || !r.Enabled || p.Antagonist == "" || p.Times < 1 || !(r.faded(&p, monoNsec) >= leastEvidence) || math.IsInf(p.Evidence, 0) {
		return false
	}
	s.Pairs = slices.Insert(s.Pairs, i, p)
	s.dropPairs(r, monoNsec)
	return true
}

// Recalled says what was taken up again.
func (s *State) Recalled(p *Params, k *KeptPair, nowNsec int64) model.Decision {
	d := model.Decision{Kind: model.DecideSpec, Path: k.Antagonist, Reason: k.Antagonist + " is known from before the agent was restarted"}
	if i, ok := s.findPair(k.Victim, k.Antagonist); ok {
		d.Facts = s.Pairs[i].facts(p, nowNsec)
		d.Reason = fmt.Sprintf("as was found out before the agent was restarted, %s %s", k.Antagonist, s.Pairs[i].text(p, nowNsec))
	}
	return d
}

// leastEvidence is what is worth taking up again: odds of 1.1 to 1.
const leastEvidence = 0.1
