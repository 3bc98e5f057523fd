package hardcap

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Blame is evidence by who had the CPU while the victim's threads waited for it. Where the
// signal is time spent waiting and the machine can tell who ran meanwhile, it takes the place
// of correlation, which needs contrast that a steady neighbour never gives, and which a
// bystander with the antagonist's rhythm has as well.
//
// A suspect's score is its share of the victim's waiting for others in bad windows, beyond
// what it had in good ones; and where all CPUs are in use, in equal parts, its share of what all use
// beyond that (room.go). Scores add up to 1, so that a margin over other suspects means
// nothing here. Where no suspect has most of the waiting, those that have it together are held
// together; caps that help in part are kept, and members of a set are given back on trial (group.go).
//
// Late answers may come of waiting or of something else. They do of waiting where the victim waits for
// others at least twice as much as in good windows, and some wait lasted at least half of what the answers
// took, or half the window: then blame decides, else correlation.
type Blame struct {
	Enabled bool    `json:"enabled"`
	Share   float64 `json:"share"`   // asked for of a suspect's score
	Windows int     `json:"windows"` // windows with evidence that are remembered of a victim
	Bad     int     `json:"bad"`     // of them bad, before blame counts
	// Lasting: a suspect's score is the lesser of its share with and without the bad window in which it is
	// charged most (a jackknife), so that no single window makes a culprit: batch work comes in
	// bursts of less than a window, and three windows make an incident. Where nobody who can be held had
	// most of it, two windows are left out: what little the tasks had is then mostly chance.
	Lasting bool `json:"lasting,omitempty"`
	// Sigmas: where the victim waits longer than in good windows by fewer standard errors, nobody answers for it (scatter.go); 0: somebody does for any rise.
	Sigmas float64 `json:"sigmas,omitempty"`
	// EachWait: where answers are late, bad windows are compared with good ones for as many waits (side.forAsMany).
	EachWait bool `json:"each_wait,omitempty"`
}

// Rows describes the parameters that the configuration sets.
func (b *Blame) Rows() []model.Param {
	return []model.Param{
		{Key: "enabled", At: &b.Enabled, Soak: [2]float64{0.6, 0.4}, Why: "beyond CPI²: who ran while the victim waited, where the machine can tell"},
		{Key: "share", At: &b.Share, Least: 0.01, Most: 1, Unit: "a share", Why: "of the victim's waiting for others that a suspect must be charged with"},
		{Key: "windows", At: &b.Windows, Least: 2, Most: 600, Soak: [2]float64{2, 30}, Unit: "windows", Why: "windows that are remembered of a victim"},
		{Key: "bad_windows", At: &b.Bad, Least: 1, Most: recentBad, Soak: [2]float64{1, 5}, Unit: "windows, at most windows", Why: "bad ones among them before blame counts"},
		{Key: "sigmas", At: &b.Sigmas, Most: 100, Soak: [2]float64{0, 6}, Unit: "standard errors", Why: "by which the victim must wait longer than in good windows, or nobody answers for it; 0: any rise counts"},
		{Key: "each_wait", At: &b.EachWait, Why: "where answers are late, what is usual is told for as many waits: a service that waits all the time waits no longer a second, but longer each time"},
		{Key: "lasting", At: &b.Lasting, Why: "no single window makes a culprit: it must reach the share without its worst one too"},
	}
}

// Charged is what one suspect, or all that nobody can hold, is charged with.
type Charged struct {
	Num  model.TaskNum `json:"num"`
	Nsec float64       `json:"ns"` // a second
}

// Waited is how one victim waited for others in one window.
type Waited struct {
	AtNsec  int64     `json:"at_nsec"` // when it ended
	Bad     bool      `json:"bad"`
	Charged []Charged `json:"charged"` // ordered by Num
	// OwnNsec is for how long, a second, its threads waited for each other.
	OwnNsec float64 `json:"own_ns,omitempty"`
	// Lost is the share of its waiting of which nobody knows (model.WaitLoss).
	Lost float64 `json:"lost,omitempty"`
	// Waits is how many waits Charged is of, a second; told where bad windows are compared for as many waits.
	Waits float64 `json:"waits,omitempty"`
}

// Waiter is a victim with its latest windows, oldest first.
type Waiter struct {
	Num     model.TaskNum `json:"num"`
	Windows []Waited      `json:"windows"`
	// LeftOut is when those ended that lost too much to say anything, since the oldest of the others.
	LeftOut []int64 `json:"left_out,omitempty"`
}

