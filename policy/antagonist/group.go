package antagonist

import (
	"cmp"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// Groups: several tasks that hurt a victim together (the admitted limit of section 4.2: "a
// set of tasks that took turns filling the cache").
//
// Why not CPI²'s score. A suspect's score is the mean of what each window earns,
// weighted with its usage. The score of a summed usage is therefore the mean of the
// members' scores, weighted with their usage: it never exceeds the best member's. No set
// can pass a threshold that each of its members misses, however it is chosen. What tells a
// group from its members is how much of the victim's ups and downs is left over when the
// others are accounted for, and that is a regression:
//
//	signal_i = a + sum over members of b_s * usage_s,i,  b_s >= 0: usage never heals
//
// chosen greedily, the suspect next that has the highest correlation with what the chosen
// ones leave unexplained. Members of a set that takes turns then each explain their own
// turns; members that hurt only together each explain a part; a steady innocent explains
// nothing, because what does not vary cannot. A steady culprit is not found either: no
// passive method can, and active confirmation is the answer.
//
// Chance. With ten windows and forty suspects the luckiest innocent correlates at 0.7.
// Each member's correlation r must therefore be one that the luckiest of all K candidates
// reaches with probability Chance at most (Fisher's transform, one-sided, divided by K):
//
//	atanh(r) * sqrt(n - k - 3) >= z(1 - Chance / K),  k members chosen before
//
// n is not the number of windows: windows of a second inside a burst of eight are one
// piece of evidence, not eight. With autocorrelations p, q of the two series from one
// window to the next, n = windows * (1 - p q) / (1 + p q) (Bartlett). A task that starts when
// the distress begins and never pauses is thus one coincidence, however long it lasts.
//
// Then the set as a whole: it must explain a share of the victim's variance (Explained),
// each member must add a share (Gain) also when it is taken out of the final set, and its
// pressure, the sum above with each member's usage counted from its least, must reach a
// correlation by CPI²'s own formula (Threshold). The threshold may be lower than a
// single suspect's, since it is no longer the only evidence.

// GroupParams are the parameters of the search for groups.
type GroupParams struct {
	MaxMembers int
	Explained  float64 // least share of the victim's variance
	Gain       float64 // least share of it that each member adds
	Chance     float64 // of the luckiest innocent
	Threshold  float64 // correlation of the group's pressure
}

// alike: two usages that correlate so well cannot be told apart by any statistic.
const alike = 0.95

// degenerate: below this share of its own variance a usage is a sum of others'.
const degenerate = 1e-9

// Candidate is a suspect that may be a member, or a rival.
type Candidate struct {
	Score
	// Held: it is held already. It may explain the victim, so that others need not.
	Held bool
	// Guilty: an experiment has shown it. It may be a group by itself.
	Guilty bool
}

// GroupMember is one task of a group.
type GroupMember struct {
	Num   model.TaskNum
	Score float64 // its own correlation
	Usage float64 // mean CPU-sec/sec in the bad windows
	Gain  float64 // share of the victim's variance that is lost without it
	Held  bool    // already
	// Alike: it moves as another member does, and cannot be told from it.
	Alike bool
}

// Group is the outcome of a search, the weightiest member first. No members: none.
type Group struct {
	Members   []GroupMember
	Explained float64 // share of the victim's variance
	Score     float64 // correlation of the pressure

	y    []float64 // what is left unexplained of the signal
	all  []float64 // the signal, centred
	w    []float64 // what one unit of usage earns in each window
	cols []column
	sst  float64
	n    int
}

// column is one candidate in the windows that count, oldest first.
type column struct {
	score  Score
	held   bool
	guilty bool
	usage  []float64
	left   []float64 // what the chosen ones leave of it, centred
	size   float64   // sum of squares of the usage, centred
	n      int       // windows since it first ran
	chosen bool
	barred bool
}

// Group looks for a group among the candidates, which are scores of one analysis of this
// victim. A candidate with the number first is a member whatever the statistic says of it.
// rivals are suspects that nobody can hold: one that explains as much as the group does by
// itself voids it. out is reused.
func (h *History) Group(p *Params, g *GroupParams, victim model.TaskNum, threshold float64, candidates, rivals []Candidate, first model.TaskNum, out *Group) {
	out.Members, out.Explained, out.Score, out.n, out.sst = out.Members[:0], 0, 0, 0, 0
	vi, ok := h.find(victim)
	if !ok || len(candidates) == 0 || g.MaxMembers < 2 {
		return
	}
	windows := h.evidence(p, h.Rows[vi].Signal, threshold, out)
	if out.n < minGroupWindows || out.sst <= 0 || bouts(out.w) < minBouts {
		return
	}
	h.columns(windows, candidates, out)
	set := out.forward(g, first)
	set = out.backward(g, set, first)
	all, like := out.addAlike(g, set, first)
	if len(all) == 0 || (len(all) == 1 && !out.cols[all[0]].guilty) {
		return
	}
	out.judge(g, set, all, like)
	news := slices.ContainsFunc(out.Members, func(m GroupMember) bool { return !m.Held })
	if !news || h.rivalled(g, windows, rivals, out) {
		out.Members = out.Members[:0]
	}
}

// NoTask stands for no first member: pseudo-suspects are no candidates.
const NoTask = model.NumSteal

// minGroupWindows: below it Fisher's transform has no degrees of freedom for two members.
const minGroupWindows = 6

// minBouts is how often the victim must have begun to suffer: whoever starts at the time of
// a single onset explains it perfectly, and with several to choose from somebody does.
const minBouts = 2

// bouts counts how often the signal went from good to bad.
func bouts(w []float64) int {
	n := 0
	for i := range w {
		if w[i] > 0 && (i == 0 || w[i-1] <= 0) {
			n++
		}
	}
	return n
}

// evidence gathers the windows that count in order of time: the centred signal and what
// usage earns.
func (h *History) evidence(p *Params, signal []float64, threshold float64, out *Group) []int {
	t := max(0, threshold-p.Offset)
	out.y, out.w = out.y[:0], out.w[:0]
	windows := make([]int, 0, h.Filled)
	mean := 0.0
	for j := range h.Filled {
		i := (h.Next - h.Filled + j + h.Cap) % h.Cap
		if signal[i] == NoEvidence {
			continue
		}
		x := max(0, signal[i]-p.Offset)
		if p.Bound > 0 {
			x = min(x, p.Bound*t)
		}
		windows = append(windows, i)
		out.y, out.w = append(out.y, x), append(out.w, earns(x, t))
		mean += x
	}
	out.n = len(windows)
	if out.n == 0 {
		return windows
	}
	mean /= float64(out.n)
	for i := range out.y {
		out.y[i] -= mean
	}
	out.all = append(out.all[:0], out.y...)
	out.sst = dot(out.y, out.y)
	return windows
}

// earns is what one unit of usage earns in a window with signal x (section 4.2).
func earns(x, t float64) float64 {
	switch {
	case x > t:
		return 1 - t/x
	case x < t:
		return x/t - 1
	}
	return 0
}

// columns lays out the candidates' usage in the windows that count.
func (h *History) columns(windows []int, candidates []Candidate, out *Group) {
	out.cols = out.cols[:0]
	for i := range candidates {
		if c, ok := h.newColumn(&candidates[i], windows); ok {
			out.cols = append(out.cols, c)
		}
	}
}

// newColumn lays out one candidate. Windows before it first ran get its mean usage, which
// says nothing: that somebody came when the distress began is one coincidence, but would
// count as often as there are windows before it.
func (h *History) newColumn(cand *Candidate, windows []int) (column, bool) {
	ri, ok := h.find(cand.Num)
	if !ok {
		return column{}, false
	}
	usage := h.Rows[ri].Usage
	c := column{score: cand.Score, held: cand.Held, guilty: cand.Guilty, usage: make([]float64, len(windows)), left: make([]float64, len(windows))}
	absent := 0
	for absent < len(windows) && usage[windows[absent]] == 0 {
		absent++
	}
	mean := 0.0
	for k, i := range windows[absent:] {
		c.usage[absent+k] = usage[i]
		mean += usage[i]
	}
	c.n = len(windows) - absent
	mean /= float64(max(1, c.n))
	for k := range c.usage {
		if k < absent {
			c.usage[k] = mean
		}
		c.left[k] = c.usage[k] - mean
	}
	c.size = dot(c.left, c.left)
	return c, true
}

// forward adds, one after the other, the candidate that explains most of what is left.
func (o *Group) forward(g *GroupParams, first model.TaskNum) []int {
	var set []int
	if first != NoTask {
		i := slices.IndexFunc(o.cols, func(c column) bool { return c.score.Num == first })
		if i < 0 || o.cols[i].size <= 0 {
			return nil
		}
		set = append(set, i)
		o.account(i)
	}
	for len(set) < g.MaxMembers {
		best, r := o.best()
		if best < 0 {
			break
		}
		left := dot(o.y, o.y)
		if r*r*left/o.sst < g.Gain || !o.significant(g, best, r, len(set)) {
			break
		}
		if !o.allHurt(append(set, best)) {
			o.cols[best].barred = true
			continue
		}
		set = append(set, best)
		o.account(best)
	}
	return set
}

// best returns the candidate whose rest correlates best with what is left of the signal.
func (o *Group) best() (int, float64) {
	best, r := -1, 0.0
	left := dot(o.y, o.y)
	if left <= degenerate*o.sst {
		return best, r
	}
	for i := range o.cols {
		c := &o.cols[i]
		size := dot(c.left, c.left)
		if c.chosen || c.barred || c.size <= 0 || size <= degenerate*c.size {
			continue
		}
		if x := dot(c.left, o.y) / math.Sqrt(size*left); x > r {
			best, r = i, min(x, 1)
		}
	}
	return best, r
}

// significant asks whether the luckiest innocent would hardly look as guilty.
func (o *Group) significant(g *GroupParams, i int, r float64, chosen int) bool {
	rho := lag(o.y) * lag(o.cols[i].left)
	n := float64(o.cols[i].n)
	if rho > 0 {
		n *= (1 - rho) / (1 + rho)
	}
	dof := n - float64(chosen) - 3
	if dof <= 0 {
		return false
	}
	p := g.Chance / float64(len(o.cols))
	z := math.Sqrt2 * math.Erfinv(1-2*p)
	return math.Atanh(min(r, 1-1e-12))*math.Sqrt(dof) >= z
}

// account takes what a new member explains out of the signal and of every other candidate.
func (o *Group) account(i int) {
	c := &o.cols[i]
	c.chosen = true
	size := dot(c.left, c.left)
	if size <= 0 {
		return
	}
	remove(o.y, c.left, size)
	for k := range o.cols {
		if k != i && !o.cols[k].chosen {
			remove(o.cols[k].left, c.left, size)
		}
	}
}

// allHurt reports whether every member of a set raises the signal.
func (o *Group) allHurt(set []int) bool {
	b, _, ok := o.fit(set)
	return ok && slices.Min(b) > 0
}

// backward drops members that no longer add to the set.
func (o *Group) backward(g *GroupParams, set []int, first model.TaskNum) []int {
	for len(set) > 1 {
		_, all, ok := o.fit(set)
		if !ok {
			return nil
		}
		worst, least := -1, g.Gain
		for k, i := range set {
			if o.cols[i].score.Num == first && len(set) == 2 {
				continue // without it there is no group, and the single rule decides
			}
			_, without, _ := o.fit(slices.Delete(slices.Clone(set), k, k+1))
			if gain := all - without; gain < least {
				worst, least = k, gain
			}
		}
		if worst < 0 {
			return set
		}
		set = slices.Delete(set, worst, worst+1)
	}
	return set
}

// addAlike adds candidates that move as a member does: they explain nothing more, but any
// of them may be the one that hurts. The larger ones come first. like[i] is the member
// that set[i] is like, or itself.
func (o *Group) addAlike(g *GroupParams, set []int, first model.TaskNum) (all, like []int) {
	all, like = set, slices.Clone(set)
	if first != NoTask {
		return all, like // the single rule has chosen among them
	}
	order := make([]int, len(o.cols))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(o.cols[b].score.Usage, o.cols[a].score.Usage)
	})
	for _, i := range order {
		if len(all) >= g.MaxMembers {
			break
		}
		if o.cols[i].size <= 0 || slices.Contains(set, i) {
			continue
		}
		for _, k := range set {
			if cosine(o.cols[i].usage, o.cols[k].usage) >= alike {
				all, like = append(all, i), append(like, k)
				break
			}
		}
	}
	return all, like
}

