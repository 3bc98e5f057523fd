package numa

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// These tests run on the kernel they are started on, as root, whatever its nodes: asking
// works with one. Those that move pages for real are in kernel_move_test.go.

// TestKernelNodes holds what several files say of the nodes to each other.
func TestKernelNodes(t *testing.T) {
	root, top := liveRoot(t), topology(t)
	room := NewRoomReader(root)
	if err := room.Refresh(); err != nil {
		t.Fatal(err)
	}
	var total uint64
	cpus := map[int]bool{}
	for _, n := range top.Nodes {
		checkNode(t, root, &n, room)
		mem, err := ReadNodeMeminfo(root, n.ID)
		if err != nil {
			t.Fatal(err)
		}
		total += mem.TotalBytes
		for _, cpu := range n.CPUs {
			if cpus[cpu] {
				t.Errorf("CPU %d is on two nodes", cpu)
			}
			cpus[cpu] = true
		}
	}
	// (The machine's own total is no measure: where a balloon gives memory back, it differs.)
	var managed uint64
	for _, z := range room.Zones() {
		managed += z.Managed * uint64(os.Getpagesize())
	}
	if math.Abs(float64(total)-float64(managed)) > float64(managed)/100 {
		t.Errorf("nodes have %d bytes, their zones %d", total, managed)
	}
	if _, err := ReadBalancing(root); err != nil && !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

// TestKernelQuery: present pages by node, holes and zero pages by outcome, and numa_maps
// says the same.
func TestKernelQuery(t *testing.T) {
	root := liveRoot(t)
	for _, node := range topology(t).MemoryNodes() {
		c := spawn(t, "", childSpec{Pages: 700, Node: node, Zero: 30, Holes: 30, File: fileOf(t, 30)})
		if got, outcomes := nodesOf(t, c, c.Anon, 700); got.String() != fmt.Sprintf("N%d=700", node) || outcomes[Present] != 700 {
			t.Errorf("on node %d: %v, %v", node, got, outcomes)
		}
		if got, outcomes := nodesOf(t, c, c.Zero, 30); len(got) != 0 || outcomes[Unmapped] != 30 {
			t.Errorf("zero pages: %v, %v", got, outcomes)
		}
		// 6.1 says of holes what it says of zero pages.
		if got, outcomes := nodesOf(t, c, c.Holes, 30); len(got) != 0 || outcomes[NotPresent]+outcomes[Unmapped] != 30 {
			t.Errorf("holes: %v, %v", got, outcomes)
		}
		if got, _ := nodesOf(t, c, c.File, 30); got.Total() != 30 {
			t.Errorf("file: %v", got)
		}
		if _, outcomes := nodesOf(t, c, 0, 1); outcomes[Unmapped]+outcomes[NotPresent] != 1 {
			t.Errorf("no mapping: %v", outcomes)
		}
		seen := 0
		err := ReadNumaMaps(root, c.pid, func(m *Mapping) error {
			switch m.Start {
			case c.Anon:
				seen++
				// Neighbouring mappings may have been merged into it.
				if n, _ := m.Pages.Get(node); n < 700 || m.Policy.Mode != PolicyLocal || m.UnitBytes != uint64(os.Getpagesize()) {
					t.Errorf("numa_maps: %+v", m)
				}
			case c.File:
				seen++
				if m.AnonPages != 1 || m.Pages.Total() != 30 || !strings.HasSuffix(hostfs.Unescape(string(m.File)), "/mapped") {
					t.Errorf("numa_maps: %+v", m)
				}
			case c.Zero, c.Holes:
				if m.Pages.Total() != 0 {
					t.Errorf("numa_maps counts holes: %+v", m)
				}
			}
			return nil
		})
		if err != nil || seen != 2 {
			t.Errorf("%d mappings found, %v", seen, err)
		}
		c.end()
	}
}

// TestKernelOneNode: moving to where the pages are is a success that moves nothing, by
// page and by Mover, on the smallest machine.
func TestKernelOneNode(t *testing.T) {
	root := liveRoot(t)
	node := topology(t).MemoryNodes()[0]
	c := spawn(t, "", childSpec{Pages: 1000, Node: node})
	b := NewBatch(Live{}, 1000)
	for i := range 1000 {
		b.Add(c.Anon+uint64(i*os.Getpagesize()), node)
	}
	if counts, err := b.Move(c.pid); err != nil || counts[Moved] != 1000 {
		t.Errorf("%v, %v", counts, err)
	}
	if left, err := MigrateProcess(Live{}, c.pid, cpus.Of(node), cpus.Of(node)); left != 0 || err != nil {
		t.Errorf("%d, %v", left, err)
	}
	// All to one node: on a machine of one there is nothing to move.
	m := NewMover(root, Live{}, MoverConfig{})
	defer m.Close()
	if err := m.Start([]Target{{PID: c.pid, Shares: []Share{{node, 1}}}}); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	s := m.Targets()[0]
	if n, _ := s.After.Get(node); s.Status != Settled || n < 1000 || n != s.After.Total() {
		t.Errorf("%+v", s)
	}
}

// TestKernelGone: a process that ended, a zombie and a kernel thread have no memory.
func TestKernelGone(t *testing.T) {
	root := liveRoot(t)
	c := spawn(t, "", childSpec{Pages: 10})
	p, err := OpenProcess(root, c.pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.NumaMaps(func(*Mapping) error { return nil }); err != nil {
		t.Fatal(err)
	}
	// A zombie: killed, and not waited for yet.
	if err := unix.Kill(int(c.pid), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(patience)
	for err = nil; err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		err = p.NumaMaps(func(*Mapping) error { return nil })
	}
	if !errors.Is(err, ErrVanished) {
		t.Errorf("zombie: %v", err)
	}
	checkGone(t, root, c.pid, "zombie")
	c.end()
	if err := p.NumaMaps(func(*Mapping) error { return nil }); !errors.Is(err, ErrVanished) {
		t.Errorf("through the open folder: %v", err)
	}
	checkGone(t, root, c.pid, "ended")
	if comm, err := os.ReadFile("/proc/2/comm"); err == nil && string(comm) == "kthreadd\n" {
		checkGone(t, root, 2, "kernel thread")
	}
}

func checkGone(t *testing.T, root hostfs.FS, pid int32, what string) {
	t.Helper()
	if err := ReadNumaMaps(root, pid, func(*Mapping) error { return nil }); !errors.Is(err, ErrVanished) {
		t.Errorf("%s: numa_maps: %v", what, err)
	}
	b := NewBatch(Live{}, 1)
	b.Add(4096, topology(t).MemoryNodes()[0])
	if err := b.Query(pid); !errors.Is(err, ErrVanished) {
		t.Errorf("%s: query: %v", what, err)
	}
	if counts, err := b.Move(pid); !errors.Is(err, ErrVanished) || counts[NotTried] != 1 {
		t.Errorf("%s: move: %v, %v", what, counts, err)
	}
	m := NewMover(root, Live{}, MoverConfig{})
	defer m.Close()
	if err := m.Start([]Target{{PID: pid, Shares: []Share{{topology(t).MemoryNodes()[0], 1}}}}); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	if s := m.Targets()[0]; s.Status != Gone || s.Err != nil {
		t.Errorf("%s: %+v", what, s)
	}
}

// TestKernelPermission: somebody without privileges is told so.
func TestKernelPermission(t *testing.T) {
	liveRoot(t)
	c := spawn(t, "", childSpec{Pages: 10})
	out, err := testchild.Start(t, fmt.Sprint("peek ", c.pid)).Wait()
	if err != nil || out != "numa_maps: permission\nquery: permission\nmove: permission\nmover: refused, permission\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// peek is a child without privileges that tries to read and move another's process.
func peek(_ *testchild.Parent, args []string) error {
	id, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	pid := int32(id)
	root := hostfs.NewRoot("/")
	m := NewMover(root, Live{}, MoverConfig{})
	defer m.Close()
	top, err := ReadTopology(root)
	if err == nil {
		err = m.Start([]Target{{PID: pid, Shares: []Share{{top.MemoryNodes()[0], 1}}}})
	}
	if err != nil {
		return fmt.Errorf("as root: %w", err)
	}
	const nobody = 65534
	for _, drop := range []func() error{
		func() error { return syscall.Setgroups(nil) },
		func() error { return syscall.Setresgid(nobody, nobody, nobody) },
		func() error { return syscall.Setresuid(nobody, nobody, nobody) },
	} {
		if err := drop(); err != nil {
			return fmt.Errorf("drop privileges: %w", err)
		}
	}
	say := func(what string, err error) {
		text := fmt.Sprint(err)
		if errors.Is(err, ErrPermission) {
			text = "permission"
		}
		fmt.Println(what + text)
	}
	say("numa_maps: ", ReadNumaMaps(root, pid, func(*Mapping) error { return nil }))
	b := NewBatch(Live{}, 1)
	b.Add(4096, 0)
	say("query: ", b.Query(pid))
	_, err = b.Move(pid)
	say("move: ", err)
	if _, err := m.Step(context.Background()); err != nil {
		return fmt.Errorf("mover: %w", err)
	}
	s := m.Targets()[0]
	say("mover: "+s.Status.String()+", ", s.Err)
	return nil
}

// anonOf reads a group's anonymous memory by node, in bytes, of either version.
func anonOf(t *testing.T, root hostfs.FS, dir string, v2 bool) func() (Counts, error) {
	t.Helper()
	if v2 {
		r, err := OpenMemoryNumaStat(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		return func() (Counts, error) {
			s, err := r.Read()
			if err != nil {
				return nil, err
			}
			return s.AnonBytes, nil
		}
	}
	r, err := OpenMemoryNumaStatV1(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	var bytes Counts
	return func() (Counts, error) {
		s, err := r.Read()
		if err != nil {
			return nil, err
		}
		bytes = bytes[:0]
		for _, n := range s.Hierarchical.AnonPages {
			bytes = bytes.Add(n.Node, n.Count*uint64(os.Getpagesize()))
		}
		return bytes, nil
	}
}

// TestKernelAllocs: hot calls do not allocate.
func TestKernelAllocs(t *testing.T) {
	root := liveRoot(t)
	node := topology(t).MemoryNodes()[0]
	dir, v2 := memoryGroup(t, "allocs")
	c := spawn(t, dir, childSpec{Pages: 600, Node: node})
	read := anonOf(t, root, dir, v2)
	room := NewRoomReader(root)
	b := NewBatch(Live{}, 600)
	for i := range 600 {
		b.Add(c.Anon+uint64(i*os.Getpagesize()), node)
	}
	scan := newScanner(Live{}, uint64(os.Getpagesize()), 512)
	p, err := OpenProcess(root, c.pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := scan.open(p); err != nil {
		t.Fatal(err)
	}
	defer scan.close()
	maps, err := p.openNumaMaps()
	if err != nil {
		t.Fatal(err)
	}
	defer maps.lines.file.close()
	end := scan.windowEnd(c.Anon)
	for what, f := range map[string]func() error{
		"Query":            func() error { return b.Query(c.pid) },
		"Move":             func() error { _, err := b.Move(c.pid); return err },
		"memory.numa_stat": func() error { _, err := read(); return err },
		"zoneinfo":         room.Refresh,
		"window": func() error {
			scan.chunkLen = 0
			_, err := scan.load(c.Anon, end, end)
			return err
		},
		"numa_maps": func() error {
			maps.lines = lines{file: maps.lines.file, buf: maps.lines.buf}
			for {
				if m, err := maps.next(); m == nil || err != nil {
					return err
				}
			}
		},
	} {
		if err := f(); err != nil {
			t.Fatal(what, err)
		}
		if n := testing.AllocsPerRun(20, func() { err = f() }); n != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", what, n, err)
		}
	}
}
