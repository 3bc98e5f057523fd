// Package memory deals with who makes a service wait for memory: a neighbour that grows has the kernel take the service's pages, which come
// back one fault after the other. Nothing need be short for that, and nobody be near the OOM killer, of which policy pressure is.
//
// Intuition. The signal is the share of time in which a service waits for memory (PSI of its cgroup), with a spec as every other signal has
// one, judged beside that of the CPU. What a suspect needs is what it has, beyond nearly what it has since the service suffers, with what came back to it in the
// window: growth shows in the first, thrashing in the second. The correlation is CPI²'s. What is done is the mildest first. As much as the suspect took since the service
// was well, and others lack, is taken back once (memory.reclaim), for a few windows; that limits nobody, and where the suspect does not need what it had
// it is all. Where the service still waits the suspect is held at what leaves that to others (memory.high), which is verified, given back step by step,
// and taken back where it does not help (package beside).
//
// Hard cases, and what is done about them:
//
//   - Who thrashes is no culprit by that: a second victim of the same neighbour refaults most just when the first one suffers. So nobody is
//     accused who has no more memory than while the service was well.
//   - Who grows slowly does so for a long time in which nobody suffers yet: that there was room does not speak for him.
//   - A second victim that gets some of its own back grows. Who has less than it usually had before is not accused.
//   - A service that comes to a full machine takes what others had. Who has less than before it came is not accused. One that is started again is no such
//     service: it is known again, and others are measured by what they had while it was well (lives.go).
//   - Pages come back one fault after the other. While the service is getting back what it lacks nothing is concluded.
//   - The service itself grew, or all of the machine is too small: then others have no more than before, and nobody is held.
//   - The service is at a limit of its own: then it waits for what nobody else took, whoever grows beside it, and nobody is held.
//   - A figure that could not be read is as it was last, and a task that came while the service was well is measured by what it had since.
//   - A limit must not push a task below what it had while the service was well: the share is of what it took since, never of all.
//   - Without swap the kernel takes page cache alone. A limit then slows the growth of anonymous memory, and takes nothing of what is
//     there: the service's signal says whether that helps.
//   - A reader that streams through files has no more memory from a moment on, and refaults nothing: while the service has not yet been
//     pushed out it is seen growing, later not.
//
// Nobody is frozen or ended for this: where a machine runs out of memory policy pressure does what its configuration allows.
package memory

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/beside"
)

const (
	// pageBytes is a page of memory, as refaults are counted.
	pageBytes = 4096
	// leastAsk is how little memory of a task is not worth asking for.
	leastAsk = 1 << 20
	// leastWell is in how many windows a task has to have been there while the victim was well, so that what was before it came says nothing:
	// who pushes the victim out by coming may be seen a window before that shows.
	leastWell = 3
	// atLimit is the share of its own limit with which a victim waits for itself, unless the machine has less than available of its memory left.
	atLimit, available = 0.95, 0.1
	// spare is by how much more than others lost a suspect is held, and leastShare and mostShare bound what of that which it took it may have at first.
	spare, leastShare, mostShare = 0.1, 0.05, 0.95
	// mostTaken is how many times what others lost, and spare, is taken of a suspect at most. Of more the rest would be a share from which no step leads up.
	mostTaken = 4
	// nearly is how far from what it had while the victim was well to what it has since a suspect counts as having taken it: on the way there is room.
	nearly = 0.8
	// back is the part of what the victim lacks that must come back within Params.SettleNsec, so that it is returning.
	back = 0.2
)

// Asked is memory that is taken back of a task.
type Asked struct {
	Num    model.TaskNum `json:"task"`
	Bytes  int64         `json:"bytes"`
	AtNsec int64         `json:"at_nsec"`
	Had    float64       `json:"had"`  // before the first ask, in bytes
	Took   float64       `json:"took"` // by all of them, as the kernel says
}

// State is what the policy remembers. It is bounded: one incident a victim, and what was asked of tasks within Params.RetryAfterNsec.
type State struct {
	beside.State
	Needs *antagonist.History `json:"needs,omitempty"` // bytes that tasks have, with what came back in the window
	Has   *antagonist.History `json:"has,omitempty"`   // bytes that they have
	Asked []Asked             `json:"asked,omitempty"` // not asked again for a while: they grew again, or it was no use
	Told  bool                `json:"told,omitempty"`  // somebody's wait for memory was told of
	Lives []Life              `json:"lives,omitempty"` // of services

	p *Params // of the step that is taken
	v *policy.View
}

var words = beside.Words{Policy: model.PolicyMemory, Prefix: "m", Source: model.SourceMemory, Knob: model.MemoryHigh, Waits: "waits for memory", Share: model.FactMemoryShare}

