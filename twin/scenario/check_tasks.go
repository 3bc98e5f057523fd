package scenario

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// nameForm is what names of tasks and groups look like: they are parts of paths and keys.
var nameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// pathForm is what cgroup paths look like here.
var pathForm = regexp.MustCompile(`^(/[A-Za-z0-9_.:@-]{1,64}){1,8}$`)

// checkTasks checks the tasks and makes the actors.
func (p *Plan) checkTasks() error {
	s := p.Scenario
	jobs := map[string]int{}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		at := fmt.Sprintf("tasks[%d]", i)
		if err := p.checkNames(at, i); err != nil {
			return err
		}
		task, err := p.identity(at, t)
		if err != nil {
			return err
		}
		if first, ok := jobs[task.Job]; ok && s.Tasks[first].Class != t.Class {
			return p.doc.Errorf(at+".class", "is %s, and job %q has class %s in line %d: a job is a set of like tasks",
				t.Class, task.Job, s.Tasks[first].Class, p.doc.Line(fmt.Sprintf("tasks[%d]", first)))
		}
		if task.Job != "" {
			jobs[task.Job] = i
		}
		cfg, err := p.physical(at, t)
		if err != nil {
			return err
		}
		if err := p.checkLife(at, t); err != nil {
			return err
		}
		p.cast(i, task, cfg)
		if len(p.actors) > maxActors {
			return p.doc.Errorf(at+".count", "makes more than %d tasks", maxActors)
		}
	}
	return p.checkPaths()
}

func (p *Plan) checkNames(at string, i int) error {
	t := &p.Scenario.Tasks[i]
	if !nameForm.MatchString(t.Name) {
		return p.doc.Errorf(at+".name", "is %q; expected letters, digits, - and _, a letter first", short(t.Name))
	}
	for j := range i {
		if p.Scenario.Tasks[j].Name == t.Name {
			return p.doc.Errorf(at+".name", "is %q, which is also the name in line %d", t.Name, p.doc.Line(fmt.Sprintf("tasks[%d].name", j)))
		}
	}
	if found := p.find(t.Name); len(found) > 0 {
		return p.doc.Errorf(at+".name", "is %q, which is also one of the count of an earlier task", t.Name)
	}
	if !p.doc.Has(at + ".count") {
		t.Count = 1
	} else if t.Count < 1 || t.Count > maxActors {
		return p.doc.Errorf(at+".count", "is %d; expected 1 to %d", t.Count, maxActors)
	}
	t.Path = cmp.Or(t.Path, "/"+t.Name)
	if !pathForm.MatchString(t.Path) {
		return p.doc.Errorf(at+".path", "is %q; expected a cgroup path such as /batch/%s", short(t.Path), t.Name)
	}
	if t.Job == "" && t.ruled() {
		t.Job = t.Name
	}
	return nil
}

// What no rule of the agent's speaks of has no job: classKernel is of kernel threads, classNone of the rest.
const (
	classNone   = "none"
	classKernel = "kernel"
)

func (t *Task) ruled() bool { return t.Class != classNone && t.Class != classKernel }

// identity returns what the agent is told of a task.
func (p *Plan) identity(at string, t *Task) (model.Task, error) {
	task := model.Task{Path: t.Path, Job: t.Job, Eligible: t.Eligible}
	if !t.ruled() {
		if t.Job != "" || t.Importance != "" || t.Eligible || t.Production != nil {
			return task, p.doc.Errorf(at+".class", "is %s: the agent is told nothing of it, so that it has no job, importance or production and is not eligible", t.Class)
		}
		task.Class = model.System
		return task, nil
	}
	if err := task.Class.UnmarshalText([]byte(t.Class)); err != nil {
		return task, p.doc.Errorf(at+".class", "is %q; expected LC, BE, system, kernel or none", short(t.Class))
	}
	if t.Importance != "" {
		if task.Importance.UnmarshalText([]byte(t.Importance)) != nil {
			return task, p.doc.Errorf(at+".importance", "is %q; expected best-effort, batch or critical", short(t.Importance))
		}
		if task.Class != model.BE {
			return task, p.doc.Errorf(at+".importance", "only BE tasks have an importance")
		}
	}
	task.Production = task.Class == model.LC
	if t.Production != nil {
		task.Production = *t.Production
	}
	return task, nil
}

