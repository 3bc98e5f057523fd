package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// cycle is the agent's loop without its process, with journal and record on a disk.
type cycle struct {
	fs   *countingFS
	core *agent.Core
	rec  *record.Writer
	dir  string
	snap model.Snapshot // of check
}

// newCycle opens a host on the tasks of a configuration, with its files in dir.
func newCycle(cfg *config.Config, dir string) (*cycle, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	c := &cycle{fs: &countingFS{Root: hostfs.NewRoot("/")}, dir: dir}
	var err error
	c.core, err = agent.Assemble(cfg, agent.Deps{
		FS: c.fs, Journal: filepath.Join(dir, "journal"), Platform: "bench", KillSwitch: agent.KillSwitch(cfg),
		Record: func(h record.Header) agent.Recorder {
			h.Program = "bench"
			c.rec = record.NewWriter(filepath.Join(dir, "record"), cfg.Record.MaxBytes, h)
			return c.rec
		},
	})
	return c, err
}

// turn is one turn of the loop.
func (c *cycle) turn(t cadence.Turn) { c.core.Turn(t) }

// check says what would make the figures meaningless: tasks that are not measured.
func (c *cycle) check(n int) error {
	if err := c.core.Host.Observe(0, &c.snap); err != nil {
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
	return errors.Join(c.core.Restore(), c.core.Close(), c.rec.Close())
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
