package fault

import (
	"fmt"

	"github.com/commensal-io/commensal/kernel/taskstats"
)

// Source is a taskstats.Source with faults. Its name is the inner one's: specs are kept apart by it.
type Source struct {
	taskstats.Source
	o *Owner
}

// Source wraps a source for this life.
func (o *Owner) Source(inner taskstats.Source) *Source { return &Source{inner, o} }

// Query asks about thread groups; see taskstats.Source. Fail fails the whole query;
// Vanish, Back and Jump befall one thread group of it.
func (s *Source) Query(tgids []int32, out []taskstats.Stats) error {
	if s.o.Killed() {
		return fmt.Errorf("taskstats: %w", ErrKilled)
	}
	r := s.o.i.draw(Query, s.Name())
	if r != nil && r.Kind == Fail {
		err := fmt.Errorf("taskstats: %w", errnoOf(r))
		s.o.i.notice(&Event{Who: s.o.name, Op: Query, Path: s.Name(), Fault: s.o.i.hit(r), Err: err})
		return err
	}
	if err := s.Source.Query(tgids, out); err != nil || r == nil || len(tgids) == 0 {
		return err
	}
	n := s.o.i.rng.IntN(len(tgids))
	st := &out[n]
	switch r.Kind {
	case Vanish:
		*st = taskstats.Stats{Status: taskstats.Gone}
	case FailAfter:
		*st = taskstats.Stats{}
	case Back:
		st.RunNsec, st.DelayNsec = st.RunNsec/2, st.DelayNsec/2
	case Jump:
		st.RunNsec, st.DelayNsec = st.RunNsec+jump, st.DelayNsec+jump
	default:
		return nil
	}
	s.o.i.notice(&Event{Who: s.o.name, Op: Query, Path: fmt.Sprintf("%s %d", s.Name(), tgids[n]), Fault: s.o.i.hit(r)})
	return nil
}
