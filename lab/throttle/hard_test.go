package throttle

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/twin/machine"
)

// hard is a load on which every goal is met, below U_H or above it.
func hard(u float64) *HardResult {
	h := &HardResult{HardLoad: HardLoad{Name: "load"}, Kernel: "mainline"}
	for c, throttled := range map[Column]float64{Default: 0.8, BucketOnly: 0.5, AIMDOnly: 0.3, BucketPool: 0.1, All: 0} {
		h.Columns = append(h.Columns, Summary{
			Column: c, ThrottledInstances: stat.IntervalOf([]float64{throttled, throttled}), Borrowed: stat.IntervalOf([]float64{0.01, 0.02}),
			Reduction: stat.IntervalOf([]float64{0.3, 0.31}), U: Spread{Mean: u}, Moments: Spread{Max: u}, Quota: 1.01,
		})
	}
	return h
}

func TestHardGoals(t *testing.T) {
	for _, c := range []struct {
		name   string
		u      float64
		change func(*HardResult)
		missed string
	}{
		{"all met", 0.40, func(*HardResult) {}, ""},
		{"all met above U_H", 0.50, func(*HardResult) {}, ""},
		{"still throttled", 0.40, func(h *HardResult) { columnOf(h.Columns, All).ThrottledInstances.Mean = 0.01 }, "instances throttled"},
		{"no faster", 0.40, func(h *HardResult) { columnOf(h.Columns, All).Reduction.Low = 0.05 }, "burstiest"},
		{"the pool does little", 0.40, func(h *HardResult) { columnOf(h.Columns, AIMDOnly).ThrottledInstances.Mean = 0.41 }, "by the pool alone"},
		{"nothing is relieved", 0.40, func(h *HardResult) { columnOf(h.Columns, Default).ThrottledInstances.Mean = 0 }, "by the pool alone"},
		{"most borrow", 0.40, func(h *HardResult) { columnOf(h.Columns, All).Borrowed.Mean = 0.5 }, "borrow"},
		{"quotas stay up above U_H", 0.50, func(h *HardResult) { columnOf(h.Columns, AIMDOnly).Quota = 1.2 }, "above U_H"},
		{"the pool runs hotter", 0.50, func(h *HardResult) { columnOf(h.Columns, All).Moments.Max += 0.04 }, "over 5 periods"},
		{"without user space what there is counts", 0.40, func(h *HardResult) {
			columnOf(h.Columns, All).Column = "other"
			columnOf(h.Columns, BucketPool).ThrottledInstances.Mean = 0.02
		}, "instances throttled"},
	} {
		h := hard(c.u)
		c.change(h)
		missed := ""
		for _, g := range h.goals() {
			if !g.Met {
				missed += g.What + "\n"
			}
		}
		if c.missed == "" && missed != "" || !strings.Contains(missed, c.missed) || strings.Count(missed, "\n") > 1 {
			t.Errorf("%s: missed:\n%s", c.name, missed)
		}
	}
}

// On a short run U_H bites: without batch work the pool raises, beside it nothing is raised, and
// what the load asks for is what its name says.
func TestHardLoads(t *testing.T) {
	times := twinTimes{rounds: 1, lead: 20 * time.Second, measure: 20 * time.Second}
	for i, want := range []struct {
		load   int
		u      float64
		raised bool
	}{{0, 0.40, true}, {2, 0.60, false}, {3, 0.50, false}} {
		h := hardLoads()[want.load]
		b, err := simulateBlock(context.Background(), &h.Load, times, machine.Mainline, AIMDOnly, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		s := Summarise([]Block{*b}, nil)[0]
		if s.U.Mean < want.u-0.04 || s.U.Mean > want.u+0.04 || (s.Quota > goalQuiet) != want.raised || (s.Outside > 1) != (i == 2) {
			t.Errorf("%s: U %.3f, quotas at %.2f, batch work uses %.1f CPUs", h.Name, s.U.Mean, s.Quota, s.Outside)
		}
	}
	if err := report.WriteTables(io.Discard, hardTable([]HardResult{*hard(0.4)})); err != nil {
		t.Error(err)
	}
}
