package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cache"
	"github.com/commensal-io/commensal/twin/fault"
)

// Classes of service: on a third of the machines there is resctrl, with strangers who use it, too. What is drawn of
// it comes from a stream of its own, as it came after the others.

// classWorld is what the world knows of classes of service.
type classWorld struct {
	draw  source
	on    bool // the machine has resctrl
	deeds int  // of strangers, so far
	// at is when what the agent begins beside its loop is done; work waits for that.
	at   int64
	work []func()
	// trouble is for all of our groups what it is for a cgroup.
	trouble watchedGroup
	loose   map[string]int // turns in which a group is there and nothing asks for it
	theirs  map[string]resctrl.Schemata
}

// The group of a stranger, and where all are.
const (
	resctrlRoot = resctrl.DefaultPoint + "/"
	hisGroup    = "COS1"
	monitorsDir = "mon_groups/"
)

// drawClasses gives a third of the machines resctrl, and some of those strangers.
func (p *plan) drawClasses(r source, end int64) {
	p.rdt, p.recalls = r.chance(0.35), r.chance(0.4)
	p.moves = true
	if !p.rdt {
		p.config.Policies.CPU.CacheMode = model.ModeOff
		return
	}
	if r.chance(0.5) {
		n := r.count(1, 8)
		for range n {
			p.events = append(p.events, event{at: r.seconds(0, float64(end)/1e9), do: strangerClass, pick: r.Uint64()})
		}
		sortEvents(p.events)
	}
	if r.chance(0.4) { // of the others those are counted whose policies go by it
		p.config.Resctrl.Monitor = config.MonitorOn
	}
}

// drawL2 lets half of the machines divide their L2s, and some services have parts of the services' ways.
func (p *plan) drawL2(r source) {
	if r.chance(0.5) {
		p.l2Ways = pick(r, 8, 16, 20)
	}
	if r.chance(0.5) {
		p.config.Policies.CPU.Cache.Parts = pick(r, "web0=2", "web1=3,web0=2", "web*=4", "web0=9,web1=2", "other=2,web1=5")
	}
}

// drawCaches gives the sockets of a third of the machines several last-level caches, all near one memory: two, or one for each core or two.
func (p *plan) drawCaches(r source) {
	m := &p.machine
	if n := pick(r, 2, m.CoresPerSocket, m.CoresPerSocket/2); r.chance(0.35) && n > 1 && m.CoresPerSocket%n == 0 {
		m.CachesPerSocket, m.LLCBytes = n, m.LLCBytes/float64(n)
	}
}

// strangerDoes is what another program does with resctrl.
func (w *world) strangerDoes(e *event) {
	c, r := &w.class, source{rand.New(rand.NewPCG(e.pick, 6))}
	if !c.on {
		return
	}
	c.deeds++
	note := func(what string) { w.inj.Note("class-"+what, "") }
	his, deeds := len(c.theirs[hisGroup]) > 0, []func(){func() {
		note("remounted")
		if err := w.k.UnmountResctrl(); err == nil || errors.Is(err, unix.EINVAL) { // or it was not mounted
			w.mountClasses(resctrl.MountOptions{CDP: r.chance(0.2), MBps: r.chance(0.4), CDPL2: w.plan.l2Ways > 0 && r.chance(0.3)})
		}
	}}
	if ours := w.ourGroups(); len(ours) > 0 {
		deeds = append(deeds, func() {
			_ = w.inj.Stranger(resctrlRoot+pick(r, ours...)+"/schemata", pick(r, "L3:0=3c\n", "L3:0=3\n", "MB:0=50\n"))
		}, func() {
			note("removed")
			_ = w.k.Rmdir(resctrlRoot + pick(r, ours...))
		})
	}
	if ours := w.ourGroups(); len(ours) > 0 && w.plan.l2Ways > 0 {
		deeds = append(deeds, func() { _ = w.inj.Stranger(resctrlRoot+pick(r, ours...)+"/schemata", "L2:2=7\n") })
	}
	if his {
		deeds = append(deeds, func() { w.takeAway(w.someTask(r)) }, func() {
			note("unmade")
			_ = w.k.Rmdir(resctrlRoot + hisGroup)
			w.remember()
		})
	} else {
		deeds = append(deeds, func() {
			if w.k.Mkdir(resctrlRoot+hisGroup, 0o755) == nil {
				note("made")
				_ = w.k.WriteFile(resctrlRoot+hisGroup+"/schemata", []byte("L3:0=70\n"))
				w.remember()
			}
		})
	}
	if r.chance(0.1) {
		deeds = []func(){func() {
			note("unmounted")
			_ = w.k.UnmountResctrl()
			w.remember()
		}}
	}
	pick(r, deeds...)()
	c.trouble.hindered(w.now())
}

