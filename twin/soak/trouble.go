package soak

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/fault"
)

// knobName is part of the name of every file that holds a CPU limit.
func (p *plan) knobName() string {
	if p.layout == cgroup.LayoutV2 {
		return "/cpu.max"
	}
	return "/cpu.cfs_"
}

// usageNames are parts of the names of files with counters.
func (p *plan) usageNames() []string {
	if p.layout == cgroup.LayoutV2 {
		return []string{"/cpu.stat"}
	}
	return []string{"/cpuacct.usage", "/cpu.stat"}
}

// drawFaults draws up to six things that go wrong for a while.
//
// What no kernel does is left out, because no code could stand it: a limit's file that
// ends half way through a number, and ENODEV or ENOENT from a group and a file that are there. Groups
// do vanish; then they are gone. So do single files and directories of groups that stay, which is a deed (handDown). Nor does a kernel list a directory short that stands still: kernfs
// (cgroups, resctrl) goes on after the last name's hash, and at most passes over an entry where another
// was just made or removed, which the next list has. So package fault lists none short twice in a row. A
// group that was renamed may have gone from behind that hash to before it; who is in no list for that
// cannot be told from one that is gone, so where groups are renamed listing fails aloud.
func (p *plan) drawFaults(r source, end int64) {
	for range r.count(1, 6) {
		rule := p.drawRule(r)
		seconds := float64(end) / 1e9
		if rule.Ops == fault.List && rule.Kind == fault.Short && p.renaming {
			rule.Kind = fault.Fail
		}
		rule.From = r.seconds(0, seconds)
		rule.To = rule.From + r.seconds(1, pick[float64](r, 5, 30, 120))
		if rule.Ops == fault.Append && r.chance(0.4) {
			rule.To = 0 // a disk that is full, or read-only, to the end
		}
		p.rules = append(p.rules, rule)
	}
}

