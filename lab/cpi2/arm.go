package cpi2

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/hardcap"
)

// Arm is a way to deal with antagonists, played in a closed loop.
type Arm struct {
	Name string `json:"name"`
	What string `json:"what"`
	// Mutate sets the engine's parameters; nil: CPI²'s own.
	Mutate func(*engine.Params) `json:"-"`
	// Observe: nothing is held. Largest: the engine only looks, and the largest BE task
	// is held for five minutes whenever it finds an anomaly.
	Observe, Largest bool `json:"-"`
	// Oracle: what can be had at all, see oracle.go.
	Oracle bool `json:"-"`
	// Best: the combination that the goals are asked of. It was settled on other seeds than
	// those that are reported, see docs/EVALUATION.md.
	Best bool `json:"best,omitempty"`
}

// steadyMargin is the margin over a steady suspect that the profile single-node asks for.
const steadyMargin = 0.05

// never is more windows than any trial has: what waits for so many never comes.
const never = 1 << 30

// Arms are those that are played, the reference first. One more is one more line.
func Arms() []Arm {
	return []Arm{
		{Name: "no control", What: "nobody is held", Observe: true},
		{Name: oracleArm, What: "the bound: those who truly hurt the victim, and nobody else, are held from the minute of the anomaly on, as mildly as suffices", Oracle: true},
		{Name: "largest BE", What: "the BE task that uses most CPU is held for 5 minutes", Largest: true},
		{Name: "0.15 unverified", What: "what a peer ships: correlation 0.15, held for 5 minutes, no look at the victim", Mutate: func(p *engine.Params) {
			correlationOf(0.15)(p)
			h := &p.Hardcap
			h.RecoveredWindows, h.VerifyWindows, h.RetryAfterNsec = never, never, 0
		}},
		{Name: "ours", What: "CPI²'s rule: 0.35, verified, taken back, tried again"},
		{Name: "3 sigma", What: "... asked of victims 3 standard deviations above the mean, as CPI²'s figure 16b advises", Mutate: func(p *engine.Params) { p.Outlier.Sigmas = 3 }},
		{Name: "ours + margin", What: "CPI²'s rule, and a score above that of a suspect that used the same CPU all the time", Mutate: with(margin)},
		{Name: "ours + groups", What: "... and sets that explain the victim together", Mutate: with(groups)},
		{Name: "ours + feedback", What: "... and caps just tight enough", Mutate: with(feedback)},
		{Name: "ours + confirm", What: "... and a nudge first where the evidence is split", Mutate: with(confirm)},
		{Name: "margin + feedback", What: "... and both the margin and caps just tight enough", Mutate: with(margin, feedback)},
		{Best: true, Name: bestArm, What: "... and all four", Mutate: with(margin, groups, feedback, confirm)},
		{Name: reliefArm, What: "the profile relief: ... whoever could have done it is nudged, who takes most of the cache first, and all services are asked whether that helped", Mutate: profileRelief},
		{Name: ladderArm, What: "... and policy remedy before the hard cap: ways of the cache, then memory bandwidth, of one task after the other", Mutate: func(p *engine.Params) {
			profileRelief(p)
			p.CPU.RemedyMode = model.ModeEnforce
		}},
	}
}

// with turns several switches.
func with(switches ...func(*hardcap.Params)) func(*engine.Params) {
	return func(p *engine.Params) {
		for _, s := range switches {
			s(&p.Hardcap)
		}
	}
}

func margin(h *hardcap.Params)   { h.Antagonist[model.SourceCPI].Steady = steadyMargin }
func groups(h *hardcap.Params)   { h.Groups.Enabled = true }
func feedback(h *hardcap.Params) { h.Feedback.Enabled = true }
func confirm(h *hardcap.Params)  { h.Confirm.Enabled = true }

// profileRelief takes the hard cap's parameters and the limits of the profile relief, which measures as cpi2 does.
func profileRelief(p *engine.Params) {
	c, _ := config.Defaults(config.ProfileRelief) // which is there
	prefix := p.Hardcap.IDPrefix
	p.Hardcap, p.Limits = c.Policies.Hardcap, c.Policies.Limits
	p.Hardcap.IDPrefix = prefix
}

