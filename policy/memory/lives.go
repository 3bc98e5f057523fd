package memory

import (
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/beside"
)

// A service that is started again has another cgroup, and with it another number. By that alone it comes anew to a machine that is full, was well
// there only while it had little yet, and takes all that it has from those who were there first: nobody is found. Beside a service that does come
// anew the opposite holds: who gets back some of what he had before takes nothing that was ever its. So services are remembered by their
// paths, or their jobs, beyond their ends, with what all had while they were well.

const (
	// livesNsec is for how long a service that went is known when it comes back, and for how long it counts what others had before it came; mostLives is
	// how many are remembered at most, but for those that are there.
	livesNsec, mostLives = 3600e9, 64
	// again is the share of what a service had from which on it has it again.
	again = 0.98
)

// Life is a service, and what is known of its time before it was started again, if it was.
type Life struct {
	Num       model.TaskNum `json:"task"`
	Path      string        `json:"path"`
	Job       string        `json:"job"`
	Threshold float64       `json:"threshold"`
	SinceNsec int64         `json:"since_nsec,omitempty"` // when it came, or came back; 0: it was there in the first window
	WentNsec  int64         `json:"went_nsec,omitempty"`  // 0: it is there
	Windows   int           `json:"windows,omitempty"`    // in which it was well before it went, which count for it; 0: none do
	Signal    float64       `json:"signal,omitempty"`     // then, in the mean
	Was       []Was         `json:"was,omitempty"`        // what all had then, in the mean, or, where it came anew, before it came
}

// Was is a task beside a service that was well.
type Was struct {
	Num   model.TaskNum `json:"task"`
	Path  string        `json:"path"`
	Needs float64       `json:"needs"`
	Has   float64       `json:"has"`
}

// life finds a service; nil: it is none.
func (s *State) life(num model.TaskNum) *Life {
	if i := slices.IndexFunc(s.Lives, func(l Life) bool { return l.Num == num }); i >= 0 {
		return &s.Lives[i]
	}
	return nil
}

// wasWell reports whether it is known how a service was before it was started again.
func (s *State) wasWell(num model.TaskNum) bool {
	l := s.life(num)
	return l != nil && l.Windows > 0
}

// was finds what a task had, which may have been started again itself; all zero: it was not there.
func (l *Life) was(num model.TaskNum, path string) (w Was) {
	for i := range l.Was {
		if x := &l.Was[i]; x.Num == num || path != "" && x.Path == path {
			w = *x
		}
	}
	return w
}

// live looks who went and who came, before a window is taken in.
func (s *State) live() {
	for i := range s.Lives {
		if l := &s.Lives[i]; l.WentNsec == 0 && s.v.Table.Get(l.Num) == nil {
			l.WentNsec = s.v.NowNsec
			s.keep(l)
		}
	}
	s.Lives = slices.DeleteFunc(s.Lives, func(l Life) bool { return l.WentNsec != 0 && s.v.NowNsec-l.WentNsec >= livesNsec })
	for i := range s.v.Tasks {
		t := &s.v.Tasks[i].Task
		if !t.Protected() {
			continue
		}
		l := s.life(t.Num)
		if l == nil {
			l = s.comes(t)
		}
		if x := beside.Victim(s.v, t.Num, model.SourceMemory); x != nil {
			l.Threshold = x.Threshold
		}
	}
	for len(s.Lives) > mostLives {
		gone := slices.IndexFunc(s.Lives, func(l Life) bool { return l.WentNsec != 0 })
		if gone < 0 {
			break
		}
		s.Lives = slices.Delete(s.Lives, gone, gone+1)
	}
}

