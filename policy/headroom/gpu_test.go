package headroom

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// withGPUs lets n minutes pass in each of which GPUs are read.
func (w *world) withGPUs(n int, read func() *model.GPUReading) (r *Report) {
	for range n {
		if w.obs.GPUs = read(); w.obs.GPUs != nil {
			w.obs.GPUs.MonoNsec = w.v.NowNsec
		}
		r = w.pass(w.diurnal(1, 2))
	}
	return r
}

func oneGPU(uuid string, busy, total, free float64, tasks ...model.GPUTask) model.GPU {
	return model.GPU{UUID: uuid, Busy: model.Known(busy), Total: model.Known(total * gib), Free: model.Known(free * gib), Tasks: tasks}
}

func has(num model.TaskNum, gibs float64) model.GPUTask {
	return model.GPUTask{Num: num, Bytes: uint64(gibs * gib)}
}

// checkGPU holds one to what is true of each memory, and that "now" is bounded.
func checkGPU(t *testing.T, w *world, r *Report, i int) *GPUForecast {
	t.Helper()
	f := &r.GPU.GPUs[i]
	checkMemory(t, &w.p, &f.Memory)
	if now, far := &f.Memory.Horizons[0], &f.Memory.Horizons[numHorizons-1]; now.BE > far.BE {
		t.Errorf("%+v: more now than through %+v, and nothing takes it back", now, far)
	}
	for i, term := range f.Busy.Terms {
		want := min(1, max(term.Profile*f.Busy.Level, f.Busy.High)*(1+w.p.Margin))
		if term.Cold != "" {
			want = 1
		}
		if term.CPU != want {
			t.Errorf("busy in %s %v, by its terms %v", r.Horizons[i].Name, term.CPU, want)
		}
	}
	return f
}

// Of 80 GiB a service has 20 by night and 30 by day, a system task 1, batch work 16, and nobody's processes with the driver 3. A first day
// nothing is offered; then what is left of 76 (5 % are reserved) by 33 of the service and 4 of others, batch work's own included.
func TestGPUs(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 4), task(2, "cron", model.System, 1), task(3, "batch", model.BE, 0))
	read := func() *model.GPUReading {
		lc := 20.0
		if w.v.WallNsec/hour%24 >= 8 {
			lc = 30
		}
		return &model.GPUReading{GPUs: []model.GPU{
			oneGPU("GPU-a", 0.5, 80, 80-lc-1-16-3, has(1, lc), has(2, 1), has(3, 16), has(9, 0.5)), // 9 is gone, and among the 3
			oneGPU("GPU-b", 0, 80, 79.5),
		}}
	}
	r := w.withGPUs(1, read)
	if f := checkGPU(t, w, r, 0); f.Memory.Horizons[0].BE != 0 || f.Memory.Horizons[0].Cold != 2 || f.Memory.Tasks[0].Last.V != 20*gib || f.Memory.Others.Last.V != 4*gib || f.Busy.Terms[0].CPU != 1 {
		t.Errorf("the first minute: %+v", f)
	}
	if want := (GPUUser{3, "/t3", "batch", model.BE, 16 * gib}); len(r.GPU.GPUs[0].Users) != 3 || r.GPU.GPUs[0].Users[2] != want {
		t.Errorf("%+v", r.GPU.GPUs[0].Users)
	}
	f := checkGPU(t, w, w.withGPUs(3*24*60+40, read), 0) // to midnight and 40 minutes: 20 of late, 30 through a day
	now, far := f.Memory.Horizons[0], f.Memory.Horizons[numHorizons-1]
	if f.Memory.Others.Class != model.System || f.Memory.Tasks[0].Class != model.LC {
		t.Errorf("%+v", f.Memory)
	}
	if near := func(v, want float64) bool { return v >= want && v < want*1.2 }; now.Cold != 0 || !near(now.LC/gib, 22) || !near(far.LC/gib, 33) || !near(far.Others/gib, 4.4) || !near(f.Busy.Terms[0].CPU, 0.55) {
		t.Errorf("%+v, %+v, busy %+v", now, far, f.Busy)
	}
	if now.BE != far.BE || !strings.Contains(now.BoundWhy, "nothing takes a GPU's memory back") || far.BE < 30*gib || far.BE > 39*gib {
		t.Errorf("offered are %.1f GiB now (%s), and %.1f", now.BE/gib, now.BoundWhy, far.BE/gib)
	}
	if f := checkGPU(t, w, &w.s.report, 1); f.Memory.Horizons[0].BE < 74*gib || len(f.Users) != 0 {
		t.Errorf("the idle one: %+v", f.Memory.Horizons[0])
	}

	// A state that is written and read back goes on the same, and what was learned outlives a restart.
	b, err := json.Marshal(&w.s)
	if err != nil {
		t.Fatal(err)
	}
	again := newWorld(w.v.Tasks...)
	again.v, again.obs, again.v.Window.Observation = w.v, w.obs, &again.obs
	if err := json.Unmarshal(b, &again.s); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(w.withGPUs(2, read).Clone(), again.withGPUs(2, read).Clone()); d != "" {
		t.Error(d)
	}
	fresh := newWorld(w.v.Tasks...)
	fresh.v.WallNsec = w.v.WallNsec
	fresh.s.Restore(w.s.Keep())
	if f := checkGPU(t, fresh, fresh.withGPUs(1, read), 0); f.Memory.Horizons[0].Cold != 0 || f.Memory.Horizons[0].BE < 30*gib {
		t.Errorf("after a restart: %+v", f.Memory.Horizons[0])
	}
}

