package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Columns are written piece by piece. Each row has its own values whatever the pieces are: parts of a batch that lie in other hours by turns, fewer samples than the
// batch has tasks, and more than are written at once, of batches that do not have the same signals.
func TestEachRowHasItsOwnValues(t *testing.T) {
	s := open(t, t.TempDir())
	s.From("x")
	var sent []*wire.Batch
	for seq, samples := range []int{2 * chunk, 7, chunk - 3, chunk + 1} {
		b := batch("n", fmt.Sprintf("%016x", seq), uint64(seq+1), noon, samples)
		b.Platform = fmt.Sprint("cpu", seq)
		for i := range 9 {
			b.Tasks = append(b.Tasks, wire.Task{Path: fmt.Sprint("/p", i), Job: fmt.Sprint("j", seq, i), Class: model.LC, Importance: model.Importance(i % 3), Production: i%2 == 0, Size: fmt.Sprint("s", i)})
		}
		rng := rand.New(rand.NewPCG(1, uint64(seq)))
		values := make([]float32, samples)
		for i := range samples {
			b.Samples.WallMsec[i] = noon.UnixMilli() + int64(i) + 3600e3*int64(i/100%2*(seq%2)) // of two batches in two hours by turns
			b.Samples.Task[i], b.Samples.CPU[i], b.Samples.Flags[i] = rng.Uint32N(11), rng.Float32(), rng.Uint32N(8)
			if values[i] = rng.Float32(); i%3 == 0 {
				values[i] = float32(math.NaN())
			}
		}
		if seq%2 == 1 {
			b.Samples.Signals = []wire.Signal{{Source: model.SourceWait, Definition: "w", Values: values}, {Source: model.SourceCPI, Definition: fmt.Sprint("d", seq), Values: values}}
		}
		sent = append(sent, b)
		s.Put(uint64(seq+1), b)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, b := range sent {
		for i, at := range b.Samples.Task {
			task, flags := &b.Tasks[at], b.Samples.Flags[i]
			wait, cpi, def := "<null>", "<null>", "<null>"
			for _, sig := range b.Samples.Signals {
				into := &wait
				if sig.Source == model.SourceCPI {
					into, def = &cpi, sig.Definition
				}
				if v := sig.Values[i]; v == v {
					*into = parquet.FloatValue(v).String()
				}
			}
			want[fmt.Sprint(b.Seq, " ", b.Samples.WallMsec[i])] = fmt.Sprintf("%s %s %s %s %s %s %s %s %t %s %t %t %t %s %s %s", b.Node, b.Spool, b.Platform, task.Job, task.Path, task.Class, task.Importance, task.Size,
				task.Production, parquet.FloatValue(b.Samples.CPU[i]), flags&wire.Usable != 0, flags&wire.Stopped != 0, flags&wire.Outlier != 0, wait, cpi, def)
		}
	}
	got := map[string]string{}
	for _, r := range rowsOf(t, s, "samples") {
		var cells []string
		for _, name := range strings.Fields("node spool platform job task class importance size production cpu usable throttled outlier wait cpi cpi_definition") {
			cells = append(cells, r[name])
		}
		got[r["batch"]+" "+r["time"]] = strings.Join(cells, " ")
	}
	for at, w := range want {
		if got[at] != w {
			t.Fatalf("row %s is %q, want %q", at, got[at], w)
		}
	}
	if len(got) != 4*chunk+5 || len(want) != len(got) {
		t.Errorf("%d rows of %d", len(got), len(want))
	}
}

// BenchmarkCommit puts what a commit of a busy hub has: minutes of 170 nodes, of each 30 tasks' windows of a second.
func BenchmarkCommit(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	const nodes, tasks, windows = 170, 30, 60
	rng := rand.New(rand.NewPCG(1, 1))
	var list []*wire.Batch
	for node := range nodes {
		one := batch(fmt.Sprintf("node-%d", node), fmt.Sprintf("%016x", node), 0, noon, tasks*windows)
		one.Tasks = nil
		for i := range tasks {
			one.Tasks = append(one.Tasks, wire.Task{Path: fmt.Sprintf("/kubepods/pod%08x/%d", node, i), Job: fmt.Sprintf("job-%d", (node*7+i)%500), Class: model.LC})
		}
		for i := range tasks * windows {
			one.Samples.Task[i], one.Samples.WallMsec[i] = uint32(i%tasks), noon.Add(time.Duration(i/tasks)*time.Second).UnixMilli()
			one.Samples.CPU[i], one.Samples.Signals[0].Values[i] = rng.Float32(), 1+rng.Float32()
		}
		list = append(list, one)
	}
	message := uint64(0)
	for b.Loop() {
		for _, one := range list {
			next := *one
			message++
			next.Seq = message
			s.Put(message, &next)
		}
		if err := s.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*nodes*tasks*windows), "ns/sample")
}
