package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/coldpages"
)

// Ages is what it costs to read how long the pages of all tasks lay idle, as policy coldpages has it done.
type Ages struct {
	Tasks int `json:"tasks"`
	MiB   int `json:"mib"` // of memory that each has, a fifth of it in use
	// Source is who tells ages here; "": nobody, and Why says why. Nothing was measured then.
	Source string `json:"source"`
	Why    string `json:"why,omitempty"`
	// PassMsec is the CPU time of one walk of all tasks and of reading what it told, the kernel's threads included.
	PassMsec Spread `json:"pass_cpu_ms"`
	WallMsec Spread `json:"pass_wall_ms"`
	// WalksMsec is what of it walks took, and FloorMsec the CPU time of reading /proc/PID/stat of a process of each task beside: what a pass is in terms of this host.
	WalksMsec Spread `json:"walks_cpu_ms"`
	FloorMsec Spread `json:"floor_cpu_ms"`
	// IntervalSec is how far apart walks of a task are at the policy's defaults, in the mean, and CorePercent what passes so far apart take of one core.
	IntervalSec float64 `json:"interval_s"`
	CorePercent float64 `json:"core_percent"`
	IdleMiB     float64 `json:"idle_mib"` // that the last pass told, of all tasks: more than nothing, or the walks saw nothing
}

const (
	agesPasses = 5
	idleMiB    = 20 // Ages.MiB if nothing else is asked for
	// idleCommand is the hidden word of the lab's binary with which it is a task that has memory and hardly uses it.
	idleCommand = "bench-idle"
)

