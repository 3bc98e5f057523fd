package report

import (
	"math"
	"math/rand/v2"
)

// sampleRun makes what a demo would measure, by seed: a victim whose slowdown
// follows an antagonist's CPU usage, two caps, bystanders. It is no model of
// anything; it gives the charts a realistic shape.
type sampleRun struct {
	x, signal, antagonist []float64
	bystanders            [][]float64
	shades                []Shade
}

func newSampleRun(seed uint64, bystanders int) sampleRun {
	rng := rand.New(rand.NewPCG(seed, 7))
	run := sampleRun{bystanders: make([][]float64, bystanders)}
	caps := [][2]float64{{196, 256}, {274, 334}}
	ease := 1.1
	for t := 0.0; t <= 360; t += 2 {
		usage := 0.0
		switch {
		case t < 40:
		case t >= caps[0][0] && t < caps[0][1], t >= caps[1][0] && t < caps[1][1]:
			usage = 0.1
		default:
			usage = 1.45 + 0.25*math.Sin(t/9)
		}
		usage = math.Max(0, usage*(1+0.08*rng.NormFloat64()))
		ease = 0.5*ease + 0.5*(1.08+1.7*usage)
		signal := math.Max(1, ease*(1+0.06*rng.NormFloat64()))
		if t > 118 && t < 128 { // a throttled window is no evidence: absent
			signal = math.NaN()
		}
		run.x = append(run.x, t)
		run.signal = append(run.signal, signal)
		run.antagonist = append(run.antagonist, usage)
		for i := range run.bystanders {
			level := 0.12 + 0.11*float64(i)
			run.bystanders[i] = append(run.bystanders[i], math.Max(0, level*(1+0.15*rng.NormFloat64())))
		}
	}
	run.shades = []Shade{
		{From: 0, To: 40, Role: Quiet, Label: "quiet"},
		{From: 40, To: 180, Role: ControlOff, Label: "policies off"},
		{From: 180, To: math.Inf(1), Role: ControlOn, Label: "policies on"},
		{From: caps[0][0], To: caps[0][1], Role: Capped, Label: "capped 0.10 CPU"},
		{From: caps[1][0], To: caps[1][1], Role: Capped, Label: "capped 0.10 CPU"},
	}
	return run
}

func (r sampleRun) pair() Chart {
	threshold := 1.8
	names := []string{"log-shipper", "node-exporter", "backup-agent", "index-builder", "cron"}
	lower := &Panel{YLabel: "CPU usage of the suspects (CPUs)"}
	lower.Series = append(lower.Series, Series{Name: "video-encode", Role: Antagonist, X: r.x, Y: r.antagonist})
	for i, y := range r.bystanders {
		lower.Series = append(lower.Series, Series{Name: names[i%len(names)], Role: Bystander, X: r.x, Y: y})
	}
	return Chart{
		Title:    "The victim slows down with the antagonist and recovers while it is capped",
		Subtitle: "Upper: slowdown of web-search by scheduler delay, every 2 s. Lower: CPU usage of the tasks suspected. Shaded: hard caps and policies.",
		YLabel:   "Slowdown, (cpu + delay) / cpu",
		Series:   []Series{{Name: "web-search", Role: Victim, X: r.x, Y: r.signal}}, Threshold: &threshold, ThresholdLabel: "threshold 1.80",
		Lower: lower, Shades: r.shades,
	}
}

// sampleLatency is a p99 over three arms, for a single panel on a log axis.
func sampleLatency() Chart {
	rng := rand.New(rand.NewPCG(3, 3))
	var off, on, alone Series
	off = Series{Name: "beside batch, off", Role: Antagonist}
	on = Series{Name: "beside batch, on", Role: Victim}
	alone = Series{Name: "alone", Role: Bystander}
	for x := 0.0; x <= 1500; x += 10 {
		for _, s := range []*Series{&off, &on, &alone} {
			s.X = append(s.X, x)
		}
		off.Y = append(off.Y, 38*math.Exp(0.35*rng.NormFloat64()))
		on.Y = append(on.Y, 4.2*math.Exp(0.25*rng.NormFloat64()))
		alone.Y = append(alone.Y, 2.2*math.Exp(0.2*rng.NormFloat64()))
	}
	slo := 10.0
	return Chart{
		Title: "p99 latency of memcached at 4,000 requests/s", YLabel: "p99 latency (ms), log scale",
		Series: []Series{off, on, alone}, Threshold: &slo, ThresholdLabel: "objective 10 ms", LogY: true,
	}
}