// remember notes the window that closed, for each victim whose waiting was measured.
func (s *State) remember(p *Params, in *policy.View) {
	s.Waiters = slices.DeleteFunc(s.Waiters, func(w Waiter) bool { return in.Table.Get(w.Num) == nil })
	if !p.Blame.Enabled || in.Window.LengthNsec <= 0 {
		return
	}
	for i := range in.Window.Waiting {
		w := &in.Window.Waiting[i]
		v := findVictim(in.Window.Victims, w.Num)
		if of := s.waiter(w.Num); of != nil && !w.Judged() {
			of.leaveOut(p, in.NowNsec)
			continue
		}
		if v == nil || !w.Judged() || !blamed(v.Source) || !v.Verdict.Evidence() {
			continue
		}
		of := s.waiter(w.Num)
		if of == nil {
			s.Waiters = append(s.Waiters, Waiter{Num: w.Num})
			of = &s.Waiters[len(s.Waiters)-1]
		}
		if n := len(of.Windows) - p.Blame.Windows + 1; n > 0 {
			of.Windows = slices.Delete(of.Windows, 0, n)
		}
		now := Waited{AtNsec: in.NowNsec, Bad: v.Verdict == outlier.Outlier, Lost: w.LostShare()}
		if !now.Bad || !v.Source.Row().Targeted || float64(w.LongestNsec) >= min(v.Signal*1e6, float64(in.Window.LengthNsec))/2 {
			seconds := float64(in.Window.LengthNsec) / 1e9
			now.Charged, now.OwnNsec = charged(w, seconds), float64(w.Own())/seconds
			if p.Blame.EachWait && v.Source.Row().Targeted {
				now.Waits = float64(w.Waits) / seconds
			}
		}
		of.Windows = append(of.Windows, now)
	}
}

// leaveOut notes a window that lost too much.
func (w *Waiter) leaveOut(p *Params, at int64) {
	w.LeftOut = slices.DeleteFunc(append(w.LeftOut, at), func(t int64) bool { return len(w.Windows) > 0 && t < w.Windows[0].AtNsec })
	w.LeftOut = w.LeftOut[max(0, len(w.LeftOut)-p.Blame.Windows):]
}

// blamed reports whether harm by a signal may be waiting.
func blamed(src model.Source) bool { return src.Row().Waits || src.Row().Targeted }

func (s *State) waiter(victim model.TaskNum) *Waiter {
	i := slices.IndexFunc(s.Waiters, func(w Waiter) bool { return w.Num == victim })
	if i < 0 {
		return nil
	}
	return &s.Waiters[i]
}

// charged sums up what each suspect is charged with.
func charged(w *model.Waiting, seconds float64) []Charged {
	var list []Charged
	for i := range w.Shares {
		x := &w.Shares[i]
		num, suspect := x.Suspect()
		if !suspect || !x.Foreign(w.Num) {
			continue
		}
		list = add(list, num, float64(x.Nsec)/seconds)
	}
	return list
}

func add(list []Charged, num model.TaskNum, nsec float64) []Charged {
	i, ok := find(list, num)
	if !ok {
		list = slices.Insert(list, i, Charged{Num: num})
	}
	list[i].Nsec += nsec
	return list
}

// recentBad is how many of the latest bad windows count: who hurt the victim before them may
// have stopped since.
const recentBad = 5

// side is what suspects are charged with in some windows, and when those ended.
type side struct {
	charged []Charged
	own     float64 // for how long its threads waited for each other
	at      []int64
	lost    float64 // the largest share that one of them lost
	squares float64 // sum over windows, of the square of all that was waited for others in one
	waits   float64 // how many waits a second, where that is told
}

func (s *side) add(of *Waited) {
	s.at = append(s.at, of.AtNsec)
	s.own += of.OwnNsec
	s.waits += of.Waits
	s.lost = max(s.lost, of.Lost)
	all := 0.0
	for _, c := range of.Charged {
		s.charged = add(s.charged, c.Num, c.Nsec)
		all += c.Nsec
	}
	s.squares += all * all
}

// mean leaves of the sums the means, in nanoseconds a second.
func (s *side) mean() *side {
	for i := range s.charged {
		s.charged[i].Nsec /= float64(len(s.at))
	}
	s.own /= max(1, float64(len(s.at)))
	s.waits /= max(1, float64(len(s.at)))
	return s
}

