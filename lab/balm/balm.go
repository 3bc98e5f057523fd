// Package balm asks what a limit on memory bandwidth, pages moved away, and both are worth to batch work beside a service that has a
// target (BALM, section IV and figures 2 and 3), on a simulated machine of two sockets.
//
// Six tasks, as the paper has them: a key-value store on socket 0 whose load rises from a tenth to all, a search service on socket 1, the batch work that
// is heavy on memory, beside the store (same socket) or beside the search (opposite sockets; the paper says it came out alike), with all its pages
// there, and three light batch tasks on the other socket. A service's target is twice the p99 that it has nearly idle, and its full load the most at which
// it meets that alone (figure 2). Every arm meets the same requests. Seven of eight minutes count, from the second in which batch work begins.
//
// Written down before the first run (the paper: up to 1.87 times the work of MBA alone, 1.33 times that of pages at home, at little
// time in which the target is missed): both together fail where the target is missed in more than 5 % of the time on the mean over cells in which it is
// missed without them, where batch work is less than 1.3 times that under MBA alone on their mean, or where no cell reaches 1.87 times; on the same socket, and on opposite ones, each by itself.
// Seeds below 100 are for development; what is reported begins at 1000.
//
// What services feel of the copying is a part of its own (moves.go), and so is figure 1 (shares.go).
//
// What it does not show: tasks that end, phases, several heavy tasks, and hardware.
package balm

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/twin/scenario"
)

// Place is where the heavy batch work runs, with all its pages.
type Place int

// The places.
const (
	Same     Place = iota // on the key-value store's socket
	Opposite              // on the search service's
	NumPlaces
)

var placeNames = [NumPlaces]string{"same socket", "opposite sockets"}

// String returns the place's name in tables.
func (p Place) String() string { return placeNames[p] }

// Arm is a way to treat the batch work.
type Arm int

// The arms.
const (
	Home   Arm = iota // as it is found, its pages on its own socket's memory
	Spread            // nothing is done either, and half of its pages are on the other socket's
	Fixed             // MBA at 10 %, always
	MBA               // policy balm without moving pages
	Both              // policy balm
	Grey              // the same, until grey: the paper's algorithm 1
	Remedy            // policy remedy: ways, bandwidth, pages and CPU time
	NumArms
)

var armNames = [NumArms]string{"as found", "pages spread", "MBA 10 %", "MBA, balm", "MBA and pages, balm", "the same, until grey", "remedy"}

// String returns the arm's name in tables.
func (a Arm) String() string { return armNames[a] }

// Options of a run.
type Options struct {
	Seed  uint64
	Quick bool // one repetition, two loads and two programs
	// Repetitions of each cell; 0: five, as in the paper.
	Repetitions int
	// Only is the part to play; "": all.
	Only string

	loads []float64 // of tests; nil: as above
}

// The parts (Options.Only): figures 2 and 3, figure 1, and what services feel while pages move.
const (
	PartLoads  = "loads"
	PartShares = "figure-1"
	PartMoves  = "moves"
)

const (
	repetitions = 5 // as in the paper
	start, end  = 60, 480
	instruction = 5e6 // of a request
	busy, light = 12, 4
)

// heavy is the batch work that is heavy on memory, one in each cell (table I).
var heavy = []string{"npb-mg", "ocean", "npb-sp", "npb-ua"}

var loads = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}

// lights are the batch tasks that are light on memory, by their names in scenarios.
var lights = []string{"options", "random", "swaptions"}

// other is the share of its full load that the search service has: at all of it its p99 alone misses its target half of the time.
const other = 0.7

// Cell is one program at one place beside one load.
type Cell struct {
	Place Place         `json:"place"` // 0: the same socket, 1: the opposite one
	Batch string        `json:"batch"`
	Load  float64       `json:"load"` // share of the full one
	Arms  [NumArms][]At `json:"arms"` // by repetition
}

// At is what came of one run.
type At struct {
	Work   float64 `json:"work"`   // instructions a second of the heavy task
	Missed float64 `json:"missed"` // share of the time in which either service missed its target
	P99    float64 `json:"p99_ms"` // of the service on the heavy task's socket
}

