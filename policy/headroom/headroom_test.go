package headroom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// world is a machine of 16 CPUs whose windows a test makes.
type world struct {
	p   Params
	s   State
	v   policy.View
	obs model.Observation
	w   policy.Wishes

	memory func(num model.TaskNum) (inUse, inactive float64) // GiB; nil: it is not read
}

const monday = int64(1.7e18) / day * day // some midnight

// task is a task with a quota in CPUs; 0: without.
func task(num int, job string, class model.Class, quota float64) policy.TaskView {
	t := policy.TaskView{Task: model.Task{Num: model.TaskNum(num), Path: fmt.Sprintf("/t%d", num), Job: job, Class: class}}
	k := &t.Knobs[model.CPUBandwidth]
	k.Known, k.Found = true, model.Bandwidth(model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000})
	if quota > 0 {
		k.Found.QuotaUsec = int64(quota * 100_000)
	}
	k.Now = k.Found
	return t
}

func newWorld(tasks ...policy.TaskView) *world {
	w := &world{p: Defaults()}
	w.v = policy.View{NowNsec: hour, WallNsec: monday, Tasks: tasks, Changed: true, TakeBackNsec: 1e9, TakeBackBy: "demote"}
	w.v.Window = policy.Window{Closed: true, LengthNsec: 10e9, Observation: &w.obs}
	w.obs = model.Observation{CPUs: 16, Unmanaged: model.Known(0.25), Steal: model.Known(0)}
	for i := range tasks {
		w.obs.Tasks = append(w.obs.Tasks, model.TaskObservation{Num: tasks[i].Task.Num, CPU: model.Known(0)})
	}
	return w
}

// pass lets a minute pass, in which tasks use what cpu says.
func (w *world) pass(cpu func(num model.TaskNum) model.Value) *Report {
	w.v.NowNsec += minute
	w.v.WallNsec += minute
	used := 0.0
	for i := range w.obs.Tasks {
		o := &w.obs.Tasks[i]
		if o.CPU = cpu(o.Num); w.memory != nil {
			inUse, inactive := w.memory(o.Num)
			o.InUse, o.Inactive = model.Known(inUse*gib), model.Known(inactive*gib)
			used += inUse - inactive
		}
	}
	if w.obs.Room = (model.Room{}); w.memory != nil {
		w.obs.Room = model.Room{Total: model.Known(64 * gib), Available: model.Known((62 - used) * gib)}
	}
	w.w.Reset()
	w.s.Step(&w.p, &w.v, &w.w)
	w.v.Changed = false
	return w.s.Report()
}

// diurnal is low at night and high by day.
func (w *world) diurnal(night, noon float64) func(model.TaskNum) model.Value {
	return func(model.TaskNum) model.Value {
		at := float64(w.v.WallNsec%day) / float64(day)
		return model.Known(night + (noon-night)*(1-math.Cos(2*math.Pi*at))/2)
	}
}

func (w *world) days(n float64, cpu func(model.TaskNum) model.Value) (r *Report) {
	for range int(n * 24 * 60) {
		r = w.pass(cpu)
	}
	return r
}

// check holds a report to what is true of each: horizons are nested, and each figure follows from its terms.
func check(t *testing.T, p *Params, r *Report) {
	t.Helper()
	if len(r.Horizons) != numHorizons {
		t.Fatalf("%d horizons", len(r.Horizons))
	}
	for i, h := range r.Horizons {
		lc, system, cold := 0.0, 0.0, 0
		for _, f := range append(slices.Clone(r.Tasks), r.Others) {
			term := f.Terms[i]
			want := min(f.Limit, max(term.Profile*f.Level, f.High)*(1+p.Margin))
			if term.Cold != "" {
				want = f.Limit
				cold++
			}
			if term.CPU != want || !(term.CPU >= 0) || term.CPU > f.Limit {
				t.Errorf("%s: %s of %v is %v by its terms", h.Name, f.Path, term.CPU, want)
			}
			switch {
			case f.Job == Others:
			case f.Class == model.LC:
				lc += term.CPU
			default:
				system += term.CPU
			}
		}
		want := max(0, h.CPUs-h.Reserve-h.LC-h.System-h.Others)
		if h.BoundWhy != "" {
			want = r.Horizons[numHorizons-1].BE
		}
		if h.BE != want || h.LC != lc || h.System != system || h.Cold != cold {
			t.Errorf("%+v; by its terms %v, %v, %v, %d cold", h, want, lc, system, cold)
		}
		if i > 0 && (h.BE > r.Horizons[i-1].BE && r.Horizons[i-1].BoundWhy == "" || h.Nsec < r.Horizons[i-1].Nsec) {
			t.Errorf("%s has more than %s", h.Name, r.Horizons[i-1].Name)
		}
	}
}

