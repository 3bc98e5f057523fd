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
	h := &agent.Headroom{Report: headroom.Report{
		WallNsec: 1_700_000_000e9, CPUs: 16, GPU: headroom.GPU, Params: headroom.Defaults(),
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
