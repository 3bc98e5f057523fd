package linux

import (
	"errors"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// pulse sums the usage of tasks that come and go into a figure that only grows: a task adds
// what it used since its last reading, from its first one on, and one that is gone leaves
// what it added.
type pulse struct {
	lc    uint64 // CPU time, nanoseconds
	spare []model.TaskPulse
}

// Pulse implements node.Host. It makes one read on a kept descriptor a shared LC task; with
// detail two of those on cgroup v1, where counts of throttling are in another file, and one
// of the root group. It does not allocate.
//
// A task that cannot be read although it is there makes the sum Unavailable: part of the
// load would be missing from it, and what is free would be too much. What it used comes in
// with the next reading.
func (h *Host) Pulse(detail bool, p *model.Pulse) {
	*p = model.Pulse{MonoNsec: h.opt.Clock.MonoNsec(), Tasks: p.Tasks[:0]}
	switch {
	case !detail && p.Tasks != nil: // kept for the next one that asks for them
		h.pulse.spare, p.Tasks = p.Tasks, nil
	case detail && p.Tasks == nil:
		p.Tasks, h.pulse.spare = h.pulse.spare, nil
	}
	whole := true
	for _, w := range h.tasks {
		if !w.gone && w.pooled() {
			whole = h.pulseLC(w, detail, p) && whole
		}
	}
	if whole {
		p.LCUsage = model.Read(h.pulse.lc)
	}
	if detail {
		p.NodeUsage = h.busy()
	}
}

// busy is the CPU time that everything on the machine has used: of the root group, and where that
// has no such file of /proc/stat.
func (h *Host) busy() model.Counter {
	if h.root != nil {
		if v, err := h.root.UsageNsec(); err == nil {
			return model.Read(v)
		}
	}
	if h.stat != nil {
		if st, err := h.stat.Read(); err == nil {
			return model.Read(st.Total.BusyNsec())
		}
	}
	return model.Counter{}
}

// pulseLC reads one LC task and reports whether nothing of it is missing.
func (h *Host) pulseLC(w *watched, detail bool, p *model.Pulse) bool {
	if !detail {
		usage, err := w.group.UsageNsec()
		return w.pulsed(usage, err, &h.pulse.lc)
	}
	usage, own, err := w.group.UsageAndStat()
	whole := w.pulsed(usage, err, &h.pulse.lc)
	if w.gone {
		return whole
	}
	t := model.TaskPulse{Num: w.task.Num}
	if err == nil {
		t.Usage = model.Read(usage)
		if own.HasQuota {
			t.Periods, t.Throttled = model.Read(own.NrPeriods), model.Read(own.NrThrottled)
		}
	}
	p.Tasks = append(p.Tasks, t)
	return whole
}

// pulsed adds what a task used since its last reading. It reports false when the task is
// there and could not be read.
func (w *watched) pulsed(usage uint64, err error, sum *uint64) bool {
	if err != nil {
		w.gone = w.gone || errors.Is(err, cgroup.ErrVanished)
		return w.gone
	}
	if w.pulse.Outcome == model.OK && usage > w.pulse.Value {
		*sum += usage - w.pulse.Value
	}
	w.pulse = model.Read(usage)
	return true
}
