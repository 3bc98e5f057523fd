package probe

// I/O on block devices: the io controller of cgroup v2 (Documentation/admin-guide/cgroup-v2.rst), blkio of v1
// (Documentation/admin-guide/cgroup-v1/blkio-controller.rst), and whether threads' waits for devices are accounted
// (Documentation/accounting/delay-accounting.rst).

import (
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// ioFindings answers about I/O.
func (p *prober) ioFindings() []Finding {
	return []Finding{p.ioMax(), p.ioWeight(), p.delayAccounting()}
}

// ioMax is about limits, which come with counts of what groups do.
func (p *prober) ioMax() Finding {
	if dir := p.v1(cgroup.BlkIO); dir != "" {
		return p.there(Finding{Name: IOMax, Gives: []string{RemedyIOMax}, Needs: "CONFIG_BLK_DEV_THROTTLING"}, dir+"/blkio.throttle.read_bps_device",
			"bounds what a group without groups inside does on a device; since Linux 6.10 nothing is counted of a device before a first limit on it was written")
	}
	return p.controlled(IOMax, controlFile{cgroup.IO, "", "io.max", "io.stat", version{4, 5}, "",
		"the io controller on cgroup2, CONFIG_BLK_DEV_THROTTLING", "bounds what a group does on a device"}, RemedyIOMax)
}

// ioWeight says which weight of groups there is. Context only: no policy uses it.
func (p *prober) ioWeight() Finding {
	f := Finding{Name: IOWeight, Answer: No, Needs: "CONFIG_BLK_CGROUP_IOCOST, or BFQ as the device's scheduler (CONFIG_BFQ_GROUP_IOSCHED)"}
	dir, names := p.v1(cgroup.BlkIO), []string{"blkio.weight", "blkio.bfq.weight"}
	if dir == "" {
		dir, _ = p.group2("io.stat")
		names = []string{"io.weight", "io.bfq.weight"}
	}
	f.Why = "no group to look at has the io controller"
	if dir == "" {
		return f
	}
	f.Why = dir + ": neither " + strings.Join(names, " nor ")
	for _, name := range names {
		if p.exists(dir + "/" + name) {
			f.Answer, f.Why = Yes, dir+"/"+name+": there"
			break
		}
	}
	return settled(f)
}

// delayAccounting is the sysctl of Linux 5.14; before that delays are accounted unless the kernel was told not to.
func (p *prober) delayAccounting() Finding {
	const file = "/proc/sys/kernel/task_delayacct"
	f := Finding{Name: DelayAccounting, Gives: []string{SignalIO}, Needs: "sysctl kernel.task_delayacct=1, before the tasks' processes start"}
	text, err := p.read(file)
	switch {
	case absent(err) && p.kernel != (version{}) && !p.kernel.atLeast(version{5, 14}):
		f.Answer, f.Why = Yes, "accounted since boot, as before Linux 5.14"
	case err != nil:
		u := unread(DelayAccounting, err, "CONFIG_TASK_DELAY_ACCT")
		u.Gives = f.Gives
		return u
	default:
		f.Answer, f.Why = yesNo(text == "1"), file+": "+oneLine(text)
	}
	return settled(f)
}
