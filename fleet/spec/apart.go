package spec

import "math"

// Mostly the spec in force is what the last calculation gave, and that is what is known of the signal anyway: it is not kept a second time. What
// differs from that few signals have.

// Apart is what a signal has that others have not.
type Apart struct {
	Spec   *Figures // in force; nil: there is none, or Signal.Tasks of it
	Held   *Held
	AtNsec int64 // of its last calculation; 0: it was the job's, or there was none
}

// Spec is what is in force of a signal, by its place in Signals; ok is false where nothing is.
func (j *Job) Spec(k int) (f Figures, ok bool) {
	if s := &j.Signals[k]; s.Tasks > 0 {
		return s.figures(), true
	}
	if j.Apart == nil || j.Apart[k].Spec == nil {
		return f, false
	}
	return *j.Apart[k].Spec, true
}

// Held is a spec of a signal, by its place in Signals, that was not published; nil: there is none.
func (j *Job) Held(k int) *Held {
	if j.Apart == nil {
		return nil
	}
	return j.Apart[k].Held
}

// figures are those that a signal's history gives.
func (s *Signal) figures() Figures {
	h := &s.History
	return Figures{NumSamples: float32(math.Round(h.N)), Mean: h.Mean, StdDev: float32(h.stddev()), UsageMean: float32(h.Usage), Tasks: s.Tasks}
}

// apart is the room for what a signal has that others have not.
func (j *Job) apart(k int) *Apart {
	if j.Apart == nil {
		j.Apart = make([]Apart, len(j.Signals))
	}
	return &j.Apart[k]
}

// setSpec puts figures in force; nil: none.
func (j *Job) setSpec(k int, f *Figures) {
	s := &j.Signals[k]
	if s.Tasks = 0; j.Apart != nil {
		j.Apart[k].Spec = nil
	}
	if f == nil {
		return
	}
	if s.Tasks = f.Tasks; s.Tasks == 0 || s.figures() != *f {
		kept := *f
		s.Tasks, j.apart(k).Spec = 0, &kept
	}
}

func (j *Job) setHeld(k int, h *Held) {
	if h != nil || j.Apart != nil {
		j.apart(k).Held = h
	}
}

// remember replaces what is known of a signal, and leaves in force what was.
func (j *Job) remember(k int, history Moments) {
	f, ok := j.Spec(k)
	j.Signals[k].History = history
	if ok {
		j.setSpec(k, &f)
	}
}

// at is when the last calculation of a signal was; 0: there was none.
func (j *Job) at(k int) (nsec int64) {
	switch {
	case j.Apart != nil && j.Apart[k].AtNsec != 0:
		return j.Apart[k].AtNsec
	case j.Signals[k].History.N > 0:
		return j.AtNsec
	}
	return 0
}

// setAts says when the last calculation of each signal was.
func (j *Job) setAts(ats []int64) {
	for _, at := range ats {
		j.AtNsec = max(j.AtNsec, at)
	}
	for k, at := range ats {
		if at == j.AtNsec {
			at = 0
		}
		if at != 0 || j.Apart != nil {
			j.apart(k).AtNsec = at
		}
	}
}

// together forgets that there was anything apart, where there is not.
func (j *Job) together() {
	for _, a := range j.Apart {
		if a != (Apart{}) {
			return
		}
	}
	j.Apart = nil
}
