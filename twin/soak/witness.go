package soak

import (
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/blkio"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/fault"
)

// journalPath is where the agents' journal is, on a disk that outlives them.
const journalPath = "/state/journal"

// recordName is how faults name the record.
const recordName = "record"

// watchedGroup is one cgroup as the witness knows it.
type watchedGroup struct {
	path  string
	inode uint64
	task  string      // path of the task that it is or is part of; "": of none
	class model.Class // of that task
	knobs [model.NumKnobs]watchedKnob
	// The present stretch of trouble: faults and refusals that could hinder a release here.
	firstTrouble, lastTrouble int64
}

// watchedKnob is one knob of a group.
type watchedKnob struct {
	kind model.KnobKind
	// rightful are the settings that may stand here once we are gone: as it was made, or as
	// a stranger left it; the newest is the last.
	rightful []model.Setting
	now      model.Setting
	// mixed: a stranger wrote in the midst of our writes. Then what stands may be partly
	// his and partly what was found.
	mixed bool
	// partly: a stranger wrote a part of it while the rest was ours.
	partly bool
	// wild are the files that a stranger wrote while we held it; none once an operator spoke.
	wild []string
	// unnoted: it was given CPUs back while the journal's disk took no note of it.
	unnoted bool
	// loose is for how many turns something of ours stands here that no claim asks for.
	loose  int
	writes []int64 // when we tried to write here, in the last minute
}

// isRightful reports whether a setting may stand in a group once we are gone.
func (v *witness) isRightful(g *watchedGroup, now model.Setting) bool {
	k := &g.knobs[now.Knob]
	switch {
	case k.kind == model.CPUPlace:
		return slices.ContainsFunc(k.rightful, func(r model.Setting) bool { return v.stands(g, r.CPUs, now.CPUs) })
	case !k.mixed:
		return slices.ContainsFunc(k.rightful, func(r model.Setting) bool {
			if k.noRoom(r, now) {
				r.BurstUsec = now.BurstUsec
			}
			return r == now
		})
	case k.kind == model.CPUWeight: // who is made normal again has the default for a moment
		return slices.Contains(k.rightful, now) || now.Amount == model.WeightDefault
	}
	if k.kind == model.GroupFreeze || k.kind == model.IOMaxKnob || k.kind == model.MemoryHigh {
		return slices.Contains(k.rightful, now)
	}
	any := func(same func(r model.Setting) bool) bool { return slices.ContainsFunc(k.rightful, same) }
	return any(func(r model.Setting) bool { return r.QuotaUsec == now.QuotaUsec }) &&
		any(func(r model.Setting) bool { return r.PeriodUsec == now.PeriodUsec }) &&
		any(func(r model.Setting) bool { return r.BurstUsec == now.BurstUsec || k.noRoom(r, now) })
}

// noRoom says that a burst cannot be put back under the quota that a stranger wrote.
func (k *watchedKnob) noRoom(rightful, now model.Setting) bool {
	return k.partly && now.QuotaUsec >= 0 && rightful.BurstUsec > now.QuotaUsec
}

// ours reports whether what stands in a group is not rightful.
func (v *witness) ours(g *watchedGroup, kind model.KnobKind) bool {
	return !v.isRightful(g, g.knobs[kind].now)
}

// witness knows the truth about limits: it reads the kernel without faults, and is told of
// every write.
type witness struct {
	w      *world
	cg     cgroup.Driver          // without faults
	io     *blkio.Controller      // likewise; nil: the machine has no disk
	memory *reclaim.Memory        // likewise; nil: it is on v1
	mounts [model.NumKnobs]string // of the hierarchies with the knobs
	list   []*watchedGroup
	gone   model.CPUSet // CPUs that were ever offline

	renamed map[string]model.Class // tasks' groups under other names than the plan's
	from    map[string]string      // the names that these had

	// strangers is when they last changed what was held, since the last report.
	strangers map[taskKnob]int64
	storm     storm
	refused   int64 // when the journal's disk last refused something
	unwritten bool  // and it has taken no entry since
}

