package main

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// `status` says "held to" of caps alone, and who claims.
func TestPrintHeld(t *testing.T) {
	half, whole := model.Bandwidth(model.CPUMax{QuotaUsec: 50_000, PeriodUsec: 100_000}), model.Bandwidth(model.CPUMax{QuotaUsec: 100_000, PeriodUsec: 100_000})
	var b strings.Builder
	printHeld(&b, &agent.Status{Held: []agent.HeldStatus{
		{Path: "/batch", State: engine.KnobHeld, Cap: 0.5, Found: whole, Written: half, Seconds: 60, Claims: []model.Claim{{Owner: model.OwnerPolicy, Policy: model.PolicyHardcap, Reason: "it hurts /web"}}},
		{Path: "/web", State: engine.KnobHeld, Quota: 1, Found: half, Written: whole, Seconds: 5, Claims: []model.Claim{{Kind: model.ClaimRaise, Owner: model.OwnerPolicy, Policy: model.PolicyCPUPool, Reason: "throttled"}}},
		{Path: "/api", State: engine.KnobHeld, Quota: 0.5, Found: whole, Written: half, Seconds: 5},
	}})
	const want = `
/batch: held to 0.5 CPU (50000 us in 100000 us), before: 1 CPU (100000 us in 100000 us), 60 s left
  claim of policy hard_cap: it hurts /web

/web: raised to 1 CPU (100000 us in 100000 us), before: 0.5 CPU (50000 us in 100000 us), 5 s left
  claim of policy cpu_pool: throttled

/api: lowered to 0.5 CPU (50000 us in 100000 us), before: 1 CPU (100000 us in 100000 us), 5 s left
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}
