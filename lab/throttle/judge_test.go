package throttle

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// host is a host whose columns meet every goal.
func host() *Host {
	h := &Host{CPUs: 2, Columns: Summarise(blocks(), []int{0})}
	was, is := columnOf(h.Columns, Default), columnOf(h.Columns, All)
	was.ThrottledInstances = stat.IntervalOf([]float64{0.7, 0.8})
	is.ThrottledInstances = stat.IntervalOf([]float64{0, 0.005})
	is.Reduction = stat.IntervalOf([]float64{0.5, 0.52})
	return h
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *Result)
		want   report.Outcome
		text   string
	}{
		{"all met", func(*Result) {}, report.Pass, "All 4 goals"},
		{"nothing played", func(r *Result) { r.Host = nil }, report.CouldNotTell, "Nothing"},
		{"still throttled", func(r *Result) { columnOf(r.Host.Columns, All).ThrottledInstances.Mean = 0.02 }, report.Fail, "instances throttled, all"},
		{"nothing to relieve", func(r *Result) { columnOf(r.Host.Columns, Default).ThrottledInstances.Mean = 0.4 }, report.Fail, "kernel default"},
		{"an interval that reaches the goal", func(r *Result) { columnOf(r.Host.Columns, All).Reduction.Low = 0.05 }, report.Fail, "burstiest"},
		{"the pool runs hot", func(r *Result) { columnOf(r.Host.Columns, All).U.Max = 0.46 }, report.Fail, "U of the pool"},
		{"met in spite of noise", func(r *Result) { columnOf(r.Host.Columns, All).Outside = 1 }, report.Pass, ""},
		{"missed in noise", func(r *Result) {
			columnOf(r.Host.Columns, All).Outside = 1
			columnOf(r.Host.Columns, All).U.Max = 0.46
		}, report.CouldNotTell, "50 % of the CPUs"},
		{"missed on the twin, where there is no noise", func(r *Result) {
			columnOf(r.Host.Columns, All).Outside = 1
			columnOf(r.Host.Columns, All).U.Max = 0.46
			k := KernelResult{Kernel: "mainline", Columns: host().Columns}
			columnOf(k.Columns, All).U.Max = 0.46
			r.Twin = &Twin{Kernels: []KernelResult{k}}
		}, report.Fail, "twin, mainline"},
	} {
		r := &Result{Host: host()}
		c.change(r)
		r.judge()
		if v := r.Verdict(); v.Outcome != c.want || !strings.Contains(v.Text, c.text) {
			t.Errorf("%s: %s: %s", c.name, v.Outcome, v.Text)
		}
	}
}

func TestSurgeGoals(t *testing.T) {
	s := &Surge{Arms: []SurgeArm{{During: 0.3}, {Name: "on", During: 0.02, UDuring: Spread{P99: 0.44}}, {Name: "bad", During: 0.04, UDuring: Spread{P99: 0.46}}}}
	met := ""
	for _, g := range surgeGoals(s) {
		if g.Met {
			met += g.Where + ";"
		}
	}
	if met != "surge, on;surge, on;" {
		t.Errorf("met: %s", met)
	}
	if surgeGoals(nil) != nil || surgeGoals(&Surge{}) != nil {
		t.Error("no surge has goals")
	}
}

func TestSurgeArm(t *testing.T) {
	run := func(before, during int) []surgeWindow {
		return []surgeWindow{
			{surgeSettled, 0.9, 10, 10}, // of the time in which the pool settles
			{surgeAt, 0.2, before, 10}, {surgeAt + windowTime, 0.4, during, 10},
		}
	}
	a := surgeArm("x", [][]surgeWindow{run(1, 4), run(2, 6)})
	if a.Before != 0.15 || a.During != 0.5 || a.Peak != 0.5 || a.UBefore.Mean != 0.2 || a.UDuring.Max != 0.4 || len(a.EndSec) != 3 {
		t.Errorf("%+v", a)
	}
	if got := surgeArm("x", nil); got.EndSec != nil {
		t.Errorf("%+v", got)
	}
}

// What is printed names what was played, and nothing breaks where parts are missing.
func TestReport(t *testing.T) {
	r := &Result{Seed: 5, Host: host()}
	r.Host.Jitter = []Jitter{{Column: All, Instance: "app-001", Fine: []float64{0.1}, Coarse: []float64{0.1}}}
	r.Host.Buckets = []Bucket{{K: 1, How: "kernel", Steps: []BucketStep{{PerSec: 1}}}}
	r.judge()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Passed.", "Figure 15", "Figure 12", "Figure 13", "app-001", "below 1.00", "met"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if len(r.Plots()) != 0 {
		t.Error("plots of a twin that was not played")
	}
}
