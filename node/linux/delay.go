package linux

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/model"
)

// Bounds of what one reading spends on processes. A BE task that forks without end, or has
// a hundred thousand sleepers, must not hold up the loop that gives LC its cores back.
const (
	maxAsking = 20 * time.Millisecond // to list processes and to ask about them
	askAtOnce = 256                   // thread groups between two looks at the clock
	// askAnyway is how many are listed, and asked about, however long it takes: the clock runs on
	// while others have the CPU, which is when delays are wanted most.
	askAnyway = 1024
	// noDelayFor is how long it is told of a task that its delay could not be read once.
	noDelayFor = 5 * time.Minute
	// listEvery is how often a task is listed that has too many: the kernel takes a millisecond
	// for a thousand, and finds out how many only by listing all.
	listEvery = time.Minute
)

// Bounds of patience with a source of delays.
const (
	redialAfter = 3           // failed readings in a row
	redialEvery = time.Minute // while a source of second choice serves
)

// delays is how the source of scheduler delay does.
type delays struct {
	dial     func() (taskstats.Source, error) // the source of first choice; nil: it stays as it is
	failed   int                              // readings in a row
	failures uint64                           // readings ever
	fellBack int64                            // monotonic, since when a source of second choice serves; 0: it does not
	spent    time.Duration                    // of maxAsking, in this reading
	done     int                              // thread groups that were listed, or asked about, in it
	first    *watched                         // of its class, with which the next reading begins; nil: the first of all
	late     *watched                         // the first in this reading for which there was no time
}

// over reports whether a reading has spent what it may on processes.
func (d *delays) over() bool { return d.spent >= maxAsking && d.done >= askAnyway }

// DelayFailures returns how many readings the source of scheduler delay failed.
func (h *Host) DelayFailures() uint64 { return h.delays.failures }

// observeDelay lists the processes of tasks whose list is in doubt, asks about all thread
// groups at once and shares the answers out, the protected first, as far as the time goes. Who
// had none begins the next reading, or who comes after it where it had begun this one. Tasks
// whose list of members did not account for their usage are listed, and asked about again
// together.
func (h *Host) observeDelay(snap *model.Snapshot) {
	h.delays.spent, h.delays.done, h.delays.late = 0, 0, nil
	h.pids, h.asked, h.again = h.pids[:0], h.asked[:0], h.again[:0]
	from := max(0, slices.Index(h.tasks, h.delays.first))
	for _, first := range [...]bool{true, false} {
		for i := range h.tasks {
			w := h.tasks[(from+i)%len(h.tasks)]
			if !w.gone && w.task.Protected() == first {
				h.ask(w)
			}
		}
	}
	h.share(snap, false)
	h.pids, h.asked = h.pids[:0], h.asked[:0]
	for _, w := range h.again {
		h.ask(w)
	}
	h.share(snap, true)
	if late := h.delays.late; late == nil || late != h.delays.first {
		h.delays.first = late
	} else {
		h.delays.first = h.tasks[(from+1)%len(h.tasks)]
	}
}

// ask notes that a task's members are asked about, if they are known.
func (h *Host) ask(w *watched) {
	if h.members(w) {
		h.asked = append(h.asked, w)
		h.pids = append(h.pids, w.members.ids...)
	}
}

// share asks, and gives each task its answers. Who is asked about again stays in doubt: it
// is listed outright at the next reading.
func (h *Host) share(snap *model.Snapshot, again bool) {
	stats, ok := h.query(h.pids)
	if !ok {
		return
	}
	for i, w := range h.asked {
		n := len(w.members.ids)
		if n > len(stats) {
			for _, w := range h.asked[i:] {
				h.noDelay(w, errTooLong)
			}
			return
		}
		if !again && w.check(stats[:n]) && !w.members.listed {
			h.again = append(h.again, w)
		} else {
			w.settle(&snap.Tasks[w.sample], stats[:n])
			if h.delayed && h.delay.KeepsDeadThreads() {
				snap.Tasks[w.sample].C[model.CountIODelay] = model.Read(w.ioNsec)
			}
		}
		stats = stats[n:]
	}
}

// settle takes the answers about a task's members over.
func (w *watched) settle(s *model.TaskSample, stats []taskstats.Stats) {
	w.follow(stats)
	s.C[model.CountRun], s.C[model.CountDelay] = model.Read(w.runNsec), model.Read(w.delayNsec)
}

// errTooLong: the time for processes was used up.
var errTooLong = fmt.Errorf("to list and ask about all processes takes more than %v a reading", maxAsking)

