package soak

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/fault"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// plan is all of a run that is drawn before it begins.
type plan struct {
	layout  cgroup.Layout
	pmu     bool
	rdt     bool // the machine has resctrl, and it is mounted
	l2Ways  int  // of each L2, of which classes may be given some; 0: none
	moves   bool // operators have pages moved
	far     bool // of remedy's means pages come soon (drawFar)
	recalls bool // an agent goes on with what the one before it had learned
	machine machine.Config
	tasks   []taskPlan
	kernel  []machine.TaskConfig // threads of the kernel
	config  config.Config
	rules   []fault.Rule
	// renaming: groups get other names (v1)
	renaming bool
	promises []*promise // latencies that jobs have promised
	steps    []fault.Step
	events   []event // by time
	mayDie   bool    // the agent is killed now and then
}

// taskPlan is one cgroup task.
type taskPlan struct {
	path  string
	class model.Class
	found model.CPUMax // its own limit, as it is made
	cpus  model.CPUSet // its own CPUs; none: those of the group above
	cfg   machine.TaskConfig
	below []childPlan // groups in it; then it has no process of its own
	// memory is what each of its processes has, most what the group may have, in bytes; 0: no limit.
	memory []machine.Heat
	most   int64
}

// childPlan is a group inside a task.
type childPlan struct {
	path  string
	found model.CPUMax
	cpus  model.CPUSet        // within the task's
	cfg   *machine.TaskConfig // nil: a group without a process
}

// deed is a kind of event.
type deed uint8

// The deeds.
const (
	arrive         deed = iota
	leave               // the task's groups are removed
	remake              // they are removed and made again at once
	childLeave          // one group inside a task goes
	renames             // its group gets another name (v1)
	stranger            // somebody writes a limit
	strangerPlace       // or a group's CPUs
	strangerWeight      // or a group's weight
	strangerDisk        // or what a group may do on the disk
	strangerClass       // or does something with resctrl
	replug              // a CPU goes offline, or comes back
	operate             // an operator speaks
	switchOn            // the kill-switch file appears
	switchOff
	stall     // the agent does not run for a while
	reboot    // everything ends, and begins again
	stop      // it ends cleanly, and starts again
	kill      // SIGKILL at the n-th write from here, or now
	taken     // soft interrupts or the hypervisor take some of a CPU's time
	guardDies // the guardian is killed, and the agent starts another at its next turn
	sweep     // a task uses all of its memory once
	respawn   // its processes that ended are started again
	rollOut   // the fleet's hub has the agent go by other parameters, or by its file again
	handDown  // a controller is taken from groups, or handed down to them again (v2), or their directory of one hierarchy goes (v1)
)

// event is a deed at a time.
type event struct {
	at   int64
	do   deed
	task int    // index of tasks
	pick uint64 // draws what else there is to choose
	n    uint64 // of kill: writes from here; 0: now
	nsec int64  // of stall: how long; of kill, stop and reboot: until the next start
	both bool   // of kill: the guardian goes too; of handDown: handed down again; of rollOut: it ends
}

// source draws.
type source struct{ *rand.Rand }

