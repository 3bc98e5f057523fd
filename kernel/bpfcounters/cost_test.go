package bpfcounters_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/bpfcounters"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
)

// The tables of docs/COUNTERS.md:
//
//	go test -run '^$' -bench Cost -benchtime 1x -timeout 20m ./kernel/bpfcounters
//
// prints them; each number is the median of several runs that take turns.

// perCgroup is kernel/perf as a source.
type perCgroup struct {
	cpus   []int
	events []perf.Event
	tasks  []*perf.Counters
}

func (s *perCgroup) Add(fd int) (perftest.Task, error) {
	c, err := perf.OpenCgroup(fd, s.cpus, s.events)
	if err == nil {
		s.tasks = append(s.tasks, c)
	}
	return c, err
}

func (s *perCgroup) each(f func(*perf.Counters) error) (err error) {
	for _, c := range s.tasks {
		err = errors.Join(err, f(c))
	}
	return err
}
func (s *perCgroup) Start() error { return s.each((*perf.Counters).Enable) }
func (s *perCgroup) Stop() error  { return s.each((*perf.Counters).Disable) }
func (s *perCgroup) Close() error { return s.each((*perf.Counters).Close) }

// kinds are the two ways to count.
var kinds = []struct {
	name string
	open func(cpus []int, events []perf.Event, tasks int) (perftest.Source, error)
}{
	{"perf", func(cpus []int, events []perf.Event, _ int) (perftest.Source, error) {
		return &perCgroup{cpus: cpus, events: events}, nil
	}},
	{"bpf", func(cpus []int, events []perf.Event, tasks int) (perftest.Source, error) {
		s, err := bpfcounters.Open(cpus, events, tasks)
		if err != nil {
			return nil, err
		}
		return bare{s}, nil
	}},
}

// bare is a Source without the flush at each reading.
type bare struct{ *bpfcounters.Source }

func (s bare) Add(fd int) (perftest.Task, error) { return s.Source.Add(fd) }

func costEvents() []perf.Event {
	hardware := []perf.Event{perf.Cycles, perf.Instructions, perf.RefCycles, perf.LLCMisses}
	for _, e := range hardware {
		if perf.Supported(e) != nil {
			return perftest.Software
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
	perftest.Must(b, err)
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); string(f[0]) == "Slab:" || string(f[0]) == "Percpu:" {
			kib, err := strconv.Atoi(string(f[1]))
			perftest.Must(b, err)
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
		dirs = append(dirs, perftest.Cgroup(b, "crowd-"+strconv.Itoa(i)))
		fds = append(fds, perftest.Dir(b, dirs[i]))
	}
	return dirs, fds
}

func BenchmarkCostOfKeeping(b *testing.B) {
	events, cpus := costEvents(), perftest.Online(b)
	most := slices.Max(costTasks())
	_, fds := crowd(b, most)
	fmt.Printf("\n%v on %d CPUs\n\n| source | cgroups | descriptors | kernel memory, KiB | open source, ms | add a cgroup, us | start, ms | read a cgroup, us | stop, ms |\n|---|---|---|---|---|---|---|---|---|\n", events, len(cpus))
	for _, kind := range kinds {
		for _, n := range costTasks() {
			files, kib := perftest.Descriptors(b), kernelKiB(b)
			at := time.Now()
			lap := func() time.Duration { d := time.Since(at); at = time.Now(); return d }
			s, err := kind.open(cpus, events, n)
			perftest.Must(b, err)
			opening := lap()
			var tasks []perftest.Task
			for _, fd := range fds[:n] {
				task, err := s.Add(fd)
				perftest.Must(b, err)
				tasks = append(tasks, task)
			}
			adding := lap()
			files, kib = perftest.Descriptors(b)-files, kernelKiB(b)-kib
			lap()
			perftest.Must(b, s.Start())
			starting := lap()
			time.Sleep(50 * time.Millisecond)
			out := make([]perf.Count, len(events))
			lap()
			for _, task := range tasks {
				perftest.Must(b, task.Read(out))
			}
			reading := lap()
			perftest.Must(b, s.Stop())
			stopping := lap()
			perftest.Must(b, s.Close())
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			fmt.Printf("| %s | %d | %d | %d | %.1f | %.0f | %.1f | %.1f | %.1f |\n", kind.name, n, files, kib, ms(opening),
				float64(adding.Microseconds())/float64(n), ms(starting), float64(reading.Nanoseconds())/1000/float64(n), ms(stopping))
		}
	}
}

func BenchmarkCostOfSwitch(b *testing.B) {
	events, cpus := costEvents(), perftest.Online(b)
	cpu := cpus[len(cpus)-1]
	most := slices.Max(costTasks())
	dirs, fds := crowd(b, most)
	deep := []string{perftest.Cgroup(b, "deep")}
	for range 4 {
		deep = append(deep, perftest.Cgroup(b, strings.TrimPrefix(deep[len(deep)-1], perftest.Unified(b)+fmt.Sprintf("/commensal-test-%d-", os.Getpid()))+"/d"))
	}
	trips, rounds := 15_000, 7
	if rigtest.Inside() {
		trips, rounds = 600, 3
	}
	games := []struct {
		name string
		p    *perftest.PingPong
		fds  []int // counted first
	}{
		{"two cgroups", perftest.NewPingPong(b, cpu, dirs[0], dirs[1]), nil},
		{"one cgroup", perftest.NewPingPong(b, cpu, dirs[0], dirs[0]), nil},
		{"two cgroups, one 5 deep", perftest.NewPingPong(b, cpu, deep[4], dirs[1]), []int{perftest.Dir(b, deep[4])}},
	}
	fmt.Printf("\n%v, ns of CPU time a switch, median of %d (and what it is more than without counters in the same round)\n\n| cgroups with counters | source |", events, rounds)
	for _, game := range games {
		fmt.Printf(" %s |", game.name)
	}
	fmt.Println("\n|---|---|---|---|---|")
	type row struct {
		n    int
		kind int
	}
	var rows []row
	for _, n := range costTasks() {
		rows = append(rows, row{n, 0}, row{n, 1})
	}
	took, more, none := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	for range rounds {
		for _, row := range rows {
			for _, game := range games {
				s, err := kinds[row.kind].open(cpus, events, row.n+1)
				perftest.Must(b, err)
				for _, fd := range append(game.fds, fds[:row.n]...) {
					_, err := s.Add(fd)
					perftest.Must(b, err)
				}
				game.p.Switch(b, trips/10)
				without := game.p.Switch(b, trips)
				perftest.Must(b, s.Start())
				game.p.Switch(b, trips/10)
				with := game.p.Switch(b, trips)
				perftest.Must(b, s.Stop())
				perftest.Must(b, s.Close())
				key := fmt.Sprint(row, game.name)
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
	for _, row := range rows {
		fmt.Printf("| %d | %s |", row.n, kinds[row.kind].name)
		for _, game := range games {
			key := fmt.Sprint(row, game.name)
			fmt.Printf(" %d (+%d) |", median(took[key]), median(more[key]))
		}
		fmt.Println()
	}
}
