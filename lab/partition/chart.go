package partition

import (
	"fmt"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Chart is the picture of the first table of the twin, where there is one.
func (r *Result) Chart() (report.Chart, bool) {
	if len(r.Twin) == 0 {
		return report.Chart{}, false
	}
	return r.Twin[0].Chart(), true
}

// Chart is the partition at work on the twin: what the services want, what they have, and
// what their clients see of it.
func (t *TwinTable) Chart() report.Chart {
	n := min(len(t.shape.cpus), t.day)
	wants := steps{}
	for second := range n {
		wants.to(float64(second), t.shape.cpus[second])
	}
	wants.end(float64(n))
	series := []report.Series{{Name: "LC wants", Role: report.Victim, X: wants.x, Y: wants.y}}
	for row := range t.sizes {
		has := steps{}
		for _, w := range t.sizes[row] {
			if at := float64(w.nsec) / 1e9; at < float64(n) {
				has.to(at, float64(w.value.CPUs.Len()))
			}
		}
		if has.end(float64(n)); len(has.x) > 0 {
			series = append(series, report.Series{Name: "LC has, " + string(t.Rows[row].Arm), Role: report.Other, X: has.x, Y: has.y})
		}
	}
	tail := func(arm Arm, role report.Role) report.Series {
		s := report.Series{Name: string(arm), Role: role}
		for second, v := range t.find(arm).tail[:min(n, len(t.find(arm).tail))] {
			s.X, s.Y = append(s.X, float64(second)), append(s.Y, v)
		}
		return s
	}
	return report.Chart{
		Title:    "The CPUs of LC follow its load; BE has the rest",
		Subtitle: fmt.Sprintf("%d CPUs on the twin, %s", t.CPUs, t.What),
		YLabel:   "CPUs",
		Series:   series,
		Lower: &report.Panel{
			YLabel: fmt.Sprintf("p99 of %s, each second, ms", services()[0].program), LogY: true,
			Series: []report.Series{tail(ArmNone, report.Antagonist), tail(ArmOurs, report.Victim), tail(ArmAlone, report.Bystander)},
		},
	}
}

// steps is a line that goes up and down at once.
type steps struct{ x, y []float64 }

func (s *steps) to(x, y float64) {
	if n := len(s.y); n > 0 {
		s.x, s.y = append(s.x, x), append(s.y, s.y[n-1])
	}
	s.x, s.y = append(s.x, x), append(s.y, y)
}

func (s *steps) end(x float64) {
	if n := len(s.y); n > 0 {
		s.to(x, s.y[n-1])
	}
}

// charts of the host's part: every hand-back, sorted.
func (h *HostResult) charts() []report.Chart {
	line := func(name string, role report.Role, of func(*HandBack) stat.Number) report.Series {
		s := report.Series{Name: name, Role: role}
		var list []stat.Number
		for i := range h.Backs {
			if h.Backs[i].HadBE {
				list = append(list, of(&h.Backs[i]))
			}
		}
		sorted := sortedOf(list)
		for i, v := range sorted {
			s.X, s.Y = append(s.X, v), append(s.Y, float64(i+1)/float64(len(sorted)))
		}
		return s
	}
	if h.Freed.N == 0 {
		return nil
	}
	return []report.Chart{{
		Title: "Hand-back on this host", XLabel: "ms from the step", YLabel: "share of hand-backs",
		Series: []report.Series{
			line("BE off the core", report.Other, func(b *HandBack) stat.Number { return b.FreedMsec }),
			line("LC runs there", report.Victim, func(b *HandBack) stat.Number { return b.RunMsec }),
		},
	}}
}