// forAsMany is what good windows would have had with as few waits as bad ones had. A thread that asks again once it was answered waits
// all the time beside whoever has its CPU, a second in each second, whether each wait lasts 15 ms, with which the target is met, or 50.
func (s *side) forAsMany(bad *side) *side {
	if bad.waits <= 0 || bad.waits >= s.waits {
		return s
	}
	f, few := bad.waits/s.waits, *s
	few.charged = slices.Clone(s.charged)
	for i := range few.charged {
		few.charged[i].Nsec *= f
	}
	few.own, few.squares = s.own*f, s.squares*f*f
	return &few
}

// good sums up all good windows of a victim.
func (w *Waiter) good() *side {
	s := &side{}
	for i := range slices.Backward(w.Windows) {
		if of := &w.Windows[i]; !of.Bad {
			s.add(of)
		}
	}
	return s.mean()
}

// bad sums up its latest bad windows but for those at skip.
func (w *Waiter) bad(skip ...int) *side {
	s, seen := &side{}, 0
	for i := range slices.Backward(w.Windows) {
		of := &w.Windows[i]
		if !of.Bad {
			continue
		}
		if seen++; seen > recentBad {
			break
		}
		if !slices.Contains(skip, i) {
			s.add(of)
		}
	}
	return s.mean()
}

// excess leaves of what suspects are charged with in bad windows what goes beyond good ones, and adds up:
// the excess, and all that was waited before.
func excess(bad, good []Charged) (total, waited float64) {
	for i := range bad {
		c := &bad[i]
		waited += c.Nsec
		if k, ok := find(good, c.Num); ok {
			c.Nsec = max(0, c.Nsec-good[k].Nsec)
		}
		total += c.Nsec
	}
	return total, waited
}

func find(list []Charged, num model.TaskNum) (int, bool) {
	return slices.BinarySearchFunc(list, num, func(c Charged, n model.TaskNum) int { return cmp.Compare(c.Num, n) })
}

// worst returns the so many bad windows in which a suspect is charged most.
func (w *Waiter) worst(num model.TaskNum, many int) []int {
	type charge struct {
		at   int
		nsec float64
	}
	list := make([]charge, 0, recentBad)
	for i := range slices.Backward(w.Windows) {
		if of := &w.Windows[i]; of.Bad && len(list) < recentBad {
			c := charge{at: i}
			if k, ok := find(of.Charged, num); ok {
				c.nsec = of.Charged[k].Nsec
			}
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b charge) int { return cmp.Compare(b.nsec, a.nsec) })
	skip := make([]int, 0, recentBad)
	for _, c := range list[:min(many, len(list))] {
		skip = append(skip, c.at)
	}
	return skip
}

// Answer is what one suspect answers for: shares of what the victim waited for others more than usual.
type Answer struct {
	Num   model.TaskNum
	Share float64 // in all
	Ran   float64 // it had the CPU
	Room  float64 // of what all used more than usual (room.go)
	// Low and High are the least and the greatest share with one bad window left out, whichever.
	Low, High float64
}

// shareOut says who answers for what the victim waited for others more than usual in some bad windows, of which
// only the excess is left.
func shareOut(bad, good *side, room *room) (list []Answer, total, waited float64) {
	total, waited = excess(bad.charged, good.charged)
	if total <= 0 {
		return nil, total, waited
	}
	of := func(num model.TaskNum) *Answer {
		i, ok := slices.BinarySearchFunc(list, num, func(a Answer, n model.TaskNum) int { return cmp.Compare(a.Num, n) })
		if !ok {
			list = slices.Insert(list, i, Answer{Num: num})
		}
		return &list[i]
	}
	for _, c := range bad.charged {
		of(c.Num).Ran = c.Nsec / total
	}
	took, weight := room.taken(bad.at)
	for _, t := range took {
		of(t.num).Room = t.share
	}
	for i := range list {
		list[i].Share = min((1-weight)*list[i].Ran+weight*list[i].Room, mostByRoom*list[i].Ran)
	}
	return list, total, waited
}