// Step looks at the window that closed, if one did, and wishes for the limits that stand and for what is taken back.
func (s *State) Step(p *Params, in beside.Input, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	if s.p, s.v = p, v; v.Window.Closed {
		s.remember()
	}
	s.answers()
	s.State.Step(&p.Steps, in, &words, s, v, w)
	s.Asked = slices.DeleteFunc(s.Asked, func(a Asked) bool { return v.NowNsec-a.AtNsec >= p.RetryAfterNsec || v.Table.Get(a.Num) == nil })
	if w.AsBefore || !v.Enforced() {
		return
	}
	w.Why = "what was asked for is done"
	for _, a := range s.Asked {
		if a.AtNsec == v.NowNsec || v.Pending(a.Num, model.MemoryReclaim) {
			w.Claims = append(w.Claims, model.Claim{
				Target: model.OfTask(a.Num), Kind: model.ClaimRun, Value: model.Reclaim(a.Bytes), Reason: "it took memory from a service", HoldNsec: p.HoldNsec,
			})
		}
	}
}

// answers takes in what became of what was asked.
func (s *State) answers() {
	for i := range s.v.Results {
		r := &s.v.Results[i]
		if r.Now.Knob != model.MemoryReclaim || r.Scope != model.ScopeTask || r.Kind != model.Applied {
			continue
		}
		for k := range s.Asked {
			if a := &s.Asked[k]; a.Num == r.Num {
				a.Took += float64(max(0, r.Now.Amount))
			}
		}
	}
}

// has is what a task has at the window's end, in bytes; what could not be read is as it was in the window before. needs is that with what came
// back to it within the window.
func (s *State) has(num model.TaskNum) float64 {
	if o := s.v.Window.Observation.Task(num); o != nil && o.InUse.Outcome == model.OK {
		return o.InUse.V
	}
	return s.Has.RecentUsage(num, 1)
}

func (s *State) needs(num model.TaskNum) float64 {
	o := s.v.Window.Observation.Task(num)
	switch {
	case o == nil || o.InUse.Outcome != model.OK:
		return s.Needs.RecentUsage(num, 1)
	case o.Refaults.Outcome == model.OK:
		return o.InUse.V + o.Refaults.V*pageBytes*float64(s.v.Window.Observation.ElapsedNsec)/1e9
	}
	return o.InUse.V
}

// remember takes in what memory all have, and how the victims were.
func (s *State) remember() {
	if s.Needs == nil {
		s.Needs, s.Has = antagonist.NewHistory(s.v.History.Cap), antagonist.NewHistory(s.v.History.Cap)
	}
	for i := range s.v.Window.Observation.Tasks {
		s.Told = s.Told || s.v.Window.Observation.Tasks[i].Signals[model.SourceMemory].Outcome == model.OK
	}
	s.live()
	beside.Remember(s.v, s.Needs, model.SourceMemory, func(at int) float64 { return s.needs(s.v.Tasks[at].Task.Num) })
	beside.Remember(s.v, s.Has, model.SourceMemory, func(at int) float64 { return s.has(s.v.Tasks[at].Task.Num) })
	s.takingBack()
}

// Taken implements beside.Realm: of what each task needed in a window, what is more than nearly what it has since the victim suffers. What it had all along
// would otherwise outweigh what it took since, and what it took while there was room clear it.
func (s *State) Taken(inc *beside.Incident) (h *antagonist.History, why string) {
	if why := s.atItsLimit(inc.Victim); why != "" {
		return nil, why
	}
	if why := s.tookMore(inc); why != "" {
		return nil, why
	}
	life := s.life(inc.Victim)
	more := 0 // windows of its time before it was started again
	if life != nil {
		more = life.Windows
	}
	n := s.Needs.Filled
	h = antagonist.NewHistory(n + more)
	h.Filled = n + more
	for i := range s.Needs.Rows {
		r := &s.Needs.Rows[i]
		bad, good := s.had(inc, r.Num)
		level := good + nearly*max(0, bad-good)
		h.Ensure(r.Num)
		to := h.Row(r.Num)
		copy(to.Signal, r.Signal[:n])
		for k := range n {
			to.Usage[k] = max(0, r.Usage[k]-level)
		}
		for k := n; k < h.Filled; k++ {
			if to.Usage[k] = max(0, life.was(r.Num, s.v.Table.Name(r.Num)).Needs-level); r.Num == inc.Victim {
				to.Signal[k] = life.Signal
			}
		}
	}
	return h, ""
}

// atItsLimit says that a victim is at its own limit while the machine has memory available; "": it is not.
func (s *State) atItsLimit(victim model.TaskNum) string {
	o, r := s.v.Window.Observation.Task(victim), &s.v.Window.Observation.Room
	if o == nil || o.InUse.Outcome != model.OK || o.Limit.Outcome != model.OK || o.InUse.V < atLimit*o.Limit.V ||
		r.Available.Outcome == model.OK && r.Total.Outcome == model.OK && r.Available.V < available*r.Total.V {
		return ""
	}
	return fmt.Sprintf("it is at its own memory.max: it has %.0f of %.0f MiB, and nobody is held", o.InUse.V/(1<<20), o.Limit.V/(1<<20))
}

