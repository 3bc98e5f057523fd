package hardcap

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
)

// Groups of antagonists, found and given back (Params.Groups).
//
// A group comes about in three ways. Passively: a set explains the victim's ups and downs
// together (policy/antagonist, group.go); its members are held in one round, as many as the
// limits allow, and verified as one. By steps: a cap took a significant part of the distress
// away but not enough; it is kept, and the next suspect is sought beside it. By name: tasks of a suspect's own job that move as it
// does are held with it (sibling.go).
//
// A set that was held for a correlation may hold innocents. Once the victim is well each
// member is therefore released on trial, the one that explains least first, and held again
// only if the victim suffers while it runs. A window in which the released member does not
// run says nothing about it.

// sureSigmas: a change of the victim's mean that is taken for an effect is at least so many
// standard errors.
const sureSigmas = 2

// holdGroup looks for a group and asks for it. It reports whether there is one. pick is the
// single suspect that CPI²'s rule would hold, or -1: a group must contain it.
func (s *State) holdGroup(p *Params, ap *antagonist.Params, in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round, pick int) bool {
	rivals := s.candidates(ap, in, inc, pick)
	g := antagonist.GroupParams{
		MaxMembers: p.Groups.MaxMembers, Explained: p.Groups.Explained, Gain: p.Groups.Gain,
		Chance: p.Groups.Chance, Threshold: p.Groups.Threshold,
	}
	if g.Threshold == 0 {
		g.Threshold = r.Threshold
	}
	first := antagonist.NoTask
	if pick >= 0 {
		first = s.analysis.Scores[pick].Num
	}
	in.History.Group(ap, &g, inc.Victim, inc.Threshold, s.may, rivals, first, &s.group)
	if len(s.group.Members) == 0 {
		return false
	}
	s.askForGroup(p, in, out, inc, *r)
	return true
}

// candidates gathers who may be a member of a group, and returns the rivals. Who is held
// already is among them: what it explains needs no other explanation.
func (s *State) candidates(ap *antagonist.Params, in *policy.View, inc *Incident, pick int) (rivals []antagonist.Candidate) {
	s.may = s.may[:0]
	for i := range s.analysis.Scores {
		sc := &s.analysis.Scores[i]
		sus, may := s.weigh(ap, in, inc, sc, -1)
		c := antagonist.Candidate{Score: *sc, Held: sus.State == model.SuspectHeldAlready, Guilty: s.tested(sc.Num, true)}
		switch {
		case sus.Kind != model.SuspectTask:
			if sc.Usage >= leastUntouchable {
				rivals = append(rivals, c)
			}
		case c.Held, may && (i == pick || !s.tested(sc.Num, false)) && (i == pick || in.Table.Get(sc.Num).Importance != model.Critical):
			s.may = append(s.may, c)
		}
	}
	return rivals
}

// elsewhere names the victim of another incident for which somebody was held a moment ago, or
// released on trial, "" when there is none. One intervention at a time: the same hold may cure both victims,
// and two at once could not be told apart.
func (s *State) elsewhere(inc *Incident) string {
	for i := range s.Incidents {
		if o := &s.Incidents[i]; o.ID != inc.ID && (o.State == model.Holding || o.State == model.Verifying || o.Trial != nil) {
			return o.VictimPath
		}
	}
	return ""
}

// Judging reports whether a hold is looked at of somebody who had the CPU.
func (s *State) Judging() bool {
	return slices.ContainsFunc(s.Incidents, func(inc Incident) bool {
		r := inc.round()
		return (inc.State == model.Holding || inc.State == model.Verifying) && r != nil && r.ByBlame
	})
}

// Holding reports whether it is looked what came of a hold of anybody.
func (s *State) Holding() bool {
	return slices.ContainsFunc(s.Incidents, func(inc Incident) bool {
		return inc.State == model.Holding || inc.State == model.Verifying || inc.Trial != nil
	})
}

