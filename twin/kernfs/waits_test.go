package kernfs_test

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/schedwait"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// small is a machine on which services wait.
func small(t testing.TB) *machine.Machine {
	t.Helper()
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = 1, 4, 1
	m, err := machine.New(c, 3)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func crowd() map[string]machine.TaskConfig {
	web := service()
	web.Threads, web.Requests.PerSecond, web.Requests.Instructions = 6, 400, 4e6
	hog, quiet := bystander(), bystander()
	hog.Threads, hog.Shares = 4, 4096
	quiet.Threads, quiet.Work = 1, &machine.Work{Phases: []machine.Phase{{Nsec: 1e9, CPUs: 0.3}}}
	kworker := quiet
	kworker.Kernel, kworker.Work = true, &machine.Work{Phases: []machine.Phase{{Nsec: 1e9, CPUs: 0.4}}}
	return map[string]machine.TaskConfig{"/a-web-1": web, "/b-hog": hog, "/b-quiet": quiet, "/other": hog, "/kworker": kworker, "/ksoftirqd": kworker}
}

var crowdRules = []match.Rule{
	{Glob: "/a-web-*", Job: "web", Class: model.LC, Production: true}, {Glob: "/b-*", Job: "be", Class: model.BE, Importance: model.BestEffort},
}

func openWaiting(t testing.TB, k *kernfs.Kernel) *linux.Host {
	t.Helper()
	compiled, err := match.Compile(crowdRules)
	if err != nil {
		t.Fatal(err)
	}
	h, err := linux.Open(linux.Options{
		FS: k, Rules: compiled, Log: slog.New(slog.DiscardHandler), Delay: k.Taskstats(), Opener: k.Counters(), Clock: k, Waits: k.Waits(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// Through files of either layout a window's waits are those of the typed seam, to the nanosecond,
// under the same tasks, with what no rule speaks of by name, kernel threads and what takes CPUs from all; and they are what taskstats counts.
func TestWaitsOnBothSeams(t *testing.T) {
	paths := []string{"/a-web-1", "/b-hog", "/b-quiet", "/other", "/kworker", "/ksoftirqd"}
	take := func(m *machine.Machine) {
		t.Helper()
		for by, cpus := range map[machine.Taker]string{machine.SoftIRQ: "0", machine.Steal: "0-2"} {
			set, _ := model.ParseCPUSet(cpus)
			if err := m.Take(by, set, 0.2); err != nil {
				t.Fatal(err)
			}
		}
	}
	see := func(h node.Host, advance func()) (all []model.Snapshot) {
		t.Helper()
		for _, mark := range []model.WindowMark{model.WindowStart, model.WindowEnd, model.WindowStart, model.WindowEnd | model.WindowStart, model.WindowEnd} {
			var snap model.Snapshot
			if err := h.Observe(mark, &snap); err != nil {
				t.Fatal(err)
			}
			snap.Waiting = model.CloneWaiting(nil, snap.Waiting)
			all = append(all, snap)
			advance()
		}
		return all
	}
	ty := twin.NewHost(small(t), false)
	for _, path := range paths {
		cfg, start := crowd()[path], ty.Start
		if !strings.HasPrefix(path, "/a") && !strings.HasPrefix(path, "/b") {
			start = ty.StartUnmanaged
		}
		task := model.Task{Path: path, Class: model.BE}
		if path == "/a-web-1" {
			task.Class = model.LC
		}
		cfg.Name = "p" + path[1:]
		if _, err := start(task, cfg); err != nil {
			t.Fatal(err)
		}
	}
	take(ty.Machine())
	want := see(ty, func() { ty.Machine().Advance(1e9) })
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			k := newKernel(t, small(t), layout)
			for _, path := range paths {
				cfg := crowd()[path]
				cfg.Name = "p" + path[1:]
				if _, err := k.Start(path, cfg); err != nil {
					t.Fatal(err)
				}
			}
			take(k.Machine())
			got := see(openWaiting(t, k), func() { k.Advance(1e9) })
			for i := range got {
				if diff := cmp.Diff(want[i].Waiting, got[i].Waiting, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("reading %d (-typed +files):\n%s", i, diff)
				}
				if ended := got[i].Mark&model.WindowEnd != 0; ended != (len(got[i].Waiting) == 1) {
					t.Errorf("reading %d: %+v", i, got[i].Waiting)
				}
				for _, c := range []model.TaskCounter{model.CountWaited, model.CountWaitedForeign, model.CountWaitP99} {
					if want[i].Tasks[0].C[c] != got[i].Tasks[0].C[c] {
						t.Errorf("reading %d: counter %d is %+v, typed %+v", i, c, got[i].Tasks[0].C[c], want[i].Tasks[0].C[c])
					}
				}
			}
			w := got[3].Waiting[0]
			delay := got[3].Tasks[0].C[model.CountDelay].Value - got[2].Tasks[0].C[model.CountDelay].Value
			if math.Abs(float64(w.Nsec)-float64(delay)) > 8 || w.P99Nsec <= 0 || w.Foreign() < w.Nsec/2 {
				t.Errorf("%+v, and taskstats has %d ns", w, delay)
			}
			named := map[model.WaitParty]bool{}
			for _, s := range w.Shares {
				named[s.Party] = s.Process == map[model.WaitParty]string{model.WaitUnmanaged: "pother", model.WaitKernel: "pkworker"}[s.Party]
			}
			for _, party := range []model.WaitParty{model.WaitUnmanaged, model.WaitKernel, model.WaitSoftIRQ, model.WaitSteal} {
				if !named[party] {
					t.Errorf("%s is not named: %+v", party, w.Shares)
				}
			}
			if steal, stole := got[3].Node.C[model.CountSteal].Value, want[3].Node.C[model.CountSteal].Value; steal == 0 || steal > stole || stole-steal > 1e7 {
				t.Errorf("%d ns are stolen, typed %d", steal, stole)
			}
		})
	}
}

// Who moves, ends or begins in the midst of a window is charged as what it was; nothing is lost.
func TestWaitsOfThoseWhoMove(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			k := newKernel(t, small(t), layout)
			pids := map[string]int{}
			for i, path := range []string{"/a-web-1", "/a-web-1/inner", "/b-hog", "/b-other", "/nobody"} {
				if i == 0 && layout == cgroup.LayoutV2 {
					continue // processes are in leaves there
				}
				cfg := crowd()["/b-hog"]
				if i < 2 {
					cfg = crowd()["/a-web-1"]
				}
				cfg.Name = fmt.Sprintf("p%d", i)
				pid, err := k.Start(path, cfg)
				if err != nil {
					t.Fatal(err)
				}
				pids[path] = pid
			}
			s := k.Waits()
			inode := func(path string) uint64 {
				n, err := driver(t, k).Inode(path)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			check(s.SetGroups([]schedwait.Group{{Cgroup: inode("/a-web-1"), Task: 1, Watched: true}, {Cgroup: inode("/b-hog"), Task: 2}, {Cgroup: inode("/b-other"), Task: 3}}))
			check(s.Start())
			var r schedwait.Reading
			read := func() map[schedwait.Party]int64 {
				t.Helper()
				check(s.Read(&r, 0))
				if len(r.Tasks) != 1 || r.Tasks[0].Task != 1 {
					t.Fatalf("%+v", r.Tasks)
				}
				got, sum := map[schedwait.Party]int64{}, int64(0)
				for _, x := range r.Tasks[0].Shares {
					got[x.Party] += x.Nsec
					sum += x.Nsec
				}
				if sum != r.Tasks[0].Nsec[0] {
					t.Errorf("shares add up to %d of %d ns", sum, r.Tasks[0].Nsec[0])
				}
				return got
			}
			k.Advance(1e9)
			if got := read(); got[schedwait.TaskParty(2)] == 0 || got[schedwait.TaskParty(3)] == 0 || got[schedwait.Unmanaged] == 0 {
				t.Errorf("%v", got)
			}
			k.Advance(5e8)
			check(k.WriteFile(procsOf(k, "/b-other"), fmt.Appendf(nil, "%d", pids["/b-hog"])))
			k.Advance(5e8)
			check(k.Kill(pids["/b-other"]))
			check(k.Kill(pids["/nobody"]))
			got := read()
			if hog, other := got[schedwait.TaskParty(2)], got[schedwait.TaskParty(3)]; hog == 0 || other < 2*hog || got[schedwait.Unmanaged] == 0 {
				t.Errorf("one that moved half way: %v", got)
			}
			k.Advance(1e9)
			if got := read(); got[schedwait.TaskParty(2)]+got[schedwait.Unmanaged] != 0 || got[schedwait.TaskParty(3)] == 0 {
				t.Errorf("after the others ended: %v", got)
			}
			check(s.Stop())
			k.Advance(1e9)
			if got := read(); len(got) != 0 {
				t.Errorf("while nothing is measured: %v", got)
			}
			second := k.Waits()
			if err := s.Read(&r, 0); err == nil {
				t.Error("a source that another has taken the place of still measures")
			}
			check(second.Close())
		})
	}
}

func procsOf(k *kernfs.Kernel, path string) string {
	if k.Layout() == cgroup.LayoutV2 {
		return "/sys/fs/cgroup" + path + "/cgroup.procs"
	}
	return "/sys/fs/cgroup/cpu" + path + "/cgroup.procs"
}

// The machine counts waits by the classes of length that the kernel's programs have.
func TestClassesOfLength(t *testing.T) {
	if machine.WaitClasses != schedwait.Buckets {
		t.Fatalf("%d classes, %d", machine.WaitClasses, schedwait.Buckets)
	}
	for i := range schedwait.Buckets - 3 {
		for _, nsec := range []int64{schedwait.BucketNsec(i), schedwait.BucketNsec(i+1) - 1} {
			if got := machine.ClassOf(float64(nsec)); got != i {
				t.Errorf("%d ns are of class %d, want %d", nsec, got, i)
			}
		}
		w := machine.Waits{Wakeups: 1}
		w.Lengths[i] = 1
		if d := schedwait.Distribution(w.Lengths); w.Quantile(0.99) != d.Quantile(0.99) {
			t.Errorf("class %d: the machine's quantile is %d, the kernel's %d", i, w.Quantile(0.99), d.Quantile(0.99))
		}
	}
}
