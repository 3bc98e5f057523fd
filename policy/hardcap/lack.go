package hardcap

import (
	"cmp"
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Who takes what the victim lacks (Params.Confirm.ByLack). Who is asked first of those of like score is who missed the last-level cache most while the
// victim suffered. That is a stand-in: perf's misses leave out what prefetchers fetch. Where resctrl counts each task by a number of its
// own (an RMID), the victim's counters say what it lacks, and suspects are ordered by what they take of that more than while it was well:
//
//   - it misses more per thousand instructions than in its good windows: the cache, so by the bytes that a suspect's lines fill of it;
//   - it misses no more, its CPI has risen, and what all tasks move to and from memory has, too: memory, so by the bytes a second that a suspect moves;
//   - neither, or nobody counts: as without this.
//
// Who is not counted, or took no more than before, comes behind and by its misses. Waiting for CPUs has its own evidence (blame.go).

// leastMore is a share: so far misses, and traffic, have to be above those of good windows (policy/remedy, Rise).
const leastMore = 0.1

// lacking is what a victim lacks, and which domains it has that of: those that it runs in, and of memory all that are near the same one.
type lacking struct {
	of   model.Lack
	near func(domain int32) bool
}

// nearTo says of which domains a victim has what it lacks.
func nearTo(in *policy.View, victim model.TaskNum, of model.Lack) func(int32) bool {
	t := in.Task(victim)
	return func(domain int32) bool {
		switch {
		case t == nil || in.Topology == nil || in.Topology.Classes == nil:
			return true
		case of == model.LackMemory:
			return in.NearMemoryOf(in.Topology.Classes, t, domain)
		}
		return t.Near(in.Topology.Classes, domain)
	}
}

// judgeLack says what the victim of the last correlation lacks, where that is to be gone by and anybody who may have taken it is counted.
func (s *State) judgeLack(p *Params, in *policy.View, inc *Incident, r *model.Round) {
	s.lacks = lacking{}
	now, usual, ok := in.History.MPKI(inc.Victim)
	if !p.Confirm.ByLack || !ok || now < policy.FewMisses {
		return
	}
	l := lacking{of: model.LackCache, near: nearTo(in, inc.Victim, model.LackCache)}
	if now <= (1+leastMore)*usual {
		l = lacking{of: model.LackMemory, near: nearTo(in, inc.Victim, model.LackMemory)}
		moves, moved := in.History.AllTake(l.of, l.near)
		if inc.Source != model.SourceCPI || moves <= (1+leastMore)*moved {
			return
		}
	}
	for i := range s.analysis.Scores {
		if l.taken(in, s.analysis.Scores[i].Num) > 0 {
			s.lacks, r.Lack, r.MPKI, r.UsualMPKI = l, l.of, now, usual
			return
		}
	}
}

// taken is what a suspect took of what is lacked more than while the victim was well; 0 where that is nothing, or nobody counted.
func (l *lacking) taken(in *policy.View, num model.TaskNum) float64 {
	bad, good, ok := in.History.TakenOf(num, l.of, l.near)
	if !ok {
		return 0
	}
	return max(0, bad-good)
}

// byTaken orders suspects, who took more while the victim suffered first: of what that lacks, and else of the cache as misses tell.
func (s *State) byTaken(in *policy.View, a, b model.TaskNum) int {
	return cmp.Or(-cmp.Compare(s.lacks.taken(in, a), s.lacks.taken(in, b)), -cmp.Compare(in.History.Taken(a), in.History.Taken(b)))
}

// noteTaken fills in what the suspects of a round took.
func (s *State) noteTaken(in *policy.View, r *model.Round) {
	for i := range r.Suspects {
		r.Suspects[i].Takes = s.lacks.taken(in, r.Suspects[i].Task)
	}
}

// text says what the victim lacks and what of it a suspect took, with a semicolon before; "" where nothing is known.
func (l *lacking) text(in *policy.View, r *model.Round, path string, num model.TaskNum) (string, []model.Fact) {
	took := l.taken(in, num)
	if took <= 0 {
		return "", nil
	}
	fact := model.FactOccupancy
	if l.of == model.LackMemory {
		fact = model.FactMoved
	}
	return fmt.Sprintf("; it lacks %s (%.3g misses in 1000 instructions, %.3g while it was well), of which %s has %s more than then", l.of, r.MPKI, r.UsualMPKI, path, l.of.Amount(took)),
		[]model.Fact{model.FactMPKI.Is(r.MPKI), model.FactMPKIQuiet.Is(r.UsualMPKI), fact.Is(took)}
}
