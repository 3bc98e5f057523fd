package agent

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/record"
)

// Deps are what a Core stands on, beside its configuration: this machine, a simulated kernel,
// or a simulated machine without files.
type Deps struct {
	// Host is a machine behind the typed seam; it stays the caller's to close. nil: a
	// linux.Host is opened on FS, after what an earlier agent left was put back.
	Host node.Host

	// FS, the path of the journal on Disk, Delay and Opener are for a linux.Host. The caller
	// holds the journal's lock. Disk, Delay and Opener may be nil: this machine's own.
	FS      hostfs.FS
	Journal string
	Disk    journal.Disk
	Delay   taskstats.Source // stays the caller's to close
	Opener  linux.CounterOpener
	Latency linux.MemoryLatency // nil: nobody knows how long memory takes to answer
	Waits   linux.WaitSource    // stays the caller's to close; nil: nobody measures who makes whom wait
	Pages   numa.Calls          // find and move pages; nil: this machine's own
	Ender   cgroup.Ender        // ends processes; nil: this machine's own
	GPUs    linux.GPUSource     // asks the driver of GPUs; nil: nobody does
	// Stalls says when programs wait for memory; nil: this machine's PSI triggers do.
	Stalls func(some, full float64) (linux.StallSource, error)
	// SLO appends what latency sources say at the edge of a window; nil: there are none.
	SLO func(dst []model.Latency) []model.Latency
	// Told is told of each decision, and does not keep it; nil: nobody is.
	Told func(d *model.Decision)
	// Became is told of each result as it is handed to the engine, and does not keep it; nil: nobody is.
	Became func(r *model.Result)
	// Gather is told of windows, decisions and incidents; nil: nobody is.
	Gather *uplink.Gather
	// Beside begins slow work; nil: in a goroutine.
	Beside func(work func())
	// Boot and Platform are read from FS where they are "".
	Boot     string
	Platform string // CPU type, of which specs are

	Clock linux.Clock // nil: this machine's own
	Log   *slog.Logger
	// KillSwitch reports whether everything is to be released; nil: never.
	KillSwitch func() bool
	// Protection returns of which jobs protection is off in the whole fleet, which nobody changes; nil, or of nil: of none.
	Protection func() *wire.Protection
	// Record makes what keeps a record under a header; nil: nothing is recorded.
	Record   func(h record.Header) Recorder
	IDPrefix string // begins the names of incidents

	// Wrap puts something between the core and its host; nil: nothing.
	Wrap func(h node.Host) node.Host
	// Adjust sets what an experiment has otherwise than any configuration says; nil: nothing.
	Adjust func(p *engine.Params)
	// State is what the engine remembers from the start; nil: nothing.
	State *engine.State
}

// KillSwitch returns what looks whether the file is there that releases everything.
func KillSwitch(cfg *config.Config) func() bool {
	return func() bool { return unix.Access(cfg.Agent.KillSwitch, unix.F_OK) == nil }
}