func (r source) chance(p float64) bool          { return r.Float64() < p }
func (r source) between(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
func (r source) seconds(lo, hi float64) int64   { return int64(r.between(lo, hi)*100) * 1e7 }
func (r source) count(lo, hi int) int           { return lo + r.IntN(hi-lo+1) }
func pick[T any](r source, list ...T) T         { return list[r.IntN(len(list))] }

// newPlan draws a run of so many nanoseconds.
func newPlan(r source, end int64, calm bool) *plan {
	p := &plan{layout: pick(r, cgroup.LayoutHybrid, cgroup.LayoutV2), pmu: r.chance(0.5)}
	m := machine.Skylake()
	m.Sockets, m.CoresPerSocket, m.ThreadsPerCore = pick(r, 1, 1, 2), r.count(2, 6), r.count(1, 2)
	share := float64(m.CoresPerSocket) / 16
	m.LLCBytes, m.MemPeakBytes = m.LLCBytes*share, m.MemPeakBytes*share
	m.StepNsec, m.MemBytes = stepNsec, memoryBytes
	m.Kernel = pick(r, machine.Mainline, machine.Mainline, machine.Mainline, machine.AnyBurst, machine.NoBurst)
	p.machine = m
	p.drawTasks(r)
	p.drawConfig(r)
	p.drawEvents(r, end)
	p.drawDisk(r, end)
	if !calm && r.chance(0.85) {
		p.drawFaults(r, end)
	}
	if r.chance(0.4) {
		for range r.count(1, 3) {
			p.steps = append(p.steps, fault.Step{AtNsec: r.seconds(0, float64(end)/1e9), Nsec: int64(r.between(-3600, 3600) * 1e9)})
		}
	}
	return p
}

// stepNsec is the physics' step. Twice the machine's own: what is tested here is not
// physics.
const stepNsec = 20e6

// The groups: who lives where.
const (
	folderLC     = "/lc"
	folderBE     = "/be"
	folderSystem = "/sys"
	folderOther  = "/other" // no rule speaks of it
)

// drawDisk gives some machines of v2 a disk that services use, that some batch tasks fill, and whose limits strangers write.
func (p *plan) drawDisk(r source, end int64) {
	if p.layout != cgroup.LayoutV2 || !r.chance(0.5) {
		return
	}
	p.machine.DiskBytes, p.machine.DiskOps = 500e6, 10_000
	for i := range p.tasks {
		switch t := &p.tasks[i]; {
		case t.class == model.LC:
			t.cfg.Disk = &machine.DiskIO{OpsPerSecond: r.between(50, 500), Bytes: 8 << 10, WriteShare: r.between(0, 0.5)}
		case r.chance(0.5):
			t.cfg.Disk = &machine.DiskIO{Depth: float64(r.count(4, 16)), Bytes: 512 << 10, WriteShare: r.between(0, 1)}
			at := slices.IndexFunc(p.events, func(e event) bool { return e.do == arrive && e.task == i })
			p.events[at].at = r.seconds(0.2, 0.7*float64(end)/1e9) // services have been seen without it
		}
	}
	for range r.count(0, 12) {
		p.events = append(p.events, event{at: r.seconds(0, float64(end)/1e9), do: strangerDisk, pick: r.Uint64()})
	}
	slices.SortStableFunc(p.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
}

func (p *plan) drawTasks(r source) {
	cpus := p.machine.CPUs()
	names := program.Names()
	body := func(name string, threads int) machine.TaskConfig {
		c := machine.TaskConfig{Name: name, Threads: threads, Spread: 0.04, SpreadNsec: 3e9}
		prof, _ := program.Find(pick(r, names...))
		prof.Apply(&c)
		return c
	}
	for job := range r.count(1, 2) {
		for task := range r.count(1, 3) {
			path := fmt.Sprintf("%s/web%d-%d", folderLC, job, task)
			c := body(path, r.count(2, 8))
			// Up to a sixth of the machine each.
			use := float64(cpus) * r.between(0.02, 0.16)
			n := r.between(1e6, 1e7)
			c.Requests = &machine.Requests{Instructions: n, Variation: r.between(0, 1.5), PerSecond: use * p.machine.Hz / (1.5 * n)}
			if r.chance(0.4) {
				c.Requests.Bursts = &machine.Bursts{Share: r.between(0.3, 1), EveryNsec: r.between(5e8, 1e10), Nsec: r.between(2e7, 4e8), Tail: pick[float64](r, 0, 2)}
			}
			t := taskPlan{path: path, class: model.LC, found: p.drawLimit(r, 0.5), cpus: p.drawCPUs(r, 0.2, model.CPUSet{}), cfg: c}
			if r.chance(0.2) {
				p.drawChildren(r, &t, func(path string) machine.TaskConfig { return p.drawBatch(r, body(path, r.count(1, 4))) })
			}
			p.tasks = append(p.tasks, t)
		}
	}
	for i := range r.count(1, 6) {
		path := fmt.Sprintf("%s/%s-%d", folderBE, pick(r, "batch", "scrap", "vital"), i)
		t := taskPlan{path: path, class: model.BE, found: p.drawLimit(r, 0.4), cpus: p.drawCPUs(r, 0.2, model.CPUSet{}), cfg: p.drawBatch(r, body(path, r.count(1, cpus)))}
		if r.chance(0.4) {
			p.drawChildren(r, &t, func(path string) machine.TaskConfig { return p.drawBatch(r, body(path, r.count(1, cpus))) })
		}
		p.tasks = append(p.tasks, t)
	}
	for i := range r.count(0, 2) {
		folder := pick(r, folderSystem, folderOther)
		path := fmt.Sprintf("%s/d%d", folder, i)
		p.tasks = append(p.tasks, taskPlan{path: path, class: model.System, found: p.drawLimit(r, 0.2), cfg: p.drawBatch(r, body(path, 2))})
	}
}

// drawBatch gives a task work, steady or in bursts.
func (p *plan) drawBatch(r source, c machine.TaskConfig) machine.TaskConfig {
	c.Work = &machine.Work{}
	c.Shares = pick[int64](r, 1024, 1024, 256, 4096)
	if r.chance(0.7) {
		c.Work.Phases = []machine.Phase{
			{Nsec: r.seconds(2, 20), Jitter: 0.3, CPUs: r.between(0.5, float64(c.Threads))},
			{Nsec: r.seconds(2, 30), Jitter: 0.3, CPUs: r.between(0, 0.2)},
		}
	}
	return c
}

// drawChildren puts one to three groups into a task, one perhaps inside another.
func (p *plan) drawChildren(r source, t *taskPlan, body func(path string) machine.TaskConfig) {
	cfg := t.cfg
	cfg.Name = t.path + "/a"
	t.below = append(t.below, childPlan{path: cfg.Name, found: p.drawBelow(r, t.found), cpus: p.drawCPUs(r, 0.3, t.cpus), cfg: &cfg})
	for _, name := range []string{"b", "b/x"}[:r.count(0, 2)] {
		c := childPlan{path: t.path + "/" + name, found: p.drawBelow(r, t.found), cpus: p.drawCPUs(r, 0.3, t.cpus)}
		if name == "b/x" {
			c.found = p.drawBelow(r, t.below[1].found)
			if r.chance(0.5) {
				second := body(c.path)
				c.cfg = &second
			}
		}
		t.below = append(t.below, c)
	}
}

// drawLimit returns none, or with a chance some.
func (p *plan) drawLimit(r source, some float64) model.CPUMax {
	v := model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}
	if !r.chance(some) {
		return v
	}
	v.PeriodUsec = pick[int64](r, 20_000, 50_000, 100_000, 250_000)
	v.QuotaUsec = max(1000, int64(r.between(0.05, float64(p.machine.CPUs()))*float64(v.PeriodUsec)))
	if r.chance(0.3) && p.machine.Kernel != machine.NoBurst {
		v.BurstUsec = v.QuotaUsec / 2
	}
	return v
}

// drawBelow returns a limit that v1 takes below another: not more than it.
func (p *plan) drawBelow(r source, up model.CPUMax) model.CPUMax {
	v := p.drawLimit(r, 0.5)
	if v.QuotaUsec >= 0 && v.Ratio() > up.Ratio() {
		return model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}
	}
	return v
}

