package perf_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
)

// The tables of docs/COUNTERS.md:
//
//	go test -run '^$' -bench Cost -benchtime 1x -timeout 20m ./kernel/perf
//
// prints them; each number is the median of several runs that take turns.

func costEvents() []perf.Event {
	hardware := []perf.Event{perf.Cycles, perf.Instructions, perf.RefCycles, perf.LLCMisses}
	for _, e := range hardware {
		if perf.Supported(e) != nil {
			return Software
		}
	}
	return hardware
}

func costTasks() []int {
	if rigtest.Inside() {
		return []int{40}
	}
	return []int{2, 150, 500}
}

// kernelKiB is what /proc/meminfo has under Slab and Percpu.
func kernelKiB(b *testing.B) (sum int) {
	text, err := os.ReadFile("/proc/meminfo")
	Must(b, err)
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); string(f[0]) == "Slab:" || string(f[0]) == "Percpu:" {
			kib, err := strconv.Atoi(string(f[1]))
			Must(b, err)
			sum += kib
		}
	}
	return sum
}

func median(values []time.Duration) time.Duration {
	slices.Sort(values)
	return values[len(values)/2]
}

// crowd is n cgroups, the first two of which are played in.
func crowd(b *testing.B, n int) (dirs []string, fds []int) {
	for i := range n {
		dirs = append(dirs, Cgroup(b, "crowd-"+strconv.Itoa(i)))
		fds = append(fds, Dir(b, dirs[i]))
	}
	return dirs, fds
}

func BenchmarkCostOfKeeping(b *testing.B) {
	events, cpus := costEvents(), perftest.Online(b)
	most := slices.Max(costTasks())
	_, fds := crowd(b, most)
	fmt.Printf("\n%v on %d CPUs\n\n| source | cgroups | descriptors | kernel memory, KiB | open source, ms | add a cgroup, us | start, ms | read a cgroup, us | stop, ms |\n|---|---|---|---|---|---|---|---|---|\n", events, len(cpus))
	for _, n := range costTasks() {
		files, kib := Descriptors(b), kernelKiB(b)
		at := time.Now()
		lap := func() time.Duration { d := time.Since(at); at = time.Now(); return d }
		s, err := open(cpus, events)
		Must(b, err)
		opening := lap()
		var tasks []Task
		for _, fd := range fds[:n] {
			task, err := s.Add(fd)
			Must(b, err)
			tasks = append(tasks, task)
		}
		adding := lap()
		files, kib = Descriptors(b)-files, kernelKiB(b)-kib
		lap()
		Must(b, s.Start())
		starting := lap()
		time.Sleep(50 * time.Millisecond)
		out := make([]perf.Count, len(events))
		lap()
		for _, task := range tasks {
			Must(b, task.Read(out))
		}
		reading := lap()
		Must(b, s.Stop())
		stopping := lap()
		Must(b, s.Close())
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		fmt.Printf("| perf | %d | %d | %d | %.1f | %.0f | %.1f | %.1f | %.1f |\n", n, files, kib, ms(opening),
			float64(adding.Microseconds())/float64(n), ms(starting), float64(reading.Nanoseconds())/1000/float64(n), ms(stopping))
	}
}

func BenchmarkCostOfSwitch(b *testing.B) {
	events, cpus := costEvents(), perftest.Online(b)
	cpu := cpus[len(cpus)-1]
	most := slices.Max(costTasks())
	dirs, fds := crowd(b, most)
	deep := []string{Cgroup(b, "deep")}
	for range 4 {
		deep = append(deep, Cgroup(b, strings.TrimPrefix(deep[len(deep)-1], Unified(b)+fmt.Sprintf("/commensal-test-%d-", os.Getpid()))+"/d"))
	}
	trips, rounds := 15_000, 7
	if rigtest.Inside() {
		trips, rounds = 600, 3
	}
	games := []struct {
		name string
		p    *PingPong
		fds  []int // counted first
	}{
		{"two cgroups", NewPingPong(b, cpu, dirs[0], dirs[1]), nil},
		{"one cgroup", NewPingPong(b, cpu, dirs[0], dirs[0]), nil},
		{"two cgroups, one 5 deep", NewPingPong(b, cpu, deep[4], dirs[1]), []int{Dir(b, deep[4])}},
	}
	fmt.Printf("\n%v, ns of CPU time a switch, median of %d (and what it is more than without counters in the same round)\n\n| cgroups with counters | source |", events, rounds)
	for _, game := range games {
		fmt.Printf(" %s |", game.name)
	}
	fmt.Println("\n|---|---|---|---|---|")
	took, more, none := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	for range rounds {
		for _, n := range costTasks() {
			for _, game := range games {
				s, err := open(cpus, events)
				Must(b, err)
				for _, fd := range append(game.fds, fds[:n]...) {
					_, err := s.Add(fd)
					Must(b, err)
				}
				game.p.Switch(b, trips/10)
				without := game.p.Switch(b, trips)
				Must(b, s.Start())
				game.p.Switch(b, trips/10)
				with := game.p.Switch(b, trips)
				Must(b, s.Stop())
				Must(b, s.Close())
				key := fmt.Sprint(n, game.name)
				took[key], more[key] = append(took[key], with), append(more[key], with-without)
				none[game.name] = append(none[game.name], without)
			}
		}
	}
	fmt.Print("| 0 | |")
	for _, game := range games {
		fmt.Printf(" %d |", median(none[game.name]))
	}
	fmt.Println()
	for _, n := range costTasks() {
		fmt.Printf("| %d | perf |", n)
		for _, game := range games {
			key := fmt.Sprint(n, game.name)
			fmt.Printf(" %d (+%d) |", median(took[key]), median(more[key]))
		}
		fmt.Println()
	}
}