func (p *plan) drawRule(r source) fault.Rule {
	often := pick(r, 0.02, 0.2, 1)
	seldom := pick(r, 0.005, 0.05, 0.3)
	writeError := pick(r, unix.EIO, unix.EBUSY, unix.EINTR, unix.EACCES, unix.ENOSPC, unix.EINVAL)
	readError := pick(r, unix.EIO, unix.EINTR, unix.EACCES, unix.ENOMEM)
	usage := pick(r, p.usageNames()...)
	knob := p.knobName()
	if r.chance(0.3) {
		knob = "/cpuset.cpus"
	}
	texts := p.strangerTexts()
	if knob == "/cpuset.cpus" {
		texts = []string{"0", "0-1", "1", fmt.Sprintf("0-%d", p.machine.CPUs()-1)}
	}
	return pick(r,
		fault.Rule{Ops: fault.Write, Path: knob, Share: often, Kind: fault.Fail, Errno: writeError},
		fault.Rule{Ops: fault.Write, Path: knob, Share: often, Kind: fault.FailAfter, Errno: writeError},
		fault.Rule{Ops: fault.Write, Path: pick(r, "period", "quota", "max"), Share: often, Kind: fault.Fail, Errno: writeError},
		fault.Rule{Ops: fault.Write, Path: knob, Share: often, Kind: fault.Foreign, Texts: texts},
		fault.Rule{Ops: fault.Read, Path: knob, Share: seldom, Kind: fault.Fail, Errno: readError},
		fault.Rule{Ops: fault.Read, Path: knob, Share: seldom, Kind: fault.Garble},
		fault.Rule{Ops: fault.Read, Path: usage, Share: seldom, Kind: fault.Fail, Errno: readError},
		fault.Rule{Ops: fault.Read, Path: usage, Share: seldom, Kind: pick(r, fault.Short, fault.Garble, fault.Back, fault.Jump)},
		fault.Rule{Ops: fault.Read, Path: "/proc/", Share: seldom, Kind: pick(r, fault.Short, fault.Garble, fault.Back, fault.Fail), Errno: readError},
		fault.Rule{Ops: fault.Read, Path: "/cgroup.procs", Share: seldom, Kind: pick(r, fault.Short, fault.Fail), Errno: readError},
		fault.Rule{Ops: fault.Read, Share: seldom, Kind: fault.Slow, Nsec: r.seconds(0.01, 0.5)},
		fault.Rule{Ops: fault.Write, Share: often, Kind: fault.Slow, Nsec: r.seconds(0.02, 3)},
		fault.Rule{Ops: pick(r, fault.Read, fault.Write, fault.List, fault.Append), Share: seldom, Max: r.count(1, 3), Kind: fault.Slow, Nsec: r.seconds(2, 30)},
		fault.Rule{Ops: fault.Open | fault.Write, Share: often, Kind: fault.Fail, Errno: unix.EMFILE},
		fault.Rule{Ops: fault.List, Share: often, Kind: pick(r, fault.Short, fault.Fail), Errno: readError},
		fault.Rule{Ops: fault.Identify, Share: seldom, Kind: fault.Fail, Errno: readError},
		fault.Rule{Ops: fault.Open, Share: often, Kind: fault.Fail, Errno: pick(r, unix.EMFILE, unix.EACCES, unix.EIO)},
		fault.Rule{Ops: fault.Query, Share: often, Kind: pick(r, fault.Fail, fault.FailAfter, fault.Back, fault.Jump), Errno: unix.ENOBUFS},
		fault.Rule{Ops: fault.Query, Share: often, Kind: fault.Vanish},
		fault.Rule{Ops: fault.Count, Share: often, Kind: pick(r, fault.Fail, fault.Back, fault.Jump), Errno: pick(r, unix.ENODEV, unix.EMFILE, unix.EIO, unix.EBUSY)},
		fault.Rule{Ops: fault.Append, Path: journalPath, Share: often, Kind: fault.Fail, Errno: pick(r, unix.ENOSPC, unix.EROFS, unix.EIO)},
		fault.Rule{Ops: fault.Append, Path: journalPath, Share: often, Kind: pick(r, fault.Short, fault.FailAfter), Errno: unix.EIO},
		fault.Rule{Ops: fault.Append, Path: recordName, Share: often, Kind: fault.Fail, Errno: unix.ENOSPC},
	)
}

// drawWaitFaults draws windows in which who makes whom wait is not measured, or not all of it. It
// draws from a stream of its own, as it came after the others.
func (p *plan) drawWaitFaults(r source, end int64) {
	if !r.chance(0.4) {
		return
	}
	for range r.count(1, 3) {
		rule := pick(r,
			fault.Rule{Path: "waits open", Share: 0.5, Kind: fault.Fail, Errno: unix.EPERM},
			fault.Rule{Share: pick(r, 0.05, 0.3, 1), Kind: fault.Fail, Errno: pick(r, unix.ENOMEM, unix.EIO, unix.EINTR)},
			fault.Rule{Path: "waits read", Share: pick(r, 0.05, 0.3, 1), Kind: pick(r, fault.Fail, fault.Short, fault.Vanish, fault.Back), Errno: unix.ENOENT},
			fault.Rule{Path: "waits read", Share: pick(r, 0.05, 0.3), Kind: fault.Jump},
		)
		rule.Ops, rule.From = fault.Trace, r.seconds(0, float64(end)/1e9)
		rule.To = rule.From + r.seconds(1, pick[float64](r, 5, 30, 120))
		p.rules = append(p.rules, rule)
	}
}

// strangerTexts are what strangers write into a limit's file.
func (p *plan) strangerTexts() []string {
	if p.layout == cgroup.LayoutV2 {
		return []string{"max 100000", "50000 100000", "30000 250000", "120000 100000"}
	}
	return []string{"-1", "50000", "30000", "120000"}
}
