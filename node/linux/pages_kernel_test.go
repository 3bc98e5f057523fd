package linux

import (
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
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
	on := func(node int) float64 { // share of its anonymous pages
		var there, sum uint64
		err := numa.ReadNumaMaps(b.fs, int32(child.PID()), func(m *numa.Mapping) error {
			if m.AnonPages > 0 {
				n, _ := m.Pages.Get(node)
				there, sum = there+n, sum+m.Pages.Total()
			}
			return nil
		})
		if err != nil || sum == 0 {
			t.Fatalf("%d pages, %v", sum, err)
		}
		return float64(there) / float64(sum)
	}
	list := nodes.MemoryNodes()
	for i, from := range []int{list[0], list[1], list[0]} {
		if other := nodes.Node(list[1-i%2]); len(other.CPUs) > 0 {
			child.Pin(other.CPUs[0]) // automatic balancing takes pages to where their threads run
		}
		r := ask(from, model.Applied)
		// What is in use at that moment stays, and what the child touches anew; before 6.6 also pages that automatic
		// balancing has marked, until they are touched again.
		if share := on(from); share > 0.3 || r.Now.Amount > 300 || !r.Now.CPUs.Has(from) {
			t.Errorf("move %d, off node %d: %.2f of its pages are there; %+v", i, from, share, r)
		}
	}
	child.End()
	b.until("the end of its process", func() bool {
		time.Sleep(10 * time.Millisecond)
		return strings.Contains(ask(list[0], model.Refused).Error, "no processes")
	})
}
