package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/schedwait"
)

// waiting is what `waits` prints of one cgroup. Times are in nanoseconds for each second of the measurement.
type waiting struct {
	Path string `json:"path"`
	// Waits a second, after a wake-up and after the thread was put off the CPU.
	Woken     float64 `json:"woken"`
	Preempted float64 `json:"preempted"`
	Nsec      float64 `json:"nsec"`
	// P99 and Longest are of single waits after a wake-up and of all, in nanoseconds.
	P99     int64   `json:"p99_nsec"`
	Longest int64   `json:"longest_nsec"`
	Open    int     `json:"open"` // threads that wait still
	Ran     []ranBy `json:"ran"`
}

// ranBy is who had the CPU meanwhile.
type ranBy struct {
	Who     string  `json:"who"`
	Process string  `json:"process,omitempty"` // that ran longest in one wait
	PID     int     `json:"pid,omitempty"`
	Nsec    float64 `json:"nsec"`
	Share   float64 `json:"share"` // of the cgroup's waiting
}

type waitsReport struct {
	Seconds  float64        `json:"seconds"`
	Switches int64          `json:"switches"`
	Cgroups  []waiting      `json:"cgroups"`
	Lost     schedwait.Lost `json:"lost"`
}

const waitsLong = `Measure who makes whom wait: of each cgroup how long its threads waited for a CPU, and for how much
of that which other cgroup, kernel thread or interrupt had it. It needs no agent and no configuration,
and changes nothing; while it measures, each switch of the scheduler takes a fraction of a microsecond more.

    commensal waits /kubepods.slice/kubepods-pod1234.slice --for 10s

Paths are as ` + "`commensal config match`" + ` prints them: below the hierarchy that has the cpu controller.

Exit codes: 0 measured; 2 no such cgroup; 3 this kernel cannot measure it; 4 a privilege is missing.`

func waitsCommand(p *cli.Printer) *cobra.Command {
	var length time.Duration
	var rows int
	cmd := &cobra.Command{
		Use: "waits CGROUP...", Short: "Measure who makes a cgroup's threads wait for a CPU", Args: cobra.MinimumNArgs(1), Long: waitsLong,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if length <= 0 {
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("--for %v: expected more than 0", length))
			}
			rep, err := measureWaits(cmd.Context(), paths, length)
			switch {
			case errors.Is(err, schedwait.ErrPermission):
				return cli.Fail(cli.CodePrivilege, err)
			case errors.Is(err, schedwait.ErrNotSupported):
				return cli.Fail(cli.CodeUnknown, err)
			case err != nil:
				return err
			}
			return p.Print(rep, func(w io.Writer) error { return rep.print(w, rows) })
		},
	}
	cmd.Flags().DurationVar(&length, "for", 5*time.Second, "how long to measure")
	cmd.Flags().IntVar(&rows, "rows", 8, "how many to print of a cgroup, largest first")
	return cmd
}

// cpuRoot returns where the hierarchy with the cpu controller is mounted, and whether it is the v2 one.
func cpuRoot() (dir string, v2 bool, err error) {
	m, err := cgroup.Discover(hostfs.NewRoot("/"))
	if err != nil {
		return "", false, err
	}
	if dir = m.V1[cgroup.CPU]; dir != "" {
		return dir, false, nil
	}
	return m.Unified, true, nil
}

func measureWaits(ctx context.Context, paths []string, length time.Duration) (*waitsReport, error) {
	root, v2, err := cpuRoot()
	if err != nil {
		return nil, err
	}
	var groups []schedwait.Group
	for i, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(root+path, &st); err != nil || !strings.HasPrefix(path, "/") {
			return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("%q is no cgroup below %s; `commensal config match` lists tasks, systemd-cgls all", path, root))
		}
		groups = append(groups, schedwait.Group{Cgroup: st.Ino, Task: i, Watched: true})
	}
	s, err := schedwait.Open(schedwait.Options{V2: v2, Groups: len(groups), Watched: len(groups), Rows: 16384})
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // the kernel frees it with the process, too
	if err := s.SetGroups(groups); err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
	if err := s.Stop(); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, err
	}
	var r schedwait.Reading
	if err := s.Read(&r, now.Nano()); err != nil {
		return nil, err
	}
	return reportWaits(paths, &r, took.Seconds(), cgroupNames(root)), nil
}

