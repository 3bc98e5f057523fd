// Package trace turns an agent's record into what a lab judges: signals and usages over
// time, who was held when, and the incidents. Rates are derived here again from the raw
// samples, by the same code that the agent used.
package trace

import (
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// Window is one sampling window.
type Window struct {
	MonoNsec  int64   // at its end
	Length    float64 // seconds
	Busy      model.Value
	Unmanaged model.Value
	Steal     model.Value
	Tasks     []model.TaskObservation // ordered by number
	Waiting   []model.Waiting         // who had the CPU while LC tasks waited; none where nobody can tell
}

// Task returns a task's part of the window, nil when it has none.
func (w *Window) Task(n model.TaskNum) *model.TaskObservation {
	for i := range w.Tasks {
		if w.Tasks[i].Num == n {
			return &w.Tasks[i]
		}
	}
	return nil
}

// Hold is a time for which a task was held by one knob.
type Hold struct {
	Task     model.TaskNum
	Path     string
	Knob     model.KnobKind
	FromNsec int64
	ToNsec   int64 // 0: until the record ends
}

// Trace is a whole record.
type Trace struct {
	Tasks     map[model.TaskNum]model.Task
	Windows   []Window
	Holds     []Hold
	Incidents []*model.Incident // as they stood last, in order of opening
	Decisions []model.Decision
	Specs     []model.Decision // of kind spec, with mean and threshold
}

// Read reads a record, a folder or one segment.
func Read(path string) (*Trace, error) {
	r := &reader{t: &Trace{Tasks: map[model.TaskNum]model.Task{}}, asked: map[uint64]model.Change{}, seen: map[string]int{}}
	if err := record.Walk(path, r.visit); err != nil {
		return nil, err
	}
	return r.t, nil
}

type reader struct {
	t     *Trace
	prev  *model.Snapshot
	obs   model.Observation
	asked map[uint64]model.Change
	seen  map[string]int
}

func (r *reader) visit(t *record.Tick) {
	for i := range t.Input.Results {
		r.result(&t.Input.Results[i])
	}
	if s := t.Input.Snapshot; s != nil {
		for _, task := range s.Added {
			r.t.Tasks[task.Num] = task
		}
		r.window(s)
	}
	for _, c := range t.Output.Changes {
		r.asked[c.Seq] = c
	}
	for _, inc := range t.Output.Incidents {
		if i, ok := r.seen[inc.ID]; ok {
			r.t.Incidents[i] = inc
			continue
		}
		r.seen[inc.ID] = len(r.t.Incidents)
		r.t.Incidents = append(r.t.Incidents, inc)
	}
	for _, d := range t.Output.Decisions {
		r.t.Decisions = append(r.t.Decisions, d)
		if d.Kind == model.DecideSpec {
			r.t.Specs = append(r.t.Specs, d)
		}
	}
}

// result follows the holds through what the host said.
func (r *reader) result(res *model.Result) {
	c, ok := r.asked[res.Seq]
	if !ok || res.Kind != model.Applied {
		return
	}
	open := -1
	for i := range r.t.Holds {
		if h := &r.t.Holds[i]; h.Task == res.Task() && h.Knob == c.Value.Knob && h.ToNsec == 0 {
			open = i
		}
	}
	switch {
	case c.Kind == model.Hold && open < 0:
		r.t.Holds = append(r.t.Holds, Hold{Task: res.Task(), Path: r.t.Tasks[res.Task()].Path, Knob: c.Value.Knob, FromNsec: res.MonoNsec})
	case c.Kind == model.Release && open >= 0:
		r.t.Holds[open].ToNsec = res.MonoNsec
	}
}

// window derives what the window that a snapshot closes says.
func (r *reader) window(s *model.Snapshot) {
	if s.Mark&model.WindowEnd != 0 && r.prev != nil {
		model.Observe(r.prev, s, &r.obs)
		w := Window{
			MonoNsec: s.MonoNsec, Length: float64(r.obs.ElapsedNsec) / 1e9, Busy: r.obs.Busy, Unmanaged: r.obs.Unmanaged, Steal: r.obs.Steal,
			Waiting: model.CloneWaiting(nil, s.Waiting),
		}
		for i := range r.obs.Tasks {
			o := r.obs.Tasks[i]
			o.Discount(&r.obs, r.t.Tasks[o.Num].CPUs)
			w.Tasks = append(w.Tasks, o)
		}
		r.t.Windows = append(r.t.Windows, w)
	}
	r.prev = nil
	if s.Mark&model.WindowStart != 0 {
		r.prev = &model.Snapshot{MonoNsec: s.MonoNsec, Node: s.Node, Tasks: append([]model.TaskSample(nil), s.Tasks...)}
	}
}

// Spec returns of which signal a job's spec was that was published last, and its outlier threshold; 0: none.
func (t *Trace) Spec(job string) (src model.Source, limit float64) {
	for i := range t.Specs {
		if d := &t.Specs[i]; d.Path == job {
			name, _, _ := strings.Cut(d.Reason, " ")
			if k := slices.Index(model.SourceNames(), name); k >= 0 {
				src = model.Source(k)
				limit, _ = d.Fact(model.FactThreshold)
			}
		}
	}
	return src, limit
}

// Signal returns a task's time series of a signal and of its CPU usage, seconds since startNsec;
// nan stands for a window without the value.
func (t *Trace) Signal(n model.TaskNum, src model.Source, startNsec int64, nan float64) (x, signal, cpu []float64) {
	for i := range t.Windows {
		w := &t.Windows[i]
		x = append(x, float64(w.MonoNsec-startNsec)/1e9)
		sv, cv := nan, nan
		if o := w.Task(n); o != nil {
			if v := o.Signals[src]; v.Outcome == model.OK {
				sv = v.V
			}
			if o.CPU.Outcome == model.OK {
				cv = o.CPU.V
			}
		}
		signal, cpu = append(signal, sv), append(cpu, cv)
	}
	return x, signal, cpu
}
