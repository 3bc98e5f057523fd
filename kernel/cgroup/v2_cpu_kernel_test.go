package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
	"golang.org/x/sys/unix"
)

// TestKernelV2Burst: what a task saved up while it slept carries it over its quota later.
func TestKernelV2Burst(t *testing.T) {
	d := liveV2(t, CPU)
	top := ownGroup(t, d, "burst")
	must(t, d.WriteCPUMax(top, CPUMax{20000, 100000, 20000}))
	// 15 ms of work a turn and then sleep: turns that meet in one period pass 20 ms.
	start(t, d, top, "burst 15ms")
	start(t, d, top, "burst 15ms")
	g := open(t, d, top)
	eventually(t, "a burst is used", func() bool {
		th, err := g.Throttling()
		must(t, err)
		if !th.Own.HasBursts || !th.Own.HasQuota {
			t.Fatalf("no burst lines in cpu.stat: %+v", th)
		}
		return th.Own.NrBursts > 0 && th.Own.BurstNsec > 0
	})
	th, err := g.Throttling()
	must(t, err)
	t.Logf("%+v", th)
}

// TestKernelV2Partition takes CPUs out of the root group's hands.
func TestKernelV2Partition(t *testing.T) {
	rigtest.Only(t, "a partition takes CPUs away from every other group")
	d := liveV2(t, CPUSet)
	top := ownGroup(t, d, "partition")
	if got, err := d.ReadPartition(top); err != nil || got != (Partition{Kind: Member}) {
		t.Errorf("a new group is %q, %v", got, err)
	}
	// Without CPUs of its own it cannot be a partition; the kernel keeps the wish.
	err := d.WritePartition(top, PartitionRoot)
	if !errors.Is(err, ErrInvalidPartition) {
		t.Errorf("a partition without CPUs: %v", err)
	}
	t.Logf("without CPUs: %v", err)
	must(t, d.WritePartition(top, Member))
	must(t, d.WriteCPUs(top, "2-3"))
	for _, kind := range []PartitionKind{PartitionRoot, Isolated} {
		must(t, d.WritePartition(top, kind))
		if got, err := d.ReadPartition(top); err != nil || got != (Partition{Kind: kind}) {
			t.Errorf("it is %q, %v", got, err)
		}
		if got, err := d.ReadEffectiveCPUs("/"); err != nil || got != "0-1" {
			t.Errorf("the root keeps %q, %v", got, err)
		}
		if got, err := d.ReadEffectiveCPUs(top); err != nil || got != "2-3" {
			t.Errorf("the partition has %q, %v", got, err)
		}
	}
	// A partition below a member is none. (Newer kernels allow it with exclusive CPUs.)
	member := top + "/member"
	makeGroup(t, d, member)
	makeGroup(t, d, member+"/inner")
	must(t, d.WriteCPUs(member, "2-3"))
	must(t, d.WriteCPUs(member+"/inner", "3"))
	err = d.WritePartition(member+"/inner", PartitionRoot)
	if !errors.Is(err, ErrInvalidPartition) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("a partition below a member: %v", err)
	}
	t.Logf("below a member: %v", err)
	must(t, d.WritePartition(top, Member))
	if got, err := d.ReadEffectiveCPUs("/"); err != nil || got != "0-3" {
		t.Errorf("the root has %q again, %v", got, err)
	}
	if err := d.write(top, "cpuset.cpus.partition", "nonsense"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("nonsense: %v", err)
	}
}

// TestKernelV2CPUHotUnplug takes CPU 3 away under a cpuset.
func TestKernelV2CPUHotUnplug(t *testing.T) {
	rigtest.Only(t, "CPU 3 goes offline")
	d := liveV2(t, CPUSet)
	t.Cleanup(func() { must(t, plug(3, "1")) })
	top := ownGroup(t, d, "unplug")
	must(t, d.WriteCPUs(top, "1,3"))
	pid, _ := start(t, d, top, "sleep")
	uses(t, d, top, "1,3", "1,3")
	must(t, plug(3, "0"))
	uses(t, d, top, "1,3", "1")
	uses(t, d, "/", "", "0-2")
	if cpus := allowed(t, pid); cpus.IsSet(3) || !cpus.IsSet(1) {
		t.Error("a process may use the CPU that is gone")
	}
	must(t, plug(3, "1"))
	uses(t, d, top, "1,3", "1,3")
	uses(t, d, "/", "", "0-3")
	// The list of a group with processes does not go back to none.
	if err := d.WriteCPUs(top, ""); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("emptying the list of a group with processes: %v", err)
	}
}

