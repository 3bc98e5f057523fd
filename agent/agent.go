// Package agent is the shell around the engine: it owns the clock, the goroutines, the
// files and the sockets of the node agent, and decides nothing itself. One loop observes,
// steps, applies and records; everything else asks that loop.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/gpu"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/record"
)

// recordDir is where the record is, below the state directory.
const recordDir = "record"

// spareFiles are the descriptors that are set aside: limits can be put back, and an operator
// be answered, when all others are in use.
const spareFiles = 32

// RecordPath returns where the record of a state directory is.
func RecordPath(stateDir string) string { return filepath.Join(stateDir, recordDir) }

// Agent is one running agent.
type Agent struct {
	// BesideAnother lets it run on a host where another agent runs: one that has other cgroups.
	BesideAnother bool

	cfg     *config.Config
	version string
	log     *slog.Logger
	fs      *hostfs.Root

	core    *Core
	guard   *guardian
	slo     *sloSources
	hook    *hook
	uplink  *uplink.Uplink // nil: this node is of no fleet
	asks    chan func()
	started time.Time
}

// New prepares an agent; version is the program's.
func New(cfg *config.Config, version string, log *slog.Logger) *Agent {
	return &Agent{cfg: cfg, version: version, log: log, fs: hostfs.NewRoot("/"), asks: make(chan func())}
}

// Run runs until the context ends, and leaves the machine as it was found.
func (a *Agent) Run(ctx context.Context) (err error) {
	modest()
	run, state := a.cfg.Agent.RunDir, a.cfg.Agent.StateDir
	// Others may enter the run directory: by default the operators' socket is in it.
	if err := os.MkdirAll(run, 0o755); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	_ = os.MkdirAll(state, 0o750) // whoever writes there says what is wrong with it, and nothing else needs it
	running, err := lock(run, agentLock, startWait)
	if err != nil {
		return err
	}
	defer running.Close() //nolint:errcheck // closing is unlocking
	writing, err := lock(run, journalLock, restoreWait)
	if err != nil {
		return err
	}
	defer writing.Close() //nolint:errcheck // closing is unlocking
	host, err := a.alone()
	if err != nil {
		return err
	}
	defer host.Close() //nolint:errcheck // closing is unlocking; there may be none
	warning, err := restoreOld(run, state, a.log)
	if err != nil {
		return err
	}
	a.started = time.Now()
	if err := a.fs.Reserve(spareFiles); err != nil {
		return fmt.Errorf("agent: descriptors to put limits back with: %w", err)
	}
	here := KillSwitch(a.cfg)
	deps := Deps{
		FS: a.fs, Journal: JournalPath(run), Log: a.log, KillSwitch: func() bool { return here() || a.uplink.Off() }, Gather: a.newGather(),
		Protection: func() *wire.Protection { return a.uplink.Protection() },
		IDPrefix:   idPrefix(a.started, os.Getpid()), Told: func(d *model.Decision) { a.hook.tell(d, a.core.Engine.Params.Tells(d.Policy)) },
		Became: func(r *model.Result) { a.hook.became(r) }, GPUs: &gpu.Command{Path: a.cfg.Agent.NvidiaSMI},
	}
	defer a.openSources(&deps)()
	var rec *record.Writer
	if a.cfg.Record.Enabled {
		deps.Record = func(h record.Header) Recorder {
			h.Program = a.version
			rec = record.NewWriter(RecordPath(state), a.cfg.Record.MaxBytes, h)
			rec.Beside() // the loop waits for no disk
			return rec
		}
	}
	deps.SLO = func(dst []model.Latency) []model.Latency { return a.slo.read(dst) }
	if a.core, err = Assemble(a.cfg, deps); err != nil {
		return err
	}
	defer a.core.Close() //nolint:errcheck // reading only, and the journal is written
	if warning != "" {
		a.log.Warn(warning)
		a.core.Warnings = append(a.core.Warnings, warning)
	}
	a.guard = &guardian{runDir: run, silence: silenceFor(a.cfg.Agent.Pulse), log: a.log}
	if err := a.guard.start(); err != nil {
		return err
	}
	kept := a.goOn(state)
	defer func() { // after everything was put back and the guardian is gone: these may wait for a disk
		kept.close()
		a.closeRecord(rec)
	}()
	defer func() {
		// The guardian looks at the journal once more before it goes, and waits for its lock.
		_ = writing.Close() // closing is unlocking
		a.guard.stop()
	}()
	// From here on whatever was written is put back before Run returns.
	defer func() { err = errors.Join(err, a.core.Restore()) }()
	servers, err := a.serve(ctx)
	if err != nil {
		return err
	}
	defer servers.close()
	return a.beside(ctx, state, deps.Gather, func(look func()) error {
		return a.loop(ctx, func() { kept.look(); look() }, func() bool { return stillThere(running) && stillThere(writing) })
	})
}