// checkLife checks when a task is there, what bounds it and what it does about a cap.
func (p *Plan) checkLife(at string, t *Task) error {
	if err := p.within(at+".start", t.Start); err != nil {
		return err
	}
	if t.Stop != 0 {
		if err := p.within(at+".stop", t.Stop); err != nil {
			return err
		}
		if t.Stop <= t.Start {
			return p.doc.Errorf(at+".stop", "is %s, not after its start at %s", t.Stop, t.Start)
		}
	}
	if t.CPUMax != nil {
		if _, err := p.limit(at+".cpu_max", t.CPUMax); err != nil {
			return err
		}
	}
	if err := p.checkSLO(at, t); err != nil {
		return err
	}
	return p.checkOnCap(at, t)
}

func (p *Plan) checkSLO(at string, t *Task) error {
	o := t.SLO
	if o == nil {
		return nil
	}
	o.Every = cmp.Or(o.Every, defaultSLOEvery)
	switch {
	case t.Requests == nil:
		return p.doc.Errorf(at+".slo", "only a task with requests has a latency")
	case !(o.Quantile > 0 && o.Quantile < 1):
		return p.doc.Errorf(at+".slo.quantile", "is %g; expected a share between 0 and 1 such as 0.99", o.Quantile)
	case o.Latency <= 0 || o.Latency > time.Minute:
		return p.doc.Errorf(at+".slo.latency", "is %s; expected more than 0s and at most 1m", o.Latency)
	case o.Every < time.Second || o.Every > time.Hour:
		return p.doc.Errorf(at+".slo.every", "is %s; expected 1s to 1h", o.Every)
	}
	return nil
}

// defaultSLOEvery is the window over which BALM judges latency.
const defaultSLOEvery = 3 * time.Second

// What a task may do about being capped.
const (
	doLameDuck = "lame-duck"
	doQuit     = "quit"
)

func (p *Plan) checkOnCap(at string, t *Task) error {
	o := t.OnCap
	if o == nil {
		return nil
	}
	at += ".on_cap"
	o.After = cmp.Or(o.After, 1)
	switch {
	case o.Do != doLameDuck && o.Do != doQuit:
		return p.doc.Errorf(at+".do", "is %q; expected %s or %s", short(o.Do), doLameDuck, doQuit)
	case o.After < 1 || o.After > 1000:
		return p.doc.Errorf(at+".after", "is %d; expected the number of a cap, from 1", o.After)
	case o.Wait < 0 || o.Wait > p.Scenario.Duration:
		return p.doc.Errorf(at+".wait", "is %s; expected 0s to the scenario's duration", o.Wait)
	case o.Do == doLameDuck && t.Requests != nil:
		return p.doc.Errorf(at+".do", "a task with requests cannot send its work away")
	case o.Do == doLameDuck && (o.For <= 0 || o.For > p.Scenario.Duration):
		return p.doc.Errorf(at+".for", "is %s; expected how long it works little after a cap", o.For)
	case !(o.CPUs >= 0 && o.CPUs <= maxCPUs):
		return p.doc.Errorf(at+".cpus", "is %g; expected the CPUs that it uses after a cap", o.CPUs)
	}
	return p.onGrid(at+".wait", o.Wait)
}

// physical returns a task as the physics wants it.
func (p *Plan) physical(at string, t *Task) (machine.TaskConfig, error) {
	c := machine.TaskConfig{
		Name: t.Name, Threads: t.Threads, Kernel: t.Class == classKernel, Spread: t.Spread, SpreadNsec: int64(t.SpreadEvery), Shares: t.Shares, Pages: t.Pages,
	}
	if t.Threads == 0 && !p.doc.Has(at+".threads") {
		c.Threads = 1
	}
	if t.Spread > 0 && t.SpreadEvery == 0 {
		c.SpreadNsec = int64(defaultSpreadEvery)
	}
	var err error
	if c.CPUs, err = p.cpus(at+".cpus", t.CPUs); err != nil {
		return c, err
	}
	if err := p.checkPages(at+".pages", t.Pages); err != nil {
		return c, err
	}
	if c.Memory, err = p.memory(at+".memory", t.Memory); err != nil {
		return c, err
	}
	if t.Disk != nil {
		c.Disk = &machine.DiskIO{OpsPerSecond: t.Disk.Ops, Depth: t.Disk.Depth, Bytes: float64(t.Disk.Bytes), WriteShare: t.Disk.WriteShare}
	}
	if err := p.behave(at, &t.Behaviour, &c); err != nil {
		return c, err
	}
	switch {
	case t.Requests != nil && len(t.Phases) > 0:
		return c, p.doc.Errorf(at+".phases", "a task has either requests or phases of work")
	case t.Requests != nil:
		if c.Requests, err = p.requests(at+".requests", t.Requests); err != nil {
			return c, err
		}
	default:
		if c.Work, err = p.work(at+".phases", t.Phases); err != nil {
			return c, err
		}
	}
	return c, p.possible(at, &c)
}

