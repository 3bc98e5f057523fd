package linux

import (
	"fmt"
	"maps"
	"os"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// The process ends at every single write of a file and in every part of every
// journal entry; whoever comes next puts every limit back as it was found.
func TestCrashAnywhere(t *testing.T) {
	shapes := shapes
	if rigtest.Inside() { // the fake is the same everywhere, and an emulated machine is slow
		shapes = map[string]map[string]cgroup.CPUMax{"nested": shapes["nested"]}
	}
	for name, found := range shapes {
		t.Run(name, func(t *testing.T) {
			states := 0
			for n := 1; ; n++ {
				for _, after := range []bool{false, true} {
					b := newBench(t, newTree(t, found))
					size, done := b.runUntil(n, after)
					states += b.restoreFromEveryCut(found, size, after)
					if done {
						t.Logf("%d states after %d writes", states, b.writes)
						return
					}
				}
			}
		})
	}
}

// runUntil holds, tightens, loosens and releases, and crashes before or after write n. It
// returns the journal's size when the write before began to return.
func (b *bench) runUntil(n int, after bool) (size int64, done bool) {
	size = fileSize(b.t, b.path)
	b.before = func(i int, _ string) error {
		if i == n && !after {
			panic(crash{})
		}
		return nil
	}
	b.after = func(i int) {
		size = fileSize(b.t, b.path)
		if i == n && after {
			panic(crash{})
		}
	}
	defer func() {
		b.before, b.after = nil, nil
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
		}
	}()
	for _, c := range []float64{0.1, 0.01, 0.5} {
		b.expect(b.k.hold(b.task, cpus(c)), model.Applied)
	}
	b.expect(b.k.release(b.task), model.Applied)
	return size, true
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// restoreFromEveryCut cuts what the journal gained since the last write in every part
// and restores from each. It returns how many states there were.
func (b *bench) restoreFromEveryCut(found map[string]cgroup.CPUMax, size int64, after bool) int {
	b.t.Helper()
	whole, err := os.ReadFile(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	first := int(size)
	if after || first > len(whole) {
		first = len(whole)
	}
	limits := maps.Clone(b.limits)
	n := 0
	for cut := first; cut <= len(whole); cut += stride(cut, first, len(whole)) {
		b.limits = maps.Clone(limits)
		if err := os.WriteFile(b.path, whole[:cut], 0o600); err != nil {
			b.t.Fatal(err)
		}
		b.restoreTwice(found, fmt.Sprintf("journal cut at byte %d of %d", cut, len(whole)))
		n++
	}
	return n
}

// stride is 1 near the ends of a range, and larger in its middle: a
// cut inside a line is a cut inside a line.
func stride(at, first, last int) int {
	if at-first < 2 || last-at < 4 {
		return 1
	}
	return min(41, last-at-2)
}

// restoreTwice does what the next start does, and what the one after that does.
func (b *bench) restoreTwice(found map[string]cgroup.CPUMax, what string) {
	b.t.Helper()
	for range 2 {
		c, err := journal.Read(b.path)
		if err != nil {
			b.t.Fatalf("%s: %v", what, err)
		}
		j, err := journal.Continue(b.path, "boot-1", c.Limits)
		if err != nil {
			b.t.Fatalf("%s: %v", what, err)
		}
		k := b.knobs(j)
		items := k.restore(j.Outstanding())
		for _, it := range items {
			if it.Kind != node.Restored && it.Kind != node.AsFound {
				b.t.Fatalf("%s: %+v; limits %v; journal %+v", what, it, b.limits, c.Limits)
			}
		}
		if !maps.Equal(b.limits, found) {
			b.t.Fatalf("%s: limits %v\nfound  %v\njournal %+v\nitems %+v", what, b.limits, found, c.Limits, items)
		}
		if o := j.Outstanding(); len(o) > 0 {
			b.t.Fatalf("%s: the journal still holds %+v", what, o)
		}
		if err := j.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
}

// A crash during the restore after a crash changes nothing about that.
func TestCrashInRestore(t *testing.T) {
	for name, found := range shapes {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				b := newBench(t, newTree(t, found))
				b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
				b.writes = 0
				if b.crashingRestore(n) {
					return
				}
				b.restoreTwice(found, fmt.Sprintf("restore ended before write %d", n))
			}
		})
	}
}

func (b *bench) crashingRestore(n int) (done bool) {
	c, err := journal.Read(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := journal.Continue(b.path, "boot-1", c.Limits)
	if err != nil {
		b.t.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // the test is over
	b.before = func(i int, _ string) error {
		if i == n {
			panic(crash{})
		}
		return nil
	}
	defer func() {
		b.before = nil
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
		}
	}()
	b.knobs(j).restore(j.Outstanding())
	return true
}
