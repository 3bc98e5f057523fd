package cpi2

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// phases returns the rhythm of a task of a mix, and when it begins.
func phases(m *mix, path string) (list []machine.Phase, atNsec int64) {
	for i := range m.plan {
		if p := m.plan[i].start; p != nil && p.task.Path == path {
			return p.cfg.Work.Phases, m.plan[i].atNsec
		}
	}
	return nil, 0
}

// Members of a group share the lengths of their turns, which differ from turn to turn; one works at a time, and all begin
// at times of their own.
func TestGroups(t *testing.T) {
	c, err := drawCatalogue(1, usual)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		for _, what := range []cause{turns, concert} {
			m := c.drawMix(rand.New(rand.NewPCG(seed, 1)), what, 11, 13, 44)
			first, _ := phases(m, m.actors[0])
			var began []int64
			lengths := map[int64]bool{}
			for i := range first {
				lengths[first[i].Nsec] = true
				working := 0
				for _, path := range m.actors {
					own, at := phases(m, path)
					if i == 0 {
						began = append(began, at)
					}
					if own[i].Nsec != first[i].Nsec || own[i].Jitter != 0 && len(own) > 1 {
						t.Fatalf("seed %d, %s: phase %d lasts %d ns and %d, jitter %v", seed, what, i, own[i].Nsec, first[i].Nsec, own[i].Jitter)
					}
					if own[i].CPUs > 0.5*first[0].CPUs {
						working++
					}
				}
				if what == turns && working != 1 {
					t.Errorf("seed %d: %d members work in turn %d", seed, working, i)
				}
			}
			if len(first) > 1 && len(lengths) < len(first)/2 {
				t.Errorf("seed %d, %s: only %d lengths among %d", seed, what, len(lengths), len(first))
			}
			slices.Sort(began)
			if n := len(began); len(slices.Compact(began)) != n || began[n-1]-began[0] > groupLag {
				t.Errorf("seed %d, %s: members begin at %v", seed, what, began)
			}
		}
	}
}

// Who is slow of itself is put right after a while.
func TestOwnFaultEnds(t *testing.T) {
	c, err := drawCatalogue(1, usual)
	if err != nil {
		t.Fatal(err)
	}
	m := c.drawMix(rand.New(rand.NewPCG(3, 1)), ownFault, 11, 13, 240)
	slow := m.actors[0]
	var stopped, again int64
	for _, a := range m.plan {
		if a.stop == slow {
			stopped = a.atNsec
		}
		if a.start != nil && a.start.task.Path == strings.TrimSuffix(slow, "-new")+"-again" {
			again = a.atNsec
		}
	}
	if stay := (stopped - m.atNsec) / minuteNsec; stay < 10 || stay > 40 || again != stopped {
		t.Errorf("it is slow for %d minutes, and put right at %d after it stopped at %d", stay, again, stopped)
	}
}

// A spec is of samples that were held at the threshold of the day before.
func TestSpecsAreWinsorised(t *testing.T) {
	f := &fleet{}
	for task := range 5 {
		for i := range 20 {
			cpi := 1 + 0.01*float64(i%5)
			if i == 19 {
				cpi = 3 // somebody came
			}
			f.readings = append(f.readings, reading{job: "j", task: model.TaskNum(task + 1), cpi: cpi, cpu: 1})
		}
	}
	f.learn(1)
	raw := f.specs[0]
	f.learn(specDays)
	if got := f.specs[0]; got.StdDev >= raw.StdDev || got.Mean >= raw.Mean {
		t.Errorf("after %d days %.3f +- %.3f, after one %.3f +- %.3f", specDays, got.Mean, got.StdDev, raw.Mean, raw.StdDev)
	}
}

