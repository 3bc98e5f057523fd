// Package kernfs is a simulated Linux kernel's files and calls over a twin/machine.Machine:
// cgroups, procfs and sysfs as the drivers under node/linux read and write them, thread
// groups as taskstats tells of them, and hardware counters per cgroup. So the node runs on
// a simulated server unmodified, against a kernel that can be given faults.
//
// A process is a machine task. Files are made when they are read, from what the machine
// has counted; writes are checked by the kernel's rules and refused with its errors, then
// take effect on the machine. docs/TWIN.md says what is there and what is left out.
package kernfs

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/machine"
)

// Options describe a simulated kernel.
type Options struct {
	// Layout is LayoutV2 (all controllers on cgroup v2), or LayoutHybrid or LayoutV1: each
	// controller in a hierarchy of its own, and a cgroup2 mount without controllers
	// beside them. Start puts a process into a group of the latter too, as systemd does:
	// only there perf counts per cgroup.
	Layout cgroup.Layout
	// PMU: the machine has hardware counters. RDT: and resctrl.
	PMU, RDT bool
	// Resctrl says what RDT the machine has, if it has.
	Resctrl ResctrlOptions
	// Platform is the model name in /proc/cpuinfo; "" is a Skylake's.
	Platform string
	// BootID is /proc/sys/kernel/random/boot_id; "" is always the same one.
	BootID string
	// FileLimit is what counters take for RLIMIT_NOFILE; 0 is 65536.
	FileLimit uint64
}

// epochNsec is the wall clock when a machine starts: a Monday, 2024-01-01 00:00 UTC.
const epochNsec = 1_704_067_200_000_000_000

// firstPID leaves room for a kernel's own.
const firstPID = 300

// Kernel is a simulated kernel. It is safe for concurrent use; who calls its machine
// directly while others use the kernel is not: see Advance.
type Kernel struct {
	mu  sync.Mutex
	m   *machine.Machine
	opt Options

	root   *node
	inodes uint64
	wall   int64 // what the wall clock was set forward

	hiers   []*hierarchy
	procs   map[int32]*process
	pids    []int32 // of procs, sorted
	lastPID int32

	resctrl *resctrlFS // nil: the machine has none
	waits   *waits     // nil: nobody measures them
	oom     oomKiller
	locks   flocks
	shares  []float64 // scratch
}

var _ linux.Clock = (*Kernel)(nil)

// New returns a kernel that has just booted on a machine, without processes. Tasks that
// the machine has already are nobody's.
func New(m *machine.Machine, o Options) (*Kernel, error) {
	switch o.Layout {
	case cgroup.LayoutV1, cgroup.LayoutHybrid, cgroup.LayoutV2:
	default:
		return nil, fmt.Errorf("kernfs: no layout %s", o.Layout)
	}
	if o.Platform == "" {
		o.Platform = "Intel(R) Xeon(R) Gold 6142 CPU @ 2.60GHz"
	}
	if o.BootID == "" {
		o.BootID = "c0ffee00-7319-4e5a-8000-000000000001"
	}
	o.FileLimit = cmp.Or(o.FileLimit, 65536)
	k := &Kernel{m: m, opt: o, procs: map[int32]*process{}, lastPID: firstPID, inodes: 1}
	k.root = &node{name: "/", ino: 1, children: map[string]*node{}}
	k.mountCgroups()
	k.addProc()
	k.addSys()
	if err := k.addResources(); err != nil {
		return nil, err
	}
	return k, nil
}

// Machine returns the physics.
func (k *Kernel) Machine() *machine.Machine { return k.m }

// Advance lets a time pass on the machine, in its whole steps, and then ends whom there is no memory for.
func (k *Kernel) Advance(nsec int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	step := k.m.Config().StepNsec
	for end := k.m.NowNsec() + nsec; k.m.NowNsec()+step <= end; k.killOOM() {
		k.m.Advance(min(end-k.m.NowNsec(), max(step, oomEveryNsec)))
	}
}

// MonoNsec implements linux.Clock: the time since the machine started.
func (k *Kernel) MonoNsec() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.m.NowNsec()
}

// NowNsec is MonoNsec.
func (k *Kernel) NowNsec() int64 { return k.MonoNsec() }

// WallNsec implements linux.Clock: the time of day, in ns since 1970.
func (k *Kernel) WallNsec() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return epochNsec + k.m.NowNsec() + k.wall
}

// StepClock sets the wall clock forward, or back.
func (k *Kernel) StepClock(nsec int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wall += nsec
}

// Layout returns the layout.
func (k *Kernel) Layout() cgroup.Layout { return k.opt.Layout }

// SetOnline takes a CPU away or brings it back; CPU 0 stays. Who may run only on CPUs that
// are gone runs where the group above may, as Linux has it.
func (k *Kernel) SetOnline(cpu int, online bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.setOnline(cpu, online)
}

func (k *Kernel) setOnline(cpu int, online bool) error {
	before := k.m.Online()
	if err := k.m.SetOnline(cpu, online); err != nil {
		return fmt.Errorf("kernfs: %w", err)
	}
	if before.Has(cpu) == online {
		return nil
	}
	dir := k.dir(fmt.Sprintf("/sys/devices/system/cpu/cpu%d", cpu))
	if online {
		k.addTopology(dir, cpu)
	} else {
		k.remove(dir.children["topology"])
		k.remove(dir.children["cache"])
	}
	k.cpusChanged()
	if k.resctrl != nil {
		k.resctrl.sync()
	}
	return nil
}
