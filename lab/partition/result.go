package partition

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// What is asked, and what makes the host's part too noisy to judge.
const (
	// wantedHandBack is two fast ticks, milliseconds at p99.
	wantedHandBack = 100.0
	// leastSteps is from how many hand-backs on a p99 means something.
	leastSteps = 30
	// mostSteal is the share of all CPU that the hypervisor may take.
	mostSteal = 0.1
	// wantedTail is by how much the worst service's p99 may exceed that of (a), and
	// wantedUse which part of the utilisation of (b) must be reached.
	wantedTail = 1.10
	wantedUse  = 0.90
)

// Result is a whole run.
type Result struct {
	Seed     uint64      `json:"seed"`
	Quick    bool        `json:"quick"`
	Defaults bool        `json:"agent_defaults,omitempty"` // on the host
	Host     *HostResult `json:"host,omitempty"`
	Twin     []TwinTable `json:"twin,omitempty"`
	Goals    []Goal      `json:"goals"`
	Verdict  string      `json:"verdict"`
	Why      string      `json:"why"`
	Code     int         `json:"exit_code"`

	verdict report.Verdict
}

// Goal is one thing that was asked.
type Goal struct {
	What  string `json:"what"`
	Asked string `json:"asked"`
	Got   string `json:"got"`
	Met   bool   `json:"met"`
	// Unclear says why the run cannot tell; "": it can.
	Unclear string `json:"unclear,omitempty"`
}

// HostResult is the host's part.
type HostResult struct {
	Rows  []HostRow   `json:"rows"`
	Backs []HandBack  `json:"hand_backs"`
	Freed Spread      `json:"freed_ms"`
	Grown Spread      `json:"grown_ms"`
	Ran   Spread      `json:"ran_ms"`
	Steal float64     `json:"steal"` // share of all CPU
	Facts [][2]string `json:"facts"`

	blocks []block
}

// HostRow is one arm on the host in numbers; latencies in milliseconds.
type HostRow struct {
	Arm       Arm         `json:"arm"`
	Steps     int         `json:"steps"`
	P50       stat.Number `json:"p50_ms"`
	P99       stat.Number `json:"p99_ms"`
	After50   stat.Number `json:"p50_after_step_ms"`
	After99   stat.Number `json:"p99_after_step_ms"`
	StepP99   Spread      `json:"p99_of_each_step_ms"` // over the steps
	Service   stat.Number `json:"service_cpu"`         // CPU-sec/sec
	Batch     stat.Number `json:"batch_cpu"`
	Used      stat.Number `json:"utilisation"` // of all CPUs, by the two
	Resizes   int         `json:"resizes"`
	HandBacks int         `json:"hand_backs"`
}

// summarise sums the host's blocks up.
func summarise(blocks []block, cpus int) *HostResult {
	r := &HostResult{blocks: blocks}
	length := 0.0
	for _, arm := range arms() {
		r.Rows = append(r.Rows, hostRow(blocks, arm, cpus))
	}
	for i := range blocks {
		b := &blocks[i]
		sec := float64(b.to-b.from) / 1e9
		r.Steal += b.stolen * sec
		length += sec
		r.Backs = append(r.Backs, b.backs...)
	}
	if length > 0 {
		r.Steal /= length
	}
	var freed, grown, ran []stat.Number
	for i := range r.Backs {
		if h := &r.Backs[i]; h.HadBE {
			freed, grown, ran = append(freed, orNever(h.FreedMsec)), append(grown, orNever(h.GrownMsec)), append(ran, orNever(h.RunMsec))
		}
	}
	r.Freed, r.Grown, r.Ran = spread(freed), spread(grown), spread(ran)
	return r
}

// orNever: what did not happen while the load was high counts as what never happens.
func orNever(v stat.Number) stat.Number {
	if !v.Known() {
		return stat.Number(math.Inf(1))
	}
	return v
}

func hostRow(blocks []block, arm Arm, cpus int) HostRow {
	row := HostRow{Arm: arm}
	var all, after []float64
	var each []stat.Number
	length := 0.0
	for i := range blocks {
		b := &blocks[i]
		if b.arm != arm {
			continue
		}
		length += float64(b.to-b.from) / 1e9
		row.Service += stat.Number(b.service)
		row.Batch += stat.Number(b.batch)
		row.Steps += len(b.steps)
		row.Resizes += b.resizes
		for k := range b.backs {
			if b.backs[k].GrownMsec.Known() {
				row.HandBacks++
			}
		}
		all = append(all, latencies(b.log.Answers, b.from, b.to)...)
		for _, s := range b.steps {
			list := latencies(b.log.Answers, s, s+afterStep.Nanoseconds())
			after = append(after, list...)
			each = append(each, stat.Number(stat.Quantile(0.99, list)))
		}
	}
	row.P50, row.P99 = stat.Number(stat.Quantile(0.5, all)), stat.Number(stat.Quantile(0.99, all))
	row.After50, row.After99 = stat.Number(stat.Quantile(0.5, after)), stat.Number(stat.Quantile(0.99, after))
	row.StepP99 = spread(each)
	row.Service, row.Batch = row.Service/stat.Number(length), row.Batch/stat.Number(length)
	row.Used = (row.Service + row.Batch) / stat.Number(cpus)
	return row
}

