package probe

// Resource control: Documentation/filesystems/resctrl.rst. The CPU's abilities are flags in /proc/cpuinfo:
//
//	flags : ... cat_l3 cdp_l3 mba cqm cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local rdt_a ...
//
// and the kernel registers the file system only where it found some. On Arm there are no flags, so where resctrl is mounted
// its info directory decides.

import (
	"fmt"
	"strings"
)

// ownPrefix begins the names of the resctrl groups that we make.
const ownPrefix = "commensal"

// readFlags reads the flags of the first CPU.
func (p *prober) readFlags() {
	text, err := p.read("/proc/cpuinfo")
	p.flags, p.flagErr = parseFlags(text), err
}

// parseFlags reads the flags line ("Features" on Arm) of the first CPU that has one; nil when none has.
func parseFlags(text string) map[string]bool {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); !ok || key != "flags" && key != "Features" {
			continue
		}
		flags := map[string]bool{}
		for _, flag := range strings.Fields(value) {
			flags[flag] = true
		}
		return flags
	}
	return nil
}

// resctrlFindings answers about the file system, and about what this machine's has.
func (p *prober) resctrlFindings() []Finding {
	system := p.resctrlSystem()
	return []Finding{
		system,
		p.resctrlAbility(ResctrlCAT, system, "L3", []string{"cat_l3"}, RemedyWays),
		p.resctrlAbility(ResctrlMBA, system, "MB", []string{"mba"}, RemedyBandwidth),
		p.resctrlAbility(ResctrlMonitor, system, "L3_MON", []string{"cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local"}),
	}
}

// resctrlMount returns where resctrl is mounted, or "".
func (p *prober) resctrlMount() string {
	for _, m := range p.mounts {
		if m.fstype == "resctrl" {
			return m.dir
		}
	}
	return ""
}

// resctrlSystem says whether the file system is there, and whether somebody else has groups in it.
func (p *prober) resctrlSystem() Finding {
	const file = "/proc/filesystems"
	f := Finding{Name: Resctrl, Gives: []string{RemedyWays, RemedyBandwidth}}
	text, err := p.read(file)
	if err != nil {
		u := unread(Resctrl, err, "")
		u.Gives = f.Gives
		return u
	}
	dir := p.resctrlMount()
	switch {
	case !contains(strings.Fields(text), "resctrl") && dir == "":
		f.Answer, f.Why = No, file+": no resctrl: "+p.rdtFlags()
		f.Needs = "CONFIG_X86_CPU_RESCTRL (or the architecture's own), on a CPU with RDT, PQoS or MPAM that the hypervisor shows"
		return f
	case dir == "":
		f.Answer, f.Why = Yes, file+": resctrl, not mounted"
		return f
	}
	strangers, err := p.foreignGroups(dir)
	switch {
	case err != nil:
		f.Answer, f.Why = CouldNotTell, oneLine(err.Error())
	case len(strangers) > 0:
		f.Answer = Owned
		f.Why = fmt.Sprintf("%s: %d control groups that are not ours, the first %q", dir, len(strangers), strangers[0])
		f.Needs = "the other user of resctrl to leave it"
	default:
		f.Answer, f.Why = Yes, dir+": mounted, no control groups but ours"
	}
	return f
}

// foreignGroups lists control groups in resctrl that we did not make.
func (p *prober) foreignGroups(dir string) ([]string, error) {
	entries, err := p.fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var strangers []string
	for _, e := range entries {
		switch {
		case !e.IsDir, e.Name == "info", e.Name == "mon_data", e.Name == "mon_groups", strings.HasPrefix(e.Name, ownPrefix):
		default:
			strangers = append(strangers, e.Name)
		}
	}
	return strangers, nil
}

// rdtFlags is the evidence in /proc/cpuinfo.
func (p *prober) rdtFlags() string {
	if p.flagErr != nil {
		return oneLine(p.flagErr.Error())
	}
	var found []string
	for _, flag := range []string{"cat_l3", "cdp_l3", "cat_l2", "mba", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local"} {
		if p.flags[flag] {
			found = append(found, flag)
		}
	}
	if len(found) == 0 {
		return "/proc/cpuinfo has none of cat_l3, mba, cqm_*"
	}
	return "/proc/cpuinfo has " + strings.Join(found, " ")
}

// resctrlAbility answers about one resource: info/<resource> where mounted, else the flags.
func (p *prober) resctrlAbility(name string, system Finding, resource string, flags []string, gives ...string) Finding {
	f := Finding{Name: name, Gives: gives}
	if dir := p.resctrlMount(); dir != "" {
		path := dir + "/info/" + resource
		f.Answer, f.Why = No, path+": not there"
		if p.exists(path) {
			f.Answer, f.Why = Yes, path+": there"
		} else {
			f.Needs = "a CPU with it"
		}
		return f
	}
	var found []string
	for _, flag := range flags {
		if p.flags[flag] {
			found = append(found, flag)
		}
	}
	switch {
	case p.flagErr != nil:
		f.Answer, f.Why = CouldNotTell, oneLine(p.flagErr.Error())
	case len(found) > 0 && system.Answer == Yes:
		f.Answer, f.Why = Yes, "/proc/cpuinfo: "+strings.Join(found, " ")
	case len(found) > 0:
		f.Answer, f.Why = system.Answer, "/proc/cpuinfo: "+strings.Join(found, " ")+", but "+system.Why
		f.Needs = system.Needs
	case system.Answer == Yes && !p.hasAny("cat_l3", "mba", "cqm_occup_llc", "cat_l2"):
		f.Answer, f.Why, f.Needs = CouldNotTell, "no flags tell on this architecture, and resctrl is not mounted", "resctrl mounted"
	default:
		f.Answer, f.Why = No, "/proc/cpuinfo: no "+strings.Join(flags, ", ")
		f.Needs = "a CPU with it, shown by the hypervisor"
	}
	return f
}

// hasAny says whether the CPU has one of the flags.
func (p *prober) hasAny(flags ...string) bool {
	for _, flag := range flags {
		if p.flags[flag] {
			return true
		}
	}
	return false
}
