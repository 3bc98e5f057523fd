// Package twin puts a simulated server behind node.Host, so that the engine and its
// policies run on it unchanged, faster than life. The physics is in twin/machine.
package twin

import (
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin/machine"
)

// EpochNsec is the wall clock when a machine starts: a Monday, 2024-01-01 00:00 UTC.
const EpochNsec = 1_704_067_200_000_000_000

// Host is a simulated machine as the agent sees it.
type Host struct {
	m       *machine.Machine
	tasks   []entry
	added   []model.Task
	removed []model.TaskNum
	over    uint64 // CPU time of tasks that are gone, ns
	// PMU says whether the machine has hardware counters.
	pmu bool
}

// entry is a task, from its start on; gone ones stay, since numbers are not used again.
type entry struct {
	task  model.Task
	num   int // of the machine
	gone  bool
	held  bool
	lost  bool         // its hardware counters cannot be read
	deny  string       // what the kernel answers to writes of its limit; "": it takes them
	found model.CPUMax // before our first write
	wrote model.CPUMax // what we wrote last
}

var _ node.Host = (*Host)(nil)

// NewHost returns a machine without tasks; pmu says whether it has hardware counters.
func NewHost(m *machine.Machine, pmu bool) *Host { return &Host{m: m, pmu: pmu} }

// Machine returns the physics.
func (h *Host) Machine() *machine.Machine { return h.m }

// Start starts a task. Num, Inode and CPUs of t are set.
func (h *Host) Start(t model.Task, cfg machine.TaskConfig) (model.TaskNum, error) {
	num, err := h.m.Add(cfg)
	if err != nil {
		return 0, err
	}
	t.Num = model.TaskNum(len(h.tasks) + 1)
	t.Inode = uint64(t.Num)
	t.CPUs = cfg.CPUs.Len()
	if t.CPUs == 0 {
		c := h.m.Config()
		t.CPUs = c.CPUs()
	}
	h.tasks = append(h.tasks, entry{task: t, num: num})
	h.added = append(h.added, t)
	return t.Num, nil
}

// Stop ends a task.
func (h *Host) Stop(num model.TaskNum) error {
	e := h.find(num)
	if e == nil {
		return fmt.Errorf("twin: no task %d", num)
	}
	k, err := h.m.Counters(e.num)
	if err != nil {
		return err
	}
	if err := h.m.Remove(e.num); err != nil {
		return err
	}
	h.over += k.UsageNsec
	e.gone = true
	h.removed = append(h.removed, num)
	return nil
}

// Physical returns the number by which the machine knows a task.
func (h *Host) Physical(num model.TaskNum) (int, error) {
	e := h.find(num)
	if e == nil {
		return 0, fmt.Errorf("twin: no task %d", num)
	}
	return e.num, nil
}

// Stranger writes a task's limit as another program would.
func (h *Host) Stranger(num model.TaskNum, v model.CPUMax) error {
	e := h.find(num)
	if e == nil {
		return fmt.Errorf("twin: no task %d", num)
	}
	return h.m.SetCPUMax(e.num, machine.CPUMax(v))
}

// LoseCounters makes a task's hardware counters unreadable, or readable again.
func (h *Host) LoseCounters(num model.TaskNum, lost bool) error {
	e := h.find(num)
	if e == nil {
		return fmt.Errorf("twin: no task %d", num)
	}
	e.lost = lost
	return nil
}

// Refuse makes the kernel refuse writes of a task's limit with an error; "" ends that.
func (h *Host) Refuse(num model.TaskNum, text string) error {
	e := h.find(num)
	if e == nil {
		return fmt.Errorf("twin: no task %d", num)
	}
	e.deny = text
	return nil
}

// Reopen is what a new agent finds: every task is new to it. What an earlier one held and
// did not restore stays in the journal.
func (h *Host) Reopen() {
	h.added, h.removed = nil, nil
	for i := range h.tasks {
		if !h.tasks[i].gone {
			h.added = append(h.added, h.tasks[i].task)
		}
	}
}

// find returns a task that lives, or nil.
func (h *Host) find(num model.TaskNum) *entry {
	if num == 0 || int(num) > len(h.tasks) || h.tasks[num-1].gone {
		return nil
	}
	return &h.tasks[num-1]
}

