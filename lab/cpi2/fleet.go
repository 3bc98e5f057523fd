package cpi2

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/localspec"
)

// reading is one CPI sample of one task, as a fleet collects them (section 3.1).
type reading struct {
	job      string
	task     model.TaskNum // told apart over all machines
	cpi, cpu float64
}

// fleet is what many machines say of the jobs on them.
type fleet struct {
	readings []reading // machine by machine
	specs    []model.Spec
}

// observeMachine plays a machine and returns its samples from minute from on.
func observeMachine(m *mix, from, minutes int) ([]reading, error) {
	s, err := newServer(m)
	if err != nil {
		return nil, err
	}
	jobs := map[model.TaskNum]string{} // of the LC tasks
	var out []reading
	for range minutes {
		if err := s.minute(nil); err != nil {
			return nil, err
		}
		for path, n := range s.nums {
			jobs[n] = jobOf(m, path)
		}
		if s.min <= from {
			continue
		}
		for i := range s.obs.Tasks {
			o := &s.obs.Tasks[i]
			if _, ok := s.seen(o.Num); ok && jobs[o.Num] != "" {
				out = append(out, reading{job: jobs[o.Num], task: o.Num, cpi: o.Signals[model.SourceCPI].V, cpu: o.CPU.V})
			}
		}
	}
	return out, nil
}

func jobOf(m *mix, path string) string {
	for i := range m.plan {
		if p := m.plan[i].start; p != nil && p.task.Path == path && p.task.Class == model.LC {
			return p.task.Job
		}
	}
	return ""
}

// learnFleet plays machines on which things happen as often as they do, and learns the specs.
func learnFleet(ctx context.Context, workers int, c *catalogue, seed uint64, machines, minutes int) (*fleet, error) {
	const settle = 3 // minutes until caches and queues are as they will be
	parts, err := parallel.Map(ctx, workers, machines, func(i int) ([]reading, error) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		return observeMachine(c.drawMix(rng, c.natural(rng, minutes), settle, minutes, minutes), settle, minutes)
	})
	if err != nil {
		return nil, err
	}
	f := &fleet{}
	for i, part := range parts {
		for _, r := range part {
			r.task += model.TaskNum(i * 1000)
			f.readings = append(f.readings, r)
		}
	}
	f.learn(specDays)
	return f, nil
}

// specDays is how many days of like samples the specs come from: the first takes them as they are, all others hold those
// above the threshold at it, as the agent does, so that what was seen on the first day before anything was normal fades.
const specDays = 7

// learn calculates the specs with the policy's own code, day by day from the same samples. CPI² asks for 100 of each of at
// least 5 tasks; here a machine is played for less than that, so that it is 10.
func (f *fleet) learn(days int) {
	learner := localspec.State{Platform: platform}
	lp := localspec.Params{RecalculateNsec: 1, AgeWeight: 0.9, MinTasks: 5, MinSamplesPerTask: 10}
	for day := range days {
		for _, r := range f.readings {
			limit := math.Inf(1)
			if sp := learner.Lookup(r.job, model.SourceCPI); sp != nil {
				limit = threshold(sp)
			}
			learner.Add(lp, &model.Task{Num: r.task, Job: r.job}, model.SourceCPI, r.cpi, r.cpu, limit)
		}
		f.specs = f.specs[:0]
		for _, sp := range learner.Recalculate(lp, int64(day)*86400e9) {
			f.specs = append(f.specs, *sp)
		}
	}
}

// natural draws whether something happens on a machine in so many minutes, and what. More
// than one event on a machine is not played, so that the mean is kept instead of the law.
func (c *catalogue) natural(rng *rand.Rand, minutes int) cause {
	if rng.Float64() >= eventsPerDay*float64(minutes)/1440 {
		return quiet
	}
	return drawCause(rng)
}

// drawCause draws what happens, given that something does.
func drawCause(rng *rand.Rand) cause {
	u := rng.Float64()
	for k := quiet; k < numCauses; k++ {
		if u -= causeWeights[k]; u < 0 {
			return k
		}
	}
	return single
}
