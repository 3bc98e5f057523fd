package bench

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

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

// cycle is what the agent's loop does in one turn, built of the same parts in the same
// order (agent.tick), with journal and record on a disk.
type cycle struct {
	fs      *countingFS
	host    *linux.Host
	journal *journal.Journal
	engine  *engine.Engine
	rec     *record.Writer
	dir     string
	off     string // the kill switch's path
	in      engine.Input
	snap    model.Snapshot
	results []model.Result
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
	c := &cycle{fs: &countingFS{Root: hostfs.NewRoot("/")}, dir: dir, off: filepath.Join(dir, "off")}
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
		Counters: params.Sources[model.SourceCPI], Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, c.journal.Close())
	}
	c.engine = engine.New(params)
	c.rec, err = record.NewWriter(filepath.Join(dir, "record"), cfg.Record.MaxBytes, record.Header{Program: "bench", Boot: boot, Profile: cfg.Profile, Params: params})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// turn is one turn of the loop; mark 0 is one without a reading.
func (c *cycle) turn(mark model.WindowMark) error {
	c.in.Seq++
	c.in.Snapshot = nil
	c.in.WallNsec = time.Now().UnixNano()
	if mark != 0 {
		if err := c.host.Observe(mark, &c.snap); err != nil {
			return err
		}
		c.in.Snapshot = &c.snap
	}
	c.in.MonoNsec = linux.MonotonicNsec()
	c.in.Knobs = c.host.Knobs(c.in.Knobs[:0])
	c.in.Results, c.results = c.results, c.in.Results[:0]
	_, err := os.Stat(c.off)
	c.in.KillSwitch = err == nil
	if c.rec.Due() {
		if err := c.rec.Begin(c.engine.State, c.in.WallNsec); err != nil {
			return err
		}
	}
	out := c.engine.Step(&c.in)
	if err := c.rec.Tick(&c.in, out); err != nil {
		return err
	}
	c.results = c.host.Apply(out.Changes, c.results[:0])
	return nil
}

// check says what would make the figures meaningless: tasks that are not measured.
func (c *cycle) check(n int) error {
	if len(c.snap.Tasks) != n {
		return fmt.Errorf("bench: %d tasks on the stage, %d watched", n, len(c.snap.Tasks))
	}
	for i := range c.snap.Tasks {
		t := &c.snap.Tasks[i]
		if t.Usage.Outcome != model.OK || t.Throttled.Outcome != model.OK || t.Run.Outcome != model.OK || t.Run.Value == 0 {
			return fmt.Errorf("bench: task %d is not measured in full: %+v", t.Num, *t)
		}
	}
	return nil
}

func (c *cycle) close() error {
	errs := []error{c.host.Close(), c.journal.Close()}
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