// spread fills in between what the shares lie when each of the latest bad windows is left out in turn (a jackknife).
func (w *Waiter) spread(answers []Answer, good *side, room *room) {
	for i := range answers {
		answers[i].Low, answers[i].High = answers[i].Share, answers[i].Share
	}
	seen := 0
	for i := range slices.Backward(w.Windows) {
		if !w.Windows[i].Bad {
			continue
		}
		if seen++; seen > recentBad {
			return
		}
		rest, total, _ := shareOut(w.bad(i), good, room)
		if total <= 0 {
			continue // the only one, or all others are as usual
		}
		for k := range answers {
			a := &answers[k]
			x := answerOf(rest, a.Num).Share
			a.Low, a.High = min(a.Low, x), max(a.High, x)
		}
	}
}

func (s *State) answer(num model.TaskNum) Answer { return answerOf(s.answers, num) }

func answerOf(list []Answer, num model.TaskNum) (a Answer) {
	if i := slices.IndexFunc(list, func(a Answer) bool { return a.Num == num }); i >= 0 {
		a = list[i]
	}
	return a
}

// untouchable is the share that is nobody's who can be held.
func untouchable(in *policy.View, list []Answer) (share float64) {
	for i := range list {
		if t := in.Table.Get(list[i].Num); t == nil || t.Class != model.BE {
			share += list[i].Share
		}
	}
	return share
}

// waiting is how a victim waited, in its latest bad windows and in all good ones.
type waiting struct {
	of        *Waiter
	bad, good *side
}

// waiting sums it up for an analysis; nil where the harm cannot be waiting, or none was measured.
func (s *State) waiting(p *Params, inc *Incident) *waiting {
	of := s.waiter(inc.Victim)
	if !p.Blame.Enabled || !blamed(inc.Source) || of == nil {
		return nil
	}
	bad := of.bad()
	return &waiting{of, bad, of.good().forAsMany(bad)}
}

// blame replaces the scores of an analysis by what suspects are charged with, and uses up what it is given. It reports
// whether there is enough to go by. The correlations that it replaces are kept in s.correlated.
func (s *State) blame(p *Params, in *policy.View, inc *Incident, w *waiting, r *model.Round) bool {
	s.correlated = s.correlated[:0]
	if w == nil || len(w.bad.at) < min(p.Blame.Bad, recentBad) {
		return false
	}
	of, bad, good, usual := w.of, w.bad, w.good, 0.0
	n := len(bad.at)
	for _, c := range good.charged {
		usual += c.Nsec
	}
	room := roomOf(in, of.Num, good.at)
	answers, total, waited := shareOut(bad, good, room)
	if total <= 0 || inc.Source.Row().Targeted && total < usual {
		return false
	}
	r.ByBlame, r.WaitedNsec, r.UsualNsec = true, waited, usual
	r.Lost, r.LeftOut = bad.lost, len(of.LeftOut)
	s.correlated = append(s.correlated, s.analysis.Scores...)
	s.analysis.Scores, s.analysis.Median, s.analysis.Steady = s.analysis.Scores[:0], 0, 0
	without := 1
	if untouchable(in, answers) > 0.5 {
		without = 2
	}
	of.spread(answers, good, room)
	s.answers = answers
	remains := inc.remains(waited - usual)
	if r.RiseErrors, r.ByChance = byChance(p.Blame.Sigmas, waited, usual, bad, good); r.ByChance {
		remains = 0
	}
	for i := range answers {
		a := &answers[i]
		a.Share, a.Low, a.High = a.Share*remains, a.Low*remains, a.High*remains
		score := a.Share
		if p.Blame.Lasting && n > 2 {
			rest, _, _ := shareOut(of.bad(of.worst(a.Num, without)...), good, room)
			score = min(score, remains*answerOf(rest, a.Num).Share)
		}
		s.analysis.Scores = append(s.analysis.Scores, antagonist.Score{Num: a.Num, Value: score, Usage: in.History.RecentUsage(a.Num, n)})
	}
	slices.SortStableFunc(s.analysis.Scores, func(a, b antagonist.Score) int { return cmp.Compare(b.Value, a.Value) })
	return true
}

// remains is how much of the harm that an incident is about is left, where something is held that helped: who
// answers for a fifth of the little that is left answers for less of it, and is not sought.
func (inc *Incident) remains(excess float64) float64 {
	helped, most := false, excess
	for i := range inc.Rounds {
		r := &inc.Rounds[i]
		helped = helped || r.Kept || r.State == model.RoundHelped
		if r.ByBlame {
			most = max(most, r.WaitedNsec-r.UsualNsec)
		}
	}
	if !helped || most <= 0 {
		return 1
	}
	return max(0, excess) / most
}

