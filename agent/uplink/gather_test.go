package uplink

import (
	"math"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// taken makes a gatherer hand everything over.
func taken(g *Gather, nowNsec int64) *wire.Batch {
	var got *wire.Batch
	g.due(nowNsec, func(b *wire.Batch) bool { got = b; return true })
	return got
}

func window(at int64, cpi ...float64) *Window {
	w := &Window{MonoNsec: at, WallNsec: 1_790_000_000e9 + at}
	for i, v := range cpi {
		n := model.TaskNum(i + 1)
		o := model.TaskObservation{Num: n, CPU: model.Known(0.5)}
		for src := range model.NumSources {
			o.Signals[src] = model.Missing(model.Absent)
		}
		if v > 0 {
			o.Signals[model.SourceCPI] = model.Known(v)
		}
		w.Tasks = append(w.Tasks, model.Task{Num: n, Path: "/t", Job: "j"})
		w.Observed, w.Flags = append(w.Observed, o), append(w.Flags, wire.Usable)
	}
	return w
}

// A batch is handed on when its time is over, and what a column does not have is not a zero.
func TestWindowsBecomeABatch(t *testing.T) {
	g := NewGather(10e9)
	g.Add(window(1e9, 0, 0)) // no signal at all yet
	g.Add(window(2e9, 1.5, 0))
	g.Add(window(3e9, 0, 2))
	lost := window(4e9, 1, 1)
	lost.Observed[0].CPU = model.Missing(model.Absent) // was not there
	g.Add(lost)
	if b := taken(g, 10.9e9); b != nil {
		t.Fatal("too early")
	}
	b := taken(g, 11e9)
	if b == nil || b.Samples.Len() != 7 || len(b.Tasks) != 2 || len(b.Samples.Signals) != 1 {
		t.Fatalf("%+v", b)
	}
	want := []float64{math.NaN(), math.NaN(), 1.5, math.NaN(), math.NaN(), 2, 1}
	for i, v := range b.Samples.Signals[0].Values {
		if float64(v) != want[i] && !(math.IsNaN(float64(v)) && math.IsNaN(want[i])) {
			t.Errorf("%d: %v", i, v)
		}
	}
	b.Node, b.Spool, b.Seq = "n", "0123456789abcdef", 1
	if err := b.Check("n", b.Samples.WallMsec[0]); err != nil {
		t.Error(err)
	}
	if taken(g, 1e18) != nil {
		t.Error("an empty batch")
	}
}

// Decisions do not wait for the minute, routine ones stay here, and an incident that changes twice goes up once, as it is last.
func TestEventsGoSoon(t *testing.T) {
	g := NewGather(60e9)
	g.Event(1e9, &model.Decision{Kind: model.DecideResize})
	if taken(g, 50e9) != nil {
		t.Error("a routine decision went up")
	}
	g.Event(1e9, &model.Decision{Kind: model.DecideCap, Reason: "first"})
	g.Incident(1e9, &model.Incident{ID: "i"})
	g.Incident(2e9, &model.Incident{ID: "i", State: model.Recovered})
	if taken(g, 2.9e9) != nil {
		t.Error("each goes alone")
	}
	b := taken(g, 3e9)
	if b == nil || len(b.Decisions) != 1 || len(b.Incidents) != 1 || b.Incidents[0].State != model.Recovered {
		t.Fatalf("%+v", b)
	}
}

// A disk that hangs costs batches, which are counted, and never memory or the loop.
func TestNobodyTakesABatch(t *testing.T) {
	g := NewGather(1e9)
	for i := range int64(5) {
		g.Add(window(i*2e9+1, 1))
		g.due(i*2e9+1.5e9, func(*wire.Batch) bool { return i == 4 })
	}
	g.Add(window(20e9, 1))
	if b := taken(g, 22e9); b.Lost != 0 || b.Samples.Len() != 1 {
		t.Errorf("%+v", b)
	}
	g = NewGather(1e9)
	g.Add(window(1, 1))
	g.due(2e9, func(*wire.Batch) bool { return false })
	g.Add(window(3e9, 1))
	if b := taken(g, 5e9); b.Lost != 1 {
		t.Errorf("%+v", b)
	}
	for i := range int64(flushSamples) {
		g.Add(window(6e9+i, 1))
	}
	if b := taken(g, 6e9+int64(flushSamples)); b == nil || b.Samples.Len() != flushSamples {
		t.Error("a batch that is full waits for its time")
	}
}
