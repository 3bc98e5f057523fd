package kernfs

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/machine"
)

// osrelease is a kernel that has what the files here have.
const osrelease = "6.12.43-twin"

// addProc makes /proc without its processes.
func (k *Kernel) addProc() {
	proc := k.dir("/proc")
	k.addFile(k.dir("/proc/self"), "mountinfo", k.mountinfo, nil)
	k.addFile(proc, "stat", always(k.procStat), nil)
	k.addFile(proc, "cpuinfo", always(k.cpuinfo), nil)
	k.addFile(proc, "meminfo", always(k.meminfo), nil)
	k.addFile(proc, "swaps", always(k.swaps), nil)
	k.addFile(proc, "uptime", always(func(buf []byte) []byte {
		return fmt.Appendf(buf, "%.2f 0.00\n", float64(k.m.NowNsec())/1e9) // nobody asks how long CPUs were idle
	}), nil)
	k.addText(k.dir("/proc/sys/vm"), "swappiness", "60\n")
	k.addSystemPressure(k.dir("/proc/pressure"))
	kernel := k.dir("/proc/sys/kernel")
	k.addText(kernel, "osrelease", osrelease+"\n")
	k.addText(kernel, "perf_event_paranoid", "2\n")
	k.addFile(k.dir("/proc/sys/kernel/random"), "boot_id", always(func(buf []byte) []byte {
		return append(append(buf, k.opt.BootID...), '\n')
	}), nil)
}

// procStat is /proc/stat in ticks: the whole machine's work and what was taken from it, and of each
// CPU that is online an even part of that.
func (k *Kernel) procStat(buf []byte) []byte {
	c := k.m.Config()
	online := k.m.Online()
	n := uint64(online.Len())
	busy, irq, steal := k.m.BusyNsec()/tickNsec, k.m.TakenNsec(machine.SoftIRQ)/tickNsec, k.m.TakenNsec(machine.Steal)/tickNsec
	all := uint64(k.m.NowNsec()) / tickNsec * uint64(c.CPUs())
	idle := all - min(busy+irq+steal, all)
	buf = cpuLine(append(buf, "cpu "...), busy, idle, irq, steal)
	for cpu := range c.CPUs() {
		if online.Has(cpu) {
			buf = strconv.AppendInt(append(buf, "cpu"...), int64(cpu), 10)
			buf = cpuLine(buf, busy/n, idle/uint64(c.CPUs()), irq/n, steal/n)
		}
	}
	buf = number(append(buf, "btime "...), uint64((epochNsec+k.wall)/1e9))
	return number(append(buf, "processes "...), uint64(k.lastPID))
}

// cpuLine appends the columns of a line: user, nice, system, idle, iowait, irq, softirq, steal, guest and guest_nice.
func cpuLine(buf []byte, busy, idle, irq, steal uint64) []byte {
	buf = strconv.AppendUint(append(buf, ' '), busy-busy/systemShare, 10)
	buf = strconv.AppendUint(append(buf, " 0 "...), busy/systemShare, 10)
	buf = strconv.AppendUint(append(buf, ' '), idle, 10)
	buf = strconv.AppendUint(append(buf, " 0 0 "...), irq, 10)
	buf = strconv.AppendUint(append(buf, ' '), steal, 10)
	return append(buf, " 0 0\n"...)
}

// meminfo is /proc/meminfo.
func (k *Kernel) meminfo(buf []byte) []byte {
	r := k.m.MemoryRoom()
	for _, line := range []struct {
		name  string
		bytes float64
	}{
		{"MemTotal:", r.Total}, {"MemFree:", r.Free}, {"MemAvailable:", r.Available}, {"SwapTotal:", r.SwapTotal}, {"SwapFree:", r.SwapFree},
	} {
		buf = fmt.Appendf(buf, "%-15s %8d kB\n", line.name, wholePages(line.bytes)>>10)
	}
	return buf
}

// cpuinfo is /proc/cpuinfo.
func (k *Kernel) cpuinfo(buf []byte) []byte {
	c := k.m.Config()
	online := k.m.Online()
	flags := "fpu tsc msr sse sse2 ht avx avx2 avx512f"
	if k.opt.RDT {
		flags += " cat_l3 cdp_l3 mba cqm rdt_a cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local"
	}
	for cpu := range c.CPUs() {
		if !online.Has(cpu) {
			continue
		}
		buf = fmt.Appendf(buf, "processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: %s\nstepping\t: 4\ncpu MHz\t\t: %.3f\ncache size\t: %d KB\nphysical id\t: %d\nsiblings\t: %d\ncore id\t\t: %d\ncpu cores\t: %d\nflags\t\t: %s\n\n",
			cpu, k.opt.Platform, c.Hz/1e6, int(c.LLCBytes)>>10, c.SocketOf(cpu), c.CoresPerSocket*c.ThreadsPerCore,
			c.CoreOf(cpu)%c.CoresPerSocket, c.CoresPerSocket, flags)
	}
	return buf
}

// addProcess makes /proc/PID, with a folder for each thread: the run time and delay of a
// process are spread over them evenly.
func (k *Kernel) addProcess(p *process) {
	p.dir = k.addDir(k.dir("/proc"), strconv.Itoa(int(p.pid)))
	gone := func(f func(buf []byte) []byte) readFunc {
		return func(buf []byte) ([]byte, error) {
			if k.procs[p.pid] != p {
				return buf, unix.ESRCH
			}
			return f(buf), nil
		}
	}
	k.addFile(p.dir, "comm", gone(func(buf []byte) []byte { return append(append(buf, p.name...), '\n') }), nil)
	k.addFile(p.dir, "cgroup", gone(func(buf []byte) []byte { return k.procCgroup(p, buf) }), nil)
	k.addFile(p.dir, "status", gone(func(buf []byte) []byte {
		return fmt.Appendf(buf, "Name:\t%s\nState:\tR (running)\nTgid:\t%d\nPid:\t%d\nThreads:\t%d\nCpus_allowed_list:\t%s\n", p.name, p.pid, p.pid, p.threads, p.cpus)
	}), nil)
	task := k.addDir(p.dir, "task")
	for tid := range p.threads {
		dir := k.addDir(task, strconv.Itoa(int(p.pid)+tid))
		k.addFile(dir, "schedstat", gone(func(buf []byte) []byte {
			u, n := k.used(p), uint64(p.threads)
			return fmt.Appendf(buf, "%d %d %d\n", u.UsageNsec/n, u.DelayNsec/n, switches(u)/n)
		}), nil)
	}
}

// procCgroup is /proc/PID/cgroup.
func (k *Kernel) procCgroup(p *process, buf []byte) []byte {
	for i, h := range k.hiers {
		name := ""
		if !h.v2 {
			name = string(h.controllers[0])
		}
		id := len(k.hiers) - i - 1
		if k.opt.Layout == cgroup.LayoutV2 {
			id = 0
		}
		buf = fmt.Appendf(buf, "%d:%s:%s\n", id, name, p.in[i].path)
	}
	return buf
}

// switches is how often a process's threads got a CPU, with slices of 3 ms.
func switches(u usage) uint64 { return u.UsageNsec/3_000_000 + 1 }
