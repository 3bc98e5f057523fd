package linux

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
)

// reclaiming asks the kernel to take memory back from a task: memory.reclaim of cgroup v2, which takes the coldest there is, or the
// multi-generational LRU's eviction, which takes nothing that is younger than is asked for. Of a task that is a virtual machine its guest's kernel is asked.
type reclaiming struct {
	fs     hostfs.FS
	mounts *cgroup.Mounts
	guests *guests
}

func (r *reclaiming) run(ctx context.Context, t model.Task, ask model.Setting) (model.Setting, bool, error) {
	now := model.ReclaimCold(0, ask.Pages, ask.OlderNsec)
	if t.Guest != "" {
		var err error
		now.Amount, now.Kept, err = r.guests.reclaim(ctx, &t, ask)
		return now, now.Amount != 0 || ask.OlderNsec > 0 && err == nil, err
	}
	mem, err := reclaim.Open(r.fs, r.mounts)
	if err != nil {
		return now, false, err
	}
	from, err := mem.OpenReclaimer(t.Path)
	if err != nil {
		return now, false, err
	}
	defer from.Close() //nolint:errcheck // reading is over
	var out reclaim.Outcome
	if ask.OlderNsec > 0 {
		out, err = r.evict(ctx, from, ask)
	} else {
		out, err = r.take(ctx, mem, from, ask)
	}
	now.Amount, now.Kept = int64(out.TakenBytes), int64(out.KeptBytes)
	return now, now.Amount != 0 || ask.OlderNsec > 0 && err == nil, err
}

// evict takes what is so old. That there is less is no error.
func (r *reclaiming) evict(ctx context.Context, from *reclaim.Reclaimer, ask model.Setting) (reclaim.Outcome, error) {
	kind := reclaim.FileOnly
	if ask.Pages != model.FilePages {
		kind = reclaim.FavourAnon
	}
	return from.Evict(ctx, reclaim.NewLRUGen(r.fs), reclaim.EvictAsk{Bytes: uint64(max(ask.Amount, 0)), Idle: time.Duration(ask.OlderNsec), Kind: kind})
}

// take takes the coldest there is of a kind. Before Linux 6.9 nobody can choose between kinds, but where there is no swap only file pages are taken
// anyway.
func (r *reclaiming) take(ctx context.Context, mem *reclaim.Memory, from *reclaim.Reclaimer, ask model.Setting) (reclaim.Outcome, error) {
	how := reclaim.Ask{Bytes: uint64(max(ask.Amount, 0))}
	switch ask.Pages {
	case model.AnonPages:
		how.Swappiness = reclaim.FavourAnon
	case model.FilePages:
		how.Swappiness = reclaim.FileOnly
	}
	out, err := from.Reclaim(ctx, how)
	if !errors.Is(err, reclaim.ErrNoSwappiness) || ask.Pages != model.FilePages {
		return out, err
	}
	room, roomErr := mem.Room(from.Path())
	if roomErr != nil || room.AnonBytes > 0 {
		return out, fmt.Errorf("file pages alone cannot be asked for here while there is swap: %w", err)
	}
	how.Swappiness = reclaim.KernelsChoice
	return from.Reclaim(ctx, how)
}
