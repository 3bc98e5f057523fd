package cache

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/tally"
)

// What a division does to LC's CPI it does by what the caches hold: services miss less, since batch work's lines are fewer. A CPI that fell while
// services miss as often and batch work fills as much fell for another reason, as for a load that changed between the looks; and one that fell
// although services miss more did so in spite of the division. Where counters tell neither, the CPI alone decides.

// Counted are LLC misses in a thousand instructions, of services and of batch work, and bytes of the last-level caches that batch work's lines fill.
type Counted struct {
	Services tally.Tally `json:"services,omitzero"`
	Batch    tally.Tally `json:"batch,omitzero"`
	Lines    tally.Tally `json:"lines,omitzero"`
}

// add takes a window in.
func (c *Counted) add(v *policy.View) {
	if v.Window.Observation == nil {
		return
	}
	for i := range v.Window.Observation.Tasks {
		o := &v.Window.Observation.Tasks[i]
		t, misses := v.Task(o.Num), &c.Services
		if t == nil {
			continue
		}
		if t.Task.Class == model.BE {
			misses = &c.Batch
			if lines, _ := model.SumDomains(v.Window.Observation.In(o.Num)); lines.Outcome == model.OK {
				c.Lines.Put(o.Num, lines.V)
			}
		}
		if o.MPKI.Outcome == model.OK {
			misses.Put(o.Num, o.MPKI.V)
		}
	}
}

// beside says what came of a division beside the windows before, "" where nobody counts, and why the caches cannot have brought the CPI down, "": they may have.
// What changed by less than gain, or by less than three standard errors, is as it was.
func (c *Counted) beside(earlier *Counted, gain float64) (text, not string) {
	tell := func(now, before *tally.Tally, what string) (lower, higher, known bool) {
		ratio, sem, known := now.All(before)
		if known {
			text += fmt.Sprintf("; %s %.3g times", what, ratio)
		}
		by := max(gain, 3*sem)
		return ratio <= 1-by, ratio >= 1+by, known
	}
	less, more, known := tell(&c.Services, &earlier.Services, "services miss the cache")
	tell(&c.Batch, &earlier.Batch, "best-effort work misses it")
	fewer, _, filled := tell(&c.Lines, &earlier.Lines, "and fills")
	switch {
	case known && more:
		return text, ": services miss the cache more, so that it is not the division that helps"
	case known && filled && !less && !fewer:
		return text, ": services miss the cache as often and best-effort work fills as much of it, so that it is not the division that helps"
	}
	return text, ""
}
