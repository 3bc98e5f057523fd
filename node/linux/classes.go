package linux

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// Classes of service are control groups of resctrl: which tasks are in one (model.ServiceClass), and what it has of
// each cache and memory controller (model.CacheWays, model.MemoryBandwidth; of all L2s alike, model.L2Ways).
//
// A group is made with the first knob that needs it and removed with the last. To remove it gives everything back at
// once: its tasks fall to the root group, from which alone they were taken. So the journal knows groups and not knobs:
// one intent before a group is made, and that is done with once it is gone. A group's name has a part of its own for
// each journal, so that whatever has that name is ours, also where it was left by somebody whose journal was lost; the
// journal has no inode number of it, since one batch may remove a group and make it again.
//
// resctrl has one lock for all tools on the machine, which may be waited for for two seconds, and the kernel walks all
// threads for a list of one group's. So all of this happens beside the loop, one batch after the other; results and
// what strangers did are there when they are there (see beside.go).

// classes is the loop's side. Where the worker runs, what it works with is the worker's alone.
type classes struct {
	j      *journal.Journal
	begin  func(work func())
	queue  []classOp
	noted  map[model.TaskNum]bool // the journal has a class's group
	worker classWorker
	counts bool           // the journal has monitoring groups
	wanted int            // tasks that were last to be counted
	told   *model.Classes // what the machine has; nil: not known yet
	asked  bool           // somebody wants to know that
	again  int64          // when groups that could not be removed are tried again

	mu       sync.Mutex
	ended    chan struct{} // closed when the batch that is under way is done; nil: none is
	done     []model.Result
	readings []model.KnobReading
	have     *model.Classes // not in a snapshot yet; nil: nothing new
	memory   []model.MemorySample
	domains  []model.DomainSample
	lacks    map[model.TaskNum]string // why a task is not counted
}

// classOp is a change, or a task that is gone, or another try to remove what nobody needs, or a look at everything, or a reading of what is moved to and from memory and
// of what tasks have of it, or the tasks that are to be counted.
type classOp struct {
	change model.Change
	unit   string // in which a level counts
	task   model.Task
	gone   bool
	again  bool // groups that could not be removed are tried again
	tend   bool
	meter  bool
	count  bool
	want   []countWish
}

func newClasses(fsys hostfs.FS, m *cgroup.Mounts, clock Clock, begin func(func()), j *journal.Journal) *classes {
	c := &classes{j: j, begin: begin, noted: map[model.TaskNum]bool{}}
	if begin == nil {
		c.begin = func(work func()) { go work() }
	}
	c.worker = classWorker{fs: fsys, mounts: m, groups: map[model.TaskNum]*classGroup{}, left: map[model.TaskNum]bool{}}
	c.worker.meter.now = clock.MonoNsec
	c.worker.clock, _ = clock.(resctrl.Clock) // a simulated machine's; else the driver's own
	if j == nil {
		return c
	}
	c.worker.own = ownPart(j.Path())
	for _, l := range j.Outstanding() {
		if l.Path == monitorLimit(c.worker.own).Path {
			c.counts, c.worker.counted.left = true, true
		}
		class := model.TaskNum(l.Intended.Amount)
		if l.Found.Knob == model.ServiceClass && l.Path == classLimit(class, c.worker.own).Path { // whoever started could not remove it
			c.noted[class], c.worker.left[class] = true, true
		}
	}
	c.tend()
	return c
}

// ownPart is what tells the groups of one journal from those of others.
func ownPart(journal string) string { return fmt.Sprintf("-%08x", crc32.ChecksumIEEE([]byte(journal))) }

// groupOf names a class's group, without the driver's prefix.
func groupOf(class model.TaskNum, own string) string { return model.ClassName(class) + own }

// classPath is what the journal calls a class's group. Paths of cgroups begin with a slash.
const classPath = "resctrl:"

// classLimit is what the journal has of a class's group: that it is there, and was not before.
func classLimit(class model.TaskNum, own string) journal.Limit {
	none := model.InClass(model.ClassFound)
	return journal.Limit{Path: classPath + groupOf(class, own), Found: none, Before: none, Intended: model.InClass(class)}
}