// members lists a task's processes where that is in doubt, and reports whether they are known.
func (h *Host) members(w *watched) bool {
	if !w.members.doubt {
		return w.members.known
	}
	if h.delays.over() {
		h.noDelay(w, errTooLong)
		return false
	}
	begin := h.opt.Clock.MonoNsec()
	if begin < w.listFrom {
		return false
	}
	err := w.list()
	h.delays.done += len(w.members.ids)
	h.delays.spent += time.Duration(h.opt.Clock.MonoNsec() - begin)
	if errors.Is(err, cgroup.ErrTooManyProcs) || errors.Is(err, cgroup.ErrTooManyGroups) {
		w.listFrom = begin + listEvery.Nanoseconds()
		h.noDelay(w, err)
	}
	return err == nil
}

// noDelay notes that a task's delay is not known, and why.
func (h *Host) noDelay(w *watched, err error) {
	w.unread.why, w.unreadSince = err.Error(), h.opt.Clock.MonoNsec()
	if errors.Is(err, errTooLong) && h.delays.late == nil {
		h.delays.late = w
	}
	for _, known := range [...]error{cgroup.ErrTooManyProcs, cgroup.ErrTooManyGroups} {
		if errors.Is(err, known) {
			w.unread.why = known.Error() // the same for all tasks
		}
	}
}

// provideDelay says of which tasks the delay could not be read lately.
func (h *Host) provideDelay() {
	for _, w := range h.tasks {
		if w.unread.why != "" && h.opt.Clock.MonoNsec()-w.unreadSince > noDelayFor.Nanoseconds() {
			w.unread.why = ""
		}
	}
	h.tell(LackDelay, "the tasks' slowdown is not known, or not always", func(w *watched) *lack { return &w.unread })
}

// query asks about thread groups, and returns the answers about those that there was time
// for, from the first on; false: the source failed. They are good until the next query.
func (h *Host) query(ids []int32) ([]taskstats.Stats, bool) {
	if cap(h.stats) < len(ids) {
		h.stats = make([]taskstats.Stats, len(ids)+len(ids)/2)
	}
	stats := h.stats[:len(ids)]
	for at := 0; at < len(ids); at += askAtOnce {
		if h.delays.over() {
			return stats[:at], true
		}
		to := min(at+askAtOnce, len(ids))
		begin := h.opt.Clock.MonoNsec()
		err := h.delay.Query(ids[at:to], stats[at:to])
		h.delays.done += to - at
		h.delays.spent += time.Duration(h.opt.Clock.MonoNsec() - begin)
		if err != nil {
			h.delayFailed(err)
			return nil, false
		}
	}
	if len(ids) > 0 {
		h.delayWorks()
	}
	return stats, true
}

// What is told of a source that fails.
const (
	noDelays   = "the scheduler delay cannot be read, so that no task's slowdown is known"
	secondBest = "taskstats fails: thread schedstat is used, which forgets threads that have ended"
)

// delayFailed counts a failed reading, opens the source anew after some, and goes over to
// the one of second choice where that fails.
func (h *Host) delayFailed(err error) {
	d := &h.delays
	d.failures++
	d.failed++
	h.outages.set(h.opt.Log, noDelays, err.Error())
	if d.failed%redialAfter != 0 || d.dial == nil {
		return
	}
	if !h.redial() && d.fellBack == 0 {
		h.serveDelay(taskstats.NewSchedstat(h.opt.FS))
		d.fellBack = h.opt.Clock.MonoNsec()
		h.outages.set(h.opt.Log, secondBest, err.Error())
	}
}

// delayWorks ends an outage, and asks now and then for the source of first choice.
func (h *Host) delayWorks() {
	d := &h.delays
	d.failed = 0
	h.outages.set(h.opt.Log, noDelays, "")
	if now := h.opt.Clock.MonoNsec(); d.fellBack != 0 && now-d.fellBack >= redialEvery.Nanoseconds() {
		d.fellBack = now
		h.redial()
	}
}

// redial opens the source of first choice.
func (h *Host) redial() bool {
	s, err := h.delays.dial()
	if err != nil {
		return false
	}
	h.serveDelay(s)
	h.delays.fellBack = 0
	h.outages.set(h.opt.Log, secondBest, "")
	return true
}

func (h *Host) serveDelay(s taskstats.Source) {
	if err := h.delay.Close(); err != nil {
		h.opt.Log.Debug("a source of scheduler delay could not be closed", "source", h.delay.Name(), "error", err)
	}
	h.delay = s
}
