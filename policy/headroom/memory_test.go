package headroom

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// checkMemory holds a report to what is true of each: no horizon has more than a shorter one, and each figure follows from its terms.
func checkMemory(t *testing.T, p *Params, r *MemoryReport) {
	t.Helper()
	if len(r.Horizons) != numHorizons {
		t.Fatalf("%d horizons", len(r.Horizons))
	}
	for i, h := range r.Horizons {
		lc, system := 0.0, 0.0
		for j, f := range append(slices.Clone(r.Tasks), r.Others) {
			term := f.Terms[i]
			want := min(f.Limit, max(term.Profile*f.Level, f.High+term.Growth)*(1+p.Margin))
			if term.Cold != "" {
				want = f.Limit
			}
			if term.Bytes != want || !(term.Bytes >= 0) || term.Growth != f.Trend*float64(h.Nsec)/1e9 {
				t.Errorf("%s: %s of %s is %v by its terms", h.Name, f.Path, f.Job, want)
			}
			switch {
			case j == len(r.Tasks):
			case f.Class == model.LC:
				lc += term.Bytes
			default:
				system += term.Bytes
			}
		}
		want := max(0, h.Total-h.Reserve-h.LC-h.System-h.Others)
		if h.BoundWhy != "" {
			want = r.Horizons[numHorizons-1].BE
		}
		if h.BE != want || h.LC != lc || h.System != system {
			t.Errorf("%+v; by its terms %v, %v, %v", h, want, lc, system)
		}
		if i > 0 && h.BE > r.Horizons[i-1].BE && r.Horizons[i-1].BoundWhy == "" {
			t.Errorf("%s has more than %s", h.Name, r.Horizons[i-1].Name)
		}
	}
}

// A service has 8 GiB, of which 3 can be taken back; batch work has 20, which is offered to batch work anew. What is no task's is 2 GiB. What
// is not known yet is taken to need its limit, or all memory.
func TestMemory(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 4), task(2, "cron", model.System, 1), task(3, "batch", model.BE, 0))
	w.obs.Tasks[0].Limit = model.Known(10 * gib)
	w.memory = func(num model.TaskNum) (float64, float64) {
		return []float64{8, 1, 20}[num-1], []float64{3, 0, 5}[num-1]
	}
	r := &w.pass(w.diurnal(1, 2)).Memory
	checkMemory(t, &w.p, r)
	if h := r.Horizons[0]; h.BE != 0 || h.LC != 10*gib || h.System != 64*gib || h.Cold != 3 || r.Tasks[0].Of != "its limit" || r.Tasks[1].Of != "all memory" {
		t.Errorf("the first minute: %+v", h)
	}
	r = &w.days(3, w.diurnal(1, 2)).Memory
	checkMemory(t, &w.p, r)
	now, far := r.Horizons[0], r.Horizons[numHorizons-1]
	if near := func(v, want float64) bool { return v >= want*gib && v < 1.2*want*gib }; now.Cold != 0 || !near(now.LC, 5) || !near(now.Others, 2) || !near(far.LC, 5) {
		t.Errorf("after three days: %+v, %+v", now, far)
	}
	if f := r.Tasks[0]; f.Last.V != 5*gib || f.Cache.V != 3*gib || f.Trend != 0 {
		t.Errorf("%+v", f)
	}
	if now.BoundWhy != "" && now.BE != far.BE || far.BE < 50*gib {
		t.Errorf("offered are %+v and %+v", now, far)
	}
}

// A leak goes on: the longest horizon has a day of it more, and "now" is no more than that until memory comes back for sure.
func TestLeak(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 4))
	w.memory = func(model.TaskNum) (float64, float64) {
		return 4 + 2*float64(w.v.WallNsec-monday)/float64(day), 0
	}
	r := &w.days(5, w.diurnal(1, 2)).Memory // it has 14 GiB, and will have 16 in a day
	checkMemory(t, &w.p, r)
	f := r.Tasks[0]
	if grown := f.Terms[numHorizons-1].Growth; grown < 1.8*gib || grown > 2.2*gib || f.Terms[numHorizons-1].Bytes < 16*gib {
		t.Errorf("a day of growth is %.2f GiB: %+v", grown/gib, f)
	}
	if h := r.Horizons[0]; h.BE != r.Horizons[numHorizons-1].BE || h.BoundWhy == "" {
		t.Errorf("%+v", h)
	}
	w.v.MemoryBackNsec, w.v.MemoryBackBy = 10e9, model.PolicyPressure
	r = &w.pass(w.diurnal(1, 2)).Memory
	if h := r.Horizons[0]; h.BE <= r.Horizons[numHorizons-1].BE || h.BoundWhy != "" || r.TakeBackBy != model.PolicyPressure {
		t.Errorf("%+v", h)
	}
}

// Without readings the last forecast stands for an hour, then there is none, and it is named missing.
func TestMemoryUnread(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 4))
	w.memory = func(model.TaskNum) (float64, float64) { return 4, 1 }
	w.days(2, w.diurnal(1, 2))
	w.memory = nil
	if r := w.days(0.03, w.diurnal(1, 2)); len(r.Memory.Horizons) != numHorizons || r.Memory.Horizons[0].Cold != 0 {
		t.Errorf("after %v minutes: %+v", 0.03*24*60, r.Memory)
	}
	if r := w.days(0.03, w.diurnal(1, 2)); len(r.Memory.Horizons) != 0 || r.Memory.Total.Outcome == model.OK || len(r.Memory.Tasks) != 0 || len(r.Horizons) != numHorizons {
		t.Errorf("after 80 minutes: %+v", r.Memory)
	}
	w.memory = func(model.TaskNum) (float64, float64) { return 4, 1 }
	if r := w.pass(w.diurnal(1, 2)); len(r.Memory.Horizons) != numHorizons {
		t.Errorf("read again: %+v", r.Memory)
	}
}

// On drawn loads (tides, leaks that end in a restart, steps, noise) the forecast through a day is passed in no more of the minutes than
// the percentile leaves, for each load.
func TestMemoryIsSeldomPassed(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 11))
		w := newWorld(task(1, "web", model.LC, 4))
		base, tide, leak, every := 2+4*rng.Float64(), 3*rng.Float64(), rng.Float64(), 12+60*rng.Float64()
		noise := 0.0
		w.memory = func(model.TaskNum) (float64, float64) {
			at := float64(w.v.WallNsec-monday) / float64(hour)
			noise = 0.99*noise + 0.02*rng.NormFloat64()
			return base + tide*(1-math.Cos(2*math.Pi*at/24))/2 + leak*math.Mod(at, every)/24 + max(0, noise), 0
		}
		w.days(7, w.diurnal(1, 2))
		passed, minutes := 0, 0
		for range 7 {
			said := w.s.report.Memory.Tasks[0].Terms[numHorizons-1].Bytes
			for range 24 * 60 {
				f := w.pass(w.diurnal(1, 2)).Memory.Tasks[0]
				passed += policy.One(f.Last.V > said)
				minutes++
			}
		}
		if share := float64(passed) / float64(minutes); share > 1-w.p.Percentile {
			t.Errorf("seed %d: passed in %.1f %% of minutes (base %.1f, tide %.1f, leak %.1f a day for %.0f h)", seed, 100*share, base, tide, leak, every)
		}
	}
}
