package kernfs_test

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// life does to a kernel what people and programs do, in any order.
type life struct {
	t     *testing.T
	rng   *rand.Rand
	k     *kernfs.Kernel
	d     cgroup.Driver
	roots []string
	pids  []int
	last  map[string]seen // by path
}

// seen is what a group said last.
type seen struct {
	inode, usage, throttled uint64
}

var places = []string{"/a", "/a/x", "/a/y", "/b", "/b/x", "/b/x/deep", "/c"}

func newLife(t *testing.T, layout cgroup.Layout, seed uint64) *life {
	k := newKernel(t, newMachine(t, seed), layout)
	l := &life{t: t, rng: rand.New(rand.NewPCG(seed, 9)), k: k, d: driver(t, k), last: map[string]seen{}}
	m, err := cgroup.Discover(k)
	must(t, err)
	l.roots = append(l.roots, m.Unified, "/sys/devices/system/cpu")
	for _, dir := range m.V1 {
		l.roots = append(l.roots, dir)
	}
	return l
}

func (l *life) place() string { return places[l.rng.IntN(len(places))] }

// step does one thing. What is refused is refused: the checks say whether that was whole.
func (l *life) step() {
	switch l.rng.IntN(12) {
	case 0, 1:
		if pid, err := l.k.Start(l.place(), cores(1+l.rng.IntN(4))); err == nil {
			l.pids = append(l.pids, pid)
		}
	case 2:
		_ = l.k.Stop(l.place())
	case 3:
		if len(l.pids) > 0 {
			_ = l.k.Kill(l.pids[l.rng.IntN(len(l.pids))])
		}
	case 4, 5:
		if len(l.pids) > 0 {
			_ = l.d.MovePID(l.place(), l.pids[l.rng.IntN(len(l.pids))])
		}
	case 6, 7:
		v := limit(1000 + l.rng.Int64N(200_000))
		if l.rng.IntN(3) == 0 {
			v = unlimited
		}
		_ = l.d.WriteCPUMax(l.place(), v)
	case 8:
		_ = l.d.WriteShares(l.place(), uint64(l.rng.IntN(4096)))
	case 9:
		_ = l.d.WriteCPUs(l.place(), []string{"", "0", "0-3", "2,5", "9-31", "99"}[l.rng.IntN(6)])
	case 10:
		_ = l.k.SetOnline(1+l.rng.IntN(31), l.rng.IntN(2) == 0)
	case 11:
		l.strange()
	}
	l.k.Advance(l.rng.Int64N(200e6))
}

// strange writes something somewhere.
func (l *life) strange() {
	dir := path.Join(l.roots[l.rng.IntN(len(l.roots))], l.place())
	list, err := l.k.ReadDir(dir)
	if err != nil || len(list) == 0 {
		return
	}
	e := list[l.rng.IntN(len(list))]
	values := []string{"0", "1", "-1", "max", "100000", "+cpu", "-cpu", "+cpu +memory", "FROZEN", "THAWED", "threaded", "1M", "0-1", "\n", "x"}
	_ = l.k.WriteFile(path.Join(dir, e.Name), []byte(values[l.rng.IntN(len(values))]))
}

// check holds the kernel to what is always true.
func (l *life) check(step int) {
	l.t.Helper()
	paths, err := l.d.List()
	must(l.t, err)
	sum := uint64(0)
	for _, p := range paths {
		g, err := l.d.Open(p)
		must(l.t, err)
		u, err := g.UsageNsec()
		must(l.t, err)
		th, err := g.Throttling()
		must(l.t, err)
		must(l.t, g.Close())
		now := seen{inode: g.Identity().Inode, usage: u, throttled: th.Own.NrThrottled}
		before := l.last[p]
		if before.inode == now.inode && (now.usage < before.usage || th.Own.HasQuota && now.throttled < before.throttled && l.d.Layout() != cgroup.LayoutV2) {
			l.t.Fatalf("step %d: %s had %+v and has %+v", step, p, before, now)
		}
		l.last[p] = now
		if strings.Count(p, "/") == 1 {
			sum += u
		}
	}
	root, err := l.d.OpenRootUsage()
	must(l.t, err)
	defer root.Close() //nolint:errcheck // reading only
	all, err := root.UsageNsec()
	must(l.t, err)
	if sum > all+20e6 { // v2's root counts by ticks
		l.t.Fatalf("step %d: groups used %d ns and the machine %d", step, sum, all)
	}
	l.limits(step)
	l.tree("/")
}

