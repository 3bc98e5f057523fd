package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/model"
)

// A status names the specs in force that are the fleet's, so many of them, and no others.
func TestTheFleetsSpecsAreNamed(t *testing.T) {
	specs := []*model.Spec{{Job: "own"}, {Job: "web\n", Source: model.SourceCPI, Sheet: 12}}
	text := func() string {
		var b strings.Builder
		printFleet(&b, &uplink.Status{Connected: true}, specs)
		return b.String()
	}
	if s := text(); !strings.Contains(s, "the fleet's specs are in force: cpi of web  (revision 12)\n") || strings.Contains(s, "own") {
		t.Error(s)
	}
	for i := range 10 {
		specs = append(specs, &model.Spec{Job: fmt.Sprint("j", i), Sheet: 1})
	}
	if s := text(); !strings.Contains(s, "j6 (revision 1), 3 more\n") || strings.Contains(s, "j7") {
		t.Error(s)
	}
	if specs = specs[:1]; strings.Contains(text(), "in force") {
		t.Error(text())
	}
}
