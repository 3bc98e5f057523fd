package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/lab/trace"
	"github.com/commensal-io/commensal/model"
)

// BlameRow is one BE task as the scheduler and the agent saw it: how much of what the victim waited for
// others it had the CPU, and what came of it.
type BlameRow struct {
	Task       string  `json:"task"`
	Antagonist bool    `json:"antagonist"`
	None       float64 `json:"share_without_control"`
	Ours       float64 `json:"share_with_commensal"`
	CPU        float64 `json:"cpu_without_control"` // CPU-sec/sec
	Weighed    bool    `json:"weighed"`             // the agent weighed it in some analysis
	Score      float64 `json:"score"`               // the highest
	Asked      float64 `json:"asked"`
	Verdict    string  `json:"verdict"`
}

// blame has a row for each BE task, held or not.
func (r *run) blame(t *trace.Trace, o *Outcome) []BlameRow {
	none, ours := o.find(wayNone), o.find(wayOurs)
	rows := make([]BlameRow, 0, len(r.scene.BE))
	for _, path := range r.scene.BE {
		n := taskAt(t, path)
		row := BlameRow{
			Task: path, Antagonist: path == r.scene.Antagonist, CPU: none.CPU[n],
			None: none.Waits.share(none.Waits.Tasks[n]), Ours: ours.Waits.share(ours.Waits.Tasks[n]),
			Verdict: "never a suspect: memcached had no incident in which it was weighed",
		}
		for _, inc := range t.Incidents {
			for i := range inc.Rounds {
				row.weigh(&inc.Rounds[i], n, r.during(inc.Rounds[i].MonoNsec))
			}
		}
		if held := slices.IndexFunc(o.Holds, func(h HoldRow) bool { return h.Task == path }); held >= 0 {
			row.Verdict = "held: " + o.Holds[held].Verdict
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b BlameRow) int { return cmp.Compare(b.None, a.None) })
	return rows
}

// weigh takes in what one round of an incident said of the task; on: policies were.
func (b *BlameRow) weigh(rd *model.Round, n model.TaskNum, on bool) {
	for i := range rd.Suspects {
		if s := &rd.Suspects[i]; s.Task == n && (!b.Weighed || s.Score > b.Score) {
			b.Weighed, b.Score, b.Asked, b.Verdict = true, s.Score, rd.Threshold, s.Verdict
			if !on {
				b.Verdict += ", with policies off"
			}
		}
	}
}

// nobody says why nobody was held while policies were on: the last that the agent said of it, or that the
// victim was never in distress.
func (r *run) nobody(t *trace.Trace, victim model.TaskNum) string {
	said := ""
	for i := range t.Decisions {
		d := &t.Decisions[i]
		switch d.Kind {
		case model.DecideSearch, model.DecideCannotFix, model.DecideLimit:
			if r.during(d.MonoNsec) {
				said = d.Reason
			}
		}
	}
	if said != "" {
		return said
	}
	src, limit := t.Spec("memcached")
	if limit == 0 {
		return "the agent had no spec of memcached to judge by"
	}
	bad, n := 0, 0
	for i := range t.Windows {
		w := &t.Windows[i]
		if o := w.Task(victim); o != nil && r.during(w.MonoNsec) && o.Signals[src].Outcome == model.OK {
			n++
			if o.Signals[src].V > limit {
				bad++
			}
		}
	}
	return fmt.Sprintf("memcached's %s was above its threshold of %.3g in %d of %d windows, and was in distress never", src, limit, bad, n)
}

// during reports whether policies were on.
func (r *run) during(nsec int64) bool {
	return slices.ContainsFunc(r.blocks, func(b Block) bool { return b.Way == wayOurs && nsec >= b.StartNsec && nsec <= b.EndNsec })
}

// elsewhere is what had the rest of the victim's waiting, in two ways of control, as rows of a table.
func elsewhere(none, ours *Waits) [][3]string {
	share := func(of func(w *Waits) float64) (string, string) {
		return percent(none, of(none)), percent(ours, of(ours))
	}
	rows := make([][3]string, 0, 4)
	for _, part := range []struct {
		name string
		of   func(w *Waits) float64
	}{
		{"other programs" + names(none, ours), func(w *Waits) float64 { return w.Outside - w.Steal - w.Kernel }},
		{"steal", func(w *Waits) float64 { return w.Steal }},
		{"kernel threads", func(w *Waits) float64 { return w.Kernel }},
		{"soft interrupts", func(w *Waits) float64 { return w.SoftIRQ }},
		{"load generator, agent", func(w *Waits) float64 { return w.Own }},
	} {
		a, b := share(part.of)
		rows = append(rows, [3]string{part.name, a, b})
	}
	return rows
}

func percent(w *Waits, ms float64) string {
	if w.Seconds == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*w.share(ms))
}

// names are the programs that were seen outside in either.
func names(none, ours *Waits) string {
	list := slices.Clone(none.Who)
	for _, n := range ours.Who {
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return ": " + strings.Join(list[:min(mostNames, len(list))], ", ")
}
