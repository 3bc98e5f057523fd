package linux

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// On this kernel: a task's pages go off a memory node and back, and what is said of it is what numa_maps
// says. Where there is one node the answer is that there is no other.
func TestMovePagesOnTheKernel(t *testing.T) {
	b := newBed(t, "pages")
	path := b.mkdir("be-1")
	child := b.spin(path)
	b.open(false)
	b.observe(model.WindowStart)
	ask := func(node int, want model.ResultKind) model.Result {
		t.Helper()
		b.h.Apply([]model.Change{{Seq: 9, Target: model.OfTask(b.tasks[path].Num), Kind: model.Run, Value: model.Pages(0, node)}})
		var res []model.Result
		b.until("an answer", func() bool { res = b.h.Results(res); return len(res) > 0 })
		if res[0].Kind != want {
			t.Fatalf("%+v, want %s", res[0], want)
		}
		return res[0]
	}
	nodes, err := numa.ReadTopology(b.fs)
	if err != nil || len(nodes.MemoryNodes()) < 2 {
		if r := ask(0, model.Refused); err == nil && !strings.Contains(r.Error, "no other memory node") {
			t.Errorf("%+v", r)
		}
		return
	}
	release, err := procstat.ReadKernelRelease(b.fs)
	if err != nil {
		t.Fatal(err)
	}
	marks := slices.ContainsFunc([]string{"5.", "6.0.", "6.1.", "6.2.", "6.3.", "6.4.", "6.5."}, func(of string) bool { return strings.HasPrefix(release, of) })
	list := nodes.MemoryNodes()
	for i, from := range []int{list[0], list[1], list[0]} {
		if other := nodes.Node(list[1-i%2]); len(other.CPUs) > 0 {
			child.Pin(other.CPUs[0]) // automatic balancing takes pages to where their threads run
		}
		r := ask(from, model.Applied)
		// What is in use at that moment stays, and what the child touches anew; before 6.6 also pages that automatic
		// balancing has marked, until they are touched again: then the answer says so, and how many are left.
		share := b.shareOn(from, child)
		marked := marks && strings.HasSuffix(r.Error, "pages would not move") && math.Abs(float64(r.Now.Amount)/1000-share) < 0.1
		if !r.Now.CPUs.Has(from) || (share > 0.3 || r.Now.Amount > 300) && !marked {
			t.Errorf("move %d, off node %d: %.2f of its pages are there; %+v", i, from, share, r)
		}
	}
	child.End()
	b.until("the end of its process", func() bool {
		time.Sleep(10 * time.Millisecond)
		return strings.Contains(ask(list[0], model.Refused).Error, "no processes")
	})
}

