package hardcap

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
)

// leastUntouchable is the CPU-sec/sec from which on CPU outside of all tasks, or stolen, is
// more than what counters are off that were not read at one instant, or are rounded.
const leastUntouchable = 0.05

// analyse runs at most one correlation a second (section 4.2), for the incident that
// has waited longest.
func (s *State) analyse(p *Params, in *policy.View, out *policy.Wishes) {
	if s.LastAnalysis != 0 && in.NowNsec-s.LastAnalysis < p.AnalysisEveryNsec {
		return
	}
	for i := range s.Incidents {
		inc := &s.Incidents[i]
		if inc.State != model.Searching || !inc.Fresh {
			continue
		}
		s.LastAnalysis = in.NowNsec
		s.attempt(p, in, out, inc)
		return
	}
}

// attempt analyses one incident and acts on the result.
func (s *State) attempt(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) {
	inc.Fresh = false
	ap := &p.Antagonist[inc.Source]
	in.History.Correlate(ap, inc.Victim, inc.Threshold, &s.analysis)
	r := model.Round{MonoNsec: in.NowNsec, SignalBefore: inc.LastSignal, Considered: len(s.analysis.Scores), Median: s.analysis.Median}
	w := s.waiting(p, inc)
	if why := w.ownLoad(in, inc); why != "" {
		s.searchOn(p, in, out, inc, r, why)
		return
	}
	blamed := s.blame(p, in, inc, w, &r)
	if who := others(in, inc, blamed); who != "" {
		s.say(in, out, inc, model.Decision{
			Kind: model.DecideSearch, Task: inc.Victim, Facts: []model.Fact{model.FactSignal.Is(inc.LastSignal), model.FactThreshold.Is(inc.Threshold)},
			Reason: "waits: " + who,
		})
		return
	}
	if blamed {
		s.accuse(p, in, out, inc, &r)
		return
	}
	s.judgeLack(p, in, inc, &r)
	pick := s.choose(p, ap, in, inc, &r)
	s.noteTaken(in, &r)
	if who := s.elsewhere(inc); who != "" && (p.Groups.Enabled || p.Confirm.Enabled) {
		s.say(in, out, inc, model.Decision{
			Kind: model.DecideSearch, Task: inc.Victim, Facts: []model.Fact{model.FactSignal.Is(inc.LastSignal), model.FactThreshold.Is(inc.Threshold)},
			Reason: fmt.Sprintf("waits: a suspect is on trial for the sake of %s, which may help here too", who),
		})
		return
	}
	if inc.Early && !s.suffers(in, inc) {
		if !s.known(p, in, out, inc, &r) {
			s.close(in, out, inc, model.Dropped, "who is known for guilty is held already, or did not do it")
		}
		return
	}
	if p.Groups.Enabled && s.holdGroup(p, ap, in, out, inc, &r, pick) {
		return
	}
	if p.Confirm.Enabled && p.Confirm.Witnesses && s.known(p, in, out, inc, &r) {
		return
	}
	if p.First.Enabled && s.relieve(p, in, out, inc, &r) {
		return
	}
	if p.Coded.Enabled && s.encode(p, ap, in, out, inc, &r) {
		return
	}
	if p.Confirm.Enabled && s.nudge(p, ap, in, out, inc, &r, pick) {
		return
	}
	if pick < 0 {
		s.nobody(p, in, out, inc, r)
		return
	}
	if s.holdSiblings(p, ap, in, out, inc, &r, pick) {
		return
	}
	chosen := s.analysis.Scores[pick]
	s.take(p, in, out, inc, &r, chosen, fmt.Sprintf("score %.2f of %.2f asked for", chosen.Value, r.Threshold))
}

// others says which policy is at work for the sake of who suffers by a milder means, "": none is. blamed: it is known who had the CPU that the victim waited for.
func others(in *policy.View, inc *Incident, blamed bool) string {
	switch {
	case in.ForCPU:
		return "policy remedy has somebody give way who had a CPU that a service waited for, or looks what came of that"
	case blamed:
		return ""
	case in.Remedying:
		return "it does not suffer for want of a CPU, and policy remedy takes what is milder for its sake"
	case in.Taking && inc.Source.Row().Targeted:
		return "it does not suffer for want of a CPU, and policy balm takes memory bandwidth for its sake"
	}
	return ""
}

// suffers reports whether an incident that began early is an anomaly by now.
func (s *State) suffers(in *policy.View, inc *Incident) bool {
	v := findVictim(in.Window.Victims, inc.Victim)
	return v == nil || v.Anomalous
}

