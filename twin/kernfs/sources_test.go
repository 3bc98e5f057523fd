package kernfs_test

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/node/source"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// Task sources need cgroups at the root of a hierarchy (kubepods, docker, system.slice),
// which no test may make on the machine that it runs on: here they are made.

var sourceRules = []match.Rule{
	{Unit: &source.Unit{Name: "nginx.service"}, Job: "web", Class: model.LC, Exclusive: true, Cores: 2},
	{Unit: &source.Unit{Name: "batch.slice"}, Job: "nightly", Class: model.BE},
	{Containers: &source.Containers{}, Job: "boxes", Class: model.BE},
	{Pods: &source.Pods{Level: source.Pod}, Job: "pods", Class: model.BE},
}

// openSources opens a node on a kernel with rules.
func openSources(t *testing.T, k *kernfs.Kernel, rules []match.Rule) (*linux.Host, *strings.Builder) {
	t.Helper()
	return openOn(t, k, k, rules)
}

// openOn is openSources with a file access of its own.
func openOn(t *testing.T, k *kernfs.Kernel, fsys hostfs.FS, rules []match.Rule) (*linux.Host, *strings.Builder) {
	t.Helper()
	compiled, err := match.Compile(rules)
	must(t, err)
	j, err := journal.Create(filepath.Join(t.TempDir(), "journal"), "boot")
	must(t, err)
	log := &strings.Builder{}
	h, err := linux.Open(linux.Options{
		FS: fsys, Rules: compiled, Journal: j, Log: slog.New(slog.NewTextHandler(log, nil)), Delay: k.Taskstats(), Opener: k.Counters(), Clock: k,
	})
	must(t, err)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, log
}

func observe(t *testing.T, h *linux.Host) *model.Snapshot {
	t.Helper()
	var snap model.Snapshot
	must(t, h.Observe(model.WindowStart|model.WindowEnd, &snap))
	return &snap
}

// The node finds in every captured tree the tasks that the rules name, and tells of those
// that lie inside others.
func TestSourcesInTrees(t *testing.T) {
	files, err := filepath.Glob("../../node/source/testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no trees: %v", err)
	}
	rules, err := match.Compile(sourceRules)
	must(t, err)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			f, err := os.Open(name)
			must(t, err)
			tree, err := source.ParseTree(f)
			must(t, f.Close())
			must(t, err)
			layout := cgroup.LayoutV2
			if tree.V1 {
				layout = cgroup.LayoutHybrid // there is no kernel here without any cgroup2
			}
			k := newKernel(t, newMachine(t, 5), layout)
			d := driver(t, k)
			for _, p := range tree.Paths {
				must(t, d.Mkdir(p))
			}
			h, log := openSources(t, k, sourceRules)
			var got []string
			for _, task := range observe(t, h).Added {
				got = append(got, task.Path+" "+task.Job)
				if task.Exclusive != (task.Job == "web") || (task.Cores == 2) != task.Exclusive {
					t.Errorf("%s: exclusive %v, %d cores", task.Path, task.Exclusive, task.Cores)
				}
			}
			sel := rules.Select(tree.Paths, match.Host{})
			var want []string
			for _, m := range sel.Tasks {
				want = append(want, m.Path+" "+m.Rule.Job)
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			observe(t, h)
			for _, m := range sel.Nested {
				if n := strings.Count(log.String(), m.Path+" "); n != 1 {
					t.Errorf("%s, inside %s, was told %d times:\n%s", m.Path, m.Inside, n, log)
				}
			}
		})
	}
}

const (
	podID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	uid   = "7f0c2a55-3b1e-4c77-9e0e-5d4f6a1b2c3d"
)

// podPaths are a pod and its container by each cgroup driver.
var podPaths = map[string][2]string{
	"cgroupfs": {"/kubepods/besteffort/pod" + uid, "/" + podID},
	"systemd": {
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice",
		"/cri-containerd-" + podID + ".scope",
	},
}

// A pod is a task from its first cgroup on: before it has containers, on v1 before it has
// a cgroup in every hierarchy, and while containers come and go. A limit on it is put
// back, and the pod made anew is another task.
func TestPodIsMade(t *testing.T) {
	for name, paths := range podPaths {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) { podLife(t, k, d, paths[0], paths[0]+paths[1]) })
		})
	}
}

