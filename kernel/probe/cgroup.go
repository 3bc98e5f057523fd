package probe

// Control groups: Documentation/admin-guide/cgroup-v1/, Documentation/admin-guide/cgroup-v2.rst
//
// Package cgroup says where the hierarchies are and which mounts it cannot use: what it refuses is not there for us.
//
// Files of cgroup2 exist only in groups below the root whose parent enables the controller; where nobody made
// such a group there is nothing to look at. Then the root's cgroup.subtree_control says whether groups would get
// the controller, and the release, or a sign elsewhere, whether the controller has the file:
//
//	/proc/sys/kernel/sched_cfs_bandwidth_slice_us    there with CONFIG_CFS_BANDWIDTH only
//
// Files of v1 are mostly in the root group too.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// maxGroups bounds how many groups are looked at for a file of cgroup2: a large node has tens of thousands, and
// the slices that an init system or a kubelet makes are among the first.
const maxGroups = 256

// layout is where the controllers are.
type layout struct {
	mounts *cgroup.Mounts // never nil
	err    error          // why mounts says nothing
	self   string         // this process's group in cgroup2
}

// readLayout finds the hierarchies; a failure shows in the findings.
func (p *prober) readLayout() {
	p.groups.mounts, p.groups.err = cgroup.Discover(p.fs)
	if p.groups.err != nil {
		p.groups.mounts = &cgroup.Mounts{}
	}
	if p.unified() != "" {
		p.groups.self, _ = p.ownGroup("")
	}
}

// unified is where cgroup2 is mounted, or "".
func (p *prober) unified() string { return p.groups.mounts.Unified }

// v1 is where a controller's v1 hierarchy is mounted, or "".
func (p *prober) v1(c cgroup.Controller) string { return p.groups.mounts.V1[c] }

// ownGroup returns this process's path in the hierarchy of a v1 controller, or in cgroup2 for "".
func (p *prober) ownGroup(controller cgroup.Controller) (string, error) {
	text, err := p.read("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	return parseOwnGroup(text, string(controller))
}

// parseOwnGroup finds a hierarchy's line in /proc/self/cgroup: "4:cpu,cpuacct:/a" or "0::/a".
func parseOwnGroup(text, controller string) (string, error) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(f) == 3 && strings.HasPrefix(f[2], "/") && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], nil
		}
	}
	return "", fmt.Errorf("/proc/self/cgroup: no line for %q", controller)
}

// group2 finds a group of cgroup2 below its root that has the marker file: this process's own, else the first in
// alphabetical order, parents before children.
func (p *prober) group2(marker string) (string, bool) {
	root := p.unified()
	if self := p.groups.self; self != "" && self != "/" && !strings.Contains(self, "..") && p.exists(root+self+"/"+marker) {
		return root + self, true
	}
	queue := []string{root}
	for seen := 0; len(queue) > 0 && seen < maxGroups; seen++ {
		dir := queue[0]
		queue = queue[1:]
		if dir != root && p.exists(dir+"/"+marker) {
			return dir, true
		}
		entries, err := p.fs.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir && len(queue) < maxGroups {
				queue = append(queue, dir+"/"+e.Name)
			}
		}
	}
	return "", false
}

// controlFile is a file that a controller gives each group.
type controlFile struct {
	controller cgroup.Controller
	v1         string  // its name on v1; "" where v1 has no such file
	v2         string  // its name on cgroup2
	marker     string  // a file of cgroup2 that every group with the controller has
	since      version // of v2
	sign       string  // a path that is there when the kernel is built with it; "" when it always is
	needs      string  // what gives it
	meaning    string
}

const bandwidthSign = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us"

// cgroupFindings answers about control groups.
func (p *prober) cgroupFindings() []Finding {
	return []Finding{
		p.layoutFinding(),
		p.writable(),
		p.controlled(CPUQuota, controlFile{cgroup.CPU, "cpu.cfs_quota_us", "cpu.max", "cpu.weight", version{4, 15}, bandwidthSign,
			"CONFIG_CFS_BANDWIDTH", "bounds a group's CPU time per period"}, RemedyPool, RemedyCap),
		p.controlled(CPUBurst, controlFile{cgroup.CPU, "cpu.cfs_burst_us", "cpu.max.burst", "cpu.weight", version{5, 14}, bandwidthSign,
			"Linux 5.14 with CONFIG_CFS_BANDWIDTH", "mainline bounds the burst by the quota: beyond it the kernel refuses"}, RemedyBurst),
		p.controlled(CPUIdle, controlFile{cgroup.CPU, "cpu.idle", "cpu.idle", "cpu.weight", version{5, 15}, "",
			"Linux 5.15", "yields to everything else, and holds back less than a quota does"}, RemedyDemote),
		p.controlled(Cpuset, controlFile{cgroup.CPUSet, "cpuset.cpus", "cpuset.cpus", "cpuset.cpus.effective", version{5, 0}, "",
			"CONFIG_CPUSETS", "keeps a group on named CPUs"}, RemedyCpuset, RemedyPool),
		p.freezer(),
		p.core(CgroupKill, "cgroup.kill", version{5, 14}, RemedyEvict),
		p.controlled(MemoryReclaim, controlFile{cgroup.Memory, "", "memory.reclaim", "memory.current", version{5, 19}, "",
			"the memory controller on cgroup2, Linux 5.19", "takes a group's memory back on demand, and sets no limit"}, RemedyReclaim),
		p.controlled(MemoryHigh, controlFile{cgroup.Memory, "", "memory.high", "memory.current", version{4, 5}, "",
			"the memory controller on cgroup2", "slows a group down above it; not used to reclaim, since the group's threads would wait"}, RemedyMemoryHigh),
	}
}