// latencies returns those of the requests that were meant to come within a time, in
// milliseconds.
func latencies(list []openloop.Answer, from, to int64) []float64 {
	var out []float64
	for i := range list {
		if q := &list[i]; q.AtNsec >= from && q.AtNsec < to {
			out = append(out, float64(q.DoneNsec-q.AtNsec)/1e6)
		}
	}
	return out
}

// judge holds what was measured against what was asked.
func (r *Result) judge() {
	if r.Host != nil {
		r.Goals = append(r.Goals, r.Host.goals()...)
	}
	for i := range r.Twin {
		if r.Twin[i].judged {
			r.Goals = append(r.Goals, r.Twin[i].goals()...)
		}
	}
	r.verdict = report.Judge(r.told())
	r.Verdict, r.Code, r.Why = r.verdict.Outcome.String(), r.verdict.Outcome.Code(), r.verdict.Text
}

// told are the goals in the words of every lab.
func (r *Result) told() []report.Goal {
	var list []report.Goal
	for _, g := range r.Goals {
		list = append(list, report.Goal{What: g.What, Want: g.Asked, Got: g.Got, Met: g.Met, Unclear: g.Unclear})
	}
	return list
}

// Outcome is the verdict in one word.
func (r *Result) Outcome() report.Outcome { return r.verdict.Outcome }

// goals of the host's part: the core is free, and in use by the service, within two pulses.
func (h *HostResult) goals() []Goal {
	var list []Goal
	for _, g := range []struct {
		what string
		s    Spread
	}{
		{"p99 from the step to the write that frees the core", h.Freed},
		{"p99 from the step to a thread of the service running there", h.Ran},
	} {
		goal := Goal{What: g.what, Asked: fmt.Sprintf("at most %.0f ms", wantedHandBack), Got: g.s.P99.Text(1) + " ms", Met: float64(g.s.P99) <= wantedHandBack}
		switch {
		case g.s.N < leastSteps:
			goal.Unclear = fmt.Sprintf("%d hand-backs were seen, and a p99 wants %d", g.s.N, leastSteps)
		case h.busy():
			goal.Unclear = "others use this host's CPUs: without BE the service is late after a step as well"
		case h.Steal > mostSteal:
			goal.Unclear = fmt.Sprintf("the hypervisor took %.0f %% of all CPU", 100*h.Steal)
		}
		list = append(list, goal)
	}
	return list
}

// mostAlone, in milliseconds: without BE a host that is ours serves the load sooner than this
// at p99.
const mostAlone = 100

// busy says whether the host had too much else to do.
func (h *HostResult) busy() bool {
	return slices.ContainsFunc(h.Rows, func(r HostRow) bool { return r.Arm == ArmAlone && r.After99 > mostAlone })
}

// goals of the twin's part, the same for each load that is judged: close to (a) for the services,
// close to (b) for the machine, and no baseline that is as good for the services and better for the
// machine. They were written before the loads with tails, bursts and fan-out were first played.
func (t *TwinTable) goals() []Goal {
	ours, none := t.find(ArmOurs), t.find(ArmNone)
	use := ours.Utilisation / none.Utilisation
	beaten := t.beaten()
	return []Goal{
		{What: t.What + ": p99 of the service that suffers most, against (a)", Asked: fmt.Sprintf("at most %.2f of it", wantedTail), Got: ours.Worst.Text(3), Met: float64(ours.Worst) <= wantedTail},
		{What: t.What + ": utilisation against (b)", Asked: fmt.Sprintf("at least %.0f %% of it", 100*wantedUse), Met: float64(use) >= wantedUse,
			Got: (100 * use).Text(1) + " %" + t.known(none.Utilisation)},
		{What: t.What + ": who shares all CPUs, and is as good to the services and uses more", Asked: "nobody", Got: cmp.Or(beaten, "nobody"), Met: beaten == ""},
	}
}

// known says what who knows the load of each second gets at the tail that is wanted, where the
// oracles reach it.
func (t *TwinTable) known(none stat.Number) string {
	f := t.frontier(wantedTail)
	if !f.Known() {
		return ""
	}
	return fmt.Sprintf(" (who knows the load: %s %% at a p99 of %.2f)", (100 * f / none).Text(1), wantedTail)
}

// asGood is by how much a p99 may be above another one and be as good.
const asGood = 0.01

// beaten names the baselines that share all CPUs and beat ours on both counts.
func (t *TwinTable) beaten() string {
	ours := t.find(ArmOurs)
	var list []string
	for _, arm := range []Arm{ArmNone, ArmIdle, ArmShares} {
		if row := t.find(arm); row.Worst <= ours.Worst+asGood && row.Utilisation > ours.Utilisation {
			list = append(list, fmt.Sprintf("%s: %s at %s %%", arm, row.Worst.Text(2), (100*row.Utilisation).Text(1)))
		}
	}
	return strings.Join(list, "; ")
}

// WriteText writes the tables.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
