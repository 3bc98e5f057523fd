package probe

// What can be measured of a task's distress: pressure (Documentation/accounting/psi.rst), run-queue delay
// (kernel/taskstats), performance counters (kernel/perf).

import (
	"errors"
	"fmt"
	"strings"

	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/kernel/uncore"
)

const notLive = "needs a system call on the running kernel; only files were looked at"

// pressureFindings answers about PSI, of the machine and of a cgroup.
func (p *prober) pressureFindings() []Finding {
	const file = "/proc/pressure/cpu"
	const needs = "CONFIG_PSI, and psi=1 on the kernel command line where it is off by default"
	text, err := p.read(file)
	var system Finding
	switch {
	case err != nil:
		system = unread(PSISystem, err, needs)
	case !strings.HasPrefix(text, "some "):
		system = Finding{Name: PSISystem, Answer: CouldNotTell, Why: fmt.Sprintf("%s: %q is not a pressure file", file, oneLine(text))}
	default:
		// Which kinds there are is evidence; the averages are not, and would differ from one run to the next.
		kinds := p.pressureKinds()
		system = Finding{Name: PSISystem, Answer: Yes, Why: "/proc/pressure: " + strings.Join(kinds, " ")}
	}
	system.Gives = []string{SignalPSI}
	if system.Answer == No {
		return []Finding{system, {Name: PSIPerCgroup, Answer: No, Why: "psi is off: " + system.Why, Needs: needs, Gives: system.Gives}}
	}
	return []Finding{system, p.pressurePerGroup()}
}

// pressurePerGroup looks for the file of a group. In v1 there is none: PSI is kept for cgroup2 alone.
// cgroup_disable=pressure removes the files and leaves /proc/pressure, and 0 in a group's cgroup.pressure (Linux 6.1)
// hides those of that group, which is why the release alone does not settle it.
func (p *prober) pressurePerGroup() Finding {
	const file = "cpu.pressure"
	f := Finding{Name: PSIPerCgroup, Gives: []string{SignalPSI}}
	root := p.unified()
	if root == "" {
		return p.core(PSIPerCgroup, file, version{4, 20}, SignalPSI)
	}
	if group, found := p.group2(file); found {
		f.Answer, f.Why, f.Only = Yes, group+"/"+file+": there", p.only()
		return f
	}
	if group, found := p.group2("cgroup.procs"); found {
		f.Answer, f.Why, f.Needs = No, group+"/"+file+": not there", "no cgroup_disable=pressure on the kernel command line"
		if text, err := p.read(group + "/cgroup.pressure"); err == nil && text == "0" {
			f.Why += ", by 0 in its cgroup.pressure"
			f.Needs = "1 in the cgroup.pressure of the tasks' groups"
		}
		return f
	}
	if path := root + "/" + file; p.exists(path) {
		f.Answer, f.Why, f.Only = Yes, path+": there, in the root; no group below it to look at", p.only()
		return f
	}
	return p.core(PSIPerCgroup, file, version{4, 20}, SignalPSI)
}

// pressureKinds lists /proc/pressure.
func (p *prober) pressureKinds() []string {
	var kinds []string
	entries, err := p.fs.ReadDir("/proc/pressure")
	if err != nil {
		return []string{"cpu"}
	}
	for _, e := range entries {
		kinds = append(kinds, e.Name)
	}
	return kinds
}

// delayFindings answers about run-queue delay.
func (p *prober) delayFindings() []Finding {
	return []Finding{p.taskstats(), p.threadSchedstat(), p.schedstats()}
}

// taskstats dials the kernel and asks about this process.
func (p *prober) taskstats() Finding {
	f := Finding{Name: Taskstats, Gives: []string{SignalRunDelay}}
	if p.calls == nil {
		f.Answer, f.Why = CouldNotTell, notLive
		return f
	}
	err := p.calls.taskstats()
	switch {
	case err == nil:
		f.Answer, f.Why = Yes, "generic netlink TASKSTATS answered about this process; keeps the delay of threads that ended"
	case errors.Is(err, taskstats.ErrPermission):
		f.Answer, f.Why, f.Needs = No, oneLine(err.Error()), "CAP_NET_ADMIN in the first user namespace"
	case errors.Is(err, taskstats.ErrNotSupported):
		f.Answer, f.Why, f.Needs = No, oneLine(err.Error()), "CONFIG_TASKSTATS and CONFIG_TASK_DELAY_ACCT"
	default:
		f.Answer, f.Why = CouldNotTell, oneLine(err.Error())
	}
	return f
}

// threadSchedstat reads this process's own: numbers that stand at zero are not gathered.
func (p *prober) threadSchedstat() Finding {
	const file = "/proc/self/schedstat"
	const needs = "CONFIG_SCHED_INFO (by CONFIG_TASK_DELAY_ACCT or CONFIG_SCHEDSTATS)"
	text, err := p.read(file)
	if err != nil {
		f := unread(ThreadSchedstat, err, needs)
		f.Gives = []string{SignalRunDelay}
		return f
	}
	f := Finding{Name: ThreadSchedstat, Gives: []string{SignalRunDelay}}
	fields := strings.Fields(text)
	switch {
	case len(fields) != 3:
		f.Answer, f.Why = CouldNotTell, fmt.Sprintf("%s: %q is not three numbers", file, oneLine(text))
	case fields[2] == "0": // given a CPU no time at all, and yet it runs
		f.Answer, f.Why, f.Needs = No, fmt.Sprintf("%s: %q: not gathered", file, oneLine(text)), needs
	default:
		f.Answer, f.Why = Yes, file+": run time, delay and count are gathered; forgets threads that ended"
	}
	return f
}

