package probe

// The machine: /sys/devices/system/node, /sys/devices/system/cpu/smt, /proc/cpuinfo, /proc/stat
// (Documentation/ABI/stable/sysfs-devices-node, Documentation/filesystems/proc.rst).

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/schedwait"
)

// machineFindings answers about NUMA and SMT.
func (p *prober) machineFindings() []Finding { return []Finding{p.numa(), p.smt()} }

// numa counts the nodes that have memory: pages can move only between such.
func (p *prober) numa() Finding {
	const file = "/sys/devices/system/node/has_memory"
	f := Finding{Name: NUMA, Gives: []string{RemedyMigration}, Needs: "a machine with two NUMA nodes or more"}
	text, err := p.read(file)
	if err != nil {
		u := unread(NUMA, err, f.Needs)
		u.Gives = f.Gives
		return u
	}
	nodes, err := cpus.Parse(text)
	if err != nil {
		f.Answer, f.Why = CouldNotTell, fmt.Sprintf("%s: %s", file, oneLine(err.Error()))
		return f
	}
	n := nodes.Len()
	f.Answer, f.Why = yesNo(n > 1), fmt.Sprintf("%s: %s (nodes: %d)", file, oneLine(text), n)
	return settled(f)
}

// smt says whether sibling threads share cores: then an exclusive cpuset must take whole cores.
func (p *prober) smt() Finding {
	const file = "/sys/devices/system/cpu/smt/active"
	text, err := p.read(file)
	if err != nil {
		return unread(SMT, err, "")
	}
	switch text {
	case "0", "1":
		return Finding{Name: SMT, Answer: yesNo(text == "1"), Why: file + ": " + text}
	}
	return Finding{Name: SMT, Answer: CouldNotTell, Why: fmt.Sprintf("%s: %q", file, oneLine(text))}
}

// hostFindings answers about what surrounds the kernel.
func (p *prober) hostFindings() []Finding {
	hypervisor := p.hypervisor()
	return []Finding{p.btf(), p.lockdown(), p.programs(), hypervisor, p.steal(hypervisor)}
}

// btf is the kernel's own type information, which portable BPF programs need. Context only.
func (p *prober) btf() Finding {
	const file = "/sys/kernel/btf/vmlinux"
	if p.exists(file) {
		return Finding{Name: BTF, Answer: Yes, Why: file + ": there"}
	}
	return Finding{Name: BTF, Answer: No, Why: file + ": not there", Needs: "CONFIG_DEBUG_INFO_BTF"}
}

// lockdown says whether the kernel keeps its own memory from root (Documentation/admin-guide/kernel-parameters.txt,
// lockdown=; kernel_lockdown(7)). What is in force stands in brackets:
//
//	none [integrity] confidentiality
//
// Only confidentiality keeps BPF programs and perf from looking at the kernel. Context only: programs tries it.
func (p *prober) lockdown() Finding {
	const file = "/sys/kernel/security/lockdown"
	text, err := p.read(file)
	if absent(err) {
		return Finding{Name: Lockdown, Answer: CouldNotTell, Why: file + ": not there: not built, or securityfs is not mounted"}
	}
	if err != nil {
		return unread(Lockdown, err, "")
	}
	for _, level := range []string{"none", "integrity", "confidentiality"} {
		if strings.Contains(text, "["+level+"]") {
			return Finding{Name: Lockdown, Answer: yesNo(level != "none"), Why: file + ": " + oneLine(text)}
		}
	}
	return Finding{Name: Lockdown, Answer: CouldNotTell, Why: fmt.Sprintf("%s: %q", file, oneLine(text))}
}

// programs loads and attaches the BPF programs that tell who makes whom wait, switched off, and takes them away again.
func (p *prober) programs() Finding {
	f := Finding{Name: BPFPrograms, Gives: []string{SignalWaits}}
	if p.calls == nil {
		f.Answer, f.Why = CouldNotTell, notLive
		return f
	}
	err := p.calls.programs()
	if err == nil {
		f.Answer, f.Why = Yes, "who makes whom wait: loaded, attached and taken away again"
		return f
	}
	f.Answer, f.Why = No, oneLine(err.Error())
	switch {
	case errors.Is(err, schedwait.ErrRefused):
		f.Needs = "another kernel, or a release of ours that this one's verifier takes: please report the line"
	case errors.Is(err, schedwait.ErrNotSupported):
		f.Needs = "Linux 5.18 or later with CONFIG_DEBUG_INFO_BTF"
	case errors.Is(err, schedwait.ErrPermission):
		f.Needs = "CAP_BPF and CAP_PERFMON"
		if text, _ := p.read("/sys/kernel/security/lockdown"); strings.Contains(text, "[confidentiality]") {
			f.Needs = "a kernel that is not locked down (lockdown=confidentiality keeps BPF from looking at it)"
		}
	default:
		f.Answer = CouldNotTell
	}
	return f
}

// hypervisor says whether this is a guest.
func (p *prober) hypervisor() Finding {
	f := Finding{Name: Hypervisor}
	vendor, err := p.read("/sys/class/dmi/id/sys_vendor")
	if err != nil {
		vendor = "unknown"
	}
	switch {
	case p.exists("/sys/hypervisor/type"):
		f.Answer, f.Why = Yes, "/sys/hypervisor/type: there; system vendor "+oneLine(vendor)
	case p.flagErr != nil:
		f.Answer, f.Why = CouldNotTell, oneLine(p.flagErr.Error())
	case p.flags["hypervisor"]:
		f.Answer, f.Why = Yes, "/proc/cpuinfo: hypervisor; system vendor "+oneLine(vendor)
	case p.flags["fpu"]: // the flags of an x86, where guests are told
		f.Answer, f.Why = No, "/proc/cpuinfo: no hypervisor; system vendor "+oneLine(vendor)
	default:
		f.Answer, f.Why = CouldNotTell, "/proc/cpuinfo does not tell on this architecture; system vendor "+oneLine(vendor)
	}
	return f
}

// errStat means a /proc/stat without what we look for.
var errStat = errors.New("no line \"cpu\" with a steal column")

// steal says whether time that the hypervisor takes is told to us. A guest whose column stands at zero may be
// lucky or uninformed.
func (p *prober) steal(hypervisor Finding) Finding {
	const file = "/proc/stat"
	f := Finding{Name: Steal}
	text, err := p.read(file)
	if err != nil {
		return unread(Steal, err, "")
	}
	ticks, err := stealTicks(text)
	switch {
	case err != nil:
		f.Answer, f.Why = CouldNotTell, fmt.Sprintf("%s: %s", file, oneLine(err.Error()))
	case ticks > 0:
		f.Answer, f.Why = Yes, file+": steal has been counted since boot"
	case hypervisor.Answer == No:
		f.Answer, f.Why = No, file+": steal is 0, and this is no guest"
	default:
		f.Answer, f.Why = CouldNotTell, file+": steal is 0 since boot: none was taken, or the hypervisor does not tell"
		f.Needs = "a hypervisor that reports steal time to its guests"
	}
	return f
}

// stealTicks reads the eighth number of the line "cpu", in ticks.
func stealTicks(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != "cpu" {
			continue
		}
		ticks, err := strconv.ParseUint(f[8], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errStat, err)
		}
		return ticks, nil
	}
	return 0, errStat
}