// most is the share of what the victim waits for others that a hold should take away: with one
// suspect if it has as much, else with several together. To hold one of four that are alike shows
// nothing: the CPUs that it leaves the other three take.
const most = 0.5

// alike: a suspect is held together with others when it is charged with so much of what the first of
// all is, also of one that nobody can hold, and to hold it makes sense beside those. A bystander, too, has its share where the CPUs are full:
// with 0.5 some were held in six of 200 runs on seeds 1 to 20 (TestWaitTable in twin/scenario). And it took at least half
// as much of the room, where that says something.
const alike = 0.75

// divided gathers the suspects among whom the harm is divided, the first one first, also when some of them have most
// of it: who is left of those that are alike takes what the others leave. Each has at least half of the share that is asked for of one.
func (s *State) divided(p *Params, in *policy.View, inc *Incident) (list []antagonist.GroupMember, sum float64) {
	if len(s.analysis.Scores) == 0 {
		return nil, 0
	}
	first, beyond := s.answer(s.analysis.Scores[0].Num), s.beyondReach(p.Blame.Share)
	by, least := antagonist.Params{}, max(p.Blame.Share/2, alike*s.analysis.Scores[0].Value)
	for i := range s.analysis.Scores {
		sc := &s.analysis.Scores[i]
		if len(list) >= p.Groups.MaxMembers {
			break
		}
		sus, may := s.weigh(&by, in, inc, sc, least)
		if sus.State == model.SuspectHeldAlready && inc.hold(in, sc.Num).State == policy.HoldInForce {
			sum += sc.Value
		}
		if !may || !s.besideOthers(in, inc, sc, &sus, true, beyond) || s.answer(sc.Num).Room < first.Room/2 || s.tested(sc.Num, false) || in.Table.Get(sc.Num).Importance == model.Critical {
			continue
		}
		sum += sc.Value
		list = append(list, antagonist.GroupMember{Num: sc.Num, Score: sc.Value, Usage: sc.Usage, Gain: sc.Value})
	}
	return list, sum
}

// together says whether caps of the incident are kept, added to and given back on trial, as those of
// groups: harm that is counted by whom can be divided.
func (inc *Incident) together(p *Params) bool {
	r := inc.round()
	return p.Groups.Enabled || r != nil && r.ByBlame
}

// accuse is the round of an analysis that goes by blame: each suspect with its share, and its
// correlation beside it.
func (s *State) accuse(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round) {
	by := antagonist.Params{Threshold: p.Blame.Share}
	r.Median, r.Considered = 0, len(s.analysis.Scores)
	pick := s.choose(p, &by, in, inc, r)
	for i := range r.Suspects {
		sus := &r.Suspects[i]
		a := s.answer(sus.Task)
		sus.Ran, sus.Room, sus.Low, sus.High = a.Ran, a.Room, a.Low, a.High
		if k := slices.IndexFunc(s.correlated, func(c antagonist.Score) bool { return c.Num == sus.Task }); k >= 0 {
			sus.Correlation = s.correlated[k].Value
		}
	}
	if pick < 0 || s.analysis.Scores[pick].Value < most {
		if list, sum := s.divided(p, in, inc); len(list) > 1 && sum >= most {
			s.group.Members, s.group.Score, s.group.Explained = append(s.group.Members[:0], list...), sum, sum
			s.askForGroup(p, in, out, inc, *r)
			s.reportLeftAlone(in, out, inc, inc.round())
			return
		}
	}
	if pick < 0 {
		s.nobody(p, in, out, inc, *r)
		return
	}
	chosen := s.analysis.Scores[pick]
	s.take(p, in, out, inc, r, chosen, fmt.Sprintf("%s (%.0f %% asked for)", s.answer(chosen.Num).why(chosen.Value, inc.VictimPath), 100*p.Blame.Share))
}

// why says what a suspect answers for.
func (a Answer) why(score float64, victim string) string {
	if a.Room == 0 {
		return fmt.Sprintf("had the CPU for %.0f %% of what %s waits for others more than usual", 100*score, victim)
	}
	return fmt.Sprintf("answers for %.0f %% of what %s waits for others more than usual: had the CPU for %.0f %% of it, and used %.0f %% of what all use more than usual",
		100*score, victim, 100*a.Ran, 100*a.Room)
}
