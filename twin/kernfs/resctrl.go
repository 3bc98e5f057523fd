package kernfs

// /sys/fs/resctrl: the resource control file system of Linux 6.12 on an Intel server with
// L3 CAT (CDP too), MBA and monitoring of the L3, and L2 CAT where it is to have that, as kernel/resctrl uses it. What is written takes
// effect on the machine's physics: masks and MBA levels of a class, and the class and the
// RMID of each process.
//
// https://docs.kernel.org/filesystems/resctrl.html
//
// Errors and the words of last_cmd_status are those of arch/x86/kernel/cpu/resctrl, held
// against real kernels by kernel/resctrl/resctrltest.
//
// Otherwise than in a kernel:
//
//   - A process follows, as a whole, the group that most of its threads are in. Files tell
//     of each thread.
//   - cpus and cpus_list are kept, and do nothing: the physics knows no class of a CPU.
//   - Under cdp the physics has one mask a class, that of data. It has no L2 of its own: masks of L2s are kept, and do nothing.
//   - Pseudo-locking is refused, as on every CPU for which the kernel knows no way to do it.
//   - Limbo is looked at when somebody asks, as if the worker had run each second.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// ResctrlOptions describe the CPU and the kernel. The zero value is a server of the kind
// that most published curves are of.
type ResctrlOptions struct {
	CLOSIDs       int    // of the L3; 0: 16. The bandwidth has 8 at most
	RMIDs         int    // 0: two for each CPU of a socket
	ShareableBits uint32 // ways that devices fill too; 0: the two highest, as DDIO has them
	// L2Ways is how many ways each core's L2 has, of which classes may be given some; 0: the CPU has no L2 CAT. The domains have
	// numbers with gaps between them, as a real machine's.
	L2Ways int
	// Unpadded is the style of schemata since Linux 6.15.
	Unpadded bool
}

const (
	resctrlPoint = resctrl.DefaultPoint
	// resctrlDevice is the mount's in mountinfo.
	resctrlDevice = "0:33"

	// monScale is the unit in which the hardware counts: what a value is rounded down to.
	monScale = machine.MonitorBytes
	// minBandwidth and bandwidthGran are Intel's, in per cent.
	minBandwidth, bandwidthGran = 10, 10
	maxMBCLOSIDs, defCLOSIDs    = 8, 16
	// kernelCLOSIDs is how many the kernel hands out at most.
	kernelCLOSIDs = 32
	// unlimitedMBps is MBA_MAX_MBPS.
	unlimitedMBps = 1<<32 - 1
)

// resctrlFS is the file system, mounted or not. It is used with the kernel's lock held.
type resctrlFS struct {
	k   *Kernel
	m   *machine.Machine
	cfg machine.Config
	opt ResctrlOptions

	mounted bool
	mount   resctrl.MountOptions
	point   *node // what the mount hides
	open    int   // files and directories, which keep it from being unmounted

	schemata []*resctrlSchema
	root     *resctrlGroup
	groups   []*resctrlGroup // control groups, the root group first, then in the order in which they were made
	class    []int           // of the machine, by CLOSID
	ids      map[int32]resctrlIDs
	online   []bool // of each domain
	cpus     model.CPUSet

	pool      rmidPool
	threshold uint64
	answers   map[int]string // what reading an RMID says instead of a number

	status     []byte // last_cmd_status
	statusFull bool

	control mbaControl
}

// resctrlIDs are what a thread carries.
type resctrlIDs struct{ closid, rmid int }

// resctrlGroup is a directory with tasks in it.
type resctrlGroup struct {
	name    string // "" is the root group
	ctrl    *resctrlGroup
	closid  int
	rmid    int
	mode    resctrl.Mode
	cpus    model.CPUSet
	mon     []*resctrlGroup // monitoring groups, of a control group
	dir     *node
	monData *node
	base    [][2]float64 // total and local traffic of its RMID when it was made, by domain
}

// isMon says whether it is a monitoring group.
func (g *resctrlGroup) isMon() bool { return g.ctrl != g }

