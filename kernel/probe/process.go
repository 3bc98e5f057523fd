package probe

// What this process may do: /proc/self/status and /proc/self/limits (Documentation/filesystems/proc.rst,
// capabilities(7)), and real-time scheduling in its cpu cgroup (Documentation/scheduler/sched-rt-group.rst).
//
//	Uid:	0	0	0	0              real, effective, saved, file system
//	CapEff:	000001fffeffffff       bit n is capability n; here all but 24, CAP_SYS_RESOURCE

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// readStatus reads /proc/self/status.
func (p *prober) readStatus() {
	text, err := p.read("/proc/self/status")
	p.status, p.statErr = parseStatus(text), err
}

// parseStatus reads lines "Key:\tvalue".
func parseStatus(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			values[key] = strings.TrimSpace(value)
		}
	}
	return values
}

// processFindings answers about this process.
func (p *prober) processFindings() []Finding {
	findings := []Finding{p.descriptors(), p.uidZero()}
	for _, c := range capabilities {
		findings = append(findings, p.capability(c.name))
	}
	return append(findings, p.realTime())
}

// capabilities that matter to us: what each is for, and what goes without it.
var capabilities = []struct {
	name    string
	bit     uint
	gives   []string
	without string
}{
	{CapSysAdmin, unix.CAP_SYS_ADMIN, nil, "page frame numbers are hidden, so that huge pages are moved one by one"},
	{CapNetAdmin, unix.CAP_NET_ADMIN, []string{SignalRunDelay}, "taskstats refuses, schedstat files serve instead"},
	{CapBPF, unix.CAP_BPF, []string{SignalWaits}, "BPF programs are refused (CAP_SYS_ADMIN serves too)"},
	{CapPerfmon, unix.CAP_PERFMON, []string{SignalCPI, SignalMPKI, SignalWaits}, "perf counters of others are refused (CAP_SYS_ADMIN serves too)"},
	{CapSysNice, unix.CAP_SYS_NICE, nil, "no real-time priority"},
	{CapSysPtrace, unix.CAP_SYS_PTRACE, []string{RemedyMigration}, "pages of other users' processes can neither be looked at nor moved"},
	{CapSysResource, unix.CAP_SYS_RESOURCE, nil,
		"the hard descriptor limit cannot be raised, and psi triggers take windows of whole multiples of 2 s only"},
	{CapDACOverride, unix.CAP_DAC_OVERRIDE, nil, "only files of our own user can be written"},
	{CapKill, unix.CAP_KILL, []string{RemedyEvict}, "only processes of our own user can be ended"},
}

// capability reads one bit of CapEff.
func (p *prober) capability(name string) Finding {
	f := Finding{Name: name}
	value := p.status["CapEff"]
	set, err := strconv.ParseUint(value, 16, 64)
	if p.statErr != nil {
		f.Answer, f.Why = CouldNotTell, oneLine(p.statErr.Error())
		return f
	}
	if err != nil {
		f.Answer, f.Why = CouldNotTell, fmt.Sprintf("/proc/self/status: CapEff %q", value)
		return f
	}
	for _, c := range capabilities {
		if c.name != name {
			continue
		}
		f.Gives = c.gives
		f.Answer, f.Why = Yes, "/proc/self/status: CapEff "+value
		if set&(1<<c.bit) == 0 {
			f.Answer = No
			f.Why += ": without it " + c.without
			f.Needs = name + " (systemd: AmbientCapabilities=, container: capabilities.add)"
		}
		return f
	}
	f.Answer, f.Why = CouldNotTell, "no such capability among those probed"
	return f
}

// uidZero says whether the effective user is root, who owns the kernel's files.
func (p *prober) uidZero() Finding {
	f := Finding{Name: RootUser}
	if p.statErr != nil {
		f.Answer, f.Why = CouldNotTell, oneLine(p.statErr.Error())
		return f
	}
	uids := strings.Fields(p.status["Uid"])
	if len(uids) != 4 {
		f.Answer, f.Why = CouldNotTell, fmt.Sprintf("/proc/self/status: Uid %q", oneLine(p.status["Uid"]))
		return f
	}
	f.Answer, f.Why, f.Needs = yesNo(uids[1] == "0"), "/proc/self/status: effective Uid "+uids[1], "to run as root"
	return settled(f)
}

// minFiles is a hard limit below which we could not even follow an ordinary node: about ten kept descriptors a task and
// 110 pods of a few containers each, before any perf counter.
const minFiles = 4096

// descriptors reads the hard limit of open files, up to which a process may raise its own.
func (p *prober) descriptors() Finding {
	const file = "/proc/self/limits"
	f := Finding{Name: Descriptors, Gives: []string{SignalCPI, SignalMPKI},
		Needs: "a larger limit (systemd: LimitNOFILE=), or CAP_SYS_RESOURCE to raise it"}
	text, err := p.read(file)
	if err != nil {
		u := unread(Descriptors, err, "")
		u.Gives = f.Gives
		return u
	}
	hard, err := hardFiles(text)
	if err != nil {
		f.Answer, f.Why, f.Needs = CouldNotTell, fmt.Sprintf("%s: %s", file, oneLine(err.Error())), ""
		return f
	}
	limit := strconv.FormatUint(hard, 10)
	if hard == ^uint64(0) {
		limit = "unlimited"
	}
	f.Answer = yesNo(hard >= minFiles)
	f.Why = fmt.Sprintf("%s: hard limit %s; perf per cgroup takes (events + 2) × CPUs + 1 a task", file, limit)
	return settled(f)
}

