package hardcap

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Trials: a group that was held for a correlation may hold innocents; see group.go.

// Trial is a member of a group that is released to see whether it is needed.
type Trial struct {
	Round     int   `json:"round"`
	Member    int   `json:"member"` // of that round
	SinceNsec int64 `json:"since_nsec"`
	Good      int   `json:"good"`
	Bad       int   `json:"bad"`
	Windows   int   `json:"windows,omitempty"` // that were judged, with Groups.Witnesses
}

// trialBad is how many bad windows end a trial: one may be noise, of which 2 sigma leave
// one window in twenty.
const trialBad = 2

// ranShare is the share of its greatest usage from which on a released member is taken to
// have run.
const ranShare = 0.25

// Tested is what an experiment has shown of a task: guilty, it was needed or confirmed;
// innocent, it ran freely while a victim stayed well. What the correlation says of it has
// not changed by that, so that without this memory the next victim's incident would begin
// anew: accuse the innocent again, and miss the guilty one for want of a second member.
type Tested struct {
	Task      model.TaskNum `json:"task"`
	Guilty    bool          `json:"guilty"`
	UntilNsec int64         `json:"until_nsec"`
}

// testedFactor: so many durations of a cap an experiment is remembered. CPI²'s own rule
// may hold an innocent all the same.
const testedFactor = 5

func (s *State) noteTested(p *Params, in *policy.View, task model.TaskNum, guilty bool) {
	t := Tested{task, guilty, in.NowNsec + testedFactor*p.DurationNsec}
	for i := range s.Tested {
		if s.Tested[i].Task == task {
			s.Tested[i] = t
			return
		}
	}
	s.Tested = append(s.Tested, t)
}

func (s *State) tested(task model.TaskNum, guilty bool) bool {
	return slices.ContainsFunc(s.Tested, func(t Tested) bool { return t.Task == task && t.Guilty == guilty })
}

// tend looks after a recovered victim's caps: trials first, then feedback. It reports
// whether a bad window has its explanation there, and is no relapse.
func (s *State) tend(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim) bool {
	if p.Feedback.Enabled {
		s.keepAlive(p, in, out, inc)
	}
	if inc.Trial != nil {
		return s.trial(p, in, out, inc, v)
	}
	if inc.together(p) && v.Verdict == outlier.Good && s.startTrial(p, in, out, inc) {
		return true
	}
	return p.Feedback.Enabled && s.follow(p, in, out, inc, v)
}

// startTrial releases the member that explains least, as long as another task is held.
func (s *State) startTrial(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) bool {
	if in.NowNsec+int64(p.Groups.ProbeWindows)*in.History.PeriodNsec() > inc.WatchUntil || len(inForce(in, inc)) < 2 {
		return false
	}
	t := Trial{Round: -1, SinceNsec: in.NowNsec}
	for i := range inc.Rounds {
		for k := range inc.Rounds[i].Members {
			m := &inc.Rounds[i].Members[k]
			if m.Needed || m.Released || inc.hold(in, m.Task).State != policy.HoldInForce || inc.meddled(in, in.Window.StartNsec, m.Task) != "" {
				continue
			}
			if t.Round < 0 || m.Gain <= inc.Rounds[t.Round].Members[t.Member].Gain {
				t.Round, t.Member = i, k
			}
		}
	}
	if t.Round < 0 {
		return false
	}
	m := &inc.Rounds[t.Round].Members[t.Member]
	inc.Trial = &t
	s.letGo(out, m.Task, inc.ID, "released on trial")
	s.say(in, out, inc, model.Decision{
		Kind: model.DecideTrial, Task: m.Task, Path: m.Path,
		Reason: fmt.Sprintf("is released on trial: does %s stay well without it?", inc.VictimPath),
	})
	return true
}

// trial judges a window under a trial.
func (s *State) trial(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim) bool {
	t := inc.Trial
	if t.Round >= len(inc.Rounds) || t.Member >= len(inc.Rounds[t.Round].Members) {
		inc.Trial = nil
		return false
	}
	m := &inc.Rounds[t.Round].Members[t.Member]
	switch {
	case in.Table.Get(m.Task) == nil:
		inc.Trial, m.Released = nil, true
		m.Conclude(model.MemberGone, "the task went away")
		return true
	case in.Ledger.Held(m.Task):
		inc.Trial, m.Released = nil, true
		m.Conclude(model.MemberElsewhere, "given back on trial, and held for another victim")
		return true
	case inc.meddled(in, t.SinceNsec, m.Task) != "":
		s.voidTrial(in, out, inc, m, inc.meddled(in, t.SinceNsec, m.Task))
		return true
	case in.Window.StartNsec < t.SinceNsec-in.Window.LengthNsec/windowSlack:
		return true
	case in.History.RecentUsage(m.Task, 1) < max(m.Usage/2, m.Peak*ranShare):
		return v.Verdict == outlier.Good // it hardly ran: whatever happens is not its doing
	case v.Verdict == outlier.Outlier:
		t.Bad++
	case p.Groups.Witnesses && t.Windows < 2*p.Groups.ProbeWindows && inc.othersSuffer(in):
		// its own victim is well: it says nothing yet, though not for ever, since among many one is unwell by chance
	default:
		t.Good++
	}
	if p.Groups.Witnesses {
		if t.Windows++; risen(in, inc, max(windowsSince(in, t.SinceNsec), t.Windows)) {
			t.Bad = trialBad
		}
	}
	switch {
	case t.Bad >= trialBad:
		s.holdAgain(p, in, out, inc, m, v)
	case t.Good >= p.Groups.ProbeWindows:
		inc.Trial, m.Released = nil, true
		m.Conclude(model.MemberReleased, "given back: the victim stays well without it")
		s.noteTested(p, in, m.Task, false)
		if rest := inForce(in, inc); len(rest) == 1 {
			s.noteTested(p, in, rest[0].task, true) // it is what keeps the victim well
		}
		s.say(in, out, inc, model.Decision{
			Kind: model.DecideRelease, Task: m.Task, Path: m.Path, Facts: []model.Fact{model.FactSignal.Is(v.Signal), model.FactThreshold.Is(v.Threshold)},
			Reason: fmt.Sprintf("%s stayed well for %d windows in which it ran freely: given back", inc.VictimPath, t.Good),
		})
	default:
		change(out, inc)
	}
	return true
}