// OnTrial adds the tasks of which it is not known yet what comes of a hold, or of a step back in the last window.
func (s *State) OnTrial(v *policy.View, list []policy.OnTrial) []policy.OnTrial {
	for i := range s.Incidents {
		inc := &s.Incidents[i]
		r := inc.round()
		judged := inc.State == model.Holding || inc.State == model.Verifying || inc.Trial != nil
		loosened := inc.State == model.Recovered && inc.Loose != nil && inc.Loose.ChangedNsec > 0 && v.NowNsec-inc.Loose.ChangedNsec < v.History.PeriodNsec()
		if r == nil || r.Chosen == nil || !judged && !loosened {
			continue
		}
		for _, num := range heldIn(r) {
			list = append(list, policy.OnTrial{Task: num, Policy: model.PolicyHardcap, For: inc.Victim})
		}
	}
	return list
}

// askForGroup makes the round of a group that was found.
func (s *State) askForGroup(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, r model.Round) {
	r.GroupScore, r.Explained = s.group.Score, s.group.Explained
	beside := ""
	for _, m := range s.group.Members {
		task := in.Table.Get(m.Num)
		if m.Held {
			beside += " beside " + task.Path + " (held already)"
			continue
		}
		r.Members = append(r.Members, memberOf(in, task, &m, p.capOf(task)))
		for i := range r.Suspects {
			if r.Suspects[i].Task == m.Num {
				r.Suspects[i].Judge(model.SuspectChosenMember, "")
			}
		}
	}
	num := r.Members[0].Task
	r.Chosen, r.ChosenPath, r.Cap = &num, r.Members[0].Path, r.Members[0].Cap
	s.before(p, in, inc, &r)
	s.firstRung(p, in, inc, &r)
	inc.Rounds = append(inc.Rounds, r)
	if in.Mode == model.ModeEnforce {
		inc.State = model.Holding
		s.renewKept(p, in, out, inc)
	} else {
		inc.State, inc.ClosedNsec = model.Observed, in.NowNsec
		inc.round().Conclude(model.RoundObserved, "observed only: nothing was written")
		s.leaveInPeace(inc.Victim, in.NowNsec+p.RetryAfterNsec)
	}
	found := fmt.Sprintf("together %.0f %% of its ups and downs explained, score %.2f", 100*r.Explained, r.GroupScore)
	switch {
	case r.ByBlame:
		found = fmt.Sprintf("together they answer for %.0f %% of what %s waits for others more than usual", 100*r.GroupScore, inc.VictimPath)
	case r.Explained == 0:
		found = fmt.Sprintf("tasks of one job that move as one, score %.2f of %.2f asked for", r.GroupScore, r.Threshold)
	}
	s.say(in, out, inc, model.Decision{
		Kind: model.DecideGroup, Task: inc.Victim, Facts: append(evidence(&r, r.GroupScore), model.FactExplained.Is(r.Explained)),
		Reason: fmt.Sprintf("%s%s: %s", heldNames(&r), beside, found),
	})
	for i := range r.Members {
		m := &r.Members[i]
		limit := loosened(m.Cap, m.Peak, r.Level)
		adds := fmt.Sprintf("adds %.0f %%", 100*m.Gain)
		switch {
		case r.ByBlame:
			adds = fmt.Sprintf("had the CPU for %.0f %%", 100*m.Score)
		case m.Alike:
			adds = "moves as another member does"
		case r.Explained == 0:
			adds = "the one that scores best"
		}
		of := fmt.Sprintf("one of %d in a group, %s", len(s.group.Members), adds)
		if len(s.group.Members) == 1 {
			of = "it was found guilty a while ago"
		}
		kind, doing := does(in, &r, m.Path, limit)
		reason := fmt.Sprintf("%s; %s for the sake of %s", of, doing, inc.VictimPath)
		if in.Mode == model.ModeEnforce {
			s.ask(p, in, inc, &r, m.Task, limit, m.Usage, reason)
		}
		facts := evidence(&r, m.Score)
		if !r.Uncapped {
			facts = append(facts, capped(limit, m.Usage)...)
		}
		s.say(in, out, inc, model.Decision{Kind: kind, Task: m.Task, Facts: facts, Reason: reason})
	}
}