// defaultSpreadEvery is how long work stays alike when a scenario does not say.
const defaultSpreadEvery = time.Second

// taskKeys are the keys that the physics' names stand for in its errors.
var taskKeys = []struct{ name, key string }{
	{"threads", "threads"}, {"CPI", "cpi"}, {"LLC accesses", "apki"}, {"a miss curve", "curve"}, {"overlap", "overlap"}, {"prefetched", "prefetched"},
	{"share of writes", "write_share"}, {"spread", "spread"}, {"shares", "shares"}, {"CPUs", "cpus"}, {"pages", "pages"},
	{"a share of pages", "pages"}, {"requests", "requests"}, {"phase", "phases"},
}

// possible asks the physics.
func (p *Plan) possible(at string, c *machine.TaskConfig) error {
	err := c.Check(&p.machine)
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "machine: ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "task "+c.Name+": "), "machine: ")
	for _, k := range taskKeys {
		if strings.HasPrefix(text, k.name) {
			return p.doc.Errorf(at+"."+k.key, "%s", text)
		}
	}
	return p.doc.Errorf(at, "%s", text)
}

func (p *Plan) requests(at string, r *Requests) (*machine.Requests, error) {
	variation := 1.0
	if r.Variation != nil {
		variation = *r.Variation
	}
	switch {
	case !p.doc.Has(at + ".rate"):
		return nil, p.doc.Errorf(at+".rate", "is missing; expected requests per second")
	case !(r.Rate >= 0 && r.Rate <= maxRate):
		return nil, p.doc.Errorf(at+".rate", "is %g; expected 0 to %g requests per second", r.Rate, maxRate)
	case !(r.Instructions >= 1 && r.Instructions <= 1e12):
		return nil, p.doc.Errorf(at+".instructions", "is %g; expected 1 to 1e12 instructions a request", r.Instructions)
	case !(variation >= 0 && variation <= 10):
		return nil, p.doc.Errorf(at+".variation", "is %g; expected 0 to 10", variation)
	}
	return &machine.Requests{PerSecond: r.Rate, Instructions: r.Instructions, Variation: variation}, nil
}

// maxRate is the physics' bound on requests per second.
const maxRate = 1e6

func (p *Plan) work(at string, phases []Phase) (*machine.Work, error) {
	w := &machine.Work{}
	for i, ph := range phases {
		k := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case ph.For < time.Millisecond || ph.For > maxDuration:
			return nil, p.doc.Errorf(k+".for", "is %s; expected at least 1ms", ph.For)
		case !(ph.Jitter >= 0 && ph.Jitter < 1):
			return nil, p.doc.Errorf(k+".jitter", "is %g; expected a share from 0 to below 1", ph.Jitter)
		case !p.doc.Has(k + ".cpus"):
			return nil, p.doc.Errorf(k+".cpus", "is missing; expected the CPUs that it could use")
		case !(ph.CPUs >= 0 && ph.CPUs <= maxCPUs):
			return nil, p.doc.Errorf(k+".cpus", "is %g; expected 0 to %d", ph.CPUs, maxCPUs)
		case !(ph.CPI >= 0 && ph.CPI <= 100):
			return nil, p.doc.Errorf(k+".cpi", "is %g; expected a factor from 0 (for 1) to 100", ph.CPI)
		case !(ph.Misses >= 0 && ph.Misses <= 100):
			return nil, p.doc.Errorf(k+".misses", "is %g; expected a factor from 0 (for 1) to 100", ph.Misses)
		}
		w.Phases = append(w.Phases, machine.Phase{Nsec: int64(ph.For), Jitter: ph.Jitter, CPUs: ph.CPUs, CPI: ph.CPI, Misses: ph.Misses})
	}
	return w, nil
}

