package throttle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// The other loads of this lab are within what the policies can give: 27 % of the pool on average,
// spikes of at most 2.7 quotas. The hard ones are not. Their spikes ask for 6 to 8 quotas in the
// mean, more than a quota is ever raised to (max_factor 4, max_raise 3); CPUs are two to a core, so
// that a busy sibling slows a request down; and the pool is busy enough for U_H to say no. On the
// last one LC alone leaves the pool at about 30 %, and what takes it above U_H is batch work on
// the same CPUs. What is asked for was set once so that U of the kernel's default is what the names
// say. That look printed the other columns as well; none of them moved what is asked for.
//
// What counts as failure was written down before the first run, for each load and kernel:
//
//   - 1 % of the instances or more are throttled in 5 s with everything on (Alibaba: 0.12 %).
//   - The burstiest five's mean response time falls by less than 10 % (Alibaba: 10 to 35 %).
//   - The pool alone relieves less than half of the throttled instances that everything together
//     relieves, where U is below U_H without it (Alibaba: "mostly due to the efficient
//     management of the shared CPU pool").
//   - 5 % of the instances or more borrow from their bucket with everything on, where U is below U_H
//     without it (Alibaba: 0.75 %).
//   - Where U is above U_H without it, the pool alone leaves quotas raised by 5 % or more.
//   - With everything on the greatest U over five periods is more than 3.8 points above that of the
//     kernel's default: what Alibaba calls negligible (figure 14a).
const (
	goalHalf     = 0.50
	goalBorrowed = 0.05
	goalQuiet    = 1.05
	goalRise     = 0.038
)

// HardLoad is a load that the policies cannot serve in full.
type HardLoad struct {
	Name string   `json:"name"`
	Load Workload `json:"workload"`
}

// hardWorkload is 40 instances on 8 cores of two threads, that ask for a share of them on average
// as if no sibling were busy.
func hardWorkload(demand float64) Workload {
	w := hostWorkload(16)
	w.Instances, w.Steady, w.Threads, w.ThreadsPerCore = 40, 10, 16, 2
	w.Utilisation, w.SpikesLeast, w.SpikesMost = demand, 0.25, 0.35
	return w
}

// hardLoads: what comes out as U is more than what is asked for, by what siblings cost.
func hardLoads() []HardLoad {
	beside := hardWorkload(0.21)
	beside.BatchThreads, beside.SpikesLeast, beside.SpikesMost = 4, 0.18, 0.25
	return []HardLoad{
		{"U 40 %", hardWorkload(0.29)}, {"U 50 %", hardWorkload(0.355)}, {"U 60 %", hardWorkload(0.41)}, {"U 30 %, and batch work", beside},
	}
}

// hardColumns are neither, k = 1 alone, what user space makes of it, the pool alone, k = 1 and the pool
// (on its own kernel with k = 10 what Alibaba runs), and the agent as it enforces by default.
func hardColumns() []Column {
	return []Column{Default, BucketOnly, BurstOnly, AIMDOnly, BucketPool, All}
}

// played says whether a column differs from others on a kernel: without a bucket the kernels are
// alike, and where the kernel's is ten quotas nothing is left for user space.
func (c Column) played(k machine.Kernel) bool {
	if k == machine.Mainline {
		return true
	}
	return c == BucketOnly || c == BucketPool
}

// HardResult is one hard load on one kernel.
type HardResult struct {
	HardLoad
	Kernel  string    `json:"kernel"`
	Blocks  []Block   `json:"blocks"`
	Columns []Summary `json:"columns"`
}

// startBatch puts batch work of so many threads beside the instances.
func (s *simulation) startBatch(threads int) error {
	if threads == 0 {
		return nil
	}
	cfg := machine.TaskConfig{Name: "batch", Threads: threads, Shares: 2, Work: &machine.Work{}}
	p, ok := program.Find("swaptions")
	if !ok {
		return errors.New("throttle: no program swaptions")
	}
	p.Apply(&cfg)
	num, err := s.host.Start(model.Task{Path: "/batch", Job: "batch", Class: model.BE, Importance: model.BestEffort}, cfg)
	if err != nil {
		return err
	}
	s.batch, err = s.host.Physical(num)
	return err
}

// hardLead is enough for AIMD: twelve steps of 5 s take a quota to max_factor.
const hardLead = 90 * time.Second

// playHard plays all hard loads.
func playHard(ctx context.Context, o *Options, times twinTimes) ([]HardResult, error) {
	type job struct {
		load   *HardLoad
		kernel machine.Kernel
		column Column
		round  int
	}
	times.lead = min(times.lead, hardLead)
	loads := hardLoads()
	var jobs []job
	for i := range loads {
		for _, k := range kernels() {
			for r := range times.rounds {
				for _, c := range hardColumns() {
					if c.played(k) {
						jobs = append(jobs, job{&loads[i], k, c, r})
					}
				}
			}
		}
	}
	fmt.Fprintf(o.Log, "the twin: hard loads, %d machines of 8 cores\n", len(jobs))
	blocks, err := parallel.Map(ctx, o.Workers, len(jobs), func(i int) (*Block, error) {
		j := jobs[i]
		return simulateBlock(ctx, &j.load.Load, times, j.kernel, j.column, j.round, o.Seed)
	})
	if err != nil {
		return nil, err
	}
	var list []HardResult
	for i := range loads {
		for _, k := range kernels() {
			res := HardResult{HardLoad: loads[i], Kernel: k.String()}
			for n, j := range jobs {
				if j.load == &loads[i] && (j.kernel == k || !j.column.burst()) {
					res.Blocks = append(res.Blocks, *blocks[n])
				}
			}
			res.Columns = Summarise(res.Blocks, byDesign(loads[i].Load.Draw(o.Seed, 0), theBurstiest))
			list = append(list, res)
		}
	}
	return list, nil
}

