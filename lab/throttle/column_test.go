package throttle

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/stat"
)

// near compares figures as people read them.
func near() cmp.Option { return cmpopts.EquateApprox(0, 1e-9) }

// Readings of two instances over ten seconds, every 500 ms: the one uses 0.1 CPUs all the
// time, the other 1 CPU in each second half of a second. Others use a quarter of a CPU.
func readings() []Reading {
	var list []Reading
	for i := range 21 {
		r := Reading{MonoNsec: 7e9 + int64(i)*5e8, UsageNsec: []uint64{uint64(i) * 5e7, uint64(i/2) * 5e8}}
		if i%10 == 0 {
			r.Stat = []cgroup.CPUStat{
				{NrPeriods: uint64(i) * 5, NrThrottled: 3},
				{NrPeriods: uint64(i) * 5, NrThrottled: uint64(i) * 2},
			}
			r.OtherNsec = r.UsageNsec[0] + r.UsageNsec[1] + uint64(i)*125e6
		}
		list = append(list, r)
	}
	return list
}

func TestBlockUse(t *testing.T) {
	b := Block{Instances: make([]InstanceBlock, 2)}
	b.use(readings(), 2, 100*time.Millisecond, total)
	want := []InstanceBlock{{Periods: 100, Windows: 2}, {Periods: 100, Throttled: 40, Windows: 2, WindowsThrottled: 2}}
	if d := cmp.Diff(want, b.Instances); d != "" {
		t.Errorf("instances (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]float64{0.3, 0.3}, b.U, near()); d != "" {
		t.Errorf("U (-want +got):\n%s", d)
	}
	if len(b.Moments) != 20 || math.Abs(b.Moments[0]-0.05) > 1e-9 || math.Abs(b.Moments[1]-0.55) > 1e-9 {
		t.Errorf("moments: %v", b.Moments)
	}
	if math.Abs(b.Outside-0.25) > 1e-9 {
		t.Errorf("others used %g CPUs", b.Outside)
	}
	none := Block{Instances: make([]InstanceBlock, 2)}
	if none.use(readings()[:1], 2, 100*time.Millisecond, total); none.U != nil || none.Instances[0].Windows != 0 {
		t.Errorf("one reading says %+v", none)
	}
}

// A reading that comes late makes its stretch longer, and the share stays what it was.
func TestUtilisationsLate(t *testing.T) {
	list := []Reading{{0, []uint64{0}, nil, 0}, {4.9e9, []uint64{2.45e9}, nil, 0}, {5.3e9, []uint64{2.65e9}, nil, 0}, {12.9e9, []uint64{6.45e9}, nil, 0}}
	if d := cmp.Diff([]float64{0.5, 0.5}, utilisations(list, 1, windowTime, total), near()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestAnswer(t *testing.T) {
	s := []Response{{AtUsec: 5, TookUsec: 1e6}, {AtUsec: 100, TookUsec: 1000}, {AtUsec: 200, TookUsec: 3000, Unfinished: true}, {AtUsec: 300, TookUsec: 8000}}
	var b InstanceBlock
	b.answer(s, 100*time.Microsecond)
	if d := cmp.Diff(InstanceBlock{Requests: 3, MeanMsec: 4, P99Msec: 8, Unfinished: 1}, b); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	var none InstanceBlock
	if none.answer(nil, 0); none != (InstanceBlock{}) {
		t.Errorf("no request says %+v", none)
	}
}

// blocks are two rounds of two columns: the default throttles one of two instances in
// every window, and its burstiest takes ten times as long.
func blocks() []Block {
	var list []Block
	for round := range 2 {
		list = append(list,
			Block{Column: Default, Round: round, Outside: 0.1, Quota: 1, U: []float64{0.3}, Instances: []InstanceBlock{
				{Requests: 10, MeanMsec: 100, P99Msec: 300, Periods: 50, Throttled: 10, Windows: 4, WindowsThrottled: 4},
				{Requests: 30, MeanMsec: 2, P99Msec: 4, Periods: 50, Windows: 4},
			}},
			Block{Column: All, Round: round, Outside: 0.3, Quota: 2, BurstK: 1, U: []float64{0.2 + 0.2*float64(round)}, Instances: []InstanceBlock{
				{Requests: 10, MeanMsec: 10, P99Msec: 20, Periods: 50, Windows: 4, Unfinished: 1},
				{Requests: 30, MeanMsec: 2, P99Msec: 4, Periods: 50, Throttled: uint64(round), Windows: 4, WindowsThrottled: round},
			}})
	}
	return list
}

func TestSummarise(t *testing.T) {
	list := Summarise(blocks(), []int{0})
	if len(list) != 2 {
		t.Fatalf("%d columns of two", len(list))
	}
	was, is := columnOf(list, Default), columnOf(list, All)
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"default: throttled", was.ThrottledInstances.Mean, 0.5},
		{"default: ever", was.EverThrottled.Mean, 0.5},
		{"default: periods", was.ThrottledPeriods.Mean, 0.1},
		{"default: mean", was.MeanMsec.Mean, 26.5},
		{"default: p99", was.P99Msec.Mean, 152},
		{"default: against itself", was.Reduction.Mean, 0},
		{"all: throttled", is.ThrottledInstances.Mean, 0.0625},
		{"all: ever", is.EverThrottled.Mean, 0.25},
		{"all: burstiest", is.BurstiestMsec.Mean, 10},
		{"all: reduction", is.Reduction.Mean, 0.9},
		{"all: largest U", is.U.Max, 0.4},
		{"all: quota", is.Quota, 2},
		{"all: windows", float64(is.Windows), 16},
		{"all: unfinished", float64(is.Unfinished), 2},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", c.what, c.got, c.want)
		}
	}
	if alone, ok := summarise(All, blocks()[1:2], []int{0}); !ok || alone.Reduction.Blocks != 0 || alone.Reduction.Text(100, 0) != "absent" {
		t.Errorf("without a default there is no reduction: %+v", alone.Reduction)
	}
}

