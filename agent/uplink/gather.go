package uplink

import (
	"math"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Window is what the agent hands in of one sampling window. Nothing of it is kept.
type Window struct {
	MonoNsec, WallNsec int64
	Tasks              []model.Task // all that are known, ordered by Num
	Observed           []model.TaskObservation
	// Flags are wire's, one an entry of Observed.
	Flags []uint32
	// CoreCycles: CPI is of core cycles here.
	CoreCycles bool
}

// Gather collects what goes up, in the agent's loop: it waits for nothing.
type Gather struct {
	everyNsec int64

	batch  *wire.Batch
	index  map[model.TaskNum]uint32 // in batch.Tasks
	begun  int64                    // when the batch got its first sample or event, mono; 0: it is empty
	urgent int64                    // when it got its first event
	lost   uint64                   // batches that nobody took
}

// flushSamples is how many samples fill a batch before its time. Events wait for eventNsec only: people look at incidents.
const (
	flushSamples = 1 << 15
	eventNsec    = int64(2e9)
)

// NewGather returns a gatherer of batches of so much time.
func NewGather(everyNsec int64) *Gather {
	g := &Gather{everyNsec: everyNsec}
	g.reset()
	return g
}

func (g *Gather) reset() {
	g.batch, g.index, g.begun, g.urgent = &wire.Batch{}, map[model.TaskNum]uint32{}, 0, 0
}

// Add takes a window in.
func (g *Gather) Add(w *Window) {
	s, j := &g.batch.Samples, 0
	for i := range w.Observed {
		o := &w.Observed[i]
		for j < len(w.Tasks) && w.Tasks[j].Num < o.Num {
			j++
		}
		if j >= len(w.Tasks) || w.Tasks[j].Num != o.Num || o.CPU.Outcome != model.OK {
			continue
		}
		task, ok := g.task(&w.Tasks[j])
		if !ok {
			continue
		}
		s.Task = append(s.Task, task)
		s.WallMsec = append(s.WallMsec, w.WallNsec/1e6)
		s.CPU = append(s.CPU, float32(max(0, o.CPU.V)))
		s.Flags = append(s.Flags, w.Flags[i])
		for src := range o.Signals {
			g.signal(model.Source(src), o.Signals[src], w.CoreCycles)
		}
	}
	if s.Len() > 0 && g.begun == 0 {
		g.begun = w.MonoNsec
	}
}

// signal puts a value beside the sample that was added last. A column begins with the first value that there is.
func (g *Gather) signal(src model.Source, v model.Value, coreCycles bool) {
	s := &g.batch.Samples
	at := -1
	for k := range s.Signals {
		if s.Signals[k].Source == src {
			at = k
		}
	}
	known := v.Outcome == model.OK && v.V >= 0 && v.V <= 1e9
	if at < 0 {
		if !known {
			return
		}
		at = len(s.Signals)
		s.Signals = append(s.Signals, wire.Signal{Source: src, Definition: src.Definition(coreCycles)})
	}
	c := &s.Signals[at]
	for len(c.Values) < s.Len()-1 {
		c.Values = append(c.Values, float32(math.NaN()))
	}
	value := math.NaN()
	if known {
		value = v.V
	}
	c.Values = append(c.Values, float32(value))
}

func (g *Gather) task(t *model.Task) (uint32, bool) {
	if at, ok := g.index[t.Num]; ok {
		return at, true
	}
	if len(g.batch.Tasks) >= wire.MaxTasks {
		return 0, false
	}
	at := uint32(len(g.batch.Tasks)) //nolint:gosec // MaxTasks
	g.index[t.Num] = at
	g.batch.Tasks = append(g.batch.Tasks, wire.Task{
		Num: uint32(t.Num), Path: t.Path, Job: t.Job, Class: t.Class, Importance: t.Importance, Production: t.Production, Size: t.Size,
	})
	return at, true
}

// Event takes a decision in. Those of a policy's daily work stay in the node's own record.
func (g *Gather) Event(monoNsec int64, d *model.Decision) {
	if d.Kind.Routine() || len(g.batch.Decisions) >= wire.MaxEvents {
		return
	}
	told := *d
	told.Facts = append([]model.Fact(nil), d.Facts...)
	g.batch.Decisions = append(g.batch.Decisions, told)
	g.soon(monoNsec)
}

// Incident takes an incident in, as it stands: one that changed again before the batch is taken is in it once.
func (g *Gather) Incident(monoNsec int64, inc *model.Incident) {
	g.soon(monoNsec)
	for i, old := range g.batch.Incidents {
		if old.ID == inc.ID {
			g.batch.Incidents[i] = inc
			return
		}
	}
	if len(g.batch.Incidents) < wire.MaxEvents {
		g.batch.Incidents = append(g.batch.Incidents, inc)
	}
}

func (g *Gather) soon(monoNsec int64) {
	if g.urgent == 0 {
		g.urgent = monoNsec
	}
}

// due returns the batch once it is time, nil before. hand says whether somebody took it.
func (g *Gather) due(monoNsec int64, hand func(b *wire.Batch) bool) {
	s := &g.batch.Samples
	full := g.begun != 0 && monoNsec-g.begun >= g.everyNsec || s.Len() >= flushSamples
	if pressing := g.urgent != 0 && monoNsec-g.urgent >= eventNsec; !full && !pressing {
		return
	}
	for k := range s.Signals { // a column whose last tasks had none
		for c := &s.Signals[k]; len(c.Values) < s.Len(); {
			c.Values = append(c.Values, float32(math.NaN()))
		}
	}
	g.batch.Lost = g.lost
	if hand(g.batch) {
		g.lost = 0
	} else {
		g.lost++
	}
	g.reset()
}
