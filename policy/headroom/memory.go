package headroom

import (
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Memory is forecast as CPU is, with three differences. What a task needs is its working set: what it has less the page cache that
// the kernel takes back first (inactive_file; what Kubernetes evicts by). It does not come back by itself, so what a task grew by in a day
// is taken to go on (a leak). And BE gives memory back for sure only where it may be ended: a task that is frozen keeps it.
//
// A window without a reading says nothing of memory: hosts read it once a minute unless policy pressure asks for more.

// gib is the unit of profiles: their buckets go from 10 MiB to 2.5 TiB.
const gib = 1 << 30

// memoryBound is why "now" is no more than the longest horizon.
const memoryBound = "as through the longest horizon: no policy enforces that ends best-effort work (pressure.end), and who is frozen keeps its memory"

// numHours is how many hours a task's highest working set is kept for: this one, and a day before.
const numHours = 25

// MemoryTrack is what is remembered of one task's memory, in GiB.
type MemoryTrack struct {
	Track
	Cache model.Value `json:"cache,omitzero"` // page cache that is taken back first, bytes, in the last window
	Limit model.Value `json:"limit,omitzero"` // what it may have, bytes
	// Day are the highest working sets by the hour, up to the one at Hour, counted from 0 of the monotonic clock.
	Day  [numHours]float32 `json:"day,omitzero"`
	Hour int64             `json:"hour,omitempty"`
}

// MemoryReport is the forecast of memory with all its terms, in bytes.
type MemoryReport struct {
	// Total and Available are the machine's, of the last reading; where that is missing there is no forecast.
	Total        model.Value      `json:"total"`
	Available    model.Value      `json:"available"`
	Horizons     []MemoryHorizon  `json:"horizons"`
	TakeBackNsec int64            `json:"take_back_nsec"` // how soon it comes back from BE, by the policy TakeBackBy; 0: not for sure
	TakeBackBy   string           `json:"take_back_by"`
	Tasks        []MemoryForecast `json:"tasks"`  // LC and system
	Others       MemoryForecast   `json:"others"` // what is in use and no task's
}

// MemoryHorizon is what BE may have from now to some time: BE = Total - Reserve - LC - System - Others, at least 0; of the first one
// no more than of the last, where BoundWhy says so.
type MemoryHorizon struct {
	Name     string  `json:"name"`
	Nsec     int64   `json:"nsec"`
	BE       float64 `json:"be"`
	Total    float64 `json:"total"`
	Reserve  float64 `json:"reserve"`
	LC       float64 `json:"lc"`
	System   float64 `json:"system"`
	Others   float64 `json:"others"`
	Cold     int     `json:"cold"` // tasks that are taken to need all that they may have
	BoundWhy string  `json:"bound_why,omitempty"`
}

// MemoryForecast is what one task is taken to need.
type MemoryForecast struct {
	Task  model.TaskNum `json:"task"`
	Path  string        `json:"path"`
	Job   string        `json:"job"`
	Class model.Class   `json:"class"`
	Last  model.Value   `json:"last"`   // its working set at the last reading
	Cache model.Value   `json:"cache"`  // page cache beside, which is taken back first: in no other figure
	Limit float64       `json:"limit"`  // what it may have: Of says which
	Of    string        `json:"of"`     // "its limit" or "all memory"
	High  float64       `json:"recent"` // the highest of late
	Level float64       `json:"level"`  // by what its profile is raised
	Trend float64       `json:"trend"`  // bytes a second by which it is more than a day ago
	Terms []MemoryTerm  `json:"terms"`  // by horizon
}

// MemoryTerm is a forecast: Bytes = min(Limit, max(Profile x Level, High + Growth) x (1 + margin)), or Limit where Cold says why.
type MemoryTerm struct {
	Bytes   float64 `json:"bytes"`
	Profile float64 `json:"profile"` // the highest of the hours ahead ...
	Hour    int     `json:"hour"`    // ... which is this one of the day, UTC
	Growth  float64 `json:"growth"`  // Trend over the horizon
	Cold    string  `json:"cold,omitempty"`
}

func (r *MemoryReport) clone() MemoryReport {
	c := *r
	c.Horizons, c.Tasks = append([]MemoryHorizon{}, r.Horizons...), append([]MemoryForecast{}, r.Tasks...)
	for i := range c.Tasks {
		c.Tasks[i].Terms = slices.Clone(c.Tasks[i].Terms)
	}
	c.Others.Terms = slices.Clone(r.Others.Terms)
	return c
}

// learnMemory takes in what the tasks had at a window's end, where it was read.
func (s *State) learnMemory(p *Params, v *policy.View, obs *model.Observation, gap int64) {
	room, all := &obs.Room, 0.0
	if room.Total.Outcome != model.OK || room.Available.Outcome != model.OK {
		return
	}
	s.Total, s.Available = room.Total, room.Available
	j := 0
	for i := range obs.Tasks {
		o := &obs.Tasks[i]
		working := workingSet(o)
		if working.Outcome == model.OK {
			all += working.V
		}
		for j < len(s.Tasks) && s.Tasks[j].Num < o.Num {
			j++
		}
		if j < len(s.Tasks) && s.Tasks[j].Num == o.Num {
			t := &s.Tasks[j].Memory
			t.Cache, t.Limit = o.Inactive, o.Limit
			t.takeMemory(p, v, working, gap, s.Tasks[j].profile)
		}
	}
	s.Others.Memory.takeMemory(p, v, model.Known(max(0, room.Total.V-room.Available.V-all)), gap, s.Others.profile)
}

// workingSet is what a task has less the page cache that is taken back first; where nobody tells how much that is, all of it.
func workingSet(o *model.TaskObservation) model.Value {
	w := o.InUse
	if w.Outcome == model.OK && o.Inactive.Outcome == model.OK {
		w.V = max(0, w.V-o.Inactive.V)
	}
	return w
}

// takeMemory is one task's working set at a reading, which stands for the time since the one before, or for the window.
func (t *MemoryTrack) takeMemory(p *Params, v *policy.View, bytes model.Value, gap int64, o *Profile) {
	if t.SeenNsec != 0 {
		gap = min(max(v.NowNsec-t.SeenNsec, unit), maxGapNsec)
	}
	bytes.V /= gib
	t.take(p, v, bytes, gap, o, memoryHours)
	if t.Last.Outcome != model.OK {
		return
	}
	at := v.NowNsec / hour
	for n := max(t.Hour, at-numHours); n < at; n++ {
		t.Day[(n+1)%numHours] = 0
	}
	t.Hour = max(t.Hour, at)
	t.Day[t.Hour%numHours] = max(t.Day[t.Hour%numHours], float32(t.Last.V))
}

// trend is by how much a second the task has more than in the same hour a day ago, in GiB; 0 where that was not seen: until then its
// job's profile says what is to come. Compared by the day a tide is no growth.
func (t *MemoryTrack) trend(high float64) float64 {
	before := t.Day[(t.Hour+1)%numHours]
	if before <= 0 {
		return 0
	}
	return max(0, high-float64(before)) / (float64(numHours-1) * float64(hour) / 1e9)
}

// forecastMemory makes the report's part of memory anew.
func (s *State) forecastMemory(p *Params, v *policy.View, report *Report) {
	r := &report.Memory
	r.TakeBackNsec, r.TakeBackBy = v.MemoryBackNsec, v.MemoryBackBy
	if s.Others.Memory.SeenNsec == 0 || v.NowNsec-s.Others.Memory.SeenNsec > hour {
		s.Total, s.Available = model.Missing(model.Unavailable), model.Missing(model.Unavailable)
	}
	r.Total, r.Available = s.Total, s.Available
	if r.Horizons = r.Horizons[:0]; r.Total.Outcome != model.OK {
		r.Tasks, r.Others.Terms = r.Tasks[:0], r.Others.Terms[:0]
		return
	}
	for i := range report.Horizons {
		h := &report.Horizons[i]
		r.Horizons = append(r.Horizons, MemoryHorizon{Name: h.Name, Nsec: h.Nsec, Total: r.Total.V, Reserve: r.Total.V * p.Reserve})
	}
	r.Horizons[0].Nsec = max(v.MemoryBackNsec, everyNsec)
	if cap(r.Tasks) < len(s.Tasks) {
		r.Tasks = append(r.Tasks[:cap(r.Tasks)], make([]MemoryForecast, len(s.Tasks)-cap(r.Tasks))...)
	}
	r.Tasks = r.Tasks[:len(s.Tasks)]
	for i := range s.Tasks {
		t, f := &s.Tasks[i], &r.Tasks[i]
		task := &v.Tasks[t.view].Task
		f.Task, f.Path, f.Job, f.Class = t.Num, task.Path, task.Job, task.Class
		t.Memory.forecast(p, v, r, f, t.profile)
	}
	r.Others.Job, r.Others.Path, r.Others.Class = Others, Others, model.System
	s.Others.Memory.forecast(p, v, r, &r.Others, s.Others.profile)
	r.sum(memoryBound)
}

// forecast fills in one task's terms.
func (t *MemoryTrack) forecast(p *Params, v *policy.View, r *MemoryReport, f *MemoryForecast, o *Profile) {
	t.compare(p, v, o, memoryHours)
	high := t.recent(p, v.NowNsec)
	f.Last, f.Cache, f.High, f.Level, f.Trend = t.Last, t.Cache, high*gib, t.level(p), t.trend(high)*gib
	f.Last.V *= gib
	f.Limit, f.Of = r.Total.V, "all memory"
	if t.Limit.Outcome == model.OK && t.Limit.V > 0 && t.Limit.V < f.Limit {
		f.Limit, f.Of = t.Limit.V, "its limit"
	}
	f.Terms = f.Terms[:0]
	unread := t.SeenNsec == 0 || v.NowNsec-t.SeenNsec > hour
	for i := range r.Horizons {
		term := MemoryTerm{Growth: f.Trend * float64(r.Horizons[i].Nsec) / 1e9}
		term.Profile, term.Hour, term.Cold = o.ahead(p, memoryHours, v.WallNsec, r.Horizons[i].Nsec)
		term.Profile *= gib
		if unread && term.Cold == "" {
			term.Cold = "its memory was not read in the last hour"
		}
		term.Bytes = f.Limit
		if term.Cold == "" {
			term.Bytes = math.Min(f.Limit, max(term.Profile*f.Level, f.High+term.Growth)*(1+p.Margin))
		}
		f.Terms = append(f.Terms, term)
	}
}

// sum adds up the terms of each horizon; bound is why "now" is no more than the longest where nobody takes memory back.
func (r *MemoryReport) sum(bound string) {
	for i := range r.Horizons {
		h := &r.Horizons[i]
		h.Others, h.Cold = r.Others.Terms[i].Bytes, policy.One(r.Others.Terms[i].Cold != "")
		for j := range r.Tasks {
			f := &r.Tasks[j]
			h.Cold += policy.One(f.Terms[i].Cold != "")
			if f.Class == model.LC {
				h.LC += f.Terms[i].Bytes
			} else {
				h.System += f.Terms[i].Bytes
			}
		}
		h.BE = max(0, h.Total-h.Reserve-h.LC-h.System-h.Others)
	}
	now, far := &r.Horizons[0], &r.Horizons[numHorizons-1]
	if r.TakeBackNsec == 0 && now.BE > far.BE {
		now.BE, now.BoundWhy = far.BE, bound
	}
}
