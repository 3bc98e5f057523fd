package headroom

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// numHorizons: now, an hour, a quarter of the longest, and the longest.
const numHorizons = 4

// Report is the forecast with all its terms: each figure can be worked out from the others by hand.
type Report struct {
	WallNsec int64 `json:"wall_nsec"` // when it was made; 0: there is none yet
	CPUs     int   `json:"cpus"`      // online
	// Horizons are ordered by length; each speaks of all the time from now to its end, so that none has more for
	// BE than the one before.
	Horizons []Horizon `json:"horizons"`
	// TakeBackNsec is how soon CPU comes back from BE, by the policy TakeBackBy; 0: no policy enforces that.
	TakeBackNsec int64  `json:"take_back_nsec"`
	TakeBackBy   string `json:"take_back_by"`
	// Hours are what BE could use in each hour of the day (UTC) by the profiles alone, CPU-sec/sec: day and night.
	Hours  [24]model.Value `json:"hours"`
	Tasks  []TaskForecast  `json:"tasks"`  // LC and system
	Others TaskForecast    `json:"others"` // what no task uses, and steal
	Memory MemoryReport    `json:"memory"`
	GPU    GPUReport       `json:"gpus"`
	Params Params          `json:"params"`
}

// Horizon is what BE may use from now to some time, in CPU-sec/sec: BE = CPUs - Reserve - LC - System - Others, at
// least 0; of the first one no more than of the last, where BoundWhy says so.
type Horizon struct {
	Name     string  `json:"name"`
	Nsec     int64   `json:"nsec"`
	BE       float64 `json:"be"`
	CPUs     float64 `json:"cpus"`
	Reserve  float64 `json:"reserve"`
	LC       float64 `json:"lc"`     // sum of the forecasts of LC tasks
	System   float64 `json:"system"` // of system tasks
	Others   float64 `json:"others"` // of what no task uses, and steal
	Cold     int     `json:"cold"`   // tasks that are taken to need all that they may have
	BoundWhy string  `json:"bound_why,omitempty"`
}

// TaskForecast is what one task is taken to need.
type TaskForecast struct {
	Task  model.TaskNum `json:"task"`
	Path  string        `json:"path"`
	Job   string        `json:"job"`
	Class model.Class   `json:"class"`
	Last  model.Value   `json:"last"`   // in the last window
	Limit float64       `json:"limit"`  // what it may have: Of says which
	Of    string        `json:"of"`     // "its quota", "its CPUs" or "all CPUs"
	High  float64       `json:"recent"` // the most that it used of late
	Level float64       `json:"level"`  // by what its profile is raised
	Terms []Term        `json:"terms"`  // by horizon
}

// Term is a forecast: CPU = min(Limit, max(Profile x Level, High) x (1 + margin)), or Limit where Cold says why.
type Term struct {
	CPU     float64 `json:"cpu"`
	Profile float64 `json:"profile"` // the highest of the hours ahead ...
	Hour    int     `json:"hour"`    // ... which is this one of the day, UTC
	Cold    string  `json:"cold,omitempty"`
}

// Report returns the last forecast. It is good until the next step.
func (s *State) Report() *Report { return &s.report }

// Clone returns a copy that stays.
func (r *Report) Clone() Report {
	c := *r
	c.Horizons, c.Tasks = append([]Horizon{}, r.Horizons...), append([]TaskForecast{}, r.Tasks...)
	for i := range c.Tasks {
		c.Tasks[i].Terms = slices.Clone(c.Tasks[i].Terms)
	}
	c.Others.Terms = slices.Clone(r.Others.Terms)
	c.Memory, c.GPU = r.Memory.clone(), r.GPU.clone()
	return c
}