// hardFiles reads "Max open files  <soft>  <hard>  files"; unlimited is the largest number.
func hardFiles(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "Max open files")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			return 0, fmt.Errorf("line %q: %w", oneLine(line), strconv.ErrSyntax)
		}
		if f[1] == "unlimited" {
			return ^uint64(0), nil
		}
		return strconv.ParseUint(f[1], 10, 64)
	}
	return 0, fmt.Errorf("no line \"Max open files\": %w", strconv.ErrSyntax)
}

// realTime says whether a thread in our cpu cgroup could be given real-time priority, which a latency
// probe or a load generator wants for itself.
func (p *prober) realTime() Finding {
	f := Finding{Name: RealTime}
	if nice := p.capability(CapSysNice); nice.Answer != Yes {
		f.Answer, f.Why, f.Needs = nice.Answer, nice.Why, CapSysNice
		return f
	}
	if text, err := p.read("/proc/sys/kernel/sched_rt_runtime_us"); err == nil && text == "0" {
		f.Answer, f.Why = No, "/proc/sys/kernel/sched_rt_runtime_us: 0"
		f.Needs = "a real-time share in that file"
		return f
	}
	if dir := p.v1(cgroup.CPU); dir != "" {
		return p.realTimeV1(f, dir)
	}
	return p.realTimeV2(f)
}

// realTimeV1 reads the share of our group; without the file, groups do not divide real time.
func (p *prober) realTimeV1(f Finding, dir string) Finding {
	own, err := p.ownGroup(cgroup.CPU)
	if err != nil || strings.Contains(own, "..") {
		f.Answer, f.Why = CouldNotTell, fmt.Sprintf("group in the cpu hierarchy: %q, %v", own, err)
		return f
	}
	path := strings.TrimRight(dir+own, "/") + "/cpu.rt_runtime_us"
	text, err := p.read(path)
	switch {
	case err != nil && absent(err) && p.exists(dir+"/cpu.rt_runtime_us"):
		f.Answer, f.Why = CouldNotTell, path+": not there, though in the root: the group is not visible from here"
	case err != nil && absent(err):
		f.Answer, f.Why = Yes, path+": not there: groups do not divide real time"
	case err != nil:
		f.Answer, f.Why = CouldNotTell, oneLine(err.Error())
	default:
		f.Answer, f.Why = yesNo(text != "0"), path+": "+oneLine(text)
		f.Needs = "a share there (new groups begin with 0), or to run in the root group"
	}
	return settled(f)
}

// realTimeV2 goes by the kernel's configuration: cgroup2 has no file for it, and with CONFIG_RT_GROUP_SCHED only the root
// group has a share.
func (p *prober) realTimeV2(f Finding) Finding {
	if p.groups.self == "/" && !p.groups.mounts.UnifiedPartial {
		f.Answer, f.Why = Yes, "/proc/self/cgroup: in the root group"
		return f
	}
	set, where, err := p.configured("CONFIG_RT_GROUP_SCHED")
	switch {
	case err != nil:
		f.Answer, f.Why = CouldNotTell, "not in the root group, and the kernel's configuration cannot be read: "+oneLine(err.Error())
	case set:
		f.Answer, f.Why = No, where+": CONFIG_RT_GROUP_SCHED=y: groups of cgroup2 below the root have no real-time share"
		f.Needs = "rt_group_sched=0 on the kernel command line (Linux 6.17), or to run in the root group"
	default:
		f.Answer, f.Why = Yes, where+": CONFIG_RT_GROUP_SCHED is not set: groups do not divide real time"
	}
	return f
}

// maxConfig bounds an unpacked kernel configuration in bytes; today's have about 300 KiB.
const maxConfig = 4 << 20

// packedConfig is there with CONFIG_IKCONFIG_PROC.
const packedConfig = "/proc/config.gz"

// configured says whether a kernel option is y, and which file said so.
func (p *prober) configured(option string) (set bool, where string, err error) {
	release, err := p.read("/proc/sys/kernel/osrelease")
	if err != nil {
		return false, "", err
	}
	if plain := "/boot/config-" + release; !strings.Contains(release, "/") {
		if text, err := p.read(plain); err == nil {
			return hasOption(text, option), plain, nil
		}
	}
	raw, err := p.fs.ReadFile(packedConfig, nil)
	if err != nil {
		return false, "", err
	}
	text, err := unpack(raw)
	if err != nil {
		return false, "", err
	}
	return hasOption(text, option), packedConfig, nil
}

// unpack returns the text of a packed configuration.
func unpack(packed []byte) (string, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("%s: %w", packedConfig, err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxConfig))
	if err != nil {
		return "", fmt.Errorf("%s: %w", packedConfig, err)
	}
	return string(text), nil
}

// hasOption looks for the line "CONFIG_X=y".
func hasOption(config, option string) bool {
	for line := range strings.Lines(config) {
		if strings.TrimRight(line, "\n") == option+"=y" {
			return true
		}
	}
	return false
}
