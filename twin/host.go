// Package twin puts a simulated server behind node.Host, so that the engine and its
// policies run on it unchanged, faster than life. The physics is in twin/machine.
package twin

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin/machine"
)

// EpochNsec is the wall clock when a machine starts: a Monday, 2024-01-01 00:00 UTC.
const EpochNsec = 1_704_067_200_000_000_000

// Host is a simulated machine as the agent sees it. Its knobs are as cgroup v2 has them: a
// task without CPUs of its own runs on all that are online.
type Host struct {
	m       *machine.Machine
	tasks   []entry
	added   []model.Task
	removed []model.TaskNum
	over    uint64 // CPU time of tasks that are gone, ns
	// pulsed is the CPU time of LC tasks without CPUs of their own since the agent began, as far as it
	// was read, ns.
	pulsed uint64
	told   bool         // of the topology
	online model.CPUSet // as it was told
	// pmu says whether the machine has hardware counters.
	pmu bool

	waits   waited
	made    []made       // the classes of ours
	classes []*classKnob // knobs of classes of service that were ever asked about
	// services are the ways that classes of services were given.
	services map[servicesAt]int
	results  []model.Result // of changes, until they are asked for
	late     Late

	meters  bool                 // somebody asks what is moved to and from memory ...
	inUse   bool                 // ... and how much of it is in use
	metered []model.MemorySample // at the last window's edge
	counts  bool                 // ... and what each task has of the caches and moves
	had     []model.DomainSample // the same at the last window's edge
	stalls  *machine.StallWatch  // nil: nobody asked

	homes     bool  // where the pages of LC tasks lie is told
	agesEvery int64 // how far apart the ages of a task's pages are read; 0: never

	io  bool             // somebody asks what is done on the disk
	ios []model.IOSample // of the reading at hand
}

// entry is a task, from its start on; gone ones stay, since numbers are not used again.
type entry struct {
	task  model.Task
	num   int // of the machine
	gone  bool
	lost  bool   // its hardware counters cannot be read
	known bool   // an Observe told of it
	usage uint64 // CPU time when pulsed was last brought up to date
	// hidden: no rule of the agent's speaks of it. What it uses is nobody's.
	hidden bool
	agedAt int64 // when the ages of its pages were last read
	// countedNsec is when what it has of the caches began to be counted; 0: not yet.
	countedNsec int64
	// waited is for how long its threads waited for a CPU in windows, and of that for others, ns.
	waited, waitedForeign uint64
	knobs                 [model.NumKnobs]knob
}

// knob is what is kept of one knob of a task.
type knob struct {
	held   bool
	deny   string        // what the kernel answers to writes; "": it takes them
	found  model.Setting // before our first write
	wrote  model.Setting // what we wrote last
	known  bool          // listed is what a snapshot said last
	listed model.Setting
}

var (
	_ node.Host     = (*Host)(nil)
	_ node.Metering = (*Host)(nil)
	_ node.Looking  = (*Host)(nil)
)

// NewHost returns a machine without tasks; pmu says whether it has hardware counters.
func NewHost(m *machine.Machine, pmu bool) *Host { return &Host{m: m, pmu: pmu} }

// Machine returns the physics.
func (h *Host) Machine() *machine.Machine { return h.m }

// MonoNsec and WallNsec are the machine's clock, as linux.Clock has it.
func (h *Host) MonoNsec() int64 { return h.m.NowNsec() }

// WallNsec is the time of day, nanoseconds since 1970.
func (h *Host) WallNsec() int64 { return EpochNsec + h.m.NowNsec() }

// Start starts a task. Num, Inode and CPUs of t are set.
func (h *Host) Start(t model.Task, cfg machine.TaskConfig) (model.TaskNum, error) {
	return h.start(t, cfg, false)
}

// StartUnmanaged starts what no rule of the agent's speaks of: the agent is not told of it.
func (h *Host) StartUnmanaged(t model.Task, cfg machine.TaskConfig) (model.TaskNum, error) {
	return h.start(t, cfg, true)
}

func (h *Host) start(t model.Task, cfg machine.TaskConfig, hidden bool) (model.TaskNum, error) {
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
	h.tasks = append(h.tasks, entry{task: t, num: num, hidden: hidden})
	if hidden {
		h.waits.own(num, owner{kernel: cfg.Kernel})
	} else {
		h.waits.own(num, owner{task: t.Num})
		h.added = append(h.added, t)
	}
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
	h.follow(e, k.UsageNsec)
	h.over += k.UsageNsec
	e.gone = true
	if !e.hidden {
		h.removed = append(h.removed, num)
	}
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

// Setting returns what a task's knob is set to.
func (h *Host) Setting(num model.TaskNum, kind model.KnobKind) (model.Setting, error) {
	e := h.find(num)
	if e == nil || kind >= model.NumKnobs {
		return model.Setting{}, fmt.Errorf("twin: no knob %s of task %d", kind, num)
	}
	return h.setting(e, kind), nil
}

// Stranger writes a knob as another program would. The CPUs of a place may be none.
func (h *Host) Stranger(num model.TaskNum, v model.Setting) error {
	e := h.find(num)
	if e == nil {
		return fmt.Errorf("twin: no task %d", num)
	}
	return h.set(e, v)
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

// Refuse makes the kernel refuse the agent's writes of a task's knob with an error; ""
// ends that.
func (h *Host) Refuse(num model.TaskNum, kind model.KnobKind, text string) error {
	e := h.find(num)
	if e == nil || kind >= model.NumKnobs {
		return fmt.Errorf("twin: no knob %s of task %d", kind, num)
	}
	e.knobs[kind].deny = text
	return nil
}

// Reopen is what a new agent finds: every task is new to it. What an earlier one held and
// did not restore stays in the journal.
func (h *Host) Reopen() {
	h.added, h.removed, h.told = nil, nil, false
	h.pulsed = 0
	h.switchWaits(false)
	h.metered, h.had = nil, nil
	for i := range h.tasks {
		e := &h.tasks[i]
		e.waited, e.waitedForeign = 0, 0
		if e.gone || e.hidden {
			continue
		}
		h.added = append(h.added, e.task)
		e.known, e.countedNsec = false, 0
		for k := range e.knobs {
			e.knobs[k].known = false
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

// Close implements node.Host.
func (h *Host) Close() error { return nil }

// Unlimited is the limit of a task that has none.
func Unlimited() model.CPUMax {
	return model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}
}
