package cgrouptest

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// testLimits walks a nested tree through random limits that every layout
// takes at every group, parents and children alike, and reads each back.
func testLimits(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "limits")
	child := top + "/child"
	makeGroup(t, b, d, child)
	const seed = 314
	rng := rand.New(rand.NewPCG(seed, 1))
	unlimited := cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: 100000}
	for round := range 200 {
		path, other := top, child
		if rng.IntN(2) == 0 {
			path, other = child, top
		}
		// Alone in the tree any limit is legal on either layout.
		must(t, d.WriteCPUMax(other, unlimited))
		from, err := d.ReadCPUMax(path)
		must(t, err)
		to := randomLimit(rng)
		if err := d.WriteCPUMax(path, to); err != nil {
			t.Fatalf("seed %d, round %d: %s from %s to %s: %v", seed, round, path, from, to, err)
		}
		if got, err := d.ReadCPUMax(path); err != nil || got != to {
			t.Fatalf("seed %d, round %d: %s reads %s, %v; want %s", seed, round, path, got, err, to)
		}
	}
	for _, v := range []cgroup.CPUMax{limit(999, 100000, 0), limit(0, 100000, 0), limit(-2, 100000, 0), limit(20000, 999, 0), limit(20000, 1000001, 0), limit(20000, 100000, -1)} {
		var ce *cgroup.CPUMaxError
		if err := d.WriteCPUMax(top, v); !errors.Is(err, unix.EINVAL) || !errors.As(err, &ce) || len(ce.Written) != 0 {
			t.Errorf("%s: %v", v, err)
		}
	}
	testOpenLimit(t, d, child)
	// A burst above the quota is for the kernel to judge: mainline refuses it, and others
	// have a wider bound. What was refused is not there.
	must(t, d.WriteCPUMax(top, limit(20000, 100000, 0)))
	above := limit(20000, 100000, 20001)
	err := d.WriteCPUMax(top, above)
	now, readErr := d.ReadCPUMax(top)
	must(t, readErr)
	if taken := err == nil && now == above; !taken && (!errors.Is(err, unix.EINVAL) || now != limit(20000, 100000, 0)) {
		t.Errorf("a burst above the quota: %v, reads %s", err, now)
	}
}

// testOpenLimit: an open limit says what the files say, and dies with its directory.
func testOpenLimit(t *testing.T, d cgroup.Driver, path string) {
	t.Helper()
	o, err := d.OpenCPUMax(path)
	must(t, err)
	defer func() { must(t, o.Close()) }()
	for _, v := range []cgroup.CPUMax{limit(5000, 50000, 2000), limit(-1, 100000, 0), limit(1000, 100000, 0)} {
		must(t, d.WriteCPUMax(path, v))
		if got, err := o.Read(); err != nil || got != v {
			t.Errorf("an open limit reads %s, %v; want %s", got, err, v)
		}
	}
	if ino, err := d.Inode(path); err != nil || ino != o.Inode() {
		t.Errorf("inode %d, %v; the limit's is %d", ino, err, o.Inode())
	}
	must(t, d.Rmdir(path))
	must(t, d.Mkdir(path))
	if _, err := o.Read(); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("of a directory that is gone: %v", err)
	}
}

// cutFS refuses the write number cut with EIO, as a process that was killed before it
// leaves it unwritten.
type cutFS struct {
	hostfs.FS
	cut, writes int
}

func (f *cutFS) WriteFile(path string, data []byte) error {
	f.writes++
	if f.writes >= f.cut {
		return &fs.PathError{Op: "write", Path: path, Err: unix.EIO}
	}
	return f.FS.WriteFile(path, data)
}

// testCutWrites cuts every change of a limit off after each of its writes:
// what is left is a state between the two, or no limit at all, and can be put back.
func testCutWrites(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "cut")
	m := mounts(t, b)
	rng := rand.New(rand.NewPCG(2718, 1))
	cuts := 0
	for range 50 {
		found, intended := randomLimit(rng), randomLimit(rng)
		for cut := 1; ; cut++ {
			must(t, d.WriteCPUMax(top, found))
			f := &cutFS{FS: b.FS(), cut: cut}
			cutting, err := cgroup.Open(f, m)
			must(t, err)
			err = cutting.WriteCPUMax(top, intended)
			now, readErr := d.ReadCPUMax(top)
			must(t, readErr)
			if err == nil {
				if now != intended {
					t.Fatalf("%s to %s ends at %s", found, intended, now)
				}
				break
			}
			cuts++
			var ce *cgroup.CPUMaxError
			if !errors.As(err, &ce) || !errors.Is(err, unix.EIO) || len(ce.Written) != cut-1 || ce.File == "" || ce.Value == "" {
				t.Fatalf("cut before write %d of %s to %s: %v", cut, found, intended, err)
			}
			if !cgroup.IsIntermediate(found, intended, now) {
				t.Fatalf("%s to %s, cut before write %d, leaves %s", found, intended, cut, now)
			}
		}
		must(t, d.WriteCPUMax(top, found))
		if now, err := d.ReadCPUMax(top); err != nil || now != found {
			t.Fatalf("put back %s, reads %s, %v", found, now, err)
		}
	}
	if cuts < 50 {
		t.Errorf("%d cuts only", cuts)
	}
}

// randomLimit favours values on the edges and ratios that repeat, so that parents and
// children are often exactly equal.
func randomLimit(rng *rand.Rand) cgroup.CPUMax {
	periods := []int64{1000, 5000, 10000, 20000, 50000, 100000, 1000000}
	m := cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: periods[rng.IntN(len(periods))]}
	if rng.IntN(10) == 0 {
		m.PeriodUsec = 1000 + rng.Int64N(999001)
	}
	if rng.IntN(4) > 0 {
		ratios := []float64{0.01, 0.1, 0.5, 1, 1.5, 2}
		m.QuotaUsec = max(1000, int64(ratios[rng.IntN(len(ratios))]*float64(m.PeriodUsec)))
		if rng.IntN(10) == 0 {
			m.QuotaUsec += rng.Int64N(3)
		}
	}
	switch {
	case rng.IntN(2) == 0:
	case m.QuotaUsec < 0:
		m.BurstUsec = rng.Int64N(200000)
	default:
		m.BurstUsec = []int64{m.QuotaUsec, m.QuotaUsec / 2, rng.Int64N(m.QuotaUsec + 1)}[rng.IntN(3)]
	}
	return m
}