func (inc *Incident) claim(task model.TaskNum, limit, usage float64, expires int64, reason string) model.Claim {
	return model.Claim{
		Target: model.OfTask(task), Kind: model.ClaimCap, Value: model.Ask(model.CPUBandwidth), Cap: limit,
		Incident: inc.ID, Reason: reason, ExpiresNsec: expires, UsageAtClaim: usage,
	}
}

// standing is what the ledger says of a round's claims: of a group's together, what stands
// of it.
func standing(in *policy.View, inc *Incident, r *model.Round) policy.Hold {
	hold := inc.hold
	if r.Uncapped {
		hold = inc.demoted
	}
	if len(r.Members) == 0 {
		return hold(in, *r.Chosen)
	}
	var all policy.Hold
	gone, failed := policy.Hold{}, policy.Hold{}
	for i := range r.Members {
		h := hold(in, r.Members[i].Task)
		switch h.State {
		case policy.HoldAsked:
			return h
		case policy.HoldInForce:
			all = policy.Hold{State: policy.HoldInForce, SinceNsec: max(all.SinceNsec, h.SinceNsec)}
		case policy.HoldGone:
			gone = h
		case policy.HoldFailed:
			failed = h
			if r.Members[i].State == model.MemberUntried && h.Why != "" {
				r.Members[i].Conclude(model.MemberRefused, h.Why)
			}
		}
	}
	switch {
	case all.State == policy.HoldInForce:
		return all
	case gone.State != policy.HoldNone:
		return gone
	}
	return failed
}

// heldIn lists the tasks that a round holds or held.
func heldIn(r *model.Round) []model.TaskNum {
	if len(r.Members) == 0 {
		return []model.TaskNum{*r.Chosen}
	}
	return tasksOf(r.Members)
}

func tasksOf(members []model.Member) []model.TaskNum {
	nums := make([]model.TaskNum, len(members))
	for i := range members {
		nums[i] = members[i].Task
	}
	return nums
}

