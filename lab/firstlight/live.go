package firstlight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/scene"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/policy/outlier"
)

// The ways of control of which each round is played again. What stands for good does so from the round's beginning; the
// cap on the largest comes when the service has suffered, as who has nothing else to go by would set it.
const (
	armNone    = "no control"
	armOurs    = ourName
	armIdle    = "cpu.idle for all BE"
	armShares  = "least weight for all BE"
	armLargest = "cap on the largest BE"
	armPSI     = "quotas by pressure (PSI)"
)

var arms = [...]string{armNone, armOurs, armIdle, armShares, armLargest, armPSI}

// settle is how long after the event a way of control has to take hold, before anything is counted.
const settle = 8 * time.Second

// Arm is one round as it went under one way of control, from when it had time to take hold.
type Arm struct {
	Way       string  `json:"way"`
	P99Before float64 `json:"p99_before_ms"` // in the ten seconds before the event
	P99       float64 `json:"p99_ms"`
	BEWork    float64 `json:"be_cpu"`        // CPU-sec/sec of all BE tasks
	Innocent  float64 `json:"bystander_cpu"` // of those that are not the antagonist
}

// live plays a round again under each way of control, in an order that differs from round to round: a host has hours.
func live(ctx context.Context, o Options, seed uint64, r *Round) error {
	if !o.Live {
		return nil
	}
	for i := range arms {
		a, err := playArm(ctx, o, seed, arms[(i+int(seed))%len(arms)])
		if err != nil {
			return err
		}
		fmt.Fprintf(o.Log, "seed %3d  %-30s p99 %.1f ms, before %.1f; BE work %.2f CPU\n", seed, a.Way, a.P99, a.P99Before, a.BEWork)
		r.Arms = append(r.Arms, *a)
	}
	return nil
}

func playArm(ctx context.Context, o Options, seed uint64, way string) (*Arm, error) {
	sc, err := open(ctx, o, seed)
	if err != nil {
		return nil, err
	}
	undo, err := begin(ctx, sc, way)
	var a *Arm
	if err == nil {
		a, err = performArm(ctx, sc, seed, way)
	}
	return a, errors.Join(err, undo(), sc.Close())
}

// begin puts in force what stands from the beginning, and returns what ends it.
func begin(ctx context.Context, sc *scene.Scene, way string) (undo func() error, err error) {
	switch way {
	case armIdle:
		return sc.Idle()
	case armShares:
		return sc.LeastWeight()
	case armPSI:
		return sc.ThrottleByPressure(ctx)
	}
	return func() error { return nil }, sc.Protect(ctx, way == armOurs)
}

func performArm(ctx context.Context, sc *scene.Scene, seed uint64, way string) (a *Arm, err error) {
	if err := stage.Sleep(ctx, learnTime); err != nil {
		return nil, err
	}
	event := scene.Now()
	if err := provoke(sc, seed); err != nil {
		return nil, err
	}
	undo := func() error { return nil }
	if way == armLargest {
		undo, err = capLargest(ctx, sc, event)
	}
	defer func() { err = errors.Join(err, undo()) }()
	if err == nil {
		err = stage.Sleep(ctx, settle-time.Duration(scene.Now()-event))
	}
	if err != nil {
		return nil, err
	}
	from, before := scene.Now(), []float64(nil)
	if before, err = sc.Usage(); err != nil {
		return nil, err
	}
	if err := stage.Sleep(ctx, eventTime-settle); err != nil {
		return nil, err
	}
	to := scene.Now()
	after, err := sc.Usage()
	if err != nil {
		return nil, err
	}
	out, err := sc.FinishLoad(ctx)
	if err != nil {
		return nil, err
	}
	p99 := func(from, to int64) float64 {
		s := out.Result.Between(time.Duration(from-out.StartNsec), time.Duration(to-out.StartNsec))
		return s.P99.Seconds() * 1e3
	}
	a = &Arm{Way: way, P99Before: p99(event-10e9, event), P99: p99(from, to)}
	for i, path := range sc.BE {
		used := (after[i] - before[i]) / (float64(to-from) / 1e9)
		a.BEWork += used
		if path != sc.Antagonist {
			a.Innocent += used
		}
	}
	return a, sc.FinishAgent()
}

// badWindows is in how many windows the service must have suffered before the largest is capped: as many as make an incident.
const badWindows = 3

// capLargest caps the largest BE task once the service has suffered, if it does within the time for settling.
func capLargest(ctx context.Context, sc *scene.Scene, event int64) (undo func() error, err error) {
	none := func() error { return nil }
	for bad := 0; bad < badWindows; {
		if time.Duration(scene.Now()-event) > settle-scene.LargestWindow {
			return none, nil // there is nothing to fix
		}
		if err := stage.Sleep(ctx, time.Second); err != nil {
			return none, err
		}
		st, err := sc.Status(ctx)
		if err != nil {
			return none, err
		}
		if slices.ContainsFunc(st.Tasks, func(t agent.TaskStatus) bool { return t.Path == sc.Victim && t.Verdict == outlier.Outlier }) {
			bad++
		}
	}
	return sc.CapLargest(ctx)
}

// armsTable is what came of each way of control over all rounds with an antagonist, and over those without.
func armsTable(rounds []Round) report.Table {
	t := report.Table{
		Title:   "Ways of control, each played live",
		Columns: report.Heads("way", "rounds", "p99 before|ms", "p99|ms", "at most 1.5 x before", "BE work|CPU", "bystanders|CPU", "p99 without one|ms", "BE work|CPU"),
		Notes:   []string{fmt.Sprintf("Medians over rounds, from %.0f s after the event to its end; the last two columns are of rounds without anybody to hold.", settle.Seconds())},
	}
	for _, way := range arms {
		var before, p99, work, innocent, idleP99, idleWork []float64
		low := 0
		for i := range rounds {
			k := slices.IndexFunc(rounds[i].Arms, func(a Arm) bool { return a.Way == way })
			if k < 0 {
				continue
			}
			a := &rounds[i].Arms[k]
			if rounds[i].Antagonist == "" {
				idleP99, idleWork = append(idleP99, a.P99), append(idleWork, a.BEWork)
				continue
			}
			before, p99, work, innocent = append(before, a.P99Before), append(p99, a.P99), append(work, a.BEWork), append(innocent, a.Innocent)
			if a.P99 <= 1.5*a.P99Before {
				low++
			}
		}
		t.Rows = append(t.Rows, report.Cells(way, fmt.Sprint(len(p99)), middle(before), middle(p99), fmt.Sprintf("%d of %d", low, len(p99)), middle(work), middle(innocent), middle(idleP99), middle(idleWork)))
	}
	return t
}

// middle is the median of figures, "-" of none.
func middle(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(v))
}
