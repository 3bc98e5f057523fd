package coldpages

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// look takes a window in: how the machine and each task fare, and ages that were read.
func (s *State) look(p *Params, v *policy.View, w *policy.Wishes) {
	obs := v.Window.Observation
	s.SwapFree, s.Some = -1, obs.Room.Some
	if obs.Room.SwapFree.Outcome == model.OK {
		s.SwapFree = obs.Room.SwapFree.V
	}
	dt := float64(v.Window.LengthNsec) // what a window says stands for the time since the one before
	if s.AtNsec > 0 {
		dt = float64(v.NowNsec - s.AtNsec)
	}
	s.AtNsec = v.NowNsec
	s.machine(p, v, w)
	j := 0
	for i := range s.Tasks {
		t := &s.Tasks[i]
		for j < len(obs.Tasks) && obs.Tasks[j].Num < t.Num {
			j++
		}
		if j < len(obs.Tasks) && obs.Tasks[j].Num == t.Num {
			s.follow(p, v, w, t, &obs.Tasks[j], dt/1e9)
		}
	}
	for i := range obs.Ages {
		a := &obs.Ages[i]
		if t := s.task(a.Num); t != nil {
			t.Ages, t.AgesInUse, t.Taken, s.Told = *a, t.InUse, [3]int64{}, true
			s.would(p, v, w, t)
		}
	}
	if s.BeganNsec == 0 {
		s.BeganNsec = v.NowNsec
	}
	if !s.Told && p.By == ByAge && v.NowNsec-s.BeganNsec > patienceNsec {
		w.Once("blind", model.Decision{Kind: model.DecideLeftAlone, Reason: "nobody tells how long pages lay idle, so that nothing is taken back (commensal doctor says what of mglru this kernel has); by: pressure needs no ages"})
	}
}

// machine has all rest while programs wait for memory: what is needed now is policy pressure's affair.
func (s *State) machine(p *Params, v *policy.View, w *policy.Wishes) {
	switch stalls := s.Some.Outcome == model.OK && s.Some.V > p.MachineStall; {
	case stalls && v.NowNsec >= s.UntilNsec:
		nsec := p.RestNsec << s.Rests
		s.UntilNsec, s.Rests = v.NowNsec+nsec, min(s.Rests+1, mostRests)
		w.Decide(model.Decision{Kind: model.DecideRest, Facts: []model.Fact{model.FactMemorySome.Is(s.Some.V)},
			Reason: fmt.Sprintf("programs wait for memory %.1f %% of the time: nobody is asked for %s", 100*s.Some.V, time.Duration(nsec))})
	case !stalls && s.Rests > 0 && v.NowNsec-s.UntilNsec > p.RestNsec<<s.Rests:
		s.Rests = 0
	}
}

// follow takes in how a task fared in the last dt seconds, says what a reclaim cost it, and has it rest where that is too much.
func (s *State) follow(p *Params, v *policy.View, w *policy.Wishes, t *Task, o *model.TaskObservation, dt float64) {
	t.Stalled, t.InUse, t.Refaults = o.Stalled, 0, 0
	if o.InUse.Outcome == model.OK {
		t.InUse = o.InUse.V
	}
	known := o.Refaults.Outcome == model.OK
	if known {
		t.Refaults = o.Refaults.V
	}
	i, victim := slices.BinarySearchFunc(v.Window.Victims, t.Num, func(v policy.Victim, n model.TaskNum) int { return cmp.Compare(v.Num, n) })
	t.Suffers = victim && v.Window.Victims[i].Anomalous
	watched := t.Watch.FromNsec != 0 && v.Window.StartNsec >= t.Watch.FromNsec
	if watched {
		back := max(0, t.Refaults-max(0, t.Usual)) * pageBytes * dt
		t.Watch.Back, t.Back = t.Watch.Back+back, t.Back+back
		if stall := s.stall(t); stall.Outcome == model.OK {
			t.Watch.StallNsec += stall.V * dt * 1e9
		}
	}
	if why := s.trouble(p, t); why != "" {
		ours := t.Watch.FromNsec != 0 || t.AskedNsec > 0 && v.NowNsec-t.AskedNsec < p.RestNsec
		if ours && v.NowNsec >= t.UntilNsec {
			s.cost(v, w, t)
			s.rest(p, v, w, t, why)
		} else { // it rests already, or it is not our doing as far as we know: it is left alone as long as that lasts
			t.UntilNsec = max(t.UntilNsec, v.NowNsec+int64(60e9))
		}
	} else if watched && v.NowNsec-t.Watch.FromNsec >= p.WatchNsec {
		if v.NowNsec >= t.UntilNsec { // else it was too little that came free
			t.Rests = max(0, t.Rests-1)
		}
		s.cost(v, w, t)
	}
	if known && t.Watch.FromNsec == 0 { // what was taken long ago is part of the usual
		if t.Usual < 0 {
			t.Usual = t.Refaults
		}
		t.Usual += (t.Refaults - t.Usual) * min(1, dt*1e9/float64(p.RestNsec))
	}
}