// take holds one suspect, or notes that it would be held.
func (s *State) take(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round, chosen antagonist.Score, because string, more ...model.Fact) {
	task := in.Table.Get(chosen.Num)
	num := task.Num
	r.Chosen, r.ChosenPath, r.Cap = &num, task.Path, p.capOf(task)
	s.before(p, in, inc, r)
	s.firstRung(p, in, inc, r)
	inc.Rounds = append(inc.Rounds, *r)
	s.reportLeftAlone(in, out, inc, r)
	limit := loosened(r.Cap, r.Peak, r.Level)
	kind, doing := does(in, r, task.Path, limit)
	reason := fmt.Sprintf("%s; %s for the sake of %s", because, doing, inc.VictimPath)
	if in.Mode == model.ModeEnforce {
		inc.State = model.Holding
		s.renewKept(p, in, out, inc)
		s.ask(p, in, inc, r, num, limit, chosen.Usage, reason)
	} else {
		inc.State, inc.ClosedNsec = model.Observed, in.NowNsec
		inc.round().Conclude(model.RoundObserved, "observed only: nothing was written")
		s.leaveInPeace(inc.Victim, in.NowNsec+p.RetryAfterNsec)
	}
	facts := append(evidence(r, chosen.Value), more...)
	if !r.Uncapped {
		facts = append(facts, capped(limit, chosen.Usage)...)
	}
	s.say(in, out, inc, model.Decision{Kind: kind, Task: num, Facts: facts, Reason: reason})
}

// capped is what a held task may use, and, where that is known, what it used while the victim suffered: their difference is what a hold takes.
func capped(limit, usage float64) []model.Fact {
	facts := []model.Fact{model.FactCap.Is(limit)}
	if usage > 0 {
		facts = append(facts, model.FactUsage.Is(usage))
	}
	return facts
}

// evidence is what a suspect's score was and what is asked for.
func evidence(r *model.Round, score float64) []model.Fact {
	if r.ByBlame {
		facts := []model.Fact{model.FactBlame.Is(score), model.FactBlameAsked.Is(r.Threshold)}
		if r.Lost > 0 {
			facts = append(facts, model.FactLost.Is(r.Lost))
		}
		return facts
	}
	return []model.Fact{model.FactCorrelation.Is(score), model.FactAsked.Is(r.Threshold)}
}

// nobody is the case in which no suspect may be held: search on, or give up.
func (s *State) nobody(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, r model.Round) {
	if last := inc.round(); last != nil && last.Uncapped && inc.State == model.Searching && standing(in, inc, last).State == policy.HoldInForce {
		switch other := leftAlone(in, last); {
		case s.stepsAside(p, inc):
			s.keepDemoted(in, out, inc)
		case other != "":
			s.searchOn(p, in, out, inc, r, other)
			return
		default:
			s.capToo(p, in, out, inc, fmt.Sprintf("%s suffers although %s gives way to everybody, and nobody else stands out", inc.VictimPath, heldNames(last)))
			return
		}
	}
	why := "no suspect reaches the correlation that is asked for"
	if r.ByBlame {
		why = "nobody had the CPU for as much of the victim's waiting as is asked for"
	}
	if len(r.Suspects) > 0 {
		top := r.Suspects[0]
		why = fmt.Sprintf("nobody may be held: the top suspect %s scores %.2f (%.2f asked for): %s", top.Path, top.Score, r.Threshold, top.Verdict)
	}
	s.searchOn(p, in, out, inc, r, why)
}

// leftAlone says whom of those whom a round holds nothing more may be begun with just now, and why; "": nobody.
func leftAlone(in *policy.View, r *model.Round) string {
	for _, h := range holdsOf(r) {
		if why := in.LeaveAlone(h.task, model.PolicyHardcap); why != "" {
			return h.path + " gives way to everybody already, and: " + why
		}
	}
	return ""
}

// searchOn ends a search in which nobody may be held, or goes on with it at the next bad window.
func (s *State) searchOn(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, r model.Round, why string) {
	if inc.SearchLeft--; inc.SearchLeft > 0 || s.leaveDemoted(p, in, inc) {
		s.say(in, out, inc, model.Decision{Kind: model.DecideSearch, Task: inc.Victim, Facts: []model.Fact{model.FactSignal.Is(inc.LastSignal), model.FactThreshold.Is(inc.Threshold)}, Reason: why})
		return
	}
	r.Conclude(model.RoundNobody, "nobody was held")
	inc.Rounds = append(inc.Rounds, r)
	s.reportLeftAlone(in, out, inc, &r)
	s.cannotFix(p, in, out, inc, why)
}

// choose fills in the round's suspects and returns the index of the one to hold, or -1.
func (s *State) choose(p *Params, ap *antagonist.Params, in *policy.View, inc *Incident, r *model.Round) int {
	a := &s.analysis
	needed, byMargin := ap.Needed(a)
	if r.Threshold = needed; ap.Steady > 0 {
		r.Steady = a.Steady
	}
	if byMargin {
		r.Margin = ap.Margin
	}
	choice, beyond := antagonist.NewChoice(), s.beyondReach(needed)
	for i := range a.Scores {
		sc := &a.Scores[i]
		sus, may := s.weigh(ap, in, inc, sc, needed)
		may = may && s.besideOthers(in, inc, sc, &sus, r.ByBlame, beyond)
		if sus.State == model.SuspectHeldAlready {
			s.complain(inc, sc.Num)
		}
		choice.Take(r, i, sus, may, may && in.Table.Get(sc.Num).Importance == model.Critical)
	}
	return choice.Made(r)
}