// take hands a change in.
func (c *classes) take(change model.Change, t model.Task) {
	op := classOp{change: change, task: t}
	if c.told != nil {
		op.unit = c.told.LevelUnit
	}
	c.queue = append(c.queue, op)
}

// errNoClasses: the host was opened without them.
var errNoClasses = errors.New("nothing puts tasks into classes of service here")

func refusal(c *model.Change, err error) model.Result {
	none := model.Ask(c.Value.Knob)
	return model.Result{Seq: c.Seq, Target: c.Target, Kind: model.Refused, Found: none, Now: none, Error: err.Error()}
}

// forget lets go of a task whose cgroup is gone.
func (c *classes) forget(task string) {
	if len(c.noted)+len(c.queue) > 0 {
		c.queue = append(c.queue, classOp{gone: true, task: model.Task{Path: task}})
	}
}

// tend has the worker look at everything: who came into a task from outside, what strangers did, and what the machine has.
func (c *classes) tend() {
	if len(c.noted) > 0 || c.asked {
		c.queue = append(c.queue, classOp{tend: true})
	}
}

// look has the worker find out what the machine has.
func (c *classes) look() {
	c.asked = true
	c.start(func() {
		have := c.worker.have()
		c.mu.Lock()
		c.have = have
		c.mu.Unlock()
	})
}

// goOn begins what is waiting, unless the worker is still at the batch before. Of what would make a group the
// journal knows beforehand; where that cannot be, it is refused.
func (c *classes) goOn() {
	if len(c.queue) == 0 || c.working() {
		return
	}
	c.note()
	batch := slices.DeleteFunc(c.queue, func(op classOp) bool {
		err := c.intend(&op)
		if err != nil && !op.count { // of those nobody waits for a result
			c.done = append(c.done, refusal(&op.change, err))
		}
		return err != nil
	})
	if c.queue = nil; len(batch) == 0 {
		return
	}
	c.start(func() {
		done, readings := c.worker.do(batch)
		c.mu.Lock()
		if slices.ContainsFunc(batch, func(op classOp) bool { return op.meter }) {
			c.memory, c.domains = c.worker.metered, c.worker.had
		}
		c.lacks = c.worker.counted.lacks
		c.done, c.readings = append(c.done, done...), append(c.readings, readings...)
		if c.worker.news {
			told := *c.worker.told
			c.have, c.worker.news = &told, false
		}
		c.mu.Unlock()
	})
}

// intend notes the group that an operation may make.
func (c *classes) intend(op *classOp) error {
	if op.count && len(op.want) > 0 && !c.counts {
		err := c.j.Intent([]journal.Limit{monitorLimit(c.worker.own)})
		c.counts = err == nil
		return err
	}
	class := op.class()
	if c.noted[class] || !op.takes() {
		return nil
	}
	err := c.j.Intent([]journal.Limit{classLimit(class, c.worker.own)})
	if err == nil {
		c.noted[class] = true
	}
	return err
}

func (c *classes) start(work func()) {
	ended := make(chan struct{})
	c.mu.Lock()
	c.ended = ended
	c.mu.Unlock()
	c.begin(func() {
		defer func() {
			c.mu.Lock()
			c.ended = nil
			c.mu.Unlock()
			close(ended)
		}()
		work()
	})
}

func (c *classes) working() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended != nil
}

// results appends what came since.
func (c *classes) results(dst []model.Result, nowNsec int64) []model.Result {
	c.mu.Lock()
	from := len(dst)
	dst, c.done = append(dst, c.done...), c.done[:0]
	c.mu.Unlock()
	for i := from; i < len(dst); i++ {
		dst[i].MonoNsec = nowNsec
	}
	if !c.working() {
		c.note()
		if c.worker.waste() && nowNsec >= c.again { // looks at everything may be a minute apart
			c.again = nowNsec + leftoverFirstNsec
			c.queue = append(c.queue, classOp{again: true})
		}
	}
	c.goOn()
	return dst
}

