// Package probe finds out what a machine offers, for `commensal doctor` and for whoever chooses signals and remedies.
//
// It looks and never touches: no file is written, no cgroup made, no setting tried on for size. That costs
// certainty in places, since some files exist only in groups that nobody has made yet; such a finding says
// that it could not tell, or leans on the kernel version and says so. truth_test.go tries for real what is
// answered here.
//
// Every finding carries its evidence in one line: the file and what was in it, or the error.
package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/mountinfo"
	"golang.org/x/sys/unix"
)

// Answer is what a probe says.
type Answer string

// The answers.
const (
	Yes          Answer = "yes"
	No           Answer = "no"
	Owned        Answer = "owned by another" // it is there, and somebody else uses it: not ours to touch
	CouldNotTell Answer = "could not tell"
)

// Finding is the answer to one question about the machine.
type Finding struct {
	Name   string   // one of the constants below
	Answer Answer   // never empty
	Why    string   // the evidence, in one line; never empty
	Gives  []string // the signals and remedies it has a part in; empty when it is context only
	Needs  string   // what would turn the answer into yes; empty when it is yes, or nothing would
	Only   string   // whom a yes speaks for, "tasks that live in /sys/fs/cgroup/unified"; empty: for everybody
}

// The names of the findings, in the order in which Run returns them.
const (
	KernelRelease    = "kernel release"
	CgroupLayout     = "cgroup layout"
	CgroupWritable   = "cgroup writable"
	CPUQuota         = "cpu quota"
	CPUBurst         = "cpu burst"
	CPUIdle          = "cpu.idle"
	Cpuset           = "cpuset"
	Freezer          = "freezer"
	CgroupKill       = "cgroup.kill"
	MemoryReclaim    = "memory.reclaim"
	MemoryHigh       = "memory.high"
	IOMax            = "io.max"
	IOWeight         = "io weight"
	DelayAccounting  = "delay accounting"
	PSISystem        = "psi system"
	PSIPerCgroup     = "psi per cgroup"
	Taskstats        = "taskstats"
	ThreadSchedstat  = "thread schedstat"
	Schedstats       = "schedstats"
	PerfCycles       = "perf cycles"
	PerfRefCycles    = "perf ref-cycles"
	PerfInstructions = "perf instructions"
	PerfLLCMisses    = "perf llc misses"
	PerfPerCgroup    = "perf per cgroup"
	MemoryLatency    = "memory latency"
	Resctrl          = "resctrl"
	ResctrlCAT       = "resctrl cat l3"
	ResctrlMBA       = "resctrl mba"
	ResctrlMonitor   = "resctrl monitoring"
	ResctrlRoom      = "resctrl room"
	NUMA             = "numa nodes"
	SMT              = "smt"
	Swap             = "swap"
	Zswap            = "zswap"
	MGLRU            = "mglru"
	DAMON            = "damon"
	IdlePages        = "idle page tracking"
	BTF              = "btf"
	Lockdown         = "lockdown"
	BPFPrograms      = "bpf programs"
	Hypervisor       = "hypervisor"
	Steal            = "steal"
	Descriptors      = "descriptor limit"
	RootUser         = "root user"
	CapSysAdmin      = "CAP_SYS_ADMIN"
	CapNetAdmin      = "CAP_NET_ADMIN"
	CapPerfmon       = "CAP_PERFMON"
	CapBPF           = "CAP_BPF"
	CapSysNice       = "CAP_SYS_NICE"
	CapSysPtrace     = "CAP_SYS_PTRACE"
	CapSysResource   = "CAP_SYS_RESOURCE"
	CapDACOverride   = "CAP_DAC_OVERRIDE"
	CapKill          = "CAP_KILL"
	RealTime         = "real-time scheduling"
)

// Options say where to look.
type Options struct {
	FS hostfs.FS // the host's files, or a captured tree
	// Live allows the probes that are system calls on the running kernel (netlink, perf_event_open). Without
	// it their outcomes are taken from a captured tree that has them (see Capture), else they could not tell.
	Live bool
}