// heldNames names what a round holds: "/a", "/a and /b", "/a, /b and /c".
func heldNames(r *model.Round) string {
	var names []string
	for i := range r.Members {
		if !r.Members[i].Released {
			names = append(names, r.Members[i].Path)
		}
	}
	if len(names) == 0 {
		return r.ChosenPath
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// are is the verb that goes with heldNames.
func are(r *model.Round) string {
	if strings.Contains(heldNames(r), " and ") {
		return "are"
	}
	return "is"
}

// dropRound gives a round's claims back.
func (s *State) dropRound(out *policy.Wishes, inc *Incident, r *model.Round, why string) {
	for _, n := range heldIn(r) {
		s.letGo(out, n, inc.ID, why)
	}
}

// spent counts the rounds that led nowhere.
func (inc *Incident) spent() int {
	n := 0
	for i := range inc.Rounds {
		if r := &inc.Rounds[i]; !r.Kept && (!r.Nudge || r.Confirmed) {
			n++
		}
	}
	return n
}

// before notes how the victim fared before a hold, for those who judge its effect.
func (s *State) before(p *Params, in *policy.View, inc *Incident, r *model.Round) {
	if p.Feedback.Enabled || p.Demote.Enabled {
		r.Peak = in.History.PeakUsage(*r.Chosen)
	}
	if p.Groups.Enabled || p.Confirm.Enabled || r.ByBlame {
		r.MeanBefore = in.History.SinceOnset(inc.Victim, p.VerifyWindows, inc.Threshold)
	}
}

// keep decides on a cap under which the victim did not recover: one that took a significant
// part of its distress away is kept, and another suspect is sought. It reports whether that
// is so.
func (s *State) keep(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim) bool {
	r := inc.round()
	kept := len(heldIn(r))
	for i := range inc.Rounds {
		if inc.Rounds[i].Kept {
			kept += len(heldIn(&inc.Rounds[i]))
		}
	}
	if kept >= p.Groups.MaxMembers || r.MeanBefore <= 0 || !inc.helpedBy(r, p.Groups.HelpShare, sureSigmas, p.VerifyWindows) {
		return false
	}
	r.Kept = true
	r.Conclude(model.RoundKept, "helped, but not enough: kept")
	s.say(in, out, inc, model.Decision{
		Kind: model.DecideKept, Task: *r.Chosen, Path: heldNames(r), Facts: []model.Fact{model.FactSignal.Is(r.SignalAfter), model.FactThreshold.Is(v.Threshold)},
		Reason: fmt.Sprintf("mean %s of %s fell from %.3g to %.3g, which is not enough: kept, and the next one is sought", inc.Source, inc.VictimPath, r.MeanBefore, r.SignalAfter),
	})
	return true
}

// helpedBy asks whether the mean signal fell by a share of its excess over the spec's mean,
// and by more than noise. The spec's deviation is that of a victim in peace; noise grows
// with the level.
func (inc *Incident) helpedBy(r *model.Round, share, sigmas float64, windowsBefore int) bool {
	excess, fell := r.MeanBefore-inc.Spec.Mean, r.MeanBefore-r.SignalAfter
	if !(excess > 0) || r.WindowsJudged == 0 || windowsBefore == 0 || inc.Spec.Mean <= 0 {
		return false
	}
	noise := inc.Spec.StdDev * r.MeanBefore / inc.Spec.Mean * math.Sqrt(1/float64(windowsBefore)+1/float64(r.WindowsJudged))
	return fell >= share*excess && fell >= sigmas*noise
}

// renewKept lets caps that helped in part last as long as the one that is added to them.
func (s *State) renewKept(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) {
	for i := range inc.Rounds {
		r := &inc.Rounds[i]
		if !r.Kept {
			continue
		}
		for _, h := range holdsOf(r) {
			if inc.hold(in, h.task).State == policy.HoldInForce {
				s.want(inc.claim(h.task, h.floor, h.usage, in.NowNsec+p.DurationNsec, "it helped in part: held together with the next one"))
			}
		}
	}
}

// holdsOf lists what a round holds or held: caps at their tightest, and the usage before.
func holdsOf(r *model.Round) []holdOf {
	if r.Chosen == nil {
		return nil
	}
	if len(r.Members) == 0 {
		h := holdOf{task: *r.Chosen, path: r.ChosenPath, floor: r.Cap, peak: r.Peak}
		if i := slices.IndexFunc(r.Suspects, func(s model.Suspect) bool { return s.Task == h.task }); i >= 0 {
			h.usage = r.Suspects[i].Usage
		}
		return []holdOf{h}
	}
	var list []holdOf
	for i := range r.Members {
		m := &r.Members[i]
		list = append(list, holdOf{m.Task, m.Path, m.Cap, m.Usage, m.Peak})
	}
	return list
}

// holdOf is one held task: its tightest cap, its usage while the victim suffered, and its
// greatest usage, in CPU-sec/sec.
type holdOf struct {
	task               model.TaskNum
	path               string
	floor, usage, peak float64
}

// inForce lists what an incident holds now, of all its rounds.
func inForce(in *policy.View, inc *Incident) []holdOf {
	var list []holdOf
	for i := range inc.Rounds {
		for _, h := range holdsOf(&inc.Rounds[i]) {
			if inc.hold(in, h.task).State != policy.HoldInForce {
				continue
			}
			list = slices.DeleteFunc(list, func(o holdOf) bool { return o.task == h.task })
			list = append(list, h)
		}
	}
	return list
}
