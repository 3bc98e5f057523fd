package probe

// Resource control: Documentation/filesystems/resctrl.rst. The CPU's abilities are flags in /proc/cpuinfo:
//
//	flags : ... cat_l3 cdp_l3 mba cqm cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local rdt_a ...
//
// and the kernel registers the file system only where it found some. Where it is mounted, package resctrl is asked: what the
// driver makes of the mount is what the machine can do for us. Where it is not, the flags tell what a mount would show;
// on Arm there are none that do.
//
// Mounting is the owner's choice (it is seen by every tool on the machine, and its options are for all): unmounted resctrl
// is no remedy, and the finding says what would make it one.

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/commensal-io/commensal/kernel/resctrl"
)

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

// lockWait is longer than an agent that runs holds the lock, and short: somebody who holds it for longer is an answer too.
const lockWait = 500 * time.Millisecond

// mountedResctrl is what the driver says of the mount.
type mountedResctrl struct {
	at        resctrl.MountInfo
	err       error // why there is nothing below; resctrl.ErrNotMounted, resctrl.ErrUnsupported or another
	info      *resctrl.Info
	budget    resctrl.Budget
	strangers []resctrl.Group // that others made
}

// readResctrl asks the driver.
func (p *prober) readResctrl() (m mountedResctrl) {
	if m.at, m.err = resctrl.Discover(p.fs); m.err != nil {
		return m
	}
	o := resctrl.DefaultOptions()
	o.LockWait = lockWait
	d, err := resctrl.Open(p.fs, m.at, o)
	if err == nil {
		m.info, err = d.Info()
	}
	if err == nil {
		m.budget, err = d.Budget()
	}
	if err == nil {
		m.strangers, err = d.Strangers()
	}
	m.err = err
	return m
}

// resctrlFindings answers about the file system, and about what this machine's has.
func (p *prober) resctrlFindings() []Finding {
	m := p.readResctrl()
	return []Finding{p.resctrlSystem(&m), p.resctrlCAT(&m), p.resctrlMBA(&m), p.resctrlMonitor(&m), resctrlRoom(&m)}
}

const (
	needsRDT = "CONFIG_X86_CPU_RESCTRL (or the architecture's own), on a CPU with RDT, PQoS or MPAM that the hypervisor shows"
	needsCPU = "a CPU with it, shown by the hypervisor"
)

// resctrlSystem says whether the file system can be used, and whether somebody else has groups in it.
func (p *prober) resctrlSystem(m *mountedResctrl) Finding {
	f := Finding{Name: Resctrl, Gives: []string{RemedyWays, RemedyBandwidth}}
	switch {
	case errors.Is(m.err, resctrl.ErrUnsupported) && m.at.Point == "":
		f.Answer, f.Why, f.Needs = No, "/proc/filesystems: no resctrl: "+p.rdtFlags(), needsRDT
	case errors.Is(m.err, resctrl.ErrNotMounted) && m.at.Point == "":
		return p.unmountedResctrl(f)
	case errors.Is(m.err, resctrl.ErrLocked):
		f.Answer, f.Why, f.Needs = CouldNotTell, oneLine(m.err.Error()), "whoever holds the lock to let go of it"
	case m.err != nil:
		f.Answer, f.Why = CouldNotTell, oneLine(m.err.Error())
	case m.at.ReadOnly:
		f.Answer, f.Why, f.Needs = No, m.at.Point+": mounted read-only", "the host's resctrl mount, writable"
	default:
		return usedResctrl(f, m)
	}
	return f
}

// unmountedResctrl tells a mount that only others see from none at all: the kernel has one instance, and the groups
// of this process show whether it lives.
func (p *prober) unmountedResctrl(f Finding) Finding {
	const own = "/proc/self/cpu_resctrl_groups"
	f.Answer = No
	f.Why = "/proc/filesystems: resctrl: supported, not mounted"
	f.Needs = "to be mounted: mount -t resctrl resctrl " + resctrl.DefaultPoint + " (the agent does not: the mount is the whole machine's)"
	if text, err := p.read(own); err == nil && strings.HasPrefix(text, "res:/") {
		f.Why = own + ": " + oneLine(text) + ": mounted, and not in this mount namespace"
		f.Needs = "the host's " + resctrl.DefaultPoint + " in this mount namespace"
	}
	return f
}