// forecast makes the report anew, in the room of the one before.
func (s *State) forecast(p *Params, v *policy.View, obs *model.Observation) {
	r := &s.report
	r.WallNsec, r.CPUs, r.Params = v.WallNsec, obs.CPUs, *p
	r.TakeBackNsec, r.TakeBackBy = v.TakeBackNsec, v.TakeBackBy
	all := float64(obs.CPUs)
	r.Horizons = append(r.Horizons[:0],
		Horizon{Name: "now", Nsec: max(v.TakeBackNsec, everyNsec)}, Horizon{Name: "1h", Nsec: hour},
		Horizon{Name: short(p.HorizonNsec / 4), Nsec: p.HorizonNsec / 4}, Horizon{Name: short(p.HorizonNsec), Nsec: p.HorizonNsec})
	for i := range r.Hours {
		r.Hours[i] = model.Known(all * (1 - p.Reserve))
	}
	if cap(r.Tasks) < len(s.Tasks) {
		r.Tasks = append(r.Tasks[:cap(r.Tasks)], make([]TaskForecast, len(s.Tasks)-cap(r.Tasks))...)
	}
	r.Tasks = r.Tasks[:len(s.Tasks)]
	for i := range s.Tasks {
		t := &s.Tasks[i]
		tv := &v.Tasks[t.view]
		f := &r.Tasks[i]
		f.Task, f.Path, f.Job, f.Class = t.Num, tv.Task.Path, tv.Task.Job, tv.Task.Class
		f.Limit, f.Of = limit(tv, all)
		t.forecast(p, v, r, f)
	}
	r.Others.Job, r.Others.Path, r.Others.Limit, r.Others.Of = Others, Others, all, "all CPUs"
	s.Others.forecast(p, v, r, &r.Others)
	r.sum(p, all)
	s.forecastMemory(p, v, r)
	s.forecastGPUs(p, v, r)
}

// limit is what a task may have: what its quota says, or else the CPUs that it may run on.
func limit(t *policy.TaskView, all float64) (cpus float64, of string) {
	cpus, of = all, "all CPUs"
	if n := float64(t.Task.CPUs); n > 0 && n < cpus {
		cpus, of = n, "its CPUs"
	}
	k := &t.Knobs[model.CPUBandwidth]
	if !k.Known || k.Found.QuotaUsec < 0 || k.Now.QuotaUsec < 0 {
		return cpus, of
	}
	if q := max(k.Found.Ratio(), k.Now.Ratio()); q > 0 && q < cpus { // a raise is for a while, and what was found comes back
		return q, "its quota"
	}
	return cpus, of
}

// short is a duration as people write it.
func short(nsec int64) string {
	if nsec%hour == 0 {
		return hourNames[nsec/hour]
	}
	return time.Duration(nsec).Round(time.Minute).String()
}

// hourNames are the whole hours up to the longest horizon: a forecast that is as the one before makes no text.
var hourNames = func() (names [day/hour + 1]string) {
	for i := range names {
		names[i] = fmt.Sprintf("%dh", i)
	}
	return names
}()

// terms fills in one task's terms.
func (t *Task) terms(p *Params, v *policy.View, horizons []Horizon, f *TaskForecast) {
	t.compare(p, v, t.profile, cpuHours)
	f.Last, f.High, f.Level = t.Last, t.recent(p, v.NowNsec), t.level(p)
	f.Terms = f.Terms[:0]
	unread := v.NowNsec-t.SeenNsec > hour || t.SeenNsec == 0
	for i := range horizons {
		term := Term{}
		term.Profile, term.Hour, term.Cold = t.profile.ahead(p, cpuHours, v.WallNsec, horizons[i].Nsec)
		if unread && term.Cold == "" {
			term.Cold = "its usage was not read in the last hour"
		}
		term.CPU = f.Limit
		if term.Cold == "" {
			term.CPU = min(f.Limit, max(term.Profile*f.Level, f.High)*(1+p.Margin))
		}
		f.Terms = append(f.Terms, term)
	}
}

// forecast fills in one task's terms, and takes it off what the hours of the day leave.
func (t *Task) forecast(p *Params, v *policy.View, r *Report, f *TaskForecast) {
	t.terms(p, v, r.Horizons, f)
	for i := range r.Hours {
		if t.profile == nil || t.profile.cold(p, cpuHours, v.WallNsec, i) != "" {
			r.Hours[i] = model.Missing(model.Unavailable)
		} else if r.Hours[i].Outcome == model.OK {
			high, _ := t.profile.Hours[i].read(p.Percentile)
			r.Hours[i].V = max(0, r.Hours[i].V-min(f.Limit, high*(1+p.Margin)))
		}
	}
}

