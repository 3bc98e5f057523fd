package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/headroom"
)

var rewriteHeadroom = flag.Bool("rewrite-headroom", false, "write testdata/headroom.txt anew")

// TestPrintHeadroom: the table has each term, and why what is not known counts in full.
func TestPrintHeadroom(t *testing.T) {
	terms := func(cpu, profile float64, cold string) (list []headroom.Term) {
		for range 4 {
			list = append(list, headroom.Term{CPU: cpu, Profile: profile, Hour: 19, Cold: cold})
		}
		return list
	}
	h := &agent.Headroom{NoGPU: "absent: no driver's device file is here", Report: headroom.Report{
		WallNsec: 1_700_000_000e9, CPUs: 16, Params: headroom.Defaults(),
		Tasks: []headroom.TaskForecast{
			{Path: "/web/shop", Class: model.LC, Last: model.Known(1.5), Limit: 16, Of: "all CPUs", High: 2, Level: 1.1, Terms: terms(3.63, 3, "")},
			{Path: "/web/new", Class: model.LC, Limit: 4, Of: "its quota", Level: 1, Terms: terms(4, 0, "its job is not known for long enough (cold_start)")},
		},
		Others: headroom.TaskForecast{Path: headroom.Others, Last: model.Known(0.2), Limit: 16, Of: "all CPUs", Level: 1, Terms: terms(0.33, 0.3, "")},
	}}
	h.Hours[3] = model.Known(11)
	for _, name := range []string{"now", "1h", "6h", "24h"} {
		h.Horizons = append(h.Horizons, headroom.Horizon{Name: name, BE: 7.24, CPUs: 16, Reserve: 0.8, LC: 7.63, Others: 0.33, Cold: 1})
	}
	memory := func(bytes, profile, growth float64, cold string) (list []headroom.MemoryTerm) {
		for i := range 4 {
			list = append(list, headroom.MemoryTerm{Bytes: bytes * gib, Profile: profile * gib, Hour: 19, Growth: growth * gib * float64(i), Cold: cold})
		}
		return list
	}
	m := &h.Memory
	m.Available, m.TakeBackNsec, m.TakeBackBy = model.Known(20*gib), 10e9, model.PolicyPressure
	m.Tasks = []headroom.MemoryForecast{
		{Path: "/web/shop", Class: model.LC, Last: model.Known(4 * gib), Cache: model.Known(1 * gib), Limit: 8 * gib, Of: "its limit", High: 4.2 * gib, Level: 1.1, Trend: 12345, Terms: memory(5, 4, 0.2, "")},
		{Path: "/web/new", Class: model.LC, Limit: 64 * gib, Of: "all memory", Level: 1, Terms: memory(64, 0, 0, "its job is not known for long enough (cold_start)")},
	}
	m.Others = headroom.MemoryForecast{Path: headroom.Others, Last: model.Known(2 * gib), Limit: 64 * gib, High: 2 * gib, Level: 1, Terms: memory(2.2, 2, 0, "")}
	for _, name := range []string{"now", "1h", "6h", "24h"} {
		m.Horizons = append(m.Horizons, headroom.MemoryHorizon{Name: name, Total: 64 * gib, Reserve: 3.2 * gib, LC: 69 * gib, Others: 2.2 * gib, Cold: 1})
	}
	gpu := headroom.GPUForecast{UUID: "GPU-a", Memory: headroom.MemoryReport{Total: model.Known(80 * gib), Available: model.Known(40 * gib), Horizons: m.Horizons, Tasks: m.Tasks[:1], Others: m.Others}, Untold: 1}
	gpu.Busy = headroom.TaskForecast{Last: model.Known(0.37), Terms: terms(0.5, 0.4, "")}
	gpu.Users = []headroom.GPUUser{{Path: "/web/shop", Class: model.LC, Bytes: 4 * gib}, {Path: "/batch", Class: model.BE, Bytes: 30 * gib}}
	h.GPU.GPUs = []headroom.GPUForecast{gpu, {UUID: "GPU-b", Why: "it is in MIG mode", Busy: headroom.TaskForecast{Terms: terms(1, 0, "its usage was not read in the last hour")}}}
	h.Horizons[0].BoundWhy = "as through the longest horizon"
	var b strings.Builder
	for _, h := range []*agent.Headroom{h, {}, {Mode: model.ModeOff}} {
		if err := printHeadroom(&b, h); err != nil {
			t.Fatal(err)
		}
	}
	const file = "testdata/headroom.txt"
	if *rewriteHeadroom {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || b.String() != string(want) {
		t.Errorf("%v; -rewrite-headroom writes it anew:\n%s", err, b.String())
	}
}
