package linux

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/schedwait"
	"github.com/commensal-io/commensal/model"
)

// WaitSource measures who makes whom wait for a CPU, as *schedwait.Source does.
type WaitSource interface {
	SetGroups(groups []schedwait.Group) error
	Start() error
	Stop() error
	Read(r *schedwait.Reading, monoNsec int64) error
	Close() error
}

// OpenWaits opens the running kernel's. Errors are those of schedwait.Open.
func OpenWaits(fs hostfs.FS) (WaitSource, error) {
	m, err := cgroup.Discover(fs)
	if err != nil {
		return nil, err
	}
	s, err := schedwait.Open(schedwait.Options{V2: m.V1[cgroup.CPU] == ""})
	if err != nil {
		return nil, err // and no *schedwait.Source that is nil
	}
	return s, nil
}

// What a reading keeps of a task: the parties that it waited for longest.
const maxShares = 8

// What measuring may cost: a share of all CPUs, at so many nanoseconds a switch with its wake-up (docs/WAITS.md).
const (
	waitsBudget   = 0.01
	nsecPerSwitch = 400
	// maxSkip bounds how many windows in a row are left out. A CPU that did nothing but switch, a million times a second,
	// would ask for 40; what asks for more is a clock that stood still.
	maxSkip = 59
)

// waits are the waits of LC tasks. They are measured in windows only; where that would cost too much, in one window of
// several.
type waits struct {
	source  WaitSource
	on      bool
	since   int64 // monotonic, of the last reading or start
	skip    int   // windows that are not measured
	skipped int   // before the one that is
	groups  []schedwait.Group
	reading schedwait.Reading
	out     []model.Waiting
	lost    model.WaitLoss // of the window, whoever waited
}

// observeWaits adds how LC tasks waited since the last reading. What fails is told once, and costs nobody else anything.
func (h *Host) observeWaits(snap *model.Snapshot) {
	w := &h.waits
	if w.source == nil {
		return
	}
	measured, err := h.measureWaits(snap.Mark)
	why := ""
	if err != nil {
		why = err.Error()
	}
	h.outages.set(h.opt.Log, "who makes services wait for a CPU cannot be measured", why)
	if err != nil || !measured {
		return
	}
	why = ""
	if l := w.reading.Lost; l.Waits+l.Rows > 0 {
		why = "there are more threads, or cgroups that delay them, than there is room for"
	}
	h.outages.set(h.opt.Log, "not all waits for a CPU are measured", why)
	h.tellUnfit(w.reading.Unfit)
	w.out = w.out[:0]
	for i := range w.reading.Tasks {
		t := &w.reading.Tasks[i]
		at, ok := slices.BinarySearchFunc(snap.Tasks, model.TaskNum(t.Task), func(s model.TaskSample, n model.TaskNum) int { return cmp.Compare(s.Num, n) })
		if !ok {
			continue // gone in this very reading
		}
		of := h.find(model.TaskNum(t.Task))
		waiting := h.waitingOf(t)
		of.waited += uint64(waiting.Nsec)
		of.waitedForeign += uint64(foreign(t))
		c := &snap.Tasks[at].C
		c[model.CountWaited], c[model.CountWaitedForeign] = model.Read(of.waited), model.Read(of.waitedForeign)
		c[model.CountWaitP99] = model.Read(uint64(waiting.P99Nsec))
		if waiting.Nsec > 0 || !waiting.Judged() {
			w.out = append(w.out, waiting)
		}
	}
	snap.Waiting = w.out
}

// measureWaits switches the measurement on for windows, and reads it when one ends. It reports whether there is
// something to tell.
func (h *Host) measureWaits(mark model.WindowMark) (measured bool, err error) {
	w, now := &h.waits, h.opt.Clock.MonoNsec()
	if err := h.setGroups(); err != nil {
		return false, err
	}
	if w.on && mark&model.WindowEnd != 0 {
		if err := w.source.Read(&w.reading, now); err != nil {
			// What comes next would be of this window too.
			w.on = false
			return false, errors.Join(err, w.source.Stop())
		}
		measured = true
		w.skip, w.lost = h.waitsToSkip(now-w.since), lossOf(&w.reading)
		w.lost.Skipped, w.skipped = w.skipped, 0
		w.since = now
	}
	goOn := mark&model.WindowStart != 0 && w.skip == 0
	switch {
	case w.on && !goOn:
		err, w.on = w.source.Stop(), false
	case !w.on && goOn:
		if err = w.source.Start(); err != nil {
			break
		}
		w.on, w.since = true, now
		if err = w.source.Read(&w.reading, now); err != nil { // what was before is nobody's
			w.on = false
			err = errors.Join(err, w.source.Stop())
		}
	}
	if mark&model.WindowStart != 0 && w.skip > 0 {
		w.skip--
		w.skipped++
	}
	return measured, err
}

// waitsToSkip says how many windows go by after one that was measured, so that all together cost no more than they may.
func (h *Host) waitsToSkip(elapsed int64) int {
	if elapsed <= 0 || h.online < 1 {
		return 0
	}
	cost := float64(h.waits.reading.Switches) * nsecPerSwitch / float64(elapsed) / float64(h.online)
	n := int(math.Ceil(min(cost/waitsBudget, maxSkip+1)))
	why := ""
	if n > 1 {
		why = fmt.Sprintf("%.0f switches a second on %d CPUs would take more than %g %% of them", float64(h.waits.reading.Switches)/float64(elapsed)*1e9, h.online, 100*waitsBudget)
	}
	h.outages.set(h.opt.Log, "who makes services wait for a CPU is measured in some windows only", why)
	return min(max(0, n-1), maxSkip)
}

