// Package agent is the shell around the engine: it owns the clock, the goroutines, the
// files and the sockets of the node agent, and decides nothing itself. One loop observes,
// steps, records and applies; everything else asks that loop.
package agent

import (
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
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/record"
)

// recordDir is where the record is, below the state directory.
const recordDir = "record"

// RecordPath returns where the record of a state directory is.
func RecordPath(stateDir string) string { return filepath.Join(stateDir, recordDir) }

// Agent is one running agent.
type Agent struct {
	cfg     *config.Config
	version string
	boot    string // of the kernel, known after recover
	log     *slog.Logger

	core     *Core
	host     node.Host
	lacks    func(dst []linux.Lack) []linux.Lack // what single tasks do without
	guard    *guardian
	slo      *sloSources
	asks     chan func()
	warnings []string
	started  time.Time
	origin   time.Time
}

// New prepares an agent; version is the program's.
func New(cfg *config.Config, version string, log *slog.Logger) *Agent {
	return &Agent{cfg: cfg, version: version, log: log, asks: make(chan func())}
}

// Run runs until the context ends, and leaves the machine as it was found.
func (a *Agent) Run(ctx context.Context) (err error) {
	dir := a.cfg.Agent.StateDir
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	running, err := lock(dir, agentLock, startWait)
	if err != nil {
		return err
	}
	defer running.Close() //nolint:errcheck // closing is unlocking
	writing, err := lock(dir, journalLock, restoreWait)
	if err != nil {
		return err
	}
	defer writing.Close() //nolint:errcheck // closing is unlocking
	j, err := a.recover(dir)
	if err != nil {
		return err
	}
	defer j.Close() //nolint:errcheck // every entry was synced
	if err := a.open(dir, j); err != nil {
		return err
	}
	defer a.host.Close() //nolint:errcheck // reading only
	a.guard = &guardian{stateDir: dir, log: a.log}
	if err := a.guard.start(); err != nil {
		return err
	}
	defer func() {
		// The guardian looks at the journal once more before it goes, and waits for its lock.
		_ = writing.Close() // closing is unlocking
		a.guard.stop()
	}()
	kept := a.goOn(dir)
	defer kept.close() // after everything was put back: that waits for no disk
	// From here on whatever was written is put back before Run returns.
	defer func() { err = errors.Join(err, a.core.Restore()) }()
	servers, err := a.serve(ctx)
	if err != nil {
		return err
	}
	defer servers.close()
	a.slo = startSLO(ctx, a.cfg.SLO, a.log)
	defer a.slo.close()
	a.core.told.slo = a.slo.read
	a.loop(ctx, kept)
	return nil
}

// recover puts back what an earlier agent left, and starts a journal.
func (a *Agent) recover(dir string) (*journal.Journal, error) {
	fs := hostfs.NewRoot("/")
	var err error
	if a.boot, err = procstat.ReadBootID(fs); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	j, warnings, err := Recover(linux.Restoring{FS: fs, Journal: JournalPath(dir), Boot: a.boot}, a.log)
	a.warnings = append(a.warnings, warnings...)
	return j, err
}

// open opens the machine, the engine and the record.
func (a *Agent) open(dir string, j *journal.Journal) error {
	rules, err := match.Compile(a.cfg.Rules())
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	fs := hostfs.NewRoot("/")
	platform, err := procstat.ReadPlatform(fs)
	if err != nil {
		platform = "unknown"
		a.warnings = append(a.warnings, fmt.Sprintf("the CPU type cannot be told: %v", err))
	}
	params := a.cfg.Params(platform)
	a.started = time.Now()
	params.Hardcap.IDPrefix = strconv.FormatInt(a.started.Unix(), 36)
	host, err := linux.Open(linux.Options{
		FS: fs, Rules: rules, Journal: j, DiscoverEvery: a.cfg.Agent.DiscoverEvery,
		Counters: params.Sources[model.SourceCPI], Places: params.CPU.CPUSetMode != model.ModeOff,
		CapsOnly: params.CPU.Off(), Log: a.log,
	})
	if err != nil {
		return err
	}
	a.host, a.lacks = host, host.Lacks
	for _, m := range host.Missing() {
		a.log.Info("this machine does not give everything", "missing", m)
	}
	parts := Parts{
		Host: host, Engine: engine.New(params), Clock: linux.RealClock{}, Jobs: a.jobs(), Log: a.log,
		KillSwitch: a.killSwitch, KillSwitchPath: a.cfg.Agent.KillSwitch,
	}
	if a.cfg.Record.Enabled {
		parts.Record, err = record.NewWriter(RecordPath(dir), a.cfg.Record.MaxBytes, record.Header{
			Program: a.version, Boot: a.boot, Profile: a.cfg.Profile, Params: params,
		})
	}
	a.core = NewCore(parts)
	return err
}

// killSwitch reports whether the file is there that releases everything.
func (a *Agent) killSwitch() bool {
	_, err := os.Stat(a.cfg.Agent.KillSwitch)
	return err == nil
}

// jobs are the jobs that rules name.
func (a *Agent) jobs() []string {
	jobs := make([]string, len(a.cfg.Tasks))
	for i := range a.cfg.Tasks {
		jobs[i] = a.cfg.Tasks[i].Job
	}
	return jobs
}

// loop is the agent: one event after the other until the context ends.
func (a *Agent) loop(ctx context.Context, kept *keeper) {
	s := cadence.New(a.cfg.Pace())
	a.origin = time.Now()
	a.log.Info("agent is running", "version", a.version, "mode", a.cfg.Policies.Mode, "profile", a.cfg.Profile, "socket", a.cfg.Agent.Socket)
	timer := time.NewTimer(0)
	defer timer.Stop()
	at, turn := int64(0), cadence.First()
	for {
		select {
		case <-ctx.Done():
			return
		case ask := <-a.asks:
			ask()
			if len(a.core.commands) > 0 {
				a.core.Turn(cadence.Turn{Compare: true}) // an operator does not wait for the next second
			}
		case <-timer.C:
			a.core.Turn(turn)
			kept.look()
			a.guard.check()
			at, turn = s.Next(max(at, time.Since(a.origin).Nanoseconds()))
			timer.Reset(time.Until(a.origin.Add(time.Duration(at))))
		}
	}
}

// ask runs a function in the loop and waits for it, so that nothing else needs a lock.
func (a *Agent) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case a.asks <- func() { f(); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}