// comes takes a service in, or knows it again: by its path, else by its job.
func (s *State) comes(t *model.Task) *Life {
	at := slices.IndexFunc(s.Lives, func(l Life) bool { return l.WentNsec != 0 && l.Path == t.Path })
	if at < 0 {
		at = slices.IndexFunc(s.Lives, func(l Life) bool { return l.WentNsec != 0 && l.Job == t.Job })
	}
	if at >= 0 {
		l := &s.Lives[at]
		for i := range l.Was {
			if l.Was[i].Num == l.Num {
				l.Was[i].Num = t.Num
			}
		}
		l.Num, l.Path, l.Job, l.WentNsec, l.SinceNsec = t.Num, t.Path, t.Job, 0, s.v.NowNsec
		return l
	}
	s.Lives = append(s.Lives, Life{Num: t.Num, Path: t.Path, Job: t.Job})
	l := &s.Lives[len(s.Lives)-1]
	if s.Has.Filled > 0 {
		l.SinceNsec = s.v.NowNsec
		var all []int
		for k := range s.Has.Filled {
			all = append(all, k)
		}
		s.note(l, all)
	}
	return l
}

// keep notes what all had while a service was well that has gone. Where it never was, what is known of an earlier time stands.
func (s *State) keep(l *Life) {
	r := s.Has.Row(l.Num)
	if r == nil {
		return
	}
	most, signal := 0.0, 0.0
	is := func(k int) bool { return r.Signal[k] != antagonist.NoEvidence && r.Signal[k] <= l.Threshold }
	for k := range s.Has.Filled {
		if is(k) {
			most = max(most, r.Usage[k])
		}
	}
	var well []int
	for k, v := range r.Signal[:s.Has.Filled] {
		if is(k) && r.Usage[k] >= again*most {
			well, signal = append(well, k), signal+v
		}
	}
	if len(well) < leastWell {
		return
	}
	l.Windows, l.Signal = len(well), signal/float64(len(well))
	s.note(l, well)
}

// note notes what all that are there, and the service itself, had in some windows in the mean.
func (s *State) note(l *Life, windows []int) {
	n := float64(len(windows))
	l.Was = nil
	for i := range s.Has.Rows {
		w := Was{Num: s.Has.Rows[i].Num}
		if t := s.v.Table.Get(w.Num); t != nil {
			w.Path = t.Path
		} else if w.Num != l.Num {
			continue
		}
		for _, k := range windows {
			w.Has += s.Has.Rows[i].Usage[k] / n
			if needs := s.Needs.Row(w.Num); needs != nil {
				w.Needs += needs.Usage[k] / n
			}
		}
		l.Was = append(l.Was, w)
	}
}

// takingBack leaves out windows in which a service that is back is well before it has again what it had: that there was room until then speaks for nobody.
// From then on, or where it does not suffer for as long as windows are remembered, it is as any other.
func (s *State) takingBack() {
	at := (s.Has.Next + s.Has.Cap - 1) % s.Has.Cap
	for i := range s.Lives {
		l := &s.Lives[i]
		if l.WentNsec == 0 && s.v.NowNsec-l.SinceNsec >= livesNsec {
			l.Windows, l.Was = 0, nil
		}
		if l.Windows == 0 || l.WentNsec != 0 {
			continue
		}
		open := slices.ContainsFunc(s.Incidents, func(inc beside.Incident) bool { return inc.Victim == l.Num })
		if !open && s.v.NowNsec-l.SinceNsec >= int64(s.Has.Cap)*s.v.History.PeriodNsec() {
			l.Windows = 0
			continue
		}
		if x := beside.Victim(s.v, l.Num, model.SourceMemory); x != nil && x.Signal <= x.Threshold {
			s.Needs.Row(l.Num).Signal[at], s.Has.Row(l.Num).Signal[at] = antagonist.NoEvidence, antagonist.NoEvidence
		}
	}
}

// before is what a task had before a service came, or while it was well before it was started again; 0: it was not there, or that is not known.
func (s *State) before(victim, num model.TaskNum) (bytes float64) {
	if l := s.life(victim); l != nil {
		bytes = l.was(num, s.v.Table.Name(num)).Has
	}
	return bytes
}