// layoutFinding says v1, hybrid or v2, which controllers are where, and which mounts cannot be used.
func (p *prober) layoutFinding() Finding {
	m := p.groups.mounts
	if p.groups.err != nil {
		return Finding{Name: CgroupLayout, Answer: CouldNotTell, Why: oneLine(p.groups.err.Error())}
	}
	var parts []string
	if m.Layout == cgroup.LayoutHybrid {
		parts = append(parts, "hybrid")
	}
	if len(m.V1) > 0 {
		var names []string
		for c := range m.V1 {
			names = append(names, string(c))
		}
		slices.Sort(names)
		parts = append(parts, "v1: "+strings.Join(names, " "))
	}
	if m.Unified != "" {
		names := "no controllers"
		if len(m.UnifiedControllers) > 0 {
			names = strings.Trim(fmt.Sprint(m.UnifiedControllers), "[]")
		}
		part := fmt.Sprintf("v2 at %s: %s", m.Unified, names)
		if m.UnifiedPartial {
			part += ", seen from a cgroup namespace: groups outside of it are not there"
		}
		parts = append(parts, part)
	}
	for _, r := range m.Refused {
		parts = append(parts, oneLine(r.Mountpoint+" cannot be used: "+r.Reason))
	}
	f := Finding{Name: CgroupLayout, Answer: yesNo(m.Layout != cgroup.LayoutNone), Needs: "cgroup2 mounted at /sys/fs/cgroup"}
	if len(parts) == 0 {
		parts = []string{"no cgroup or cgroup2 mount"}
	}
	f.Why = "/proc/self/mountinfo: " + strings.Join(parts, "; ")
	return settled(f)
}

// writable says whether limits can be written at all: the mounts are not read-only and the files' owner is us,
// or permissions do not bind us. Nothing is tried.
func (p *prober) writable() Finding {
	f := Finding{Name: CgroupWritable, Gives: []string{RemedyPool, RemedyBurst, RemedyCap, RemedyCpuset, RemedyReclaim, RemedyIOMax, RemedyMemoryHigh, RemedyFreeze}}
	dir := p.v1(cgroup.CPU)
	if dir == "" {
		dir = p.unified()
	}
	if dir == "" {
		f.Answer, f.Why = No, "no hierarchy has the cpu controller"
		if p.groups.err != nil {
			f.Answer, f.Why = CouldNotTell, oneLine(p.groups.err.Error())
		}
		return f
	}
	if p.readOnly(dir) {
		f.Answer, f.Why = No, fmt.Sprintf("/proc/self/mountinfo: %s is mounted read-only", dir)
		f.Needs = "the host's cgroup mount, writable (in a container: not the read-only copy)"
		return f
	}
	root, dac := p.uidZero(), p.capability(CapDACOverride)
	switch {
	case root.Answer == Yes || dac.Answer == Yes:
		f.Answer, f.Why = Yes, fmt.Sprintf("%s is mounted writable; root user: %s, CAP_DAC_OVERRIDE: %s", dir, root.Answer, dac.Answer)
	case root.Answer == No && dac.Answer == No:
		f.Answer, f.Why = No, "neither the root user nor CAP_DAC_OVERRIDE: "+root.Why
		f.Needs = "to run as root, or CAP_DAC_OVERRIDE"
	default:
		f.Answer, f.Why = CouldNotTell, root.Why
	}
	return f
}