// lossOf is what a window lost, whoever waited: of events that were not heard of nobody knows whose they were.
func lossOf(r *schedwait.Reading) (l model.WaitLoss) {
	if n := r.Lost.Events; n > 0 {
		l.Events = float64(n) / float64(n+r.Switches)
	}
	return l
}

// addLoss adds what was lost of a task's own waits.
func addLoss(l *model.WaitLoss, t *schedwait.Waits) {
	ended := t.Count[0] + t.Count[1]
	if t.NotTaken > 0 {
		l.NotTaken = float64(t.NotTaken) / float64(t.NotTaken+ended+int64(t.Open))
	}
	if t.Strays > 0 {
		l.Events = min(1, l.Events+float64(t.Strays)/float64(max(t.Strays, ended)))
	}
	for _, x := range t.Shares {
		if x.Party == schedwait.Unknown {
			l.UnknownNsec += x.Nsec
		}
	}
}

// setGroups has the tasks there are measured: the waits of LC tasks, and who of all is to blame.
//
// Where there are more than fit, LC tasks come first, for without them there is nobody to act for; then those that can be
// held; then all others, who may as well be unmanaged. Of a class the ones that have been here longest come first: their
// normal is known, and nobody's measurement ends because another came.
func (h *Host) setGroups() error {
	w := &h.waits
	w.groups = w.groups[:0]
	for _, class := range [...]model.Class{model.LC, model.BE, model.System} {
		for _, t := range h.tasks {
			if t.gone || t.task.Class != class {
				continue
			}
			if t.cpuInode == 0 {
				inode, err := h.cg.Inode(t.task.Path)
				if err != nil {
					continue // gone, or made anew: the next discovery tells
				}
				t.cpuInode = inode
			}
			w.groups = append(w.groups, schedwait.Group{Cgroup: t.cpuInode, Task: int(t.task.Num), Watched: class == model.LC})
		}
	}
	return w.source.SetGroups(w.groups)
}

// tellUnfit says which tasks there is no room to measure.
func (h *Host) tellUnfit(u schedwait.Unfit) {
	var parts []string
	if u.Watched > 0 {
		parts = append(parts, fmt.Sprintf("there is no room for %d services, the youngest: who makes them wait is not measured", u.Watched))
	}
	if u.Groups > 0 {
		parts = append(parts, fmt.Sprintf("there is no room for %d tasks: they count as the task that contains them, or as unmanaged", u.Groups))
	}
	h.outages.set(h.opt.Log, "not all tasks have their waits for a CPU measured", strings.Join(parts, "; "))
}

var waitParties = map[schedwait.Party]model.WaitParty{
	schedwait.Unmanaged: model.WaitUnmanaged, schedwait.Idle: model.WaitIdle, schedwait.Kernel: model.WaitKernel, schedwait.SoftIRQ: model.WaitSoftIRQ,
	schedwait.Steal: model.WaitSteal, schedwait.Throttled: model.WaitThrottled, schedwait.Unknown: model.WaitUnknown,
}

// waitingOf turns a task's reading into what the engine takes.
func (h *Host) waitingOf(t *schedwait.Waits) model.Waiting {
	w := model.Waiting{
		Num: model.TaskNum(t.Task), P99Nsec: t.Lengths[schedwait.AfterWakeup].Quantile(0.99), LongestNsec: t.LongestNsec,
		Waits: t.Count[0] + t.Count[1], Nsec: t.Nsec[0] + t.Nsec[1], Lost: h.waits.lost,
	}
	addLoss(&w.Lost, t)
	// A reader may keep the snapshot: the shares are a slice of their own.
	for _, x := range t.Shares[:min(len(t.Shares), maxShares)] {
		share := shareOf(x)
		if share.Party == model.WaitUnmanaged || share.Party == model.WaitKernel {
			share.Process = h.processName(x.PID)
		}
		w.Shares = append(w.Shares, share)
	}
	return w
}

// foreign is for how long another than the task itself had the CPU, of all parties.
func foreign(t *schedwait.Waits) (nsec int64) {
	for _, x := range t.Shares {
		share := shareOf(x)
		if share.Foreign(model.TaskNum(t.Task)) {
			nsec += x.Nsec
		}
	}
	return nsec
}

// shareOf is a share in the engine's words.
func shareOf(x schedwait.Share) model.WaitShare {
	if task, ok := x.Party.Task(); ok {
		return model.WaitShare{Party: model.WaitTask, Task: model.TaskNum(task), Nsec: x.Nsec}
	}
	return model.WaitShare{Party: waitParties[x.Party], Nsec: x.Nsec}
}

// processName is what a process is called, "" when it is gone.
func (h *Host) processName(pid int) string {
	if pid == 0 {
		return ""
	}
	b, err := h.opt.FS.ReadFile(fmt.Sprintf("/proc/%d/comm", pid), nil)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(slices.Clone(b)))
}