// limits compares what the machine holds each process to with the files.
func (l *life) limits(step int) {
	for _, p := range places {
		pids := l.k.PIDs(p)
		if len(pids) != 1 {
			continue
		}
		procs, err := l.d.Procs(p)
		if err != nil || len(procs) != 1 {
			continue // it is below
		}
		num, ok := l.k.Task(pids[0])
		if !ok {
			l.t.Fatalf("step %d: %s lists %d, which is none", step, p, pids[0])
		}
		got, err := l.k.Machine().CPUMax(num)
		must(l.t, err)
		own, err := l.d.ReadCPUMax(p)
		if err == nil && own.QuotaUsec >= 0 && float64(got.QuotaUsec)/float64(got.PeriodUsec) > own.Ratio()*1.001 ||
			err == nil && own.QuotaUsec >= 0 && got.QuotaUsec < 0 {
			l.t.Fatalf("step %d: %s is limited to %s, and the machine to %+v", step, p, own, got)
		}
	}
}

// tree reads every file, and counts links.
func (l *life) tree(dir string) {
	list, err := l.k.ReadDir(dir)
	must(l.t, err)
	subdirs := uint64(0)
	for _, e := range list {
		name := path.Join(dir, e.Name)
		if !e.IsDir {
			_, _ = l.k.ReadFile(name, nil) // some cannot be read, and none panics
			continue
		}
		subdirs++
		if strings.HasPrefix(name, "/sys/fs/cgroup") || dir == "/" {
			l.tree(name)
		}
	}
	links, err := l.k.Links(dir)
	must(l.t, err)
	if dir != "/" && strings.HasPrefix(dir, "/sys/fs/cgroup/") && links != 2+subdirs {
		l.t.Fatalf("%s has %d links and %d subdirectories", dir, links, subdirs)
	}
}

// Whatever is done to it, a kernel's figures only grow, add up, and agree with the machine.
func TestAnyLife(t *testing.T) {
	for _, layout := range layouts {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", layout, seed), func(t *testing.T) {
				l := newLife(t, layout, seed)
				for step := range 300 {
					l.step()
					l.check(step)
				}
			})
		}
	}
}

// FuzzWrite writes anything into any file of a kernel with a task.
func FuzzWrite(f *testing.F) {
	for _, seed := range []string{"max 100000", "20000 100000", "-1", "+cpu -memory", "0-3,8", "FROZEN", "18446744073709551615", "\x00", "+", "1-0"} {
		f.Add(true, uint16(3), []byte(seed))
		f.Add(false, uint16(11), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, v2 bool, pick uint16, data []byte) {
		layout := cgroup.LayoutHybrid
		if v2 {
			layout = cgroup.LayoutV2
		}
		l := newLife(t, layout, 1)
		for _, p := range []string{"/a/x", "/a/y", "/b"} {
			_, err := l.k.Start(p, cores(2))
			must(t, err)
		}
		for _, root := range l.roots {
			for _, p := range []string{"/a", "/a/x", "/b"} {
				list, err := l.k.ReadDir(root + p)
				if err != nil || len(list) == 0 {
					continue
				}
				_ = l.k.WriteFile(root+p+"/"+list[int(pick)%len(list)].Name, data)
			}
		}
		l.k.Advance(50e6)
		l.check(0)
	})
}