// mountClasses mounts resctrl where the machine has it.
func (w *world) mountClasses(o resctrl.MountOptions) {
	if !w.class.on {
		return
	}
	if err := w.k.MountResctrl(o); err != nil {
		w.fail("simulation", "mount resctrl: "+err.Error())
	}
	w.remember()
}

// remember notes the schemata of other programs' groups as they are now.
func (w *world) remember() {
	w.class.theirs = map[string]resctrl.Schemata{}
	for _, name := range w.groupsOf(func(name string) bool { return name == hisGroup }) {
		text, _ := w.k.ReadFile(resctrlRoot+name+"/schemata", nil)
		w.class.theirs[name], _ = resctrl.ParseSchemata(string(text))
	}
}

func (w *world) groupsOf(which func(name string) bool) (names []string) {
	list, err := w.k.ReadDir(resctrlRoot[:len(resctrlRoot)-1])
	for i := range list {
		if err == nil && list[i].IsDir && which(list[i].Name) {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// ourGroups are the groups that agents made.
func (w *world) ourGroups() []string {
	if !w.class.on {
		return nil
	}
	return w.groupsOf(func(name string) bool { return strings.HasPrefix(name, resctrl.DefaultPrefix) })
}

// ourMonitors are the monitoring groups of agents in the root group: others go with the class that they are in.
func (w *world) ourMonitors() (names []string) {
	if !w.class.on {
		return nil
	}
	list, err := w.k.ReadDir(resctrlRoot + monitorsDir[:len(monitorsDir)-1])
	for i := range list {
		if err == nil && strings.HasPrefix(list[i].Name, resctrl.DefaultPrefix) {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// someTask is the path of some BE task that is there, "" for none.
func (w *world) someTask(r source) string {
	var paths []string
	for _, g := range w.witness.list {
		if g.class == model.BE && g.path == g.task {
			paths = append(paths, g.path)
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return paths[r.IntN(len(paths))]
}

// takeAway puts all threads of a task into the stranger's group; "": of none.
func (w *world) takeAway(task string) {
	if task == "" {
		return
	}
	w.inj.Note("class-taken", task)
	for _, tid := range w.threads(task) {
		_ = w.k.WriteFile(resctrlRoot+hisGroup+"/tasks", []byte(tid+"\n"))
	}
}

// threads are those of a task's own group.
func (w *world) threads(task string) (tids []string) {
	group, err := w.witness.cg.OpenAlone(task)
	if err != nil {
		return nil
	}
	pids, _ := group.Procs(nil) // a v1 group that has none
	_ = group.Close()
	for _, pid := range pids {
		list, _ := w.k.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for i := range list {
			tids = append(tids, list[i].Name)
		}
	}
	return tids
}

// begin takes what the agent begins beside its loop: it is done after the turn, or a while later.
func (w *world) begin(work func()) {
	c := &w.class
	if c.work = append(c.work, work); c.at <= w.now() {
		c.at = w.now()
		if c.draw.chance(0.3) {
			c.at += c.draw.seconds(0, 3)
		}
	}
}

// beside does what was begun, if it is time. Who dies in the midst of it is dead.
func (w *world) beside() {
	c := &w.class
	for len(c.work) > 0 && w.now() >= c.at && w.life != nil {
		work := c.work[0]
		c.work = c.work[1:]
		work()
		if w.life.owner.Killed() {
			w.die()
			return
		}
		w.life.beat = max(w.life.beat, w.now()) // the loop goes on meanwhile
	}
}

// wroteClass looks at a write of ours to resctrl: it is to a group of ours that the journal knows, or gives a thread
// back to the root group.
func (w *world) wroteClass(e *fault.Event) {
	rest := strings.TrimPrefix(e.Path, resctrlRoot)
	if e.Who == strangerName || rest == "tasks" {
		return
	}
	w.res.Checks++
	name, below, _ := strings.Cut(rest, "/")
	if monitor, ok := strings.CutPrefix(below, monitorsDir); ok || name == monitorsDir[:len(monitorsDir)-1] { // in a class of ours or in the root group
		if !ok {
			monitor = below
		} else if !strings.HasPrefix(name, resctrl.DefaultPrefix) {
			w.fail(checkKnown, e.Who+" wrote "+e.Path+", which is in another program's group")
		}
		name, _, _ = strings.Cut(monitor, "/")
		w.res.Counted++
	}
	if !strings.HasPrefix(name, resctrl.DefaultPrefix) {
		w.fail(checkKnown, e.Who+" wrote "+e.Path+", which is no group of ours")
		return
	}
	if e.Data == fault.MadeDir && e.Took && !w.journalHas(name) {
		w.fail(checkJournal, name+" is made, and the journal does not know of it")
	}
}

// journalHas reports whether the journal has a group of ours. It has all that count tasks as one.
func (w *world) journalHas(name string) bool {
	c, _ := w.journal()
	_, own, monitor := strings.Cut(strings.TrimPrefix(name, resctrl.DefaultPrefix+"t"), "-")
	for i := range c.Limits {
		if l := &c.Limits[i]; monitor && strings.HasSuffix(l.Path, ":mon_groups-"+own) {
			return true
		}
		if l := &c.Limits[i]; l.Found.Knob == model.ServiceClass && strings.HasSuffix(l.Path, ":"+strings.TrimPrefix(name, resctrl.DefaultPrefix)) {
			return true
		}
	}
	return false
}

// checkClasses looks after a turn: a group of ours is there for a claim, nobody is in one that is not for him, and what is
// others' is as they left it.
func (w *world) checkClasses(l *life) {
	c := &w.class
	if !c.on {
		return
	}
	w.res.Checks++
	ours := w.ourGroups()
	w.res.Classes += bit(len(ours) > 0)
	w.res.L2s += bit(slices.ContainsFunc(l.Engine.State.Ledger.Knobs, func(k engine.Knob) bool { return k.Kind == model.L2Ways && k.Ours }))
	w.res.Apart += bit(slices.ContainsFunc(ours, func(name string) bool { return strings.HasPrefix(name, servicesPrefix) }))
	w.res.Parted += bit(slices.ContainsFunc(ours, func(name string) bool {
		return strings.HasPrefix(name, servicesPrefix) && !strings.HasPrefix(name, restPrefix)
	}))
	w.res.Alone += bit(slices.ContainsFunc(ours, func(name string) bool { return strings.HasPrefix(name, alonePrefix) }))
	loose := map[string]int{}
	for _, name := range ours {
		if len(c.work) > 0 || asked(&l.Engine.State.Ledger, name) {
			continue
		}
		if loose[name] = c.loose[name] + 1; loose[name] > slackTurns && !w.troubled(&c.trouble) {
			w.fail(checkExpiry, fmt.Sprintf("%s is there for %d turns without a claim (trouble from %.1f s to %.1f s)",
				name, loose[name], float64(c.trouble.firstTrouble)/1e9, float64(c.trouble.lastTrouble)/1e9))
		}
	}
	c.loose = loose
	if w.res.Turns%stateEvery == 0 {
		w.checkTheirs()
	}
}

// alonePrefix begins the names of groups of one task, servicesPrefix those of services, restPrefix those of services that have no part of their own.
const (
	alonePrefix    = resctrl.DefaultPrefix + "task"
	servicesPrefix = resctrl.DefaultPrefix + "lc"
	restPrefix     = servicesPrefix + "-"
)

// asked reports whether somebody asks for the class that a group of ours is of: for its tasks or what it has.
func asked(l *engine.Ledger, name string) bool {
	is := func(class model.TaskNum) bool {
		return strings.HasPrefix(name, resctrl.DefaultPrefix+model.ClassName(class)+"-")
	}
	for i := range l.Knobs {
		k := &l.Knobs[i]
		for j := range k.Claims {
			if k.Scope == model.ScopeCLOS && is(k.Num) || k.Kind == model.ServiceClass && is(model.TaskNum(k.Claims[j].Value.Amount)) {
				return true
			}
		}
	}
	return false
}

// checkTheirs looks for who is in a group of ours that is not for him, and at what is others'. Services are in their own
// only where they are to be, and where no stranger was at resctrl that has half of the ways at the least.
func (w *world) checkTheirs() {
	apart := w.ever(func(p *engine.Params) bool { return p.CPU.Cache.Share == cache.Exclusive })
	for _, g := range w.witness.list {
		if g.class == model.System || g.path != g.task {
			continue
		}
		for _, tid := range w.threads(g.path) {
			text, err := w.k.ReadFile("/proc/"+tid+"/cpu_resctrl_groups", nil)
			class, _, _ := strings.Cut(string(text), "\n") // what only counts it is in the next line
			services := strings.Contains(class, servicesPrefix)
			wrong := strings.Contains(class, resctrl.DefaultPrefix) && !services || services && !apart // of a service
			if err == nil && (g.class == model.LC && wrong || g.class == model.BE && services) {
				w.fail(checkLC, fmt.Sprintf("thread %s of %s is in %q", tid, g.path, text))
			}
		}
	}
	w.checkServices()
	for name, was := range w.class.theirs {
		text, err := w.k.ReadFile(resctrlRoot+name+"/schemata", nil)
		now, bad := resctrl.ParseSchemata(string(text))
		if err = errors.Join(err, bad); err != nil || len(was.Differences(now)) > 0 {
			w.fail(checkStranger, fmt.Sprintf("%s of another program is %q, %v; it was %q", name, text, err, was))
		}
	}
}

// checkServices looks at what services have, where no stranger was at resctrl: half of the ways at the least, or two where parts of them have their own,
// which then lie beside each other, and not over each other unless something was refused.
func (w *world) checkServices() {
	least := (w.plan.machine.LLCWays + 1) / 2
	if w.ever(func(p *engine.Params) bool { return p.CPU.Cache.Parts != "" }) {
		least = 2
	}
	seen := map[int]resctrl.Mask{}
	for _, name := range w.ourGroups() {
		text, err := w.k.ReadFile(resctrlRoot+name+"/schemata", nil)
		has, bad := resctrl.ParseSchemata(string(text))
		if !strings.HasPrefix(name, servicesPrefix) || err != nil || bad != nil || w.class.deeds > 0 {
			continue
		}
		for _, d := range has.Domains(resctrl.L3) {
			mask, _ := has.Get(resctrl.L3, d)
			if resctrl.Mask(mask).Ways() < least {
				w.fail(checkLC, fmt.Sprintf("services have %#x of cache %d, of %d ways", mask, d, w.plan.machine.LLCWays))
			}
			if over := seen[d] & resctrl.Mask(mask); over != 0 && len(w.class.work) == 0 && !w.troubled(&w.class.trouble) {
				w.fail(checkLC, fmt.Sprintf("%s has %#x of cache %d, of which other services have %s for themselves", name, mask, d, over))
			}
			seen[d] |= resctrl.Mask(mask)
		}
	}
}

// checkNoClasses looks after somebody who put everything back, from a time on: nothing of ours is there, unless
// something hindered him.
func (w *world) checkNoClasses(since int64, after string, err error) {
	ours := append(w.ourGroups(), w.ourMonitors()...)
	if len(ours) > 0 && (err == nil && w.class.trouble.lastTrouble < since) {
		w.fail(checkRestored, fmt.Sprintf("after %s (%v) there is %v", after, err, ours))
	}
}

// disturbed takes in what may hinder whoever gives a class back: it reads and writes resctrl, lists threads, and
// opens the groups of tasks.
func (c *classWorld) disturbed(now int64, e *fault.Event) {
	if e.Who == strangerName || e.Fault == "" && e.Err == nil {
		return
	}
	if e.Op&(fault.Open|fault.List|fault.Identify) != 0 || strings.HasPrefix(e.Path, resctrl.DefaultPoint) ||
		strings.HasPrefix(e.Path, "/proc/") || strings.HasSuffix(e.Path, "/cgroup.procs") {
		c.trouble.hindered(now)
	}
}