// beside starts what the agent listens to and tells beside its loop, runs the loop, and ends it all. The loop calls look after each turn.
func (a *Agent) beside(ctx context.Context, state string, gather *uplink.Gather, loop func(look func()) error) (err error) {
	a.slo, a.hook = startSLO(ctx, a.cfg.SLO, a.log), startHook(ctx, &a.cfg.Agent, a.log)
	defer a.slo.close()
	defer a.hook.close()
	published := a.publish(state)
	defer published.close()
	if a.uplink, err = a.startUplink(ctx, gather); err != nil {
		return err
	}
	defer a.uplink.Close()
	return loop(func() { published.look(); a.uplink.Turn(a.core.in.MonoNsec) })
}

// alone takes the lock of the host; nil: it runs without.
func (a *Agent) alone() (*os.File, error) {
	if a.BesideAnother {
		return nil, nil
	}
	m, err := cgroup.Discover(hostfs.NewRoot("/"))
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return lockHost(cmp.Or(m.V1[cgroup.CPU], m.Unified), a.log)
}

// idPrefix begins the names of this run's incidents. The process tells two runs apart whose clocks
// say the same, because one was set back in between.
func idPrefix(started time.Time, pid int) string {
	return strconv.FormatInt(started.Unix(), 36) + "." + strconv.FormatInt(int64(pid), 36)
}

// errRemoved: an agent without its locks, its journal and, by default, its socket can neither be
// watched nor operated. Whoever starts it anew makes them anew.
var errRemoved = errors.New("agent: the run directory was removed under the running agent: everything is put back, and the agent ends")

// openSources opens what measures beside the tasks, and returns what closes it.
func (a *Agent) openSources(deps *Deps) (closeAll func()) {
	waits, latency := a.openWaits(), a.openLatency()
	deps.Waits = waits
	if latency != nil {
		deps.Latency = latency.Of
	}
	return func() {
		if latency != nil {
			latency.Close()
		}
		if waits != nil {
			_ = waits.Close() // the kernel frees it with the process, too
		}
	}
}

// openWaits opens what measures who makes whom wait, nil where it is not wanted or not to be had.
func (a *Agent) openWaits() linux.WaitSource {
	if !a.cfg.Agent.Waits {
		return nil
	}
	w, err := linux.OpenWaits(a.fs)
	if err != nil {
		a.log.Info("not to be had on this machine; the rest goes on", "missing", fmt.Sprintf("who makes whom wait for a CPU: %v", err))
		return nil
	}
	return w
}

// openLatency opens what says how long memory takes to answer, which only policy bandwidth goes by; nil where that is off, or it
// is not to be had.
func (a *Agent) openLatency() *linux.Latency {
	if a.cfg.Policies.CPU.BandwidthMode == model.ModeOff {
		return nil
	}
	l, err := linux.OpenLatency(a.fs, a.log)
	if err != nil {
		a.log.Info("not to be had on this machine; the rest goes on", "missing", fmt.Sprintf("how long memory takes to answer: %v", err))
		return nil
	}
	a.log.Info("how long memory takes to answer is counted", "by", l)
	return l
}

// loop is the agent: one event after the other until the context ends, or until the locks are not
// there any more. after is called after each turn.
func (a *Agent) loop(ctx context.Context, after func(), locked func() bool) error {
	a.log.Info("agent is running", "version", a.version, "mode", a.cfg.Policies.Mode, "profile", a.cfg.Profile, "socket", a.cfg.Agent.Socket)
	l, manager := NewLoop(a.core), newNotifier()
	looked, timer := time.Now(), time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ask := <-a.asks:
			ask()
			if l.Hear() != nil {
				after()
			}
		case <-l.Stalls():
			l.Wake()
			timer.Reset(0)
		case <-timer.C:
			if l.Next() != nil {
				after()
				a.guard.beat()
				if now := time.Now(); now.Sub(looked) >= cadence.TickEvery {
					if looked = now; !locked() {
						return errRemoved
					}
				}
				if err := manager.turn(); err != nil {
					a.log.Error("the service manager cannot be told that the agent runs", "error", err)
				}
			}
			timer.Reset(time.Duration(l.Due() - a.core.Clock.MonoNsec()))
		}
	}
}

// ask runs a function in the loop and waits for it, so that nothing else needs a lock. Without a
// loop of its own it is the loop that asks (Core.Door).
func (a *Agent) ask(ctx context.Context, f func()) error {
	if a.asks == nil {
		f()
		return nil
	}
	done := make(chan struct{})
	select {
	case a.asks <- func() { f(); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}
