// Package files plays scenarios through files and calls: the node as it runs on Linux, with
// its drivers, its journal and its restore, on a simulated kernel (twin/kernfs). The other
// bed, scenario.Typed, is faster and leaves all of those out.
//
// Memory, programs, requests, pages, ways and MBA levels are the machine's own on both
// beds; groups, limits, weights, CPUs, counters and delay are read and written as files.
package files

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
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

// bed is a scenario.Bed. The host is the agent's present one; while there is none, only
// the world's methods are of use.
type bed struct {
	*linux.Host
	opt   Options
	k     *kernfs.Kernel
	world cgroup.Driver // everybody's but the agent's
	troubles
	disk    *fault.Memory
	rules   *match.Rules
	boot    string
	cpi     bool // the agent opens hardware counters
	closing func() error
	alive   map[string]*resident
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
		k, err := kernfs.New(m, kernfs.Options{Layout: o.Layout, PMU: p.Scenario.Machine.PMU})
		if err != nil {
			return nil, err
		}
		b := &bed{opt: o, k: k, disk: fault.NewMemory(), alive: map[string]*resident{}}
		c := p.Config()
		params := c.Params(p.Scenario.Machine.Platform)
		b.cpi = params.Sources[model.SourceCPI]
		if b.rules, err = match.Compile(rulesOf(p)); err != nil {
			return nil, err
		}
		return b, b.boots()
	}
}

// rulesOf says what the plan's tasks are: a rule for each.
func rulesOf(p *scenario.Plan) []match.Rule {
	var rules []match.Rule
	for _, t := range p.Tasks() {
		rules = append(rules, match.Rule{
			Glob: t.Path, Job: t.Job, Class: t.Class, Importance: t.Importance, Production: t.Production, Eligible: t.Eligible,
			Exclusive: t.Exclusive, Cores: t.Cores,
		})
	}
	return rules
}

// boots opens what does not change until the end, and the first agent's node.
func (b *bed) boots() error {
	mounts, err := cgroup.Discover(b.k)
	if err != nil {
		return err
	}
	if b.world, err = cgroup.Open(b.k, mounts); err != nil {
		return err
	}
	b.troubles = troubles{mounts: mounts, refused: map[string]error{}, lost: map[string]bool{}}
	if b.boot, err = procstat.ReadBootID(b.k); err != nil {
		return err
	}
	return b.Reopen()
}

// restoring is what a restorer works with: the same kernel, with its refusals.
func (b *bed) restoring() linux.Restoring {
	return linux.Restoring{FS: guarded{b.k, &b.troubles}, Journal: journalPath, Boot: b.boot, Disk: b.disk, Clock: b.k}
}

// Reopen implements scenario.Bed as the agent starts: recover, then open.
func (b *bed) Reopen() error {
	quiet := slog.New(slog.DiscardHandler)
	j, _, err := agent.Recover(b.restoring(), quiet)
	if err != nil {
		return err
	}
	h, err := linux.Open(linux.Options{
		FS: guarded{b.k, &b.troubles}, Rules: b.rules, Journal: j, DiscoverEvery: b.opt.DiscoverEvery, Counters: b.cpi, Log: quiet,
		Delay: b.k.Taskstats(), Opener: opener{b.k.Counters(), &b.troubles}, Clock: b.k,
	})
	if err != nil {
		return errors.Join(err, j.Close())
	}
	b.Host, b.closing = h, func() error { return errors.Join(h.Close(), j.Close()) }
	return nil
}

// Close lets go of the agent's descriptors and leaves what it holds.
func (b *bed) Close() error {
	if b.closing == nil {
		return nil
	}
	closing := b.closing
	b.closing = nil
	return closing()
}

// Kill implements scenario.Bed. What a dead agent had open is the kernel's to close; then
// its guardian restores from the journal alone.
func (b *bed) Kill() (node.Report, error) {
	if err := b.Close(); err != nil {
		return node.Report{}, err
	}
	return b.restoring().Run()
}

// Seam implements scenario.Bed.
func (b *bed) Seam() string { return "files, cgroup " + b.opt.Layout.String() }

// Machine implements scenario.Bed.
func (b *bed) Machine() *machine.Machine { return b.k.Machine() }