// Means over catalogues have Student's interval (R: t.test(c(0.5, 0.7, 0.6))$conf.int), within what the figure may be.
func TestIntervalOverCatalogues(t *testing.T) {
	for _, x := range []struct {
		v    []float64
		most float64
		want string
	}{
		{[]float64{0.5, 0.7, 0.6}, 1, "60 % [35, 85]"},
		{[]float64{0.9, 1, 1}, 1, "97 % [82, 100]"},
		{[]float64{0.4}, 1, "40 %"},
		{nil, 1, "none"},
	} {
		if got := interval(x.v, x.most, 0); got != x.want {
			t.Errorf("%v: %s, wanted %s", x.v, got, x.want)
		}
	}
}

// A run under the published physics draws the same jobs, on machines with all its terms, whose services wait for more of
// their misses; a run without does neither.
func TestPublishedPhysics(t *testing.T) {
	usually, err := drawCatalogue(7, usual)
	if err != nil {
		t.Fatal(err)
	}
	of := usual
	of.published = true
	c, err := drawCatalogue(7, of)
	if err != nil {
		t.Fatal(err)
	}
	if c.config.Physics != machine.Published(serverConfig()).Physics || len(c.config.Turbo) != c.config.CoresPerSocket || usually.config.Physics != (machine.Physics{}) {
		t.Errorf("machines have %+v, usually %+v", c.config.Physics, usually.config.Physics)
	}
	exposed := 0
	for i := range c.jobs {
		a, b := &c.jobs[i], &usually.jobs[i]
		if a.name != b.name || a.cpu != b.cpu || a.base.APKI != b.base.APKI {
			t.Errorf("job %s is another: %s", b.name, a.name)
		}
		if a.base.Overlap < b.base.Overlap {
			exposed++
		}
	}
	if exposed < jobsProduction {
		t.Errorf("%d jobs wait for more, of %d services", exposed, jobsProduction)
	}
}

// Figure 4 asks what CPI says of latency. Services weigh more than batch work, so that on a machine with more work than CPUs
// it is the batch work that waits; its samples are told apart all the same.
func TestTiersOnASaturatedMachine(t *testing.T) {
	c, err := drawCatalogue(1, usual)
	if err != nil {
		t.Fatal(err)
	}
	config := serverConfig()
	config.CoresPerSocket = 8
	drawn := func() *rand.Rand { return rand.New(rand.NewPCG(2, 1)) }
	s, _, err := c.startTiers(drawn(), config, 15)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.mix.plan {
		if p := s.mix.plan[i].start; p != nil && (p.task.Class == model.LC) != (p.cfg.Shares > 1024) {
			t.Errorf("%s is %s and has %d shares", p.task.Path, p.task.Class, p.cfg.Shares)
		}
	}
	list, err := c.playTiers(drawn(), config, 15)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].saturated || !list[1].saturated {
		t.Fatalf("not saturated and saturated: %+v", list)
	}
	for k := range list[0].latency {
		if more, slower := list[1].latency[k]/list[0].latency[k], list[1].cpi[k]/list[0].cpi[k]; more > 1.2*slower {
			t.Errorf("tier %d: latency grows by %.2f and CPI by %.2f once all CPUs are busy", k, more, slower)
		}
	}
}

// What figure 4 shows is without the samples of saturated machines, and so is the leaf for which a root waits.
func TestScatterLeavesSaturatedOut(t *testing.T) {
	var parts [][]tier
	for i := range 4 { // two machines of each platform
		var list []tier
		for n := range 5 {
			v := float64(1 + n + 10*(i%2))
			list = append(list, tier{cpi: [3]float64{v, v, v}, latency: [3]float64{v, v, v}})
		}
		parts = append(parts, list)
	}
	parts[0][2] = tier{cpi: [3]float64{1, 1, 1}, latency: [3]float64{1e6, 1e6, 1e6}, saturated: true}
	pairs, out := scatter(parts, []string{"fast", "slow"})
	if out != 1 || len(pairs) != 6 {
		t.Fatalf("%d samples out, %d pairs", out, len(pairs))
	}
	for i, p := range pairs {
		if want := 10 - (i+1)%2; len(p.X) != want || p.R < 0.999 {
			t.Errorf("%s: %d samples of %d, r %.3f", p.Name, len(p.X), want, p.R)
		}
	}
}
