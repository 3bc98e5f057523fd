package linux

import (
	"context"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
)

// reclaiming asks the kernel to take memory back from a task: memory.reclaim of cgroup v2.
type reclaiming struct {
	fs     hostfs.FS
	mounts *cgroup.Mounts
}

func (r *reclaiming) run(ctx context.Context, t model.Task, ask model.Setting) (model.Setting, bool, error) {
	none := model.Ask(model.MemoryReclaim)
	mem, err := reclaim.Open(r.fs, r.mounts)
	if err != nil {
		return none, false, err
	}
	from, err := mem.OpenReclaimer(t.Path)
	if err != nil {
		return none, false, err
	}
	defer from.Close() //nolint:errcheck // reading is over
	out, err := from.Reclaim(ctx, reclaim.Ask{Bytes: uint64(max(ask.Amount, 0))})
	now := model.Reclaim(max(out.FellBytes, int64(out.AckedBytes)))
	return now, now.Amount != 0, err
}