// Until a day was seen tasks are taken to need all that they may have; then what they did at this hour.
func TestColdStartAndTide(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 4), task(2, "web", model.LC, 0), task(3, "cron", model.System, 1), task(4, "batch", model.BE, 0))
	r := w.pass(w.diurnal(0.5, 2))
	check(t, &w.p, r)
	if r.Horizons[0].BE != 0 || r.Horizons[0].LC != 20 || r.Horizons[0].System != 1 || r.Horizons[0].Cold != 4 || len(r.Tasks) != 3 {
		t.Errorf("the first minute: %+v", r.Horizons[0])
	}
	r = w.days(0.98, w.diurnal(0.5, 2))
	if r.Horizons[0].BE != 0 || r.Horizons[0].Cold != 4 {
		t.Errorf("before a day is over: %+v", r.Horizons[0])
	}
	r = w.days(6.02, w.diurnal(0.5, 2)) // midnight
	check(t, &w.p, r)
	now, far := r.Horizons[0], r.Horizons[3]
	if now.Cold != 0 || now.LC < 1 || now.LC > 1.5 || far.LC < 4 || far.LC > 4.8 {
		t.Errorf("after a week, at midnight: now %+v, through the day %+v", now, far)
	}
	if noon, night := r.Hours[12], r.Hours[0]; noon.Outcome != model.OK || night.V-noon.V < 3 {
		t.Errorf("night %v, noon %v", night, noon)
	}
	if term := r.Tasks[0].Terms[3]; term.Hour < 10 || term.Hour > 13 {
		t.Errorf("the busiest hour is %d", term.Hour)
	}
}

// A task that came with a job that is known is not cold; one of another job is, and takes the machine.
func TestNewTask(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 0))
	w.days(3, w.diurnal(1, 2))
	w.v.Tasks = append(w.v.Tasks, task(2, "web", model.LC, 0))
	w.obs.Tasks = append(w.obs.Tasks, model.TaskObservation{Num: 2})
	w.v.Changed = true
	if r := w.pass(w.diurnal(1, 2)); r.Horizons[3].Cold != 0 || r.Horizons[3].LC > 5 {
		t.Errorf("of a known job: %+v", r.Horizons[3])
	}
	w.v.Tasks = append(w.v.Tasks, task(3, "new", model.LC, 0))
	w.v.Changed = true
	r := w.pass(w.diurnal(1, 2))
	check(t, &w.p, r)
	if h := r.Horizons[0]; h.Cold != 1 || h.BE != 0 || r.Tasks[2].Terms[0].Cold == "" || r.Tasks[2].Of != "all CPUs" {
		t.Errorf("of a new job: %+v, %+v", h, r.Tasks[2])
	}
}

// A surge counts at once and for as long as it is recent; a level that stays raises the profile; a quieter day lowers nothing.
func TestSurgeLevelAndQuiet(t *testing.T) {
	flat := func(cpu float64) func(model.TaskNum) model.Value {
		return func(model.TaskNum) model.Value { return model.Known(cpu) }
	}
	w := newWorld(task(1, "web", model.LC, 0))
	quiet := w.days(7, flat(1)).Horizons[0].LC
	if quiet < 1 || quiet > 1.2 {
		t.Fatalf("steady at 1: %v", quiet)
	}
	if lc := w.pass(flat(6)).Horizons[0].LC; lc < 6.5 || lc > 6.7 {
		t.Errorf("a surge to 6: %v", lc)
	}
	for range 36 {
		w.pass(flat(1))
	}
	if lc := w.pass(flat(1)).Horizons[0].LC; lc > 1.1*quiet {
		t.Errorf("36 minutes after the surge: %v", lc)
	}
	for range 240 {
		w.pass(flat(1.5))
	}
	if r := w.pass(flat(1.5)); r.Tasks[0].Level < 1.2 || r.Horizons[3].LC < 1.5 {
		t.Errorf("four hours at 1.5: level %v, %v", r.Tasks[0].Level, r.Horizons[3].LC)
	}
	if lc := w.days(1, flat(0.1)).Horizons[3].LC; lc < quiet {
		t.Errorf("a quiet day: %v", lc)
	}
}

