package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// maxTasks bounds what is watched; a node of the largest kind runs some hundred.
const maxTasks = 10_000

// watched is one task with its open descriptors and the thread groups that are followed.
type watched struct {
	task    model.Task
	group   cgroup.Group
	perf    taskCounters
	readers []taskReader
	limit   lack // why the task cannot be capped; of BE tasks only
	place   lack // why the task cannot be placed
	inner   lack // why throttling of the groups inside is not seen; of LC and eligible tasks only

	sample int // of the snapshot that is being taken

	unread      lack  // why its delay could not be read
	unreadSince int64 // monotonic, when that was the last time
	listFrom    int64 // monotonic; before, its processes are not listed

	listed                [model.NumKnobs]listed
	pulse                 model.Counter // usage at the last pulse
	waited, waitedForeign uint64        // for a CPU, since it is measured, in nanoseconds
	cpuInode              uint64        // of its directory in the hierarchy with the cpu controller; 0: not yet asked
	shield                string        // why it cannot be held, as it was last told

	// members are the thread groups that the cgroup held when it was last listed, by id;
	// membership (members.go) says when that is done again.
	members membership

	// Thread groups of the last reading, by id. Run and delay of the task are the sums of
	// their growth since they were first seen: a process that ends takes no time away.
	tgids     []int32
	lastRun   []uint64
	lastDelay []uint64
	lastIO    []uint64
	runNsec   uint64
	delayNsec uint64
	ioNsec    uint64
	gone      bool
	announced bool

	used, usedBefore model.Counter // CPU time at the last reading, and at usedNsec
	usedNsec         int64
}

func (w *watched) close() error {
	w.perf.drop("")
	for _, r := range w.readers {
		r.close()
	}
	return w.group.Close()
}

// pooled reports whether it is an LC task without CPUs of its own.
func (w *watched) pooled() bool { return w.task.Class == model.LC && !w.task.Exclusive }

func (h *Host) find(n model.TaskNum) *watched {
	i, ok := slices.BinarySearchFunc(h.tasks, n, func(w *watched, n model.TaskNum) int {
		return int(int64(w.task.Num) - int64(n))
	})
	if !ok {
		return nil
	}
	return h.tasks[i]
}

// doubtAtOnce is how many lists of processes a discovery doubts: of more they are doubted by turns.
const doubtAtOnce = 256

// discover looks after the tasks that are watched, lists the cgroups and opens those that
// became tasks. Where they cannot be listed, what is watched goes on.
func (h *Host) discover() {
	h.lookAtCPUs()
	for _, w := range h.tasks {
		if err := w.group.Refresh(); errors.Is(err, cgroup.ErrVanished) {
			w.gone = true
		}
	}
	h.doubt()
	paths, err := h.cg.List()
	why, partial := "", (*cgroup.PartialError)(nil)
	if err != nil {
		why = err.Error()
	}
	h.outages.set(h.opt.Log, "not all cgroups can be listed: tasks in those that cannot are not found, the others are looked after", why)
	if err == nil || errors.As(err, &partial) {
		h.adopt(paths)
	}
	if h.opt.Places && h.holders.choose(h.cg, h.nextNum, h.tasks) {
		h.bound.sources[ofHolders] = boundSource{} // of other groups
	}
	h.provide()
}

// doubt has the processes of tasks listed anew, of many by turns.
func (h *Host) doubt() {
	turns := (len(h.tasks)-1)/doubtAtOnce + 1
	for i := h.discoveries % turns; i < len(h.tasks); i += turns {
		h.tasks[i].members.doubt = true
	}
	h.discoveries++
}

// adopt opens those cgroups that became tasks.
func (h *Host) adopt(paths []string) {
	sel := h.opt.Rules.Select(paths, match.Host{Names: h.podNames(), Vital: h.vital(), RootOwned: h.rootOwned()})
	h.nested.tell(h.opt.Log, &sel)
	h.tellSelected(&sel)
	watching := make(map[string]bool, len(h.tasks)) // the cgroup that is now at a path
	for _, w := range h.tasks {
		if !w.gone {
			watching[w.task.Path] = true
		}
	}
	unwatched := map[string][]string{} // by why
	for i := range sel.Tasks {
		p, rule := sel.Tasks[i].Path, sel.Tasks[i].Rule
		if watching[p] {
			continue
		}
		if len(h.tasks) >= maxTasks {
			why := fmt.Sprintf("more cgroups match the rules than the %d that can be watched", maxTasks)
			unwatched[why] = append(unwatched[why], p)
			continue
		}
		if err := h.watch(p, rule); err != nil && !errors.Is(err, cgroup.ErrVanished) {
			why := cause(err)
			unwatched[why] = append(unwatched[why], p)
		}
	}
	h.outages.setAll(h.opt.Log, "cgroups that a rule matches cannot be watched", unwatched)
}

// watch opens a task's cgroup and has it watched.
func (h *Host) watch(path string, rule *match.Rule) error {
	open := h.cg.OpenAlone
	if rule.Class == model.LC || rule.Eligible {
		open = h.cg.Open // its throttling is asked about, also of groups inside
	}
	g, err := open(path)
	if err != nil {
		return err
	}
	w := &watched{group: g, readers: h.readersOf(), task: model.Task{
		Num: h.nextNum, Path: path, Inode: g.Identity().Inode, Job: rule.Job, Class: rule.Class,
		Importance: rule.Importance, Production: rule.Production, Eligible: rule.Eligible,
		Exclusive: rule.Exclusive, Cores: rule.Cores, CPUs: h.cpusOf(path), Size: h.sizeOf(path, rule), Guest: rule.Guest,
	}}
	h.askLimit(w)
	h.nextNum++
	h.tasks = append(h.tasks, w)
	return nil
}