// compare takes what the task used since the last forecast into the means.
func (t *Track) compare(p *Params, v *policy.View, o *Profile, of func(*Profile) (*Hours, *int64)) {
	if t.OverNsec == 0 {
		return
	}
	used, over := t.SumNsec/float64(t.OverNsec), t.OverNsec
	t.SumNsec, t.OverNsec = 0, 0
	if o == nil || v.WallNsec < 0 {
		return
	}
	at := int(v.WallNsec / hour % 24)
	if o.cold(p, of, v.WallNsec, at) != "" {
		t.Used, t.Expected = 0, 0
		return
	}
	hours, _ := of(o)
	_, mid := hours[at].read(p.Percentile)
	if t.Expected == 0 {
		t.Used, t.Expected = mid, mid // as expected, until it is seen to be otherwise
	}
	share := 1 - math.Exp2(-float64(over)/float64(levelNsec))
	t.Used += (used - t.Used) * share
	t.Expected += (mid - t.Expected) * share
}

// level is by how much the task exceeds its profile.
func (t *Track) level(p *Params) float64 {
	if t.Expected <= 0 {
		return 1
	}
	return min(p.MaxLevel, max(1, t.Used/t.Expected))
}

// ahead looks up the hours between now and a horizon: the highest figure, of which hour of the day it is, or why there is none.
func (o *Profile) ahead(p *Params, of func(*Profile) (*Hours, *int64), wallNsec, horizonNsec int64) (most float64, hourOfDay int, cold string) {
	if o == nil || wallNsec < 0 {
		return 0, 0, "there is no room for more profiles of jobs"
	}
	hours, _ := of(o)
	hourOfDay = int(wallNsec / hour % 24)
	for n := wallNsec / hour; n <= (wallNsec+horizonNsec)/hour && n < wallNsec/hour+24; n++ {
		at := int(n % 24)
		if why := o.cold(p, of, wallNsec, at); why != "" {
			return 0, at, why
		}
		if high, _ := hours[at].read(p.Percentile); high > most {
			most, hourOfDay = high, at
		}
	}
	return most, hourOfDay, ""
}

// cold says why a profile does not count in an hour of the day, "" where it does.
func (o *Profile) cold(p *Params, of func(*Profile) (*Hours, *int64), wallNsec int64, at int) string {
	hours, _ := of(o)
	switch h := &hours[at]; {
	case wallNsec-o.SinceNsec < p.ColdStartNsec:
		return "its job is not known for long enough (cold_start)"
	case h.total == 0 || int64(h.seen)*unit < p.FillNsec:
		return "too little was seen of its job in this hour of the day (fill)"
	}
	return ""
}

// sum adds up the terms of each horizon.
func (r *Report) sum(p *Params, all float64) {
	for i := range r.Horizons {
		h := &r.Horizons[i]
		h.CPUs, h.Reserve, h.Others = all, all*p.Reserve, r.Others.Terms[i].CPU
		if r.Others.Terms[i].Cold != "" {
			h.Cold++
		}
		for j := range r.Tasks {
			f := &r.Tasks[j]
			if f.Terms[i].Cold != "" {
				h.Cold++
			}
			if f.Class == model.LC {
				h.LC += f.Terms[i].CPU
			} else {
				h.System += f.Terms[i].CPU
			}
		}
		h.BE = max(0, h.CPUs-h.Reserve-h.LC-h.System-h.Others)
	}
	now, far := &r.Horizons[0], &r.Horizons[numHorizons-1]
	if r.TakeBackNsec == 0 && now.BE > far.BE {
		now.BE, now.BoundWhy = far.BE, "as through the longest horizon: no policy enforces that takes CPU back from best-effort work"
	}
}
