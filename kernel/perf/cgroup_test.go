package perf_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
)

func TestMain(m *testing.M) { testchild.Main(m, Roles(open)) }

// perCgroup is one set of perf events a cgroup, as a source of many.
type perCgroup struct {
	cpus   []int
	events []perf.Event
	tasks  map[*perf.Counters]bool
}

type cgroupTask struct {
	*perf.Counters
	s *perCgroup
}

func (t cgroupTask) Close() error {
	if !t.s.tasks[t.Counters] {
		return nil // with the source
	}
	delete(t.s.tasks, t.Counters)
	return t.Counters.Close()
}

func open(cpus []int, events []perf.Event) (Source, error) {
	return &perCgroup{cpus: cpus, events: events, tasks: map[*perf.Counters]bool{}}, nil
}

func (s *perCgroup) Add(fd int) (Task, error) {
	c, err := perf.OpenCgroup(fd, s.cpus, s.events)
	if err != nil {
		return nil, err
	}
	s.tasks[c] = true
	return cgroupTask{c, s}, nil
}

func (s *perCgroup) Start() error { return s.each((*perf.Counters).Enable) }
func (s *perCgroup) Stop() error  { return s.each((*perf.Counters).Disable) }
func (s *perCgroup) Close() error {
	err := s.each((*perf.Counters).Close)
	clear(s.tasks)
	return err
}

func (s *perCgroup) each(f func(*perf.Counters) error) error {
	var all error
	for c := range s.tasks {
		all = errors.Join(all, f(c))
	}
	return all
}

func TestConformance(t *testing.T) { Conform(t, open) }

func TestOpening(t *testing.T) { ConformOpening(t, open) }

func TestRig(t *testing.T) {
	ConformRig(t, open, func(t testing.TB) {
		rigtest.Only(t, "counters of every CPU, CPUs, resctrl")
		rigtest.NeedRDT(t)
	})
}

// The rig runs it on a machine of its own, whose time follows the instructions executed.
func TestRigExact(t *testing.T) {
	rigtest.Only(t, "counters of every CPU")
	rigtest.NeedRDT(t)
	ConformExact(t, open)
}

func TestOpenRefusesOtherCPUs(t *testing.T) {
	fd := Dir(t, Cgroup(t, "refuse"))
	clock := []perf.Event{perf.TaskClock}
	if _, err := perf.OpenCgroup(fd, nil, clock); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no CPUs: %v, want EINVAL", err)
	}
	for _, cpus := range [][]int{{0, 100_000}, {-2}} {
		if _, err := perf.OpenCgroup(fd, cpus, clock); err == nil || errors.Is(err, perf.ErrNotSupported) {
			t.Errorf("CPUs %v that do not exist: %v, want an error that does not blame the event", cpus, err)
		}
		if _, err := perf.OpenCPU(cpus[len(cpus)-1], clock); err == nil || errors.Is(err, perf.ErrNotSupported) {
			t.Errorf("CPUs %v that do not exist: %v, want an error that does not blame the event", cpus, err)
		}
	}
}

func TestDescriptorsOfOneCgroup(t *testing.T) {
	fd, cpus := Dir(t, Cgroup(t, "count")), perftest.Online(t)
	before := Descriptors(t)
	c, err := perf.OpenCgroup(fd, cpus, Software)
	if err != nil {
		t.Skipf("no counters per cgroup here: %v", err)
	}
	if got, want := Descriptors(t)-before, (len(Software)+1)*len(cpus)+1; got != want {
		t.Errorf("%d descriptors for %d events on %d CPUs, want %d", got, len(Software), len(cpus), want)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := perf.OpenCgroup(fd, append(cpus, 100_000), Software); err == nil {
		t.Error("opened on a CPU that does not exist")
	}
	if got := Descriptors(t); got != before {
		t.Errorf("%d descriptors open after a close and a failed open, %d before", got, before)
	}
}

func TestHardwareEventsAreNamed(t *testing.T) {
	dir := Cgroup(t, "named")
	for _, e := range Hardware {
		err := perf.Supported(e)
		t.Logf("%v: %v", e, err)
		if err != nil && !errors.Is(err, perf.ErrNotSupported) && !errors.Is(err, perf.ErrPermission) {
			t.Errorf("%v: %v, want a named reason", e, err)
		}
		if errors.Is(err, perf.ErrNotSupported) { // the same event on a good cgroup must be refused for the same reason
			if _, err := perf.OpenCgroup(Dir(t, dir), perftest.Online(t), []perf.Event{e}); !errors.Is(err, perf.ErrNotSupported) {
				t.Errorf("%v on a cgroup: %v, want ErrNotSupported", e, err)
			}
		}
	}
}