func podLife(t *testing.T, k *kernfs.Kernel, d cgroup.Driver, pod, box string) {
	h, log := openSources(t, k, []match.Rule{{Pods: &source.Pods{QoS: source.BestEffort, Level: source.Pod}, Job: "scraps", Class: model.BE}})
	if n := len(observe(t, h).Added); n != 0 {
		t.Fatalf("%d tasks on an empty machine", n)
	}
	// The kubelet has made the pod's cgroup in the first hierarchy only.
	mounts, err := cgroup.Discover(k)
	must(t, err)
	top, ok := mounts.V1[cgroup.CPU]
	if !ok {
		top = mounts.Unified
	}
	for i := range pod {
		if i > 0 && pod[i] == '/' {
			must(t, k.Mkdir(top+pod[:i], 0o755))
		}
	}
	must(t, k.Mkdir(top+pod, 0o755))
	snap := observe(t, h)
	if len(snap.Added) != 1 || snap.Added[0].Path != pod || snap.Added[0].Class != model.BE {
		t.Fatalf("half made: %+v", snap.Added)
	}
	num := snap.Added[0].Num
	k.Advance(1e9)
	observe(t, h)

	// Then the rest, the container's cgroup, and at last what runs in it. On v2 the kubelet
	// hands controllers down when the groups are there already.
	if v2, ok := d.(*cgroup.V2); ok {
		started(t, k, "/other", cores(1)) // which hands down the root's
		for i := range pod {
			if i > 0 && pod[i] == '/' {
				must(t, v2.Enable(pod[:i], mounts.UnifiedControllers...))
			}
		}
		must(t, v2.Enable(pod, mounts.UnifiedControllers...))
		observe(t, h)
	}
	pid := started(t, k, box, cores(1))
	before := observe(t, h)
	k.Advance(2e9)
	after := observe(t, h)
	if len(after.Tasks) != 1 || len(after.Added)+len(after.Removed) != 0 || after.Tasks[0].Num != num {
		t.Fatalf("with a container: %+v", after)
	}
	if grew, outcome := model.Delta(before.Tasks[0].C[model.CountUsage], after.Tasks[0].C[model.CountUsage]); outcome != model.OK || !about(float64(grew)/2e9, 1) {
		t.Errorf("the pod used %d ns in 2 s (%s): its container's use is its own", grew, outcome)
	}

	found, err := d.ReadCPUMax(pod)
	must(t, err)
	hold := model.Bandwidth(model.CPUMax{QuotaUsec: 20_000, PeriodUsec: 100_000})
	res := node.Do(h, model.Change{Seq: 1, Target: model.OfTask(num), Kind: model.Hold, Value: hold})
	if len(res) != 1 || res[0].Kind != model.Applied {
		t.Fatalf("hold: %+v\n%s", res, log)
	}
	if u := used(t, k, d, box); u < 0.15 || u > 0.25 {
		t.Errorf("held to 0.2 CPU the container used %.3f", u)
	}
	must(t, k.Kill(pid))
	must(t, d.Rmdir(box)) // a container ends while its pod is held
	second := started(t, k, strings.Replace(box, "0123", "9876", 1), cores(1))
	if snap := observe(t, h); len(snap.Added)+len(snap.Removed) != 0 {
		t.Errorf("a container was replaced: %+v, %v", snap.Added, snap.Removed)
	}
	res = node.Do(h, model.Change{Seq: 2, Target: model.OfTask(num), Kind: model.Release, Value: hold})
	if len(res) != 1 || res[0].Kind != model.Applied {
		t.Fatalf("release: %+v\n%s", res, log)
	}
	if now, err := d.ReadCPUMax(pod); err != nil || now != found {
		t.Errorf("found %+v, now %+v, %v", found, now, err)
	}

	must(t, k.Kill(second))
	must(t, d.Rmdir(strings.Replace(box, "0123", "9876", 1)))
	must(t, d.Rmdir(pod))
	if snap := observe(t, h); !slices.Contains(snap.Removed, num) {
		t.Errorf("the pod is gone: %+v", snap)
	}
	started(t, k, box, cores(1))
	snap = observe(t, h)
	if len(snap.Added) == 0 {
		snap = observe(t, h)
	}
	if len(snap.Added) != 1 || snap.Added[0].Num == num {
		t.Errorf("made anew: %+v", snap.Added)
	}
}

// A container that somebody put into a slice that is a task is none, and is told once; when
// it is gone and comes again it is told again.
func TestContainerInsideATask(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		h, log := openSources(t, k, sourceRules)
		stray := "/batch.slice/docker-" + podID + ".scope"
		must(t, d.Mkdir("/batch.slice"))
		observe(t, h)
		for round := 1; round <= 2; round++ {
			must(t, d.Mkdir(stray))
			for range 3 {
				if snap := observe(t, h); len(snap.Tasks) != 1 || len(snap.Removed) != 0 {
					t.Fatalf("tasks: %+v", snap.Tasks)
				}
			}
			if n := strings.Count(log.String(), "lies inside a task"); n != round {
				t.Errorf("told %d times in round %d:\n%s", n, round, log)
			}
			must(t, d.Rmdir(stray))
			observe(t, h)
		}
	})
}