// Observe implements node.Host.
func (h *Host) Observe(mark model.WindowMark, snap *model.Snapshot) error {
	tasks, online := snap.Tasks[:0], h.m.Online()
	*snap = model.Snapshot{
		MonoNsec: h.m.NowNsec(), WallNsec: EpochNsec + h.m.NowNsec(), Mark: mark,
		Node: model.NodeSample{
			CPUs: online.Len(), Steal: model.Read(0), StallCPU: model.Read(h.m.SystemPressure().CPUSome),
		},
		Added: h.added, Removed: h.removed,
	}
	h.added, h.removed = nil, nil
	// Everything that runs is a task: the sum of what they say leaves nothing over, where
	// the machine's own figure would leave a rounding that passes for unmanaged CPU.
	busy := h.over
	for i := range h.tasks {
		e := &h.tasks[i]
		if e.gone {
			continue
		}
		k, err := h.m.Counters(e.num)
		if err != nil {
			return err
		}
		busy += k.UsageNsec
		s := model.TaskSample{
			Num: e.task.Num, Usage: model.Read(k.UsageNsec), Throttled: model.Read(k.Throttled),
			Run: model.Read(k.UsageNsec), Delay: model.Read(k.DelayNsec),
		}
		if h.pmu && !e.lost {
			s.Cycles, s.RefCycles = model.Read(k.Cycles), model.Read(k.RefCycles)
			s.Instructions, s.LLCMisses = model.Read(k.Instructions), model.Read(k.LLCMisses)
		}
		tasks = append(tasks, s)
	}
	snap.Tasks, snap.Node.Busy = tasks, model.Read(busy)
	return nil
}

// Knobs implements node.Host.
func (h *Host) Knobs(dst []model.KnobReading) []model.KnobReading {
	for i := range h.tasks {
		if e := &h.tasks[i]; e.held && !e.gone {
			dst = append(dst, model.KnobReading{Task: e.task.Num, Value: h.limit(e), Outcome: model.OK})
		}
	}
	return dst
}

func (h *Host) limit(e *entry) model.CPUMax {
	v, err := h.m.CPUMax(e.num)
	if err != nil {
		panic("a task that lives has a limit: " + err.Error())
	}
	return model.CPUMax(v)
}

// Apply implements node.Host. The journal of a simulated machine is its own memory.
func (h *Host) Apply(changes []model.Change, dst []model.Result) []model.Result {
	for i := range changes {
		c := &changes[i]
		res := model.Result{Seq: c.Seq, Task: c.Task, MonoNsec: h.m.NowNsec()}
		e := h.find(c.Task)
		switch {
		case c.Kind == model.Disown:
			if e != nil {
				e.held = false
			}
			continue
		case e == nil:
			res.Kind, res.Error = model.Vanished, "the task is gone"
		default:
			h.change(e, c, &res)
		}
		dst = append(dst, res)
	}
	return dst
}

func (h *Host) change(e *entry, c *model.Change, res *model.Result) {
	now := h.limit(e)
	res.Found, res.Now = now, now
	if e.held {
		res.Found = e.found
		if now != e.wrote {
			res.Kind, res.Error = model.Foreign, "another program wrote this limit"
			return
		}
	}
	if c.Kind == model.Release && !e.held {
		return // nothing of ours: as found
	}
	want := res.Found
	if c.Kind == model.Hold && c.Value.Ratio() < res.Found.Ratio() {
		want = c.Value
	}
	if err := h.write(e, want); err != nil {
		res.Kind, res.Error = model.Refused, err.Error()
		return
	}
	if !e.held {
		e.found = res.Found
	}
	e.held, e.wrote = c.Kind == model.Hold, want
	res.Now = want
}

// write writes a task's limit as the agent does.
func (h *Host) write(e *entry, v model.CPUMax) error {
	if e.deny != "" {
		return errors.New(e.deny)
	}
	return h.m.SetCPUMax(e.num, machine.CPUMax(v))
}

// Restore implements node.Host.
func (h *Host) Restore() (node.Report, error) {
	var rep node.Report
	for i := range h.tasks {
		e := &h.tasks[i]
		if !e.held || e.gone {
			continue
		}
		item := node.Restoration{Path: e.task.Path, Kind: node.Restored, Found: e.found, Now: h.limit(e)}
		switch {
		case item.Now == e.found:
			item.Kind = node.AsFound
		case item.Now != e.wrote:
			item.Kind = node.LeftForeign
		default:
			if err := h.write(e, e.found); err != nil {
				item.Kind, item.Error = node.NotRestored, err.Error()
				break
			}
			item.Now = e.found
		}
		if item.Kind != node.NotRestored {
			e.held = false
		}
		rep.Items = append(rep.Items, item)
	}
	return rep, nil
}

// Close implements node.Host.
func (h *Host) Close() error { return nil }

// Unlimited is the limit of a task that has none.
func Unlimited() model.CPUMax {
	return model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}
}