// ArmTrial is what an arm did in one trial.
type ArmTrial struct {
	Arm  string     `json:"arm"`
	Caps []armCap   `json:"caps"` // in order
	Work []workDone `json:"-"`
	// Held are the paths of the tasks that were held in any window, nudges included.
	Held map[string]bool `json:"-"`
	// Bad and Windows count the victim's windows from the anomaly on, and those of them
	// above its threshold.
	Bad     int `json:"bad_windows"`
	Windows int `json:"windows"`
	// Left are the bad ones by why they are left.
	Left   [numLeft]int             `json:"left"`
	causes [horizonMinutes]*remains // of the windows that are bad
	// AllBad counts the bad windows of every protected task.
	AllBad int `json:"all_bad_windows"`
	// RecoveredAfter is the minutes until two good windows in a row; -1: not in time.
	RecoveredAfter int     `json:"recovered_after_minutes"`
	InnocentLost   float64 `json:"innocent_lost"`   // share of their work without control
	InnocentHeld   float64 `json:"innocent_held"`   // the same, of those only that lost by it
	AntagonistLost float64 `json:"antagonist_lost"` // likewise
	// Nudges were made, Refuted of them did not help or said nothing.
	Nudges  int `json:"nudges,omitempty"`
	Refuted int `json:"refuted,omitempty"`
	// NamedAfter is seconds from the anomaly to the first cap that hit an antagonist of
	// this victim, for whomever it was meant; -1: none did.
	NamedAfter float64 `json:"named_after"`
}

// armCap is one cap, judged as CPI² judges.
type armCap struct {
	Incident    string  `json:"incident"`
	Suspect     string  `json:"suspect"`
	Production  bool    `json:"production"` // its victim
	Main        bool    `json:"main"`       // its victim is the trial's
	Minute      int     `json:"minute"`     // from the anomaly's
	Minutes     int     `json:"minutes"`    // that were judged
	Before      float64 `json:"before"`
	During      float64 `json:"during"`
	Outcome     outcome `json:"outcome"`
	RelativeCPI float64 `json:"relative_cpi"`
	// Antagonist: it hurts a protected task that suffered, alone or in a group, whoever it was held for.
	Antagonist bool `json:"antagonist"`
	// Kept: it lasted its time, or to the end: it was not taken back for having been in vain.
	Kept bool `json:"kept"`

	// Group is how many tasks were held together; 0: one alone.
	Group int `json:"group,omitempty"`
	// First: this suspect was not held for this victim before.
	First bool `json:"first"`
	// Held counts the victim's windows while the cap was in force, renewals and loosened
	// levels included, Well those of them in which it was under its threshold.
	Held int `json:"held_windows"`
	Well int `json:"well_windows"`

	victim  model.TaskNum
	task    model.TaskNum
	members []model.TaskNum // of a group
	made    int64           // when its round began
	stddev  float64
	limit   float64 // the victim's threshold
	windows []window
	over    bool
}

type workDone struct {
	path string
	done float64
}

// playArms plays each arm from before the minute of the anomaly on.
func (r *run) playArms() error {
	for i := range r.arms {
		a := &r.arms[i]
		l := &loop{run: r, arm: a, srv: r.branch.srv.fork(), res: ArmTrial{Arm: a.Name, RecoveredAfter: -1, NamedAfter: -1, Held: map[string]bool{}}}
		state := &engine.State{}
		err := json.Unmarshal(r.branch.state, state)
		if err != nil {
			return fmt.Errorf("cpi2: an engine's state: %w", err)
		}
		if l.w, err = l.srv.agent(a.mode(), a.Mutate, nil, state); err != nil {
			return err
		}
		if err := l.play(); err != nil {
			return err
		}
		r.trial.Arms = append(r.trial.Arms, l.res)
	}
	oracle := slices.IndexFunc(r.arms, func(a Arm) bool { return a.Oracle })
	for i := range r.trial.Arms {
		if a := &r.trial.Arms[i]; oracle >= 0 {
			a.countLeft(&r.trial.Arms[oracle])
		}
		r.account(&r.trial.Arms[i], &r.trial.Arms[0])
	}
	return nil
}

func (a *Arm) mode() model.Mode {
	if a.Observe || a.Largest || a.Oracle {
		return model.ModeObserve
	}
	return model.ModeEnforce
}