// everything is the column with all that is to be had on the kernel.
func (h *HardResult) everything() *Summary {
	if s := columnOf(h.Columns, All); s != nil {
		return s
	}
	return columnOf(h.Columns, BucketPool)
}

// partOf is which part of the throttled instances that everything relieves a column relieves;
// absent where there is no relief.
func (h *HardResult) partOf(c Column) stat.Number {
	was, is, one := columnOf(h.Columns, Default), h.everything(), columnOf(h.Columns, c)
	relief := was.ThrottledInstances.Mean - is.ThrottledInstances.Mean
	if relief < 0.01 {
		return stat.Absent()
	}
	return stat.Number((was.ThrottledInstances.Mean - one.ThrottledInstances.Mean) / relief)
}

// goals are those of one load on one kernel.
func (h *HardResult) goals() []report.Goal {
	was, is, pool := columnOf(h.Columns, Default), h.everything(), columnOf(h.Columns, AIMDOnly)
	where := h.Name + ", " + h.Kernel
	list := []report.Goal{
		{
			Where: where, What: "instances throttled, everything on", Seed: "0.12 %", Want: fmt.Sprintf("< %.0f %%", goalAfter*100),
			Got: is.ThrottledInstances.Percent(1) + " %", Met: is.ThrottledInstances.Mean < goalAfter,
		},
		{
			Where: where, What: "mean response time of the burstiest five", Seed: "-10 to -35 %", Want: fmt.Sprintf("-%.0f %% or more", goalReduction*100),
			Got: fall(is.Reduction) + " %", Met: is.Reduction.Low >= goalReduction,
		},
		{
			Where: where, What: "U over 5 periods, greatest: above the kernel's default by", Seed: "3.8 points", Want: fmt.Sprintf("<= %.1f points", goalRise*100),
			Got: percent(is.Moments.Max-was.Moments.Max, 1), Met: is.Moments.Max-was.Moments.Max <= goalRise,
		},
	}
	if was.U.Mean > goalU {
		return append(list, report.Goal{
			Where: where, What: "U is above U_H: quota at the end / original, AIMD only", Seed: "halved", Want: fmt.Sprintf("< %.2f", goalQuiet),
			Got: fmt.Sprintf("%.2f", pool.Quota), Met: pool.Quota < goalQuiet,
		})
	}
	part := h.partOf(AIMDOnly)
	return append(list,
		report.Goal{
			Where: where, What: "of the instances relieved, by the pool alone", Seed: "mostly", Want: fmt.Sprintf("> %.0f %%", goalHalf*100),
			Got: (100 * part).Text(0) + " %", Met: float64(part) > goalHalf,
		},
		report.Goal{
			Where: where, What: "instances that borrow from the bucket, everything on", Seed: "0.75 %", Want: fmt.Sprintf("< %.0f %%", goalBorrowed*100),
			Got: is.Borrowed.Percent(1) + " %", Met: is.Borrowed.Mean < goalBorrowed,
		})
}

// hardTable is all hard loads, a row a column.
func hardTable(list []HardResult) report.Table {
	t := report.Table{
		Title: "Hard loads on the twin: 40 instances on 8 cores of two threads, spikes of more than 4 quotas",
		Columns: report.Heads("load, kernel", "column", "U mean|%", "U p99|%", "U of 5 periods, max|%", "batch|CPU", "throttled in 5 s|%", "borrowed|%", "periods|%",
			"burstiest: RT|ms", "change|%", "all: p99|ms", "quota at end|x", "of the relief|%"),
		Notes: []string{
			"U is of everybody on the pool's CPUs. Throttled, borrowed: share of the instances in a window of 5 s; borrowed: they used what their bucket had kept.",
			"Of the relief: which part of the instances that everything together relieves of throttling.",
		},
	}
	for i := range list {
		h := &list[i]
		name := h.Name + ", " + h.Kernel
		for k := range h.Columns {
			s := &h.Columns[k]
			part, change := "", ""
			if s.Column != Default {
				part, change = (100 * h.partOf(s.Column)).Text(0), fall(s.Reduction)
			}
			t.Rows = append(t.Rows, report.Cells(name, string(s.Column), percent(s.U.Mean, 1), percent(s.U.P99, 1), percent(s.Moments.Max, 1), fmt.Sprintf("%.1f", s.Outside),
				s.ThrottledInstances.Percent(1), s.Borrowed.Percent(1), s.ThrottledPeriods.Percent(2), s.BurstiestMsec.Text(1, 1), change, s.P99Msec.Text(1, 0),
				fmt.Sprintf("%.2f", s.Quota), part))
			name = ""
		}
	}
	return t
}