// usedResctrl says whose the groups are. Monitoring groups of others are no reason to stay away: they read, as we do,
// and the room finding knows of the RMIDs that they take.
func usedResctrl(f Finding, m *mountedResctrl) Finding {
	var ctrl []resctrl.Group
	for _, g := range m.strangers {
		if !g.Name.IsMon() {
			ctrl = append(ctrl, g)
		}
	}
	mounted := m.at.Point + ": mounted"
	if o := m.at.Options.String(); o != "" {
		mounted += " with " + o
	}
	ours := ""
	if n := m.budget.CLOSIDs.Ours; n > 0 { // it wants to make every control group itself, and fails at the first that it does not get
		ours = fmt.Sprintf("; ours: %d, beside which pqos -I fails", n)
	}
	if len(ctrl) > 0 {
		f.Answer, f.Needs = Owned, "the other user of resctrl to leave it"
		tool := ""
		if ctrl[0].Tool != "" {
			tool = ", by its name of " + ctrl[0].Tool
		}
		if ctrl[0].Tool == resctrl.ToolPqos {
			f.Needs = "pqos to be done with, and its groups removed, which it leaves behind: rmdir " + m.at.Point + "/COS*"
		}
		f.Why = fmt.Sprintf("%s; control groups that are not ours: %d, the first %q%s%s", mounted, len(ctrl), ctrl[0].Name.Ctrl, tool, ours)
		return f
	}
	f.Answer, f.Why = Yes, mounted+", no control groups but ours"+ours
	if n := len(m.strangers); n > 0 {
		f.Why += fmt.Sprintf("; monitoring groups of others: %d", n)
	}
	return f
}