// cpus reads a list of CPUs that the machine has; "" is no restriction.
func (p *Plan) cpus(key, text string) (model.CPUSet, error) {
	set, err := model.ParseCPUSet(text)
	if err != nil {
		return set, p.doc.Errorf(key, "is %q; expected a list of CPUs such as 0-3,8", short(text))
	}
	if n := p.machine.CPUs(); set.And(model.FullSet(n)) != set {
		return set, p.doc.Errorf(key, "is %q, and the machine has CPUs 0-%d", short(text), n-1)
	}
	return set, nil
}

func (p *Plan) checkPages(key string, pages []float64) error {
	if len(pages) > p.machine.Sockets {
		return p.doc.Errorf(key, "names %d nodes, and the machine has %d", len(pages), p.machine.Sockets)
	}
	sum := 0.0
	for i, v := range pages {
		if !(v >= 0 && v <= 1) {
			return p.doc.Errorf(fmt.Sprintf("%s[%d]", key, i), "is %g; expected a share from 0 to 1", v)
		}
		sum += v
	}
	if len(pages) > 0 && math.Abs(sum-1) > 0.001 {
		return p.doc.Errorf(key, "sum to %g; expected shares of all pages, in sum 1", sum)
	}
	return nil
}

// limit returns a limit as the kernel has it.
func (p *Plan) limit(key string, m *CPUMax) (model.CPUMax, error) {
	period := cmp.Or(m.Period, 100*time.Millisecond)
	switch {
	case period < time.Millisecond || period > time.Second:
		return model.CPUMax{}, p.doc.Errorf(key+".period", "is %s; expected 1ms to 1s, the kernel's bounds", period)
	case !(m.CPUs >= 0 && m.CPUs <= maxCPUs):
		return model.CPUMax{}, p.doc.Errorf(key+".cpus", "is %g; expected CPU-sec/sec, or 0 for no limit", m.CPUs)
	}
	v := model.CPUMax{QuotaUsec: -1, PeriodUsec: period.Microseconds(), BurstUsec: m.Burst.Microseconds()}
	if m.CPUs > 0 {
		v.QuotaUsec = int64(m.CPUs * float64(v.PeriodUsec))
		if v.QuotaUsec < 1000 {
			return v, p.doc.Errorf(key+".cpus", "is %g, a quota of %d us; the kernel's least is 1000 us a period", m.CPUs, v.QuotaUsec)
		}
		if v.BurstUsec > v.QuotaUsec {
			return v, p.doc.Errorf(key+".burst", "is %s; expected at most the quota, %s", m.Burst, time.Duration(v.QuotaUsec)*time.Microsecond)
		}
	}
	if m.Burst < 0 || m.Burst > time.Hour {
		return v, p.doc.Errorf(key+".burst", "is %s; expected 0s to the quota", m.Burst)
	}
	return v, nil
}

// cast makes the actors of a task.
func (p *Plan) cast(entry int, task model.Task, cfg machine.TaskConfig) {
	t := &p.Scenario.Tasks[entry]
	for n := range t.Count {
		a := actor{name: t.Name, entry: entry, task: task, cfg: cfg, group: -1}
		if p.doc.Has(fmt.Sprintf("tasks[%d].count", entry)) {
			a.name = fmt.Sprintf("%s-%d", t.Name, n+1)
			a.task.Path = fmt.Sprintf("%s/%d", t.Path, n+1)
		}
		a.cfg.Name = a.name
		p.actors = append(p.actors, a)
	}
}

// checkPaths: a task is one cgroup, and contains no other task.
func (p *Plan) checkPaths() error {
	order := make([]int, len(p.actors))
	for i := range order {
		order[i] = i
	}
	path := func(i int) string { return p.actors[i].task.Path }
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(path(a)+"/", path(b)+"/") })
	for k := 1; k < len(order); k++ {
		above, below := order[k-1], order[k]
		if strings.HasPrefix(path(below)+"/", path(above)+"/") {
			later := max(p.actors[above].entry, p.actors[below].entry)
			return p.doc.Errorf(fmt.Sprintf("tasks[%d].path", later), "%s and %s: a task contains no other task", path(above), path(below))
		}
	}
	return nil
}
