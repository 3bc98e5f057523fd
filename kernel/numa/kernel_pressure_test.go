package numa

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
)

// TestKernelRoom: the target's room bounds what is sent there, to the page.
func TestKernelRoom(t *testing.T) {
	root, a, b := twoNodes(t)
	c := spawn(t, "", childSpec{Pages: 3000, Node: a})
	room := NewRoomReader(root)
	if err := room.Refresh(); err != nil {
		t.Fatal(err)
	}
	have := room.Pages(b, 0)
	if have < 20000 {
		t.Skipf("node %d has room for %d pages", b, have)
	}
	// The machine goes on meanwhile: what is left lies between the child's pages and none.
	m := newMover(t, root, MoverConfig{ReservePages: have - 1000})
	if err := m.Start([]Target{{PID: c.pid, Shares: shares(a, b, 100)}}); err != nil {
		t.Fatal(err)
	}
	outcomes, stops := run(t, m)
	if moved := outcomes[Moved]; stops[len(stops)-1] != StopRoom || moved > 2500 || outcomes[NoMemory] != 0 {
		t.Errorf("%d of 3000 pages moved into room for about 1000; %v", moved, stops)
	}
	m.cfg.ReservePages = 0
	run(t, m)
	if s := m.Targets()[0]; s.Status != Settled || s.ShortPages != 0 {
		t.Errorf("%+v", s)
	}
}

// TestKernelNodeNearlyFull: a node whose watermarks are close takes pages to the watermark
// and no more, and no reclaim runs.
func TestKernelNodeNearlyFull(t *testing.T) {
	root, a, b := twoNodes(t)
	rigtest.Only(t, "it raises the machine's watermarks")
	const left = 1500
	room := NewRoomReader(root)
	b, a = fullerNode(t, room, a, b)
	c := spawn(t, "", childSpec{Pages: 8 * left, Node: a})
	raiseWatermarks(t, room, b, left)
	reclaimed, had, lists := scanned(t), room.Pages(b, 0), listed(t, b)
	m := newMover(t, root, MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, Shares: shares(a, b, 100)}}); err != nil {
		t.Fatal(err)
	}
	outcomes, stops := run(t, m)
	if moved := outcomes[Moved]; stops[len(stops)-1] != StopRoom || moved+left < had || moved > had+lists+left || outcomes[NoMemory] != 0 {
		t.Errorf("%d pages moved to a node with room for %d and %d on CPUs' lists: %v, %v", moved, had, lists, outcomes, stops)
	}
	if after := scanned(t); after != reclaimed {
		t.Errorf("reclaim looked at %d pages", after-reclaimed)
	}
	t.Logf("moved %d pages into room for %d and %d on CPUs' lists", outcomes[Moved], had, lists)
}

// fullerNode returns first the node of which the greater part is in use: raised
// watermarks come near to it first.
func fullerNode(t *testing.T, room *RoomReader, a, b int) (fuller, other int) {
	t.Helper()
	if err := room.Refresh(); err != nil {
		t.Fatal(err)
	}
	free := func(node int) (part float64) {
		var free, managed uint64
		for _, z := range room.Zones() {
			if z.Node == node && z.Name != "DMA" {
				free, managed = free+z.Free, managed+z.Managed
			}
		}
		return float64(free) / float64(managed)
	}
	if free(a) < free(b) {
		return a, b
	}
	return b, a
}

