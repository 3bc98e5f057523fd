package linux

import (
	"errors"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// weigher is the part of a cgroup driver that weights need.
type weigher interface {
	Inode(path string) (uint64, error)
	ReadShares(path string) (uint64, error)
	WriteShares(path string, shares uint64) error
	ReadIdle(path string) (bool, error)
	WriteIdle(path string, idle bool) error
	Descendants(path string) ([]string, error)
}

// weight is a task's weight against its siblings, or none at all: cpu.weight and cpu.idle of
// cgroup v2, cpu.shares and cpu.idle of v1.
//
// It is the task's own group alone. What groups below it have divides what the task gets, and
// is never touched.
//
// cpu.idle = 1 makes the kernel forget the weight, and refuse others (EINVAL); cpu.idle = 0 gives
// the default (sched_group_set_idle). So a task that is demoted is given back by two writes, with
// the default weight in between, which is ours if it is met (model, betweenCPUWeight). A task
// that was idle when it was found is left so. A weight that v2's cpu.weight.nice set is put back
// as the cpu.weight that it read, which is within half a percent of 1024 of it.
//
// A kernel without cpu.idle (before 5.15) has the least weight instead.
type weight struct {
	ownGroup
	cg   weigher
	flat bool // v2
}

func (w *weight) inode(path string) (uint64, error) { return w.cg.Inode(path) }

func (w *weight) groups() ([]string, error) {
	if w.flat {
		return nil, nil
	}
	return w.cg.Descendants("/")
}

// read asks for cpu.idle before and after: what cpu.shares says of an idle group is no weight.
func (w *weight) read(path string) (model.Setting, error) {
	shares := uint64(0)
	idle, err := w.idle(path)
	if err == nil && !idle {
		if shares, err = w.cg.ReadShares(path); err == nil {
			idle, err = w.idle(path)
		}
	}
	switch {
	case err != nil:
		return model.Ask(model.CPUWeight), err
	case idle:
		return model.Weight(model.WeightIdle), nil
	}
	return model.Weight(int64(shares)), nil
}

// idle asks for cpu.idle; a kernel that has none has no group that is.
func (w *weight) idle(path string) (bool, error) {
	idle, err := w.cg.ReadIdle(path)
	if errors.Is(err, cgroup.ErrUnsupported) {
		return false, nil
	}
	return idle, err
}

func (w *weight) write(path string, from, to model.Setting) error {
	switch {
	case to.Amount == model.WeightIdle:
		return w.cg.WriteIdle(path, true)
	case from.Amount == model.WeightIdle:
		if err := w.cg.WriteIdle(path, false); err != nil || to.Amount == model.WeightDefault {
			return err
		}
	}
	return w.cg.WriteShares(path, uint64(to.Amount))
}

// want brings a hold down to value, or leaves what was found when that is lower.
func (w *weight) want(path string, c *model.Change, found model.Setting) (model.Setting, string, error) {
	want, note := model.Weight(c.Value.Amount), ""
	if want.Amount == model.WeightIdle {
		if _, err := w.cg.ReadIdle(path); errors.Is(err, cgroup.ErrUnsupported) {
			want.Amount, note = model.WeightLeast, "this kernel has no cpu.idle: the least weight"
		}
	}
	if w.flat && want.Amount != model.WeightIdle {
		want.Amount = int64(cgroup.RoundShares(uint64(want.Amount)))
	}
	if c.Kind == model.Hold && found.Amount <= want.Amount {
		return found, "", nil
	}
	return want, note, nil
}

// others: the default weight where we had made the group idle is what cpu.idle = 0 leaves, ours
// that was cut off or another program's. Without us it would have found the weight untouched.
func (w *weight) others(l *journal.Limit, now model.Setting) model.Setting {
	idle := model.Weight(model.WeightIdle)
	if now.Amount == model.WeightDefault && slices.Contains(l.Left(), idle) && l.Found != idle {
		return l.Found
	}
	return now
}
