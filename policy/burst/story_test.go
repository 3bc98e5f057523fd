package burst_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/burst"
)

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

// TestStory is the life of a bucket: what the kernel takes of it, what is carried in user space,
// and who may come between.
func TestStory(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	p := burst.Defaults()
	p.QuietNsec, p.RetryNsec = 5e9, 10e9
	a, b := wide(1, 200_000, 100_000), wide(2, 100_000, 100_000)
	h := newHost(p, 1, a, b)
	h.NowNsec, h.Log = 1e9, &text
	h.Engine.Params.Hardcap.DurationNsec = 20e9
	surging := false
	work := func(ms int64, g *group) float64 { // a spike of five quotas every two seconds
		g.backlog += 200
		if surging && g == a && ms%2000 < 40 {
			g.backlog += 1_000_000 / 40
		}
		ask := min(g.backlog, g.width*1000)
		g.backlog -= min(ask, g.runtime)
		return ask
	}
	run := func(seconds int64) { h.run(seconds*1000, every(50), every(3), work) }
	surge := func(seconds int64) { surging = true; run(seconds); surging = false }

	h.Chapter("mode observe")
	h.mode(model.ModeObserve)
	surge(6)
	h.Chapter("mode enforce")
	h.mode(model.ModeEnforce)
	run(20)
	h.Chapter("a surge comes")
	surge(8)
	h.Chapter("and goes")
	run(10)
	h.Chapter("a surge, and a stranger writes the raised quota")
	surge(8)
	h.Stranger(1, model.Bandwidth(model.CPUMax{QuotaUsec: 300_000, PeriodUsec: 100_000}))
	run(10)
	h.Chapter("an operator frees the task, and 20 s later it has its burst again")
	a.found.QuotaUsec = 300_000
	h.Tell(model.Command{Kind: model.CommandUncap, Task: 1})
	run(40)
	h.Chapter("a surge, and the kernel refuses to raise the quota")
	a.knob().Write = func(v model.Setting) string {
		if v.QuotaUsec > 300_000 {
			return "invalid argument"
		}
		return a.write(v)
	}
	surge(8)
	run(10)
	h.Chapter("and takes it")
	a.knob().Write = a.write
	surge(8)
	h.Chapter("mode observe")
	h.mode(model.ModeObserve)
	run(1)

	if a.knob().Ours || b.knob().Ours || a.now() != a.found || b.now() != b.found {
		t.Errorf("left with %+v and %+v", a.now(), b.now())
	}
	story := enginetest.Story{
		About: "/t1 and /t2 are services with quotas of 2 and 1 CPUs; the kernel takes a burst of one quota; times since the agent began",
		Want: []string{
			"mode observe", "raise       /t1: it ran out of its quota",
			"mode enforce", "refused     /t1", "-> set cpu.max of /t2: applied, now quota 100000 us, period 100000 us, burst 100000 us", "bound       /t2: asked for a burst of 10 times the quota, the kernel takes 1", "may save up to 200000 us",
			"a surge comes", "raise       /t1: it bursts", "-> set cpu.max of /t1: applied",
			"and goes", "lower       /t1: no burst for 5.0 s", "-> set cpu.max of /t1: applied, now quota 200000 us, period 100000 us, burst 200000 us",
			"a stranger", "foreign     /t1", "left-alone  /t1: another program sets it",
			"an operator", "left-alone  /t1: an operator freed it", "-> set cpu.max of /t1: applied, now quota 300000 us, period 100000 us, burst 300000 us",
			"refuses", "lower       /t1: the kernel refused the raised quota: invalid argument",
			"and takes it", "raise       /t1: it bursts", "-> set cpu.max of /t1: applied",
			"mode observe", "-> release cpu.max of /t1: applied, now quota 300000 us, period 100000 us, burst 0 us",
		},
		Never: []string{"-> hold"},
		Once:  []string{"bound       ", "foreign     /t1", "left-alone  /t1: an operator"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}