func TestJitter(t *testing.T) {
	in := Instance{Name: "app", QuotaUsec: 10_000, PeriodUsec: 100_000}
	var list []Reading
	used := uint64(0)
	for i := range 41 { // one CPU for 50 ms in each second
		if i%20 == 1 {
			used += 5e7
		}
		list = append(list, Reading{MonoNsec: int64(i) * 5e7, UsageNsec: []uint64{0, used}})
	}
	j := jitterOf(Default, &in, list, 1)
	if len(j.Fine) != 40 || len(j.Coarse) != 2 {
		t.Fatalf("%d and %d stretches", len(j.Fine), len(j.Coarse))
	}
	want := Jitter{Column: Default, Instance: "app", QuotaCPUs: 0.1, FineMax: 1, CoarseMax: 0.05, Mean: 0.05, FineAbove: 0.05}
	if d := cmp.Diff(want, j, near(), cmpopts.IgnoreFields(Jitter{}, "Fine", "Coarse")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := jitterOf(Default, &in, nil, 1); got.Fine != nil || got.FineMax != 0 {
		t.Errorf("no readings say %+v", got)
	}
}

func TestBucketPeaks(t *testing.T) {
	b := Bucket{Steps: []BucketStep{{PerSec: 1, Use: 0.2}, {PerSec: 2, Use: 0.4, Throttled: 0.01}, {PerSec: 3, Use: 0.6, Throttled: 0.02}, {PerSec: 4}}}
	if b.peaks(); b.PeakPerSec != 2 || b.PeakUse != 0.4 {
		t.Errorf("a peak of %g at %g", b.PeakPerSec, b.PeakUse)
	}
	b.Steps[0].DelayMsec = 2 * delayFree
	if b.peaks(); b.PeakPerSec != 0 {
		t.Errorf("a peak of %g, and the first step is too slow", b.PeakPerSec)
	}
	responses := []Response{{AtUsec: 0, TookUsec: 5000, CPUUsec: 1000}, {AtUsec: 10, TookUsec: 900, CPUUsec: 1000}, {AtUsec: 20, TookUsec: 1e9}}
	if got := delayOf(responses, 0, 20*time.Microsecond); got != 2 {
		t.Errorf("a delay of %g ms", got)
	}
}

func TestSpreadAndFall(t *testing.T) {
	if s := spread([]float64{1, 3}); s != (Spread{2, 3, 3, 3}) || spread(nil) != (Spread{}) {
		t.Errorf("%+v, of nothing %+v", s, spread(nil))
	}
	if got := fall(stat.Interval{Mean: 0.4, Low: 0.3, High: 0.5, Blocks: 3}); got != "-40 [-50, -30]" {
		t.Errorf("a fall prints %q", got)
	}
}
