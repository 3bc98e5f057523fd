package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/lab/load"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/trace"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// Row is one way of control in numbers; latencies in milliseconds over the counted
// parts of its blocks.
type Row struct {
	Way      string                    `json:"way"`
	P50      float64                   `json:"p50_ms"`
	P99      float64                   `json:"p99_ms"`
	P999     float64                   `json:"p999_ms"`
	WholeP99 float64                   `json:"p99_with_lead_in_ms"`
	Lateness float64                   `json:"client_lateness_p99_ms"`
	Slowdown float64                   `json:"slowdown_mean"`
	BEWork   float64                   `json:"be_cpu"`        // CPU-sec/sec of all BE tasks
	Innocent float64                   `json:"bystander_cpu"` // CPU-sec/sec of the bystanders
	Waits    Waits                     `json:"waits"`
	CPU      map[model.TaskNum]float64 `json:"cpu"` // CPU-sec/sec of each BE task
}

// HoldRow is one task that the agent held.
type HoldRow struct {
	Task       string  `json:"task"`
	Antagonist bool    `json:"antagonist"`
	By         string  `json:"by"` // the knob
	At         float64 `json:"at_seconds"`
	For        float64 `json:"for_seconds"`
	Score      float64 `json:"score"`
	Asked      float64 `json:"asked"`
	ToName     float64 `json:"seconds_to_name"` // from the block's start
	Verdict    string  `json:"verdict"`
}

// Outcome is the result of a demo.
type Outcome struct {
	Seed       uint64     `json:"seed"`
	Antagonist string     `json:"antagonist"`
	Rows       []Row      `json:"rows"`
	Blame      []BlameRow `json:"blame"`
	Nobody     string     `json:"nobody,omitempty"` // why nobody was held, in the agent's words
	Holds      []HoldRow  `json:"holds"`
	Verdict    string     `json:"verdict"` // passed, failed or could not tell
	Why        string     `json:"why"`
	Replay     string     `json:"replay"`
	Report     string     `json:"report"`
	Code       int        `json:"exit_code"`

	outcome report.Outcome
	page    report.Report
	tables  []report.Table
}

// judge turns what was measured into an outcome.
func (r *run) judge() (*Outcome, error) {
	t, err := trace.Read(r.scene.RecordPath())
	if err != nil {
		return nil, err
	}
	o := &Outcome{Seed: r.opt.Seed, Antagonist: r.scene.Antagonist, Report: r.opt.Report}
	victim := taskAt(t, r.scene.Victim)
	for _, way := range slices.Concat([]string{wayQuiet}, r.order, []string{wayAgain}) {
		if o.find(way).Way == "" {
			o.Rows = append(o.Rows, r.row(t, victim, way))
		}
	}
	o.Holds = r.holds(t)
	o.Blame = r.blame(t, o)
	if len(o.Holds) == 0 {
		o.Nobody = r.nobody(t, victim)
	}
	o.decide(stolen(t), runtime.NumCPU())
	rep, err := record.Run(r.scene.RecordPath())
	switch {
	case err != nil:
		return nil, err
	case rep.First != nil:
		o.Replay = fmt.Sprintf("the record does NOT replay: first difference at tick %d, %s %d", rep.First.Seq, rep.First.What, rep.First.Index)
		o.conclude(report.Fail, o.Replay)
	default:
		o.Replay = fmt.Sprintf("the record replays exactly: %d ticks, %d decisions", rep.Ticks, rep.Decisions)
	}
	r.page(t, o, victim)
	return o, r.writeReport(o)
}

func taskAt(t *trace.Trace, path string) model.TaskNum {
	for n, task := range t.Tasks {
		if task.Path == path {
			return n
		}
	}
	return model.NumUnmanaged
}

