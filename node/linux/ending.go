package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// ending ends all processes of a task: by cgroup.kill, which forks do not get away from, or, where the kernel has no such file, by
// SIGKILL to each until none is left. On cgroup v1 a process that is frozen ends once it is thawed: whoever asks for the
// end lets go of the freezer as well.
type ending struct {
	cg    cgroup.Driver
	ender cgroup.Ender
	pause func(ctx context.Context, d time.Duration)
}

// How often it is looked whether a task has processes, and after what time each.
const (
	endLooks = 40
	endPause = 50 * time.Millisecond
)

// errLives: a process that is deep in the kernel does not end at once.
var errLives = errors.New("was told to end and has not yet")

func (e *ending) run(ctx context.Context, t model.Task, _ model.Setting) (model.Setting, bool, error) {
	group, err := openTask(e.cg.Open, &t)
	if err != nil {
		return model.Ask(model.GroupKill), false, err
	}
	defer group.Close() //nolint:errcheck // reading is over
	did := false
	for look := 0; ; look++ {
		_ = group.Refresh() // with groups that were made since; Procs says what is wrong
		pids, err := group.Procs(nil)
		switch {
		case errors.Is(err, cgroup.ErrVanished) && did: // who had started it has removed it
			return model.End(0), true, nil
		case err != nil:
			return model.Ask(model.GroupKill), did, err
		case len(pids) == 0:
			return model.End(0), true, nil
		case look == endLooks || ctx.Err() != nil:
			return model.End(int64(len(pids))), did, fmt.Errorf("%s %w: %d processes", t.Path, errLives, len(pids))
		case slices.Contains(pids, int32(os.Getpid())): //nolint:gosec // the kernel's numbers are below 4 million
			return model.Ask(model.GroupKill), false, errors.New("the agent itself runs in it")
		}
		if err := e.kill(group, t.Path, pids); err != nil {
			return model.End(int64(len(pids))), did, err
		}
		did = true
		e.pause(ctx, endPause)
	}
}

// kill tells the processes of a group to end.
func (e *ending) kill(group cgroup.Group, path string, pids []int32) error {
	if v2, ok := e.cg.(interface{ WriteKill(path string) error }); ok {
		err := v2.WriteKill(path)
		if !errors.Is(err, cgroup.ErrUnsupported) { // before Linux 5.14
			return err
		}
	}
	for _, pid := range pids {
		err := e.ender.End(pid, func() bool {
			now, err := group.Procs(nil)
			return err == nil && slices.Contains(now, pid)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