// beIdle has memory in small pages, and uses the first fifth of it twice a second; told by the process's arguments. It does not return.
func beIdle(mib string) {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return
	}
	mem, err := unix.Mmap(-1, 0, n<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return
	}
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE) // a kernel without huge pages has none of it
	for used := mem; ; used = mem[:len(mem)/5] {
		for i := 0; i < len(used); i += os.Getpagesize() {
			used[i]++
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// agesInterval is how far apart walks of a task are, in the mean: two in the longest age where there is swap, else one in the shortest.
func agesInterval(asked model.AskedAges, swap bool) time.Duration {
	if swap && asked.LongestNsec > asked.ShortestNsec {
		return time.Duration(asked.LongestNsec / 2)
	}
	return time.Duration(asked.ShortestNsec)
}

// measureAges asks what tells ages here, and where something does walks so many tasks of their own memory.
func measureAges(ctx context.Context, fsys hostfs.FS, st *stage.Stage, o *Options) (*Ages, error) {
	a := &Ages{Tasks: cmp.Or(o.Tasks, goalTasks), MiB: cmp.Or(o.MiB, idleMiB)}
	lru := reclaim.NewLRUGen(fsys)
	if err := lru.Usable(); err != nil {
		a.Why = err.Error()
		return a, nil //nolint:nilerr // that there is none is what was found
	}
	groups, pids, err := startIdle(st, a.Tasks, a.MiB)
	if err != nil {
		return nil, err
	}
	if err := filled(ctx, pids, a.MiB); err != nil {
		return nil, err
	}
	var buf []byte
	floor := func() (err error) {
		for _, pid := range pids {
			if buf, err = fsys.ReadFile(fmt.Sprintf("/proc/%d/stat", pid), buf); err != nil {
				return fmt.Errorf("bench: %w", err)
			}
		}
		return nil
	}
	return a, a.passes(ctx, fsys, lru, groups, floor, func() error { return stage.Sleep(ctx, 2*time.Second) })
}

// startIdle starts so many tasks, a process in a group of its own each.
func startIdle(st *stage.Stage, tasks, mib int) (groups []string, pids []int, err error) {
	for i := range tasks {
		name := fmt.Sprintf("idle-%d", i)
		g, err := st.Group(name)
		if err != nil {
			return nil, nil, err
		}
		p, err := st.Start(g, name, "/proc/self/exe", idleCommand, strconv.Itoa(mib))
		if err != nil {
			return nil, nil, err
		}
		groups, pids = append(groups, g), append(pids, p.Pid())
	}
	return groups, pids, nil
}

// filled waits until each of the tasks has its memory.
func filled(ctx context.Context, pids []int, mib int) error {
	const most = 10 * time.Minute // an emulated machine takes minutes for a hundred
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for _, pid := range pids {
		for {
			if rss, _, err := stage.Memory(pid); err == nil && rss >= float64(mib) { // it may just become the task
				break
			}
			if err := stage.Sleep(ctx, 100*time.Millisecond); err != nil {
				return fmt.Errorf("bench: process %d has no %d MiB: %w", pid, mib, err)
			}
		}
	}
	return nil
}

// passes walks the groups again and again, in turns as the agent does, with the floor and a pause after each pass.
func (a *Ages) passes(ctx context.Context, fsys hostfs.FS, lru *reclaim.LRUGen, groups []string, floor, pause func() error) error {
	runtime.LockOSThread() // clocks are this thread's
	defer runtime.UnlockOSThread()
	areas, err := reclaim.ReadSwaps(fsys)
	swap := err == nil && len(areas) > 0
	edges := make([]time.Duration, len(model.AgeEdges))
	for i, e := range model.AgeEdges {
		edges[i] = time.Duration(e)
	}
	edges[0] = time.Second // of what the passes here can tell
	asks := make([]reclaim.AgeAsk, len(groups))
	for i, g := range groups {
		asks[i] = reclaim.AgeAsk{Path: g, Anon: swap}
	}
	var cpu, wall, walked, least []float64
	for range agesPasses {
		begin, from := time.Now(), openloop.ThreadNsec()
		var walks time.Duration
		idle := uint64(0)
		for turn := range slices.Chunk(asks, reclaim.TurnGroups) {
			for _, one := range lru.AgeAll(ctx, turn, edges) {
				if one.Err != nil {
					return fmt.Errorf("bench: %w", one.Err)
				}
				walks += one.CPU
				a.Source = one.Ages.Source
				idle += one.Ages.Anon[0].AtLeastBytes + one.Ages.FileSorted[0]
			}
		}
		cpu = append(cpu, float64(openloop.ThreadNsec()-from)/1e6+walks.Seconds()*1e3)
		wall, walked = append(wall, time.Since(begin).Seconds()*1e3), append(walked, walks.Seconds()*1e3)
		from = openloop.ThreadNsec()
		if err := floor(); err != nil {
			return err
		}
		least = append(least, float64(openloop.ThreadNsec()-from)/1e6)
		a.IdleMiB = float64(idle) / (1 << 20)
		if err := pause(); err != nil {
			return err
		}
	}
	p := coldpages.Defaults()
	a.PassMsec, a.WallMsec, a.WalksMsec, a.FloorMsec = spread(cpu), spread(wall), spread(walked), spread(least)
	a.IntervalSec = agesInterval(p.Ages(), swap).Seconds()
	a.CorePercent = stat.Mean(cpu) / 10 / a.IntervalSec
	if a.Source == "" {
		return errors.New("bench: no group was walked")
	}
	return nil
}

func (r *Result) agesTable() report.Table {
	a, mib := r.Ages, idleMiB
	if a != nil {
		mib = a.MiB
	}
	t := report.Table{
		Title: "How long pages lay idle: one pass over all tasks (CPU time, the kernel's threads included)",
		Columns: []report.Column{
			report.Figures("tasks", ""), {Name: "source"}, report.Figures("a pass", "ms"), report.Figures("p90", "ms"), report.Figures("walks", "ms"), report.Figures("floor", "ms"), report.Figures("wall", "ms"), report.Figures("passes are apart", "h"), report.Figures("of a core", "%"),
			report.Figures("bound", "%"), report.Figures("told idle", "MiB"),
		},
		Notes: []string{fmt.Sprintf("each task has %d MiB in small pages, of which it uses a fifth. walks: what of a pass is the kernel's. floor: to read /proc/PID/stat of each task once. apart: at coldpages' defaults, two walks in six hours with swap, one in one and a half without.", mib)},
	}
	switch {
	case a == nil:
	case a.Source == "":
		t.Rows = append(t.Rows, report.Cells(strconv.Itoa(a.Tasks), "NONE HERE", "-", "-", "-", "-", "-", "-", "NOT MEASURED", num(goalAges, 1), "-"))
		t.Notes = append(t.Notes, "NOTHING TELLS AGES OF PAGES ON THIS MACHINE, so that this bound was not measured: "+a.Why)
	default:
		t.Rows = append(t.Rows, report.Cells(strconv.Itoa(a.Tasks), a.Source, num(a.PassMsec.Median, 1), num(a.PassMsec.P90, 1), num(a.WalksMsec.Median, 1), num(a.FloorMsec.Median, 2), num(a.WallMsec.Median, 1), num(a.IntervalSec/3600, 1), num(a.CorePercent, 4), num(goalAges, 1), num(a.IdleMiB, 0)))
	}
	return t
}
