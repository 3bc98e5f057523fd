// Package headroom forecasts what latency-critical tasks will use of the CPUs, and so what best-effort work
// may use now and in the next hours (Alibaba, section 3.1, which borrows it from Borg: "we estimate the future
// CPU utilisation of each LC instance and overcommit the remaining idle resources").
//
// It claims nothing. It is a policy all the same, since it is what DESIGN.md asks of one: a pure step over what
// windows say, in an order, with a mode, parameters, a memory that is in checkpoints and outlives a restart, so
// that a replay comes to the same figures. Who acts on them is a scheduler. Mode enforce is as observe.
//
// Intuition. A service does today about what it did at this hour on other days. So each job has a histogram of
// its tasks' usage for each hour of the day, in which what is older weighs less, and a task is taken to need
// the percentile of the hours that lie ahead. Two things a profile cannot know are taken from the task itself:
// the most that it used of late, and by how much it exceeds its profile, after a deploy or on a special day.
// They only raise a forecast. A Sunday that is quieter than the profile is BE's loss: to lower forecasts by
// what was just seen would be right until the service wakes up.
//
// What is not known is not hoped for. A job that was seen for less than a day, an hour of the day in which it
// was hardly seen, a task whose usage cannot be read: each is taken to need all that it may have, its quota or
// else all CPUs that it may run on. Not its request, which is what somebody guessed it would need, and which
// the kernel lets it exceed. Where that comes to the whole machine BE is offered nothing, and the task is named.
//
// What BE has must come back in time. Work of a known length may use what its horizon says. Work without an end
// may use what the horizon "now" says only while a policy enforces that takes CPU back; otherwise what is
// given away is gone, and the longest horizon is all there is.
//
// Rejected: an hour of the week, which takes seven times as long to fill; a percentile of the node's sum, which
// is tighter, but cannot say who needs what, and is void as soon as a task comes or goes.
package headroom

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

const (
	minute = int64(60e9)
	hour   = 60 * minute
	day    = 24 * hour

	// slotNsec and numSlots are what a task's highest usage is kept by: the last hour.
	slotNsec = 5 * minute
	numSlots = 12
	// everyNsec is how often forecasts are made.
	everyNsec = minute
	// maxGapNsec is the longest time that a window stands for; what is longer is a hole.
	maxGapNsec = 10 * minute
	// levelNsec is over how long a task is compared with its profile.
	levelNsec = hour
	// maxJobs bounds the profiles. A job beyond them is taken to need all that it may have.
	maxJobs = 256
	// forgetHalfLives: a job without tasks is forgotten after so many half-lives.
	forgetHalfLives = 4
)

// Others is the profile of what no task of ours used, and of what the hypervisor took.
const Others = "(no task, and steal)"

// Profile is what was learned of a job.
type Profile struct {
	Job   string      `json:"job"`
	Class model.Class `json:"class"`
	// SinceNsec and LastNsec are when it was first and last seen, by the wall clock.
	SinceNsec int64 `json:"since_nsec"`
	LastNsec  int64 `json:"last_nsec"`
	Hours     Hours `json:"hours"`
	// Memory is the same of its tasks' working sets, in GiB; MemoryNsec is when one was last seen.
	Memory     Hours `json:"memory,omitzero"`
	MemoryNsec int64 `json:"memory_nsec,omitempty"`
}

func (p *Profile) compare(class model.Class, job string) int {
	return cmp.Or(cmp.Compare(p.Class, class), strings.Compare(p.Job, job))
}

// Task is what is remembered of one task beside its job's profile.
type Task struct {
	Num model.TaskNum `json:"num"`
	Track
	Memory MemoryTrack `json:"memory,omitzero"`

	profile *Profile // nil: there is no room for one
	view    int      // its place in the view
}

