// Package pressure has best-effort work give way while the machine runs out of memory, before the kernel's OOM killer
// acts (Alibaba §3.2: the combination of memory PSI and memory utilisation tells that it does).
//
// Intuition. When nothing is left to reclaim, the kernel kills whoever is largest, and that is often the service. It
// has warned before: available memory falls, and programs wait for memory. Either alone says little. Little is
// available on any machine that is well used, and a group at its own limit stalls on a machine with room. Together they
// mean that the machine is short; and where memory falls so fast that the reserve is in sight, nobody need stall first.
//
// What is done is the mildest that can help in time: memory is taken back from best-effort tasks, a bounded amount of a few
// at a time (memory.reclaim); where that did not help for a while, or the reserve is too near, tasks are frozen, which
// stops who grows, and lets the kernel swap what they have. The last ones frozen are let go on first, one at a time, once
// there has been enough for a while; longer each time that turned out too soon.
//
// Hard cases. A frozen task keeps what cannot be swapped: without swap memory may stay short although nobody grows. Where the
// configuration gives tasks of some importance up (end), they are ended then, one after the other, frozen ones first; else
// it is said who holds how much, and that somebody must end one (cannot-fix). Frozen tasks hold
// what locks they have: a service that shares files or databases with batch work may wait for them, so `critical` ones are
// never frozen. What is read is a window old, and a service may grow from above the reserve to all there is within a second: so memory
// is looked at more often while little is available or the reserve is in sight, at once when programs begin to wait for it (PSI
// triggers), and what will be gone by the next look is taken for gone. To freeze who does not grow gains no time: who grows
// goes first where time is short, in the order that is asked for. Who takes all there is within a window of a minute is
// seen when programs wait, or not at all.
package pressure

import (
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Level says how hard best-effort work has to give way.
type Level uint8

// The levels.
const (
	Calm    Level = iota
	Reclaim       // memory is taken back
	Freeze        // tasks are frozen, too
)

var levelNames = [...]string{"calm", "reclaim", "freeze"}

// String returns the level's name.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a level's name.
func (l *Level) UnmarshalText(b []byte) error {
	i := slices.Index(levelNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown level %q", b)
	}
	*l = Level(i)
	return nil
}

// Asked is what was last asked back of a task.
type Asked struct {
	Num   model.TaskNum `json:"task"`
	Bytes int64         `json:"bytes"`
	Had   float64       `json:"had"` // bytes, when it was asked
}

// Frozen is a task that is to be frozen.
type Frozen struct {
	Num    model.TaskNum `json:"task"`
	AtNsec int64         `json:"at_nsec"`
}

// State is what the policy remembers. Times are monotonic, 0: never.
type State struct {
	Level Level `json:"level,omitempty"`
	// Room is how the machine was in the last window that told, at AtNsec, and FallBytes by how much a second what is
	// available falls, smoothed; below 0 it grows.
	Room      model.Room `json:"room"`
	AtNsec    int64      `json:"at_nsec,omitempty"`
	FallBytes float64    `json:"fall_bytes,omitempty"`

	Short     bool           `json:"short,omitempty"`      // so that somebody has to give way
	LevelNsec int64          `json:"level_nsec,omitempty"` // when the level was last other
	AskedNsec int64          `json:"asked_nsec,omitempty"` // when memory was last asked back
	CalmNsec  int64          `json:"calm_nsec,omitempty"`  // since when there is enough
	StillNsec int64          `json:"still_nsec,omitempty"` // since when memory is not short, though there may be less than enough
	LetNsec   int64          `json:"let_nsec,omitempty"`   // when one was last let back in
	WaitNsec  int64          `json:"wait_nsec,omitempty"`  // how long it had been waited for that
	Patience  int            `json:"patience,omitempty"`   // times Params.CalmNsec
	StuckNsec int64          `json:"stuck_nsec,omitempty"` // since when memory is short and nobody is left to freeze
	Asked     []Asked        `json:"asked,omitempty"`      // in the last round
	Dry       []policy.Until `json:"dry,omitempty"`        // tasks that gave hardly any of what was asked of them, and are not asked for a while
	Frozen    []Frozen       `json:"frozen,omitempty"`     // in the order in which they were
	LookNsec  int64          `json:"look_nsec,omitempty"`  // when it last looked, or tried to
	Tasks     []Task         `json:"tasks,omitempty"`      // best-effort ones, ordered by number

	HelplessNsec int64 `json:"helpless_nsec,omitempty"` // since when there is little with nobody left to freeze
	policy.Ender

	matched bool
	spare   []Task
}

// Task is what is remembered of a best-effort task.
type Task struct {
	Num        model.TaskNum `json:"num"`
	Bytes      float64       `json:"bytes,omitempty"`       // at the last look
	AtNsec     int64         `json:"at_nsec,omitempty"`     // when that was; 0: never
	GrowsBytes float64       `json:"grows_bytes,omitempty"` // a second, smoothed
	Spent      float64       `json:"spent,omitempty"`       // CPU-seconds since its cgroup was made

	view int // its place in the view
}

const (
	mostPatience = 16
	// slow is how many times as long it is waited before one is let in where there is less than enough.
	slow = 16
)

// Step looks at the window that closed, if one did, and wishes for what best-effort work has to give.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	if v.Changed || !s.matched {
		s.match(v)
	}
	news, r := false, (*model.Room)(nil)
	if v.Window.Closed {
		r = &v.Window.Observation.Room
	} else if v.Look != nil {
		r = &v.Look.Room
	}
	if r != nil {
		s.LookNsec = v.NowNsec
		if r.Total.Outcome != model.OK || r.Available.Outcome != model.OK || r.Total.V <= 0 {
			if s.AtNsec == 0 {
				w.AsBefore = !v.Changed // it was never told, which Note says
				return
			}
			w.Once("blind", model.Decision{Kind: model.DecideLeftAlone, Reason: "nobody tells how much memory is available: what was held stays so"})
		} else {
			news = s.look(p, r, v, w)
		}
	}
	if w.AsBefore = !news && !v.Changed; !w.AsBefore {
		s.wish(p, v, w)
	}
}

