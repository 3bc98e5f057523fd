package kernfs_test

import (
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// idleTask has 2 GiB of page cache and 3 GiB of anonymous memory of which half are hardly used, and some that is locked.
func idleTask() machine.TaskConfig {
	c := bystander()
	c.AgedNsec = 48 * 3600e9
	c.Memory = []machine.Heat{
		{Bytes: gib, EveryNsec: 20e9}, {Bytes: 2 * gib, EveryNsec: 72 * 3600e9}, {Bytes: gib, EveryNsec: 60e9, File: true}, {Bytes: gib, EveryNsec: 24 * 3600e9, File: true},
		{Bytes: gib, EveryNsec: 72 * 3600e9, File: true, Locked: true},
	}
	return c
}

// agesBed is a kernel with some idle tasks, and a host that reads ages for thresholds of a quarter and half an hour.
func agesBed(t *testing.T, layout cgroup.Layout, swap float64, paths ...string) (*kernfs.Kernel, *linux.Host) {
	t.Helper()
	return zswapBed(t, layout, swap, 0, paths...)
}

// zswapBed is agesBed where zswap keeps a share of what goes to swap.
func zswapBed(t *testing.T, layout cgroup.Layout, swap, share float64, paths ...string) (*kernfs.Kernel, *linux.Host) {
	t.Helper()
	c := machine.Skylake()
	c.ZswapShare = share
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore, c.MemBytes, c.SwapBytes, c.StepNsec = 1, 4, 1, 256*gib, swap, 1e9
	m, err := machine.New(c, 3)
	must(t, err)
	k, err := kernfs.New(m, kernfs.Options{Layout: layout})
	must(t, err)
	for _, path := range paths {
		started(t, k, path, idleTask())
	}
	rules, err := match.Compile(crowdRules)
	must(t, err)
	j, err := journal.Create(filepath.Join(t.TempDir(), "journal"), "boot")
	must(t, err)
	h, err := linux.Open(linux.Options{
		FS: k, Rules: rules, Journal: j, Log: slog.New(slog.DiscardHandler), Delay: k.Taskstats(), Opener: k.Counters(), Clock: k, InUse: true,
		DiscoverEvery: 30 * time.Second, Ages: model.AskedAges{ShortestNsec: 900e9, LongestNsec: 1800e9}, Beside: func(work func()) { work() },
	})
	must(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return k, h
}

// read plays two hours and returns the last ages of each task, and how often each was read.
func read(t *testing.T, k *kernfs.Kernel, h *linux.Host) (last map[model.TaskNum]model.PageAges, times map[model.TaskNum]int) {
	t.Helper()
	return readEach(t, k, h, 30e9)
}

// readEach is read with windows of so many ns.
func readEach(t *testing.T, k *kernfs.Kernel, h *linux.Host, window int64) (last map[model.TaskNum]model.PageAges, times map[model.TaskNum]int) {
	t.Helper()
	last, times = map[model.TaskNum]model.PageAges{}, map[model.TaskNum]int{}
	for range 7200e9 / window {
		var s model.Snapshot
		must(t, h.Observe(model.WindowStart|model.WindowEnd, &s))
		for _, a := range s.Ages {
			last[a.Num] = a
			times[a.Num]++
		}
		k.Advance(window)
	}
	return last, times
}

// Walks are so far apart as the ages that are asked for, and no less, however windows fall: with a walk that comes a second too soon nothing is old enough.
func TestAgesReachTheThreshold(t *testing.T) {
	for _, window := range []int64{10e9, 7e9} {
		k, h := agesBed(t, cgroup.LayoutV2, 16*gib, "/a-web-1")
		last, _ := readEach(t, k, h, window)
		for _, a := range last {
			if half := a.Anon[model.AgeEdge(1800e9)]; half < gib {
				t.Errorf("windows of %d s: %d bytes were not used for half an hour: %v", window/1e9, half, a.Anon)
			}
		}
		if len(last) == 0 {
			t.Error("nobody tells ages")
		}
	}
}

// The driver on simulated generations tells what lay idle for the two ages that are asked for, with two walks in half an hour, and what is older than one of
// them is given back and no more: what is locked stays, and whose group is gone gives nothing.
func TestAgesAndEviction(t *testing.T) {
	k, h := agesBed(t, cgroup.LayoutV2, 16*gib, "/a-web-1")
	last, times := read(t, k, h)
	var num model.TaskNum
	for n := range last {
		num = n
	}
	a := last[num]
	if times[num] < 7 || times[num] > 9 || a.Source != "mglru" {
		t.Fatalf("read %d times in two hours, by %q", times[num], a.Source)
	}
	half, quarter := model.AgeEdge(1800e9), model.AgeEdge(900e9)
	for _, c := range []struct {
		what string
		got  uint64
		want float64 // GiB; those in use are seldom older
	}{{"anonymous, half an hour", a.Anon[half], 2 * 0.99}, {"anonymous, a quarter", a.Anon[quarter], 2 * 0.99}, {"file", a.File[quarter], 0.98}} {
		if got := float64(c.got) / gib; math.Abs(got-c.want) > 0.05 {
			t.Errorf("%s: %.3f GiB, want %.3f", c.what, got, c.want)
		}
	}
	run := func(ask model.Setting) model.Result {
		t.Helper()
		res := node.Do(h, model.Change{Seq: 1, Target: model.OfTask(num), Kind: model.Run, Value: ask})
		if len(res) != 1 {
			t.Fatalf("%+v", res)
		}
		return res[0]
	}
	if r := run(model.ReclaimCold(4*gib, model.FilePages, 900e9)); r.Kind != model.Applied || math.Abs(float64(r.Now.Amount)/gib-0.98) > 0.05 || r.Now.Pages != model.FilePages || r.Now.OlderNsec != 900e9 {
		t.Errorf("file pages: %+v", r)
	}
	if r := run(model.ReclaimCold(4*gib, model.FilePages, 900e9)); r.Kind != model.Applied || r.Now.Amount > gib/100 {
		t.Errorf("nothing is left but what is locked: %+v", r)
	}
	if r := run(model.ReclaimCold(gib/2, model.AnonPages, 1800e9)); r.Kind != model.Applied || math.Abs(float64(r.Now.Amount)/gib-0.5) > 0.05 {
		t.Errorf("anonymous pages: %+v", r)
	}
	must(t, k.Stop("/a-web-1"))
	if r := run(model.ReclaimCold(gib, model.AnonPages, 1800e9)); r.Kind == model.Applied {
		t.Errorf("of a group that is gone: %+v", r)
	}
}

// Where zswap keeps a share of what is taken, as much is taken as was asked for and no more, what came free is told beside it, and by both means; both
// seams say the same.
func TestReclaimToZswap(t *testing.T) {
	const share = 0.6
	k, h := zswapBed(t, cgroup.LayoutV2, 16*gib, share, "/a-web-1")
	last, _ := read(t, k, h)
	var num model.TaskNum
	for n := range last {
		num = n
	}
	charged := func() float64 {
		var s model.Snapshot
		must(t, h.Observe(model.WindowStart|model.WindowEnd, &s))
		return float64(s.Tasks[0].C[model.CountMemory].Value)
	}
	for _, ask := range []model.Setting{model.ReclaimCold(gib, model.AnonPages, 1800e9), model.ReclaimCold(gib/2, model.AnonPages, 0)} {
		before := charged()
		res := node.Do(h, model.Change{Seq: 1, Target: model.OfTask(num), Kind: model.Run, Value: ask})
		if len(res) != 1 || res[0].Kind != model.Applied {
			t.Fatalf("%+v", res)
		}
		now, fell := res[0].Now, before-charged()
		if taken := float64(now.Amount) / float64(ask.Amount); taken < 0.98 || taken > 1.02 || math.Abs(float64(now.Kept)-share*float64(now.Amount)) > 0.02*gib ||
			math.Abs(fell-float64(now.Amount-now.Kept)) > 0.02*gib {
			t.Errorf("asked for %v: %v; the group is charged %.3f GiB less", ask, now, fell/gib)
		}
	}
}

// Without swap anonymous pages stay, and ages are told for file pages' sake; on cgroup v1 the ages are told and reclaim is refused.
func TestAgesWithoutSwapOrReclaim(t *testing.T) {
	k, h := agesBed(t, cgroup.LayoutV2, 0, "/a-web-1")
	last, times := read(t, k, h)
	for num, a := range last {
		if times[num] < 7 || a.File[model.AgeEdge(900e9)] < gib/2 {
			t.Errorf("%d times, %+v", times[num], a)
		}
		res := node.Do(h, model.Change{Seq: 1, Target: model.OfTask(num), Kind: model.Run, Value: model.ReclaimCold(gib, model.AnonPages, 900e9)})
		if len(res) != 1 || res[0].Kind != model.Refused || !strings.Contains(res[0].Error, reclaim.ErrNoRoom.Error()) {
			t.Errorf("without swap: %+v", res)
		}
	}
	k, h = agesBed(t, cgroup.LayoutHybrid, 16*gib, "/a-web-1")
	last, _ = read(t, k, h)
	for num := range last {
		res := node.Do(h, model.Change{Seq: 1, Target: model.OfTask(num), Kind: model.Run, Value: model.ReclaimCold(gib, model.FilePages, 900e9)})
		if len(res) != 1 || res[0].Kind != model.Refused || !strings.Contains(res[0].Error, reclaim.ErrNoReclaim.Error()) {
			t.Errorf("on v1: %+v", res)
		}
	}
	if len(last) == 0 {
		t.Error("nobody tells ages on v1")
	}
}

// Commands that the kernel does not take.
func TestLRUGenRefuses(t *testing.T) {
	k, _ := agesBed(t, cgroup.LayoutV2, 0, "/a-web-1")
	for _, text := range []string{"x", "+ 1 0", "+ 99999 0 1 1 1", "- 1 0 1 200 5", "- 1 0 0 999 5", "+ a 0 1 1", "* 1 0 1 1 1"} {
		if err := k.WriteFile("/sys/kernel/debug/lru_gen", []byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// slowWalks is a kernel whose walks take a while, which its clock shows.
type slowWalks struct {
	*kernfs.Kernel
	walk, spent int64  // ns
	reads       int    // of the list of generations
	uptime      string // "": the kernel's own
}

func (s *slowWalks) ReadFile(path string, buf []byte) ([]byte, error) {
	switch {
	case strings.HasSuffix(path, "debug/lru_gen"):
		s.reads++
	case path == "/proc/uptime" && s.uptime != "":
		return append(buf[:0], s.uptime...), nil
	}
	return s.Kernel.ReadFile(path, buf)
}

func (s *slowWalks) WriteFile(path string, data []byte) error {
	if strings.HasSuffix(path, "lru_gen") {
		s.spent += s.walk
	}
	return s.Kernel.WriteFile(path, data)
}

func (s *slowWalks) MonoNsec() int64 { return s.Kernel.MonoNsec() + s.spent }

// However long walks take, they have less than half a per cent of a CPU; where they are short each task is read when it is due. The list of all groups is
// read twice for all tasks of a turn.
func TestAgesAreCheap(t *testing.T) {
	const tasks = 30
	for _, c := range []struct {
		walk   time.Duration
		lo, hi float64 // readings of a task in two hours
	}{{20 * time.Millisecond, 7, 9}, {2 * time.Second, 0.2, 1.5}} {
		var paths []string
		for i := range tasks {
			paths = append(paths, fmt.Sprintf("/a-web-%d", i))
		}
		k, _ := agesBed(t, cgroup.LayoutV2, 16*gib, paths...)
		s := &slowWalks{Kernel: k, walk: c.walk.Nanoseconds()}
		h := s.host(t)
		_, times := read(t, k, h)
		_ = h.Close() // it only read
		sum := 0
		for _, n := range times {
			sum += n
		}
		share, each := float64(s.spent)/float64(s.MonoNsec()), float64(sum)/tasks
		if s.reads*3 > sum && each > 1.5 {
			t.Errorf("the list was read %d times for %d readings of tasks", s.reads, sum)
		}
		if share > 0.005 || each < c.lo || each > c.hi || len(times) < tasks && c.lo > 1 {
			t.Errorf("walks of %s: %.3f %% of a CPU, %d tasks read %.1f times each", c.walk, 100*share, len(times), each)
		}
	}
}

// switchedOff is a kernel whose multi-generational LRU is.
type switchedOff struct{ *kernfs.Kernel }

func (s switchedOff) ReadFile(path string, buf []byte) ([]byte, error) {
	if path == "/sys/kernel/mm/lru_gen/enabled" {
		return append(buf[:0], "0x0000\n"...), nil
	}
	return s.Kernel.ReadFile(path, buf)
}

// Why no ages are told is said where somebody asks for them.
func TestSaysWhyNoAges(t *testing.T) {
	k, told := agesBed(t, cgroup.LayoutV2, 16*gib, "/a-web-1")
	rules, err := match.Compile(crowdRules)
	must(t, err)
	asks := model.AskedAges{ShortestNsec: 900e9, LongestNsec: 1800e9}
	why := func(asked model.AskedAges) string {
		t.Helper()
		h, err := linux.Open(linux.Options{
			FS: switchedOff{k}, Rules: rules, Log: slog.New(slog.DiscardHandler), Delay: k.Taskstats(), Opener: k.Counters(), Clock: k, DiscoverEvery: 30 * time.Second, Ages: asked,
		})
		must(t, err)
		must(t, h.Close())
		return h.NoAges()
	}
	if off, unasked := why(asks), why(model.AskedAges{}); told.NoAges() != "" || unasked != "" || !strings.Contains(off, "switched off") {
		t.Errorf("on: %q, off: %q, off and nobody asks: %q", told.NoAges(), off, unasked)
	}
}

// host is one that reads ages of this kernel.
func (s *slowWalks) host(t *testing.T) *linux.Host {
	t.Helper()
	rules, err := match.Compile(crowdRules)
	must(t, err)
	h, err := linux.Open(linux.Options{
		FS: s, Rules: rules, Log: slog.New(slog.DiscardHandler), Delay: s.Taskstats(), Opener: s.Counters(), Clock: s,
		DiscoverEvery: 30 * time.Second, Ages: model.AskedAges{ShortestNsec: 900e9, LongestNsec: 1800e9}, Beside: func(work func()) { work() },
	})
	must(t, err)
	return h
}

// Ages above what the machine has run for are no ages, and it is said of whom; once they can be it is over.
func TestImpossibleAgesAreTold(t *testing.T) {
	k, _ := agesBed(t, cgroup.LayoutV2, 16*gib, "/a-web-1")
	k.Advance(60e9)
	s := &slowWalks{Kernel: k, uptime: "25.00 1.00\n"}
	h := s.host(t)
	defer h.Close() //nolint:errcheck // it only read
	last, _ := read(t, k, h)
	if told := strings.Join(h.Warnings(nil), "; "); len(last) > 0 || !strings.Contains(told, "a-web-1") || !strings.Contains(told, "the machine has run for 25s") {
		t.Errorf("%+v, and it says %q", last, told)
	}
	s.uptime = ""
	last, _ = read(t, k, h)
	if told := h.Warnings(nil); len(last) != 1 || len(told) > 0 {
		t.Errorf("%+v, and it says %q", last, told)
	}
}

// With ages it is told what memory.swap.max leaves of swap.
func TestAgesTellSwapLimit(t *testing.T) {
	k, h := agesBed(t, cgroup.LayoutV2, 16*gib, "/a-web-1", "/b-free")
	must(t, k.WriteFile("/sys/fs/cgroup/a-web-1/memory.swap.max", []byte("0\n")))
	last, _ := read(t, k, h)
	limited := 0
	for _, a := range last {
		if a.AnonRoom > 0 {
			t.Errorf("%+v", a)
		}
		if a.Limited {
			limited++
		}
	}
	if len(last) != 2 || limited != 1 {
		t.Errorf("%d of %d tasks are limited", limited, len(last))
	}
}