// tookMore says that the victim itself took more since it was well than all others together; "": it did not.
func (s *State) tookMore(inc *beside.Incident) string {
	took, others := 0.0, 0.0
	for i := range s.Has.Rows {
		num := s.Has.Rows[i].Num
		if bad, good := s.had(inc, num); num == inc.Victim {
			took = bad - good
		} else {
			others += max(0, bad-good)
		}
	}
	if took < leastAsk || took <= others {
		return ""
	}
	return fmt.Sprintf("it has %.0f MiB more than while it was well, all others together %.0f: it took the memory itself, and nobody is held", took/(1<<20), others/(1<<20))
}

// lost is what all but one have less than while the victim was well.
func (s *State) lost(inc *beside.Incident, but model.TaskNum) (bytes float64) {
	for i := range s.Has.Rows {
		if num := s.Has.Rows[i].Num; num != but {
			_, good := s.had(inc, num)
			bytes += max(0, good-s.has(num))
		}
	}
	return bytes
}

// had is what a task had while the victim was not well and while it was, in the mean. Windows before it came (it had nothing) count only where it was
// hardly there while the victim was well.
func (s *State) had(inc *beside.Incident, num model.TaskNum) (bad, good float64) {
	r, victim := s.Has.Row(num), s.Has.Row(inc.Victim)
	if r == nil || victim == nil {
		return 0, 0
	}
	nBad, nGood, nThere := 0, 0, 0
	for k, bytes := range r.Usage[:s.Has.Filled] {
		switch signal := victim.Signal[k]; {
		case signal == antagonist.NoEvidence:
		case signal > inc.Threshold:
			bad, nBad = bad+bytes, nBad+1
		default:
			good, nGood = good+bytes, nGood+1
			if bytes > 0 {
				nThere++
			}
		}
	}
	if l := s.life(inc.Victim); l != nil && l.Windows > 0 {
		was := l.was(num, s.v.Table.Name(num)).Has
		good, nGood = good+was*float64(l.Windows), nGood+l.Windows
		if was > 0 {
			nThere += l.Windows
		}
	}
	if nThere < leastWell {
		nThere = nGood
	}
	return bad / float64(max(1, nBad)), good / float64(max(1, nThere))
}

// Itself implements beside.Realm.
func (s *State) Itself(_ *beside.Incident, bad, good float64) string {
	return fmt.Sprintf("others took no more memory than while it was well (%.0f MiB beyond nearly what they have now, %.0f then): it needs more itself, or the machine is too small, and nobody is held", bad/(1<<20), good/(1<<20))
}

// Weigh implements beside.Realm: who has no more memory than while the victim was well took nothing from it.
func (s *State) Weigh(inc *beside.Incident, sus *model.Suspect, _ float64) bool {
	bad, good := s.had(inc, sus.Task)
	more := 0.0 // that all others have
	for i := range s.Has.Rows {
		if num := s.Has.Rows[i].Num; num != inc.Victim {
			bad, good := s.had(inc, num)
			more += bad - good
		}
	}
	if bad-good < max(leastAsk, s.p.MinShare*more, s.p.MinShare*s.lost(inc, sus.Task)) {
		sus.Judge(model.SuspectLeftAlone, fmt.Sprintf("it has %.0f MiB, and had %.0f while the victim was well", bad/(1<<20), good/(1<<20)))
		return false
	}
	row := slices.Sorted(slices.Values(s.Has.Row(sus.Task).Usage[:s.Has.Filled]))
	if usual := row[len(row)/2]; bad < usual && !s.wasWell(inc.Victim) {
		sus.Judge(model.SuspectLeftAlone, fmt.Sprintf("it has %.0f MiB, and had %.0f before: it is a second victim, of which some comes back", bad/(1<<20), usual/(1<<20)))
		return false
	}
	if before := s.before(inc.Victim, sus.Task); bad < before {
		sus.Judge(model.SuspectLeftAlone, fmt.Sprintf("it has %.0f MiB, and had %.0f before the victim came, or was started again: some of its own comes back", bad/(1<<20), before/(1<<20)))
		return false
	}
	return true
}

