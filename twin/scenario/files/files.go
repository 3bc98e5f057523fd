// Package files plays scenarios through files and calls: the node as it runs on Linux, with
// its drivers, its journal and its restore, on a simulated kernel (twin/kernfs). The other
// bed, scenario.Typed, is faster and leaves all of those out.
//
// Memory, programs, requests, pages, ways and MBA levels are the machine's own on both
// beds; groups, limits, weights, CPUs, counters and delay are read and written as files.
package files

import (
	"fmt"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/fault"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/scenario"
)

// Options say on what kernel a scenario is played.
type Options struct {
	Layout cgroup.Layout // LayoutV2 or LayoutHybrid
	// DiscoverEvery is how often the agent looks for new tasks; 0: at each reading, which
	// is when the typed seam tells of them.
	DiscoverEvery time.Duration
}

// Layouts are the names of the layouts that a scenario can be played on.
func Layouts() []string { return []string{cgroup.LayoutV2.String(), cgroup.LayoutHybrid.String()} }

// ParseOptions returns a layout's options, with the agent's own interval of discovery.
func ParseOptions(layout string) (Options, error) {
	c, _ := config.Defaults(config.ProfileSingleNode)
	o := Options{DiscoverEvery: c.Agent.DiscoverEvery}
	for _, l := range []cgroup.Layout{cgroup.LayoutV2, cgroup.LayoutHybrid} {
		if l.String() == layout {
			o.Layout = l
			return o, nil
		}
	}
	return o, fmt.Errorf("layout %q: expected one of %v", layout, Layouts())
}

// journalPath is where the agent's journal is, on a disk in memory.
const journalPath = "/var/lib/commensal/journal"

// bed is a scenario.Bed.
type bed struct {
	opt   Options
	k     *kernfs.Kernel
	world cgroup.Driver // everybody's but the agent's
	troubles
	disk  *fault.Memory
	boot  string
	clock *fault.Clock
	alive map[string]*resident
}

// resident is a task that runs, as the world wants it.
type resident struct {
	shares int64
	idle   bool
	cpus   model.CPUSet // empty: all
}

var _ scenario.Bed = (*bed)(nil)

// Bed returns what makes the machine of a plan with such a kernel on it.
func Bed(o Options) scenario.NewBed {
	return func(p *scenario.Plan, seed uint64) (scenario.Bed, error) {
		if err := o.check(p); err != nil {
			return nil, err
		}
		m, err := machine.New(p.MachineConfig(), seed)
		if err != nil {
			return nil, err
		}
		k, err := kernfs.New(m, kernfs.Options{Layout: o.Layout, PMU: p.Scenario.Machine.PMU, RDT: true})
		if err != nil {
			return nil, err
		}
		if err := k.MountResctrl(resctrl.MountOptions{}); err != nil {
			return nil, err
		}
		b := &bed{opt: o, k: k, disk: fault.NewMemory(), alive: map[string]*resident{}}
		b.clock = fault.NewClock(k.MonoNsec, k.WallNsec, nil)
		return b, b.boots()
	}
}

// boots opens what the world has.
func (b *bed) boots() error {
	mounts, err := cgroup.Discover(b.k)
	if err != nil {
		return err
	}
	if b.world, err = cgroup.Open(b.k, mounts); err != nil {
		return err
	}
	b.troubles = troubles{mounts: mounts, refused: map[string]error{}, lost: map[string]bool{}}
	b.boot, err = procstat.ReadBootID(b.k)
	return err
}

// restoring is what a restorer works with: the same kernel, with its refusals.
func (b *bed) restoring() linux.Restoring {
	return linux.Restoring{FS: guarded{b.k, &b.troubles}, Journal: journalPath, Boot: b.boot, Disk: b.disk, Clock: b.clock}
}

// Assemble implements scenario.Bed.
func (b *bed) Assemble(c config.Config, d agent.Deps) (*agent.Core, error) {
	c.Agent.DiscoverEvery = b.opt.DiscoverEvery
	r := b.restoring()
	d.FS, d.Journal, d.Disk, d.Boot, d.Clock = r.FS, r.Journal, r.Disk, r.Boot, r.Clock
	d.Beside = func(work func()) { work() }
	d.Stalls = b.k.WatchStalls
	d.Delay, d.Opener = b.k.Taskstats(), opener{b.k.Counters(), &b.troubles}
	d.Pages = b.k.PageCalls()
	wrap := d.Wrap
	d.Wrap = func(h node.Host) node.Host {
		if h = b.k.Late(h); wrap != nil {
			h = wrap(h)
		}
		return h
	}
	d.Latency = b.k.MemoryLatency
	if c.Agent.Waits {
		d.Waits = b.k.Waits()
	}
	return agent.Assemble(&c, d)
}

// Guard implements scenario.Bed: it restores from the journal alone.
func (b *bed) Guard() (node.Report, error) { return b.restoring().Run() }

// Seam implements scenario.Bed.
func (b *bed) Seam() string { return "files, cgroup " + b.opt.Layout.String() }

// Machine implements scenario.Bed.
func (b *bed) Machine() *machine.Machine { return b.k.Machine() }