// needAlike spares the services the trials of those that go with a member that is needed: tasks of one job that were held as one.
func (inc *Incident) needAlike(in *policy.View, m *model.Member) {
	t := in.Table.Get(m.Task)
	if t == nil || t.Job == "" {
		return
	}
	members := inc.Rounds[len(inc.Rounds)-1].Members
	for i := range members {
		o := in.Table.Get(members[i].Task)
		if o != nil && o.Job == t.Job && !members[i].Released && !members[i].Needed && (members[i].Alike || m.Alike) {
			members[i].Needed = true
			members[i].Conclude(model.MemberNeeded, "needed: it goes with "+m.Path)
		}
	}
}

// holdAgain ends a trial under which the victim suffered.
func (s *State) holdAgain(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, m *model.Member, v *policy.Victim) {
	inc.Trial, m.Needed = nil, true
	m.Conclude(model.MemberNeeded, "needed: the victim suffered without it")
	if p.Groups.Witnesses {
		inc.needAlike(in, m)
	}
	s.noteTested(p, in, m.Task, true)
	reason := fmt.Sprintf("%s suffered while it was released: held again", inc.VictimPath)
	s.retake(inc, m, reason)
	out.Forgiven = append(out.Forgiven, inc.Victim)
	s.say(in, out, inc, model.Decision{Kind: model.DecideCap, Task: m.Task, Facts: append(capped(m.Cap, m.Usage), model.FactThreshold.Is(v.Threshold)), Reason: reason})
	s.settleLoose(in, inc)
}

// retake holds a member again that was released on trial, as before.
func (s *State) retake(inc *Incident, m *model.Member, reason string) {
	s.want(inc.claim(m.Task, m.Cap, m.Usage, inc.WatchUntil, reason))
	if r := inc.round(); r.Demoted {
		s.want(inc.demotion(m.Task, inc.WatchUntil, reason))
	}
}

// voidTrial ends a trial during which somebody else changed something of the member or the victim: it is held as before, neither needed nor given back, and
// may be released anew once nobody interferes.
func (s *State) voidTrial(in *policy.View, out *policy.Wishes, inc *Incident, m *model.Member, why string) {
	inc.Trial = nil
	const reason = "held again, as before the trial that says nothing"
	s.retake(inc, m, reason)
	s.say(in, out, inc, model.Decision{Kind: model.DecideVoid, Task: m.Task, Path: m.Path, Reason: "the trial says nothing: " + why})
	s.say(in, out, inc, model.Decision{Kind: model.DecideCap, Task: m.Task, Path: m.Path, Facts: capped(m.Cap, m.Usage), Reason: reason})
	s.settleLoose(in, inc)
}

// meddled says who else changed something of the victim or of some tasks since a time; "": nobody did.
func (inc *Incident) meddled(in *policy.View, sinceNsec int64, tasks ...model.TaskNum) string {
	why, _ := in.Disturbed(model.PolicyHardcap, sinceNsec, append(tasks, inc.Victim)...)
	return why
}

// disturbed reports whether windows under a hold that is verified say nothing, since somebody else changed something of the held tasks or of the victim after
// it was decided: what was done while it was on its way would pass for its effect just the same.
// After an action the hold stays, and what it does is looked at from the beginning; what stays, or an operator who took the hold away, ends the incident: the next anomaly
// begins a new one.
func (s *State) disturbed(in *policy.View, out *policy.Wishes, inc *Incident, h policy.Hold) bool {
	r := inc.round()
	why, stays := inc.interfered(in)
	if why == "" {
		return false
	}
	if r.Nudge && !r.Confirmed {
		s.account(in, r)
		s.letNudgedGo(in, out, inc, model.RoundUnjudged, why, false)
		return true
	}
	if stays || h.State == policy.HoldNone {
		s.leave(in, out, inc, why)
		return true
	}
	d := model.Decision{Kind: model.DecideVoid, Task: *r.Chosen, Path: heldNames(r), Incident: inc.ID, Reason: why + "; it is looked at from now on"}
	inc.FromNsec, inc.GoodInRow, inc.SignalSum, r.WindowsJudged, r.SignalAfter = in.NowNsec, 0, 0, 0, 0
	out.Once("void "+inc.ID, d)
	return false
}

// interfered says why nothing can be concluded from the round's hold, "": nothing speaks against it; and whether that stays so.
func (inc *Incident) interfered(in *policy.View) (why string, stays bool) {
	r := inc.round()
	if why, stays = in.Disturbed(model.PolicyHardcap, max(r.MonoNsec, inc.FromNsec), append(heldIn(r), inc.Victim)...); why != "" {
		why = "the trial says nothing: " + why
	}
	return why, stays
}

// leave ends an incident whose hold says nothing: the next anomaly begins a new one.
func (s *State) leave(in *policy.View, out *policy.Wishes, inc *Incident, why string) {
	r := inc.round()
	r.Conclude(model.RoundUnjudged, why)
	s.say(in, out, inc, model.Decision{Kind: model.DecideVoid, Task: *r.Chosen, Path: heldNames(r), Reason: why + "; given back"})
	s.end(in, out, inc, model.Dropped, why)
}
