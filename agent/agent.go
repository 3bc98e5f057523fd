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

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/hostfs"
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
	log     *slog.Logger

	core    *Core
	guard   *guardian
	slo     *sloSources
	asks    chan func()
	started time.Time
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
	a.started = time.Now()
	deps := Deps{
		FS: hostfs.NewRoot("/"), Journal: JournalPath(dir), Log: a.log, KillSwitch: KillSwitch(a.cfg),
		IDPrefix: strconv.FormatInt(a.started.Unix(), 36),
	}
	if a.cfg.Record.Enabled {
		deps.Record = func(h record.Header) (Recorder, error) {
			h.Program = a.version
			return record.NewWriter(RecordPath(dir), a.cfg.Record.MaxBytes, h)
		}
	}
	if a.core, err = Assemble(a.cfg, deps); err != nil {
		return err
	}
	defer a.core.Close() //nolint:errcheck // reading only, and every entry of the journal was synced
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

// loop is the agent: one event after the other until the context ends.
func (a *Agent) loop(ctx context.Context, kept *keeper) {
	a.log.Info("agent is running", "version", a.version, "mode", a.cfg.Policies.Mode, "profile", a.cfg.Profile, "socket", a.cfg.Agent.Socket)
	l := NewLoop(a.core)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ask := <-a.asks:
			ask()
			l.Hear()
		case <-timer.C:
			l.Next()
			kept.look()
			a.guard.check()
			timer.Reset(time.Duration(l.Due() - a.core.Clock.MonoNsec()))
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