// group returns a group that lives, nil for none.
func (v *witness) group(path string) *watchedGroup {
	for _, g := range v.list {
		if g.path == path {
			return g
		}
	}
	return nil
}

// look takes in which groups there are.
func (v *witness) look() error {
	paths, err := v.cg.List()
	if err != nil {
		return err
	}
	kept := v.list[:0]
	for _, g := range v.list {
		if ino, err := v.cg.Inode(g.path); err == nil && ino == g.inode {
			kept = append(kept, g)
		}
	}
	clear(v.list[len(kept):])
	v.list = kept
	for _, p := range paths { // a group comes before those in it
		if v.group(p) != nil {
			continue
		}
		g := &watchedGroup{path: p}
		if g.inode, err = v.cg.Inode(p); err != nil {
			return err
		}
		for kind := range model.OfCgroups {
			now, err := v.read(p, kind)
			if err != nil {
				return err
			}
			g.knobs[kind] = watchedKnob{kind: kind, now: now, rightful: v.inherited(p, now)}
		}
		g.task, g.class = v.taskOf(p)
		v.list = append(v.list, g)
	}
	return nil
}

// readFile reads a knob's file.
func (v *witness) readFile(path string, kind model.KnobKind) (model.Setting, error) {
	switch kind {
	case model.CPUBandwidth:
		now, err := v.cg.ReadCPUMax(path)
		return model.Bandwidth(model.CPUMax(now)), err
	case model.IOMaxKnob:
		if v.io == nil {
			return model.LimitIO(""), nil
		}
		return linux.IOMaxOf(v.io, path)
	case model.MemoryHigh:
		if v.memory == nil {
			return model.HighMemory(model.NoMemoryHigh), nil
		}
		return linux.MemoryHighOf(v.memory, path)
	case model.GroupFreeze:
		frozen, err := v.cg.ReadFreezeAsked(path)
		return model.Freeze(frozen), err
	case model.CPUWeight:
		idle, err := v.cg.ReadIdle(path)
		if err == nil && idle {
			return model.Weight(model.WeightIdle), nil
		}
		shares, err := v.cg.ReadShares(path) // kernels before 5.15 have no cpu.idle
		return model.Weight(int64(shares)), err
	}
	list, err := v.cg.ReadCPUs(path)
	if err != nil {
		return model.Setting{Knob: kind}, err
	}
	cpus, err := model.ParseCPUSet(list)
	return model.Place(cpus), err
}

// taskOf returns the task that a group is or is part of.
func (p *plan) taskOf(path string) (string, model.Class) {
	for i := range p.tasks {
		t := &p.tasks[i]
		if t.class != model.System && (path == t.path || strings.HasPrefix(path, t.path+"/")) {
			return t.path, t.class
		}
	}
	return "", model.System
}

// taskOf is the plan's, or says it of a group that has another name now.
func (v *witness) taskOf(path string) (string, model.Class) {
	for to, class := range v.renamed {
		if within(path, to) {
			return to, class
		}
	}
	return v.w.plan.taskOf(path)
}

// groupOf returns the group of a kernel file, the file's name, and of which knob it is part.
func (v *witness) groupOf(file string) (group, name string, kind model.KnobKind) {
	for kind := range model.OfCgroups {
		rest, ok := strings.CutPrefix(file, v.mounts[kind]+"/")
		i := strings.LastIndexByte(rest, '/')
		if !ok || v.mounts[kind] == "" {
			continue
		}
		if i < 0 {
			group = "/" + rest // the folder of a group at the top, by which those in it are found
			continue
		}
		if name = rest[i+1:]; kind == knobOf(name) {
			return "/" + rest[:i], name, kind
		}
		group = "/" + rest[:i]
	}
	return group, name, model.NumKnobs
}

