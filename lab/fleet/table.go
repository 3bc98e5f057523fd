package fleet

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/commensal-io/commensal/lab/report"
)

// WriteText prints what the run came to.
func (r *Result) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "Fleet: a hub, %d simulated nodes, %d real agents (seed %d): %.0f s of node time in %.0f s\n\n", r.Nodes, r.Real, r.Seed, r.NodeSec, r.Seconds)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "JOB\tPLATFORM\tSIGNAL\tSAMPLES\tTASKS\tMEAN\tDEVIATION\tTHRESHOLD")
	for _, j := range r.Jobs {
		for _, s := range j.Signals {
			spec := "-\t-\t-"
			if s.Published {
				spec = fmt.Sprintf("%.4g\t%.3g\t%.4g", s.Mean, s.StdDev, s.Threshold)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%.0f\t%d\t%s\n", j.Job, j.Platform, s.Signal, s.Samples, s.Tasks, spec)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	perSample := 0.0
	if r.Samples > 0 {
		perSample = float64(r.Bytes) / float64(r.Samples)
	}
	fmt.Fprintf(w, "\nnodes that did not hear of their jobs' specs: %d\n", r.Unheard)
	fmt.Fprintf(w, "antagonists held: %d of %d; nodes that held somebody else: %d of %d; incidents: %d\n", r.Held, r.Antagonists, r.Wrong, r.Nodes, r.Incidents)
	fmt.Fprintf(w, "a roll-out to a tenth of the nodes: in force on %d of %d\n", r.Rolled, r.RollWant)
	fmt.Fprintf(w, "an operator's cap in force: %v; the kill switch reached all nodes in %.2f s, after which %d held something\n", r.Capped, r.OffSeconds, r.StillHeld)
	fmt.Fprintf(w, "samples: %d, %.1f bytes each in the store; batches lost %d, doubled %d, refused %d\n", r.Samples, perSample, r.Lost, r.Doubles, r.Refused)
	for i := range r.Hosts {
		h := &r.Hosts[i]
		fmt.Fprintf(w, "real agent %s: %d samples of %d tasks; an operator's cap in force: %v, given back at the kill switch: %v, on again: %v\n", h.Node, h.Samples, h.Tasks, h.Capped, h.Freed, h.On)
	}
	fmt.Fprintf(w, "who hurts whom, asked in SQL: %s\n", r.Query)
	fmt.Fprintf(w, "pages shown: %s\n\n", r.Shown)
	if len(r.Failed) == 0 {
		fmt.Fprintln(w, "PASSED")
		return nil
	}
	for _, f := range r.Failed {
		fmt.Fprintf(w, "FAILED: %s\n", f)
	}
	return nil
}

// Outcome is whether the run was as it should be.
func (r *Result) Outcome() report.Outcome {
	if len(r.Failed) > 0 {
		return report.Fail
	}
	return report.Pass
}