// loop is an arm that is being played.
type loop struct {
	run  *run
	arm  *Arm
	srv  *server
	w    *agent.Loop
	res  ArmTrial
	caps []*armCap
	good int
	now  standing // when the window at hand began
	held bool     // a culprit was held in any window
	// Of the oracle.
	limits map[string]float64
	// Of the arm that holds the largest.
	until map[string]int
	seen  map[string]bool
	fresh []*model.Incident
}

func (l *loop) play() error {
	l.until, l.seen = map[string]int{}, map[string]bool{}
	if l.arm.Oracle {
		var err error
		if l.limits, err = l.run.mildest(); err != nil {
			return err
		}
		l.convict()
	}
	for k := range horizonMinutes {
		if err := l.srv.holdAll(l.limits); err != nil {
			return err
		}
		l.stand()
		if err := l.srv.minute(l.hear, l.w); err != nil {
			return err
		}
		l.look(k)
		if l.arm.Largest {
			if err := l.holdLargest(k); err != nil {
				return err
			}
		}
	}
	for _, c := range l.caps {
		l.judge(c)
		l.res.Caps = append(l.res.Caps, *c)
	}
	return l.work()
}

// hear notes the rounds of incidents as caps.
func (l *loop) hear(_ int, out *engine.Output) {
	if l.arm.Observe || l.arm.Oracle {
		return
	}
	for i := range out.Decisions {
		d := &out.Decisions[i]
		if l.divided(d.Task) {
			l.nameNow(d.Path)
		}
		switch d.Kind {
		case model.DecideNudge:
			l.res.Nudges++
		case model.DecideRefute:
			l.res.Refuted++
		}
	}
	for _, inc := range out.Incidents {
		if l.arm.Largest {
			if !l.seen[inc.ID] {
				l.seen[inc.ID] = true
				c := *inc
				l.fresh = append(l.fresh, &c)
			}
			continue
		}
		for k := range inc.Rounds {
			if r := &inc.Rounds[k]; r.Chosen != nil && r.AppliedNsec > 0 {
				l.note(inc, r)
			}
		}
	}
}

// note makes a cap of a round. A nudge is a question and no cap until it is confirmed; a
// group is one cap.
func (l *loop) note(inc *model.Incident, r *model.Round) {
	known := slices.ContainsFunc(l.caps, func(c *armCap) bool { return c.Incident == inc.ID && c.made == r.MonoNsec })
	if known || r.Nudge && !r.Confirmed {
		return
	}
	c := l.add(inc, *r.Chosen, r.ChosenPath, r.SignalBefore)
	c.made = r.MonoNsec
	for _, m := range r.Members {
		c.members = append(c.members, m.Task)
		c.Group++
		c.Antagonist = c.Antagonist && l.run.hurts(m.Path)
	}
}

func (l *loop) add(inc *model.Incident, task model.TaskNum, path string, before float64) *armCap {
	m := l.srv.min - l.run.branch.srv.min
	c := &armCap{
		Incident: inc.ID, Suspect: path, Main: inc.Victim == l.run.trial.victim, Minute: m, Before: before,
		Kept: true, victim: inc.Victim, task: task, stddev: inc.Spec.StdDev, limit: threshold(&inc.Spec),
	}
	c.First = !slices.ContainsFunc(l.caps, func(o *armCap) bool { return o.victim == c.victim && o.Suspect == path })
	if t := l.w.Engine.State.Tasks.Get(inc.Victim); t != nil {
		c.Production = t.Production
	}
	c.Antagonist = l.run.hurts(path)
	l.nameNow(path)
	l.caps = append(l.caps, c)
	return c
}

// nameNow notes when a culprit is held for the first time.
func (l *loop) nameNow(path string) {
	if l.run.guilty(path) && l.res.NamedAfter < 0 {
		l.res.NamedAfter = max(0, float64(l.srv.host.Machine().NowNsec()-l.run.branch.srv.host.Machine().NowNsec())/1e9-windowSeconds)
	}
}

