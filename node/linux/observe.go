package linux

import (
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/model"
)

// Observe implements node.Host. In steady state it makes a fixed number of system calls
// a task (two reads on kept descriptors, one more for each ancestor, and its share of a
// batched query) and does not allocate.
func (h *Host) Observe(mark model.WindowMark, snap *model.Snapshot) error {
	now := h.opt.Clock.MonoNsec()
	*snap = model.Snapshot{
		Mark: mark, Added: snap.Added[:0], Removed: snap.Removed[:0], Settings: snap.Settings[:0], Tasks: snap.Tasks[:0],
	}
	if h.discovered == 0 || now-h.discovered >= h.opt.DiscoverEvery.Nanoseconds() {
		if err := h.discover(); err != nil {
			return fmt.Errorf("node: discover tasks: %w", err)
		}
		h.discovered = now
	}
	snap.Topology, h.topology.now = h.topology.now, nil
	snap.MonoNsec, snap.WallNsec = h.opt.Clock.MonoNsec(), h.opt.Clock.WallNsec()
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
		n.C[model.CountBusy] = model.Read(st.Total.BusyNsec())
		n.C[model.CountSteal] = model.Read(st.Total.StealNsec())
	}
	if h.root != nil {
		if v, err := h.root.UsageNsec(); err == nil {
			n.C[model.CountBusy] = model.Read(v)
		}
	}
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
		s.C[model.CountUsage] = model.Read(usage)
	}
	if th, err := w.group.Throttling(); err == nil {
		s.C[model.CountThrottled] = model.Read(th.NrThrottledAround)
	}
	if h.perf != nil {
		h.perf.observe(w, snap.Mark, &s)
	}
	w.stall.observe(&s)
	w.members.growth(s.C[model.CountUsage])
	if w.members.doubt {
		w.list()
	}
	if w.members.known {
		setDelay(&s, model.Read(0), model.Read(0)) // filled in by observeDelay
	}
	h.pids = append(h.pids, w.members.ids...)
	if !w.announced {
		w.announced = true
		snap.Added = append(snap.Added, w.task)
	}
	snap.Settings = w.listSettings(snap.Settings)
	snap.Tasks = append(snap.Tasks, s)
}

// observeDelay asks about all thread groups at once and shares the answers out. Tasks
// whose list of members did not account for their usage are listed, and asked about
// again together.
func (h *Host) observeDelay(snap *model.Snapshot) {
	stats, err := h.query(h.pids)
	h.again = h.again[:0]
	at, i := 0, 0
	for _, w := range h.tasks {
		if w.gone {
			continue
		}
		s := &snap.Tasks[i]
		i++
		n := len(w.members.ids)
		switch {
		case err != nil:
			setDelay(s, model.Counter{}, model.Counter{})
		case s.C[model.CountRun].Outcome == model.OK:
			if w.check(stats[at:at+n]) && !w.members.listed {
				h.again = append(h.again, relisted{w, s})
				break
			}
			w.follow(stats[at : at+n])
			setDelay(s, model.Read(w.runNsec), model.Read(w.delayNsec))
		}
		at += n
	}
	if len(h.again) > 0 {
		h.observeAgain()
	}
}

func setDelay(s *model.TaskSample, run, delay model.Counter) {
	s.C[model.CountRun], s.C[model.CountDelay] = run, delay
}

// relisted is a task that is listed and asked about a second time in one reading.
type relisted struct {
	task   *watched
	sample *model.TaskSample
}

// observeAgain lists the tasks in doubt and asks about what they hold.
func (h *Host) observeAgain() {
	h.pids = h.pids[:0]
	for _, r := range h.again {
		r.task.list()
		h.pids = append(h.pids, r.task.members.ids...)
	}
	stats, err := h.query(h.pids)
	at := 0
	for _, r := range h.again {
		w, n := r.task, len(r.task.members.ids)
		if err != nil || !w.members.known {
			setDelay(r.sample, model.Counter{}, model.Counter{})
		} else {
			w.follow(stats[at : at+n])
			setDelay(r.sample, model.Read(w.runNsec), model.Read(w.delayNsec))
		}
		at += n
	}
}

// query asks about thread groups; the answer is good until the next query.
func (h *Host) query(ids []int32) ([]taskstats.Stats, error) {
	if cap(h.stats) < len(ids) {
		h.stats = make([]taskstats.Stats, len(ids)+len(ids)/2)
	}
	stats := h.stats[:len(ids)]
	return stats, h.delay.Query(ids, stats)
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
			h.opt.Log.Debug("could not close the files of a task that has ended", "path", w.task.Path, "error", err)
		}
		if h.knobs != nil {
			for kind := range model.Standing {
				h.knobs.disown(w.task.Path, kind)
			}
		}
		if w.announced {
			snap.Removed = append(snap.Removed, w.task.Num)
		}
	}
	clear(h.tasks[len(kept):])
	h.tasks = kept
	h.discovered = 0 // its path may have been made anew: look at once
}
