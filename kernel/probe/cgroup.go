package probe

// Control groups: Documentation/admin-guide/cgroup-v1/, Documentation/admin-guide/cgroup-v2.rst
//
// /proc/self/mounts names the hierarchies, cgroup.controllers in the root of cgroup2 the controllers there:
//
//	cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0
//	cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
//
// Files of cgroup2 exist only in groups below the root whose parent enables the controller; where nobody
// made such a group there is nothing to look at. Files of v1 are mostly in the root group too.

import (
	"fmt"
	"sort"
	"strings"
)

// maxGroups bounds how many groups are looked at for a file of cgroup2: a large node has tens of thousands, and
// the slices that an init system or a kubelet makes are among the first.
const maxGroups = 256

// mount is one line of /proc/self/mounts.
type mount struct{ dir, fstype, options string }

// layout is where the controllers are.
type layout struct {
	v1        map[string]mount // by controller
	v2        mount            // dir is empty when cgroup2 is not mounted
	v2Control []string
	v2Err     error
	mountErr  error
	self      string // this process's group in cgroup2
}

// readMounts reads /proc/self/mounts; a failure shows in the layout.
func (p *prober) readMounts() {
	text, err := p.read("/proc/self/mounts")
	if err != nil {
		p.groups.mountErr = err
		return
	}
	p.mounts = parseMounts(text)
}

// parseMounts reads the mount table; lines that are none are left out.
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 4 {
			mounts = append(mounts, mount{dir: unescape(f[1]), fstype: f[2], options: f[3]})
		}
	}
	return mounts
}

// unescape undoes \040 and its like, which the kernel writes for blanks and backslashes in a path.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1:i+4]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// octal says whether three characters are one byte in octal.
func octal(s string) bool {
	return s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7'
}

// controllers of v1 that we name; a v1 mount's options hold them among others.
var v1Controllers = []string{"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "net_cls",
	"net_prio", "perf_event", "pids", "rdma"}

// readLayout sorts the mounts into hierarchies.
func (p *prober) readLayout() {
	p.groups.v1 = map[string]mount{}
	for _, m := range p.mounts {
		switch m.fstype {
		case "cgroup2":
			if p.groups.v2.dir == "" { // a second mount shows the same hierarchy
				p.groups.v2 = m
			}
		case "cgroup":
			for _, option := range strings.Split(m.options, ",") {
				if _, seen := p.groups.v1[option]; !seen && contains(v1Controllers, option) {
					p.groups.v1[option] = m
				}
			}
		}
	}
	if p.groups.v2.dir == "" {
		return
	}
	text, err := p.read(p.groups.v2.dir + "/cgroup.controllers")
	p.groups.v2Err = err
	p.groups.v2Control = strings.Fields(text)
	p.groups.self, _ = p.ownGroup("")
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// ownGroup returns this process's path in the hierarchy of a v1 controller, or in cgroup2 for "".
func (p *prober) ownGroup(controller string) (string, error) {
	text, err := p.read("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	return parseOwnGroup(text, controller)
}

// parseOwnGroup finds a hierarchy's line in /proc/self/cgroup: "4:cpu,cpuacct:/a" or "0::/a".
func parseOwnGroup(text, controller string) (string, error) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(f) == 3 && strings.HasPrefix(f[2], "/") && contains(strings.Split(f[1], ","), controller) {
			return f[2], nil
		}
	}
	return "", fmt.Errorf("/proc/self/cgroup: no line for %q", controller)
}

// rootOf2 says whether the cgroup2 mount shows the true root. In a cgroup namespace, as in a container, what looks
// like the root is a group below it, which cgroup.type tells: only such groups have the file.
func (p *prober) rootOf2() bool { return !p.exists(p.groups.v2.dir + "/cgroup.type") }

