package agent

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/record"
)

// meter is a file on a disk with so much room.
type meter struct {
	*os.File
	room *int
}

func (m meter) Write(b []byte) (int, error) {
	if *m.room < len(b) {
		return 0, syscall.ENOSPC
	}
	*m.room -= len(b)
	return m.File.Write(b)
}

// A full disk is told of in few lines, however long it is full and even when a little room comes now
// and then; it fills no folder with files; and when it is well the record goes on.
func TestFullDiskUnderTheRecord(t *testing.T) {
	var log bytes.Buffer
	params := engine.Params{Platform: "cpu", HistoryWindows: 10}
	w, room, made := record.NewWriter(t.TempDir(), 1<<20, record.Header{Params: params}), 0, 0
	w.On(func(name string) (io.WriteCloser, error) {
		made++
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		return meter{f, &room}, err
	})
	clock := &handClock{nsec: 1}
	c := &Core{Clock: clock, log: slog.New(slog.NewTextHandler(&log, nil)), record: w, Engine: engine.New(params)}
	play := func(ticks, freed int) {
		for range ticks {
			clock.nsec += 1e9
			room += freed
			c.in = engine.Input{Seq: c.in.Seq + 1, MonoNsec: clock.nsec, Snapshot: &model.Snapshot{}}
			if c.in.Seq == 1 {
				c.beginRecord()
			}
			c.recordTurn(c.Engine.Step(&c.in))
		}
	}
	play(1000, 0)
	if lines := strings.Count(log.String(), "\n"); lines > 3 || made > 12 || !strings.Contains(log.String(), "no space left") {
		t.Errorf("%d files, %d lines:\n%s", made, lines, &log)
	}
	play(3600, 5) // a few segments begin, and end soon
	if lines := strings.Count(log.String(), "\n"); lines > 20 {
		t.Errorf("%d lines in an hour:\n%s", lines, &log)
	}
	if c.Failing() == "" || c.counts.failures < 4000 || c.counts.lost < 4000 {
		t.Fatalf("failing %q, counts %+v", c.Failing(), c.counts)
	}
	log.Reset()
	play(700, 1<<20)
	if got := log.String(); strings.Count(got, "\n") > 2 || strings.Count(got, "works again") != 1 || c.Failing() != "" {
		t.Errorf("failing %q:\n%s", c.Failing(), got)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// ordered is a host and a recorder that note who is called when.
type ordered struct {
	node.Host
	Recorder
	calls []string
}

func (o *ordered) Results(dst []model.Result) []model.Result { return dst }
func (o *ordered) Apply([]model.Change)                      { o.calls = append(o.calls, "kernel") }
func (o *ordered) Lost() uint64                              { return 0 }

func (o *ordered) Due(int64) bool { return true }

func (o *ordered) Begin(*engine.State, int64, int64) error {
	o.calls = append(o.calls, "checkpoint")
	return nil
}

func (o *ordered) Tick(*engine.Input, *engine.Output) error {
	o.calls = append(o.calls, "tick")
	return nil
}

// A turn writes to the kernel before it encodes anything for the record; only the first checkpoint
// is taken before.
func TestKernelBeforeRecord(t *testing.T) {
	o := &ordered{}
	c := &Core{Host: o, Engine: engine.New(engine.Params{HistoryWindows: 1}), Clock: &handClock{nsec: 1}, record: o, log: slog.New(slog.DiscardHandler)}
	for range 3 {
		c.Turn(cadence.Turn{})
	}
	want := "checkpoint kernel tick checkpoint kernel tick checkpoint kernel tick checkpoint"
	if got := strings.Join(o.calls, " "); got != want {
		t.Errorf("%s", got)
	}
}
