package schedwait

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// openAltered opens a source as it would be opened on a kernel, or with programs, that a test makes up.
func (b *bed) openAltered(alter func(*ebpf.CollectionSpec, *ebpf.CollectionOptions)) (*Source, error) {
	b.t.Helper()
	must(b.t, b.source(Options{}).Close()) // or this kernel has no BPF for us
	s, err := Open(Options{V2: b.v2, alter: alter})
	if err == nil {
		b.t.Cleanup(func() { must(b.t, s.Close()) })
	}
	return s, err
}

// What the kernel's verifier refuses is told with its last line, and is no lack of the kernel or of rights.
func TestVerifierRefuses(t *testing.T) {
	_, err := newBed(t).openAltered(func(spec *ebpf.CollectionSpec, _ *ebpf.CollectionOptions) {
		p := spec.Programs["on_softirq_entry"]
		p.Instructions = asm.Instructions{asm.Mov.Imm(asm.R1, 7), asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord), asm.Return()}
	})
	var refused *ebpf.VerifierError
	if !errors.As(err, &refused) || !errors.Is(err, ErrRefused) || errors.Is(err, ErrPermission) || errors.Is(err, ErrNotSupported) {
		t.Fatalf("%v", err)
	}
	if text := err.Error(); !strings.Contains(text, "R1 invalid mem access 'scalar'") || strings.Contains(text, "\n") || !strings.Contains(text, "on_softirq_entry") {
		t.Errorf("%q", text)
	}
}

// lacking is this kernel's types without some fields of a struct.
func lacking(t *testing.T, name string, fields ...string) *btf.Spec {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Skipf("no BTF: %v", err)
	}
	kernel = kernel.Copy()
	var s *btf.Struct
	must(t, kernel.TypeByName(name, &s))
	found := 0
	for i := range s.Members {
		for _, f := range fields {
			if s.Members[i].Name == f {
				s.Members[i].Name, found = "not_"+f, found+1
			}
		}
	}
	if found == 0 {
		t.Logf("this kernel has none of %v in %s: it is the one that is meant", fields, name)
	}
	return kernel
}

// A kernel without a field that the programs must have is one that does not support them.
func TestKernelWithoutAField(t *testing.T) {
	types := lacking(t, "task_struct", "nvcsw")
	_, err := newBed(t).openAltered(func(_ *ebpf.CollectionSpec, how *ebpf.CollectionOptions) { how.Programs.KernelTypes = types })
	if !errors.Is(err, ErrNotSupported) || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "nvcsw") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

// A kernel without a field that is good to have measures all the same, without what it tells.
func TestKernelWithoutAFieldThatIsOptional(t *testing.T) {
	for _, c := range []struct {
		in     string
		fields []string
		never  Party // what is not charged without it
	}{
		{"rq", []string{"prev_steal_time_rq"}, Steal},
		{"cfs_rq", []string{"throttled_clock_self_time", "throttled_clock_pelt_time"}, Throttled},
	} {
		t.Run(c.in, func(t *testing.T) {
			types := lacking(t, c.in, c.fields...)
			b := newBed(t)
			s, err := b.openAltered(func(_ *ebpf.CollectionSpec, how *ebpf.CollectionOptions) { how.Programs.KernelTypes = types })
			must(t, err)
			lc := b.group("lc")
			b.throttle(lc, 10000, 100000)
			b.start(lc, "spin 3")
			must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Watched: true}}))
			must(t, s.Start())
			// Beside other work an emulated CPU may not come to a wait's end in a few periods.
			waited := int64(0)
			for end := time.Now().Add(10 * time.Second); waited == 0 && time.Now().Before(end); {
				time.Sleep(300 * time.Millisecond)
				var r Reading
				must(t, s.Read(&r, monotonic()))
				w := taskOf(t, &r, 0)
				if waited = w.Nsec[0] + w.Nsec[1]; sum(w, func(p Party) bool { return p == c.never }) != 0 {
					t.Errorf("%+v", w.Shares)
				}
			}
			if waited == 0 {
				t.Error("nobody waited for ten seconds")
			}
		})
	}
}

// Two agents, or an agent and `commensal waits`, measure the same beside each other, and the end of one is not the other's.
func TestTwoAgents(t *testing.T) {
	b := newBed(t)
	first, second := b.source(Options{}), b.open(Options{})
	lc := b.group("lc")
	b.start(lc, "nap 4 300us 500us")
	for _, s := range []*Source{first, second} {
		must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Task: 3, Watched: true}}))
		must(t, s.Start())
	}
	for _, alone := range []bool{false, true} {
		time.Sleep(300 * time.Millisecond)
		var r Reading
		for _, s := range []*Source{first, second} {
			if s == first && alone {
				must(t, s.Close())
				continue
			}
			must(t, s.Read(&r, monotonic()))
			if w := taskOf(t, &r, 3); w.Count[AfterWakeup] == 0 {
				t.Errorf("no waits, alone: %t", alone)
			}
		}
	}
}

// The time of a reading may be before what was measured, or long after: it is only said how long waits that go on have lasted
// by it, and none has lasted less than nothing.
func TestClockSteps(t *testing.T) {
	b := newBed(t)
	s := b.open(Options{})
	lc := b.group("lc")
	b.start(lc, "spin 6")
	must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Watched: true}}))
	must(t, s.Start())
	var r Reading
	for _, step := range []time.Duration{0, -time.Hour, time.Hour, 0} {
		time.Sleep(200 * time.Millisecond)
		must(t, s.Read(&r, monotonic()+int64(step)))
		w := taskOf(t, &r, 0)
		if w.OpenNsec < 0 || step < 0 && w.OpenNsec != 0 || w.LongestNsec < 0 || w.LongestNsec > int64(time.Minute) || w.Nsec[1] <= 0 || w.Nsec[1] > int64(time.Minute) {
			t.Errorf("%v: %d open for %d ns, longest %d ns, %v ns", step, w.Open, w.OpenNsec, w.LongestNsec, w.Nsec)
		}
	}
}