// Track is what is remembered of one task's use of one resource: CPU-sec/sec, or GiB.
type Track struct {
	// Slot is the latest slot of High, counted from 0 of the monotonic clock.
	Slot     int64             `json:"slot,omitempty"`
	High     [numSlots]float32 `json:"high,omitzero"`
	Last     model.Value       `json:"last,omitzero"`       // in the last window
	SeenNsec int64             `json:"seen_nsec,omitempty"` // when it was last read, monotonic; 0: never
	// SumNsec is the use in nanoseconds times the resource's unit since the last forecast, of OverNsec.
	SumNsec  float64 `json:"sum_nsec,omitempty"`
	OverNsec int64   `json:"over_nsec,omitempty"`
	// Used and Expected are running means of what it used, and of the median of its profile meanwhile.
	Used     float64 `json:"used,omitempty"`
	Expected float64 `json:"expected,omitempty"`
}

// State is what the policy remembers.
type State struct {
	Profiles []*Profile `json:"profiles,omitempty"` // ordered by class and job
	Tasks    []Task     `json:"tasks,omitempty"`    // LC and system tasks, ordered by number
	Others   Task       `json:"others,omitzero"`    // what no task used
	// Total and Available are of the machine's memory at the last reading, bytes.
	Total     model.Value `json:"total,omitzero"`
	Available model.Value `json:"available,omitzero"`
	GPUs      []GPUTrack  `json:"gpus,omitempty"` // ordered by UUID
	// Read is the last reading of GPUs; it is not changed.
	Read *model.GPUReading `json:"gpus_read,omitempty"`
	// LastNsec is the end of the last window, NextNsec when the next forecast is due, monotonic.
	LastNsec int64 `json:"last_nsec,omitempty"`
	NextNsec int64 `json:"next_nsec,omitempty"`
	// Kept counts what is worth keeping: hours that were completed, and profiles that came.
	Kept uint64 `json:"kept,omitempty"`
	Hour int64  `json:"hour,omitempty"` // of the last window, since 1970

	matched bool
	spare   []Task
	report  Report
}

// Step takes in a window and makes the forecast anew when that is due. It never wishes for anything.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	w.AsBefore = true
	if v.Mode == model.ModeOff {
		s.matched, s.LastNsec, s.NextNsec, s.report = false, 0, 0, Report{}
		return
	}
	if v.Changed || !s.matched {
		s.match(v)
	}
	obs := v.Window.Observation
	if !v.Window.Closed || obs == nil {
		return
	}
	gap := v.Window.LengthNsec
	if s.LastNsec != 0 {
		gap = v.NowNsec - s.LastNsec
	}
	gap = min(max(gap, unit), maxGapNsec)
	s.LastNsec = v.NowNsec
	if at := v.WallNsec / hour; at != s.Hour {
		s.Hour = at
		s.Kept++
		s.forget(p, v.WallNsec)
	}
	s.learn(p, v, obs, gap)
	s.learnMemory(p, v, obs, gap)
	s.learnGPUs(p, v, obs, gap)
	if v.NowNsec >= s.NextNsec {
		s.forecast(p, v, obs)
		s.NextNsec = v.NowNsec + everyNsec
	}
}

// match brings tasks and profiles in line with the view.
func (s *State) match(v *policy.View) {
	s.matched = true
	s.Tasks, s.spare = policy.Match(v, s.Tasks, s.spare, func(t *Task) model.TaskNum { return t.Num }, func(t *policy.TaskView, had *Task, at int) (Task, bool) {
		if t.Task.Class == model.BE {
			return Task{}, false
		}
		entry := Task{Num: t.Task.Num}
		if had != nil {
			entry = *had
		}
		entry.profile, entry.view = s.profile(t.Task.Class, t.Task.Job, v.WallNsec), at
		return entry, true
	})
	s.Others.profile = s.profile(model.System, Others, v.WallNsec)
	for i := range s.GPUs {
		s.matchGPU(&s.GPUs[i], v.WallNsec)
	}
}

// profile returns that of a job; nil where there is no room for one.
func (s *State) profile(class model.Class, job string, wallNsec int64) *Profile {
	i, ok := slices.BinarySearchFunc(s.Profiles, job, func(p *Profile, job string) int { return p.compare(class, job) })
	if ok {
		return s.Profiles[i]
	}
	if len(s.Profiles) >= maxJobs {
		return nil
	}
	s.Profiles = slices.Insert(s.Profiles, i, &Profile{Job: job, Class: class, SinceNsec: wallNsec, LastNsec: wallNsec})
	s.Kept++
	return s.Profiles[i]
}

