package demo

import (
	"fmt"
	"math"
	"strings"

	"github.com/commensal-io/commensal/lab/report"
)

// The rules of the verdict (docs/FIRST-LIGHT.md, "The demo's verdict"). What is asked for:
const (
	// leastHarm: without control the p99 must be at least so many times that of the quiet blocks
	// beside, the worse one, or there was no interference to protect from.
	leastHarm = 2.0
	// wanted: with policies on, p99 must be below this share of the p99 without.
	wanted = 0.5
)

// What makes a run one that cannot tell:
const (
	// mostLateness: the load generator's own lateness as a share of the p99 it reports.
	mostLateness = 0.25
	// mostSteal: CPU that the hypervisor took, of all CPU.
	mostSteal = 0.2
	// mostOutside: of what the victim waited for others, what was outside of all rules: beyond
	// half of it nobody whom the agent may hold is the cause.
	mostOutside = 0.5
	// mostCPU: CPU that programs outside used, of all CPUs: it is room that nobody gives back, whoever is held.
	mostCPU = 0.25
	// asQuiet: a p99 within so many times the quiet one is as low as the host lets it be.
	asQuiet = 1.5
)

// decide says whether the demo passed: the antagonist, and no bystander, was held, and p99 with policies on is
// below half of that without. Who holds a bystander has failed, whatever the host did. For the rest:
// a run passes only where the antagonist's part of the victim's waiting fell by more than the host's own
// did, and fails only where the host's own was the smaller part of it.
func (o *Outcome) decide(stolen float64, cpus int) {
	quiet, none, ours := max(o.find(wayQuiet).P99, o.find(wayAgain).P99), o.find(wayNone), o.find(wayOurs)
	right, innocent := o.held()
	ratio := math.Inf(1)
	if none.P99 > 0 {
		ratio = ours.P99 / none.P99
	}
	verdict := func(out report.Outcome, format string, args ...any) { o.conclude(out, fmt.Sprintf(format, args...)) }
	passed := right && ratio < wanted
	switch {
	case len(innocent) > 0:
		verdict(report.Fail, "a bystander was held: %s", strings.Join(innocent, ", "))
	case none.P99 <= 0 || ours.P99 <= 0:
		verdict(report.Fail, "no latency was measured")
	case none.P99 < leastHarm*quiet:
		verdict(report.CouldNotTell, "there was too little harm to see beside the host's own: p99 without control is %.1f ms, and %.1f and %.1f ms without the antagonist, before and after%s",
			none.P99, o.find(wayQuiet).P99, o.find(wayAgain).P99, o.outside(", while %s", 0))
	// Latency counts from when a request was meant to be sent: a late client beside our hold makes p99 longer than it is, and cannot make a pass.
	case none.Lateness > mostLateness*none.P99 || !passed && ours.Lateness > mostLateness*max(ours.P99, 1):
		verdict(report.CouldNotTell, "the load generator itself was late by %.1f ms (p99)", max(none.Lateness, ours.Lateness))
	case stolen > mostSteal:
		verdict(report.CouldNotTell, "the hypervisor took %.0f %% of all CPU", 100*stolen)
	case passed && o.luck() != "":
		verdict(report.CouldNotTell, "the antagonist %s was held and p99 fell from %.1f to %.1f ms, but %s", o.Antagonist, none.P99, ours.P99, o.luck())
	case passed:
		verdict(report.Pass, "the antagonist %s, and nobody else, was held; p99 fell from %.1f to %.1f ms (%.0f %%)", o.Antagonist, none.P99, ours.P99, 100*ratio)
	case o.outside("%s", mostOutside) != "":
		verdict(report.CouldNotTell, "%s: %s", o.outside("%s", mostOutside), o.shortfall(right))
	case o.busy(cpus) != "":
		verdict(report.CouldNotTell, "%s: %s", o.busy(cpus), o.shortfall(right))
	case right && ours.P99 <= asQuiet*quiet:
		verdict(report.CouldNotTell, "the antagonist was held and p99 is as low as without it, but the host's own noise is more than half of the harm: %.1f ms held, %.1f ms without control, %.1f ms without the antagonist", ours.P99, none.P99, quiet)
	default:
		verdict(report.Fail, "%s", o.shortfall(right))
	}
}

// held says whether the antagonist was held, and which bystanders were.
func (o *Outcome) held() (right bool, innocent []string) {
	for _, h := range o.Holds {
		if h.Antagonist {
			right = true
		} else {
			innocent = append(innocent, h.Task)
		}
	}
	return right, innocent
}

// shortfall is what is missing for a pass.
func (o *Outcome) shortfall(right bool) string {
	ours, none := o.find(wayOurs), o.find(wayNone)
	if !right {
		return strings.TrimSuffix(fmt.Sprintf("the antagonist %s was not held; %s", o.Antagonist, o.Nobody), "; ")
	}
	return fmt.Sprintf("p99 with policies on is %.1f ms, not below half of %.1f ms without", ours.P99, none.P99)
}

// outside tells of the block in which most of what the victim waited for was outside of all rules,
// when that is more than a share; "" when not.
func (o *Outcome) outside(format string, above float64) string {
	var worst *Row
	for _, way := range []string{wayQuiet, wayNone, wayOurs, wayAgain} {
		if row := o.find(way); row.Waits.OutsideShare() > above && (worst == nil || row.Waits.OutsideShare() > worst.Waits.OutsideShare()) {
			worst = row
		}
	}
	if worst == nil {
		return ""
	}
	w := &worst.Waits
	who := ""
	if len(w.Who) > 0 {
		who = " (" + strings.Join(w.Who, ", ") + ")"
	}
	return fmt.Sprintf(format, fmt.Sprintf("what no rule covers%s had %.0f %% of what memcached waited for others in %q, steal %.0f %% among it",
		who, 100*w.OutsideShare(), worst.Way, 100*w.share(w.Steal)))
}

// busy is the same by CPU time: who takes the last free CPU delays memcached also where it has that CPU for itself.
func (o *Outcome) busy(cpus int) string {
	for _, way := range []string{wayQuiet, wayNone, wayOurs, wayAgain} {
		if w := &o.find(way).Waits; w.CPU > mostCPU*float64(cpus) {
			return fmt.Sprintf("programs that no rule covers used %.1f of %d CPUs in %q", w.CPU, cpus, way)
		}
	}
	return ""
}

// luck says that the host's own part of the victim's waiting fell by more than the BE tasks' part did: "" when it did not.
func (o *Outcome) luck() string {
	none, ours := &o.find(wayNone).Waits, &o.find(wayOurs).Waits
	if none.Seconds == 0 || ours.Seconds == 0 {
		return ""
	}
	host, be := none.Outside-ours.Outside, 0.0
	for n, ms := range none.Tasks {
		be += ms - ours.Tasks[n]
	}
	if host <= max(0, be) {
		return ""
	}
	return fmt.Sprintf("what no rule covers delayed memcached by %.0f ms a second less meanwhile, and the batch tasks by %.0f ms less", host, be)
}