// nobodyBeyond is less than any score.
const nobodyBeyond = -2

// beyondReach is the greatest score of CPU outside of all tasks, or stolen, that reaches what is asked for; nobodyBeyond where none does.
func (s *State) beyondReach(needed float64) float64 {
	most := float64(nobodyBeyond)
	for i := range s.analysis.Scores {
		sc := &s.analysis.Scores[i]
		if (sc.Num == model.NumUnmanaged || sc.Num == model.NumSteal) && sc.Value >= needed && sc.Usage >= leastUntouchable {
			most = max(most, sc.Value)
		}
	}
	return most
}

// besideOthers reports whether to hold a suspect makes sense beside those whom nobody can hold, the greatest of whom scores beyond, and
// says in sus why not. By blame, whose scores are parts of one whole, a suspect must answer for half as much as who cannot be held.
func (s *State) besideOthers(in *policy.View, inc *Incident, sc *antagonist.Score, sus *model.Suspect, byBlame bool, beyond float64) bool {
	switch {
	case byBlame && sc.Value < beyond/2, !byBlame && sc.Value < beyond-antagonist.ClearlyBetter:
		sus.Judge(model.SuspectOutdone, "")
	case byBlame && beyond > nobodyBeyond && s.alibi(in, inc.Victim, sc.Num):
		sus.Judge(model.SuspectAlibi, "")
	default:
		return true
	}
	return false
}

// weigh says what stands for or against one suspect; may means that it can be held.
func (s *State) weigh(ap *antagonist.Params, in *policy.View, inc *Incident, sc *antagonist.Score, needed float64) (model.Suspect, bool) {
	sus := model.Suspect{Task: sc.Num, Path: in.Table.Name(sc.Num), Score: sc.Value, Usage: sc.Usage}
	switch sc.Num {
	case model.NumUnmanaged:
		sus.Kind = model.SuspectUnmanaged
	case model.NumSteal:
		sus.Kind = model.SuspectSteal
	}
	task := in.Table.Get(sc.Num)
	if task != nil {
		sus.Job, sus.Class = task.Job, task.Class
	}
	switch {
	case sc.Value < needed:
		sus.Judge(model.SuspectBelow, "")
	case sc.Usage < ap.MinSuspectCPU || sus.Kind != model.SuspectTask && sc.Usage < leastUntouchable:
		sus.Judge(model.SuspectIdle, "")
	case sus.Kind == model.SuspectUnmanaged:
		sus.Judge(model.SuspectLeftAlone, "no task of ours used this CPU")
	case sus.Kind == model.SuspectSteal:
		sus.Judge(model.SuspectLeftAlone, "the hypervisor took this time")
	case task == nil:
		sus.Judge(model.SuspectGone, "")
	case task.Class != model.BE:
		sus.Judge(model.SuspectLeftAlone, task.Class.String()+" is never held")
	case slices.Contains(inc.Excluded, sc.Num):
		sus.Judge(model.SuspectTried, "")
	case in.Ledger.Exempt(sc.Num) != "":
		sus.Judge(model.SuspectLeftAlone, in.Ledger.Exempt(sc.Num))
	case in.Ledger.Held(sc.Num):
		sus.Judge(model.SuspectHeldAlready, "")
	case in.LeaveAlone(sc.Num, model.PolicyHardcap) != "":
		sus.Judge(model.SuspectLeftAlone, in.LeaveAlone(sc.Num, model.PolicyHardcap))
	default:
		return sus, true
	}
	return sus, false
}

// reportLeftAlone records a top suspect that may not be held, and what else nobody can hold.
func (s *State) reportLeftAlone(in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round) {
	if len(r.Suspects) == 0 {
		return
	}
	for i := range r.Suspects {
		of := &r.Suspects[i]
		// By blame scores are parts of one whole: what nobody can hold explains the rest.
		if of.Score < r.Threshold || i > 0 && (!r.ByBlame || of.Kind == model.SuspectTask) || r.Chosen != nil && of.Task == *r.Chosen {
			continue
		}
		s.say(in, out, inc, model.Decision{
			Kind: model.DecideLeftAlone, Task: of.Task, Path: of.Path, Facts: append(evidence(r, of.Score), model.FactUsage.Is(of.Usage)),
			Reason: of.Verdict,
		})
	}
}

// capOf returns the cap for a task in CPU-sec/sec (section 5).
func (p *Params) capOf(t *model.Task) float64 {
	if t.Importance == model.BestEffort {
		return p.QuotaBestEffort
	}
	return p.Quota
}