// raiseWatermarks leaves the node room for some left to twice left pages, coming from
// below, and puts the watermarks back at the end.
func raiseWatermarks(t *testing.T, room *RoomReader, node int, left uint64) {
	t.Helper()
	const file = "/proc/sys/vm/min_free_kbytes"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, old, 0); err != nil {
			t.Error(err)
		}
	})
	kb, err := strconv.ParseUint(strings.TrimSpace(string(old)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := room.Refresh(); err != nil {
			t.Fatal(err)
		}
		have := room.Pages(node, 0)
		if have <= 2*left {
			return
		}
		// Of what is added about half is this node's, and its high watermark rises by half
		// as much again: three quarters of the excess.
		kb += (have - left) * uint64(os.Getpagesize()) / 1024
		if err := os.WriteFile(file, []byte(strconv.FormatUint(kb, 10)), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("node %d still has room for %d pages", node, room.Pages(node, 0))
}

// listed returns how many free pages of a node are on CPUs' own lists, which with raised watermarks hold thousands up to Linux 6.6: they count as used, and are
// taken first.
func listed(t *testing.T, node int) (sum uint64) {
	t.Helper()
	data, err := os.ReadFile("/proc/zoneinfo")
	if err != nil {
		t.Fatal(err)
	}
	here := false
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "Node ") {
			here = strings.HasPrefix(line, fmt.Sprintf("Node %d,", node))
		}
		count, is := strings.CutPrefix(strings.TrimSpace(line), "count:")
		if !here || !is {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// scanned returns how many pages reclaim has looked at since boot.
func scanned(t *testing.T) uint64 {
	t.Helper()
	data, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	var sum uint64
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains([]string{"pgscan_kswapd", "pgscan_direct"}, name) {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// TestKernelBalancing: pages of a process that runs on one node, moved to the other, come
// back by themselves. On Linux 6.1 those that the kernel has marked cannot be looked up,
// and the Mover says so.
func TestKernelBalancing(t *testing.T) {
	root, a, b := twoNodes(t)
	rigtest.Only(t, "it makes automatic NUMA balancing hurry")
	balancing, err := ReadBalancing(root)
	if err != nil || !balancing.TowardCPUs {
		t.Skipf("automatic NUMA balancing is off: %+v, %v", balancing, err)
	}
	hurry(t)
	c := spawn(t, "", childSpec{Pages: 1000, Node: a, Spin: true})
	m := newMover(t, root, MoverConfig{})
	var hidden, back, away uint64
	for end := time.Now().Add(patience); time.Now().Before(end) && (back == 0 || rigtest.Kernel() == "6.1" && hidden == 0); {
		states, outcomes := move(t, m, Target{PID: c.pid, Shares: []Share{{b, 1}}})
		if states[0].Status != Settled {
			t.Fatalf("%+v", states[0])
		}
		hidden, away = hidden+states[0].HiddenPages, away+outcomes[Moved]
		for wait := time.Now().Add(patience / 6); time.Now().Before(wait) && back == 0; time.Sleep(50 * time.Millisecond) {
			got, _ := nodesOf(t, c, c.Anon, 1000)
			if n, _ := got.Get(a); n > 500 {
				back = n
			}
		}
	}
	if away == 0 || back == 0 {
		t.Errorf("%d pages moved away, %d came back", away, back)
	}
	// Any kernel hides a page for the moment in which it moves it itself.
	if rigtest.Kernel() == "6.1" && hidden == 0 || rigtest.Kernel() != "6.1" && hidden > 100 {
		t.Errorf("%d pages could not be looked up", hidden)
	}
	t.Logf("%d pages moved away, %d came back, %d could not be looked up", away, back, hidden)
}

// hurry makes the kernel look where memory is used ten times a second.
func hurry(t *testing.T) {
	t.Helper()
	const dir = "/sys/kernel/debug/sched/numa_balancing/"
	for name, value := range map[string]string{"scan_delay_ms": "100", "scan_period_min_ms": "100", "scan_period_max_ms": "200"} {
		old, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(dir+name, []byte(strings.TrimSpace(string(old))), 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKernelSpeed prints what moving costs: pages a second by size of batch, and the same
// of asking. It demands only that nothing is allocated and everything moves.
func TestKernelSpeed(t *testing.T) {
	_, a, b := twoNodes(t)
	const pages = 4096
	c := spawn(t, "", childSpec{Pages: pages, Node: a})
	t.Logf("%8s %14s %14s %10s", "batch", "moved a second", "asked a second", "a batch")
	at := a
	for _, size := range []int{64, 512, 4096} {
		batch := NewBatch(Live{}, size)
		to := a + b - at
		var moving, asking time.Duration
		for i := 0; i < pages; i += size {
			batch.Reset()
			for j := i; j < i+size; j++ {
				batch.Add(c.Anon+uint64(j*os.Getpagesize()), to)
			}
			start := time.Now()
			counts, err := batch.Move(c.pid)
			moving += time.Since(start)
			if err != nil || counts[Moved] != uint64(size) {
				t.Fatalf("%v, %v", counts, err)
			}
			start = time.Now()
			if err := batch.Query(c.pid); err != nil {
				t.Fatal(err)
			}
			asking += time.Since(start)
		}
		at = to
		t.Logf("%8d %14.0f %14.0f %10s", size, pages/moving.Seconds(), pages/asking.Seconds(), (moving / time.Duration(pages/size)).Round(time.Microsecond))
	}
	batch := NewBatch(Live{}, 256)
	for j := range 256 {
		batch.Add(c.Anon+uint64(j*os.Getpagesize()), 0)
	}
	allocs := testing.AllocsPerRun(4, func() {
		at = a + b - at
		for i := range batch.nodes {
			batch.nodes[i] = int32(at)
		}
		if counts, err := batch.Move(c.pid); err != nil || counts[Moved] != 256 {
			t.Errorf("%v, %v", counts, err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a batch", allocs)
	}
}