// judge applies what is asked of the whole set and fills in the members. Those that are
// alike share what they explain, in proportion to their usage.
func (o *Group) judge(g *GroupParams, explaining, all, like []int) {
	b, explained, ok := o.fit(explaining)
	o.Explained = explained
	if !ok || explained < g.Explained {
		return
	}
	o.Score = o.pressureScore(explaining, b)
	if o.Score < g.Threshold {
		return
	}
	for n, i := range all {
		k := slices.Index(explaining, like[n])
		_, without, _ := o.fit(slices.Delete(slices.Clone(explaining), k, k+1))
		total := 0.0
		for other := range all {
			if like[other] == like[n] {
				total += o.cols[all[other]].score.Usage
			}
		}
		m := GroupMember{
			Num: o.cols[i].score.Num, Score: o.cols[i].score.Value, Usage: o.cols[i].score.Usage,
			Held: o.cols[i].held, Alike: i != like[n], Gain: max(0, explained-without),
		}
		if total > 0 {
			m.Gain *= m.Usage / total
		}
		o.Members = append(o.Members, m)
	}
	slices.SortStableFunc(o.Members, func(a, b GroupMember) int { return cmp.Compare(b.Gain, a.Gain) })
}

// pressureScore is CPI²'s correlation of the group's pressure, each member's usage
// counted from its least.
func (o *Group) pressureScore(set []int, b []float64) float64 {
	sum, earned := 0.0, 0.0
	for k, i := range set {
		u := o.cols[i].usage
		least := slices.Min(u)
		for t := range u {
			x := b[k] * (u[t] - least)
			sum += x
			earned += x * o.w[t]
		}
	}
	if !(sum > 0) {
		return 0
	}
	return min(1, max(-1, earned/sum))
}

// rivalled reports whether a suspect that nobody can hold explains as much by itself, to
// within what a member must add.
func (h *History) rivalled(g *GroupParams, windows []int, rivals []Candidate, o *Group) bool {
	for i := range rivals {
		c, ok := h.newColumn(&rivals[i], windows)
		if r := dot(c.left, o.all); ok && c.size > 0 && r > 0 && r*r/(c.size*o.sst) >= o.Explained-g.Gain {
			return true
		}
	}
	return false
}
