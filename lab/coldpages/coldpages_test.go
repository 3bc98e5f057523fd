package coldpages

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/labtest"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// A short run is the same twice; what is older goes, and more of it with shorter thresholds.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	r := labtest.Twice(t, func() (*Result, error) { return run(context.Background(), Options{Seed: 3}, 1, 1) })
	if none := &r.Arms[nothing]; none.Saved.Mean != 0 || none.Faults.Mean != 0 || none.RT.Mean != 0 {
		t.Errorf("something happens where nothing is done: %+v", none)
	}
	if long, short := &r.Arms[longest], &r.Arms[shortest]; long.Saved.Mean <= 0 || short.Saved.Mean <= long.Saved.Mean || short.Faults.Mean <= long.Faults.Mean {
		t.Errorf("%+v, with shorter thresholds %+v", long, short)
	}
	if r.Arms[ours].Saved.Mean <= 0 || r.Arms[pressured].Saved.Mean <= 0 {
		t.Errorf("%+v, %+v", r.Arms[ours], r.Arms[pressured])
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "(TMO)") || !strings.Contains(text.String(), "48 h / 24 h") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// Machines differ, each fits its tasks, and shares of memory add up.
func TestDraw(t *testing.T) {
	sweeps, services := 0, 0
	for i := range 100 {
		m := Mix{Index: i}
		p := draw(1, &m)
		sum, n := 0.0, 0
		for k := range p.tasks {
			task, used := &p.tasks[k], 0.0
			n += one(task.class == model.LC)
			for _, h := range task.cfg.Memory {
				if h.Bytes < 0 {
					t.Fatalf("mix %d: %+v", i, task.cfg.Memory)
				}
				used += h.Bytes
			}
			sum += used
			if used > 1.2*task.limit {
				t.Errorf("mix %d: %s uses %.2f of its limit", i, task.cfg.Name, used/task.limit)
			}
		}
		sweeps, services = sweeps+m.Sweeps, services+n
		if n != m.Services || n < 4 || n > 8 || p.config.MemBytes < sum || p.swap < 0.02*sum || p.swap > 0.08*sum {
			t.Errorf("mix %d: %d services, %.0f GiB of %.0f, swap %.1f", i, n, sum/gib, p.config.MemBytes/gib, p.swap/gib)
		}
	}
	if share := float64(sweeps) / float64(services); math.Abs(share-0.25) > 0.07 {
		t.Errorf("%.2f of the services collect garbage", share)
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// made is a result that meets all goals.
func made() *Result {
	r := &Result{}
	for _, edge := range model.AgeEdges {
		a := AgeSum{Nsec: edge}
		a.Anon[1], a.File[1] = 0.298, 0.126
		if edge >= arms[longest].file {
			a.File[1] = 0.022
		}
		if edge >= arms[longest].anon {
			a.Anon[1] = 0.147
		}
		r.Ages = append(r.Ages, a)
	}
	for i := range arms {
		s := ArmSum{Arm: arms[i].name, Anon: 0.67, File: 0.04, Faults: stat.Interval{Mean: float64(10 * i)}, Saved: stat.Interval{Mean: 10}, RT: stat.Interval{Mean: 0.01}}
		r.Arms = append(r.Arms, s)
	}
	r.Arms[nothing].Anon, r.Arms[nothing].File = 0.74, 0.13
	return r
}

// Each goal can be missed, by itself.
func TestGoals(t *testing.T) {
	missed := func(change func(r *Result)) (n int) {
		r := made()
		change(r)
		r.judge()
		for _, g := range r.Goals {
			n += one(!g.Met)
		}
		return n
	}
	if n := missed(func(*Result) {}); n != 0 {
		t.Errorf("%d goals are missed by what meets them", n)
	}
	for i, change := range []func(r *Result){
		func(r *Result) { r.Arms[ours].Anon = 0.6 }, func(r *Result) { r.Arms[ours].Anon = 0.72 }, func(r *Result) { r.Arms[ours].File = 0.1 },
		func(r *Result) { r.Arms[ours].RT.Mean, r.Arms[pressured].RT.Mean = 0.02, 0.02 }, func(r *Result) { r.Arms[ours].Most = 0.06 }, func(r *Result) { r.Arms[ours].CPI.Mean = 0.02 },
		func(r *Result) { r.Arms[pressured].Saved.Mean = 11 }, func(r *Result) { r.Arms[pressured].RT.Mean = 0.009 },
		func(r *Result) { r.Ages[model.NumAgeEdges-1].Anon[1] = 0.2 }, func(r *Result) { r.Ages[model.AgeEdge(hour)].Anon[1] = 0.2 },
		func(r *Result) { r.Arms[longest+1].Faults.Mean = 1 }, func(r *Result) { r.Arms[longest].Faults.Mean = 19 },
	} {
		if n := missed(change); n != 1 {
			t.Errorf("change %d: %d goals are missed, not one", i, n)
		}
	}
}