// match brings the memory of tasks in line with the view.
func (s *State) match(v *policy.View) {
	s.matched = true
	s.Tasks, s.spare = policy.Match(v, s.Tasks, s.spare, func(t *Task) model.TaskNum { return t.Num }, func(t *policy.TaskView, had *Task, at int) (Task, bool) {
		entry := Task{Num: t.Task.Num}
		if had != nil {
			entry = *had
		}
		entry.view = at
		return entry, t.Task.Class == model.BE
	})
}

// LookDue returns when memory is to be looked at next between windows, monotonic; math.MaxInt64: it is not. While enough is
// available, and the reserve not in sight, nothing is done more often than windows close.
func (s *State) LookDue(p *Params) int64 {
	if p.LookNsec <= 0 || s.AtNsec == 0 || s.Level == Calm && s.share() >= p.Enough && s.leftSeconds(p) >= float64(p.HorizonNsec)/1e9 {
		return math.MaxInt64
	}
	return s.LookNsec + p.LookNsec
}

// ahead is how long it takes until the next look, in seconds, where memory is short.
func (s *State) ahead(p *Params) float64 { return float64(p.LookNsec) / 1e9 }

// look takes a window or a look in, and does what follows from it. It reports whether anything is wished for anew.
func (s *State) look(p *Params, r *model.Room, v *policy.View, w *policy.Wishes) bool {
	s.follow(r, v)
	now := s.judge(p, v.NowNsec)
	if now != s.Level {
		if now > Calm && s.LetNsec > 0 && v.NowNsec-s.LetNsec < 4*s.WaitNsec && now > s.Level {
			s.Patience = min(2*max(1, s.Patience), mostPatience) // it was let in too soon
			s.LetNsec = 0
		}
		w.Decide(model.Decision{Kind: model.DecidePressure, Facts: s.facts(p), Reason: s.why(p, now)})
		s.Level, s.LevelNsec = now, v.NowNsec
	}
	had, ending := len(s.Frozen), len(s.Ending)
	s.outlived(p, v)
	if s.Level > Calm {
		gave := s.giveWay(p, v, w)
		s.helpless(p, v, w, s.end(p, v, w, gave) || gave)
	} else {
		s.HelplessNsec, s.EndedNsec = 0, 0
		s.letIn(p, v, w)
		s.helpless(p, v, w, len(s.Frozen) == 0)
	}
	return s.AskedNsec == v.NowNsec || ending != len(s.Ending) || had != len(s.Frozen)
}

