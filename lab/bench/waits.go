package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/lab/stat"
)

// Waits is what it costs to measure who makes whom wait. The programs run where threads switch, at the expense of whoever
// does: that is no time of the agent's process, and stands beside it.
type Waits struct {
	Off WaitsArm `json:"off"`
	On  WaitsArm `json:"on"`
}

// WaitsArm is the agent without or with it; means over the turns.
type WaitsArm struct {
	CorePercent    float64   `json:"core_percent"` // of the agent's process
	Turns          []float64 `json:"core_percent_by_turn"`
	SwitchesPerSec float64   `json:"switches_per_second"` // of this host
	// Programs is the time in the BPF programs, of one core, and NsecPerSwitch the same by switch, with all wake-ups, migrations and
	// interrupts. The kernel's own measuring is in them.
	Programs      float64 `json:"programs_core_percent"`
	NsecPerSwitch float64 `json:"programs_ns_per_switch"`
	Attached      int     `json:"programs"` // 0 in the arm with waits: this machine has none
}

// waitsTurns is how often each arm is played.
const waitsTurns = 2

// measureWaits runs the agent without and with waits by turns, each half as long as the agent alone.
func measureWaits(ctx context.Context, o *Options, c *crowd) (*Waits, error) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err == nil {
		defer stats.Close() //nolint:errcheck // it ends with the process, too
	} // else programs are shown without time
	w := &Waits{}
	for turn := range 2 * waitsTurns {
		arm, on := &w.Off, turn%2 == 1
		if on {
			arm = &w.On
		}
		err := runAgent(ctx, o, c, fmt.Sprintf("agent-waits-%d", turn), func(c *config.Config) { c.Agent.Waits = on }, func(p *stage.Proc, metrics string) error {
			return arm.play(ctx, o, p, metrics, len(c.groups))
		})
		if err != nil {
			return nil, err
		}
	}
	for _, arm := range []*WaitsArm{&w.Off, &w.On} {
		arm.CorePercent = stat.Mean(arm.Turns)
		arm.SwitchesPerSec /= waitsTurns
		arm.Programs /= waitsTurns
		arm.NsecPerSwitch = arm.Programs * 1e7 / max(1, arm.SwitchesPerSec)
	}
	return w, nil
}

// play adds one turn.
func (a *WaitsArm) play(ctx context.Context, o *Options, p *stage.Proc, metrics string, tasks int) error {
	if err := stage.Sleep(ctx, 3*time.Second); err != nil { // until it has started: watch waits for windows then
		return err
	}
	begin, before := time.Now(), programs(p.Pid())
	from, err := switches()
	if err != nil {
		return err
	}
	res, err := watch(ctx, o.agentTime()/2, p, metrics, tasks)
	if err != nil {
		return err
	}
	now, after := time.Since(begin).Seconds(), programs(p.Pid())
	to, err := switches()
	if err != nil {
		return err
	}
	a.Turns = append(a.Turns, res.CorePercent)
	a.SwitchesPerSec += float64(to-from) / now
	a.Programs += float64(after.nsec-before.nsec) / 1e7 / now
	a.Attached = after.count
	return nil
}

// switches is how often this host switched threads since it booted: "ctxt 1990473" in /proc/stat.
func switches() (uint64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "ctxt "); ok {
			return strconv.ParseUint(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, errors.New("bench: /proc/stat has no ctxt")
}

// programTime is how many BPF programs a process has, and for how long they ran.
type programTime struct {
	count int
	nsec  uint64
}

// programs reads /proc/PID/fdinfo, where the kernel describes what descriptors are of; those of a program have these lines
// among others (kernel/bpf/syscall.c, bpf_prog_show_fdinfo):
//
//	prog_id:	31
//	run_time_ns:	152000
//
// What cannot be read is none.
func programs(pid int) (t programTime) {
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fdinfo/*") // the pattern is right
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			continue
		}
		id, nsec, ok := parseProgram(string(text))
		if !ok || seen[id] {
			continue
		}
		seen[id] = true
		t.count++
		t.nsec += nsec
	}
	return t
}

func parseProgram(text string) (id string, nsec uint64, ok bool) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); key {
		case "prog_id":
			id = value
		case "run_time_ns":
			n, err := strconv.ParseUint(value, 10, 64)
			nsec, ok = n, err == nil
		}
	}
	return id, nsec, ok && id != ""
}

func (r *Result) waitsTable() report.Table {
	t := report.Table{
		Title: "Who makes whom wait: the agent's process without and with it, by turns",
		Columns: []report.Column{
			{Name: "waits"}, report.Figures("of a core", "%"), report.Figures("each turn", "%"), report.Figures("switches", "1/s"), report.Figures("programs", ""), report.Figures("in programs", "% of a core"), report.Figures("a switch", "ns"),
		},
		Notes: []string{"in programs: time in the BPF programs as the kernel counts it, its own counting included; it falls on whoever switches, and not on the agent. a switch: the same by switch, wake-ups, migrations and interrupts with it."},
	}
	if r.Waits == nil {
		return t
	}
	for _, arm := range []struct {
		name string
		of   *WaitsArm
	}{{"off", &r.Waits.Off}, {"on", &r.Waits.On}} {
		var turns []string
		for _, v := range arm.of.Turns {
			turns = append(turns, num(v, 3))
		}
		t.Rows = append(t.Rows, report.Cells(arm.name, num(arm.of.CorePercent, 3), strings.Join(turns, " "), num(arm.of.SwitchesPerSec, 0), strconv.Itoa(arm.of.Attached), num(arm.of.Programs, 3), num(arm.of.NsecPerSwitch, 0)))
	}
	return t
}