// Assemble makes a core of a checked configuration and of what it stands on. It is the one
// way to a core: of the agent, of labs and of simulations. Close closes what was opened.
func Assemble(cfg *config.Config, d Deps) (c *Core, err error) {
	c = &Core{Host: d.Host, Clock: d.Clock, cfg: cfg, log: d.Log, killSwitch: d.KillSwitch, protection: d.Protection}
	if c.Clock == nil {
		c.Clock = linux.RealClock{}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.told.slo, c.decided, c.became, c.gather = d.SLO, d.Told, d.Became, d.Gather
	c.identify(&d)
	params := cfg.Params(d.Platform)
	params.Hardcap.IDPrefix = d.IDPrefix
	if d.Adjust != nil {
		d.Adjust(&params)
	}
	c.Engine = engine.New(params)
	if d.State != nil {
		if c.Engine, err = engine.Resume(params, d.State); err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
	}
	if c.Host == nil {
		if err := c.open(&d); err != nil {
			return nil, err
		}
	}
	if m, ok := c.Host.(node.Metering); ok {
		needs := params.Needs()
		m.Meter(node.Readings{Moved: needs.Memory, InUse: needs.InUse || needs.Sizes, IO: needs.IO, Domains: cfg.Monitors(&params), Homes: needs.Homes, Ages: needs.Ages})
	}
	if l, ok := c.Host.(node.Looking); ok {
		if some, full, ok := params.Stalls(); ok {
			c.looking = l
			if err := l.Watch(some, full); err != nil {
				c.log.Info("not to be had on this machine; the rest goes on", "missing", fmt.Sprintf("waking when programs wait for memory: %v", err))
			}
		}
	}
	if d.Wrap != nil {
		c.Host = d.Wrap(c.Host)
	}
	if d.Record != nil {
		c.record = d.Record(record.Header{Boot: d.Boot, Profile: cfg.Profile, Params: c.Engine.Params})
	}
	return c, nil
}

// identify fills in what FS says of the machine.
func (c *Core) identify(d *Deps) {
	if d.FS == nil || d.Platform != "" {
		return
	}
	var err error
	if d.Platform, err = procstat.ReadPlatform(d.FS); err != nil {
		d.Platform = "unknown"
		c.Warnings = append(c.Warnings, fmt.Sprintf("the CPU type cannot be told: %v", err))
	}
}

// open starts as an agent does: it puts back what an earlier one left, and opens the machine
// on what could not be put back.
func (c *Core) open(d *Deps) error {
	var err error
	if d.Boot == "" {
		if d.Boot, err = procstat.ReadBootID(d.FS); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
	}
	j, warnings, err := Recover(linux.Restoring{FS: d.FS, Journal: d.Journal, Boot: d.Boot, Disk: d.Disk, Clock: c.Clock}, c.log)
	c.Warnings = append(c.Warnings, warnings...)
	if err != nil {
		return err
	}
	rules, err := match.Compile(c.cfg.Rules())
	if err != nil {
		return errors.Join(fmt.Errorf("agent: %w", err), j.Close())
	}
	p := &c.Engine.Params
	needs := p.Needs()
	if !needs.GPUs {
		d.GPUs = nil
	}
	host, err := linux.Open(linux.Options{
		FS: d.FS, Rules: rules, Journal: j, DiscoverEvery: c.cfg.Agent.DiscoverEvery, Counters: p.Sources[model.SourceCPI],
		Places: needs.Places, Classes: needs.Classes, Memory: needs.Memory, Monitor: c.cfg.Monitors(p), Targets: c.cfg.Targets(), InUse: needs.InUse, Sizes: needs.Sizes, IO: needs.IO, Homes: needs.Homes, Ages: needs.Ages, GPUs: d.GPUs, GPUEvery: c.cfg.Agent.GPUEvery, Beside: d.Beside, CapsOnly: !p.NeedsPulse() && d.Waits == nil, Log: c.log,
		Delay: d.Delay, Opener: d.Opener, Waits: d.Waits, Pages: d.Pages, Ender: d.Ender, Latency: d.Latency, Stalls: d.Stalls, Clock: c.Clock,
	})
	if err != nil {
		return errors.Join(err, j.Close())
	}
	if p.Spec.CoreCycles = host.CoreCycles(); p.Spec.CoreCycles {
		c.Warnings = append(c.Warnings, "this machine counts no reference cycles: CPI is of core cycles, in which a neighbour that takes turbo away is not seen")
	}
	for _, m := range host.Missing() {
		c.log.Info("not to be had on this machine; the rest goes on", "missing", m)
	}
	c.Host, c.closing = host, func() error { return errors.Join(host.Close(), j.Close()) }
	return nil
}

// Close closes what Assemble opened, and leaves what is held as it is.
func (c *Core) Close() error {
	if c.closing == nil {
		return nil
	}
	closing := c.closing
	c.closing = nil
	return closing()
}
