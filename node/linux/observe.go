package linux

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/model"
)

// Observe implements node.Host. In steady state it makes a fixed number of system calls
// a task (three reads on kept descriptors and its share of a batched query) and does not
// allocate.
func (h *Host) Observe(mark model.WindowMark, snap *model.Snapshot) error {
	now := MonotonicNsec()
	*snap = model.Snapshot{
		Mark: mark, Added: snap.Added[:0], Removed: snap.Removed[:0], Tasks: snap.Tasks[:0],
	}
	if h.discovered == 0 || now-h.discovered >= h.opt.DiscoverEvery.Nanoseconds() {
		if err := h.discover(); err != nil {
			return fmt.Errorf("node: discover tasks: %w", err)
		}
		h.discovered = now
	}
	snap.MonoNsec, snap.WallNsec = MonotonicNsec(), time.Now().UnixNano()
	h.observeNode(&snap.Node)
	h.pids = h.pids[:0]
	for _, w := range h.tasks {
		h.observeTask(w, snap)
	}
	h.observeDelay(snap)
	h.forget(snap)
	return nil
}

func (h *Host) observeNode(n *model.NodeSample) {
	*n = model.NodeSample{CPUs: h.online}
	if st, err := h.stat.Read(); err == nil {
		n.CPUs = st.CPUs
		n.Busy = model.Read(st.Total.BusyNsec())
		n.Steal = model.Read(st.Total.StealNsec())
	}
	if h.root != nil {
		if v, err := h.rootUsageNsec(); err == nil {
			n.Busy = model.Read(v)
		}
	}
	if h.stall != nil {
		if t, err := h.stall.Totals(); err == nil {
			n.StallCPU = model.Read(t.SomeUsec * 1000)
		}
	}
}

// rootUsageNsec reads the root group's cpuacct.usage: the CPU time of everything.
func (h *Host) rootUsageNsec() (uint64, error) {
	var err error
	if h.buf, err = h.root.ReadAll(h.buf); err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(bytes.TrimSpace(h.buf)), 10, 64)
}

// observeTask reads one task's counters and appends the thread groups to ask about.
func (h *Host) observeTask(w *watched, snap *model.Snapshot) {
	if w.gone {
		return
	}
	s := model.TaskSample{Num: w.task.Num}
	usage, err := w.group.UsageNsec()
	if errors.Is(err, cgroup.ErrVanished) {
		w.gone = true
		return
	}
	if err == nil {
		s.Usage = model.Read(usage)
	}
	if th, err := w.group.Throttling(); err == nil {
		s.Throttled = model.Read(th.NrThrottledAround)
	}
	if w.perf != nil {
		w.perf.read(snap.Mark, &s)
	}
	procs, err := w.group.Procs(w.fresh[:0])
	if err != nil {
		procs = procs[:0]
	} else {
		s.Run, s.Delay = model.Read(0), model.Read(0) // filled in by observeDelay
	}
	w.fresh = procs
	h.pids = append(h.pids, procs...)
	if !w.announced {
		w.announced = true
		snap.Added = append(snap.Added, w.task)
	}
	snap.Tasks = append(snap.Tasks, s)
}

// observeDelay asks about all thread groups at once and shares the answers out.
func (h *Host) observeDelay(snap *model.Snapshot) {
	if cap(h.stats) < len(h.pids) {
		h.stats = make([]taskstats.Stats, len(h.pids)+len(h.pids)/2)
	}
	stats := h.stats[:len(h.pids)]
	err := h.delay.Query(h.pids, stats)
	at, i := 0, 0
	for _, w := range h.tasks {
		if w.gone {
			continue
		}
		s := &snap.Tasks[i]
		i++
		n := len(w.fresh)
		switch {
		case err != nil:
			s.Run, s.Delay = model.Counter{}, model.Counter{}
		case s.Run.Outcome == model.OK:
			w.follow(stats[at : at+n])
			s.Run, s.Delay = model.Read(w.runNsec), model.Read(w.delayNsec)
		}
		at += n
	}
}

// follow adds the growth of the thread groups that were there before. A thread group
// that is new, or whose counters are smaller than they were (its id was used again),
// contributes from its second reading on.
func (w *watched) follow(stats []taskstats.Stats) {
	j := 0
	for i, id := range w.fresh {
		if stats[i].Status != taskstats.OK {
			continue
		}
		for j < len(w.tgids) && w.tgids[j] < id {
			j++
		}
		if j >= len(w.tgids) || w.tgids[j] != id {
			continue
		}
		if stats[i].RunNsec >= w.lastRun[j] && stats[i].DelayNsec >= w.lastDelay[j] {
			w.runNsec += stats[i].RunNsec - w.lastRun[j]
			w.delayNsec += stats[i].DelayNsec - w.lastDelay[j]
		}
	}
	w.tgids, w.lastRun, w.lastDelay = w.tgids[:0], w.lastRun[:0], w.lastDelay[:0]
	for i, id := range w.fresh {
		if stats[i].Status == taskstats.OK {
			w.tgids = append(w.tgids, id)
			w.lastRun = append(w.lastRun, stats[i].RunNsec)
			w.lastDelay = append(w.lastDelay, stats[i].DelayNsec)
		}
	}
}

// forget lets go of tasks whose cgroup is gone and tells the engine.
func (h *Host) forget(snap *model.Snapshot) {
	if !slices.ContainsFunc(h.tasks, func(w *watched) bool { return w.gone }) {
		return
	}
	kept := h.tasks[:0]
	for _, w := range h.tasks {
		if !w.gone {
			kept = append(kept, w)
			continue
		}
		if err := w.close(); err != nil {
			h.opt.Log.Debug("closing a task that is gone", "path", w.task.Path, "error", err)
		}
		if h.knobs != nil {
			h.knobs.disown(w.task.Path)
		}
		if w.announced {
			snap.Removed = append(snap.Removed, w.task.Num)
		}
	}
	clear(h.tasks[len(kept):])
	h.tasks = kept
	h.discovered = 0 // its path may have been made anew: look at once
}