// smooth is by how much of the difference a rate is moved that was measured over a time: by half in a second.
func smooth(nsec int64) float64 { return 1 - math.Exp2(-float64(nsec)/1e9) }

// follow notes how available memory moves, and that of tasks.
func (s *State) follow(r *model.Room, v *policy.View) {
	if dt := v.NowNsec - s.AtNsec; s.AtNsec > 0 && dt > 0 {
		fall := (s.Room.Available.V - r.Available.V) / float64(dt) * 1e9
		if s.FallBytes += (fall - s.FallBytes) * smooth(dt); fall <= 0 { // what was done has helped: nobody more has to
			s.FallBytes = fall
		}
	}
	s.Room, s.AtNsec = *r, v.NowNsec
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if o := v.Window.Observation.Task(t.Num); o != nil && o.Spent.Outcome == model.OK {
			t.Spent = o.Spent.V
		}
		bytes, ok := inUse(v, t.Num)
		if !ok {
			continue
		}
		if dt := v.NowNsec - t.AtNsec; t.AtNsec > 0 && dt > 0 {
			t.GrowsBytes += ((bytes-t.Bytes)/float64(dt)*1e9 - t.GrowsBytes) * smooth(dt)
		}
		t.Bytes, t.AtNsec = bytes, v.NowNsec
	}
}

func (s *State) share() float64 { return s.Room.Available.V / s.Room.Total.V }

// stalls reports whether programs wait for memory. Where nobody tells, they do not.
func (s *State) stalls(p *Params) bool {
	return s.Room.Some.Outcome == model.OK && s.Room.Some.V >= p.Some || s.Room.Full.Outcome == model.OK && s.Room.Full.V >= p.Full
}

// leftSeconds is how long after the next look the reserve will be reached, in seconds; a day where it will not. Until then
// nothing more can be done about what is to come.
func (s *State) leftSeconds(p *Params) float64 {
	const day = 24 * 3600
	left := s.Room.Available.V - p.Reserve*s.Room.Total.V - max(0, s.FallBytes)*s.ahead(p)
	switch {
	case left <= 0:
		return 0
	case s.FallBytes <= 0:
		return day
	}
	return min(day, left/s.FallBytes)
}

// urgent reports whether only the strongest means is fast enough.
func (s *State) urgent(p *Params) bool { return s.leftSeconds(p) < float64(p.SoonNsec)/1e9 }

// judge says how hard best-effort work has to give way.
func (s *State) judge(p *Params, nowNsec int64) Level {
	share, left := s.share(), s.leftSeconds(p)
	s.Short = share < p.Low && s.stalls(p) || share < p.Enough && left < float64(p.HorizonNsec)/1e9 || s.urgent(p)
	still := share >= p.Low && !s.Short && (s.Level == Calm || !s.stalls(p))
	since(&s.StillNsec, still, nowNsec)
	since(&s.CalmNsec, still && share >= p.Enough, nowNsec)
	switch urgent := s.urgent(p); {
	case s.Level == Calm && s.Short && !urgent:
		return Reclaim
	case s.Short && urgent, s.Level == Reclaim && s.Short && share < p.Low && nowNsec-s.LevelNsec >= p.PatienceNsec:
		return Freeze
	}
	if calm, wait := s.eased(p); calm > 0 && nowNsec-calm >= wait {
		return Calm
	}
	return s.Level
}

// since notes from when on something is so; 0: it is not.
func since(nsec *int64, so bool, nowNsec int64) {
	if !so {
		*nsec = 0
	} else if *nsec == 0 {
		*nsec = nowNsec
	}
}

// eased returns since when there is enough, 0: there is not, and how long it is waited then. Who is frozen must not be so for ever where
// memory is no longer short and yet there will not be enough: then it is waited for much longer.
func (s *State) eased(p *Params) (sinceNsec, waitNsec int64) {
	wait := int64(max(1, s.Patience)) * p.CalmNsec
	if s.CalmNsec == 0 && len(s.Frozen) > 0 {
		return s.StillNsec, slow * wait
	}
	return s.CalmNsec, wait
}