// What was not read is said, and never made up: a reading that failed has no GPU in it, nor has one that is old; a divided GPU and one that does
// not tell its memory have no horizon; memory of a process that is not told counts as others'.
func TestGPUsUnread(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 4))
	if r := w.withGPUs(1, func() *model.GPUReading { return nil }); r.GPU.Why != "" || len(r.GPU.GPUs) != 0 {
		t.Errorf("%+v", r.GPU)
	}
	r := w.withGPUs(1, func() *model.GPUReading {
		mig, mute, part := oneGPU("GPU-a", 0, 80, 40, has(1, 30)), oneGPU("GPU-b", 0, 80, 40), oneGPU("GPU-c", 0, 80, 40, has(1, 10))
		mig.MIG, mig.Busy, mute.Free, part.Untold = true, model.Missing(model.Unavailable), model.Missing(model.Unavailable), 2
		return &model.GPUReading{GPUs: []model.GPU{mig, mute, part}}
	})
	for i, why := range []string{"MIG", "does not tell"} {
		if f := &r.GPU.GPUs[i]; !strings.Contains(f.Why, why) || len(f.Memory.Horizons) != 0 || f.Memory.Total.V != 80*gib {
			t.Errorf("%+v", f)
		}
	}
	if f := &r.GPU.GPUs[0]; len(f.Users) != 1 || f.Busy.Last.Outcome == model.OK || f.Busy.Terms[0].CPU != 1 || f.Busy.Terms[0].Cold == "" {
		t.Errorf("%+v", f)
	}
	if f := checkGPU(t, w, r, 2); f.Untold != 2 || f.Memory.Others.Last.V != 30*gib {
		t.Errorf("%+v", f)
	}
	clone := r.Clone()
	if r := w.withGPUs(1, func() *model.GPUReading { return &model.GPUReading{Why: "not read: x"} }); r.GPU.Why != "not read: x" || len(r.GPU.GPUs) != 0 {
		t.Errorf("%+v", r.GPU)
	}
	one := func() *model.GPUReading { return &model.GPUReading{GPUs: []model.GPU{oneGPU("GPU-c", 0, 80, 40)}} }
	if r := w.withGPUs(1, one); len(r.GPU.GPUs) != 1 || len(w.s.GPUs) != 1 {
		t.Errorf("%+v", r.GPU)
	}
	if len(clone.GPU.GPUs) != 3 || clone.GPU.GPUs[0].UUID != "GPU-a" {
		t.Errorf("a copy changed: %+v", clone.GPU)
	}
	if r := w.withGPUs(59, func() *model.GPUReading { return nil }); len(r.GPU.GPUs) != 1 {
		t.Errorf("within the hour: %+v", r.GPU)
	}
	if r := w.withGPUs(3, func() *model.GPUReading { return nil }); len(r.GPU.GPUs) != 0 || !strings.HasPrefix(r.GPU.Why, "not read") {
		t.Errorf("after it: %+v", r.GPU)
	}
}

// The profiles of a GPU that is here are not forgotten, those of one that is gone are.
func TestGPUsAreForgotten(t *testing.T) {
	w := newWorld()
	w.p.HalfLifeDays = 0.1
	gone := false
	named := func() (n int) {
		for _, o := range w.s.Profiles {
			n += policy.One(strings.HasPrefix(o.Job, "(GPU ") && o.SinceNsec < monday+hour) // else it was made anew
		}
		return n
	}
	read := func() *model.GPUReading {
		list := []model.GPU{oneGPU("GPU-a", 0, 80, 40), oneGPU("GPU-b", 0, 80, 40)}
		if list[0].Busy = model.Missing(model.Unavailable); gone {
			list = list[:1]
		}
		return &model.GPUReading{GPUs: list}
	}
	if w.withGPUs(24*60, read); named() != 4 {
		t.Errorf("%d profiles", named())
	}
	if gone = true; len(w.withGPUs(24*60, read).GPU.GPUs) != 1 || named() != 2 {
		t.Errorf("%d profiles", named())
	}
}
