package headroom

import (
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Of each GPU two memories are forecast as that of the machine is: what LC tasks have of it together, and what neither they nor BE have (system
// tasks, processes of no task, the driver). By the GPU and not by the job: a service keeps to its GPUs, and readings of a minute are few. Its
// profiles are kept as those of jobs are, under the GPU's name.
//
// Drivers tell of processes how much memory they have, and not how much of the GPU's time: that is forecast of the whole GPU, BE's work
// included, and nothing of it is promised to anybody. Nothing takes a GPU's memory back from BE, so "now" is what the longest horizon says.
//
// A GPU in MIG mode is divided into instances that lend each other nothing. A sum over them says nothing of what fits: there is none.

// gpuBound is why of a GPU "now" is no more than the longest horizon.
const gpuBound = "as through the longest horizon: nothing takes a GPU's memory back from best-effort work"

// GPUTrack is what is remembered of one GPU.
type GPUTrack struct {
	UUID   string      `json:"uuid"`
	Busy   Task        `json:"busy"`   // its time; its number is none
	LC     MemoryTrack `json:"lc"`     // what LC tasks have together
	Others MemoryTrack `json:"others"` // what neither they nor BE tasks have

	lc *Profile // of LC; Busy has that of others, and of the GPU's time
}

// GPUReport is the forecast of GPUs with all its terms.
type GPUReport struct {
	Why  string        `json:"why"` // why there is none, or of which there is none
	GPUs []GPUForecast `json:"gpus"`
}

// GPUForecast is that of one GPU.
type GPUForecast struct {
	UUID string `json:"uuid"`
	Why  string `json:"why,omitempty"` // why no horizon says what BE may have of its memory
	// Memory is the GPU's own: its one task is all LC tasks together, which have Last of it.
	Memory MemoryReport `json:"memory"`
	// Busy is the share of its time in which something runs on it, BE's work included, at most 1 (in the place of CPUs).
	Busy   TaskForecast `json:"busy"`
	Users  []GPUUser    `json:"users"`  // of the last reading
	Untold int          `json:"untold"` // processes whose memory the driver does not tell: it counts as others'
}

// GPUUser is a task that has memory on a GPU.
type GPUUser struct {
	Task  model.TaskNum `json:"task"`
	Path  string        `json:"path"`
	Job   string        `json:"job"`
	Class model.Class   `json:"class"`
	Bytes float64       `json:"bytes"`
}

func (r *GPUReport) clone() GPUReport {
	c := *r
	c.GPUs = append([]GPUForecast{}, r.GPUs...)
	for i := range c.GPUs {
		f := &c.GPUs[i]
		f.Memory, f.Users, f.Busy.Terms = f.Memory.clone(), append([]GPUUser{}, f.Users...), slices.Clone(f.Busy.Terms)
	}
	return c
}

// matchGPU finds a GPU's profiles.
func (s *State) matchGPU(t *GPUTrack, wallNsec int64) {
	name := "(GPU " + strings.TrimPrefix(t.UUID, "GPU-") + ")"
	t.lc, t.Busy.profile = s.profile(model.LC, name, wallNsec), s.profile(model.System, name, wallNsec)
}

// gpu returns what is remembered of a GPU; one that is new is remembered from now on.
func (s *State) gpu(uuid string, wallNsec int64) *GPUTrack {
	i, ok := slices.BinarySearchFunc(s.GPUs, uuid, func(t GPUTrack, uuid string) int { return strings.Compare(t.UUID, uuid) })
	if !ok {
		s.GPUs = slices.Insert(s.GPUs, i, GPUTrack{UUID: uuid})
		s.matchGPU(&s.GPUs[i], wallNsec)
	}
	return &s.GPUs[i]
}

// learnGPUs takes in what GPUs said since the window before, if they were read.
func (s *State) learnGPUs(p *Params, v *policy.View, obs *model.Observation, gap int64) {
	if obs.GPUs == nil {
		return
	}
	s.Read = obs.GPUs
	if len(s.Read.GPUs) > 0 { // who is gone is forgotten; the profile stays for a while
		s.GPUs = slices.DeleteFunc(s.GPUs, func(t GPUTrack) bool {
			return !slices.ContainsFunc(s.Read.GPUs, func(g model.GPU) bool { return g.UUID == t.UUID })
		})
	}
	for i := range s.Read.GPUs {
		g := &s.Read.GPUs[i]
		t := s.gpu(g.UUID, v.WallNsec)
		lasts := gap
		if t.Busy.SeenNsec != 0 {
			lasts = min(max(v.NowNsec-t.Busy.SeenNsec, unit), maxGapNsec)
		}
		t.Busy.take(p, v, g.Busy, lasts, t.Busy.profile, cpuHours)
		lc, others := model.Missing(model.Unavailable), model.Missing(model.Unavailable)
		if g.Total.Outcome == model.OK && g.Free.Outcome == model.OK {
			sums := usedBy(v, g)
			lc = model.Known(sums[model.LC])
			others = model.Known(max(0, g.Total.V-g.Free.V-sums[model.LC]-sums[model.BE]))
		}
		t.LC.takeMemory(p, v, lc, gap, t.lc)
		t.Others.takeMemory(p, v, others, gap, t.Busy.profile)
	}
}

// usedBy sums up by class what tasks have of a GPU's memory. Those that have ended since are in none.
func usedBy(v *policy.View, g *model.GPU) map[model.Class]float64 {
	sums := map[model.Class]float64{}
	for _, u := range g.Tasks {
		if t := v.Task(u.Num); t != nil {
			sums[t.Task.Class] += float64(u.Bytes)
		}
	}
	return sums
}

// forecastGPUs makes the report's part of GPUs anew.
func (s *State) forecastGPUs(p *Params, v *policy.View, report *Report) {
	r := &report.GPU
	r.Why, r.GPUs = "", r.GPUs[:0]
	if s.Read == nil {
		return
	}
	r.Why = s.Read.Why
	if len(s.Read.GPUs) > 0 && v.NowNsec-s.Read.MonoNsec > hour {
		r.Why = "not read: nothing was heard of them in the last hour"
		return
	}
	for i := range s.Read.GPUs {
		r.GPUs = append(r.GPUs, s.forecastGPU(p, v, report, &s.Read.GPUs[i]))
	}
}

func (s *State) forecastGPU(p *Params, v *policy.View, report *Report, g *model.GPU) GPUForecast {
	t := s.gpu(g.UUID, v.WallNsec)
	f := GPUForecast{UUID: g.UUID, Untold: g.Untold, Busy: TaskForecast{Path: g.UUID, Limit: 1, Of: "all of its time"}}
	t.Busy.terms(p, v, report.Horizons, &f.Busy)
	for _, u := range g.Tasks {
		if t := v.Task(u.Num); t != nil {
			f.Users = append(f.Users, GPUUser{u.Num, t.Task.Path, t.Task.Job, t.Task.Class, float64(u.Bytes)})
		}
	}
	m := &f.Memory
	m.Total, m.Available = g.Total, g.Free
	switch {
	case g.MIG:
		f.Why = "it is in MIG mode: its instances lend each other nothing, and a sum over them says nothing of what fits"
		return f
	case g.Total.Outcome != model.OK || g.Free.Outcome != model.OK:
		f.Why = "its driver does not tell how much memory it has, or is free"
		return f
	}
	for i := range report.Horizons {
		h := &report.Horizons[i]
		m.Horizons = append(m.Horizons, MemoryHorizon{Name: h.Name, Nsec: h.Nsec, Total: g.Total.V, Reserve: g.Total.V * p.Reserve})
	}
	m.Horizons[0].Nsec = everyNsec
	m.Tasks = []MemoryForecast{{Path: "(all services)", Class: model.LC}}
	m.Others.Path, m.Others.Class = "(others)", model.System
	t.LC.forecast(p, v, m, &m.Tasks[0], t.lc)
	t.Others.forecast(p, v, m, &m.Others, t.Busy.profile)
	m.sum(gpuBound)
	return f
}
