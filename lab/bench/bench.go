// Package bench measures what the agent costs, on real cgroups with real processes, in
// one run and against a floor: the system calls without which no reading can be had,
// made in turn with the agent's own cycle so that the host's other work falls on both.
//
// Times of cycles are CPU time of the thread that runs them. On a shared host wall time
// says more about the neighbours; its medians are reported beside.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// Options say how long to measure.
type Options struct {
	Agent string    // path of the agent's binary
	Quick bool      // a third of the time, and no middle size
	Tasks int       // of the largest size; 0: 150
	Only  string    // the part to measure; "": all
	MiB   int       // memory of each task whose ages are read, or pages move; 0: 20, and 256
	Log   io.Writer // progress
}

// Parts that can be measured alone (Options.Only): reading ages of pages, and the policies of caches and memories.
const (
	PartAges       = "ages"
	PartContention = "contention"
)

func (o *Options) sizes() []int {
	most := cmp.Or(o.Tasks, goalTasks)
	if o.Quick {
		return []int{10, most}
	}
	return slices.Compact([]int{10, min(50, most), min(goalTasks, most), most})
}

func (o *Options) turns() int {
	if o.Quick {
		return 11
	}
	return 30
}

func (o *Options) agentTime() time.Duration { return time.Duration(o.turns()) * time.Second * 2 / 3 }

// Spread is a median with its 90th percentile.
type Spread struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
}

func spread(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	return Spread{Median: stat.Median(v), P90: stat.Quantile(0.9, v)}
}

// Size is what was measured with so many tasks.
type Size struct {
	Tasks int `json:"tasks"`
	// One cycle and the floor, CPU milliseconds of the thread, once a second each.
	CycleMsec Spread `json:"cycle_cpu_ms"`
	FloorMsec Spread `json:"floor_cpu_ms"`
	// Ratio is of the medians.
	Ratio         float64 `json:"ratio"`
	CycleWallMsec Spread  `json:"cycle_wall_ms"`
	FloorWallMsec Spread  `json:"floor_wall_ms"`
	// DiscoveryMsec is the median of the cycles that also listed the cgroups (CPU).
	DiscoveryMsec float64 `json:"discovery_cycle_cpu_ms"`
	// IdleMsec is a turn without a reading, of which CPI²'s cadence has one a second.
	IdleMsec float64 `json:"idle_turn_cpu_ms"`
	// CorePercent is all that the cycles took, of one core, at one cycle a second.
	CorePercent float64 `json:"core_percent_at_1s"`
	// SeedNodePercent is two cycles a minute, each with a discovery, and an idle turn a
	// second, of all CPUs.
	SeedNodePercent float64 `json:"node_percent_at_seed_cadence"`
	Calls           float64 `json:"system_calls"` // a cycle, median
	FloorCalls      float64 `json:"floor_system_calls"`
	Allocs          float64 `json:"allocations"` // a cycle, median
	// Policies are there for the largest size: one a state of the partition.
	Policies    []Policies `json:"policies,omitempty"`
	RecordBytes float64    `json:"record_bytes"`
}

// Result is the whole run.
type Result struct {
	CPUs  int     `json:"cpus"`
	Sizes []Size  `json:"sizes"`
	Agent Process `json:"agent"`
	Waits *Waits  `json:"waits"`
	Ages  *Ages   `json:"ages"`
	// Contention is there where it was asked for (PartContention).
	Contention *Contention `json:"contention,omitempty"`
	Moves      *Moves      `json:"moves,omitempty"` // likewise (PartMoves)
	Analyses   []Analysis  `json:"analyses"`
	Twins      []Twin      `json:"twin"`
	Goals      []Goal      `json:"goals"`
}

// Run measures. It leaves the host as it was.
func Run(ctx context.Context, o Options) (res *Result, err error) {
	st, err := stage.Open(o.Log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	switch res = (&Result{CPUs: runtime.NumCPU()}); o.Only {
	case PartAges:
		res.Ages, err = measureAges(ctx, hostfs.NewRoot("/"), st, &o)
		res.Goals = goals(res)
		return res, err
	case PartMoves:
		res.Moves, err = measureMoves(ctx, hostfs.NewRoot("/"), st, &o)
		res.Goals = goals(res)
		return res, err
	case PartContention:
		if res.Contention, err = measureContention(ctx, &o, st); err == nil {
			res.Goals = goals(res)
		}
		return res, err
	}
	res = &Result{CPUs: runtime.NumCPU(), Analyses: []Analysis{analyse(600), analyse(10)}}
	c := &crowd{stage: st}
	for _, n := range o.sizes() {
		fmt.Fprintf(o.Log, "%d tasks\n", n)
		if err := c.grow(ctx, n); err != nil {
			return nil, err
		}
		s, err := measure(ctx, &o, c)
		if err != nil {
			return nil, err
		}
		res.Sizes = append(res.Sizes, *s)
	}
	fmt.Fprintf(o.Log, "the policies of the CPU\n")
	if res.Sizes[len(res.Sizes)-1].Policies, err = measurePolicies(ctx, &o, c); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "the agent itself\n")
	if err := runAgent(ctx, &o, c, "agent", func(*config.Config) {}, func(p *stage.Proc, metrics string) error {
		a, err := watch(ctx, o.agentTime(), p, metrics, len(c.groups))
		if err == nil {
			res.Agent = *a
		}
		return err
	}); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "with and without waits\n")
	if res.Waits, err = measureWaits(ctx, &o, c); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "ages of pages\n")
	if res.Ages, err = measureAges(ctx, hostfs.NewRoot("/"), st, &o); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "the twin\n")
	if res.Twins, err = simulate(&o); err != nil {
		return nil, err
	}
	res.Goals = goals(res)
	return res, nil
}

