// Package disk asks whether policy io finds who makes a service wait for its disk, what holding that task is worth, and whether it leaves
// everybody alone where the disk itself is slow (CPI², section 9, leaves it open), in drawn rounds on simulated machines.
//
// A round is a disk of 200 MB/s to 2 GB/s and 4,000 to 40,000 operations a second, a database that takes 5 to 20 % of its time, a backup that copies
// steadily and an indexer that comes and goes, each 2 to 8 %. At three minutes a task begins that reads as fast as it can (4 to 32 operations at all times) or writes
// more than is left (70 to 150 % of the disk's time), in pieces of 4 KiB to 1 MiB; it is played with nothing done and under the policy. A second scene has no such task:
// at three minutes the disk falls to 20 to 40 % of its speed. Eight minutes are played; what is measured begins one minute after the trouble. A round
// counts where the database's operations take at least twice as long as before with nothing done. Each is played a second time with a database that
// takes 0.1 to 2 % of the disk's time, by a half more or less from one second to the next as few clients do, which suffers as much an operation and shows it less (there the disk falls to 10 to 20 %).
//
// Written down before the first run: the policy fails if it holds the antagonist in less than 95 % of the rounds that count; if it holds anybody else in any round, or
// anybody in any round on a slow disk; if the database's operations take more than twice as long as before, in the mean over the rounds that count; if the antagonist does less than
// a tenth of what it does with nothing done, in the mean; or if a limit is left behind. Of databases that use little, before those were played first: if it holds the antagonist in less than
// 90 % of the rounds in which the database waits more than a tenth of the time, or anybody else, or anybody on a slow disk, in more than 2 % of all.
// Of those of them that wait 2 to 10 % of the time, each operation at least five times as long as before, before those were counted first: if it holds the antagonist in less than 90 % of the rounds. Seeds below 1000 are for development.
//
// What it does not show: real disks, whose time is not linear in operations and bytes, file systems' journals and the page cache, several devices, and what waiting does
// to requests, which the simulated machine leaves out.
package disk

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/twin/scenario"
)

// Scene is what goes wrong in a play, and what is done about it.
type Scene int

// The scenes.
const (
	Nothing Scene = iota // an antagonist, and nothing is done
	Policy               // the same under policy io
	Slow                 // the disk itself becomes slow, under policy io
	// The same with a database that uses the disk little.
	LightNothing
	LightPolicy
	LightSlow
	NumScenes
)

var sceneNames = [NumScenes]string{
	"an antagonist, nothing done", "an antagonist, policy io", "the disk itself slow, policy io",
	"little use, an antagonist, nothing done", "little use, an antagonist, policy io", "little use, the disk itself slow, policy io",
}

// light: the database uses little.
func (s Scene) light() bool { return s >= LightNothing }

// unheld is the scene with the same database in which nothing is done.
func (s Scene) unheld() Scene { return s - s%LightNothing }

// is reports whether a scene is so, whatever the database.
func (s Scene) is(what Scene) bool { return s%LightNothing == what }

// String returns the scene's name in tables.
func (s Scene) String() string { return sceneNames[s] }

// Options of a run.
type Options struct {
	Seed  uint64
	Quick bool // fewer rounds
}

const (
	rounds, quickRounds = 200, 6
	warm, trouble, end  = 60, 180, 480
	settled             = trouble + 60
	antagonist          = "antagonist"
	slowerLight         = 0.5 // ... of what it falls to beside a database that uses more: else it would hardly wait
)

// Round is what came of one, by scene.
type Round struct {
	Index  int              `json:"index"`
	Writes bool             `json:"writes"` // the antagonist does, in an open loop
	Scenes [NumScenes]Found `json:"scenes"`
}

// Found is what came of one play.
type Found struct {
	AloneMs  float64  `json:"alone_ms"`   // an operation of the database, before the trouble
	Ms       float64  `json:"ms"`         // and from a minute after it began
	Waits    float64  `json:"waits"`      // share of that time in which it waits for the disk
	MBPerSec float64  `json:"mb_per_sec"` // of the antagonist in that time
	AfterSec float64  `json:"after_sec"`  // until the antagonist was held; -1: never
	Others   []string `json:"others,omitempty"`
	Restored bool     `json:"restored"`
}

// Run plays all rounds. Equal seeds give equal results on any number of CPUs.
func Run(ctx context.Context, o Options) (*Result, error) {
	n := rounds
	if o.Quick {
		n = quickRounds
	}
	r := &Result{Seed: o.Seed, Quick: o.Quick, Rounds: make([]Round, n)}
	list, err := parallel.Map(ctx, 0, n*int(NumScenes), func(i int) (Found, error) {
		return play(draw(o.Seed, i/int(NumScenes)), Scene(i%int(NumScenes)), o.Seed+uint64(i/int(NumScenes)))
	})
	if err != nil {
		return nil, err
	}
	for i, f := range list {
		round := &r.Rounds[i/int(NumScenes)]
		round.Index, round.Scenes[i%int(NumScenes)] = i/int(NumScenes), f
		round.Writes = draw(o.Seed, round.Index).writes
	}
	r.sum()
	return r, nil
}