// Service is what it can do alone (figure 2).
type Service struct {
	Name   string    `json:"name"`
	Rates  []float64 `json:"rates"` // requests a second
	P99    []float64 `json:"p99_ms"`
	Target float64   `json:"target_ms"`
	Full   float64   `json:"full_rate"`
}

// Run plays all cells. Equal seeds give equal results on any number of CPUs.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &Result{Seed: o.Seed, Quick: o.Quick}
	for _, part := range []struct {
		name string
		play func() error
	}{
		{PartLoads, func() error { return r.loads(ctx, &o) }}, {PartShares, func() error { return r.shares(ctx, &o) }}, {PartMoves, func() error { return r.moves(ctx, &o) }},
	} {
		if o.Only != "" && o.Only != part.name {
			continue
		}
		if err := part.play(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// loads plays figures 2 and 3.
func (r *Result) loads(ctx context.Context, o *Options) error {
	for i, name := range []string{"memcached-small", "web-search-leaf"} {
		s, err := alone(ctx, name, o.Seed, i)
		if err != nil {
			return err
		}
		r.Services = append(r.Services, s)
	}
	names, levels, n := heavy, loads, cmp.Or(o.Repetitions, repetitions)
	if o.Quick {
		names, levels, n = heavy[:2], []float64{0.5, 0.8}, 1
	}
	if o.loads != nil {
		levels = o.loads
	}
	r.Repetitions = n
	for place := range NumPlaces {
		for _, batch := range names {
			for _, load := range levels {
				r.Cells = append(r.Cells, Cell{Place: place, Batch: batch, Load: load})
			}
		}
	}
	per := int(NumArms) * n
	list, err := parallel.Map(ctx, 0, len(r.Cells)*per, func(i int) (At, error) {
		c, arm, seed := &r.Cells[i/per], Arm(i%per/n), o.Seed+uint64(i%n)
		return play(r.Services, c, arm, seed)
	})
	if err != nil {
		return err
	}
	for i, at := range list {
		a := &r.Cells[i/per].Arms[i%per/n]
		*a = append(*a, at)
	}
	r.sum()
	return nil
}

// machineOf is the paper's machine as far as it says: two sockets of 16 cores, with memory that one heavy task nearly fills.
const machineOf = `version: 1
name: balm-lab
about: One run of the lab.
duration: %ds
machine: {preset: skylake, sockets: 2, cores_per_socket: 16, threads_per_core: 1, memory_latency: 100ns, memory_bandwidth: %s, link_bandwidth: 30GB}
`

// bandwidth is that of one socket's memory.
const bandwidth = "30GB"

// memory is what the heavy task has, which has to be copied: MG.C's arrays of 512³ numbers of eight bytes, the most of the four, are 3.3 GiB.
const memory = ", memory: [{bytes: 3.3GiB}]"

// service words one of the two.
func service(name string, i int, rate, target float64) string {
	pages := [...]string{"[1, 0]", "[0, 1]"}[i]
	slo := ""
	if target > 0 {
		slo = fmt.Sprintf(", slo: {quantile: 0.99, latency: %.3fms, told: true}", target)
	}
	return fmt.Sprintf("  - {name: s%d, class: LC, threads: 4, cpus: %d-%d, pages: %s, program: %s, requests: {rate: %.4g, instructions: %g}%s}\n", i, 16*i, 16*i+3, pages, name, rate, instruction, slo)
}

// alone finds what a service can do: from a twentieth of what its CPUs could do to nearly all of it.
func alone(ctx context.Context, name string, seed uint64, i int) (Service, error) {
	const hz, steps = 2.4e9, 19
	s := Service{Name: name, Full: -1}
	type point struct{ rate, p99 float64 }
	list, err := parallel.Map(ctx, 0, steps, func(k int) (point, error) {
		rate := float64(k+1) / 20 * 4 * hz / instruction
		text := fmt.Sprintf(machineOf, 120, bandwidth) + "tasks:\n" + service(name, i, rate, 0) + "policies: {mode: off}\nmeasure:\n  - {name: all, from: 10s}\n"
		w, err := measured(text, seed)
		if err != nil {
			return point{}, err
		}
		t, err := find(w, fmt.Sprintf("s%d", i))
		if err != nil || t.Latency == nil {
			return point{}, fmt.Errorf("%s has no latency: %w", name, err)
		}
		return point{rate, float64(t.Latency.P99Ms)}, nil
	})
	if err != nil {
		return s, err
	}
	s.Target = 2 * list[0].p99
	for _, p := range list {
		if s.Rates, s.P99 = append(s.Rates, p.rate), append(s.P99, p.p99); p.p99 <= s.Target {
			s.Full = p.rate
		}
	}
	return s, nil
}

// sceneOf is the scenario of a cell under an arm.
func sceneOf(services []Service, c *Cell, arm Arm) string {
	var b strings.Builder
	fmt.Fprintf(&b, machineOf, end, bandwidth)
	b.WriteString("tasks:\n" + service(services[0].Name, 0, c.Load*services[0].Full, services[0].Target) + service(services[1].Name, 1, other*services[1].Full, services[1].Target))
	homes, first := [...]string{"[1, 0]", "[0, 1]"}, [...]int{4, 20} // of a socket, and its first CPU that no service has
	near, far := int(c.Place), 1-int(c.Place)
	pages := homes[near]
	if arm == Spread {
		pages = "[0.5, 0.5]"
	}
	task := func(name, program string, from, threads int, pages, more string) {
		fmt.Fprintf(&b, "  - {name: %s, class: BE, importance: best-effort, threads: %d, cpus: %d-%d, pages: %s, program: %s%s}\n", name, threads, from, from+threads-1, pages, program, more)
	}
	task("heavy", c.Batch, first[near], busy, pages, memory)
	for i, program := range [...]string{"blackscholes", "npb-ep", "swaptions"} {
		task(lights[i], program, first[far]+i*light, light, homes[far], "")
	}
	fmt.Fprintf(&b, "timeline:\n")
	for _, name := range append([]string{"heavy"}, lights...) {
		fmt.Fprintf(&b, "  - {at: %ds, start: %s}\n", start, name)
	}
	if arm == Fixed {
		b.WriteString("control:\n  - {name: be, tasks: [heavy, " + strings.Join(lights, ", ") + "], mba: 10}\n")
	}
	b.WriteString("policies:\n  profile: single-node\n  mode: off\n")
	switch {
	case arm == Remedy:
		b.WriteString("  config:\n    remedy: {mode: enforce}\n")
	case arm >= MBA:
		until := map[bool]string{true: "grey", false: "green"}[arm == Grey]
		fmt.Fprintf(&b, "  config:\n    balm: {mode: enforce, pages: %t, until: %s}\n", arm != MBA, until)
	}
	fmt.Fprintf(&b, "measure:\n  - {name: beside, from: %ds}\n", start)
	return b.String()
}

func play(services []Service, c *Cell, arm Arm, seed uint64) (at At, err error) {
	w, err := measured(sceneOf(services, c, arm), seed)
	if err != nil {
		return at, fmt.Errorf("%s on %s at %.0f %%, %s, seed %d: %w", c.Batch, c.Place, 100*c.Load, arm, seed, err)
	}
	for i, name := range []string{"s0", "s1"} {
		t, err := find(w, name)
		if err != nil || t.Latency == nil {
			return at, fmt.Errorf("%s has no latency: %w", name, err)
		}
		at.Missed = max(at.Missed, float64(t.Latency.ViolationSec)/(end-start))
		if i == int(c.Place) {
			at.P99 = float64(t.Latency.P99Ms)
		}
	}
	t, err := find(w, "heavy")
	if err != nil {
		return at, err
	}
	at.Work = float64(t.Work)
	return at, nil
}

// measured plays a scenario and returns its only window.
func measured(text string, seed uint64) (*scenario.WindowResult, error) {
	run, err := scenario.PlayText("balm-lab.yaml", text, scenario.Options{Seed: &seed})
	if err != nil {
		return nil, err
	}
	w := run.Windows
	return &w[len(w)-1], nil
}

func find(w *scenario.WindowResult, entry string) (*scenario.TaskFigures, error) {
	for i := range w.Tasks {
		if w.Tasks[i].Entry == entry {
			return &w.Tasks[i], nil
		}
	}
	return nil, fmt.Errorf("no task %s was measured", entry)
}