// group2 finds a group of cgroup2 below its root that has the marker file: this process's own, else the first in
// alphabetical order, parents before children.
func (p *prober) group2(marker string) (string, bool) {
	root := p.groups.v2.dir
	if self := p.groups.self; self != "" && self != "/" && !strings.Contains(self, "..") && p.exists(root+self+"/"+marker) {
		return root + self, true
	}
	trueRoot := p.rootOf2()
	queue := []string{root}
	for seen := 0; len(queue) > 0 && seen < maxGroups; seen++ {
		dir := queue[0]
		queue = queue[1:]
		if (dir != root || !trueRoot) && p.exists(dir+"/"+marker) {
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

// cgroupFindings answers about control groups.
func (p *prober) cgroupFindings() []Finding {
	return []Finding{
		p.layoutFinding(),
		p.writable(),
		p.controlled(CPUQuota, "cpu", "cpu.cfs_quota_us", "cpu.max", "cpu.weight", "CONFIG_CFS_BANDWIDTH",
			"bounds a group's CPU time per period", RemedyPool, RemedyCap),
		p.controlled(CPUBurst, "cpu", "cpu.cfs_burst_us", "cpu.max.burst", "cpu.weight", "Linux 5.14",
			"mainline bounds the burst by the quota: beyond it the kernel refuses", RemedyBurst),
		p.controlled(CPUIdle, "cpu", "cpu.idle", "cpu.idle", "cpu.weight", "Linux 5.15",
			"yields to everything else, and holds back less than a quota does"),
		p.controlled(Cpuset, "cpuset", "cpuset.cpus", "cpuset.cpus", "cpuset.cpus.effective", "CONFIG_CPUSETS",
			"keeps a group on named CPUs", RemedyCpuset, RemedyPool),
		p.freezer(),
		p.core(CgroupKill, "cgroup.kill", 5, 14, "", RemedyEvict),
		p.memoryFile(MemoryReclaim, "memory.reclaim", 5, 19),
		p.memoryFile(MemoryHigh, "memory.high", 4, 5),
	}
}

// layoutFinding says v1, hybrid or v2, and which controllers are where.
func (p *prober) layoutFinding() Finding {
	if p.groups.mountErr != nil {
		return Finding{Name: CgroupLayout, Answer: CouldNotTell, Why: oneLine(p.groups.mountErr.Error())}
	}
	var v1 []string
	for controller := range p.groups.v1 {
		v1 = append(v1, controller)
	}
	sort.Strings(v1)
	v2 := "none"
	if len(p.groups.v2Control) > 0 {
		v2 = strings.Join(p.groups.v2Control, " ")
	}
	if p.groups.v2Err != nil {
		v2 = oneLine(p.groups.v2Err.Error())
	}
	switch {
	case len(v1) > 0 && p.groups.v2.dir != "":
		return Finding{Name: CgroupLayout, Answer: Yes, Why: fmt.Sprintf("/proc/self/mounts: hybrid; v1: %s; v2 at %s: %s",
			strings.Join(v1, " "), p.groups.v2.dir, v2)}
	case len(v1) > 0:
		return Finding{Name: CgroupLayout, Answer: Yes, Why: "/proc/self/mounts: v1: " + strings.Join(v1, " ")}
	case p.groups.v2.dir != "":
		return Finding{Name: CgroupLayout, Answer: Yes, Why: fmt.Sprintf("/proc/self/mounts: v2 at %s: %s", p.groups.v2.dir, v2)}
	}
	return Finding{Name: CgroupLayout, Answer: No, Why: "/proc/self/mounts: no cgroup or cgroup2 mount",
		Needs: "cgroup2 mounted at /sys/fs/cgroup"}
}

// writable says whether limits can be written at all: the mounts are not read-only and the files' owner is us,
// or permissions do not bind us. Nothing is tried.
func (p *prober) writable() Finding {
	f := Finding{Name: CgroupWritable, Gives: []string{RemedyPool, RemedyBurst, RemedyCap, RemedyCpuset, RemedyReclaim, RemedyFreeze}}
	where := p.groups.v2
	if m, ok := p.groups.v1["cpu"]; ok {
		where = m
	}
	if where.dir == "" {
		f.Answer, f.Why = No, "/proc/self/mounts: no hierarchy has the cpu controller"
		return f
	}
	if contains(strings.Split(where.options, ","), "ro") {
		f.Answer, f.Why = No, fmt.Sprintf("/proc/self/mounts: %s is mounted read-only", where.dir)
		f.Needs = "the host's cgroup mount, writable (in a container: not the read-only copy)"
		return f
	}
	root, dac := p.uidZero(), p.capability(CapDACOverride)
	switch {
	case root.Answer == Yes || dac.Answer == Yes:
		f.Answer, f.Why = Yes, fmt.Sprintf("%s is mounted writable; root user: %s, CAP_DAC_OVERRIDE: %s", where.dir, root.Answer, dac.Answer)
	case root.Answer == No && dac.Answer == No:
		f.Answer, f.Why = No, "neither the root user nor CAP_DAC_OVERRIDE: "+root.Why
		f.Needs = "to run as root, or CAP_DAC_OVERRIDE"
	default:
		f.Answer, f.Why = CouldNotTell, root.Why
	}
	return f
}

// controlled answers about a file of a controller, wherever the controller is. marker is a file of v2 that every
// group with the controller enabled has.
func (p *prober) controlled(name, controller, v1File, v2File, marker, since, meaning string, gives ...string) Finding {
	f := Finding{Name: name, Gives: gives, Needs: since}
	if m, ok := p.groups.v1[controller]; ok {
		path := m.dir + "/" + v1File
		f.Answer = yesNo(p.exists(path))
		f.Why = fmt.Sprintf("%s: there; %s", path, meaning)
		if f.Answer == No {
			f.Why = path + ": not there"
		}
		return settled(f)
	}
	if !contains(p.groups.v2Control, controller) {
		f.Answer, f.Why, f.Needs = No, "no cgroup hierarchy has the "+controller+" controller", "the "+controller+" controller"
		if p.groups.mountErr != nil || p.groups.v2Err != nil {
			f.Answer = CouldNotTell
		}
		return f
	}
	group, found := p.group2(marker)
	if !found {
		f.Answer = CouldNotTell
		f.Why = fmt.Sprintf("%s has the %s controller, and no group looked at has it enabled", p.groups.v2.dir, controller)
		f.Needs = "a group whose parent has +" + controller + " in cgroup.subtree_control"
		return f
	}
	path := group + "/" + v2File
	f.Answer = yesNo(p.exists(path))
	f.Why = fmt.Sprintf("%s: there; %s", path, meaning)
	if f.Answer == No {
		f.Why = path + ": not there"
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
func (p *prober) core(name, file string, major, minor int, note string, gives ...string) Finding {
	f := Finding{Name: name, Gives: gives, Needs: fmt.Sprintf("cgroup2 of Linux %d.%d", major, minor)}
	if p.groups.v2.dir == "" {
		f.Answer, f.Why = No, "/proc/self/mounts: no cgroup2 mount"
		if p.groups.mountErr != nil {
			f.Answer, f.Why = CouldNotTell, oneLine(p.groups.mountErr.Error())
		}
		return f
	}
	reach := ""
	if len(p.groups.v1) > 0 {
		reach = "; for tasks that live in " + p.groups.v2.dir
	}
	if group, found := p.group2("cgroup.procs"); found {
		path := group + "/" + file
		f.Answer, f.Why = No, path+": not there"
		if p.exists(path) {
			f.Answer, f.Why = Yes, path+": there"+note+reach
		}
		return settled(f)
	}
	if p.kernel == (version{}) {
		f.Answer, f.Why = CouldNotTell, "no group below "+p.groups.v2.dir+" to look at, and the kernel release is unknown"
		return f
	}
	f.Answer = yesNo(p.kernel.atLeast(major, minor))
	f.Why = fmt.Sprintf("no group below %s to look at; by the release: since Linux %d.%d%s%s", p.groups.v2.dir, major, minor, note, reach)
	return settled(f)
}

// freezer is a controller of v1, and cgroup.freeze of v2.
func (p *prober) freezer() Finding {
	if m, ok := p.groups.v1["freezer"]; ok {
		return Finding{Name: Freezer, Answer: Yes, Gives: []string{RemedyFreeze},
			Why: m.dir + ": v1 freezer (freezer.state in each group below the root)"}
	}
	return p.core(Freezer, "cgroup.freeze", 5, 2, "", RemedyFreeze)
}

// memoryFile answers about a file that the memory controller has in v2 only.
func (p *prober) memoryFile(name, file string, major, minor int) Finding {
	f := Finding{Name: name, Gives: []string{RemedyReclaim},
		Needs: fmt.Sprintf("the memory controller on cgroup2, Linux %d.%d", major, minor)}
	if m, ok := p.groups.v1["memory"]; ok {
		f.Answer, f.Why = No, m.dir+": the memory controller is on v1, which has no "+file
		return f
	}
	c := p.controlled(name, "memory", file, file, "memory.current", f.Needs, "reclaims a group's memory below its limit", RemedyReclaim)
	if c.Answer == CouldNotTell && p.kernel != (version{}) && !p.kernel.atLeast(major, minor) {
		f.Answer, f.Why = No, fmt.Sprintf("since Linux %d.%d", major, minor)
		return f
	}
	return c
}