// Of a BE slice into which somebody put a service the snapshot says that it cannot be held, when
// the service is found in it, and that it can again, when it is gone.
func TestServiceInsideABatchTask(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		h, log := openSources(t, k, sourceRules)
		started(t, k, "/batch.slice/report.service", cores(1))
		snap := observe(t, h)
		if len(snap.Added) != 1 || snap.Added[0].Path != "/batch.slice" {
			t.Fatalf("tasks: %+v", snap.Added)
		}
		num := snap.Added[0].Num
		if len(snap.Shields) > 0 {
			t.Errorf("nothing lies inside: %+v", snap.Shields)
		}
		pid := started(t, k, "/batch.slice/nginx.service", cores(1))
		if s := observe(t, h).Shields; len(s) != 1 || s[0].Task != num || !strings.Contains(s[0].Why, "/batch.slice/nginx.service") {
			t.Errorf("a service lies inside: %+v", s)
		}
		if s := observe(t, h).Shields; len(s) > 0 {
			t.Errorf("told again: %+v", s)
		}
		if n := strings.Count(log.String(), "is not held back as long as"); n != 1 {
			t.Errorf("told %d times:\n%s", n, log)
		}
		must(t, k.Kill(pid))
		must(t, d.Rmdir("/batch.slice/nginx.service"))
		if s := observe(t, h).Shields; len(s) != 1 || s[0] != (model.Shield{Task: num}) {
			t.Errorf("it is gone: %+v", s)
		}
	})
}

// kubelet is a kernel beside which a kubelet keeps its folder of logs.
type kubelet struct {
	*kernfs.Kernel
	logs []string // nil: there is no folder
}

func (k *kubelet) ReadDir(path string) ([]hostfs.DirEntry, error) {
	switch {
	case path != source.PodLogs:
		return k.Kernel.ReadDir(path)
	case k.logs == nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	var list []hostfs.DirEntry
	for _, name := range k.logs {
		list = append(list, hostfs.DirEntry{Name: name, IsDir: true})
	}
	return list, nil
}

// Pods that are named become tasks when the kubelet says their name, which it does after
// it made the cgroup, and stay tasks whatever becomes of the folder.
func TestPodsByName(t *testing.T) {
	k := newKernel(t, newMachine(t, 5), cgroup.LayoutV2)
	d := driver(t, k)
	host := &kubelet{Kernel: k}
	h, log := openOn(t, k, host, []match.Rule{
		{Pods: &source.Pods{Namespace: "prod", Name: "web-*", Level: source.Pod}, Job: "web", Class: model.LC},
		{Pods: &source.Pods{Namespace: "batch", Level: source.Container}, Job: "batch", Class: model.BE},
	})
	const web, job = "/kubepods/burstable/pod" + uid, "/kubepods/besteffort/pod1111"
	for _, p := range []string{"/kubepods", "/kubepods/burstable", "/kubepods/besteffort", web, web + "/" + podID, job, job + "/" + podID} {
		must(t, d.Mkdir(p))
	}
	for range 3 {
		if snap := observe(t, h); len(snap.Added) != 0 {
			t.Fatalf("without names: %+v", snap.Added)
		}
	}
	if n := strings.Count(log.String(), "names of pods cannot be read"); n != 1 {
		t.Errorf("told %d times that there are no names:\n%s", n, log)
	}
	host.logs = []string{"batch_sort-x_1111"}
	if snap := observe(t, h); len(snap.Added) != 1 || snap.Added[0].Path != job+"/"+podID || snap.Added[0].Job != "batch" {
		t.Errorf("one name: %+v", snap.Added)
	}
	host.logs = append(host.logs, "prod_web-1_"+uid, "prod_web-2_2222")
	if snap := observe(t, h); len(snap.Added) != 1 || snap.Added[0].Path != web || snap.Added[0].Job != "web" {
		t.Errorf("two names: %+v", snap.Added)
	}
	host.logs = nil
	if snap := observe(t, h); len(snap.Tasks) != 2 || len(snap.Added)+len(snap.Removed) != 0 {
		t.Errorf("the folder is gone: %+v", snap)
	}
}
