package kernfs_test

import (
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// On cgroup v2 a task's pressure is what the kernel counted for its group; elsewhere it is
// unavailable. A group that switches its account off loses it until the
// next discovery after it is on again.
func TestPressureOfTasks(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		started(t, k, "/crowd", cores(3))
		must(t, d.WriteCPUMax("/crowd", limit(50_000)))
		h, _ := openSources(t, k, []match.Rule{{Glob: "/crowd", Job: "crowd", Class: model.BE}})
		stall := func() model.Counter { return observe(t, h).Tasks[0].C[model.CountCPUStall] }
		before := stall()
		k.Advance(2e9)
		now := stall()
		if d.Layout() != cgroup.LayoutV2 {
			if now.Outcome != model.Unavailable {
				t.Errorf("%+v", now)
			}
			return
		}
		// Three spinners under half a CPU wait nearly all the time.
		if grew, outcome := model.Delta(before, now); outcome != model.OK || grew < 1.5e9 || grew > 2.1e9 {
			t.Errorf("stalled for %d ns of 2 s (%s)", grew, outcome)
		}
		const file = "/sys/fs/cgroup/crowd/cgroup.pressure"
		must(t, k.WriteFile(file, []byte("0")))
		if off := stall(); off.Outcome != model.Unavailable {
			t.Errorf("switched off: %+v", off)
		}
		must(t, k.WriteFile(file, []byte("1")))
		stall()
		k.Advance(30e9)
		if on := stall(); on.Outcome != model.OK || on.Value < now.Value {
			t.Errorf("switched on again: %+v after %+v", on, now)
		}
	})
}