// run is one size's measurement while it runs.
type run struct {
	cycle *cycle
	floor *floor
	io    *ioCounter
	out   Size

	cycleCPU, cycleWall, floorCPU, floorWall, discovery []float64

	calls, allocs, bytes []float64
}

// measure measures with the tasks that are on the stage.
func measure(ctx context.Context, o *Options, c *crowd) (*Size, error) {
	// Clocks and counters below are this thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir := filepath.Join(c.stage.Dir, fmt.Sprintf("cycle-%d", len(c.groups)))
	r := &run{out: Size{Tasks: len(c.groups)}}
	var err error
	if r.cycle, err = newCycle(agentConfig(dir, c.rules(), "", model.ModeOff), dir); err != nil {
		return nil, err
	}
	defer r.cycle.close() //nolint:errcheck // what it wrote is thrown away
	if r.floor, err = newFloor(c.stage.Cgroups(), c.groups); err != nil {
		return nil, err
	}
	defer r.floor.close() //nolint:errcheck // reading only
	if r.io, err = openIO(); err != nil {
		return nil, err
	}
	defer r.io.close() //nolint:errcheck // reading only
	for _, step := range []func() error{
		func() error { return r.warm(ctx) },
		func() error { return r.paced(ctx, o.turns()) },
		r.idle,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.finish()
	return &r.out, r.cycle.check(len(c.groups))
}

// both edges: every cycle closes one window and opens the next.
var both = cadence.Turn{Mark: model.WindowStart | model.WindowEnd, Compare: true}

// warm makes the buffers grow to what they meet, and waits until every task is measured: a reading lists
// so many processes and no more.
func (r *run) warm(ctx context.Context) error {
	for i := 0; ; i++ {
		r.cycle.turn(both)
		if err := errors.Join(r.floor.read(), stage.Sleep(ctx, 300*time.Millisecond)); err != nil {
			return err
		}
		if err := r.cycle.check(r.out.Tasks); i >= 2 && (err == nil || i == 30) {
			return err
		}
	}
}

// paced is the measurement in real time: each second one cycle and one floor, half a
// second apart, and by turns the one or the other first. Back to back both would be
// faster, on warm caches that an agent never sees.
func (r *run) paced(ctx context.Context, turns int) error {
	next := time.Now()
	for i := range turns * 2 {
		next = next.Add(500 * time.Millisecond)
		if err := stage.Sleep(ctx, time.Until(next)); err != nil {
			return err
		}
		var err error
		if i%4 == 0 || i%4 == 3 {
			err = r.turn()
		} else {
			calls := r.floor.calls
			err = timed(&r.floorCPU, &r.floorWall, r.floor.read)
			r.out.FloorCalls = float64(r.floor.calls - calls)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// turn makes one cycle and counts what it does, the counting outside of the time.
func (r *run) turn() error {
	lists, opened, allocated, written := r.cycle.fs.listings, r.cycle.fs.calls, mallocs(), r.cycle.recordBytes()
	reads, writes, err := r.io.calls()
	if err != nil {
		return err
	}
	_ = timed(&r.cycleCPU, &r.cycleWall, func() error { r.cycle.turn(both); return nil }) // cannot fail
	readsNow, writesNow, err := r.io.calls()
	if err != nil {
		return err
	}
	if r.cycle.fs.listings > lists {
		r.discovery = append(r.discovery, r.cycleCPU[len(r.cycleCPU)-1])
		return nil
	}
	reads, writes = readsNow-reads-1, writesNow-writes // less the counter's own reading
	// What the kernel does not count: a receive for each datagram sent, which is every
	// write but the record's, and the look for the kill switch.
	n := reads + writes + (r.cycle.fs.calls - opened) + (writes - 1) + 1
	r.calls = append(r.calls, float64(n))
	r.allocs = append(r.allocs, float64(mallocs()-allocated))
	r.bytes = append(r.bytes, float64(r.cycle.recordBytes()-written))
	return nil
}

// timed appends what a call took, in milliseconds.
func timed(cpu, wall *[]float64, f func() error) error {
	begin, from := time.Now(), openloop.ThreadNsec()
	err := f()
	*cpu = append(*cpu, float64(openloop.ThreadNsec()-from)/1e6)
	*wall = append(*wall, time.Since(begin).Seconds()*1e3)
	return err
}

// idle times turns without a reading.
func (r *run) idle() error {
	var cpu, wall []float64
	for range 50 {
		_ = timed(&cpu, &wall, func() error { r.cycle.turn(cadence.Turn{Compare: true}); return nil }) // cannot fail
	}
	r.out.IdleMsec = spread(cpu).Median
	r.cycle.turn(both)
	return nil
}

func (r *run) finish() {
	s := &r.out
	s.CycleMsec, s.CycleWallMsec = spread(r.cycleCPU), spread(r.cycleWall)
	s.FloorMsec, s.FloorWallMsec = spread(r.floorCPU), spread(r.floorWall)
	s.Ratio = s.CycleMsec.Median / s.FloorMsec.Median
	s.DiscoveryMsec = spread(r.discovery).Median
	s.Calls, s.Allocs, s.RecordBytes = spread(r.calls).Median, spread(r.allocs).Median, spread(r.bytes).Median
	s.CorePercent = stat.Mean(r.cycleCPU) / 10 // ms a second
	minute := 2*s.DiscoveryMsec + 60*s.IdleMsec
	s.SeedNodePercent = minute / 60_000 * 100 / float64(runtime.NumCPU())
}

// mallocs is the number of heap objects that this process ever made.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