// cgroupNames returns what finds a cgroup's path by the inode number of its directory.
func cgroupNames(root string) func(id uint64) string {
	paths := map[uint64]string{}
	if d, err := cgroup.Find(hostfs.NewRoot("/")); err == nil {
		list, _ := d.List() // what cannot be listed has no name
		for _, path := range list {
			var st unix.Stat_t
			if unix.Stat(root+path, &st) == nil {
				paths[st.Ino] = path
			}
		}
	}
	return func(id uint64) string {
		switch path, ok := paths[id]; {
		case ok:
			return path
		case id == 1:
			return "/"
		}
		return fmt.Sprintf("a cgroup that is gone (%d)", id)
	}
}

func reportWaits(paths []string, r *schedwait.Reading, seconds float64, nameOf func(uint64) string) *waitsReport {
	rep := &waitsReport{Seconds: seconds, Switches: r.Switches, Lost: r.Lost}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		nsec := float64(t.Nsec[0] + t.Nsec[1])
		w := waiting{
			Path: paths[t.Task], Woken: float64(t.Count[schedwait.AfterWakeup]) / seconds, Preempted: float64(t.Count[schedwait.AfterPreemption]) / seconds,
			Nsec: nsec / seconds, P99: t.Lengths[schedwait.AfterWakeup].Quantile(0.99), Longest: t.LongestNsec, Open: t.Open,
		}
		for _, x := range t.Shares {
			who := x.Party.String()
			other, task := x.Party.Task()
			switch {
			case task && other == t.Task:
				who = "its own threads"
			case task:
				who = paths[other]
			case x.Party == schedwait.Unmanaged:
				who = nameOf(x.Cgroup)
			}
			w.Ran = append(w.Ran, ranBy{Who: who, Process: commOf(x.PID), PID: x.PID, Nsec: float64(x.Nsec) / seconds, Share: float64(x.Nsec) / max(nsec, 1)})
		}
		rep.Cgroups = append(rep.Cgroups, w)
	}
	return rep
}

// commOf is what a process is called, "" when it is gone.
func commOf(pid int) string {
	if pid == 0 {
		return ""
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (rep *waitsReport) print(w io.Writer, rows int) error {
	ms := func(nsec float64) string { return fmt.Sprintf("%.3g ms", nsec/1e6) }
	for i := range rep.Cgroups {
		c := &rep.Cgroups[i]
		fmt.Fprintf(w, "%s waited %s a second; %.0f waits a second after a wake-up, 99 of 100 under %s; %.0f after losing the CPU; the longest %s\n",
			c.Path, ms(c.Nsec), c.Woken, ms(float64(c.P99)), c.Preempted, ms(float64(c.Longest)))
		if c.Open > 0 {
			fmt.Fprintf(w, "  %d threads waited still at the end: they are not counted\n", c.Open)
		}
		for k, x := range c.Ran {
			if k == rows {
				fmt.Fprintf(w, "  and %d more\n", len(c.Ran)-rows)
				break
			}
			process := x.Process
			if x.PID != 0 {
				process = fmt.Sprintf("  (%s, process %d)", process, x.PID)
			}
			fmt.Fprintf(w, "  %5.1f %%  %10s  %s%s\n", 100*x.Share, ms(x.Nsec), x.Who, process)
		}
	}
	if l := rep.Lost; l.Waits+l.Rows > 0 {
		fmt.Fprintf(w, "not measured for want of room: %d waits; charged to nobody: %d\n", l.Waits, l.Rows)
	}
	_, err := fmt.Fprintf(w, "measured for %.3g s, %.0f switches a second on this host\n", rep.Seconds, float64(rep.Switches)/rep.Seconds)
	return err
}
