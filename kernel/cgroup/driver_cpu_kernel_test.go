package cgroup

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// TestKernelDriverLimits walks a nested tree through random limits that every layout
// takes at every group, parents and children alike, and reads each back.
func TestKernelDriverLimits(t *testing.T) {
	d := liveDriver(t)
	top := ownGroup(t, d, "limits")
	child := top + "/child"
	makeGroup(t, d, child)
	const seed = 314
	rng := rand.New(rand.NewPCG(seed, 1))
	unlimited := CPUMax{QuotaUsec: -1, PeriodUsec: 100000}
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
	for _, v := range []CPUMax{{999, 100000, 0}, {0, 100000, 0}, {-2, 100000, 0}, {20000, 999, 0}, {20000, 1000001, 0}, {20000, 100000, 20001}, {20000, 100000, -1}} {
		var ce *CPUMaxError
		if err := d.WriteCPUMax(top, v); !errors.Is(err, unix.EINVAL) || !errors.As(err, &ce) || len(ce.Written) != 0 {
			t.Errorf("%s: %v", v, err)
		}
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

// TestKernelDriverCutWrites cuts every change of a limit off after each of its writes:
// what is left is a state between the two, or no limit at all, and can be put back.
func TestKernelDriverCutWrites(t *testing.T) {
	d := liveDriver(t)
	top := ownGroup(t, d, "cut")
	fsys, m := liveMounts(t)
	rng := rand.New(rand.NewPCG(2718, 1))
	cuts := 0
	for range 50 {
		found, intended := randomLimit(rng), randomLimit(rng)
		for cut := 1; ; cut++ {
			must(t, d.WriteCPUMax(top, found))
			f := &cutFS{FS: fsys, cut: cut}
			cutting, err := Open(f, m)
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
			var ce *CPUMaxError
			if !errors.As(err, &ce) || !errors.Is(err, unix.EIO) || len(ce.Written) != cut-1 || ce.File == "" || ce.Value == "" {
				t.Fatalf("cut before write %d of %s to %s: %v", cut, found, intended, err)
			}
			if !IsIntermediate(found, intended, now) {
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