// trouble says what speaks against taking memory of a task now; "": nothing.
func (s *State) trouble(p *Params, t *Task) string {
	stall := t.Stalled
	switch most := p.Refaults * t.InUse / 60; {
	case t.Suffers:
		return "its signal says that it suffers"
	case stall.Outcome == model.OK && stall.V > p.Stall:
		return fmt.Sprintf("it waits for memory %.2f %% of the time", 100*stall.V)
	case p.By == ByAge && t.Usual >= 0 && (t.Refaults-t.Usual)*pageBytes > most:
		return fmt.Sprintf("%.0f pages a second come back, usually %.0f; %.0f more are too many", t.Refaults, t.Usual, most/pageBytes)
	}
	return ""
}

// cost says what a reclaim cost, and ends the watch.
func (s *State) cost(v *policy.View, w *policy.Wishes, t *Task) {
	c := &t.Watch
	if c.FromNsec == 0 {
		return
	}
	nsec := float64(v.NowNsec - c.FromNsec)
	d := model.Decision{Kind: model.DecideCost, Task: t.Num, Facts: append(s.facts(t), model.FactBytes.Is(c.Bytes), model.FactFreed.Is(c.Bytes-c.Kept), model.FactCameBack.Is(c.Back), model.FactTook.Is(float64(c.TookNsec)/1e9))}
	if c.OlderNsec > 0 {
		d.Facts = append(d.Facts, model.FactAge.Is(float64(c.OlderNsec)/1e9))
	}
	kept := ""
	if c.Kept >= mib {
		kept = fmt.Sprintf(", of which %.0f MiB came free,", (c.Bytes-c.Kept)/mib)
	}
	d.Reason = fmt.Sprintf("it gave %.0f MiB%s in %.1f s; in the %.0f s since %.1f MiB came back beyond the usual, and it waited %.2f s for memory", c.Bytes/mib, kept, float64(c.TookNsec)/1e9, nsec/1e9, c.Back/mib, c.StallNsec/1e9)
	w.Decide(d)
	*c = Watch{}
}

// rest lets a task rest, longer each time.
func (s *State) rest(p *Params, v *policy.View, w *policy.Wishes, t *Task, why string) {
	nsec := p.RestNsec << t.Rests
	t.UntilNsec, t.Rests = v.NowNsec+nsec, min(t.Rests+1, mostRests)
	w.Decide(model.Decision{Kind: model.DecideRest, Task: t.Num, Facts: s.facts(t), Reason: fmt.Sprintf("%s: nothing is taken of it for %s", why, time.Duration(nsec))})
}

// would says, while nothing is done, what a task would give: once each time its ages are read.
func (s *State) would(p *Params, v *policy.View, w *policy.Wishes, t *Task) {
	tv := v.Task(t.Num)
	if v.Enforced() || tv == nil {
		return
	}
	c := tv.Task.Class
	anon, file := s.cold(p, c, t, model.AnonPages), s.cold(p, c, t, model.FilePages)
	text := ""
	if room := s.swap(t); room < anon {
		anon, text = room, fmt.Sprintf(", for which swap has room, of %.0f MiB", float64(anon)/mib)
	}
	if anon+file < leastAsk && text == "" {
		return
	}
	w.Decide(model.Decision{Kind: model.DecideReclaim, Task: t.Num, Path: tv.Task.Path,
		Facts: append(s.facts(t), model.FactCold.Is(float64(anon+file))),
		Reason: fmt.Sprintf("it would give %.0f MiB of anonymous pages not used for %s%s, and %.0f MiB of file pages not used for %s",
			float64(anon)/mib, time.Duration(p.age(c, model.AnonPages)), text, float64(file)/mib, time.Duration(p.age(c, model.FilePages)))})
}