// controlled answers about a file of a controller, wherever the controller is.
func (p *prober) controlled(name string, c controlFile, gives ...string) Finding {
	f := Finding{Name: name, Gives: gives, Needs: c.needs}
	if dir := p.v1(c.controller); dir != "" {
		if c.v1 == "" {
			f.Answer, f.Why = No, fmt.Sprintf("%s: the %s controller is on v1, which has no %s", dir, c.controller, c.v2)
			return f
		}
		return p.there(f, dir+"/"+c.v1, c.meaning)
	}
	root := p.unified()
	if !slices.Contains(p.groups.mounts.UnifiedControllers, c.controller) {
		f.Answer, f.Why = No, fmt.Sprintf("no cgroup hierarchy has the %s controller", c.controller)
		f.Needs = fmt.Sprintf("the %s controller", c.controller)
		if p.groups.err != nil {
			f.Answer = CouldNotTell
		}
		return f
	}
	if group, found := p.group2(c.marker); found {
		return p.there(f, group+"/"+c.v2, c.meaning)
	}
	handed := root + "/cgroup.subtree_control"
	text, err := p.read(handed)
	switch {
	case err != nil:
		f.Answer, f.Why, f.Needs = CouldNotTell, oneLine(err.Error()), ""
	case !slices.Contains(strings.Fields(text), string(c.controller)):
		f.Answer, f.Why = No, fmt.Sprintf("%s: %q: no group is given the %s controller", handed, text, c.controller)
		f.Needs = fmt.Sprintf("+%s in that file, and in those of the groups down to the tasks (systemd writes them for a slice with such a limit)", c.controller)
	default:
		return p.wouldBeThere(f, c)
	}
	return f
}

// there answers by looking.
func (p *prober) there(f Finding, path, meaning string) Finding {
	f.Answer, f.Why = No, path+": not there"
	if p.exists(path) {
		f.Answer, f.Why = Yes, path+": there; "+meaning
	}
	return settled(f)
}

// wouldBeThere answers where the root hands the controller down and no group has been made yet.
func (p *prober) wouldBeThere(f Finding, c controlFile) Finding {
	root := p.unified()
	nobody := fmt.Sprintf("no group below %s to look at, and it hands %s down", root, c.controller)
	switch {
	case p.exists(root + "/" + c.v2):
		f.Answer, f.Why = Yes, fmt.Sprintf("%s/%s: there, in the root; %s", root, c.v2, c.meaning)
	case p.kernel == version{}:
		f.Answer, f.Why = CouldNotTell, nobody+"; the kernel release is unknown"
	case !p.kernel.atLeast(c.since):
		f.Answer, f.Why = No, fmt.Sprintf("%s is in Linux since %s", c.v2, c.since)
	case c.sign == "":
		f.Answer, f.Why = Yes, fmt.Sprintf("%s; by the release: in Linux since %s; %s", nobody, c.since, c.meaning)
	case p.exists(c.sign):
		f.Answer, f.Why = Yes, fmt.Sprintf("%s; by %s and the release: in Linux since %s; %s", nobody, c.sign, c.since, c.meaning)
	default:
		f.Answer, f.Why = No, c.sign+": not there"
	}
	return settled(f)
}

// settled drops what a yes does not need.
func settled(f Finding) Finding {
	if f.Answer == Yes {
		f.Needs = ""
	}
	return f
}

// core answers about a file that every group of cgroup2 below the root has since a release. With no such
// group to look at it goes by the release.
func (p *prober) core(name, file string, since version, gives ...string) Finding {
	f := Finding{Name: name, Gives: gives, Needs: "cgroup2 of Linux " + since.String()}
	root := p.unified()
	if root == "" {
		f.Answer, f.Why = No, "/proc/self/mountinfo: no cgroup2 mount"
		if p.groups.err != nil {
			f.Answer, f.Why = CouldNotTell, oneLine(p.groups.err.Error())
		}
		return f
	}
	if group, found := p.group2("cgroup.procs"); found {
		path := group + "/" + file
		f.Answer, f.Why = No, path+": not there"
		if p.exists(path) {
			f.Answer, f.Why, f.Only = Yes, path+": there", p.only()
		}
		return settled(f)
	}
	if p.kernel == (version{}) {
		f.Answer, f.Why = CouldNotTell, "no group below "+root+" to look at, and the kernel release is unknown"
		return f
	}
	f.Answer = yesNo(p.kernel.atLeast(since))
	f.Why = fmt.Sprintf("no group below %s to look at; by the release: since Linux %s", root, since)
	if f.Answer == Yes {
		f.Only = p.only()
	}
	return settled(f)
}

// only says on a hybrid machine whom files of cgroup2 speak for.
func (p *prober) only() string {
	if len(p.groups.mounts.V1) == 0 {
		return ""
	}
	return "tasks that live in " + p.unified()
}

// freezer is a controller of v1, and cgroup.freeze of v2.
func (p *prober) freezer() Finding {
	if dir := p.v1(cgroup.Freezer); dir != "" {
		return Finding{Name: Freezer, Answer: Yes, Gives: []string{RemedyFreeze},
			Why: dir + ": v1 freezer (freezer.state in each group below the root)"}
	}
	return p.core(Freezer, "cgroup.freeze", version{5, 2}, RemedyFreeze)
}