// compare appends what knobs say that say something else than was written.
func (c *classes) compare(dst []model.KnobReading) []model.KnobReading {
	c.mu.Lock()
	defer c.mu.Unlock()
	dst, c.readings = append(dst, c.readings...), c.readings[:0]
	return dst
}

// news returns what the machine has, once.
func (c *classes) news() (have *model.Classes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, c.have = c.have, nil
	return have
}

// note brings the journal in line with the groups that there are. The worker rests.
func (c *classes) note() {
	for class := range c.noted {
		if l := classLimit(class, c.worker.own); c.worker.groups[class] == nil && !c.worker.left[class] {
			c.j.Done(l.Key())
			delete(c.noted, class)
		}
	}
	if k := &c.worker.counted; c.counts && c.wanted == 0 && len(k.groups) == 0 && !k.left {
		l := monitorLimit(c.worker.own)
		c.j.Done(l.Key())
		c.counts = false
	}
}

// close waits for what is under way; false: it is still at it.
func (c *classes) close() bool {
	c.queue = nil
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	if ended == nil {
		return true
	}
	select {
	case <-ended:
		return true
	case <-time.After(maxStopping + resctrl.DefaultLockWait):
		return false
	}
}

// restore removes all groups of ours.
func (c *classes) restore() []node.Restoration {
	if !c.close() {
		return []node.Restoration{{Path: classPath, Kind: node.NotRestored, Error: "resctrl is still at work"}}
	}
	c.note()
	items := restoreClasses(c.worker.fs, c.worker.clock, c.j)
	clear(c.worker.groups)
	clear(c.noted)
	clear(c.worker.counted.groups)
	c.counts = false
	return items
}

// restoreClasses removes the groups that a journal has, where they are still ours.
func restoreClasses(fsys hostfs.FS, clock resctrl.Clock, j *journal.Journal) []node.Restoration {
	var items []node.Restoration
	var d *resctrl.Driver
	point := resctrl.DefaultPoint
	for _, l := range j.Outstanding() {
		if l.Found.Knob != model.ServiceClass {
			continue
		}
		it := node.Restoration{Path: l.Path, Found: l.Found, Now: l.Found, Kind: node.Restored}
		err := error(nil)
		if d == nil {
			if d, err = openResctrl(fsys, clock); err == nil {
				point = d.Mounted().Point
			}
		}
		own, monitors := strings.CutPrefix(l.Path, monitorPath)
		switch {
		case err != nil:
		case monitors:
			it.Kind, err = removeMonitors(d, own)
		default:
			it.Kind, err = removeGroup(fsys, d, nameOf(&l))
		}
		switch {
		case noResctrl(err) && monitors && monitorsGone(fsys, point), noResctrl(err) && !monitors && isGone(fsys, point, resctrl.Identity{Name: nameOf(&l)}):
			it.Kind = node.LeftGone
		case err != nil:
			it.Kind, it.Now, it.Error = node.NotRestored, l.Intended, err.Error()
		}
		if items = append(items, it); it.Kind != node.NotRestored {
			j.Done(l.Key())
		}
	}
	return items
}

// nameOf is the group of a limit.
func nameOf(l *journal.Limit) resctrl.Name {
	return resctrl.Name{Ctrl: resctrl.DefaultPrefix + path.Base(strings.TrimPrefix(l.Path, classPath))}
}

// removeGroup removes the group of a name, which says that it is ours.
func removeGroup(fsys hostfs.FS, d *resctrl.Driver, name resctrl.Name) (node.RestoreKind, error) {
	inode, err := fsys.Inode(d.Mounted().Point + "/" + name.Ctrl)
	if errors.Is(err, fs.ErrNotExist) {
		return node.LeftGone, nil
	}
	if err != nil {
		return "", err
	}
	r, err := d.Remove(resctrl.Identity{Name: name, Inode: inode}, true)
	switch {
	case err != nil:
		return "", err
	case r.Outcome == resctrl.WasGone:
		return node.LeftGone, nil
	case r.Outcome == resctrl.MadeAnew:
		return "", errors.New("it was made anew meanwhile")
	}
	return node.Restored, nil
}
