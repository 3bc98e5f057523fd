package numa

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// fakeKernel moves pages of a real process between two nodes that it only pretends, so
// that what the kernel does to a move can be tried on a machine of one node: it does as
// do_pages_move in mm/migrate.c does, group by group.
type fakeKernel struct {
	nodes  map[uintptr]*fakeBlock // by stretch of fakeHugeSize; absent: all on node 0
	pinned map[uintptr]bool       // stay, and fail their group
	lookup map[uintptr]unix.Errno // what looking a page up says
	huge   func(page uintptr) bool
	room   int               // pages that may yet move before ENOMEM; below 0: no bound
	before func() unix.Errno // called before each move

	moves, most int // calls that moved, and the most pages of one

	latest uintptr // the stretch asked about last, and what there is
	block  *fakeBlock
}

// fakeBlock is the nodes of a stretch's pages.
type fakeBlock [fakeHugeSize >> 12]int32

// at returns where a page's node stands, nil for node 0 where nothing stands.
func (k *fakeKernel) at(page uintptr, make bool) *int32 {
	if n := page / fakeHugeSize; n != k.latest || k.block == nil {
		k.latest, k.block = n, k.nodes[n]
		if k.block == nil && make {
			k.block = &fakeBlock{}
			k.nodes[n] = k.block
		}
	}
	if k.block == nil {
		return nil
	}
	return &k.block[page%fakeHugeSize>>12]
}

// on returns the node that a page is on.
func (k *fakeKernel) on(page uintptr) int32 {
	if n := k.at(page, false); n != nil {
		return *n
	}
	return 0
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{
		nodes: map[uintptr]*fakeBlock{}, pinned: map[uintptr]bool{}, lookup: map[uintptr]unix.Errno{},
		huge: func(uintptr) bool { return false }, room: -1, before: func() unix.Errno { return 0 },
	}
}

const fakeHugeSize = 2 << 20

func (k *fakeKernel) MovePages(pid int32, pages []uintptr, nodes, status []int32, flags int) (int, error) {
	if nodes == nil {
		if _, err := (Live{}).MovePages(pid, pages, nil, status, flags); err != nil {
			return 0, err
		}
		for i, p := range pages {
			if status[i] >= 0 {
				status[i] = k.on(p)
			}
		}
		return 0, nil
	}
	if errno := k.before(); errno != 0 {
		return 0, errno
	}
	k.moves++
	k.most = max(k.most, len(pages))
	var group []int
	for i, p := range pages {
		if nodes[i] > 1 {
			return 0, unix.ENODEV
		}
		errno := k.lookup[p]
		if errno == 0 && k.on(p) != nodes[i] && !k.onItsWay(pages, group, p) {
			group = append(group, i)
			continue
		}
		status[i] = nodes[i]
		if errno == 0 && k.on(p) != nodes[i] {
			errno = unix.EBUSY
		}
		if errno != 0 {
			status[i] = -int32(errno)
		}
		if left, err := k.migrate(pages, nodes, status, group); left > 0 || err != nil {
			return left + len(pages) - i - 1, err
		}
		group = group[:0]
	}
	return k.migrate(pages, nodes, status, group)
}

// onItsWay says whether a page's huge page is in the group already.
func (k *fakeKernel) onItsWay(pages []uintptr, group []int, page uintptr) bool {
	return k.huge(page) && slices.ContainsFunc(group, func(i int) bool { return pages[i]/fakeHugeSize == page/fakeHugeSize })
}

// migrate moves a group; if a page of it fails, the status of none is written.
func (k *fakeKernel) migrate(pages []uintptr, nodes, status []int32, group []int) (int, error) {
	failed := 0
	for _, i := range group {
		if k.room == 0 {
			return 0, unix.ENOMEM
		}
		if k.pinned[pages[i]] {
			failed++
			continue
		}
		k.put(pages[i], nodes[i])
	}
	for _, i := range group {
		if failed == 0 {
			status[i] = nodes[i]
		}
	}
	return failed, nil
}

// put moves a page, with its huge page.
func (k *fakeKernel) put(page uintptr, node int32) {
	first, n := page, 1
	if k.huge(page) {
		first, n = page/fakeHugeSize*fakeHugeSize, fakeHugeSize/os.Getpagesize()
	}
	for j := range n {
		*k.at(first+uintptr(j*os.Getpagesize()), true) = node
	}
	k.room -= min(max(k.room, 0), n)
}

func (k *fakeKernel) MigratePages(int32, *cpus.Set, *cpus.Set) (int, error) { return 0, unix.ENOSYS }

// fakeNodes is the live machine, but for its nodes: those of the rig's.
type fakeNodes struct {
	*hostfs.Root
	nodes *hostfs.Root
}

func (f fakeNodes) ReadFile(path string, buf []byte) ([]byte, error) {
	if strings.HasPrefix(path, nodeDir) || path == zoneinfoPath {
		return f.nodes.ReadFile(path, buf)
	}
	return f.Root.ReadFile(path, buf)
}

// fakeMover returns a Mover over a fake kernel; every mapping is looked at page by page,
// because the real numa_maps knows nothing of the fake's nodes.
func fakeMover(t *testing.T, k *fakeKernel, cfg MoverConfig) *Mover {
	t.Helper()
	live := liveRoot(t).(*hostfs.Root)
	m := NewMover(fakeNodes{live, fixture("qemu-6.12")}, k, cfg)
	m.survey.each = true
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}