// knobOf returns the knob that a file is part of, NumKnobs for others.
func knobOf(name string) model.KnobKind {
	switch name {
	case "cpu.max", "cpu.max.burst", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us":
		return model.CPUBandwidth
	case "cpuset.cpus":
		return model.CPUPlace
	case "cpu.weight", "cpu.shares", "cpu.idle":
		return model.CPUWeight
	case "io.max":
		return model.IOMaxKnob
	case "memory.high":
		return model.MemoryHigh
	case "cgroup.freeze", "freezer.state":
		return model.GroupFreeze
	}
	return model.NumKnobs
}

// wrote is told of every write to a kernel file, ours or a stranger's.
func (v *witness) wrote(w *world, e *fault.Event) {
	if e.Who != strangerName && (strings.HasSuffix(e.Path, reclaimName) || e.Path == generationsName) {
		w.reclaimed(e)
		return
	}
	path, name, kind := v.groupOf(e.Path)
	g := v.group(path)
	if e.Who != strangerName && g != nil && name == endName {
		if e.Took {
			w.ends(path)
		}
		return
	}
	if g == nil || kind == model.NumKnobs {
		if e.Who != strangerName && e.Took {
			w.fail(checkKnown, e.Who+" wrote "+e.Path+", which is no knob of a group that is known")
		}
		return
	}
	k := &g.knobs[kind]
	before := k.now
	if now, err := v.read(path, kind); err == nil {
		k.now = now
	}
	if e.Who == strangerName {
		if e.Took {
			v.strange(g, name, before)
		}
		return
	}
	w.res.Writes++
	v.settled(g, k)
	v.write(w, g, e, before)
}

// strangerName is who writes in package fault's events when it is not us.
const strangerName = "stranger"

// withoutUs is what would stand had a stranger written a file where another setting was rightful
// and nothing of ours, but for a burst above his quota (noRoom).
func withoutUs(rightful model.Setting, file string, now model.Setting) model.Setting {
	want := now
	switch {
	case now.Knob == model.CPUWeight && file == "cpu.idle" && now.Amount != model.WeightIdle && rightful.Amount != model.WeightIdle:
		return rightful
	case now.Knob != model.CPUBandwidth:
		return now
	}
	if file != "cpu.max" && file != "cpu.cfs_quota_us" {
		want.QuotaUsec = rightful.QuotaUsec
	}
	if file != "cpu.max" && file != "cpu.cfs_period_us" {
		want.PeriodUsec = rightful.PeriodUsec
	}
	if file != "cpu.max.burst" && file != "cpu.cfs_burst_us" {
		want.BurstUsec = rightful.BurstUsec
	}
	return want
}