// TestKernelV2PartitionHotUnplug takes the CPUs of a partition away, one after the other.
func TestKernelV2PartitionHotUnplug(t *testing.T) {
	rigtest.Only(t, "CPUs 2 and 3 go offline")
	d := liveV2(t, CPUSet)
	t.Cleanup(func() { must(t, errors.Join(plug(2, "1"), plug(3, "1"))) })
	top := ownGroup(t, d, "unplug-partition")
	must(t, d.WriteCPUs(top, "2-3"))
	must(t, d.WritePartition(top, PartitionRoot))
	t.Cleanup(func() { must(t, d.WritePartition(top, Member)) })
	pid, _ := start(t, d, top, "sleep")
	uses(t, d, top, "2-3", "2-3")
	must(t, plug(3, "0"))
	uses(t, d, top, "2-3", "2")
	if p, err := d.ReadPartition(top); err != nil || p.Invalid {
		t.Errorf("with one CPU left it is %q, %v", p, err)
	}
	if cpus := allowed(t, pid); cpus.IsSet(3) || !cpus.IsSet(2) {
		t.Error("a process may use the CPU that is gone")
	}
	// Linux 6.12 takes a partition's last CPU for one that deadline tasks need, and
	// keeps it online; others let it go, and the partition with it.
	if err := plug(2, "0"); errors.Is(err, unix.EBUSY) {
		t.Logf("the last CPU stays: %v", err)
	} else {
		must(t, err)
		var p Partition
		eventually(t, "a partition without CPUs is invalid", func() bool {
			var err error
			p, err = d.ReadPartition(top)
			must(t, err)
			return p.Invalid
		})
		if p.Kind != PartitionRoot || p.Reason == "" || strings.ContainsAny(p.Reason, "()") {
			t.Errorf("it is %+v", p)
		}
		t.Logf("without CPUs: %q", p)
		if cpus := allowed(t, pid); cpus.Count() == 0 || cpus.IsSet(2) || cpus.IsSet(3) {
			t.Error("its process was not let out")
		}
		must(t, plug(2, "1"))
	}
	must(t, plug(3, "1"))
	uses(t, d, top, "2-3", "2-3")
	if p, err := d.ReadPartition(top); err != nil || p.Invalid {
		t.Errorf("with its CPUs again it is %q, %v", p, err)
	}
}

// plug takes a CPU offline ("0") or back.
func plug(cpu int, v string) error {
	return os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), []byte(v), 0)
}

// uses waits until a group has the effective CPUs (the kernel follows in a work queue),
// and checks what it asks for; "" for the root, which asks for nothing.
func uses(t *testing.T, d *V2, path, asked, effective string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s uses %q", path, effective), func() bool {
		got, err := d.ReadEffectiveCPUs(path)
		must(t, err)
		return got == effective
	})
	if path == "/" {
		return
	}
	if got, err := d.ReadCPUs(path); err != nil || got != asked {
		t.Errorf("%s asks for %q, %v; want %q", path, got, err, asked)
	}
}

func allowed(t *testing.T, pid int32) unix.CPUSet {
	t.Helper()
	var set unix.CPUSet
	must(t, unix.SchedGetaffinity(int(pid), &set))
	return set
}

// ErrInvalidPartition: the kernel took the wish for a partition and cannot fulfil it.
var ErrInvalidPartition = errors.New("partition is invalid")

// WritePartition makes the group a member or the root of a partition, and reads back what
// became of it: ErrInvalidPartition with the kernel's reason when it is without effect.
// The wish then stands; who gives it up writes Member.
func (d *V2) WritePartition(path string, kind PartitionKind) error {
	if err := d.write(path, "cpuset.cpus.partition", string(kind)); err != nil {
		return err
	}
	p, err := d.ReadPartition(path)
	if err != nil {
		return err
	}
	if p.Kind != kind || p.Invalid {
		return fmt.Errorf("write cpuset.cpus.partition = %s of cgroup %s: %w: it reads %q", kind, path, ErrInvalidPartition, p)
	}
	return nil
}

// MakeThreaded makes a group a member of its parent's threaded subtree. There is no way
// back.
func (d *V2) MakeThreaded(path string) error {
	return d.write(path, "cgroup.type", string(Threaded))
}
