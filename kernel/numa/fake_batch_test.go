package numa

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// testFakeBatchOutcomes: each page's outcome by name, also of pages that a call did not
// come to.
func testFakeBatchOutcomes(t *testing.T, c *child) {
	k := newFakeKernel()
	page := func(i int) uintptr { return uintptr(c.Anon) + uintptr(i*os.Getpagesize()) }
	k.pinned[page(0)], k.pinned[page(50)] = true, true
	k.lookup[page(10)], k.lookup[page(20)] = unix.EACCES, unix.EBUSY
	k.lookup[page(30)], k.lookup[page(40)] = unix.EIO, unix.EHWPOISON
	b := NewBatch(k, 1000)
	for i := range 100 {
		b.Add(uint64(page(i)), 1)
	}
	b.Add(c.Holes, 1)
	b.Add(4096, 1) // no mapping
	k.lookup[uintptr(c.Holes)], k.lookup[4096] = unix.ENOENT, unix.EFAULT
	counts, err := b.Move(c.pid)
	if err != nil {
		t.Fatal(err)
	}
	want := map[Outcome]uint64{Moved: 94, Shared: 1, Busy: 1, Unmovable: 1, OtherError: 1, Stayed: 2}
	for o, n := range want {
		if counts[o] != n {
			t.Errorf("%s: %d, want %d", o, counts[o], n)
		}
	}
	// 6.1 says Unmapped of a hole, later kernels NotPresent.
	if counts[NotPresent]+counts[Unmapped] != 2 || counts.Failed() != 8 || k.moves > 4 {
		t.Errorf("%v, %d calls", counts, k.moves)
	}
	for i, o := range map[int]Outcome{0: Stayed, 1: Moved, 10: Shared, 20: Busy, 30: Unmovable, 40: OtherError, 50: Stayed, 99: Moved} {
		if node, ok := b.Node(i); b.Outcome(i) != o || !ok || (node == 1) != (o == Moved) || b.Address(i) != uint64(page(i)) {
			t.Errorf("page %d: %s on %d, want %s", i, b.Outcome(i), node, o)
		}
	}
}

func TestBatchBounds(t *testing.T) {
	b := NewBatch(newFakeKernel(), MaxBatch+1)
	for i := range MaxBatch + 1 {
		if b.Add(uint64(i), 0) != (i < MaxBatch) {
			t.Fatalf("page %d", i)
		}
	}
	if !b.Full() || b.Len() != MaxBatch {
		t.Errorf("%d pages", b.Len())
	}
	b.Reset()
	if counts, err := b.Move(1); b.Len() != 0 || counts != (Outcomes{}) || err != nil {
		t.Errorf("an empty batch: %v, %v", counts, err)
	}
	if err := b.Query(1); err != nil {
		t.Errorf("an empty batch: %v", err)
	}
	for o, want := range map[Outcome]string{NotTried: "not tried", CameBack: "came back", OtherError: "other error", numOutcomes: "unknown outcome"} {
		if o.String() != want {
			t.Errorf("%d is %q", o, o)
		}
	}
}

// testFakeCallErrors: what the kernel says about a whole call.
func testFakeCallErrors(t *testing.T, c *child) {
	for errno, want := range map[unix.Errno]error{
		unix.ESRCH: ErrVanished, unix.EINVAL: ErrVanished, unix.EPERM: ErrPermission, unix.ENODEV: ErrNoNode,
		unix.EACCES: ErrNodeNotAllowed, unix.ENOMEM: ErrNodeFull, unix.ENOSYS: ErrUnsupported, unix.E2BIG: unix.E2BIG,
	} {
		k := newFakeKernel()
		k.before = func() unix.Errno { return errno }
		b := NewBatch(k, 1)
		b.Add(c.Anon, 1)
		counts, err := b.Move(c.pid)
		if !errors.Is(err, want) || !errors.Is(err, errno) || counts[Moved] != 0 || counts.Failed() != 1 {
			t.Errorf("%v: %v, %v", errno, err, counts)
		}
	}
	k := newFakeKernel()
	b := NewBatch(cameBack{k}, 1)
	b.Add(c.Anon, 1)
	if counts, err := b.Move(c.pid); err != nil || counts[CameBack] != 1 {
		t.Errorf("moved and back again: %v, %v", counts, err)
	}
}

// cameBack says that it moved, and did not.
type cameBack struct{ *fakeKernel }

func (k cameBack) MovePages(pid int32, pages []uintptr, nodes, status []int32, flags int) (int, error) {
	if nodes != nil {
		copy(status, nodes)
		return 0, nil
	}
	return k.fakeKernel.MovePages(pid, pages, nodes, status, flags)
}
