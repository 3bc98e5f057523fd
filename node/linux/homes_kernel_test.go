package linux

import (
	"testing"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
)

// What is said of a service's pages at a window's end is what numa_maps says of its process; nothing is said between, of batch work, and where there is one node.
func TestHomesOnTheKernel(t *testing.T) {
	b := newBed(t, "homes")
	path, batch := b.mkdir("victim"), b.mkdir("be-1")
	b.homes = true
	b.open(false)
	child := testchild.Start(t, "grow").Await("ready")
	if err := b.cg.MovePID(path, child.PID()); err != nil {
		t.Fatal(err)
	}
	child.Say("now") // what a process had before it came is charged to where it was
	child.Await("grown")
	b.spin(batch)
	b.observe(model.WindowStart)
	if len(b.snap.Homes) > 0 {
		t.Errorf("in a window: %+v", b.snap.Homes)
	}
	nodes, err := numa.ReadTopology(b.fs)
	several := err == nil && len(nodes.MemoryNodes()) > 1
	mounts := b.mounts
	if several = several && (mounts.V1[cgroup.Memory] != "" || mounts.Unified != ""); !several {
		if b.observe(model.WindowEnd); len(b.snap.Homes) > 0 {
			t.Errorf("of one node: %+v", b.snap.Homes)
		}
		return
	}
	var byNode numa.Counts
	err = numa.ReadNumaMaps(b.fs, int32(child.PID()), func(m *numa.Mapping) error {
		if m.AnonPages > 0 {
			byNode = byNode.AddAll(m.Pages)
		}
		return nil
	})
	if err != nil || byNode.Total() == 0 {
		t.Fatalf("%v, %v", byNode, err)
	}
	home := byNode[0]
	for _, n := range byNode {
		if n.Count > home.Count {
			home = n
		}
	}
	b.until("where the service's pages lie", func() bool { // the kernel adds up lazily
		b.observe(model.WindowEnd)
		if len(b.snap.Homes) != 1 || b.snap.Homes[0].Num != b.tasks[path].Num {
			return false
		}
		h := &b.snap.Homes[0]
		return home.Node < len(h.Bytes) && h.Bytes[home.Node] >= home.Count*4096/2
	})
}
