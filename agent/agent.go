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

	host     node.Host
	lacks    func(dst []linux.Lack) []linux.Lack // what single tasks do without
	engine   *engine.Engine
	rec      *record.Writer
	guard    *guardian
	slo      *sloSources
	asks     chan func()
	counts   counts
	snap     model.Snapshot
	in       engine.Input
	results  []model.Result
	commands []model.Command
	warnings []string
	started  time.Time
	origin   time.Time
	failing  string // the last error of Observe or of the record, to log changes only
	recent   []*model.Incident
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
	// From here on whatever was written is put back before Run returns.
	defer func() { err = errors.Join(err, a.restore()) }()
	servers, err := a.serve(ctx)
	if err != nil {
		return err
	}
	defer servers.close()
	a.slo = startSLO(ctx, a.cfg.SLO, a.log)
	defer a.slo.close()
	a.loop(ctx)
	return nil
}

// recover puts back what an earlier agent left, and starts a journal.
func (a *Agent) recover(dir string) (*journal.Journal, error) {
	rep, err := restoreLocked(dir)
	if err != nil {
		return nil, err
	}
	LogReport(a.log, &rep)
	var left []journal.Limit
	if rep.Unreadable != "" {
		a.warnings = append(a.warnings, "an earlier journal could not be read completely: "+rep.Unreadable)
	}
	if n := rep.Count(node.NotRestored); n > 0 {
		a.warnings = append(a.warnings, fmt.Sprintf("%d limits of an earlier run could not be put back; see the log", n))
		c, err := journal.Read(JournalPath(dir))
		if err != nil {
			return nil, err
		}
		left = c.Limits
	}
	if a.boot, err = procstat.ReadBootID(hostfs.NewRoot("/")); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return journal.Continue(JournalPath(dir), a.boot, left)
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
		Counters: params.Sources[model.SourceCPI], Log: a.log,
	})
	if err != nil {
		return err
	}
	a.host, a.lacks = host, host.Lacks
	for _, m := range host.Missing() {
		a.log.Info("this machine does not give everything", "missing", m)
	}
	a.engine = engine.New(params)
	if !a.cfg.Record.Enabled {
		return nil
	}
	a.rec, err = record.NewWriter(RecordPath(dir), a.cfg.Record.MaxBytes, record.Header{
		Program: a.version, Boot: a.boot, Profile: a.cfg.Profile, Params: params,
	})
	return err
}

// loop is the agent: one event after the other until the context ends.
func (a *Agent) loop(ctx context.Context) {
	s := newSchedule(a.cfg.CPI2.SamplingDuration, a.cfg.CPI2.SamplingFrequency)
	a.origin = time.Now()
	a.log.Info("agent is running", "version", a.version, "mode", a.cfg.Mode, "profile", a.cfg.Profile, "socket", a.cfg.Agent.Socket)
	timer := time.NewTimer(0)
	defer timer.Stop()
	at, mark := int64(0), model.WindowStart
	for {
		select {
		case <-ctx.Done():
			return
		case ask := <-a.asks:
			ask()
			if len(a.commands) > 0 {
				a.tick(0) // an operator does not wait for the next second
			}
		case <-timer.C:
			a.tick(mark)
			a.guard.check()
			at, mark = s.next(max(at, time.Since(a.origin).Nanoseconds()))
			timer.Reset(time.Until(a.origin.Add(time.Duration(at))))
		}
	}
}

// tick takes one turn: observe, step, record, apply, report.
func (a *Agent) tick(mark model.WindowMark) {
	begin := time.Now()
	a.in.Seq++
	a.in.Snapshot = nil
	a.in.WallNsec = begin.UnixNano()
	if mark != 0 {
		if err := a.host.Observe(mark, &a.snap); err != nil {
			a.fail("the machine cannot be observed", err)
		} else {
			a.in.Snapshot = &a.snap
		}
	}
	a.in.MonoNsec = linux.MonotonicNsec()
	a.in.Knobs = a.host.Knobs(a.in.Knobs[:0])
	a.in.Results, a.results = a.results, a.in.Results[:0]
	a.in.Commands, a.commands = a.commands, a.in.Commands[:0]
	_, err := os.Stat(a.cfg.Agent.KillSwitch)
	a.in.KillSwitch = err == nil
	a.checkpoint()
	out := a.engine.Step(&a.in)
	if a.rec != nil {
		if err := a.rec.Tick(&a.in, out); err != nil {
			a.fail("the record cannot be written", err)
		}
	}
	a.results = a.host.Apply(out.Changes, a.results[:0])
	a.report(out)
	a.counts.cycle(time.Since(begin), mark)
}

// checkpoint begins a new segment of the record when one is due.
func (a *Agent) checkpoint() {
	if a.rec == nil || !a.rec.Due() {
		return
	}
	if err := a.rec.Begin(a.engine.State, a.in.WallNsec); err != nil {
		a.fail("the record cannot be written", err)
	}
}

// fail logs an error when it is another one than before: a full disk would otherwise
// fill the log as well.
func (a *Agent) fail(what string, err error) {
	a.counts.failures++
	if text := what + ": " + err.Error(); text != a.failing {
		a.failing = text
		a.log.Error(what, "error", err)
	}
}

// maxRecent bounds the incidents that are kept for `status`; the record has them all.
const maxRecent = 50

// report logs what was decided and keeps the latest incidents.
func (a *Agent) report(out *engine.Output) {
	for i := range out.Decisions {
		d := &out.Decisions[i]
		a.counts.decision(d)
		a.log.Info(d.Kind, "task", d.Path, "incident", d.Incident, "score", d.Score, "threshold", d.Threshold, "value", d.Value, "reason", d.Reason)
	}
	for _, inc := range out.Incidents {
		a.keep(inc)
	}
}

func (a *Agent) keep(inc *model.Incident) {
	for i := range a.recent {
		if a.recent[i].ID == inc.ID {
			a.recent[i] = inc
			return
		}
	}
	if len(a.recent) >= maxRecent {
		a.recent = append(a.recent[:0], a.recent[1:]...)
	}
	a.recent = append(a.recent, inc)
}

// restore puts everything back at the end.
func (a *Agent) restore() error {
	rep, err := a.host.Restore()
	if err != nil {
		return err
	}
	LogReport(a.log, &rep)
	if n := rep.Count(node.NotRestored); n > 0 {
		return fmt.Errorf("agent: %d limits could not be put back; `commensal restore` tries again", n)
	}
	return nil
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
