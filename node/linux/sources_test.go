package linux

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/node/source"
)

// testPod is nobody's pod: the rules of these tests name it, and so claim no other.
const (
	testPod = "c0ffee00-0000-4000-8000-000000000001"
	testBox = "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff"
)

// mkdirAll makes the groups of a path below the folder, and on v2 hands down what a
// kubelet and a runtime do.
func (b *bed) mkdirAll(path string) string {
	b.t.Helper()
	made := b.root
	for name := range strings.SplitSeq(path, "/") {
		if d, ok := b.cg.(*cgroup.V2); ok {
			if err := d.Enable(made, cgroup.CPU, cgroup.CPUSet); err != nil {
				b.t.Fatal(err)
			}
		}
		made += "/" + name
		if _, err := b.cg.Inode(made); err != nil {
			b.mkdir(strings.TrimPrefix(made, b.root+"/"))
		}
	}
	return made
}

// Pods and containers are made on this kernel as a kubelet with --cgroup-root and a runtime
// make them, cgroup first and process after, by both drivers. The pod is found, holds its
// container's use, is held and put back.
func TestPodsOnThisKernel(t *testing.T) {
	for driver, paths := range map[string][2]string{
		"cgroupfs": {"kubepods/besteffort/pod" + testPod, testBox},
		"systemd": {
			"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + strings.ReplaceAll(testPod, "-", "_") + ".slice",
			"cri-containerd-" + testBox + ".scope",
		},
	} {
		t.Run(driver, func(t *testing.T) {
			b := newBed(t, "pods-"+driver)
			b.openRules(false, []match.Rule{
				{Pods: &source.Pods{UID: testPod, Level: source.Pod}, Job: "scraps", Class: model.BE, Importance: model.BestEffort},
			})
			b.observe(model.WindowStart)
			if len(b.tasks) != 0 {
				t.Fatalf("tasks before there is a pod: %v", b.tasks)
			}
			pod := b.mkdirAll(paths[0])
			b.observe(model.WindowEnd | model.WindowStart)
			task, ok := b.tasks[pod]
			if !ok || len(b.tasks) != 1 || task.Job != "scraps" {
				t.Fatalf("an empty pod: %v", b.tasks)
			}
			box := b.mkdirAll(paths[0] + "/" + paths[1])
			b.spin(box)
			b.observe(model.WindowEnd | model.WindowStart)
			before := b.sample(pod).C[model.CountUsage]
			for grew := uint64(0); grew < 100e6; {
				b.observe(model.WindowEnd | model.WindowStart)
				grew, _ = model.Delta(before, b.sample(pod).C[model.CountUsage])
			}
			found, err := b.cg.ReadCPUMax(pod)
			if err != nil {
				t.Fatal(err)
			}
			hold := model.Bandwidth(model.CPUMax{QuotaUsec: 10_000, PeriodUsec: 100_000})
			res := node.Do(b.h, model.Change{Seq: 1, Target: model.OfTask(task.Num), Kind: model.Hold, Value: hold})
			if len(res) != 1 || res[0].Kind != model.Applied {
				t.Fatalf("hold: %+v", res)
			}
			if now, err := b.cg.ReadCPUMax(pod); err != nil || now.QuotaUsec != 10_000 {
				t.Errorf("held to %+v, %v", now, err)
			}
			if _, err := b.h.Restore(); err != nil {
				t.Error(err)
			}
			if now, err := b.cg.ReadCPUMax(pod); err != nil || now != found {
				t.Errorf("found %+v, after restore %+v, %v", found, now, err)
			}
		})
	}
}

// A container's scope is a task of its own, what it has inside is not; one in a slice that
// is a task already is none, and is told once.
func TestContainersOnThisKernel(t *testing.T) {
	b := newBed(t, "boxes")
	b.openRules(false, []match.Rule{
		{Glob: b.root + "/batch.slice", Job: "batch", Class: model.BE},
		{Containers: &source.Containers{Runtime: source.Docker, ID: testBox[:16]}, Job: "boxes", Class: model.BE},
	})
	box := b.mkdirAll("web.slice/docker-" + testBox + ".scope")
	b.mkdirAll("web.slice/docker-" + testBox + ".scope/system.slice/docker-" + testBox + ".scope")
	batch := b.mkdirAll("batch.slice")
	stray := b.mkdirAll("batch.slice/docker-" + testBox + ".scope")
	for range 3 {
		b.observe(model.WindowEnd | model.WindowStart)
	}
	if b.tasks[box].Job != "boxes" || b.tasks[batch].Job != "batch" || len(b.tasks) != 2 {
		t.Errorf("tasks: %v", b.tasks)
	}
	if n := strings.Count(b.logs.String(), stray); n != 1 {
		t.Errorf("%s was told %d times", stray, n)
	}
}
