package throttle

import (
	"fmt"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// The goals: Alibaba's figures, or what section 4.1 asks for.
const (
	goalBefore    = 0.50 // instances throttled by the kernel's default: more than that
	goalAfter     = 0.01 // and with everything: less
	goalReduction = 0.10 // of the burstiest five's mean response time
	goalU         = 0.45 // U_H
	// goalSurge is how many of the throttled instances of a surge may be left with the pool:
	// Alibaba's 1.74 % of 25.85 %, rounded up.
	goalSurge = 0.10
)

// noisyShare is the share of the machine's CPUs, used by others than the instances, above
// which a goal that was missed says nothing: a burst wants all CPUs for some milliseconds,
// and waits for whoever has them.
const noisyShare = 0.15

const (
	whereHost = "this host"
	whereTwin = "twin, "
)

// judge fills in the goals.
func (r *Result) judge() {
	r.Goals = nil
	if r.Host != nil {
		r.Goals = append(r.Goals, columnGoals(whereHost, r.Host.Columns)...)
		// A goal that was missed on a host on which others worked as well says nothing; one
		// that was met says something even so.
		for i := range r.Goals {
			if g := &r.Goals[i]; !g.Met {
				g.Unclear = r.Host.noise()
			}
		}
	}
	if r.Twin == nil {
		return
	}
	for i := range r.Twin.Kernels {
		k := &r.Twin.Kernels[i]
		r.Goals = append(r.Goals, columnGoals(whereTwin+k.Kernel, k.Columns)...)
	}
	for i := range r.Twin.Hard {
		r.Goals = append(r.Goals, r.Twin.Hard[i].goals()...)
	}
	r.Goals = append(r.Goals, surgeGoals(r.Twin.Surge)...)
}

func columnGoals(where string, list []Summary) []report.Goal {
	was, is := columnOf(list, Default), columnOf(list, All)
	if was == nil || is == nil {
		return nil
	}
	return []report.Goal{
		{
			Where: where, What: "instances throttled, kernel default", Seed: "73.4 %", Want: fmt.Sprintf("> %.0f %%", goalBefore*100),
			Got: was.ThrottledInstances.Percent(1) + " %", Met: was.ThrottledInstances.Mean > goalBefore,
		},
		{
			Where: where, What: "instances throttled, all", Seed: "0.12 %", Want: fmt.Sprintf("< %.0f %%", goalAfter*100),
			Got: is.ThrottledInstances.Percent(2) + " %", Met: is.ThrottledInstances.Mean < goalAfter,
		},
		{
			Where: where, What: "mean response time of the burstiest five", Seed: "-10 to -35 %", Want: fmt.Sprintf("-%.0f %% or more", goalReduction*100),
			Got: fall(is.Reduction) + " %", Met: is.Reduction.Low >= goalReduction,
		},
		{
			Where: where, What: "U of the pool over 5 s, largest, all", Seed: "< 45 %", Want: fmt.Sprintf("< %.0f %%", goalU*100),
			Got: percent(is.U.Max, 1) + " %", Met: is.U.Max < goalU,
		},
	}
}

func surgeGoals(s *Surge) []report.Goal {
	if s == nil || len(s.Arms) == 0 {
		return nil
	}
	off := &s.Arms[0]
	var list []report.Goal
	for i := range s.Arms[1:] {
		a := &s.Arms[i+1]
		where := "surge, " + a.Name
		list = append(list,
			report.Goal{
				Where: where, What: "instances throttled, of those without the pool", Seed: "1.74 of 25.85 %", Want: fmt.Sprintf("< %.0f %%", goalSurge*100),
				Got: percent(stat.Ratio(a.During, off.During), 1) + " %", Met: a.During < goalSurge*off.During,
			},
			report.Goal{
				Where: where, What: "U over machines during the surge, p99", Seed: "< 45 %", Want: fmt.Sprintf("< %.0f %%", goalU*100),
				Got: percent(a.UDuring.P99, 1) + " %", Met: a.UDuring.P99 < goalU,
			},
		)
	}
	return list
}

func columnOf(list []Summary, c Column) *Summary {
	for i := range list {
		if list[i].Column == c {
			return &list[i]
		}
	}
	return nil
}

// noise says that others used much of this host while it was measured, and "" when they did
// not.
func (h *Host) noise() string {
	share := 0.0
	for i := range h.Columns {
		share = max(share, h.Columns[i].Outside/float64(h.CPUs))
	}
	if share <= noisyShare {
		return ""
	}
	return fmt.Sprintf("others used up to %s %% of the CPUs meanwhile", percent(share, 0))
}

// Outcome is the verdict in one word.
func (r *Result) Outcome() report.Outcome { return r.Verdict().Outcome }

// Verdict says whether every goal is met.
func (r *Result) Verdict() report.Verdict { return report.Judge(r.Goals) }
