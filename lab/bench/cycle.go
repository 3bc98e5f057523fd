package bench

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/record"
)

// cycle is the agent's loop without its process, with journal and record on a disk.
type cycle struct {
	fs      *countingFS
	host    *linux.Host
	journal *journal.Journal
	core    *agent.Core
	rec     *record.Writer
	dir     string
	snap    model.Snapshot // of check
}

// newCycle opens a host on the tasks of a configuration, with its files in dir.
func newCycle(cfg *config.Config, dir string) (*cycle, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	rules, err := match.Compile(cfg.Rules())
	if err != nil {
		return nil, err
	}
	c := &cycle{fs: &countingFS{Root: hostfs.NewRoot("/")}, dir: dir}
	boot, err := procstat.ReadBootID(c.fs)
	if err != nil {
		return nil, err
	}
	if c.journal, err = journal.Create(filepath.Join(dir, "journal"), boot); err != nil {
		return nil, err
	}
	params := cfg.Params("bench")
	c.host, err = linux.Open(linux.Options{
		FS: c.fs, Rules: rules, Journal: c.journal, DiscoverEvery: cfg.Agent.DiscoverEvery,
		Counters: params.Sources[model.SourceCPI], CapsOnly: params.CPU.Off(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, c.journal.Close())
	}
	c.rec, err = record.NewWriter(filepath.Join(dir, "record"), cfg.Record.MaxBytes, record.Header{Program: "bench", Boot: boot, Profile: cfg.Profile, Params: params})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	off := filepath.Join(dir, "off")
	c.core = agent.NewCore(agent.Parts{
		Host: c.host, Engine: engine.New(params), Record: c.rec, Clock: linux.RealClock{}, Log: slog.New(slog.DiscardHandler),
		KillSwitch: func() bool { _, err := os.Stat(off); return err == nil }, KillSwitchPath: off,
	})
	return c, nil
}

// turn is one turn of the loop.
func (c *cycle) turn(t cadence.Turn) { c.core.Turn(t) }

// check says what would make the figures meaningless: tasks that are not measured.
func (c *cycle) check(n int) error {
	if err := c.host.Observe(0, &c.snap); err != nil {
		return err
	}
	if len(c.snap.Tasks) != n {
		return fmt.Errorf("bench: %d tasks on the stage, %d watched", n, len(c.snap.Tasks))
	}
	for i := range c.snap.Tasks {
		t := &c.snap.Tasks[i]
		for k, row := range model.TaskCounters() {
			if !row.Optional && t.C[k].Outcome != model.OK || t.C[model.CountRun].Value == 0 {
				return fmt.Errorf("bench: task %d is not measured in full: %s of %+v", t.Num, row.Name, *t)
			}
		}
	}
	return nil
}

// close puts back what was written.
func (c *cycle) close() error {
	_, err := c.host.Restore()
	errs := []error{err, c.host.Close(), c.journal.Close()}
	if c.rec != nil {
		errs = append(errs, c.rec.Close())
	}
	return errors.Join(errs...)
}

// recordBytes is how long the record is by now.
func (c *cycle) recordBytes() int64 {
	files, err := record.Segments(c.dir + "/record")
	if err != nil {
		return 0
	}
	var n int64
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			n += st.Size()
		}
	}
	return n
}
