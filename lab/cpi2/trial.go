package cpi2

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// outcome is CPI²'s judgement of a cap (section 7.2).
type outcome uint8

const (
	noise         outcome = iota // the CPI changed by less than the spec's standard deviation
	truePositive                 // lower by more than that under throttling
	falsePositive                // higher by more than that
	noEvidence                   // the victim hardly ran while its suspect was held: not counted
)

var outcomeNames = [...]string{"noise", "true positive", "false positive", "no evidence"}

// String returns the outcome's name.
func (o outcome) String() string { return outcomeNames[o] }

// MarshalText writes the outcome's name.
func (o outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// judge compares the victim's CPI when the antagonist was reported with that under
// throttling; the margin is the spec's cpi_stddev.
func judge(before, during, stddev float64) outcome {
	switch {
	case !(before > 0) || !(during > 0): // NaN too
		return noEvidence
	case during < before-stddev:
		return truePositive
	case during > before+stddev:
		return falsePositive
	}
	return noise
}

// capTrial is one suspect capped by hand for five minutes, on a fork of the machine on
// which it was named.
type capTrial struct {
	Minute      int     `json:"minute"`
	Suspect     string  `json:"suspect"`
	Score       float64 `json:"score"`
	Before      float64 `json:"before"`
	During      float64 `json:"during"`
	Outcome     outcome `json:"outcome"`
	RelativeCPI float64 `json:"relative_cpi"`
	RelativeL3  float64 `json:"relative_l3_mpki"`
	// Untouched is the CPI of the same minutes on the same machine without the cap, and
	// Placebo what CPI²'s judge would have said of that.
	Untouched float64 `json:"untouched"`
	Placebo   outcome `json:"placebo"`
	// Antagonist is the truth: this one is among those that hurt.
	Antagonist bool `json:"antagonist"`
}

// Trial is one anomaly on one random machine.
type Trial struct {
	Cause        cause      `json:"cause"`
	Tenants      int        `json:"tenants"`
	Production   bool       `json:"production"`
	Job          string     `json:"job"`
	Victim       string     `json:"victim"`
	Spec         model.Spec `json:"spec"`
	CPI          float64    `json:"cpi"`                   // when the anomaly was declared
	Utilisation  float64    `json:"utilisation"`           // of the machine, then
	AnomalyAfter float64    `json:"anomaly_after"`         // seconds after the cause began; negative: before it
	Harm         []harm     `json:"harm"`                  // by BE task, most harmful first
	GroupHarm    float64    `json:"group_harm"`            // of all that came together
	GroupHurts   bool       `json:"group_hurts,omitempty"` // they hurt another protected task that suffered
	// Sweep has a trial for each threshold, nil where the detector named nobody.
	Sweep []*capTrial `json:"sweep"`
	Arms  []ArmTrial  `json:"arms"`

	victim model.TaskNum
}

// increase is the CPI at the anomaly in standard deviations above the spec's mean.
func (t *Trial) increase() float64 { return (t.CPI - t.Spec.Mean) / t.Spec.StdDev }

// degradation is the CPI at the anomaly as a multiple of the spec's mean.
func (t *Trial) degradation() float64 { return t.CPI / t.Spec.Mean }

// hurtBy reports whether a task is truly an antagonist of the trial's victim.
func (t *Trial) hurtBy(path string) bool {
	return slices.ContainsFunc(t.Harm, func(h harm) bool { return h.Path == path && h.Antagonist })
}

// culprit reports whether there is a BE task that may be named at all.
func (t *Trial) culprit() bool { return len(t.Harm) > 0 && t.Harm[0].Antagonist }

// How a trial is played, in minutes.
const (
	warmMinutes    = 11 // the correlation window fills before anything happens
	causeWithin    = 2  // the cause comes at a random time in these
	watchUntil     = 22 // until which anomalies are waited for
	searchMinutes  = 5  // from the anomaly on detectors may name somebody (search_windows)
	capMinutes     = 5  // section 7: "cap their CPU rate for 5 minutes"
	truthMinutes   = 5  // the truth is asked of the windows in which the anomaly arose
	horizonMinutes = 20 // an arm is played for so long from the anomaly on
)

const playMinutes = watchUntil + horizonMinutes + 2

// bench is what all trials share.
type bench struct {
	cat   *catalogue
	specs []model.Spec
	arms  []Arm
}

// Play is what became of one machine that was drawn.
type Play struct {
	Seed  uint64 `json:"seed"`
	Cause cause  `json:"cause"`
	// Anomalies are all that were declared on it, with what CPI²'s rule made of them.
	Anomalies []Anomaly `json:"anomalies"`
	// Trial is of the worst of them, nil when there is none worth a trial: nobody named at
	// the lowest threshold, and the victim within 3 sigma.
	Trial *Trial `json:"trial,omitempty"`
}

// Anomaly is a protected task that suffers: 3 outliers in 5 minutes.
type Anomaly struct {
	Production  bool    `json:"production"`
	Degradation float64 `json:"degradation"` // CPI over the spec's mean
	Utilisation float64 `json:"utilisation"`
	Identified  bool    `json:"identified"` // by CPI²'s rule
	Score       float64 `json:"score"`      // of the one who was identified
}

// worthSigmas is from where on an anomaly is worth a trial even though nobody is named:
// figure 16b suggests that it should not be declared below.
const worthSigmas = 3

// play draws a machine and tries its worst anomaly.
func (b *bench) play(seed uint64) (*Play, error) {
	rng := rand.New(rand.NewPCG(seed, 0x74726961))
	p, err := b.playMix(b.cat.drawMix(rng, drawCause(rng), warmMinutes, warmMinutes+causeWithin, playMinutes))
	if err != nil {
		return nil, err
	}
	p.Seed = seed
	return p, nil
}

// playMix plays a machine that was drawn.
func (b *bench) playMix(m *mix) (*Play, error) {
	return (&run{bench: b, mix: m}).play()
}

// play looks on, and deals with the worst anomaly that arises.
func (r *run) play() (*Play, error) {
	if err := r.look(watchUntil + searchMinutes); err != nil {
		return nil, err
	}
	p := &Play{Cause: r.mix.cause, Anomalies: r.anomalies()}
	worst := r.worst()
	if worst == nil {
		return p, nil
	}
	r.begin(worst)
	p.Trial = r.trial
	if err := r.truth(); err != nil {
		return nil, err
	}
	if err := r.detect(worst); err != nil {
		return nil, err
	}
	return p, r.playArms()
}

// run is a machine on its way.
type run struct {
	*bench
	mix      *mix
	srv      *server
	watchers []*agent.Loop // by detector of the sweep
	cases    []suffering
	before   []moment // before each minute
	from     *server  // where the truth is asked from
	branch   moment   // before the minute of the anomaly
	trial    *Trial
}

// moment is a server as it was before a minute, and what the engines knew.
type moment struct {
	srv   *server
	state []byte
}

// suffering is a victim's first incident, and who was named for it.
type suffering struct {
	inc         model.Incident
	minute      int
	utilisation float64
	production  bool
	names       []named // in order of their coming, at most one a detector
}

// look plays a machine with all detectors looking on.
func (r *run) look(minutes int) error {
	var err error
	if r.srv, err = newServer(r.mix); err != nil {
		return err
	}
	for _, det := range sweep() {
		w, err := r.srv.agent(model.ModeObserve, det.Mutate, r.specs, nil)
		if err != nil {
			return err
		}
		r.watchers = append(r.watchers, w)
	}
	for range minutes {
		var m moment
		if r.srv.min >= warmMinutes-truthMinutes {
			m.srv = r.srv.fork()
			if m.state, err = marshal(r.watchers[0].Engine.State); err != nil {
				return err
			}
		}
		r.before = append(r.before, m)
		if err := r.srv.minute(r.hear, r.watchers...); err != nil {
			return err
		}
	}
	return nil
}

// hear takes in what a detector says of victims.
func (r *run) hear(d int, out *engine.Output) {
	for _, inc := range out.Incidents {
		i := slices.IndexFunc(r.cases, func(s suffering) bool { return s.inc.Victim == inc.Victim })
		if i < 0 {
			s := suffering{inc: *inc, minute: r.srv.min, utilisation: r.srv.utilisation()}
			if t := r.watchers[d].Engine.State.Tasks.Get(inc.Victim); t != nil {
				s.production = t.Production
			}
			i = len(r.cases)
			r.cases = append(r.cases, s)
		}
		c := &r.cases[i]
		if inc.OpenedNsec != c.inc.OpenedNsec || slices.ContainsFunc(c.names, func(n named) bool { return n.detector == d }) {
			continue
		}
		if n, ok := firstPick(inc); ok {
			n.detector, n.minute, n.mpki = d, r.srv.min, r.srv.windowOf(inc.Victim).mpki
			c.names = append(c.names, n)
		}
	}
}

// isCase reports whether an anomaly arose when it can be tried: after the correlation
// window filled, and early enough for a search.
func (c *suffering) isCase() bool { return c.minute >= warmMinutes && c.minute < watchUntil }

func (c *suffering) by(detector int) *named {
	for i := range c.names {
		if c.names[i].detector == detector {
			return &c.names[i]
		}
	}
	return nil
}

func (r *run) anomalies() []Anomaly {
	var list []Anomaly
	for i := range r.cases {
		c := &r.cases[i]
		if !c.isCase() {
			continue
		}
		a := Anomaly{Production: c.production, Degradation: c.inc.Signal / c.inc.Spec.Mean, Utilisation: c.utilisation}
		if n := c.by(paperDetector()); n != nil {
			a.Identified, a.Score = true, n.score
		}
		list = append(list, a)
	}
	return list
}

// worst returns the anomaly whose victim is furthest above its threshold, nil when none is
// worth a trial. A band of the workload is drawn by the machine's seed and goes first, since
// non-production victims are more often the worst.
func (r *run) worst() *suffering {
	first := r.mix.seed%2 == 0
	var best *suffering
	better := func(c *suffering) bool {
		if best == nil || (c.production == first) != (best.production == first) {
			return best == nil || c.production == first
		}
		return c.inc.Signal/c.inc.Threshold > best.inc.Signal/best.inc.Threshold
	}
	for i := range r.cases {
		c := &r.cases[i]
		sigmas := (c.inc.Signal - c.inc.Spec.Mean) / c.inc.Spec.StdDev
		if c.isCase() && (len(c.names) > 0 || sigmas >= worthSigmas) && better(c) {
			best = c
		}
	}
	return best
}

func (r *run) begin(c *suffering) {
	r.trial = &Trial{
		Cause: r.mix.cause, Tenants: r.mix.tenants, Job: c.inc.VictimJob, Victim: c.inc.VictimPath, Spec: c.inc.Spec, CPI: c.inc.Signal,
		Production: c.production, Utilisation: c.utilisation, AnomalyAfter: float64(c.inc.OpenedNsec-r.mix.atNsec) / 1e9,
		Sweep: make([]*capTrial, len(r.watchers)), victim: c.inc.Victim,
	}
	r.branch = r.before[c.minute]
	r.from = r.before[c.minute+1-truthMinutes].srv
}

// detect tries each detector's suspect.
func (r *run) detect(c *suffering) error {
	done := map[string]*capTrial{}
	for _, n := range c.names {
		if n.minute >= c.minute+searchMinutes || n.minute+1 >= len(r.before) {
			continue
		}
		key := fmt.Sprint(n.minute, " ", n.suspect)
		if done[key] == nil {
			t, err := r.try(r.before[n.minute+1].srv, n)
			if err != nil {
				return err
			}
			done[key] = t
		}
		r.trial.Sweep[n.detector] = done[key]
	}
	return nil
}

// window is what one window says of one task; without ok it is no evidence, since the task
// hardly ran (or, with a CPI of 0, not at all).
type window struct {
	cpi, mpki float64
	ok        bool
}

func (s *server) windowOf(n model.TaskNum) window {
	o, ok := s.seen(n)
	if o == nil || o.Signals[model.SourceCPI].Outcome != model.OK {
		return window{}
	}
	return window{cpi: o.Signals[model.SourceCPI].V, mpki: o.MPKI.V, ok: ok}
}

// try caps a suspect for five minutes on one fork and leaves another one alone.
func (r *run) try(s *server, n named) (*capTrial, error) {
	var task model.Task
	if i := slices.IndexFunc(r.mix.plan, func(a action) bool { return a.start != nil && a.start.task.Path == n.path }); i >= 0 {
		task = r.mix.plan[i].start.task
	}
	held, err := s.fork().capped(map[string]float64{n.path: capOf(&task)}, capMinutes, r.trial.victim)
	if err != nil {
		return nil, err
	}
	free, err := s.fork().capped(nil, capMinutes, r.trial.victim)
	if err != nil {
		return nil, err
	}
	t := &capTrial{Minute: n.minute, Suspect: n.path, Score: n.score, Before: n.before, Antagonist: r.trial.hurtBy(n.path)}
	var mpki float64
	t.During, mpki = meanWindow(held)
	t.Untouched, _ = meanWindow(free)
	t.Outcome = judge(t.Before, t.During, r.trial.Spec.StdDev)
	t.Placebo = judge(t.Before, t.Untouched, r.trial.Spec.StdDev)
	if t.Outcome == noEvidence {
		t.During, t.Untouched = 0, zeroNaN(t.Untouched)
		return t, nil
	}
	t.RelativeCPI, t.RelativeL3 = t.During/t.Before, zeroNaN(mpki/n.mpki)
	t.Untouched = zeroNaN(t.Untouched)
	return t, nil
}

// zeroNaN is for figures that go into a document: JSON has no NaN, and none of these can
// be 0 when it is known.
func zeroNaN(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// capped plays minutes with tasks held from the moment on that they exist, and returns the
// victim's windows.
func (s *server) capped(limits map[string]float64, minutes int, victim model.TaskNum) (out []window, err error) {
	err = s.under(limits, minutes, func(s *server) { out = append(out, s.windowOf(victim)) })
	return out, err
}

// under is capped for whoever looks at other windows.
func (s *server) under(limits map[string]float64, minutes int, look func(*server)) error {
	for range minutes {
		if err := s.holdAll(limits); err != nil {
			return err
		}
		if err := s.minute(nil); err != nil {
			return err
		}
		look(s)
	}
	return nil
}

// holdAll holds those of them that there are.
func (s *server) holdAll(limits map[string]float64) error {
	for path, cpu := range limits {
		if n, ok := s.nums[path]; ok && s.lives(n) {
			if err := s.hold(n, cpu); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *server) lives(n model.TaskNum) bool {
	_, err := s.host.Physical(n)
	return err == nil
}

// meanWindow returns the means over the windows that say something, NaN without any.
func meanWindow(ws []window) (cpi, mpki float64) {
	n := 0.0
	for _, w := range ws {
		if w.ok {
			cpi, mpki, n = cpi+w.cpi, mpki+w.mpki, n+1
		}
	}
	return cpi / n, mpki / n
}

// observe plays a machine with one engine that looks on with CPI²'s own rule, and
// tells of its incidents.
func (r *run) observe(minutes int, told func(*model.Incident)) error {
	var err error
	if r.srv, err = newServer(r.mix); err != nil {
		return err
	}
	w, err := r.srv.agent(model.ModeObserve, nil, r.specs, nil)
	if err != nil {
		return err
	}
	hear := func(_ int, out *engine.Output) {
		for _, inc := range out.Incidents {
			told(inc)
		}
	}
	for range minutes {
		if err := r.srv.minute(hear, w); err != nil {
			return err
		}
	}
	return nil
}