// newResctrl returns the file system of a machine, not mounted.
func newResctrl(k *Kernel, m *machine.Machine, o ResctrlOptions) (*resctrlFS, error) {
	cfg := m.Config()
	o.CLOSIDs = cmp.Or(o.CLOSIDs, defCLOSIDs)
	o.RMIDs = cmp.Or(o.RMIDs, 2*cfg.CoresPerSocket*cfg.ThreadsPerCore)
	full := uint32(1)<<cfg.LLCWays - 1
	if o.ShareableBits == 0 && cfg.LLCWays > 2 {
		o.ShareableBits = full &^ (full >> 2)
	}
	if o.L2Ways < 0 || o.L2Ways > 20 || o.CLOSIDs < 1 || o.RMIDs < 1 || o.RMIDs > 4096 || o.ShareableBits&^full != 0 {
		return nil, errors.New("kernfs: no CPU has such resctrl")
	}
	r := &resctrlFS{
		k: k, m: m, cfg: cfg, opt: o,
		ids: map[int32]resctrlIDs{}, class: []int{0}, answers: map[int]string{},
		online: make([]bool, cfg.Caches()),
	}
	r.threshold = uint64(cfg.LLCBytes) / uint64(o.RMIDs) / monScale * monScale
	r.pool.init(o.RMIDs)
	return r, nil
}

// doMount mounts it, as mount(2) does: EBUSY when it is mounted, EINVAL for an option that
// this CPU has not.
func (r *resctrlFS) doMount(o resctrl.MountOptions) error {
	switch {
	case r.mounted:
		return unix.EBUSY
	case o.CDPL2 && r.opt.L2Ways == 0:
		return unix.EINVAL
	}
	r.mounted, r.mount = true, o
	r.clearStatus()
	r.makeSchemata()
	clear(r.online) // sync makes the domains' directories
	r.point = r.k.dir(resctrlPoint)
	in := r.point.parent
	delete(in.children, r.point.name)
	in.subdirs--
	r.root = &resctrlGroup{mode: resctrl.Shareable, base: make([][2]float64, r.cfg.Caches()), dir: r.k.addDir(in, r.point.name)}
	r.root.ctrl = r.root
	r.groups = []*resctrlGroup{r.root}
	r.addGroupFiles(r.root)
	r.addInfo()
	r.control = mbaControl{}
	r.cpus = model.CPUSet{}
	r.sync()
	return nil
}

// doUnmount unmounts it, as umount(2) does: EINVAL when it is not mounted, EBUSY while
// something in it is open. All groups go, and everything has the defaults again.
func (r *resctrlFS) doUnmount() error {
	switch {
	case !r.mounted:
		return unix.EINVAL
	case r.open > 0:
		return unix.EBUSY
	}
	for _, g := range slices.Clone(r.groups[1:]) {
		r.removeCtrl(g)
	}
	for _, g := range slices.Clone(r.root.mon) {
		r.removeMon(g)
	}
	for _, s := range r.schemata {
		for d := range s.ctrl {
			r.setDefault(s, d, 0)
		}
	}
	clear(r.ids)
	r.k.eachProcess(r.follow)
	r.k.remove(r.root.dir)
	r.point.parent.children[r.point.name] = r.point
	r.point.parent.subdirs++
	r.mounted, r.root, r.groups = false, nil, nil
	return nil
}

// sync notices CPUs and domains that came and went, and lets pass what time did.
func (r *resctrlFS) sync() {
	if !r.mounted {
		return
	}
	now := r.m.Online()
	if now != r.cpus {
		r.hotplug(now)
	}
	r.limbo()
	if r.mount.MBps {
		r.regulate()
	}
}