// schedstats is CONFIG_SCHEDSTATS and its switch: wait sums per group in v1's cpu.stat. Context only.
func (p *prober) schedstats() Finding {
	const file = "/proc/schedstat"
	if _, err := p.read(file); err != nil {
		return unread(Schedstats, err, "CONFIG_SCHEDSTATS")
	}
	value, err := p.read("/proc/sys/kernel/sched_schedstats")
	switch {
	case err != nil:
		return Finding{Name: Schedstats, Answer: CouldNotTell, Why: file + " is there; " + oneLine(err.Error())}
	case value == "0":
		return Finding{Name: Schedstats, Answer: No, Why: file + " is there; /proc/sys/kernel/sched_schedstats: 0",
			Needs: "sysctl kernel.sched_schedstats=1"}
	}
	return Finding{Name: Schedstats, Answer: Yes, Why: file + " is there; /proc/sys/kernel/sched_schedstats: " + oneLine(value)}
}

// perfFindings answers about each hardware event, and about counting per cgroup.
func (p *prober) perfFindings() []Finding {
	return []Finding{
		p.event(PerfCycles, perf.Cycles, SignalCPI),
		p.event(PerfRefCycles, perf.RefCycles),
		p.event(PerfInstructions, perf.Instructions, SignalCPI, SignalMPKI),
		p.event(PerfLLCMisses, perf.LLCMisses, SignalMPKI),
		p.perfPerCgroup(),
		p.memoryLatency(),
	}
}

// memoryLatency opens the uncore counters that say how long memory takes to answer, and closes them again. Policy bandwidth goes by
// it where it is to be had, and by CPI elsewhere.
func (p *prober) memoryLatency() Finding {
	f := Finding{Name: MemoryLatency}
	m, err := uncore.NewMeter(p.fs, uncore.Perf)
	switch {
	case errors.Is(err, uncore.ErrUnknownCPU):
		f.Answer, f.Why, f.Needs = No, oneLine(err.Error()), "a type of CPU that docs/COUNTERS.md lists"
	case errors.Is(err, uncore.ErrNoPMU), absent(err):
		f.Answer, f.Why, f.Needs = No, oneLine(err.Error()), "a physical machine, and a kernel with the driver (intel_uncore, amd_uncore)"
	case err != nil:
		f.Answer, f.Why = CouldNotTell, oneLine(err.Error())
	case p.calls == nil:
		f.Answer, f.Why = CouldNotTell, notLive
	default:
		return answerPerf(f, p.calls.latency(m), oneLine(m.String())+", opened")
	}
	return f
}

// event tries one event on this process.
func (p *prober) event(name string, e perf.Event, gives ...string) Finding {
	f := Finding{Name: name, Gives: gives}
	if p.calls == nil {
		f.Answer, f.Why = CouldNotTell, notLive
		return f
	}
	good := "opened on this process, and counted"
	if e == perf.LLCMisses {
		good = "opened on this process (whether it missed is not asked)"
	}
	return answerPerf(f, p.calls.event(e), good)
}

// answerPerf sorts an error of package perf.
func answerPerf(f Finding, err error, good string) Finding {
	switch {
	case err == nil:
		f.Answer, f.Why = Yes, good
	case errors.Is(err, perf.ErrNotSupported):
		f.Answer, f.Why, f.Needs = No, oneLine(err.Error()), "a machine whose performance counters are visible (on a VM: a virtual PMU)"
	case errors.Is(err, perf.ErrPermission):
		f.Answer, f.Why, f.Needs = No, oneLine(err.Error()), "CAP_PERFMON, and no seccomp filter on perf_event_open"
	case errors.Is(err, perf.ErrNotCgroup2):
		f.Answer, f.Why, f.Needs = No, oneLine(err.Error()), "CONFIG_CGROUP_PERF"
	default:
		f.Answer, f.Why = CouldNotTell, oneLine(err.Error())
	}
	return f
}

// perfPerCgroup opens a disabled software counter on the root group of cgroup2 and closes it again: nothing is counted.
// A perf_event hierarchy of v1 takes the counters away from cgroup2, and is none that the agent opens counters on.
func (p *prober) perfPerCgroup() Finding {
	f := Finding{Name: PerfPerCgroup, Gives: []string{SignalCPI, SignalMPKI}}
	if dir := p.mountedV1("perf_event"); dir != "" {
		f.Answer, f.Why = No, "/proc/self/mountinfo: "+dir+" has perf_event, on v1; counters are opened on groups of cgroup2"
		f.Needs = "cgroup_no_v1=perf_event on the kernel command line, or the hierarchy unmounted"
		return f
	}
	dir := p.unified()
	if dir == "" {
		f.Answer, f.Why, f.Needs = No, "/proc/self/mountinfo: no cgroup2 mount", "cgroup2 mounted"
		if p.groups.err != nil {
			f.Answer, f.Why = CouldNotTell, oneLine(p.groups.err.Error())
		}
		return f
	}
	if p.calls == nil {
		f.Answer, f.Why = CouldNotTell, notLive
		return f
	}
	f = answerPerf(f, p.calls.cgroupEvent(dir), "a software counter opened on "+dir)
	if f.Answer == Yes {
		f.Only = p.only()
	}
	return f
}