// strange takes a stranger's write in. What would stand without us may stand, and what stood
// before may not, unless nobody could have told his write from ours.
func (v *witness) strange(g *watchedGroup, file string, before model.Setting) {
	k := &g.knobs[before.Knob]
	if k.now == before {
		return // he wrote what was there
	}
	if l := v.limitOf(g, k.kind); l != nil {
		v.strangers[taskKnob{l.Task, k.kind}] = v.w.now()
	} else if v.w.turning {
		v.strangers[taskKnob{g.task, k.kind}] = v.w.now()
	}
	wasOurs := !v.isRightful(g, before)
	// What stood may be ours also where it reads as somebody's (mistaken).
	mayBe := wasOurs || v.limitOf(g, k.kind) != nil
	var his []model.Setting
	shared := false
	for _, r := range k.rightful { // of what stood rightfully it is what stands now
		if k.kind == model.IOMaxKnob && mayBe { // a number that he wrote, too, and that was ours: io.max says of none who set it
			if same := model.LimitIO(k.now.IO.Without(before.IO, r.IO)); same != k.now {
				his, shared = append(his, same), true
			}
		}
		if r = withoutUs(r, file, k.now); !slices.Contains(his, r) {
			his = append(his, r)
		}
	}
	if !wasOurs && !slices.Contains(his, k.now) {
		his = append(his, k.now)
	}
	k.partly = mayBe && k.kind == model.CPUBandwidth
	switch {
	case v.w.turning:
		k.rightful = append(k.rightful, k.now)
		k.mixed = true
	case v.mistakable(g, k):
		k.rightful = append(append(k.rightful, his...), k.now)
		v.mistaken(g, k)
	case k.kind == model.CPUPlace && before.CPUs.Empty() && v.limitOf(g, k.kind) == nil:
		// Whoever makes a group on v1 makes it without a list and then copies the one above, and nobody
		// can tell whether the same list is his own.
		k.rightful, k.mixed = v.inherited(g.path, k.now), false
		if !slices.Contains(k.rightful, k.now) {
			k.rightful = append(k.rightful, k.now)
		}
	default:
		k.rightful, k.mixed = his, k.mixed && mayBe
		if l := v.limitOf(g, k.kind); wasOurs && !shared && v.w.life != nil && holds(v.w.life.Engine.State, g, k.kind) && (l == nil || l.Task == g.task) { // else it is another task to come
			k.wild = append(k.wild, file)
		}
	}
	// Whoever has been here often has written everything.
	if n := len(k.rightful); n > maxRightful {
		k.rightful = slices.Delete(k.rightful, 0, n-maxRightful)
	}
}

const maxRightful = 32

// mistakable reports whether the journal holds a limit of which the setting that stands now
// may be ours: written and not yet looked at, or the very same. A list of v1 that the kernel emptied,
// as the last of its CPUs went offline, is nobody's word: its processes were moved out of the group. And
// putting back goes ahead where the journal's disk takes no note of it: what a crash in the midst of that
// leaves is ours, and reads the same as a stranger's who writes just that.
func (v *witness) mistakable(g *watchedGroup, k *watchedKnob) bool {
	l := v.limitOf(g, k.kind)
	return l != nil && (l.Ours(k.now) || l.OnTheWayBack(k.now) || k.kind == model.CPUPlace && (v.lost(l, k.now.CPUs) || !v.flat() && k.now.CPUs.Empty() || v.standsIn(l, k.now.CPUs) || v.cut(l, k.now.CPUs) || v.fitted(g, l, k.now)) ||
		k.kind == model.CPUWeight && k.now.Amount == model.WeightDefault && slices.Contains(l.Left(), model.Weight(model.WeightIdle)))
}

// cut reports whether a list is what was found less CPUs that are offline: v1 takes no list that names
// one, so that this is what ours is when it has been put back.
func (v *witness) cut(l *journal.Limit, now model.CPUSet) bool {
	return !v.flat() && now == l.Found.CPUs.And(v.w.k.Machine().Online())
}

// standsIn reports whether a list of all CPUs may be ours, standing in for an empty one, which the kernel (v2)
// refuses where processes are. Who was killed between noting that an empty list is to come back and writing it
// leaves a journal that says the same whether he wrote or not; the group has the same CPUs with either.
func (v *witness) standsIn(l *journal.Limit, now model.CPUSet) bool {
	return v.flat() && l.ReadBack == nil && l.Intended.CPUs.Empty() && now == v.possible()
}

// mistaken takes in that what a stranger wrote over ours is what we left there: he wrote that himself,
// or the kernel struck from his list what it would have struck from ours. While the journal speaks
// of ours nobody has seen what he wrote before, or the disk did not take it, and whoever puts back
// what the journal says was found cannot tell the two apart.
func (v *witness) mistaken(g *watchedGroup, k *watchedKnob) {
	if l := v.limitOf(g, k.kind); !slices.Contains(k.rightful, l.Found) {
		k.rightful = append(k.rightful, l.Found)
	}
	k.wild = nil
}