// hotplug takes CPUs that went offline from their groups and gives those that came to the
// root group. A domain lives as long as one of its CPUs does; a new one has the defaults.
func (r *resctrlFS) hotplug(now model.CPUSet) {
	come, gone := now.Without(r.cpus), r.cpus.Without(now)
	for _, g := range r.groups {
		g.cpus = g.cpus.Without(gone)
		for _, m := range g.mon {
			m.cpus = m.cpus.Without(gone)
		}
	}
	for cpu := range r.cfg.CPUs() {
		if come.Has(cpu) {
			r.root.cpus.Add(cpu)
		}
	}
	before := r.cpus
	r.cpus = now
	for _, s := range r.schemata {
		for d := range s.ctrl {
			for closid := range s.closids {
				if r.lives(s, d, now) && !r.lives(s, d, before) {
					r.setDefault(s, d, closid)
				}
			}
		}
	}
	for d := range r.online {
		lives := r.lives(r.schemata[0], d, now)
		switch {
		case lives && !r.online[d]:
			r.eachGroup(func(g *resctrlGroup) {
				g.base[d] = r.traffic(g.rmid, d)
				r.addMonDomain(g, d)
			})
		case !lives && r.online[d]:
			r.pool.forget(d)
			r.eachGroup(func(g *resctrlGroup) { r.k.remove(g.monData.children[monDomainName(d)]) })
		}
		r.online[d] = lives
	}
}

// traffic returns an RMID's total and local bytes on a domain.
func (r *resctrlFS) traffic(rmid, d int) [2]float64 {
	total, local := r.m.RMIDTraffic(rmid, d)
	return [2]float64{total, local}
}

// eachGroup calls f for every group.
func (r *resctrlFS) eachGroup(f func(*resctrlGroup)) {
	for _, g := range r.groups {
		f(g)
		for _, m := range g.mon {
			f(m)
		}
	}
}

// follow gives a process's task the class and RMID that most of its threads carry.
func (r *resctrlFS) follow(p *process) {
	var most resctrlIDs
	best := 0
	count := map[resctrlIDs]int{}
	for tid := range p.tids() { // the first that has the most: not in the order of a map
		id := r.ids[tid]
		count[id]++
	}
	for tid := range p.tids() {
		if id := r.ids[tid]; count[id] > best {
			best, most = count[id], id
		}
	}
	// A task that has just ended has nothing to be moved.
	_ = r.m.SetCLOS(p.num, r.classOf(most.closid))
	_ = r.m.SetRMID(p.num, most.rmid)
}

// classOf returns the machine's class of a CLOSID.
func (r *resctrlFS) classOf(closid int) int {
	for len(r.class) <= closid {
		r.class = append(r.class, r.m.AddCLOS())
	}
	return r.class[closid]
}

// exited forgets the threads of a process that ended.
func (r *resctrlFS) exited(p *process) {
	for tid := range p.tids() {
		delete(r.ids, tid)
	}
}

// forked lets a new process begin in its parent's group.
func (r *resctrlFS) forked(parent int32, child *process) {
	if id, ok := r.ids[parent]; ok {
		for tid := range child.tids() {
			r.ids[tid] = id
		}
		r.follow(child)
	}
}

// mountLine is the line in mountinfo, "" when it is not mounted.
func (r *resctrlFS) mountLine(id, parent int) string {
	if !r.mounted {
		return ""
	}
	options := "rw"
	if s := r.mount.String(); s != "" {
		options += "," + s
	}
	return fmt.Sprintf("%d %d ", id, parent) + resctrlDevice + " / " + resctrlPoint +
		" rw,nosuid,nodev,noexec,relatime - resctrl resctrl " + options + "\n"
}

// The text of last_cmd_status: 512 bytes, and when a text does not fit nothing more is
// said until somebody's command clears it.
const statusSize = 512

func (r *resctrlFS) clearStatus() { r.status, r.statusFull = r.status[:0], false }

// say appends to last_cmd_status.
func (r *resctrlFS) say(text string) {
	if r.statusFull {
		return
	}
	if len(r.status)+len(text) >= statusSize {
		r.statusFull = true
		return
	}
	r.status = append(r.status, text...)
}

// refuse says a word and returns EINVAL.
func (r *resctrlFS) refuse(text string) error {
	r.say(text + "\n")
	return unix.EINVAL
}
