package throttle

import (
	"fmt"

	"github.com/commensal-io/commensal/lab/report"
)

// Chart is figure 12: the same use by 50 ms and by the second, with the quota.
func (j *Jitter) Chart() report.Chart {
	quota := j.QuotaCPUs
	fine := report.Series{Name: "by 50 ms", Role: report.Bystander, X: times(len(j.Fine), sampleEvery.Seconds()), Y: j.Fine}
	coarse := report.Series{Name: "by the second", Role: report.Victim, X: times(len(j.Coarse), 1), Y: j.Coarse}
	return report.Chart{
		Title:  fmt.Sprintf("Figure 12: CPU use of %s, %s", j.Instance, j.Column),
		YLabel: "CPU use (CPUs)", Series: []report.Series{fine, coarse}, Threshold: &quota, ThresholdLabel: "quota",
	}
}

// times are the ends of n stretches.
func times(n int, seconds float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = float64(i+1) * seconds
	}
	return list
}

// PeakChart is figure 13b: peak throughput, and the use of the quota there, against the
// bucket's size.
func PeakChart(title string, list []Bucket) report.Chart {
	var k, peak, use []float64
	for i := range list {
		k, peak, use = append(k, list[i].K), append(peak, list[i].PeakPerSec), append(use, list[i].PeakUse*100)
	}
	full := 100.0
	return report.Chart{
		Title: title, Subtitle: "One service, spikes of 1.5 times what its quota gives in a period", XLabel: "bucket (multiples of the quota)",
		YLabel: "peak throughput (spikes a second)", Series: []report.Series{{Name: "without throttling or delay", Role: report.Victim, X: k, Y: peak}},
		Lower: &report.Panel{
			YLabel: "CPU use at the peak (% of the quota)", Series: []report.Series{{Name: "use", Role: report.Other, X: k, Y: use}},
			Threshold: &full, ThresholdLabel: "quota",
		},
	}
}

// Charts are figure 23, and beside it how many instances are throttled.
func (s *Surge) Charts() []report.Chart {
	if len(s.Arms) == 0 {
		return nil
	}
	high := goalU * 100
	var throttled []report.Series
	roles := []report.Role{report.Antagonist, report.Victim, report.Other}
	for i := range s.Arms {
		throttled = append(throttled, report.Series{Name: s.Arms[i].Name, Role: roles[i%len(roles)], X: s.Arms[i].EndSec, Y: scaled(s.Arms[i].Throttled, 100)})
	}
	last := &s.Arms[len(s.Arms)-1]
	var u []report.Series
	for _, line := range []struct {
		name string
		role report.Role
		of   func(Spread) float64
	}{
		{"max", report.Antagonist, func(s Spread) float64 { return s.Max }},
		{"p99", report.Other, func(s Spread) float64 { return s.P99 }},
		{"p95", report.Bystander, func(s Spread) float64 { return s.P95 }},
		{"mean", report.Victim, func(s Spread) float64 { return s.Mean }},
	} {
		y := make([]float64, len(last.U))
		for i := range y {
			y[i] = line.of(last.U[i]) * 100
		}
		u = append(u, report.Series{Name: line.name, Role: line.role, X: last.EndSec, Y: y})
	}
	return []report.Chart{{
		Title:  fmt.Sprintf("Figure 23: a surge on %d simulated machines", s.Machines),
		YLabel: "instances throttled in 5 s (%)", Series: throttled,
		Lower:  &report.Panel{YLabel: "U over machines, " + last.Name + " (%)", Series: u, Threshold: &high, ThresholdLabel: "U_H"},
		Shades: []report.Shade{{From: s.AtSec, To: last.EndSec[len(last.EndSec)-1], Label: "surge", Role: report.ControlOn}},
	}}
}

func scaled(v []float64, by float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = v[i] * by
	}
	return out
}

// Plots are the pictures of the policies' pages, by file name: those for which something
// was played.
func (r *Result) Plots() map[string]report.Chart {
	plots := map[string]report.Chart{}
	if r.Twin == nil {
		return plots
	}
	if charts := r.Twin.Surge.Charts(); len(charts) > 0 {
		plots["cpu-pool.svg"] = charts[0]
	}
	plots["burst.svg"] = PeakChart("Figure 13b on the twin, Alibaba's kernel", r.Twin.Buckets)
	return plots
}
