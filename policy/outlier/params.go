package outlier

import "github.com/commensal-io/commensal/model"

// Defaults are the paper's values, and ours where it gives none.
func Defaults() Params {
	p := Params{RequiredCPUUsage: 0.25, Sigmas: 2, Violations: 3, WindowNsec: 300e9}
	for src := range model.NumSources {
		of := src.Row()
		p.MinRise[src], p.MinRuns[src], p.SignalSigmas[src] = of.MinRise, of.MinRuns, of.Sigmas
		p.MinTimes[src], p.LeastRise[src] = of.MinTimes, of.LeastRise
	}
	return p
}

// Rows describes the parameters that the configuration sets in its section cpi2.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "required_cpu_usage", At: &p.RequiredCPUUsage, Most: 1024, Soak: [2]float64{0.005, 0.05}, Unit: "CPU-sec/sec", Why: "CPI² table 2: 0.25 CPU-sec/sec; below it a window says nothing"},
		{Key: "outlier_threshold_1", At: &p.Sigmas, Most: 100, Soak: [2]float64{1, 2}, Unit: "standard deviations", Why: "CPI² table 2: 2 standard deviations"},
		{Key: "outlier_threshold_2.violations", At: &p.Violations, Least: 1, Most: 1000, Soak: [2]float64{2, 4}, Unit: "windows", Why: "CPI² table 2: 3 violations in 5 minutes"},
		{Key: "outlier_threshold_2.window", At: model.Nsec(&p.WindowNsec), Most: model.Unbounded, Soak: [2]float64{5e9, 15e9}, Why: "CPI² table 2: 3 violations in 5 minutes"},
	}
}

// RowsOf describes the parameters of one signal.
func (p *Params) RowsOf(src model.Source) []model.Param {
	rows := []model.Param{
		{Key: "min_rise", At: &p.MinRise[src], Most: 1000, Soak: [2]float64{0.05, 0.5}, Unit: "in units of the signal", Why: "least distance of the outlier threshold from the mean"},
	}
	if src.Row().MinTimes > 0 {
		rows = append(rows,
			model.Param{Key: "min_times", At: &p.MinTimes[src], Most: 1000, Soak: [2]float64{0, 5}, Unit: "times the mean", Why: "the same, where it is less than min_rise: a service that waits little suffers when that becomes many times as long. 0: min_rise alone counts"},
			model.Param{Key: "least_rise", At: &p.LeastRise[src], Most: 1000, Soak: [2]float64{0, 0.05}, Unit: "in units of the signal", Why: "and in any case so much"})
	}
	if src.Row().Charged {
		rows = append(rows,
			model.Param{Key: "min_runs", At: &p.MinRuns[src], Most: 1000, Soak: [2]float64{0, 4}, Unit: "times what the job runs between two waits", Why: "the same, for jobs whose own work takes long"},
			model.Param{Key: "sigmas", At: &p.SignalSigmas[src], Most: 100, Soak: [2]float64{0, 3}, Unit: "standard deviations", Why: "the same, where it is more than outlier_threshold_1: a p99 goes by a few waits of a window"})
	}
	return rows
}