// stolen is the share of all CPU that the hypervisor took, over the whole run.
func stolen(t *trace.Trace) float64 {
	sum, n := 0.0, 0
	for i := range t.Windows {
		if v := t.Windows[i].Steal; v.Outcome == model.OK {
			sum += v.V
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n) / float64(runtime.NumCPU())
}

func ms(s load.Span) float64 { return s.Seconds() * 1e3 }

// row sums one way of control up.
func (r *run) row(t *trace.Trace, victim model.TaskNum, way string) Row {
	s := r.summary(way, counted)
	row := Row{
		Way: way, P50: ms(s.P50), P99: ms(s.P99), P999: ms(s.P999), Lateness: ms(s.Lateness.P99),
		WholeP99: ms(r.summary(way, whole).P99), CPU: map[model.TaskNum]float64{},
	}
	row.Waits = waits(t, victim, r.own(), ourPrograms(), func(w *trace.Window) bool { return r.inside(w, way) })
	length, n := 0.0, 0
	for i := range r.blocks {
		b := &r.blocks[i]
		if b.Way != way {
			continue
		}
		length += float64(b.EndNsec-b.FromNsec) / 1e9
		row.BEWork += b.BEWork
		row.Innocent += b.Innocent
		for k := range t.Windows {
			w := &t.Windows[k]
			if w.MonoNsec <= b.FromNsec || w.MonoNsec > b.EndNsec {
				continue
			}
			for k := range w.Tasks {
				if o := &w.Tasks[k]; t.Tasks[o.Num].Class == model.BE {
					row.CPU[o.Num] += o.CPU.V * w.Length
				}
			}
			if task := w.Task(victim); task != nil && task.Raw[model.SourceSlowdown].Outcome == model.OK {
				row.Slowdown += task.Signals[model.SourceSlowdown].V
				n++
			}
		}
	}
	if length > 0 {
		row.BEWork /= length
		row.Innocent /= length
		for n := range row.CPU {
			row.CPU[n] /= length
		}
	}
	if n > 0 {
		row.Slowdown /= float64(n)
	}
	return row
}

// inside reports whether a window lies in the counted part of a way's blocks.
func (r *run) inside(w *trace.Window, way string) bool {
	return slices.ContainsFunc(r.blocks, func(b Block) bool { return b.Way == way && w.MonoNsec > b.FromNsec && w.MonoNsec <= b.EndNsec })
}

// own is the CPU that the load generator and the agent use, CPU-sec/sec.
func (r *run) own() float64 {
	res := r.load.Result
	return (res.CPU.Seconds() + r.scene.AgentCPU().Seconds()) / max(1, res.Length.Seconds())
}

// ourPrograms are the names by which the kernel knows them.
func ourPrograms() []string {
	self, _ := os.Executable()
	return []string{filepath.Base(self), "commensal"}
}

// holds lists who was held, with the score that named it.
func (r *run) holds(t *trace.Trace) []HoldRow {
	var rows []HoldRow
	for _, h := range t.Holds {
		row := HoldRow{Task: h.Path, Antagonist: h.Path == r.scene.Antagonist, By: h.Knob.String(), At: r.seconds(h.FromNsec), Verdict: "no verdict"}
		if h.ToNsec > 0 {
			row.For = float64(h.ToNsec-h.FromNsec) / 1e9
		}
		if rd := roundOf(t, &h); rd != nil {
			row.Asked = rd.Threshold
			if rd.Verdict != "" {
				row.Verdict = rd.Verdict
			}
			for _, s := range rd.Suspects {
				if s.Task == h.Task {
					row.Score = s.Score
				}
			}
		}
		for i := range r.blocks {
			if b := &r.blocks[i]; h.FromNsec >= b.StartNsec && h.FromNsec <= b.EndNsec {
				row.ToName = float64(h.FromNsec-b.StartNsec) / 1e9
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// roundOf is the round that a hold belongs to: of those that chose the task, the first that was in force when
// the hold began or later, for one that demotes first and caps then is in force from the last of it.
func roundOf(t *trace.Trace, h *trace.Hold) (of *model.Round) {
	for _, inc := range t.Incidents {
		for i := range inc.Rounds {
			rd := &inc.Rounds[i]
			if rd.Chosen != nil && *rd.Chosen == h.Task && rd.AppliedNsec >= h.FromNsec && (of == nil || rd.AppliedNsec < of.AppliedNsec) {
				of = rd
			}
		}
	}
	return of
}

func (o *Outcome) find(way string) *Row {
	for i := range o.Rows {
		if o.Rows[i].Way == way {
			return &o.Rows[i]
		}
	}
	return &Row{}
}

// conclude notes the outcome, and why.
func (o *Outcome) conclude(out report.Outcome, why string) {
	o.outcome, o.Verdict, o.Code, o.Why = out, out.String(), out.Code(), why
}

// Outcome is the verdict in one word.
func (o *Outcome) Outcome() report.Outcome { return o.outcome }

// facts describe the machine and the run.
func (r *run) facts() [][2]string {
	fs := hostfs.NewRoot("/")
	facts := [][2]string{{"seed", fmt.Sprint(r.opt.Seed)}, {"profile", config.ProfileSingleNode}, {"CPUs", fmt.Sprint(runtime.NumCPU())}}
	if p, err := procstat.ReadPlatform(fs); err == nil {
		facts = append(facts, [2]string{"platform", p})
	}
	if k, err := procstat.ReadKernelRelease(fs); err == nil {
		facts = append(facts, [2]string{"kernel", k})
	}
	res := r.load.Result
	return append(facts,
		[2]string{"load", fmt.Sprintf("%.0f requests/s, open loop, client protected by %s, using %.2f CPU", res.RatePerSec, res.Protection, res.CPU.Seconds()/max(1, res.Length.Seconds()))},
	)
}