// journal returns what stands in the journal. It is read again when its disk has changed.
func (w *world) journal() (*journal.Contents, error) {
	r := &w.read
	if at := w.disk.Changes(); r.c == nil || r.at != at {
		r.at = at
		r.c, r.err = r.Read()
	}
	return r.c, r.err
}

// limitOf finds what the journal has of a group's knob, nil for nothing.
func (v *witness) limitOf(g *watchedGroup, kind model.KnobKind) *journal.Limit {
	c, _ := v.w.journal()
	was := g.path // under the name that it had before
	if from, ok := v.from[g.task]; ok {
		was = from + g.path[len(g.task):]
	}
	for i := range c.Limits {
		if l := &c.Limits[i]; l.Found.Knob == kind && (l.Path == g.path || l.Path == was) && l.Inode == v.inodeOf(g, kind) {
			return l
		}
	}
	return nil
}

// inodeOf returns the inode number of a group in the hierarchy of a knob.
func (v *witness) inodeOf(g *watchedGroup, kind model.KnobKind) uint64 {
	switch kind {
	case model.CPUPlace:
		ino, _ := v.cg.PlaceInode(g.path) // one that is gone has none
		return ino
	case model.GroupFreeze:
		ino, _ := v.cg.FreezerInode(g.path)
		return ino
	}
	return g.inode
}

// ended takes in that an agent is gone, and with it what the journal's disk did not take: CPUs that
// were given back, and that the kernel (v1) struck some from a list while they were offline, which
// the agent saw. Where all of them are online again nothing in the kernel tells such a list from a
// stranger's.
func (v *witness) ended() {
	online := v.w.k.Machine().Online()
	for _, g := range v.list {
		k := &g.knobs[model.CPUPlace]
		l := v.limitOf(g, k.kind)
		struck := v.unwritten && l != nil && v.lost(l, k.now.CPUs) && l.ReadBack != nil && l.ReadBack.CPUs.Within(online)
		if (struck || k.unnoted) && !slices.Contains(k.rightful, k.now) && (l == nil || !l.Ours(k.now)) {
			k.rightful = append(k.rightful, k.now)
		}
		k.unnoted = false
	}
}

// disturbed is told of everything that is not as it should be.
func (v *witness) disturbed(w *world, e *fault.Event) {
	if e.Op == fault.Append && strings.HasPrefix(e.Path, journalPath) {
		v.storm.appends = append(v.storm.appends, w.now())
		if e.Err != nil {
			v.refused, v.unwritten = w.now(), true
		} else if e.Data == "append" {
			v.unwritten = false
		}
		if e.Data == "rename" && e.Err == nil && w.life != nil && w.turning {
			w.res.Renewals++
		}
	}
	if e.Who == strangerName || e.Fault == "" && e.Err == nil {
		return
	}
	at, _, _ := v.groupOf(e.Path)
	// Without these no group is found, and no list of CPUs known for what the kernel takes.
	all := e.Path == "/proc/self/mountinfo" || strings.HasPrefix(e.Path, "/sys/devices/system/cpu/") || slices.Contains(v.mounts[:], e.Path)
	for _, g := range v.list {
		if g.task == "" || !all && (at == "" || !within(at, g.task) && !within(g.task, at)) {
			continue
		}
		g.hindered(w.now())
	}
}

// hindered notes that something is in the way of a release.
func (g *watchedGroup) hindered(now int64) {
	if now-g.lastTrouble > 2*(g.lastTrouble-g.firstTrouble)+4*slackNsec {
		g.firstTrouble = now // the stretch before is over
	}
	g.lastTrouble = max(now, g.lastTrouble)
}

// runsAgain takes in that an agent starts: what an earlier one that was stopped was to be given in
// time (stall) ends with it.
func (g *watchedGroup) runsAgain(now int64) {
	if ahead := g.lastTrouble - now; ahead > 0 {
		g.firstTrouble, g.lastTrouble = g.firstTrouble-ahead, now
	}
}