// rdtFlags is the evidence in /proc/cpuinfo.
func (p *prober) rdtFlags() string {
	if p.flagErr != nil {
		return oneLine(p.flagErr.Error())
	}
	found := p.having("cat_l3", "cdp_l3", "cat_l2", "mba", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local")
	if len(found) == 0 {
		return "/proc/cpuinfo has none of cat_l3, mba, cqm_*"
	}
	return "/proc/cpuinfo has " + strings.Join(found, " ")
}

// having returns those of the flags that the CPU has.
func (p *prober) having(flags ...string) []string {
	var found []string
	for _, flag := range flags {
		if p.flags[flag] {
			found = append(found, flag)
		}
	}
	return found
}

// l2Ways says what the mount has of the L2s, "" where they cannot be divided. It is of no answer of its own: no remedy goes by it.
func (m *mountedResctrl) l2Ways() string {
	for _, r := range []resctrl.Resource{resctrl.L2, resctrl.L2Code} {
		if c := m.info.Cache(r); c != nil {
			return fmt.Sprintf("; of each L2: %d ways (cache.l2_ways)", c.FullMask.Ways())
		}
	}
	return ""
}

// resctrlCAT answers about L3 masks. Under cdp there are two of them, for code and for data.
func (p *prober) resctrlCAT(m *mountedResctrl) Finding {
	f := Finding{Name: ResctrlCAT, Gives: []string{RemedyWays}}
	if m.info == nil {
		return p.byFlags(f, m, "cat_l3")
	}
	for _, r := range []resctrl.Resource{resctrl.L3, resctrl.L3Code} {
		c := m.info.Cache(r)
		if c == nil {
			continue
		}
		where := "L3"
		if r == resctrl.L3Code {
			where = "L3CODE and L3DATA"
		}
		f.Answer = Yes
		f.Why = fmt.Sprintf("%s/info/%s: %d ways, of which devices share %d", m.at.Point, where, c.FullMask.Ways(), c.ShareableBits.Ways()) + m.l2Ways()
		return f
	}
	f = notInInfo(f, m, "L3")
	f.Why += m.l2Ways()
	return f
}

// resctrlMBA answers about memory bandwidth, in the unit of this mount and CPU.
func (p *prober) resctrlMBA(m *mountedResctrl) Finding {
	f := Finding{Name: ResctrlMBA, Gives: []string{RemedyBandwidth}}
	if m.info == nil {
		return p.byFlags(f, m, "mba")
	}
	b := m.info.Bandwidth(resctrl.MB)
	if b == nil {
		return notInInfo(f, m, "MB")
	}
	f.Answer, f.Why = Yes, fmt.Sprintf("%s/info/MB: in %s", m.at.Point, b.Unit)
	switch b.Unit {
	case resctrl.Percent:
		f.Why += fmt.Sprintf(" from %d in steps of %d", b.Min, b.Gran)
	case resctrl.MiBps:
		f.Why += " (mounted with mba_MBps: the kernel steers to the limit)"
	}
	return f
}

// resctrlMonitor answers about occupancy and bandwidth per group, by which policy remedy goes where it can.
func (p *prober) resctrlMonitor(m *mountedResctrl) Finding {
	f := Finding{Name: ResctrlMonitor}
	if m.info == nil {
		return p.byFlags(f, m, "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local")
	}
	mon := m.info.Monitoring
	if mon == nil {
		return notInInfo(f, m, "L3_MON")
	}
	var events []string
	for _, e := range []struct {
		name string
		has  bool
	}{{"llc_occupancy", mon.Occupancy}, {"mbm_total_bytes", mon.Total}, {"mbm_local_bytes", mon.Local}} {
		if e.has {
			events = append(events, e.name)
		}
	}
	f.Answer = yesNo(len(events) > 0)
	f.Why = m.at.Point + "/info/L3_MON: " + strings.Join(append(events, mon.OtherFeatures...), " ")
	f.Why += fmt.Sprintf("; tasks that can be counted: %d more", max(0, m.budget.Bound.MonBeside))
	return f
}

func notInInfo(f Finding, m *mountedResctrl, resource string) Finding {
	f.Answer, f.Why, f.Needs = No, m.at.Point+"/info/"+resource+": not there", "a CPU with it"
	return f
}

// byFlags answers about one ability where the mount cannot be asked.
func (p *prober) byFlags(f Finding, m *mountedResctrl, flags ...string) Finding {
	found := p.having(flags...)
	supported := !errors.Is(m.err, resctrl.ErrUnsupported)
	switch {
	case p.flagErr != nil:
		f.Answer, f.Why = CouldNotTell, oneLine(p.flagErr.Error())
	case len(found) > 0 && supported:
		f.Answer, f.Why = Yes, "/proc/cpuinfo: "+strings.Join(found, " ")
	case len(found) > 0:
		f.Answer, f.Why, f.Needs = No, "/proc/cpuinfo: "+strings.Join(found, " ")+", but the kernel has no resctrl", needsRDT
	case supported && len(p.having("cat_l3", "mba", "cqm_occup_llc", "cat_l2")) == 0:
		f.Answer, f.Why, f.Needs = CouldNotTell, "no flags tell on this architecture, and resctrl could not be looked at", "resctrl mounted"
	default:
		f.Answer, f.Why, f.Needs = No, "/proc/cpuinfo: no "+strings.Join(flags, ", "), needsCPU
	}
	return f
}

// resctrlRoom says whether the driver would make a control group: that takes a CLOSID, and an RMID where
// the CPU monitors. RMIDs of removed groups that rest in limbo cannot be told from free ones before one is asked for.
func resctrlRoom(m *mountedResctrl) Finding {
	f := Finding{Name: ResctrlRoom, Gives: []string{RemedyWays, RemedyBandwidth}}
	switch {
	case errors.Is(m.err, resctrl.ErrUnsupported):
		f.Answer, f.Why, f.Needs = No, "no resctrl", needsRDT
		return f
	case errors.Is(m.err, resctrl.ErrNotMounted):
		f.Answer, f.Why = Yes, "not mounted: no groups are made"
		return f
	case m.err != nil:
		f.Answer, f.Why = CouldNotTell, oneLine(m.err.Error())
		return f
	}
	closids, rmids := m.budget.CLOSIDs, m.budget.RMIDs
	f.Why = fmt.Sprintf("%s: CLOSIDs: %s; RMIDs: %s", m.at.Point, closids, rmids)
	if rmids.Known {
		f.Why += ", those in limbo counted as free"
	}
	switch n := m.budget.Bound.CtrlGroups + closids.Ours - 1; { // one is for BE together
	case !closids.Known || n < 0:
	case n == 0:
		f.Why += "; none beside that of BE"
	default:
		f.Why += fmt.Sprintf("; beside that of BE: %d, each for a BE task alone, one for services (cache.share: exclusive) or for a part of them (cache.parts)", n)
	}
	f.Answer = yesNo(closids.Ours > 0 || m.budget.Bound.CtrlGroups > 0)
	if f.Answer == No {
		f.Why += fmt.Sprintf("; %d and %d of them are left to others", resctrl.DefaultReserveCLOSIDs, resctrl.DefaultReserveRMIDs)
		f.Needs = "groups of others to be removed"
	}
	return f
}
