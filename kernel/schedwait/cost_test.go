package schedwait

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
)

// pingPong passes a byte to and fro between two threads on one CPU and says how long a switch took, in nanoseconds:
// two switches and two wake-ups a round.
func pingPong(p *testchild.Parent, _ []string) error {
	var there, back [2]int
	for _, pipe := range []*[2]int{&there, &back} {
		if err := unix.Pipe(pipe[:]); err != nil {
			return err
		}
	}
	pinned := func(in, out int) {
		runtime.LockOSThread()
		var set unix.CPUSet
		set.Set(0)
		_ = unix.SchedSetaffinity(0, &set) // where it is not taken the numbers show it
		b := []byte{0}
		for {
			_, _ = unix.Read(in, b)
			_, _ = unix.Write(out, b)
		}
	}
	go pinned(there[0], back[1])
	go pinned(back[0], there[1])
	p.Say("ready")
	p.Line()
	if _, err := unix.Write(there[1], []byte{0}); err != nil {
		return err
	}
	p.Say("on its way")
	select {}
}

// BenchmarkSwitch prints what a switch with its wake-up costs, with nothing attached, attached and switched off, and
// measuring threads that are watched and that are not, by turns:
//
//	go test -run '^$' -bench Switch -benchtime 1x ./kernel/schedwait
//
// The table is in docs/WAITS.md, "What it costs".
func BenchmarkSwitch(b *testing.B) {
	bed := newBed(b)
	busy := bed.group("busy")
	c := bed.start(busy, "pingpong")
	c.Say("go")
	c.Await("on its way")
	arms := []struct {
		name          string
		attached, on  bool
		watched, mine bool
	}{
		{"nothing attached", false, false, false, false},
		{"attached, off", true, false, false, false},
		{"on, unmanaged", true, true, false, false},
		{"on, managed", true, true, false, true},
		{"on, watched", true, true, true, true},
	}
	costs, runs := make([][]float64, len(arms)), map[string][]float64{}
	for range 7 {
		for i, arm := range arms {
			var s *Source
			if arm.attached {
				s = bed.source(Options{})
				if arm.mine {
					must(b, s.SetGroups([]Group{{Cgroup: bed.id(busy), Watched: arm.watched}}))
				}
				if arm.on {
					must(b, s.Start())
				}
			}
			costs[i] = append(costs[i], nsPerSwitch(b, c.PID(), 400*time.Millisecond))
			if arm.watched {
				perRun(b, s, runs)
			}
			if s != nil {
				must(b, s.Close())
			}
		}
	}
	floor := 0.0
	for i, arm := range arms {
		slices.Sort(costs[i])
		median := costs[i][len(costs[i])/2]
		if i == 0 {
			floor = median
		}
		fmt.Printf("%-18s %6.0f ns a switch, %+5.0f ns (%.0f to %.0f)\n", arm.name, median, median-floor, costs[i][0], costs[i][len(costs[i])-1])
	}
	for name, ns := range runs {
		slices.Sort(ns)
		fmt.Printf("%-18s %6.0f ns a run on this host while all that is watched (%.0f to %.0f), the kernel's own measuring included\n", name, ns[len(ns)/2], ns[0], ns[len(ns)-1])
	}
}

// perRun lets the kernel measure the programs for a while.
func perRun(b *testing.B, s *Source, runs map[string][]float64) {
	b.Helper()
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	must(b, err)
	time.Sleep(300 * time.Millisecond)
	must(b, stats.Close())
	for name, p := range s.coll.Programs {
		st, err := p.Stats()
		must(b, err)
		if st.RunCount > 0 {
			runs[name] = append(runs[name], float64(st.Runtime.Nanoseconds())/float64(st.RunCount))
		}
	}
}

// nsPerSwitch is the CPU time of a process in a while, by its switches.
func nsPerSwitch(b *testing.B, pid int, d time.Duration) float64 {
	b.Helper()
	cpu0, n0 := used(b, pid)
	time.Sleep(d)
	cpu1, n1 := used(b, pid)
	return float64(cpu1-cpu0) / float64(max(n1-n0, 1))
}

// used is a process's CPU time in nanoseconds and its switches so far, over all threads.
func used(b testing.TB, pid int) (cpu, switches int64) {
	b.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	must(b, err)
	for _, t := range tasks {
		dir := fmt.Sprintf("/proc/%d/task/%s/", pid, t.Name())
		text, err := os.ReadFile(dir + "schedstat")
		must(b, err)
		var ran, waited, slices int64
		_, err = fmt.Sscan(string(text), &ran, &waited, &slices)
		must(b, err)
		cpu += ran
		switches += slices
	}
	return cpu, switches
}
