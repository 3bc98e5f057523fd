package throttle

import (
	"fmt"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Goal is one goal, and whether it was met.
type Goal struct {
	Where string `json:"where"`
	What  string `json:"what"`
	Seed  string `json:"seed"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	Met   bool   `json:"met"`
}

// The goals: the seed's figures, or what section 4.1 asks for.
const (
	goalBefore    = 0.50 // instances throttled by the kernel's default: more than that
	goalAfter     = 0.01 // and with everything: less
	goalReduction = 0.10 // of the burstiest five's mean response time
	goalU         = 0.45 // U_H
	// goalSurge is how many of the throttled instances of a surge may be left with the pool:
	// the seed's 1.74 % of 25.85 %, rounded up.
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
	}
	if r.Twin == nil {
		return
	}
	for i := range r.Twin.Kernels {
		k := &r.Twin.Kernels[i]
		r.Goals = append(r.Goals, columnGoals(whereTwin+k.Kernel, k.Columns)...)
	}
	r.Goals = append(r.Goals, surgeGoals(r.Twin.Surge)...)
}

func columnGoals(where string, list []Summary) []Goal {
	was, is := columnOf(list, Default), columnOf(list, All)
	if was == nil || is == nil {
		return nil
	}
	return []Goal{
		{
			where, "instances throttled, kernel default", "73.4 %", fmt.Sprintf("> %.0f %%", goalBefore*100),
			was.ThrottledInstances.Percent(1) + " %", was.ThrottledInstances.Mean > goalBefore,
		},
		{
			where, "instances throttled, all", "0.12 %", fmt.Sprintf("< %.0f %%", goalAfter*100),
			is.ThrottledInstances.Percent(2) + " %", is.ThrottledInstances.Mean < goalAfter,
		},
		{
			where, "mean response time of the burstiest five", "-10 to -35 %", fmt.Sprintf("-%.0f %% or more", goalReduction*100),
			fall(is.Reduction) + " %", is.Reduction.Low >= goalReduction,
		},
		{
			where, "U of the pool over 5 s, largest, all", "< 45 %", fmt.Sprintf("< %.0f %%", goalU*100),
			percent(is.U.Max, 1) + " %", is.U.Max < goalU,
		},
	}
}

func surgeGoals(s *Surge) []Goal {
	if s == nil || len(s.Arms) == 0 {
		return nil
	}
	off := &s.Arms[0]
	var list []Goal
	for i := range s.Arms[1:] {
		a := &s.Arms[i+1]
		where := "surge, " + a.Name
		list = append(list,
			Goal{
				where, "instances throttled, of those without the pool", "1.74 of 25.85 %", fmt.Sprintf("< %.0f %%", goalSurge*100),
				percent(stat.Ratio(a.During, off.During), 1) + " %", a.During < goalSurge*off.During,
			},
			Goal{where, "U over machines during the surge, p99", "< 45 %", fmt.Sprintf("< %.0f %%", goalU*100), percent(a.UDuring.P99, 1) + " %", a.UDuring.P99 < goalU},
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

// noisy says whether others used much of this host while it was measured, and how much at
// the most.
func (h *Host) noisy() (share float64, noisy bool) {
	for i := range h.Columns {
		share = max(share, h.Columns[i].Outside/float64(h.CPUs))
	}
	return share, share > noisyShare
}

// Verdict is the outcome. A goal that was missed on a host on which others worked as well
// says nothing; a goal that was met says something even so.
func (r *Result) Verdict() report.Verdict {
	met, host, missed := 0, 0, ""
	for _, g := range r.Goals {
		if g.Met {
			met++
			continue
		}
		if g.Where == whereHost {
			host++
		}
		missed += fmt.Sprintf(" %s: %s %s, wanted %s.", g.Where, g.What, g.Got, g.Want)
	}
	switch {
	case len(r.Goals) == 0:
		return report.Verdict{Outcome: report.CouldNotTell, Text: "Nothing was played."}
	case met == len(r.Goals):
		return report.Verdict{Outcome: report.Pass, Text: fmt.Sprintf("All %d goals are met.", met)}
	}
	v := report.Verdict{Outcome: report.Fail, Text: fmt.Sprintf("%d of %d goals are met. Missed:%s", met, len(r.Goals), missed)}
	if host == len(r.Goals)-met {
		if share, noisy := r.Host.noisy(); noisy {
			v.Outcome = report.CouldNotTell
			v.Text += fmt.Sprintf(" Others used up to %s %% of the CPUs meanwhile.", percent(share, 0))
		}
	}
	return v
}
