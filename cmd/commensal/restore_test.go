package main

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// What a restore says of each outcome; of a group that is gone there is no value to tell.
func TestPrintReport(t *testing.T) {
	now, found := model.Bandwidth(model.CPUMax{QuotaUsec: 50_000, PeriodUsec: 100_000}), model.Bandwidth(model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000})
	rep := node.Report{Items: []node.Restoration{
		{Path: "/a", Kind: node.Restored, Found: found, Now: found},
		{Path: "/b", Kind: node.LeftForeign, Found: found, Now: now},
		{Path: "/be/hog", Kind: node.LeftGone, Found: found, Now: model.Ask(model.CPUBandwidth)},
	}}
	var out strings.Builder
	if err := printReport(&out, &rep); err != nil {
		t.Fatal(err)
	}
	const want = `restored     /a: no limit
left foreign /b: 0.5 CPU (50000 us in 100000 us) (not ours; we had found no limit)
gone         /be/hog
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
}
