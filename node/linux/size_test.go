package linux

import (
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// A task has the size that its rule names, or that of the limit that stood in its cgroup when it was found; of another rule none.
func TestSizesAreTold(t *testing.T) {
	b := newBed(t, "size")
	b.mkdir("s-one")
	b.mkdir("s-free")
	b.mkdir("named")
	b.mkdir("none")
	b.setLimit(b.root+"/s-one", cgroup.CPUMax{QuotaUsec: 60_000, PeriodUsec: 100_000})
	b.openRules(false, []match.Rule{
		{Glob: b.root + "/s-*", Job: "web", Class: model.LC, Size: model.SizeByCPULimit}, {Glob: b.root + "/named", Job: "web", Class: model.LC, Size: "large"}, {Glob: b.root + "/none", Job: "web", Class: model.LC},
	})
	b.observe(model.WindowStart)
	for name, want := range map[string]string{"s-one": "cpu-1", "s-free": "cpu-unlimited", "named": "large", "none": ""} {
		if got, ok := b.tasks[b.root+"/"+name]; !ok || got.Size != want {
			t.Errorf("%s: %+v, want %q", name, got, want)
		}
	}
}
