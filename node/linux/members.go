package linux

import (
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/model"
)

// membership is which thread groups a task's cgroup holds.
//
// To list them costs five calls a task on cgroup v1, where cgroup.procs cannot be kept
// open, and has the kernel gather and sort the ids: without it a reading takes about half.
// So the list is kept for as long as it explains what the cgroup did. Both sides come
// from the scheduler's same clock: what the cgroup used (cpuacct.usage) is what its
// members ran (taskstats), or the list is wrong:
//
//   - Usage grew by more than the members ran: somebody came, or came and went.
//   - The members ran more than usage grew: one was moved away, or ended and its id
//     is a stranger's now.
//   - A member is gone.
//
// Then the cgroup is listed anew, in the same reading, before anything is added up: a
// process is followed from the reading on in which it first ran, as if every reading had
// listed. A cgroup that made us doubt is listed outright at the next reading, so that one
// with short-lived processes costs what it did when all were listed always, and not more.
// What stays unseen is a newcomer that runs less than tolerance, until the next discovery
// (agent.discover_every), which doubts every list; with more than 256 tasks until the second one, with
// more than 512 until the third, and so on.
type membership struct {
	ids    []int32 // by id
	known  bool    // ids could be listed
	doubt  bool    // list before the next query
	listed bool    // in this reading

	usage model.Counter // of the reading before
	grew  uint64        // usage since then, nanoseconds
	told  bool          // grew is known
}

// Tolerance is what usage and members may differ by without doubt. They are not read at
// one instant but within a reading of some milliseconds, in which a task runs on.
const (
	toleranceNsec  = 5_000_000
	toleranceShare = 20 // a twentieth of the usage
)

// growth notes the usage of the reading that begins.
func (m *membership) growth(usage model.Counter) {
	var outcome model.Outcome
	m.grew, outcome = model.Delta(m.usage, usage)
	m.told = outcome == model.OK
	m.usage, m.listed = usage, false
	if !m.told {
		m.doubt = true // there is nothing to check the list against
	}
}

// explains reports whether members that ran for so long account for the usage.
func (m *membership) explains(ranNsec uint64) bool {
	if !m.told {
		return false
	}
	tolerance := max(toleranceNsec, m.grew/toleranceShare)
	return ranNsec+tolerance >= m.grew && m.grew+tolerance >= ranNsec
}

// list lists the cgroup's thread groups.
func (w *watched) list() error {
	ids, err := w.group.Procs(w.members.ids[:0])
	w.members.ids, w.members.known = ids, err == nil
	if err != nil {
		w.members.ids = ids[:0]
	}
	w.members.listed = true
	return err
}

// check compares what the members ran since the last reading with what the cgroup used,
// and reports whether they leave doubt. Nothing is added up yet.
func (w *watched) check(stats []taskstats.Stats) bool {
	ran, whole, j := uint64(0), true, 0
	for i, id := range w.members.ids {
		for j < len(w.tgids) && w.tgids[j] < id {
			j++
		}
		followed := j < len(w.tgids) && w.tgids[j] == id
		switch {
		case stats[i].Status == taskstats.Gone:
			whole = false
		case stats[i].Status != taskstats.OK || !followed:
			// Neither says how long it ran in this window.
		case stats[i].RunNsec < w.lastRun[j]:
			whole = false
		default:
			ran += stats[i].RunNsec - w.lastRun[j]
		}
	}
	w.members.doubt = !whole || !w.members.explains(ran)
	return w.members.doubt
}

// follow adds the growth of the thread groups that were there before. A thread group
// that is new, or whose counters are smaller than they were (its id was used again),
// contributes from its second reading on.
func (w *watched) follow(stats []taskstats.Stats) {
	ids, j := w.members.ids, 0
	for i, id := range ids {
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
			w.ioNsec += stats[i].IODelayNsec - min(stats[i].IODelayNsec, w.lastIO[j])
		}
	}
	w.tgids, w.lastRun, w.lastDelay, w.lastIO = w.tgids[:0], w.lastRun[:0], w.lastDelay[:0], w.lastIO[:0]
	for i, id := range ids {
		if stats[i].Status == taskstats.OK {
			w.tgids = append(w.tgids, id)
			w.lastRun = append(w.lastRun, stats[i].RunNsec)
			w.lastDelay = append(w.lastDelay, stats[i].DelayNsec)
			w.lastIO = append(w.lastIO, stats[i].IODelayNsec)
		}
	}
}