// prober is one run: the files, and what several probes need.
type prober struct {
	fs      hostfs.FS
	calls   calls // nil: there are none to make, and none were captured
	kernel  version
	mounts  []mountinfo.Mount
	groups  layout
	flags   map[string]bool // /proc/cpuinfo
	flagErr error
	status  map[string]string // /proc/self/status
	statErr error
}

// Run answers every question, in a fixed order. It does not fail: what cannot be read is a finding.
func Run(o Options) []Finding {
	p := &prober{fs: o.FS}
	if o.Live {
		p.calls = kernelCalls{fs: o.FS}
	} else {
		p.calls = p.capturedCalls()
	}
	return p.run()
}

func (p *prober) run() []Finding {
	release := p.kernelRelease()
	p.readMounts()
	p.readLayout()
	p.readFlags()
	p.readStatus()
	findings := []Finding{release}
	findings = append(findings, p.cgroupFindings()...)
	findings = append(findings, p.ioFindings()...)
	findings = append(findings, p.pressureFindings()...)
	findings = append(findings, p.delayFindings()...)
	findings = append(findings, p.perfFindings()...)
	findings = append(findings, p.resctrlFindings()...)
	findings = append(findings, p.machineFindings()...)
	findings = append(findings, p.memoryFindings()...)
	findings = append(findings, p.hostFindings()...)
	findings = append(findings, p.processFindings()...)
	return findings
}

// Find returns the finding of that name, or one that could not tell when there is none.
func Find(findings []Finding, name string) Finding {
	for _, f := range findings {
		if f.Name == name {
			return f
		}
	}
	return Finding{Name: name, Answer: CouldNotTell, Why: "not probed"}
}

// read returns a file's text without the surrounding blanks.
func (p *prober) read(path string) (string, error) {
	b, err := p.fs.ReadFile(path, nil)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// exists says whether a path is there. An error other than absence counts as there: the name resolved.
func (p *prober) exists(path string) bool {
	_, err := p.fs.Inode(path)
	return !absent(err)
}

// absent says whether an error means that the thing is not there, as opposed to not readable.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOTDIR)
}

// unread is the finding for a file that could not be read: no where it is not there, else could not tell.
func unread(name string, err error, needs string) Finding {
	if absent(err) || errors.Is(err, unix.EOPNOTSUPP) {
		return Finding{Name: name, Answer: No, Why: oneLine(err.Error()), Needs: needs}
	}
	if errors.Is(err, fs.ErrPermission) {
		needs = "to run as root: the file is not for everybody"
	}
	return Finding{Name: name, Answer: CouldNotTell, Why: oneLine(err.Error()), Needs: needs}
}

// yesNo is Yes or No.
func yesNo(is bool) Answer {
	if is {
		return Yes
	}
	return No
}

// oneLine puts evidence on one line, whatever a file or an error held.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// version is major and minor of a kernel release; zero when it could not be read.
type version struct{ major, minor int }

// atLeast compares with a release that documents a feature.
func (v version) atLeast(o version) bool {
	return v.major > o.major || v.major == o.major && v.minor >= o.minor
}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// parseRelease reads the head of "6.18.44-generic"; ok is false when there are no two numbers.
func parseRelease(s string) (v version, ok bool) {
	n, err := fmt.Sscanf(s, "%d.%d", &v.major, &v.minor)
	if err != nil || n != 2 || v.major < 0 || v.minor < 0 {
		return version{}, false
	}
	return v, true
}

// kernelRelease reads /proc/sys/kernel/osrelease.
func (p *prober) kernelRelease() Finding {
	const file = "/proc/sys/kernel/osrelease"
	text, err := p.read(file)
	if err != nil {
		return Finding{Name: KernelRelease, Answer: CouldNotTell, Why: oneLine(err.Error())}
	}
	v, ok := parseRelease(text)
	if !ok {
		return Finding{Name: KernelRelease, Answer: CouldNotTell, Why: fmt.Sprintf("%s: %q does not begin with two numbers", file, text)}
	}
	p.kernel = v
	return Finding{Name: KernelRelease, Answer: Yes, Why: fmt.Sprintf("%s: %s", file, oneLine(text))}
}
