package linux

import (
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// Settings are what the knobs say that we do not hold. Policies ask about the bandwidth of
// LC tasks, which they raise, and about where LC and BE tasks run. They are read at each
// discovery, a few calls a knob, and listed in a snapshot where they differ from what it
// listed last.

// listed is what was last listed of one knob of a task.
type listed struct {
	known   bool
	value   model.Setting
	outcome model.Outcome
	fresh   bool // not in a snapshot yet
}

// readSettings reads the knobs of a task that are asked about and that nobody holds. A held
// one is listed again once it is let go.
func (h *Host) readSettings(w *watched) {
	for kind := range model.NumKnobs {
		last := &w.listed[kind]
		if !kind.Spec().Listed(w.task.Class) {
			continue
		}
		if h.knobs != nil && h.knobs.isHeld(w.task.Path, kind) {
			*last = listed{}
			continue
		}
		v, err := h.readSetting(&w.task, kind)
		now := listed{known: true, value: v, outcome: model.OK, fresh: last.fresh}
		switch {
		case errors.Is(err, cgroup.ErrVanished):
			continue // the discovery says that it is gone
		case err != nil:
			now.value, now.outcome = model.Ask(kind), model.Unavailable
		}
		if kind == model.CPUPlace {
			w.place.why = ""
			if err != nil && h.opt.Places {
				w.place.why = whyNoPlace(err)
			}
		}
		if now != *last {
			now.fresh = true
			*last = now
		}
	}
}

// readSetting reads one knob of the very cgroup that is watched.
func (h *Host) readSetting(t *model.Task, kind model.KnobKind) (model.Setting, error) {
	inode, err := h.cg.Inode(t.Path)
	switch {
	case err != nil:
		return model.Setting{}, err
	case inode != t.Inode:
		return model.Setting{}, fmt.Errorf("%s was made anew: %w", t.Path, cgroup.ErrVanished)
	case kind == model.CPUBandwidth:
		v, err := h.cg.ReadCPUMax(t.Path)
		return model.Bandwidth(model.CPUMax(v)), err
	}
	cpus, err := readCPUs(t.Path, h.cg.ReadCPUs)
	if err == nil && cpus.Empty() && h.cg.Layout() != cgroup.LayoutV2 {
		err = errNoCPUsYet
	}
	return model.Place(cpus), err
}

// whyNoPlace words it so that it is the same reason for all tasks that have it.
func whyNoPlace(err error) string {
	var absent *cgroup.AbsentControllerError
	switch {
	case errors.As(err, &absent) && absent.StopsAt != "":
		return fmt.Sprintf("cgroup.subtree_control of %s lacks %s", absent.StopsAt, absent.Controller)
	case errors.As(err, &absent):
		return fmt.Sprintf("cgroup v2 has no %s controller here", absent.Controller)
	case errors.Is(err, cgroup.ErrUnsupported):
		return "no such group in the hierarchy of the cpuset controller"
	case errors.Is(err, errNoCPUsYet):
		return errNoCPUsYet.Error()
	}
	return err.Error()
}

// listSettings appends what is new to a snapshot.
func (w *watched) listSettings(dst []model.KnobReading) []model.KnobReading {
	for kind := range w.listed {
		if l := &w.listed[kind]; l.fresh {
			l.fresh = false
			dst = append(dst, model.KnobReading{Target: model.OfTask(w.task.Num), Value: l.value, Outcome: l.outcome})
		}
	}
	return dst
}
