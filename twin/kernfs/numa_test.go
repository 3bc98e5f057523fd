package kernfs_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/kernel/numa/numatest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// numaBed is the rig's machine simulated.
type numaBed struct{ k *kernfs.Kernel }

func newNumaBed(t testing.TB, layout cgroup.Layout) *numaBed {
	t.Helper()
	k, err := kernfs.New(rigMachine(t, 1), kernfs.Options{Layout: layout, PMU: true})
	if err != nil {
		t.Fatal(err)
	}
	return &numaBed{k}
}

func (b *numaBed) FS() hostfs.FS     { return b.k }
func (b *numaBed) Calls() numa.Calls { return b.k.PageCalls() }

func (b *numaBed) Group(t testing.TB, name string) (string, bool) {
	t.Helper()
	v2 := b.k.Layout() == cgroup.LayoutV2
	dir := "/sys/fs/cgroup/" + name
	if !v2 {
		dir = "/sys/fs/cgroup/memory/" + name
	}
	if err := b.k.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, v2
}

// remembers is a task that has so many pages, all on a node.
func remembers(pages, node int) machine.TaskConfig {
	c := bystander()
	c.Name = "pages"
	c.Memory = []machine.Heat{{Bytes: float64(pages) * 4096}}
	c.Pages = make([]float64, node+1)
	c.Pages[node] = 1
	return c
}