// helpless says once that memory has been short for long with nobody left to freeze, and who has most; or who stays frozen because there
// is not enough.
func (s *State) helpless(p *Params, v *policy.View, w *policy.Wishes, helped bool) {
	short := s.share() < p.Low
	if helped || !short && (s.CalmNsec > 0 || len(s.Frozen) == 0 || !v.Enforced()) {
		s.StuckNsec = 0
		return
	}
	if s.StuckNsec == 0 {
		s.StuckNsec = v.NowNsec
	}
	if v.NowNsec-s.StuckNsec < p.StuckNsec {
		return
	}
	if !short {
		s.remains(p, v, w)
		return
	}
	largest, bytes := -1, 0.0
	for i := range v.Tasks {
		if has, ok := inUse(v, v.Tasks[i].Task.Num); ok && v.Tasks[i].Task.Class == model.BE && has > bytes {
			largest, bytes = i, has
		}
	}
	d := model.Decision{Kind: model.DecideCannotFix, Facts: s.facts(p), Reason: "memory stays short, and best-effort work has nothing left to give but by its end, which is not this policy's to decide"}
	if largest >= 0 {
		t := &v.Tasks[largest].Task
		d.Task, d.Path, d.Facts = t.Num, t.Path, append(d.Facts, model.FactHeld.Is(bytes))
		d.Reason += "; of it this task has most"
	}
	w.Once("stuck", d)
}

// remains says once of each frozen task that it stays so.
func (s *State) remains(p *Params, v *policy.View, w *policy.Wishes) {
	for _, f := range s.Frozen {
		t, facts := v.Task(f.Num), s.facts(p)
		if t == nil {
			continue
		}
		if has, ok := inUse(v, f.Num); ok {
			facts = append(facts, model.FactHeld.Is(has))
		}
		w.Once("remains", model.Decision{
			Kind: model.DecideCannotFix, Task: f.Num, Path: t.Task.Path, Facts: facts,
			Reason: fmt.Sprintf("memory is not short any more, but less than %.1f %% are available, or programs wait for it: this task stays frozen for now", 100*p.Enough),
		})
	}
}

// facts are what a decision rests on.
func (s *State) facts(p *Params) []model.Fact {
	list := []model.Fact{model.FactAvailable.Is(s.Room.Available.V), model.FactAvailableShare.Is(s.share()), model.FactLeft.Is(s.leftSeconds(p))}
	if s.Room.Some.Outcome == model.OK {
		list = append(list, model.FactMemorySome.Is(s.Room.Some.V))
	}
	if s.Room.Full.Outcome == model.OK {
		list = append(list, model.FactMemoryFull.Is(s.Room.Full.V))
	}
	return list
}

// why says in words why the level moves.
func (s *State) why(p *Params, now Level) string {
	text := fmt.Sprintf("%.1f %% of memory are available", 100*s.share())
	if left := s.leftSeconds(p); left < float64(p.HorizonNsec)/1e9 {
		text += fmt.Sprintf(", the reserve of %.1f %% is %.0f s away", 100*p.Reserve, left)
	}
	if s.stalls(p) {
		text += fmt.Sprintf(", programs wait for memory %.1f %% of the time", 100*s.Room.Some.V)
	}
	switch now {
	case Reclaim:
		return text + ": memory is taken back from best-effort work"
	case Freeze:
		return text + ": best-effort work is frozen"
	}
	return text + ": best-effort work may go on"
}

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	if s.AtNsec == 0 {
		return "nothing is known of the machine's memory yet"
	}
	text := fmt.Sprintf("%.1f %% of memory available", 100*s.share())
	switch {
	case s.Level == Calm && len(s.Frozen) == 0:
		return text
	case now != model.ModeEnforce:
		return text + "; would hold best-effort work: " + s.Level.String()
	}
	return fmt.Sprintf("%s; %s, %d BE tasks frozen", text, s.Level, len(s.Frozen))
}