func (p *plan) drawConfig(r source) {
	profile := config.ProfileSingleNode
	if r.chance(0.08) {
		profile = config.ProfileCPI2
	}
	c, _ := config.Defaults(profile)
	c.Tasks = []config.Task{
		{Match: folderLC + "/web0-*", Job: "web0", Class: model.LC.String(), Production: true},
		{Match: folderLC + "/web1-*", Job: "web1", Class: model.LC.String(), Exclusive: r.chance(0.4), Cores: r.count(0, 2)},
		{Match: folderBE + "/batch-*", Job: "batch", Class: model.BE.String(), Importance: model.Batch.String(), Eligible: r.chance(0.2)},
		{Match: folderBE + "/scrap-*", Job: "scrap", Class: model.BE.String(), Importance: model.BestEffort.String()},
		{Match: folderBE + "/vital-*", Job: "vital", Class: model.BE.String(), Importance: model.Critical.String()},
		{Match: folderSystem + "/*", Job: "system", Class: model.System.String()},
	}
	if !c.Tasks[1].Exclusive {
		c.Tasks[1].Cores = 0
	}
	// Each parameter has a stream of its own, so that one that is new moves no other seed's draws.
	of := r.Uint64()
	for _, row := range c.Rows() {
		name := fnv.New64a()
		_, _ = name.Write([]byte(row.Key))
		drawRow(source{rand.New(rand.NewPCG(of, name.Sum64()))}, &c, &row)
	}
	p.config = c
}

