package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/mountinfo"
)

// TestKernelV2Capture makes the groups of the captured trees (testdata/qemu-*) and copies
// what the drivers read out of the guest, as testdata/README.md says.
func TestKernelV2Capture(t *testing.T) {
	rigtest.Only(t, "the captured groups have names of their own")
	d := liveV2(t, CPU, CPUSet, Memory, PIDs)
	for _, path := range []string{"/batch", "/batch/job-1", "/batch/job-2"} {
		makeGroup(t, d, path)
	}
	plainMkdir(t, d, "/plain")
	plainMkdir(t, d, "/plain/leaf")
	must(t, d.Enable("/plain", Memory))
	must(t, d.WriteCPUMax("/batch", CPUMax{40000, 100000, 5000}))
	must(t, d.WriteCPUMax("/batch/job-1", CPUMax{20000, 100000, 20000}))
	must(t, d.WriteShares("/batch", 10))
	must(t, d.WriteIdle("/batch/job-1", true))
	must(t, d.WriteCPUs("/batch", "2-3"))
	must(t, d.write("/batch", "cpuset.mems", "1\n"))
	must(t, d.write("/batch/job-2", "cpuset.cpus.partition", string(PartitionRoot))) // stays invalid
	start(t, d, "/plain/leaf", "burst 15ms")
	start(t, d, "/batch/job-1", "burst 25ms")
	start(t, d, "/batch/job-1", "spin")
	runInGroup(t, d, "/batch/job-2", "touch 10")
	time.Sleep(time.Second)
	must(t, d.WriteFreezer("/batch/job-2", Frozen, patience))

	capture := func(file string) {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return // not in every group, and not in every kernel
		}
		must(t, err)
		if file == mountinfo.Path {
			data = cgroupMounts(data)
		}
		must(t, os.WriteFile(rigtest.Out(t, filepath.Join("cgroup-tree", file)), data, 0o644))
	}
	capture(mountinfo.Path)
	for _, group := range []string{"", "/batch", "/batch/job-1", "/batch/job-2", "/plain", "/plain/leaf"} {
		for _, name := range strings.Fields(captured) {
			capture(d.top + group + "/" + name)
		}
	}
}

// captured are the files that the v2 driver reads.
const captured = `cgroup.controllers cgroup.events cgroup.freeze cgroup.procs cgroup.subtree_control cgroup.type
	cpu.idle cpu.max cpu.max.burst cpu.stat cpu.weight
	cpuset.cpus cpuset.cpus.effective cpuset.cpus.partition cpuset.mems cpuset.mems.effective`

// cgroupMounts keeps the lines of /, /proc and /sys: the rest is of no interest.
func cgroupMounts(mountinfo []byte) []byte {
	var kept strings.Builder
	for line := range strings.Lines(string(mountinfo)) {
		if f := strings.Fields(line); f[4] == "/" || f[4] == "/proc" || strings.HasPrefix(f[4], "/sys") {
			kept.WriteString(line)
		}
	}
	return []byte(kept.String())
}
