package localspec

import "github.com/commensal-io/commensal/model"

// Defaults are the paper's values, and ours where it gives none.
func Defaults() Params {
	return Params{RecalculateNsec: 86400e9, AgeWeight: 0.9, MinTasks: 5, MinSamplesPerTask: 100}
}

// Rows describes the parameters that the configuration sets in its section cpi2.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "predicted_cpi_recalculated", At: model.Nsec(&p.RecalculateNsec), Most: model.Unbounded, Soak: [2]float64{60e9, 3600e9}, Unit: "not below sampling_frequency", Why: "CPI² table 2: every 24 hours (goal: 1 hour)"},
		{Key: "age_weight", At: &p.AgeWeight, Most: 0.999, Unit: "a weight below 1", Why: "CPI² §3.1: about 0.9"},
		{Key: "min_tasks", At: &p.MinTasks, Least: 1, Most: model.Unbounded, Soak: [2]float64{1, 2}, Unit: "tasks", Why: "CPI² §3.1: not with fewer than 5 tasks"},
		{Key: "min_samples_per_task", At: &p.MinSamplesPerTask, Least: 2, Most: model.Unbounded, Soak: [2]float64{5, 30}, Unit: "samples; one has no deviation", Why: "CPI² §3.1: nor fewer than 100 samples per task"},
		{Key: "recalculate_on_doubling", At: &p.OnDoubling, Why: "also when the sample has doubled and at most 5 % were outliers"},
		{Key: "robust_first_spec", At: &p.RobustFirst, Why: "beyond CPI²: few noisy windows do not move a first spec, and one that was learned in noise is learned anew"},
		{Key: "first_spec_alone", At: &p.Alone, Why: "beyond CPI²: without the one best-effort task that had most of the blame while it was learned"},
		{Key: "first_spec_stolen", At: &p.Stolen, Most: 1, Soak: [2]float64{0, 0.3}, Unit: "of the machine's CPU time", Why: "beyond CPI²: a window in which the hypervisor took so much is not learned from before the first spec, of twice min_samples_per_task windows at most; 0: all are"},
	}
}