// Take implements beside.Realm.
func (s *State) Take(inc *beside.Incident, chosen antagonist.Score) (text string, facts []model.Fact, ok bool) {
	_, inc.Base = s.had(inc, chosen.Num)
	_, inc.Had = s.had(inc, inc.Victim)
	inc.Bytes = s.has(chosen.Num)
	if inc.Bytes-inc.Base < leastAsk {
		return "", nil, false
	}
	text = fmt.Sprintf("it has %.0f MiB, %.0f more than while the victim was well, and all others have lost %.0f", inc.Bytes/(1<<20), (inc.Bytes-inc.Base)/(1<<20), s.lost(inc, chosen.Num)/(1<<20))
	return text, []model.Fact{model.FactHeld.Is(inc.Bytes), model.FactMemoryMore.Is(inc.Bytes - inc.Base)}, true
}

// First implements beside.Realm: who took more than all others lost keeps what nobody lacks. Where nothing tells what they lost it is Params.Share.
func (s *State) First(inc *beside.Incident) float64 {
	num := *inc.Round().Chosen
	lost, has := s.lost(inc, num), s.has(num)
	if inc.Bytes = max(inc.Bytes, has); lost < leastAsk || inc.Bytes <= inc.Base {
		return s.p.Share
	}
	inc.Base = max(inc.Base, has-mostTaken*(1+spare)*lost)
	return min(mostShare, max(leastShare, (has-(1+spare)*lost-inc.Base)/(inc.Bytes-inc.Base)))
}

// Returning implements beside.Realm: pages come back one fault after the other, as they are used.
func (s *State) Returning(inc *beside.Incident) bool {
	has := s.has(inc.Victim)
	if inc.BackNsec < inc.MovedNsec || has >= inc.Back+max(leastAsk, back*(inc.Had-inc.Back)) {
		inc.Back, inc.BackNsec = has, s.v.NowNsec
	}
	return has < inc.Had-leastAsk && s.v.NowNsec-inc.BackNsec < s.p.SettleNsec
}

// limit is what a task may have at a share.
func (s *State) limit(inc *beside.Incident, share float64) float64 {
	return max(float64(s.p.LeastBytes), inc.Base+share*(inc.Bytes-inc.Base))
}

// Claim implements beside.Realm.
func (s *State) Claim(inc *beside.Incident) model.Claim {
	return model.Claim{
		Target: model.OfTask(*inc.Round().Chosen), Kind: model.ClaimCap, Value: model.HighMemory(int64(s.limit(inc, inc.Share)) / pageBytes * pageBytes), Cap: inc.Share,
		Reason: inc.Reason, Incident: inc.ID,
	}
}

// Of implements beside.Realm.
func (s *State) Of(inc *beside.Incident) string {
	return fmt.Sprintf("the %.0f MiB that it had more: %.0f MiB in all", (inc.Bytes-inc.Base)/(1<<20), s.limit(inc, inc.Share)/(1<<20))
}

// Mild implements beside.Realm: memory is taken back down to where the limit would be. Of whom that was asked for an earlier incident it
// is not asked again for a while.
func (s *State) Mild(inc *beside.Incident) (d model.Decision, ok bool) {
	num := *inc.Round().Chosen
	at := slices.IndexFunc(s.Asked, func(a Asked) bool { return a.Num == num })
	t := s.v.Task(num)
	if at >= 0 && !inc.Mild || t == nil || t.Knobs[model.MemoryReclaim].Pending {
		return d, false
	}
	has := s.has(num)
	bytes := min(s.p.ReclaimBytes, int64(has-s.limit(inc, inc.First))) / pageBytes * pageBytes
	if word, _ := t.Closed(model.MemoryReclaim); bytes < leastAsk || word != "" {
		return d, false
	}
	if at < 0 {
		s.Asked, at = append(s.Asked, Asked{Num: num, Had: has}), len(s.Asked)
	}
	a := &s.Asked[at]
	a.Bytes, a.AtNsec = bytes, s.v.NowNsec
	return model.Decision{
		Kind: model.DecideReclaim, Task: num, Facts: []model.Fact{model.FactHeld.Is(has), model.FactBytes.Is(float64(bytes))},
		Reason: fmt.Sprintf("%s; before it is held, up to %.0f MiB are taken back", inc.Reason, float64(bytes)/(1<<20)),
	}, true
}

// Regained implements beside.Realm: whose memory is in use swaps it in again within seconds, and the victim is as badly off as before.
func (s *State) Regained(inc *beside.Incident) bool {
	at := slices.IndexFunc(s.Asked, func(a Asked) bool { return a.Num == *inc.Round().Chosen })
	return at >= 0 && s.Asked[at].Took >= leastAsk && s.has(s.Asked[at].Num) >= s.Asked[at].Had-s.Asked[at].Took/2
}

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	switch held := s.Held(); {
	case !s.Told:
		return "nobody tells how long tasks wait for memory: PSI of their cgroups (cgroup v2)"
	case held > 0 && now == model.ModeEnforce:
		return fmt.Sprintf("%d BE tasks held", held)
	}
	return "nobody is held"
}