// Nobody takes CPU back: work without an end has what is there through the longest horizon.
func TestTakeBack(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 0))
	w.days(3, w.diurnal(0.5, 8))
	w.v.TakeBackNsec, w.v.TakeBackBy = 0, ""
	r := w.pass(w.diurnal(0.5, 8))
	check(t, &w.p, r)
	if r.Horizons[0].BE != r.Horizons[3].BE || r.Horizons[0].BoundWhy == "" || r.Horizons[1].BE <= r.Horizons[3].BE {
		t.Errorf("%+v", r.Horizons)
	}
}

// A usage that cannot be read is no zero: after an hour its task is taken to need all it may have.
func TestUnread(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 3))
	w.days(3, w.diurnal(1, 1))
	for i, bad := range []model.Value{model.Missing(model.GoneBackwards), model.Known(math.NaN()), model.Known(math.Inf(1)), model.Known(-1), {V: 1e300, Outcome: model.OK}} {
		for range 15 {
			w.pass(func(model.TaskNum) model.Value { return bad })
		}
		if r := w.s.Report(); i == 0 && (r.Horizons[0].Cold != 0 || r.Tasks[0].Last.Outcome != model.GoneBackwards) {
			t.Errorf("%v for a quarter of an hour: %+v", bad, r.Tasks[0])
		}
	}
	r := w.s.Report()
	check(t, &w.p, r)
	if r.Tasks[0].Terms[0].Cold == "" || r.Horizons[0].LC != 3 {
		t.Errorf("%+v", r.Tasks[0])
	}
}

// A clock that jumps neither breaks anything nor lends hope.
func TestClock(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 0))
	w.days(3, w.diurnal(1, 2))
	for _, jump := range []int64{-10 * day, 400 * day, -1 << 62, 1 << 61} {
		w.v.WallNsec += jump
		w.s.NextNsec = 0
		r := w.pass(w.diurnal(1, 2))
		check(t, &w.p, r)
		if r.Horizons[3].BE != 0 {
			t.Errorf("after a jump of %d days: %+v", jump/day, r.Horizons[3])
		}
		w.v.WallNsec -= jump
	}
}

// What the policy remembers, read back at any minute, leads to the same forecasts, and is bounded.
func TestCheckpoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	w := newWorld(task(1, "web", model.LC, 4), task(2, "db", model.LC, 0), task(3, "batch", model.BE, 0))
	w.p.ColdStartNsec, w.p.FillNsec = 0, 5*minute
	w.memory = func(model.TaskNum) (float64, float64) { return 1 + 2*rng.ExpFloat64(), rng.Float64() }
	noisy := func(model.TaskNum) model.Value {
		if rng.IntN(20) == 0 {
			return model.Missing(model.Unavailable)
		}
		return model.Known(2 * rng.ExpFloat64())
	}
	for range 20 {
		w.days(0.3, noisy)
		b, err := json.Marshal(&w.s)
		if err != nil || len(b) > 60_000 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		twin := *w
		twin.s = State{}
		if err := json.Unmarshal(b, &twin.s); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(&twin.s)
		if err != nil || !bytes.Equal(b, again) {
			t.Fatalf("read back it is another: %v", err)
		}
		for range 3 {
			one := w.pass(noisy)
			twin.v.NowNsec, twin.v.WallNsec = w.v.NowNsec, w.v.WallNsec
			twin.s.Step(&twin.p, &twin.v, &twin.w) // it shares the observation
			if d := cmp.Diff(one, twin.s.Report(), cmpopts.EquateNaNs()); d != "" {
				t.Fatal(d)
			}
		}
	}
	var fresh State
	fresh.Restore(w.s.Keep())
	if one, two := fresh.Profiles, w.s.Profiles; len(one) != len(two) || one[0].Hours != two[0].Hours || one[0] == two[0] {
		t.Error("what is kept is not what was learned, or is shared with it")
	}
	for i := range 2 * maxJobs {
		w.v.Tasks = append(w.v.Tasks, task(10+i, fmt.Sprint("job", i), model.LC, 1))
	}
	w.v.Changed = true
	if r := w.pass(noisy); len(w.s.Profiles) != maxJobs || r.Tasks[len(r.Tasks)-1].Terms[0].Cold == "" {
		t.Errorf("%d profiles", len(w.s.Profiles))
	}
	w.v.Tasks, w.v.Changed = w.v.Tasks[:1], true
	w.pass(noisy)
	w.v.WallNsec += 60 * day
	if w.pass(noisy); len(w.s.Profiles) != 2 {
		t.Errorf("%d profiles two months after their jobs are gone", len(w.s.Profiles))
	}
}