// sizeOf is which of its job's sizes a task has from now on, as the limit is that was found: holds of an earlier run are put back by then. Of a
// limit that cannot be read it has none.
func (h *Host) sizeOf(path string, rule *match.Rule) string {
	if rule.Size != model.SizeByCPULimit {
		return rule.Size
	}
	v, err := h.cg.ReadCPUMax(path)
	if err != nil {
		return ""
	}
	return model.SizeOfLimit(model.CPUMax(v).Ratio())
}

// vital returns the cgroups of the agent and of PID 1, which are never held.
func (h *Host) vital() []string {
	var paths []string
	why := ""
	for _, process := range [...]string{"self", "1"} {
		list, err := cgroup.ReadPaths(h.opt.FS, h.cg.Layout(), process)
		switch {
		case err == nil:
			paths = append(paths, list...)
		case !errors.Is(err, fs.ErrNotExist): // a simulated kernel has no such processes
			why = err.Error()
		}
	}
	h.outages.set(h.opt.Log, "the cgroups of the agent and of PID 1 are not known, and so not kept from being held", why)
	return paths
}

// rootOwned returns what says whether a cgroup is root's. It remembers, for one discovery.
func (h *Host) rootOwned() func(path string) bool {
	known := map[string]bool{}
	return func(path string) bool {
		yes, ok := known[path]
		if !ok {
			uid, err := h.cg.Owner(path)
			yes = err == nil && uid == 0
			known[path] = yes
		}
		return yes
	}
}

// tellSelected says which cgroups are no tasks, or not of their rule's class.
func (h *Host) tellSelected(sel *match.Selection) {
	refused, system := map[string][]string{}, map[string][]string{}
	for _, r := range sel.Refused {
		refused[r.Why] = append(refused[r.Why], r.Path)
	}
	for i := range sel.Tasks {
		if m := &sel.Tasks[i]; m.Vital != "" {
			system["never held"] = append(system["never held"], m.Path)
		}
	}
	h.outages.setAll(h.opt.Log, "cgroups that a rule matches are no tasks", refused)
	h.outages.setAll(h.opt.Log, "the agent or PID 1 runs in tasks, which are of class system whatever their rule says", system)
}

// cause returns an error's last cause in words that are the same for all cgroups.
func cause(err error) string {
	for _, known := range [...]error{unix.EMFILE, unix.ENFILE, unix.ENAMETOOLONG, unix.ENOMEM, unix.EIO, unix.EACCES, cgroup.ErrUnsupported} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// provide looks after what single tasks may lack, and says for whom that changed.
func (h *Host) provide() {
	for _, w := range h.tasks {
		if w.gone {
			continue
		}
		if w.limit.why != "" {
			h.askLimit(w)
		}
		for _, r := range w.readers {
			r.open(w.task.Path)
		}
		if !h.opt.CapsOnly {
			h.readSettings(w)
		}
	}
	h.tell(LackLimit, "these tasks' CPU cannot be limited", func(w *watched) *lack { return &w.limit })
	h.provideDelay()
	h.tell(LackNested, "when quotas inside these tasks stop them, neighbours may be blamed", func(w *watched) *lack { return &w.inner })
	h.tell(LackPlace, "these tasks cannot be kept to CPUs of their own", func(w *watched) *lack { return &w.place })
	if h.perf != nil {
		h.perf.provide(h.tasks)
		h.tell(LackCounters, "no cycles per instruction are known of these tasks", func(w *watched) *lack { return &w.perf.lack })
	}
}

// askLimit notes whether a task has a CPU limit that could be lowered. On cgroup v2 it has
// none where the group above does not hand the cpu controller down. To change that for
// other people's groups is not for an agent: it would give all their siblings a weight.
func (h *Host) askLimit(w *watched) {
	if w.task.Class != model.BE {
		return
	}
	w.limit.why = ""
	_, err := h.cg.ReadCPUMax(w.task.Path)
	var absent *cgroup.AbsentControllerError
	switch {
	case !hasNoLimit(err):
	case errors.As(err, &absent) && absent.StopsAt != "":
		// In these words it is the same reason for all tasks that have it.
		w.limit.why = fmt.Sprintf("cgroup.subtree_control of %s lacks %s", absent.StopsAt, absent.Controller)
	case errors.As(err, &absent):
		w.limit.why = fmt.Sprintf("cgroup v2 has no %s controller here", absent.Controller)
	default:
		w.limit.why = "this kernel has no CPU bandwidth limits"
	}
}

// cpusOf returns how many CPUs a task may use, 0 when that is not known.
func (h *Host) cpusOf(path string) int {
	list, err := h.cg.ReadEffectiveCPUs(path)
	if err != nil {
		return 0
	}
	set, err := model.ParseCPUSet(list)
	if err != nil {
		return 0
	}
	return set.Len()
}

// hasNoLimit reports whether an error means that the cgroup is there and has no CPU limit,
// neither set nor to be set: no cpu controller (v2), or a kernel without bandwidth limits.
func hasNoLimit(err error) bool {
	return errors.Is(err, cgroup.ErrNoController) || errors.Is(err, cgroup.ErrUnsupported)
}
