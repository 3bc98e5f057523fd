package probe

import (
	"strings"
	"testing"
)

// A machine that does not take the programs says why: rights, lockdown, a field that is missing, the verifier's last line.
func TestProgramsThatTellWaits(t *testing.T) {
	const lockdown, locked = "/sys/kernel/security/lockdown", "none integrity [confidentiality]\n"
	const last = "refused: schedwait: the kernel's verifier refuses the programs: program on_switch: load program: permission denied: R1 invalid mem access 'scalar'"
	for _, c := range []struct {
		name, outcome, lockdown string
		want, locked            Answer
		why, needs              string
	}{
		{"it takes them", "ok", "[none] integrity confidentiality\n", Yes, No, "loaded, attached", ""},
		{"the verifier refuses", last, "none [integrity] confidentiality\n", No, Yes, "R1 invalid mem access 'scalar'", "report the line"},
		{"a field is missing", "not supported: a field that the programs follow is not there: w->times = t->nvcsw", "", No, CouldNotTell, "t->nvcsw", "5.18"},
		{"no rights", "permission: operation not permitted", "", No, CouldNotTell, "not permitted", "CAP_BPF"},
		{"locked down", "permission: operation not permitted", locked, No, Yes, "not permitted", "locked down"},
		{"out of memory", "other: cannot allocate memory", "nonsense\n", CouldNotTell, CouldNotTell, "cannot allocate", ""},
		{"nobody asked", "", locked, CouldNotTell, Yes, "no line", ""},
	} {
		files := change(nil, file("/sys/kernel/btf/vmlinux", "x"))
		if c.lockdown != "" {
			files[lockdown] = c.lockdown
		}
		if c.outcome != "" {
			files[callsFile] += BPFPrograms + ": " + c.outcome + "\n"
		}
		findings := Run(Options{FS: tree(t, files)})
		checkForm(t, findings)
		f := Find(findings, BPFPrograms)
		if f.Answer != c.want || !strings.Contains(f.Why, c.why) || !strings.Contains(f.Needs, c.needs) || Find(findings, Lockdown).Answer != c.locked {
			t.Errorf("%s: %+v; %+v", c.name, f, Find(findings, Lockdown))
		}
		for _, a := range Signals(findings) {
			if a.Name == SignalWaits && (a.Available != (c.want == Yes) || !strings.Contains(a.Because, c.why)) {
				t.Errorf("%s: %+v", c.name, a)
			}
		}
	}
}