// The histogram's percentile is at most a bucket above that of the plain list.
func TestHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var h Hour
		var list []float64
		scale := math.Exp(rng.NormFloat64())
		for range 1 + rng.IntN(500) {
			x := scale * math.Exp(rng.NormFloat64())
			list = append(list, x)
			h.add(x, 10)
		}
		slices.Sort(list)
		for _, share := range []float64{0.5, 0.9, 0.98, 1} {
			got, _ := h.read(share)
			want := list[int(math.Ceil(share*float64(len(list))))-1]
			if got < want && want > first || got > max(first, want*growth*(1+1e-9)) {
				t.Fatalf("percentile %v of %d: %v, in the list %v", share, len(list), got, want)
			}
		}
		before := h.total
		h.age(h.day+7, 7)
		if h.total > before/2 || h.total+numBuckets < before/2 {
			t.Fatalf("after a half-life %d of %d", h.total, before)
		}
	}
	var h Hour
	h.add(1, math.MaxUint32)
	h.add(1, math.MaxUint32)
	if h.add(1e9, 1); h.total != math.MaxUint32+1 || h.weights[numBuckets-1] != 1 {
		t.Errorf("%d", h.total)
	}
}

// A damaged checkpoint is an error, never a panic.
func FuzzHours(f *testing.F) {
	for _, text := range []string{`{"3":"3 4 250:1,2,3,4,5,6"}`, `{"0":"1 1 -1:1"}`, `{"24":"1 1 "}`, `{"1":"7"}`, `{"1":"7 8 3:4,"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var l, again Hours
		if json.Unmarshal([]byte(text), &l) != nil {
			return
		}
		b, err := json.Marshal(&l)
		if err != nil || json.Unmarshal(b, &again) != nil {
			t.Fatalf("%s, %v", b, err)
		}
		for i := range l {
			if again[i].weights != l[i].weights || again[i].total != l[i].total {
				t.Errorf("%s", b)
			}
		}
	})
}

// A minute in which nothing is new, forecast and all, allocates nothing.
func TestSteadyStep(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 4), task(2, "db", model.LC, 0), task(3, "batch", model.BE, 0))
	load := w.diurnal(1, 2)
	w.memory = func(num model.TaskNum) (float64, float64) { return float64(num), 0.5 }
	w.days(2, load)
	if a := testing.AllocsPerRun(200, func() { w.pass(load) }); a > 0 {
		t.Errorf("%.1f allocations", a)
	}
	if !w.w.AsBefore || len(w.w.Claims) > 0 {
		t.Error("it wishes for something")
	}
}

// Off it neither learns nor says anything.
func TestOff(t *testing.T) {
	w := newWorld(task(1, "web", model.LC, 4))
	w.v.Mode = model.ModeOff
	if r := w.pass(w.diurnal(1, 1)); len(r.Horizons) != 0 || len(w.s.Profiles) != 0 || w.s.Note(model.ModeOff) == "" {
		t.Errorf("%+v", r)
	}
}

// BenchmarkStep is a window of 150 tasks of 30 jobs with its forecast.
func BenchmarkStep(b *testing.B) {
	var tasks []policy.TaskView
	for i := range 150 {
		tasks = append(tasks, task(1+i, fmt.Sprint("job", i%30), model.LC, 0))
	}
	w := newWorld(tasks...)
	load := w.diurnal(0.1, 0.2)
	w.days(1.1, load)
	for b.Loop() {
		w.pass(load)
	}
}