// look takes in the window of minute k.
func (l *loop) look(k int) {
	t := l.run.trial
	for _, c := range l.caps {
		if c.over || c.Minute == k { // its window came before the cap
			continue
		}
		if !l.holds(c.task) && !slices.ContainsFunc(c.members, l.holds) {
			c.over = true
			continue
		}
		w := l.srv.windowOf(c.victim)
		if c.Minutes < capMinutes {
			c.windows = append(c.windows, w)
			c.Minutes++
		}
		if w.ok {
			c.Held++
			if w.cpi <= c.limit {
				c.Well++
			}
		}
	}
	for i := range l.srv.obs.Tasks {
		o := &l.srv.obs.Tasks[i]
		task := l.w.Engine.State.Tasks.Get(o.Num)
		if task != nil && task.Class == model.BE && l.holds(o.Num) {
			l.res.Held[task.Path] = true
		}
		if task == nil || !task.Protected() {
			continue
		}
		sp := l.w.Engine.State.Specs.Lookup(task.Job, model.SourceCPI)
		w := l.srv.windowOf(o.Num)
		if sp == nil || !w.ok {
			continue
		}
		bad := w.cpi > threshold(sp)
		if bad {
			l.res.AllBad++
		}
		if o.Num == t.victim {
			l.victimWindow(k, bad)
		}
	}
}

func (l *loop) victimWindow(k int, bad bool) {
	l.res.Windows++
	if bad {
		c := l.cause(k)
		l.res.causes[k] = &c
		l.res.Bad++
		l.good = 0
		return
	}
	l.good++
	if l.good == 2 && l.res.RecoveredAfter < 0 {
		l.res.RecoveredAfter = k
	}
}

func (l *loop) judge(c *armCap) {
	c.During, _ = meanWindow(c.windows)
	c.Outcome = judge(c.Before, c.During, c.stddev)
	c.During = zeroNaN(c.During)
	if c.Outcome != noEvidence {
		c.RelativeCPI = c.During / c.Before
	}
	c.Kept = !c.over || c.Minutes >= capMinutes-1
}

// work notes what every BE task got done.
func (l *loop) work() error {
	for i := range l.run.mix.plan {
		p := l.run.mix.plan[i].start
		if p == nil || p.task.Class != model.BE {
			continue
		}
		n, ok := l.srv.nums[p.task.Path]
		if !ok || !l.srv.lives(n) {
			continue // those that leave leave at the same time under all arms
		}
		phys, err := l.srv.host.Physical(n)
		if err != nil {
			return err
		}
		c, err := l.srv.host.Machine().Counters(phys)
		if err != nil {
			return err
		}
		l.res.Work = append(l.res.Work, workDone{p.task.Path, float64(c.WorkDone)})
	}
	return nil
}

// account compares the work done under an arm with that without control.
func (r *run) account(a, without *ArmTrial) {
	var innocent, antagonist, lost, held, lostBy float64
	before := map[string]float64{}
	_ = eachWork(r.branch.srv, func(path string, done float64) { before[path] = done })
	for i, w := range without.Work {
		full := w.done - before[w.path]
		less := w.done - a.Work[i].done
		if r.hurts(w.path) {
			antagonist += full
			lostBy += less
			continue
		}
		innocent += full
		lost += less
		if a.Held[w.path] {
			held += max(0, less)
		}
	}
	a.InnocentLost, a.InnocentHeld, a.AntagonistLost = stat.Ratio(lost, innocent), stat.Ratio(held, innocent), stat.Ratio(lostBy, antagonist)
}

// guilty reports whether a BE task hurt the victim, alone or as one of a group.
func (r *run) guilty(path string) bool {
	t := r.trial
	return t.hurtBy(path) || t.GroupHarm > t.Spec.StdDev && slices.Contains(r.mix.actors, path)
}

// hurts reports whether a BE task hurt any protected task of the machine that suffered.
func (r *run) hurts(path string) bool {
	t := r.trial
	return r.guilty(path) || t.GroupHurts && slices.Contains(r.mix.actors, path) ||
		slices.ContainsFunc(t.Harm, func(h harm) bool { return h.Path == path && h.Anybody })
}

func eachWork(s *server, f func(path string, done float64)) error {
	for path, n := range s.nums {
		if !s.lives(n) {
			continue
		}
		phys, err := s.host.Physical(n)
		if err != nil {
			return err
		}
		c, err := s.host.Machine().Counters(phys)
		if err != nil {
			return err
		}
		f(path, float64(c.WorkDone))
	}
	return nil
}

func marshal(s *engine.State) ([]byte, error) { return json.Marshal(s) }
