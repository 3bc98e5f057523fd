package fault

import (
	"fmt"

	"github.com/commensal-io/commensal/kernel/taskstats"
)

// Source is a taskstats.Source with faults.
type Source struct {
	inner taskstats.Source
	o     *Owner
}

var _ taskstats.Source = (*Source)(nil)

// Source wraps a source for this life.
func (o *Owner) Source(inner taskstats.Source) *Source { return &Source{inner: inner, o: o} }

// Query asks about thread groups; see taskstats.Source. Fail fails the whole query;
// Vanish, Back and Jump befall one thread group of it.
func (s *Source) Query(tgids []int32, out []taskstats.Stats) error {
	if s.o.Killed() {
		return fmt.Errorf("taskstats: %w", ErrKilled)
	}
	r := s.o.i.draw(Query, s.inner.Name())
	if r != nil && r.Kind == Fail {
		err := fmt.Errorf("taskstats: %w", errnoOf(r))
		s.o.i.notice(&Event{Who: s.o.name, Op: Query, Path: s.inner.Name(), Fault: s.o.i.hit(r), Err: err})
		return err
	}
	if err := s.inner.Query(tgids, out); err != nil || r == nil || len(tgids) == 0 {
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
	s.o.i.notice(&Event{Who: s.o.name, Op: Query, Path: fmt.Sprintf("%s %d", s.inner.Name(), tgids[n]), Fault: s.o.i.hit(r)})
	return nil
}

// Name is the inner source's: specs are kept apart by it.
func (s *Source) Name() string { return s.inner.Name() }

// KeepsDeadThreads is the inner source's.
func (s *Source) KeepsDeadThreads() bool { return s.inner.KeepsDeadThreads() }

// Close closes the inner source.
func (s *Source) Close() error { return s.inner.Close() }