// drawRow draws a parameter: one whose row says what to draw from always, another now and
// then from anywhere within its bounds. A draw that does not fit those before is taken
// back.
func drawRow(r source, c *config.Config, row *model.Param) {
	wild := row.Soak == [2]float64{}
	switch at := row.At.(type) {
	case *model.Mode:
		*at = pick(r, model.ModeOff, model.ModeObserve, model.ModeEnforce, model.ModeEnforce, model.ModeEnforce)
		return
	case *bool:
		if !wild {
			*at = r.chance(row.Soak[1])
		}
		return
	case *string:
		if len(row.Words) > 0 && row.Key != "profile" {
			*at = pick(r, row.Words...)
		}
		return
	}
	lo, hi := row.Soak[0], row.Soak[1]
	if wild {
		lo, hi = row.Least, row.Most
	}
	was, ok := row.Number()
	if !ok || hi == model.Unbounded || wild && !r.chance(0.1) {
		return
	}
	v := r.between(lo, hi)
	switch {
	case lo == 0 && r.chance(0.2):
		v = 0 // often that means never
	case lo > 0 && hi/lo > 100:
		v = lo * math.Pow(hi/lo, r.Float64())
	}
	row.Set(v)
	if _, why := c.Validate(); why != "" {
		row.Set(was)
	}
}

func (p *plan) drawEvents(r source, end int64) {
	seconds := float64(end) / 1e9
	add := func(perMinute float64, do deed, more func(e *event)) {
		n := perMinute * seconds / 60
		for range int(n) + bit(r.chance(n-float64(int(n)))) {
			e := event{at: r.seconds(0, seconds), do: do, task: r.IntN(len(p.tasks)), pick: r.Uint64()}
			if more != nil {
				more(&e)
			}
			p.events = append(p.events, e)
		}
	}
	p.mayDie = r.chance(0.8)
	for i := range p.tasks {
		e := event{do: arrive, task: i}
		if r.chance(0.3) {
			e.at = r.seconds(0, seconds/2)
		}
		p.events = append(p.events, e)
	}
	if r.chance(0.6) {
		add(r.between(0, 2), remake, nil)
		add(r.between(0, 1), leave, nil)
		add(r.between(0, 1), arrive, nil)
		add(r.between(0, 1), childLeave, nil)
	}
	if r.chance(0.3) {
		add(r.between(0, 1), renames, nil)
		p.renaming = true
	}
	if r.chance(0.6) {
		add(r.between(0, 4), stranger, nil)
		add(r.between(0, 4), strangerPlace, nil)
		add(2, strangerWeight, nil)
	}
	if r.chance(0.3) {
		add(r.between(0.2, 4), replug, nil)
	}
	add(pick[float64](r, 0, 1, 4, 10), operate, nil)
	if r.chance(0.3) {
		add(r.between(0, 1), switchOn, nil)
		add(1, switchOff, nil)
	}
	if r.chance(0.3) {
		add(0.5, stall, func(e *event) { e.nsec = r.seconds(1.5, 20) })
	}
	if r.chance(0.2) {
		add(0.3, reboot, func(e *event) { e.nsec = r.seconds(1, 10) })
	}
	if p.mayDie {
		add(r.between(0.2, 3), kill, func(e *event) {
			e.both, e.nsec = r.chance(0.35), r.seconds(0.1, 12)
			if r.chance(0.85) {
				e.n = uint64(r.count(1, 40))
			}
		})
		add(0.3, stop, func(e *event) { e.nsec = r.seconds(0.1, 5) })
		add(0.3, guardDies, nil)
	}
	sortEvents(p.events)
}

func sortEvents(list []event) {
	slices.SortStableFunc(list, func(a, b event) int { return cmp.Compare(a.at, b.at) })
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// describe is the plan in a line.
func (p *plan) describe() string {
	classes := map[model.Class]int{}
	for i := range p.tasks {
		classes[p.tasks[i].class]++
	}
	m := &p.machine
	signal := "no PMU"
	if p.pmu {
		signal = "PMU"
	}
	c := &p.config
	modes := ""
	for _, s := range c.Policies.Sections() {
		modes += fmt.Sprintf(", %s %s", s.Name, s.Mode)
	}
	return fmt.Sprintf("%d x %d cores x %d, %d caches, cgroup %s, %s, %s; %d LC, %d BE, %d others; %s%s; %d fault rules, %d events",
		m.Sockets, m.CoresPerSocket, m.ThreadsPerCore, m.Caches(), p.layout, m.Kernel, signal,
		classes[model.LC], classes[model.BE], classes[model.System], c.Profile, modes, len(p.rules), len(p.events))
}
