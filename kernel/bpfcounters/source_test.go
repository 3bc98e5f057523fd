package bpfcounters_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/bpfcounters"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
)

func TestMain(m *testing.M) { testchild.Main(m, perftest.Roles(open)) }

// source is a Source with readings that are up to date within a window, as the conformance tests want.
type source struct{ *bpfcounters.Source }

type task struct {
	*bpfcounters.Task
	s *bpfcounters.Source
}

func open(cpus []int, events []perf.Event) (perftest.Source, error) {
	s, err := bpfcounters.Open(cpus, events, 16)
	if err != nil {
		return nil, err
	}
	return source{s}, nil
}

func (s source) Add(fd int) (perftest.Task, error) {
	t, err := s.Source.Add(fd)
	if err != nil {
		return nil, err
	}
	return task{t, s.Source}, nil
}

func (t task) Read(out []perf.Count) error {
	if err := t.s.Flush(); err != nil {
		return err
	}
	return t.Task.Read(out)
}

// shelf keeps sources by their events: to open one takes an emulated machine seconds, for it reads the kernel's BTF.
type shelf map[string]perftest.Source

// kept is a source of the shelf, which is not closed with the test that had it.
type kept struct{ perftest.Source }

func (s kept) Close() error { return s.Stop() }

func (k shelf) open(cpus []int, events []perf.Event) (perftest.Source, error) {
	name := fmt.Sprintf("%d", events)
	if k[name] == nil {
		s, err := open(cpus, events)
		if err != nil {
			return nil, err
		}
		k[name] = s
	}
	return kept{k[name]}, nil
}

func newShelf(t *testing.T) shelf {
	k := shelf{}
	t.Cleanup(func() {
		for _, s := range k {
			perftest.Must(t, s.Close())
		}
	})
	return k
}

func TestConformance(t *testing.T) { perftest.Conform(t, newShelf(t).open) }

func TestOpening(t *testing.T) { perftest.ConformOpening(t, open) }

func TestRig(t *testing.T) {
	perftest.ConformRig(t, newShelf(t).open, func(t testing.TB) {
		rigtest.Only(t, "counters of every CPU, CPUs, resctrl")
		rigtest.NeedRDT(t)
	})
}

func opened(t *testing.T, maxTasks int) *bpfcounters.Source {
	t.Helper()
	s, err := bpfcounters.Open(perftest.Online(t), perftest.Software, maxTasks)
	if errors.Is(err, perf.ErrPermission) || errors.Is(err, perf.ErrNotSupported) {
		t.Skipf("not counted here: %v", err)
	}
	perftest.Must(t, err)
	t.Cleanup(func() { perftest.Must(t, s.Close()) })
	return s
}

// There is room for one, and a cgroup that gets the place of another does not get its counts.
func TestPlaces(t *testing.T) {
	s := opened(t, 1)
	busy, idle := perftest.Cgroup(t, "busy"), perftest.Cgroup(t, "idle")
	first, err := s.Add(perftest.Dir(t, busy))
	perftest.Must(t, err)
	if _, err := s.Add(perftest.Dir(t, idle)); !errors.Is(err, bpfcounters.ErrFull) {
		t.Errorf("a second of one: %v, want ErrFull", err)
	}
	perftest.Spin(t, busy)
	perftest.Must(t, s.Start())
	perftest.Burn(t, busy, 50*time.Millisecond)
	perftest.Must(t, s.Stop())
	out := make([]perf.Count, len(perftest.Software))
	if perftest.Must(t, first.Read(out)); out[0].Raw == 0 {
		t.Errorf("the first: %+v, want something counted", out[0])
	}
	perftest.Must(t, first.Close())
	perftest.Must(t, first.Close())
	second, err := s.Add(perftest.Dir(t, idle))
	perftest.Must(t, err)
	perftest.Must(t, s.Start())
	perftest.Burn(t, busy, 50*time.Millisecond)
	perftest.Must(t, s.Stop())
	if perftest.Must(t, second.Read(out)); out[0] != (perf.Count{Status: perf.OK}) {
		t.Errorf("the second: %+v, want a measured zero", out[0])
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, test := range []struct {
		cpus   []int
		events []perf.Event
		tasks  int
	}{
		{nil, perftest.Software, 1},
		{[]int{0}, nil, 1},
		{[]int{0}, perftest.Software, 0},
		{[]int{0, 100_000}, perftest.Software, 1},
		{[]int{-1}, perftest.Software, 1},
	} {
		before := perftest.Descriptors(t)
		if _, err := bpfcounters.Open(test.cpus, test.events, test.tasks); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%+v: %v, want EINVAL", test, err)
		}
		if got := perftest.Descriptors(t); got != before {
			t.Errorf("%+v: %d descriptors open afterwards, %d before", test, got, before)
		}
	}
}

// attached counts the kernel's links to a program of ours.
func attached(t *testing.T) (found int) {
	t.Helper()
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			continue // another's, of a type that the library does not know
		}
		p, err := ebpf.NewProgramFromID(info.Program)
		if err != nil {
			continue
		}
		of, err := p.Info()
		perftest.Must(t, errors.Join(err, p.Close()))
		if of.Name == "commensal_sched" {
			found++
		}
	}
	perftest.Must(t, it.Err())
	return found
}

// Outside of windows nobody pays: the program is attached in windows only, once.
func TestAttachedInWindowsOnly(t *testing.T) {
	s := opened(t, 1)
	for _, step := range []struct {
		name string
		do   func() error
		want int
	}{
		{"opened", func() error { return nil }, 0},
		{"stopped before it was started", s.Stop, 0},
		{"started", s.Start, 1},
		{"started again", s.Start, 1},
		{"stopped", s.Stop, 0},
		{"started anew", s.Start, 1},
		{"closed", s.Close, 0},
	} {
		perftest.Must(t, step.do())
		got := attached(t)
		for range 50 { // a link is freed a little after its last descriptor
			if got == step.want {
				break
			}
			time.Sleep(10 * time.Millisecond)
			got = attached(t)
		}
		if got != step.want {
			t.Errorf("%s: attached %d times, want %d", step.name, got, step.want)
		}
	}
}