func sampleSuspects() Table {
	return Table{
		Title: "Suspects",
		Columns: []Column{
			{Name: "Task"}, {Name: "Class"}, {Name: "Correlation", Align: Right},
			{Name: "CPU before", Unit: "CPUs", Align: Right}, {Name: "CPU capped", Unit: "CPUs", Align: Right}, {Name: "Decision"},
		},
		Rows: [][]Cell{
			{{Text: "/lab/batch/video-encode"}, {Text: "BE"}, {Text: "0.62", Emphasis: Bad}, {Text: "1.45"}, {Text: "0.10"}, {Text: "capped for 60 s", Emphasis: Good}},
			{{Text: "/lab/batch/index-builder"}, {Text: "BE"}, {Text: "0.18"}, {Text: "0.46"}, {Text: "0.44"}, {Text: "left alone: below 0.35", Emphasis: Muted}},
			{{Text: "/lab/system/log-shipper"}, {Text: "system"}, {Text: "0.07"}, {Text: "0.12"}, {Text: "0.12"}, {Text: "left alone: below 0.35", Emphasis: Muted}},
			{{Text: "CPU of no task"}, {Text: "–"}, {Text: "absent", Emphasis: Muted}, {Text: "0.03"}, {Text: "0.02"}, {Text: "cannot be capped", Emphasis: Muted}},
		},
		Notes: []string{"Correlation as in CPI² §4.2, over 10 windows of 6 s; threshold 0.35."},
	}
}

func sampleArms() Table {
	return Table{
		Title: "Latency of memcached, three rounds",
		Columns: []Column{
			{Name: "Arm"}, {Name: "p50", Unit: "ms", Align: Right}, {Name: "p99", Unit: "ms", Align: Right},
			{Name: "p99.9", Unit: "ms", Align: Right}, {Name: "Requests", Align: Right}, {Name: "Late", Unit: "%", Align: Right},
		},
		Rows: [][]Cell{
			Cells("alone", "0.21", "2.2", "5.0", "1,440,000", "0.0"),
			{{Text: "beside batch, policies off"}, {Text: "0.48"}, {Text: "38.1", Emphasis: Bad}, {Text: "61.7"}, {Text: "1,439,211"}, {Text: "1.2"}},
			{{Text: "beside batch, policies on"}, {Text: "0.24"}, {Text: "4.2", Emphasis: Good}, {Text: "11.9"}, {Text: "1,440,000"}, {Text: "0.1"}},
		},
		Notes: []string{
			"Rounds are interleaved. The figure is the median of the rounds.",
			"“Late” is the part of requests that the client sent more than 1 ms after they were due.",
		},
	}
}

func sampleReport() Report {
	return Report{
		Title: "Commensal demo: a batch job beside a search service",
		Summary: []string{
			"The slowdown of web-search rose from 1.1 to 3.6 when video-encode began, and fell back to 1.2 within 8 s of each hard cap.",
			"The agent named video-encode as the antagonist with a correlation of 0.62 (threshold 0.35). It was the only task capped; the four others kept their CPU. Every quota was put back at the end.",
		},
		Verdict: Verdict{Pass, "The victim was under its outlier threshold for two windows in a row after each cap."},
		Sections: []Section{
			{Title: "What happened", Text: []string{"Policies were off for the first three minutes, so that the harm shows, and enforced from then on."}, Charts: []Chart{newSampleRun(1, 4).pair()}, Tables: []Table{sampleSuspects()}},
			{Title: "What the clients saw", Charts: []Chart{sampleLatency()}, Tables: []Table{sampleArms()}},
		},
		Facts: [][2]string{
			{"Machine", "2 vCPU, 7.8 GiB, cgroup v1"}, {"Kernel", "6.18.0"}, {"Profile", "single-node"}, {"Seed", "1"},
			{"Signal", "scheduler delay (no PMU, no resctrl)"}, {"Version", "commensal 0.1.0, go1.26.8"},
		},
	}
}
