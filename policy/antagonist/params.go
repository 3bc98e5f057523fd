package antagonist

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// Defaults are the paper's values for CPI, and for other signals those that were calibrated.
func Defaults(src model.Source) Params {
	row := src.Row()
	return Params{
		Threshold: row.Correlation, Offset: row.Rest, Bound: row.Bound, MinSuspectCPU: row.MinSuspectCPU, Margin: row.Margin, Steady: row.Steady,
	}
}

// Rows describes the parameters that every signal has in the configuration. threshold says
// where its default of the correlation is from.
func (p *Params) Rows(threshold string) []model.Param {
	return []model.Param{
		{Key: "antagonist_correlation_threshold", At: &p.Threshold, Most: 1, Soak: [2]float64{0.05, 0.3}, Unit: "a correlation", Why: threshold},
		{Key: "margin_over_median", At: &p.Margin, Most: 1, Unit: "a correlation", Why: "by how much a suspect must stand out from the others; 0: as CPI²"},
		{Key: "margin_over_steady", At: &p.Steady, Most: 1, Unit: "a correlation", Why: "by how much it must score above a steady suspect; 0: as CPI²"},
	}
}

// BoundRows describes those of a signal that can be many times its threshold, which CPI is
// not.
func (p *Params) BoundRows() []model.Param {
	return []model.Param{
		{Key: "ratio_bound", At: &p.Bound, Most: 1e6, Unit: "times the threshold; more than 1, or 0 for none", Why: "how many times the threshold one window counts at most"},
		{Key: "min_suspect_cpu", At: &p.MinSuspectCPU, Most: 1024, Unit: "CPU-sec/sec", Why: "CPU-sec/sec that a suspect must use while the victim suffers"},
	}
}

// Check finds parameters that do not fit each other: the first one's key, and why.
func (p *Params) Check() (key, why string) {
	switch {
	case p.Bound == 0:
	case p.Bound <= 1:
		return "ratio_bound", fmt.Sprintf("is %g; expected more than 1, or 0 for none", p.Bound)
	case p.Threshold >= 1-1/p.Bound:
		return "antagonist_correlation_threshold", fmt.Sprintf("is %g, which no suspect can reach: ratio_bound %g bounds scores at %.3g", p.Threshold, p.Bound, 1-1/p.Bound)
	}
	return "", ""
}
