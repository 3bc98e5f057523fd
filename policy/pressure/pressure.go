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
// Hard cases. A frozen task keeps what cannot be swapped: without swap memory may stay short although nobody grows. Then
// it is said who holds how much, and that somebody must end one (cannot-fix): this policy ends nobody. Frozen tasks hold
// what locks they have: a service that shares files or databases with batch work may wait for them, so `critical` ones are
// never frozen. What is read is a window old. Who grows by gigabytes a second on a machine with windows of a minute is
// not caught.
package pressure

import (
	"fmt"
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

// Dry is a task that gave hardly any of what was asked of it, and is not asked for a while.
type Dry struct {
	Num       model.TaskNum `json:"task"`
	UntilNsec int64         `json:"until_nsec"`
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

	Short     bool     `json:"short,omitempty"`      // so that somebody has to give way
	LevelNsec int64    `json:"level_nsec,omitempty"` // when the level was last other
	AskedNsec int64    `json:"asked_nsec,omitempty"` // when memory was last asked back
	CalmNsec  int64    `json:"calm_nsec,omitempty"`  // since when there is enough
	LetNsec   int64    `json:"let_nsec,omitempty"`   // when one was last let back in
	Patience  int      `json:"patience,omitempty"`   // times Params.CalmNsec
	StuckNsec int64    `json:"stuck_nsec,omitempty"` // since when memory is short and nobody is left to freeze
	Asked     []Asked  `json:"asked,omitempty"`      // in the last round
	Dry       []Dry    `json:"dry,omitempty"`        // tasks that have nothing to give
	Frozen    []Frozen `json:"frozen,omitempty"`     // in the order in which they were
}

const mostPatience = 16

// Step looks at the window that closed, if one did, and wishes for what best-effort work has to give.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	news := false
	if v.Window.Closed {
		r := &v.Window.Observation.Room
		if r.Total.Outcome != model.OK || r.Available.Outcome != model.OK || r.Total.V <= 0 {
			if s.AtNsec == 0 {
				w.AsBefore = !v.Changed // it was never told, which Note says
				return
			}
			w.Once("blind", model.Decision{Kind: model.DecideLeftAlone, Reason: "nobody tells how much memory is available: what was held stays so"})
		} else {
			news = s.look(p, v, w)
		}
	}
	if w.AsBefore = !news && !v.Changed; !w.AsBefore {
		s.wish(p, v, w)
	}
}

// look takes the window in, and does what follows from it. It reports whether anything is wished for anew.
func (s *State) look(p *Params, v *policy.View, w *policy.Wishes) bool {
	s.follow(&v.Window.Observation.Room, v.NowNsec)
	now := s.judge(p, v.NowNsec)
	if now != s.Level {
		if now > Calm && s.LetNsec > 0 && v.NowNsec-s.LetNsec < 4*int64(max(1, s.Patience))*p.CalmNsec && now > s.Level {
			s.Patience = min(2*max(1, s.Patience), mostPatience) // it was let in too soon
			s.LetNsec = 0
		}
		w.Decide(model.Decision{Kind: model.DecidePressure, Facts: s.facts(p), Reason: s.why(p, now)})
		s.Level, s.LevelNsec = now, v.NowNsec
	}
	had := len(s.Frozen)
	if s.Level > Calm {
		s.helpless(p, v, w, s.giveWay(p, v, w))
	} else {
		s.StuckNsec = 0
		s.letIn(p, v, w)
	}
	return s.AskedNsec == v.NowNsec || had != len(s.Frozen)
}

// follow notes how available memory moves.
func (s *State) follow(r *model.Room, nowNsec int64) {
	if dt := nowNsec - s.AtNsec; s.AtNsec > 0 && dt > 0 {
		fall := (s.Room.Available.V - r.Available.V) / float64(dt) * 1e9
		if s.FallBytes += (fall - s.FallBytes) / 2; fall <= 0 { // what was done has helped: nobody more has to
			s.FallBytes = fall
		}
	}
	s.Room, s.AtNsec = *r, nowNsec
}

func (s *State) share() float64 { return s.Room.Available.V / s.Room.Total.V }

// stalls reports whether programs wait for memory. Where nobody tells, they do not.
func (s *State) stalls(p *Params) bool {
	return s.Room.Some.Outcome == model.OK && s.Room.Some.V >= p.Some || s.Room.Full.Outcome == model.OK && s.Room.Full.V >= p.Full
}

// leftSeconds is when the reserve will be reached, in seconds; a day where it will not.
func (s *State) leftSeconds(p *Params) float64 {
	const day = 24 * 3600
	left := s.Room.Available.V - p.Reserve*s.Room.Total.V
	switch {
	case left <= 0:
		return 0
	case s.FallBytes <= 0:
		return day
	}
	return min(day, left/s.FallBytes)
}

// judge says how hard best-effort work has to give way.
func (s *State) judge(p *Params, nowNsec int64) Level {
	share, left := s.share(), s.leftSeconds(p)
	s.Short = share < p.Low && s.stalls(p) || share < p.Enough && left < float64(p.HorizonNsec)/1e9 || left < float64(p.SoonNsec)/1e9
	if share >= p.Enough && !s.Short && (s.Level == Calm || !s.stalls(p)) {
		if s.CalmNsec == 0 {
			s.CalmNsec = nowNsec
		}
	} else {
		s.CalmNsec = 0
	}
	switch urgent := left < float64(p.SoonNsec)/1e9; {
	case s.Level == Calm && s.Short && !urgent:
		return Reclaim
	case s.Short && urgent, s.Level == Reclaim && s.Short && share < p.Low && nowNsec-s.LevelNsec >= p.PatienceNsec:
		return Freeze
	case s.CalmNsec > 0 && nowNsec-s.CalmNsec >= int64(max(1, s.Patience))*p.CalmNsec:
		return Calm
	}
	return s.Level
}

// helpless says once that memory has been short for long with nobody left to freeze, and who has most.
func (s *State) helpless(p *Params, v *policy.View, w *policy.Wishes, froze bool) {
	if froze || s.share() >= p.Low {
		s.StuckNsec = 0
		return
	}
	if s.StuckNsec == 0 {
		s.StuckNsec = v.NowNsec
	}
	if v.NowNsec-s.StuckNsec < p.StuckNsec {
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