// A task of two processes, each with its memory on another node, has the share of its pages on a node that is asked for, and not each process by itself; asked again nothing
// moves; and while others of its processes come and go the next share is reached as well.
func TestPagesOfSeveralProcessesOnTheKernel(t *testing.T) {
	b := newBed(t, "shares")
	nodes, err := numa.ReadTopology(b.fs)
	if err != nil || len(nodes.MemoryNodes()) < 2 || len(nodes.Node(nodes.MemoryNodes()[0]).CPUs) == 0 || len(nodes.Node(nodes.MemoryNodes()[1]).CPUs) == 0 {
		t.Skip("this machine has no two memory nodes with CPUs")
	}
	path := b.mkdir("be-1")
	var children []*testchild.Child
	for _, node := range nodes.MemoryNodes()[:2] {
		children = append(children, b.grown(path, nodes.Node(node).CPUs[0]))
	}
	b.open(false)
	b.observe(model.WindowStart)
	from := nodes.MemoryNodes()[0]
	on := func() float64 { return b.shareOn(from, children...) }
	ask := func(perMille int64) model.Result {
		t.Helper()
		b.h.Apply([]model.Change{{Seq: 9, Target: model.OfTask(b.tasks[path].Num), Kind: model.Run, Value: model.Pages(perMille, from)}})
		var res []model.Result
		b.until("an answer", func() bool { res = b.h.Results(res); return len(res) > 0 })
		return res[0]
	}
	if found := on(); found < 0.4 || found > 0.6 {
		t.Skipf("%.2f of the pages are on node %d to begin with", found, from)
	}
	near := func(perMille int64, r model.Result) {
		t.Helper()
		want := float64(perMille) / 1000
		if got := on(); got < want-0.03 || got > want+0.03 || float64(r.Now.Amount) < 1000*(want-0.03) || float64(r.Now.Amount) > 1000*(want+0.03) {
			t.Errorf("asked for %d per mille on node %d: %.3f, %+v", perMille, from, got, r)
		}
	}
	first := ask(250)
	near(250, first)
	before := on()
	again := ask(250)
	near(250, again)
	// Pages that were in use for a moment when first asked may come with the second.
	if now := on(); math.Abs(now-0.25) > math.Abs(before-0.25)+0.005 {
		t.Errorf("asked again: %.3f, was %.3f", now, before)
	}
	forking := testchild.Start(t, "forks")
	if err := b.cg.MovePID(path, forking.PID()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	r := ask(100)
	// Of the task: those that end take pages along, and what the forking one shares with a child that has just begun does not move.
	if got := on(); got > 0.14 || r.Kind != model.Applied || r.Now.Amount < 50 || r.Now.Amount > 140 {
		t.Errorf("while processes come and go: %.3f of the two on node %d, %+v", got, from, r)
	}
}

// A move that is ended stops where it is by then, and says how much is left: the kernel moves nothing after that.
func TestMoveEndsOnTheKernel(t *testing.T) {
	b := newBed(t, "ends")
	nodes, err := numa.ReadTopology(b.fs)
	if err != nil || len(nodes.MemoryNodes()) < 2 || len(nodes.Node(nodes.MemoryNodes()[0]).CPUs) == 0 {
		t.Skip("this machine has no two memory nodes, the first with CPUs")
	}
	path, from := b.mkdir("be-1"), nodes.MemoryNodes()[0]
	cpu := nodes.Node(from).CPUs[0]
	children := []*testchild.Child{b.grown(path, cpu), b.grown(path, cpu)}
	b.open(false)
	b.observe(model.WindowStart)
	on := func() float64 { return b.shareOn(from, children...) }
	began := on()
	if began < 0.8 {
		t.Skipf("%.2f of the pages are on node %d to begin with", began, from)
	}
	task := model.OfTask(b.tasks[path].Num)
	b.h.Apply([]model.Change{{Seq: 1, Target: task, Kind: model.Run, Value: model.Pages(0, from)}})
	b.until("the first pages to move", func() bool { return on() < began-0.1 })
	b.h.Apply([]model.Change{{Seq: 2, Target: task, Kind: model.Stop, Value: model.Ask(model.MemoryPages)}})
	var res []model.Result
	b.until("an answer", func() bool { res = b.h.Results(res); return len(res) > 0 })
	left := on()
	if len(res) != 1 || res[0].Seq != 1 || res[0].Kind != model.Applied || res[0].Error != node.ErrEnded.Error() || left < 0.05 || math.Abs(float64(res[0].Now.Amount)/1000-left) > 0.05 {
		t.Errorf("%.2f were there, %.2f are left: %+v", began, left, res)
	}
	time.Sleep(500 * time.Millisecond)
	if now := on(); math.Abs(now-left) > 0.02 {
		t.Errorf("half a second later: %.2f, then %.2f", left, now)
	}
}

// grown starts a process of a group whose memory is beside a CPU.
func (b *bed) grown(path string, cpu int) *testchild.Child {
	b.t.Helper()
	child := testchild.Start(b.t, "grow").Await("ready")
	if err := b.cg.MovePID(path, child.PID()); err != nil {
		b.t.Fatal(err)
	}
	child.Pin(cpu)
	child.Say("now")
	child.Await("grown")
	return child
}

// shareOn is how much of the anonymous memory of processes is on a node, by numa_maps: a share.
func (b *bed) shareOn(node int, children ...*testchild.Child) float64 {
	b.t.Helper()
	var there, sum uint64
	for _, child := range children {
		err := numa.ReadNumaMaps(b.fs, int32(child.PID()), func(m *numa.Mapping) error {
			if m.AnonPages > 0 {
				n, _ := m.Pages.Get(node)
				there, sum = there+n, sum+m.Pages.Total()
			}
			return nil
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if sum == 0 {
		b.t.Fatal("they have no memory")
	}
	return float64(there) / float64(sum)
}
