package cpupool_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cpupool"
)

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

// TestStory is the life of a quota in the pool: what raises it and brings it down, and who may
// come between.
func TestStory(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	p := cpupool.Defaults()
	p.GiveBackNsec = 20e9
	load, n := 0.2*period, 0
	s := newService(1, 2*period, func() float64 { // a spike in each tenth period, on top of the load
		if n++; n%10 == 0 && load < period {
			return 4 * period
		}
		return load
	})
	crowd := newService(2, -1, even(0)) // without a quota: it fills the pool
	h := newServer(p, 10, s, crowd)
	h.Log = &text
	h.Engine.Params.Hardcap.DurationNsec = 20e9

	h.mode(model.ModeObserve)
	h.Chapter("mode observe")
	h.run(150, 10)
	h.Chapter("mode enforce")
	h.mode(model.ModeEnforce)
	h.run(200, 10)
	h.Chapter("a surge fills the pool")
	crowd.demand = even(6 * period)
	h.run(150, 10)
	h.Chapter("and goes")
	crowd.demand = even(0)
	h.run(150, 10)
	h.Chapter("batch work fills the machine: no partition keeps it off the pool")
	for range 3 {
		h.be += 6 * 50 * period
		h.run(50, 10)
	}
	h.Chapter("and goes")
	h.run(150, 10)
	h.Chapter("the service is quiet")
	n, s.demand = 0, even(load)
	h.run(1300, 10)
	h.Chapter("it is throttled again, and a stranger writes its quota")
	s.demand = func() float64 {
		if n++; n%10 == 0 {
			return 6 * period
		}
		return load
	}
	h.run(100, 10)
	h.Stranger(1, model.Bandwidth(model.CPUMax{QuotaUsec: 330_000, PeriodUsec: period}))
	h.run(100, 10)
	h.Chapter("an operator frees the task, and 20 s later its quota is the new original")
	h.Tell(model.Command{Kind: model.CommandUncap, Task: 1})
	h.run(300, 10)
	h.Chapter("the kernel refuses another step")
	s.Refuse(model.CPUBandwidth, "invalid argument")
	h.run(150, 10)
	h.Chapter("and takes it")
	s.Refuse(model.CPUBandwidth, "")
	h.run(100, 10)
	h.Chapter("mode observe")
	h.mode(model.ModeObserve)
	h.run(50, 10)

	if s.knob().Ours || s.quota() != 330_000 {
		t.Errorf("left with %d us", s.quota())
	}
	story := enginetest.Story{
		About: "10 CPUs; /t1 is a service with a quota of 2 CPUs, /t2 one without; times since the agent began",
		Want: []string{
			"mode observe", "raise       /t1",
			"mode enforce", "raise       /t1", "-> set cpu.max of /t1: applied, now quota 250000 us",
			"a surge", "lower       /t1: the pool's utilisation was", "-> release cpu.max of /t1: applied, now quota 200000 us", "left-alone  /t1: throttled in",
			"and goes", "raise       /t1",
			"batch work", "lower       /t1: the pool's utilisation was", "-> release cpu.max of /t1: applied, now quota 200000 us",
			"and goes", "raise       /t1",
			"the service is quiet", "lower       /t1: not throttled for 20 s", "-> release cpu.max of /t1: applied, now quota 200000 us",
			"a stranger", "foreign     /t1", "left-alone  /t1: another program sets it",
			"an operator", "left-alone  /t1: an operator freed it", "(original 330000)", "-> set cpu.max of /t1: applied, now quota 412500 us",
			"refuses", "refused     /t1", "and takes it", "-> set cpu.max of /t1: applied",
			"mode observe", "-> release cpu.max of /t1: applied, now quota 330000 us",
		},
		Never: []string{"-> hold", "of /t2"},
		Once:  []string{"foreign     /t1", "refused     /t1", "left-alone  /t1: an operator"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}
