package linux

import (
	"errors"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// Observe implements node.Host. In steady state it makes a fixed number of system calls
// a task (two reads on kept descriptors, one more for each ancestor, and its share of a
// batched query) and does not allocate.
func (h *Host) Observe(mark model.WindowMark, snap *model.Snapshot) error {
	now := h.opt.Clock.MonoNsec()
	*snap = model.Snapshot{
		Mark: mark, Added: snap.Added[:0], Removed: snap.Removed[:0], Settings: snap.Settings[:0], Shields: snap.Shields[:0], Tasks: snap.Tasks[:0],
	}
	if h.discovered == 0 || now-h.discovered >= h.opt.DiscoverEvery.Nanoseconds() {
		h.discover()
		h.discovered = now
		if h.classes != nil {
			h.classes.tend()
		}
		if h.opt.Monitor {
			h.classes.count(h.wishes(now))
		}
	}
	if (h.opt.Memory || h.opt.Monitor) && mark != 0 {
		snap.Memory, snap.Domains = h.classes.takeMemory(), h.classes.takeDomains()
		h.classes.startMeter()
	}
	if h.classes != nil {
		h.classes.goOn()
	}
	h.offer()
	snap.Topology, h.topology.now = h.topology.now, nil
	snap.MonoNsec, snap.WallNsec = h.opt.Clock.MonoNsec(), h.opt.Clock.WallNsec()
	h.inUseNow = h.memoryDue(mark, snap.MonoNsec)
	h.observeNode(&snap.Node)
	h.io, h.homesOf, h.homesNow = h.io[:0], nil, mark&model.WindowEnd != 0
	for _, w := range h.tasks {
		h.observeTask(w, snap)
	}
	snap.IO, snap.Homes = h.io, h.homesOf
	h.observeDelay(snap)
	h.observeWaits(snap)
	h.ages.observe(h, mark, snap)
	h.guests.observe(h, mark)
	h.gpus.observe(h, mark, snap)
	h.forget(snap)
	return nil
}

func (h *Host) observeNode(n *model.NodeSample) {
	*n = model.NodeSample{CPUs: h.online}
	if st, err := h.stat.Read(); err == nil {
		n.CPUs = st.CPUs
		n.C[model.CountBusy] = model.Read(st.Total.BusyNsec())
		n.C[model.CountSteal] = model.Read(st.Total.StealNsec())
	}
	if h.inUseNow {
		h.room.observe(n)
	}
	if h.root != nil {
		if v, err := h.root.UsageNsec(); err == nil {
			n.C[model.CountBusy] = model.Read(v)
		}
	}
}

// observeTask reads one task's counters.
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
		s.C[model.CountUsage] = model.Read(usage)
	}
	if th, err := w.group.Throttling(); err == nil {
		s.C[model.CountThrottled] = model.Read(th.NrThrottledAround)
		if w.inner.why = ""; th.NotFollowed {
			w.inner.why = "more groups are inside than are followed"
		}
	}
	if h.perf != nil {
		h.perf.observe(w, snap.Mark, &s)
	}
	w.used = s.C[model.CountUsage]
	w.members.growth(w.used)
	w.sample = len(snap.Tasks)
	if !w.announced {
		w.announced = true
		snap.Added = append(snap.Added, w.task)
	}
	snap.Settings = w.listSettings(snap.Settings)
	snap.Shields = h.nested.list(w, snap.Shields)
	snap.Tasks = append(snap.Tasks, s)
	for _, r := range w.readers { // in its place: behind an interface a variable would be allocated
		r.observe(&snap.Tasks[w.sample])
	}
}

// forget lets go of tasks whose cgroup is gone and tells the engine.
func (h *Host) forget(snap *model.Snapshot) {
	if !slices.ContainsFunc(h.tasks, func(w *watched) bool { return w.gone }) {
		return
	}
	kept := h.tasks[:0]
	var left []journal.Limit
	for _, w := range h.tasks {
		if !w.gone {
			kept = append(kept, w)
			continue
		}
		if err := w.close(); err != nil {
			h.opt.Log.Debug("could not close the files of a task that has ended", "path", w.task.Path, "error", err)
		}
		if h.classes != nil {
			h.classes.forget(w.task.Path)
		}
		if h.knobs != nil {
			for kind := range model.OfCgroups {
				h.knobs.letGo(w.task.Path, kind)
				left = append(left, h.knobs.j.Of(w.task.Path, kind)...)
			}
		}
		if w.announced {
			snap.Removed = append(snap.Removed, w.task.Num)
		}
	}
	clear(h.tasks[len(kept):])
	h.tasks = kept
	if len(left) > 0 {
		items := h.knobs.restore(left) // one of them may have another path now
		h.tellLeftovers(slices.DeleteFunc(items, func(it node.Restoration) bool { return it.Kind == node.LeftGone }))
	}
	h.discovered = 0 // its path may have been made anew: look at once
}