func (b *numaBed) Spawn(t testing.TB, group string, pages, node int) numatest.Process {
	t.Helper()
	pid, err := b.k.Spawn(remembers(pages, node))
	if err == nil && group != "" {
		err = b.k.WriteFile(group+"/cgroup.procs", fmt.Appendln(nil, pid))
	}
	if err != nil {
		t.Fatal(err)
	}
	p := numatest.Process{PID: int32(pid), Pages: pages, End: func() { _ = b.k.Kill(pid) }}
	t.Cleanup(p.End)
	err = numa.ReadNumaMaps(b.k, p.PID, func(m *numa.Mapping) error {
		if m.AnonPages > 0 {
			p.Anon = m.Start
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The suite that real kernels pass.
func TestNumaConforms(t *testing.T) {
	for _, layout := range []cgroup.Layout{cgroup.LayoutV2, cgroup.LayoutHybrid} {
		t.Run(layout.String(), func(t *testing.T) { numatest.Conform(t, newNumaBed(t, layout)) })
	}
}

// Pages that come nearer make a task faster; what the machine is told without files shows in
// the files.
func TestMovedPagesActOnPhysics(t *testing.T) {
	b := newNumaBed(t, cgroup.LayoutV2)
	c := antagonist()
	c.Threads, c.Work, c.Overlap = 1, &machine.Work{}, 1
	c.CPUs.Add(0)
	c.Pages = []float64{0, 1}
	pid, err := b.k.Spawn(c)
	if err != nil {
		t.Fatal(err)
	}
	num, _ := b.k.Task(pid)
	m := b.k.Machine()
	cpi := func() float64 {
		before, _ := m.Counters(num)
		b.k.Advance(2e9)
		after, _ := m.Counters(num)
		return float64(after.Cycles-before.Cycles) / float64(after.Instructions-before.Instructions)
	}
	b.k.Advance(2e9)
	far := cpi()
	mover := numa.NewMover(b.k, b.k.PageCalls(), numa.MoverConfig{})
	defer mover.Close() //nolint:errcheck // nothing is open
	if err := mover.Start([]numa.Target{{PID: int32(pid), Shares: []numa.Share{{Node: 0, Parts: 1}}}}); err != nil {
		t.Fatal(err)
	}
	for {
		r, err := mover.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.Stop == numa.StopDone {
			break
		}
	}
	if pages, err := m.Pages(num); err != nil || pages[0] != 1 {
		t.Errorf("the machine has the pages on %v, %v", pages, err)
	}
	if near := cpi(); !(near < 0.9*far) {
		t.Errorf("CPI %.2f with its pages on its own node, %.2f before", near, far)
	}
	if err := m.SetPages(num, []float64{1, 3}); err != nil {
		t.Fatal(err)
	}
	counts := anonOf(t, b.k, int32(pid))
	if a, _ := counts.Get(0); a*4 != counts.Total() {
		t.Errorf("numa_maps: %v after a quarter was left on node 0", counts)
	}
}

// A host leaves as many of a task's pages where they are as is asked for, of all its processes together, and says what is left; a task that has
// less there than may stay is not touched, and what may not be moved is said.
func TestHostMovesPages(t *testing.T) {
	for _, layout := range []cgroup.Layout{cgroup.LayoutV2, cgroup.LayoutHybrid} {
		t.Run(layout.String(), func(t *testing.T) {
			b := newNumaBed(t, layout)
			group, _ := b.Group(t, "c-stream")
			full, little := b.Spawn(t, "", 4000, 0), b.Spawn(t, "", 1000, 1)
			dir := group
			if layout != cgroup.LayoutV2 {
				dir = "/sys/fs/cgroup/cpu/c-stream"
			}
			_ = b.k.Mkdir(dir, 0o755) // on v1 each hierarchy has its own
			for _, p := range []numatest.Process{full, little} {
				if err := b.k.WriteFile(dir+"/cgroup.procs", fmt.Appendln(nil, p.PID)); err != nil {
					t.Fatal(err)
				}
			}
			h := openNode(t, b.k, filepath.Join(t.TempDir(), "journal"))
			var snap model.Snapshot
			if err := h.Observe(model.WindowStart, &snap); err != nil {
				t.Fatal(err)
			}
			ask := func(perMille int64, nodes ...int) model.Result {
				t.Helper()
				res := node.Do(h, model.Change{Seq: 1, Target: model.OfTask(snap.Added[0].Num), Kind: model.Run, Value: model.Pages(perMille, nodes...)})
				if len(res) != 1 {
					t.Fatalf("%+v", res)
				}
				return res[0]
			}
			on := func(p numatest.Process) [2]uint64 {
				c := anonOf(t, b.k, p.PID)
				a, _ := c.Get(0)
				o, _ := c.Get(1)
				return [2]uint64{a, o}
			}
			if r := ask(250, 0); r.Kind != model.Applied || r.Error != "" || r.Now != model.Pages(250, 0) {
				t.Errorf("%+v; 1250 of 5000 pages are to be left there", r)
			}
			if a, l := on(full), on(little); a != [2]uint64{1250, 2750} || l != [2]uint64{0, 1000} {
				t.Errorf("pages on the nodes: %v and %v", a, l)
			}
			if r := ask(900, 0); r.Kind != model.Applied || r.Now != model.Pages(250, 0) {
				t.Errorf("more may stay than is there: %+v", r)
			}
			if r := ask(0, 0, 1); r.Kind != model.Refused || !strings.Contains(r.Error, "no other memory node") {
				t.Errorf("off all nodes: %+v", r)
			}
			full.End()
			little.End()
			if r := ask(0, 0); r.Kind != model.Refused || !strings.Contains(r.Error, "no processes") {
				t.Errorf("nobody is there: %+v", r)
			}
		})
	}
}

func anonOf(t testing.TB, fsys hostfs.FS, pid int32) numa.Counts {
	t.Helper()
	var counts numa.Counts
	err := numa.ReadNumaMaps(fsys, pid, func(m *numa.Mapping) error {
		if m.AnonPages > 0 {
			counts = counts.AddAll(m.Pages)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// A node outside cpuset.mems is refused by name, and pages follow a change of it.
func TestCpusetMems(t *testing.T) {
	b := newNumaBed(t, cgroup.LayoutV2)
	dir, _ := b.Group(t, "mems")
	mems := func(list string) {
		if err := b.k.WriteFile(dir+"/cpuset.mems", []byte(list)); err != nil {
			t.Fatal(err)
		}
	}
	mems("0")
	p := b.Spawn(t, dir, 100, 0)
	batch := numa.NewBatch(b.k.PageCalls(), 1)
	batch.Add(p.Anon, 1)
	if _, err := batch.Move(p.PID); !errors.Is(err, numa.ErrNodeNotAllowed) {
		t.Errorf("outside the cpuset: %v", err)
	}
	mems("1")
	if counts := anonOf(t, b.k, p.PID); counts.String() != "N1=100" {
		t.Errorf("the pages did not follow: %v", counts)
	}
}

// A node takes no more than it has, and none that the kernel keeps.
func TestNodeFills(t *testing.T) {
	b := newNumaBed(t, cgroup.LayoutV2)
	const pages = 200_000 // of 262144 a node
	a := b.Spawn(t, "", pages, 0)
	b.Spawn(t, "", pages, 1)
	left, err := numa.MigrateProcess(b.k.PageCalls(), a.PID, cpus.Of(0), cpus.Of(1))
	if err != nil || left < 100_000 || left >= pages {
		t.Errorf("%d left, %v", left, err)
	}
	batch := numa.NewBatch(b.k.PageCalls(), 1)
	batch.Add(a.Anon+(pages-1)*4096, 1)
	if _, err := batch.Move(a.PID); !errors.Is(err, numa.ErrNodeFull) {
		t.Errorf("a page more: %v", err)
	}
	mem, err := numa.ReadNodeMeminfo(b.k, 1)
	if err != nil || mem.FreeBytes != 0 {
		t.Errorf("%+v, %v", mem, err)
	}
}

// Names in files of a process cannot break their lines.
func TestNamesAreEscaped(t *testing.T) {
	b := newNumaBed(t, cgroup.LayoutV2)
	c := remembers(10, 0)
	c.Name = "a b) R\n/x"
	pid, err := b.k.Spawn(c)
	if err != nil {
		t.Fatal(err)
	}
	maps, err := b.k.ReadFile("/proc/"+strconv.Itoa(pid)+"/numa_maps", nil)
	if err != nil || strings.Count(string(maps), "\n") != 2 || anonOf(t, b.k, int32(pid)).Total() != 10 {
		t.Errorf("%q, %v", maps, err)
	}
}