// forget drops the profiles of jobs that have had no task for long.
func (s *State) forget(p *Params, wallNsec int64) {
	n := len(s.Profiles)
	s.Profiles = slices.DeleteFunc(s.Profiles, func(o *Profile) bool {
		idle := o != s.Others.profile && !slices.ContainsFunc(s.Tasks, func(t Task) bool { return t.profile == o })
		return idle && float64(wallNsec-max(o.LastNsec, o.MemoryNsec)) > forgetHalfLives*p.HalfLifeDays*float64(day)
	})
	if len(s.Profiles) < n {
		s.matched = false // there may be room for another job now
	}
}

// learn takes in what the tasks used in a window.
func (s *State) learn(p *Params, v *policy.View, obs *model.Observation, gap int64) {
	j := 0
	for i := range s.Tasks {
		t := &s.Tasks[i]
		for j < len(obs.Tasks) && obs.Tasks[j].Num < t.Num {
			j++
		}
		cpu := model.Missing(model.Absent)
		if j < len(obs.Tasks) && obs.Tasks[j].Num == t.Num {
			cpu = obs.Tasks[j].CPU
		}
		t.take(p, v, cpu, gap, t.profile, cpuHours)
	}
	others := obs.Unmanaged
	if others.Outcome == model.OK && obs.Steal.Outcome == model.OK {
		others.V += obs.Steal.V
	}
	s.Others.take(p, v, others, gap, s.Others.profile, cpuHours)
}

// cpuHours and memoryHours pick a resource's part of a profile, and when that was last seen.
func cpuHours(o *Profile) (*Hours, *int64)    { return &o.Hours, &o.LastNsec }
func memoryHours(o *Profile) (*Hours, *int64) { return &o.Memory, &o.MemoryNsec }

// take is what one task used in a window, which stands for a time.
func (t *Track) take(p *Params, v *policy.View, used model.Value, gap int64, o *Profile, of func(*Profile) (*Hours, *int64)) {
	if !(used.V >= 0 && used.V <= math.MaxFloat32) { // no figure, whoever made it
		used = model.Missing(model.Unavailable)
	}
	if t.Last = used; used.Outcome != model.OK {
		return
	}
	t.SeenNsec = v.NowNsec
	t.SumNsec += used.V * float64(gap)
	t.OverNsec += gap
	t.slots(v.NowNsec)
	at := t.Slot % numSlots
	t.High[at] = max(t.High[at], float32(used.V))
	if o == nil || v.WallNsec < 0 {
		return
	}
	hours, last := of(o)
	h := &hours[v.WallNsec/hour%24]
	h.age(int32(v.WallNsec/day), p.HalfLifeDays)
	weight := uint32(gap / unit)
	h.add(used.V, weight)
	if *last != v.WallNsec { // the first of its tasks in this window
		h.seen += min(weight, ^h.seen)
		*last = v.WallNsec
	}
}

// slots empties those that began since.
func (t *Track) slots(nowNsec int64) {
	slot := nowNsec / slotNsec
	for n := max(t.Slot, slot-numSlots); n < slot; n++ {
		t.High[(n+1)%numSlots] = 0
	}
	t.Slot = max(t.Slot, slot)
}

// recent returns the most that the task used of late.
func (t *Track) recent(p *Params, nowNsec int64) (high float64) {
	for n := range (p.RecentNsec + slotNsec - 1) / slotNsec {
		if slot := nowNsec/slotNsec - n; slot > t.Slot-numSlots && slot <= t.Slot && slot >= 0 {
			high = max(high, float64(t.High[slot%numSlots]))
		}
	}
	return high
}

// Note is where the policy stands, in a few words.
func (s *State) Note(model.Mode) string {
	if len(s.report.Horizons) == 0 {
		return "no window yet"
	}
	now, far := &s.report.Horizons[0], &s.report.Horizons[numHorizons-1]
	return fmt.Sprintf("best-effort work may use %.2f CPUs now, %.2f through the next %s", now.BE, far.BE, far.Name)
}
