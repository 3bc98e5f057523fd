package numa

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

func fixture(name string) *hostfs.Root { return hostfs.NewRoot("testdata/" + name) }

// TestFixtures holds each captured tree to what TestCapture demands of a live machine.
func TestFixtures(t *testing.T) {
	for name, v2 := range map[string]bool{"qemu-6.1": true, "qemu-6.12": true, "epyc-6.18-hybrid": false} {
		t.Run(name, func(t *testing.T) { checkTree(t, fixture(name), v2) })
	}
}

func TestFixtureTopology(t *testing.T) {
	got, err := ReadTopology(fixture("qemu-6.12"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Topology{Possible: []int{0, 1}, Online: []int{0, 1}, Nodes: []Node{
		{ID: 0, CPUs: []int{0, 1}, HasMemory: true, Distances: Counts{{0, 10}, {1, 21}}},
		{ID: 1, CPUs: []int{2, 3}, HasMemory: true, Distances: Counts{{0, 21}, {1, 10}}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	one, err := ReadTopology(fixture("epyc-6.18-hybrid"))
	if err != nil || len(one.Nodes) != 1 {
		t.Fatalf("%+v, %v", one, err)
	}
	for id, want := range map[int]bool{0: true, 1: false, -1: false, MaxNodes: false} {
		if err := one.checkMemoryNode(id); (err == nil) != want || (err != nil && !errors.Is(err, ErrNoNode)) {
			t.Errorf("node %d of a one-node machine: %v", id, err)
		}
	}
}

func TestFixtureNode(t *testing.T) {
	root := fixture("qemu-6.12")
	b, err := ReadBalancing(root)
	if b != (Balancing{TowardCPUs: true}) || err != nil {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := ReadNodeMeminfo(root, 7); !errors.Is(err, ErrNoNode) {
		t.Errorf("meminfo of a missing node: %v", err)
	}
	r := NewRoomReader(root)
	if r.Pages(0, 0) != 0 {
		t.Error("room before the first reading")
	}
	if err := r.Refresh(); err != nil || r.Pages(7, 0) != 0 {
		t.Errorf("%v, room on a missing node %d", err, r.Pages(7, 0))
	}
}

// TestFixtureAbsent: a kernel without any of it.
func TestFixtureAbsent(t *testing.T) {
	root := hostfs.NewRoot(t.TempDir())
	_, topology := ReadTopology(root)
	_, balancing := ReadBalancing(root)
	for what, err := range map[string]error{"topology": topology, "balancing": balancing, "zones": NewRoomReader(root).Refresh()} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, v2 := OpenMemoryNumaStat(root, "/gone")
	_, v1 := OpenMemoryNumaStatV1(root, "/gone")
	maps := ReadNumaMaps(root, 1, func(*Mapping) error { return nil })
	for what, err := range map[string]error{"v2": v2, "v1": v1, "numa_maps": maps} {
		if !errors.Is(err, ErrVanished) {
			t.Errorf("%s: %v", what, err)
		}
	}
	bare := writeTree(t, map[string]string{"group/cgroup.procs": ""})
	if _, err := OpenMemoryNumaStat(bare, "/group"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a group without the file: %v", err)
	}
}

// TestFixtureJoined walks maps and numa_maps together: every mapping that has pages is
// seen, with its end.
func TestFixtureJoined(t *testing.T) {
	for _, name := range []string{"qemu-6.1", "qemu-6.12", "epyc-6.18-hybrid"} {
		for _, detail := range []bool{false, true} {
			want := map[uint64]uint64{}
			if err := ReadNumaMaps(fixture(name), capturedPID, func(m *Mapping) error {
				if n := m.Pages.Total(); n > 0 {
					want[m.Start] = n
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			p, err := OpenProcess(fixture(name), capturedPID)
			if err != nil {
				t.Fatal(err)
			}
			j, err := p.openJoined(detail)
			if err != nil {
				t.Fatal(err)
			}
			special := 0
			for {
				a, m, err := j.next()
				if err != nil {
					t.Fatal(err)
				}
				if m == nil {
					break
				}
				if n := m.Pages.Total(); n > 0 && n*m.UnitBytes > a.end-a.start {
					t.Errorf("%s: %x-%x has %d pages", name, a.start, a.end, n)
				}
				if a.special {
					special++
				}
				delete(want, a.start)
			}
			if len(want) != 0 {
				t.Errorf("%s, smaps %v: not seen: %v", name, detail, want)
			}
			if detail != (special > 0) {
				t.Errorf("%s, smaps %v: %d special mappings; [vvar] is one", name, detail, special)
			}
			if err := errors.Join(j.close(), p.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}
