package throttle

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/twin/machine"
)

// small is the twin's workload on an eighth of its machine.
func small() Workload {
	w := twinWorkload()
	w.Instances, w.Steady, w.PoolCPUs = 20, 5, 8
	return w
}

// A short run on the twin meets the goals, on Alibaba's kernel within a minute; and what
// comes out does not depend on the workers.
func TestTwinMeetsGoals(t *testing.T) {
	load, times := small(), twinTimes{rounds: 2, lead: 20 * time.Second, measure: 20 * time.Second}
	play := func(workers int) []*Block {
		list, err := parallel.Map(context.Background(), workers, 4, func(i int) (*Block, error) {
			return simulateBlock(context.Background(), &load, times, machine.AnyBurst, []Column{Default, All}[i%2], i/2, 1)
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	list := play(2)
	if d := cmp.Diff(list, play(1)); d != "" {
		t.Errorf("with one worker (-two +one):\n%s", d)
	}
	var all []Block
	for _, b := range list {
		all = append(all, *b)
	}
	for _, g := range columnGoals("twin", Summarise(all, byDesign(load.Draw(1, 0), theBurstiest))) {
		if !g.Met {
			t.Errorf("%s: %s, wanted %s", g.What, g.Got, g.Want)
		}
	}
	if b := list[1]; b.BurstK != paperK {
		t.Errorf("Alibaba's kernel has a burst of %g quotas in force", b.BurstK)
	}
}

// The mainline kernel takes a burst of one quota; the pool finds what is missing step by
// step.
func TestTwinMainline(t *testing.T) {
	load, times := small(), twinTimes{rounds: 1, lead: 40 * time.Second, measure: 20 * time.Second}
	got := map[Column]Summary{}
	for _, c := range columns() {
		b, err := simulateBlock(context.Background(), &load, times, machine.Mainline, c, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := summarise(c, []Block{*b}, nil)
		if s.BurstK > 1+1e-9 {
			t.Errorf("%s: a burst of %g quotas", c, s.BurstK)
		}
		got[c] = s
	}
	none, all := got[Default].ThrottledPeriods.Mean, got[All].ThrottledPeriods.Mean
	for _, c := range []Column{BurstOnly, AIMDOnly} {
		if one := got[c].ThrottledPeriods.Mean; !(one < none/2 && all <= one) {
			t.Errorf("throttled periods: default %.4f, %s %.4f, all %.4f", none, c, one, all)
		}
	}
	if math.Abs(got[Default].Quota-1) > 1e-9 || got[AIMDOnly].Quota <= 1 {
		t.Errorf("quotas: default %g, AIMD only %g", got[Default].Quota, got[AIMDOnly].Quota)
	}
}

// Figure 13b: peak throughput grows with the bucket, and use never passes the quota.
func TestTwinBuckets(t *testing.T) {
	list, err := twinBuckets(context.Background(), &Options{Seed: 1}, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		b := &list[i]
		if i > 0 && (b.PeakPerSec < list[i-1].PeakPerSec || b.Throttled > list[i-1].Throttled) {
			t.Errorf("k = %g: a peak of %g and %d throttled, k = %g: %g and %d", list[i-1].K, list[i-1].PeakPerSec, list[i-1].Throttled, b.K, b.PeakPerSec, b.Throttled)
		}
		if b.PeakUse > 1 {
			t.Errorf("k = %g uses %g of its quota", b.K, b.PeakUse)
		}
	}
	if first, last := list[0], list[len(list)-1]; last.PeakPerSec < 2*first.PeakPerSec || last.PeakPerSec == 0 {
		t.Errorf("peaks of %g and %g", first.PeakPerSec, last.PeakPerSec)
	}
}
