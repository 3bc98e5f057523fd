package bench

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// Twin is what a simulated second costs: physics, a reading through the typed seam and the
// engine's step, one window a second.
type Twin struct {
	Cores int    `json:"cores"` // on two sockets, two threads each
	Tasks int    `json:"tasks"`
	Msec  Spread `json:"cpu_ms_per_second"` // of simulated time
	// Physics is the part of the median that is the machine's.
	PhysicsMsec float64 `json:"physics_cpu_ms_per_second"`
	TimesLife   float64 `json:"times_life"`
}

// twinCores and twinTasks are the size that the goal is for.
const twinCores, twinTasks = 64, 50

// simulate times simulated servers of growing size.
func simulate(o *Options) ([]Twin, error) {
	seconds := 120
	if o.Quick {
		seconds = 40
	}
	var list []Twin
	for _, size := range [][2]int{{16, 12}, {32, 25}, {64, 25}, {64, 50}, {64, 100}, {128, 100}} {
		t, err := simulateOne(size[0], size[1], seconds)
		if err != nil {
			return nil, fmt.Errorf("twin of %d cores and %d tasks: %w", size[0], size[1], err)
		}
		list = append(list, *t)
	}
	return list, nil
}

// simulateOne plays one server. Half of the tasks serve requests, a quarter streams through
// memory in bursts, a quarter computes.
func simulateOne(cores, tasks, seconds int) (*Twin, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	host, err := simulatedHost(cores, tasks, false)
	if err != nil {
		return nil, err
	}
	cfg, _ := config.Defaults(config.ProfileSingleNode)
	cfg.Policies.SetModes(model.ModeOff)
	cfg.Policies.Mode, cfg.Sampling.Duration, cfg.Sampling.Frequency = model.ModeObserve, time.Second, time.Second
	core, err := agent.Assemble(&cfg, agent.Deps{Host: host, Clock: host, Platform: "twin"})
	if err != nil {
		return nil, err
	}
	l := agent.NewLoop(core)
	l.Next()
	var all, physics []float64
	for i := range seconds {
		begin := openloop.ThreadNsec()
		host.Machine().Advance(l.Due() - host.MonoNsec())
		between := openloop.ThreadNsec()
		l.Next()
		if end := openloop.ThreadNsec(); i >= 5 { // buffers have grown by then
			all = append(all, float64(end-begin)/1e6)
			physics = append(physics, float64(between-begin)/1e6)
		}
	}
	t := &Twin{Cores: cores, Tasks: tasks, Msec: spread(all), PhysicsMsec: spread(physics).Median}
	t.TimesLife = 1000 / t.Msec.Median
	return t, nil
}

// webJob is the job of a service that is one of its own.
func webJob(i int) string { return fmt.Sprintf("web%d", i) }

// simulatedHost is a server with so many tasks; apart: each service is a job of its own.
func simulatedHost(cores, tasks int, apart bool) (*twin.Host, error) {
	c := machine.Skylake()
	share := float64(cores) / float64(c.Sockets*c.CoresPerSocket)
	c.CoresPerSocket = cores / c.Sockets
	c.LLCBytes *= share
	c.MemPeakBytes *= share
	m, err := machine.New(c, 1)
	if err != nil {
		return nil, err
	}
	host := twin.NewHost(m, true)
	for i := range tasks {
		task := model.Task{Path: fmt.Sprintf("/batch/%d", i), Job: fmt.Sprintf("batch%d", i), Class: model.BE}
		cfg := machine.TaskConfig{
			Threads: 3, CPI: 0.7, APKI: 30, Overlap: 8, WriteShare: 0.3, Curve: machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{30, 28, 26}},
			Work: &machine.Work{Phases: []machine.Phase{{Nsec: 5e9, Jitter: 0.3, CPUs: 3}, {Nsec: 5e9, Jitter: 0.3, CPUs: 0.2}}},
		}
		switch {
		case i%2 == 0:
			task = model.Task{Path: fmt.Sprintf("/web/%d", i), Job: "web", Class: model.LC, Production: true}
			if apart {
				task.Job = webJob(i)
			}
			cfg = machine.TaskConfig{
				Threads: 6, CPI: 1, APKI: 12, Overlap: 2, WriteShare: 0.2, Spread: 0.04, SpreadNsec: 1e9,
				Curve:    machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{8, 5, 4, 3, 2.5, 2}},
				Requests: &machine.Requests{PerSecond: 500, Instructions: 4e6, Variation: 1},
			}
		case i%4 == 1:
			cfg.APKI, cfg.Curve.MPKI = 0.5, []float64{0.2}
		}
		cfg.Name = task.Path
		if _, err := host.Start(task, cfg); err != nil {
			return nil, err
		}
	}
	return host, nil
}

func (r *Result) twinTable() report.Table {
	t := report.Table{
		Title: "The twin: one simulated second, through the typed seam",
		Columns: []report.Column{
			report.Figures("cores", ""), report.Figures("tasks", ""), report.Figures("CPU time", "ms"), report.Figures("p90", "ms"), report.Figures("of it physics", "ms"), report.Figures("times life", ""),
		},
		Notes: []string{"two sockets, two threads a core; a reading and the engine's step each simulated second; one core of this host."},
	}
	for _, s := range r.Twins {
		t.Rows = append(t.Rows, report.Cells(strconv.Itoa(s.Cores), strconv.Itoa(s.Tasks), num(s.Msec.Median, 2), num(s.Msec.P90, 2), num(s.PhysicsMsec, 2), num(s.TimesLife, 0)))
	}
	return t
}