// mix is a drawn round: a disk, and the lines of the tasks on it.
type mix struct {
	bytes, ops float64 // of the disk, a second
	slower     float64 // times both, when it becomes slow
	writes     bool
	// Tasks: the database's, one that uses little, the others', and the antagonist's.
	database, little, others, bad string
}

func draw(seed uint64, index int) mix {
	r := rand.New(rand.NewPCG(seed, uint64(index)))
	between := func(a, b float64) float64 { return a + (b-a)*r.Float64() }
	m := mix{bytes: 200e6 * math.Pow(10, r.Float64()), ops: 4000 * math.Pow(10, r.Float64()), slower: between(0.2, 0.4), writes: r.IntN(2) == 0}
	rate := func(share, bytes float64) string { // that takes such a share of the disk's time
		return fmt.Sprintf("ops: %.4g, bytes: %.0f", share/(1/m.ops+bytes/m.bytes), bytes)
	}
	kib := func(least, choices int) float64 { return float64(least<<r.IntN(choices)) * 1024 }
	database := func(share, bytes, writes, spread float64) string {
		return fmt.Sprintf("  - {name: database, class: LC, threads: 8, program: web-frontend, spread: %.1f, requests: {rate: 200, instructions: 3e6}, disk: {%s, write_share: %.2f}}\n", spread, rate(share, bytes), writes)
	}
	share := between(0.05, 0.2)
	bytes := kib(4, 3)
	writes := between(0, 0.5)
	m.database = database(share, bytes, writes, 0.1)
	m.others = fmt.Sprintf(`  - {name: backup, class: BE, importance: batch, threads: 1, program: compute, spread: 0.1, phases: [{for: 10s, cpus: 0.2}], disk: {%s}}
  - {name: indexer, class: BE, importance: best-effort, threads: 4, program: compute, spread: 0.3, phases: [{for: 10s, cpus: 0.3}], disk: {%s}}
`, rate(between(0.02, 0.08), kib(128, 3)), rate(between(0.02, 0.08), kib(16, 2)))
	size := kib(4, 9)
	does := fmt.Sprintf("depth: %d, bytes: %.0f", 4<<r.IntN(4), size)
	if m.writes {
		does = rate(between(0.7, 1.5), size) + ", write_share: 1"
	}
	m.bad = fmt.Sprintf("  - {name: %s, class: BE, importance: best-effort, threads: 4, program: compute, phases: [{for: 10s, cpus: 0.3}], disk: {%s}}\n", antagonist, does)
	m.little = database(0.001*math.Pow(20, r.Float64()), bytes, writes, 0.5)
	return m
}

// text words the scenario of a round.
func (m *mix) text(s Scene) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nname: disk-lab\nabout: One play of the lab.\nduration: %ds\nmachine: {preset: skylake, sockets: 1, disk_bandwidth: %.0f, disk_ops: %.0f}\ntasks:\n", end, m.bytes, m.ops)
	b.WriteString(map[bool]string{false: m.database, true: m.little}[s.light()] + m.others)
	if s.is(Slow) {
		slower := m.slower
		if s.light() {
			slower *= slowerLight
		}
		fmt.Fprintf(&b, "timeline:\n  - {at: %ds, disk: {bandwidth: %.0f, ops: %.0f}}\n", trouble, m.bytes*slower, m.ops*slower)
	} else {
		fmt.Fprintf(&b, "%stimeline:\n  - {at: %ds, start: %s}\n", m.bad, trouble, antagonist)
	}
	b.WriteString("policies:\n  profile: single-node\n  mode: off\n")
	if !s.is(Nothing) {
		b.WriteString("  config:\n    io: {mode: enforce}\n")
	}
	fmt.Fprintf(&b, "measure:\n  - {name: alone, from: %ds, to: %ds}\n  - {name: trouble, from: %ds}\n", warm, trouble, settled)
	return b.String()
}

func play(m mix, s Scene, seed uint64) (f Found, err error) {
	run, err := scenario.PlayText("disk-lab.yaml", m.text(s), scenario.Options{Seed: &seed})
	if err != nil {
		return f, err
	}
	of := func(window int, task string) scenario.DiskFigures {
		for i := range run.Windows[window].Tasks {
			if t := &run.Windows[window].Tasks[i]; t.Entry == task && t.Disk != nil {
				return *t.Disk
			}
		}
		err = fmt.Errorf("%s, seed %d: no %s on a disk was measured", s, seed, task)
		return scenario.DiskFigures{}
	}
	d := of(1, "database")
	f = Found{AloneMs: float64(of(0, "database").OpMs), Ms: float64(d.OpMs), Waits: float64(d.Some), AfterSec: -1, Restored: run.AsFound}
	if !s.is(Slow) {
		f.MBPerSec = float64(of(1, antagonist).MBPerSec)
	}
	for i := range run.Named {
		if n := &run.Named[i]; n.Task != antagonist {
			f.Others = append(f.Others, n.Task)
		} else if f.AfterSec < 0 {
			f.AfterSec = n.AtSec - trouble
		}
	}
	return f, err
}
