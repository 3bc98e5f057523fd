package firstlight

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/lab/trace"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// The detectors that are run over the recorded samples.
const (
	baseLargest = "largest BE when the victim suffers"
	basePeer    = "correlation 0.15, no verification"
	basePaper   = "CPI²'s formula at 0.35 on slowdown"
)

// judge says what the agent did in a round.
func judge(r *Round, t *trace.Trace, event, end int64) {
	s := Score{ToName: -1, ToRecover: -1}
	for i, h := range t.Holds {
		if slices.ContainsFunc(t.Holds[:i], func(o trace.Hold) bool {
			return o.Task == h.Task && o.Knob != h.Knob && (o.ToNsec == 0 || h.FromNsec < o.ToNsec)
		}) {
			continue // a cap on top of a demotion names nobody anew
		}
		right := r.Antagonist != "" && h.Path == r.Antagonist
		s.add(h.Path, right, h.FromNsec, event)
		if !right {
			s.Lost += lost(t, &h, end)
		}
	}
	for _, inc := range t.Incidents {
		if inc.OpenedNsec >= event {
			r.Suffered = true
		}
		if inc.State == model.CannotFix {
			r.CannotFix++
		}
	}
	for i := range t.Decisions {
		d := &t.Decisions[i]
		if d.Kind == model.DecideVerified && d.MonoNsec >= event && s.ToRecover < 0 {
			s.ToRecover = float64(d.MonoNsec-event) / 1e9
		}
		if d.Kind == model.DecideLeftAlone && d.MonoNsec >= event {
			r.LeftAlone = append(r.LeftAlone, d.Path)
		}
	}
	r.Ours = s
}

func (s *Score) add(path string, right bool, at, event int64) {
	s.Named = append(s.Named, path)
	if !right {
		s.Wrong++
		return
	}
	s.Right++
	if s.ToName < 0 {
		s.ToName = float64(at-event) / 1e9
	}
}

// lost estimates what a held innocent could not do: its mean usage before the hold,
// times the hold's length, less what it used meanwhile.
func lost(t *trace.Trace, h *trace.Hold, end int64) float64 {
	to := cmp.Or(h.ToNsec, end)
	before, n, during := 0.0, 0, 0.0
	for i := range t.Windows {
		w := &t.Windows[i]
		o := w.Task(h.Task)
		if o == nil || o.CPU.Outcome != model.OK {
			continue
		}
		switch {
		case w.MonoNsec <= h.FromNsec:
			before += o.CPU.V
			n++
		case w.MonoNsec <= to:
			during += o.CPU.V * w.Length
		}
	}
	if n == 0 {
		return 0
	}
	return max(0, before/float64(n)*float64(to-h.FromNsec)/1e9-during)
}

// baselines runs other detectors over the same samples, up to the first hold: after it
// the samples are of a machine on which we acted. They name; they never act.
func baselines(r *Round, path string, event int64) error {
	for name, change := range map[string]func(p *engine.Params){
		basePeer: func(p *engine.Params) {
			correlateSlowdown(p)
			a := &p.Hardcap.Antagonist[model.SourceSlowdown]
			a.Threshold, a.Offset, a.Bound, a.MinSuspectCPU, a.Margin = 0.15, 0, 0, 0, 0
		},
		basePaper: func(p *engine.Params) {
			correlateSlowdown(p)
			a := &p.Hardcap.Antagonist[model.SourceSlowdown]
			a.Threshold, a.Offset, a.Bound, a.MinSuspectCPU, a.Margin = 0.35, 0, 0, 0, 0
		},
	} {
		s, err := detect(path, change, r.Antagonist, event)
		if err != nil {
			return err
		}
		r.Baselines[name] = s
	}
	s, err := largest(path, r.Antagonist, event)
	r.Baselines[baseLargest] = s
	return err
}

// asked are the shares of the blame at which the agent's own way of naming is tried on the same samples, the
// profile's own among them.
var asked = [...]float64{0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8}

// sweep names the first suspect at each share that could be asked for.
func sweep(r *Round, path string, event int64) error {
	for _, share := range asked {
		s, err := detect(path, func(p *engine.Params) { p.Hardcap.Blame.Share = share }, r.Antagonist, event)
		if err != nil {
			return err
		}
		r.Asked = append(r.Asked, s)
	}
	return nil
}

// correlateSlowdown leaves what the paper has, on the one signal that every machine has: no blame, no demotion, no other
// signal, and specs by its formula.
func correlateSlowdown(p *engine.Params) {
	p.Hardcap.Blame.Enabled, p.Hardcap.Demote.Enabled, p.Spec.RobustFirst, p.Spec.Alone = false, false, false, false
	p.Sources = [model.NumSources]bool{model.SourceSlowdown: true}
}

// eachSegment hands the ticks of a record to a fresh engine with changed parameters, in
// observe mode and without the results of writes, until the first write was made.
func eachSegment(path string, change func(p *engine.Params), visit func(e *engine.Engine, t *record.Tick, out *engine.Output) bool) error {
	files, err := record.Segments(path)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("first-light: expected one segment in %s, found %d", path, len(files))
	}
	var e *engine.Engine
	_, err = record.ReadSegment(files[0], func(r *record.Reader) error {
		p := r.Header.Params
		p.Mode = model.ModeObserve
		change(&p)
		e = engine.New(p)
		return nil
	}, func(t *record.Tick) bool {
		for i := range t.Input.Results {
			if t.Input.Results[i].Kind == model.Applied {
				return false
			}
		}
		t.Input.Results, t.Input.Knobs, t.Input.Commands = nil, nil, nil
		return visit(e, t, e.Step(&t.Input))
	})
	return err
}

// detect scores the engine's own detector under other parameters: the first name.
func detect(path string, change func(p *engine.Params), antagonist string, event int64) (Score, error) {
	s := Score{ToName: -1, ToRecover: -1}
	err := eachSegment(path, change, func(_ *engine.Engine, t *record.Tick, out *engine.Output) bool {
		for i := range out.Decisions {
			if d := &out.Decisions[i]; d.Kind == model.DecideCap || d.Kind == model.DecideDemote {
				s.add(d.Path, antagonist != "" && d.Path == antagonist, t.Input.MonoNsec, event)
				return false
			}
		}
		return true
	})
	return s, err
}

// largest names, at the first anomaly, the BE task that used most CPU in the last
// window.
func largest(path, antagonist string, event int64) (Score, error) {
	s := Score{ToName: -1, ToRecover: -1}
	err := eachSegment(path, func(*engine.Params) {}, func(e *engine.Engine, t *record.Tick, out *engine.Output) bool {
		for i := range out.Decisions {
			if out.Decisions[i].Kind != model.DecideAnomaly {
				continue
			}
			best, usage := "", 0.0
			for k := range e.State.Tracks {
				tr, task := &e.State.Tracks[k], &e.State.Tasks.Tasks[k]
				if task.Class == model.BE && tr.CPU.Outcome == model.OK && tr.CPU.V > usage {
					best, usage = task.Path, tr.CPU.V
				}
			}
			s.add(best, antagonist != "" && best == antagonist, t.Input.MonoNsec, event)
			return false
		}
		return true
	})
	return s, err
}
