package partition

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cpuset"
)

// TwinTable is all arms on one machine with one kind of batch work.
type TwinTable struct {
	What    string    `json:"what"`
	CPUs    int       `json:"cpus"`
	Threads int       `json:"threads_per_core"`
	Batch   []string  `json:"batch"`
	Surges  bool      `json:"surges"`
	Kind    Kind      `json:"kind"`
	Size    float64   `json:"size"` // of the load, 1: 2 to 20 CPUs
	Sockets string    `json:"sockets"`
	Minutes float64   `json:"minutes"`
	Rows    []TwinRow `json:"rows"`

	judged bool
	shape  shape
	day    int // seconds
	arms   []Arm
	sizes  [][]write // by row: of the services' CPUs, where an agent sets them
}

// twinSize is how much is played.
type twinSize struct{ length, day time.Duration }

func sizeOfTwin(quick bool) twinSize {
	if quick {
		return twinSize{2 * time.Minute, 2 * time.Minute}
	}
	return twinSize{20 * time.Minute, 10 * time.Minute}
}

// twinTables are the machines and loads that are played. Those that say so are judged.
func twinTables() []TwinTable {
	const plain, siblings = "64 cores without SMT", "64 cores of two threads"
	const tide, surge = "tide", "tide with surges"
	const loud = "batch work that wants cache and memory"
	all := Kind{Tails: true, Bursts: true, FanOut: true}
	list := []TwinTable{
		{What: plain + ", " + tide, Threads: 1, Batch: quietBatch, judged: true},
		{What: plain + ", " + surge, Threads: 1, Batch: quietBatch, Surges: true},
		{What: plain + ", " + tide + " of half the size", Threads: 1, Batch: quietBatch, Size: 0.5},
		{What: plain + ", " + tide + ", heavy tails", Threads: 1, Batch: quietBatch, Kind: Kind{Tails: true}},
		{What: plain + ", " + tide + ", bursts", Threads: 1, Batch: quietBatch, Kind: Kind{Bursts: true}},
		{What: plain + ", " + tide + ", fan-out", Threads: 1, Batch: quietBatch, Kind: Kind{FanOut: true}},
		{What: plain + ", " + tide + ", heavy tails, bursts and fan-out", Threads: 1, Batch: quietBatch, Kind: all, judged: true},
		{What: siblings + ", " + tide + ", heavy tails, bursts and fan-out", Threads: 2, Batch: quietBatch, Kind: all, judged: true},
		{What: siblings + ", " + tide, Threads: 2, Batch: quietBatch},
		{What: plain + ", " + tide + ", " + loud + ", spread over the sockets", Threads: 1, Batch: loudBatch},
		{What: "the same, gathered on one socket", Threads: 1, Batch: loudBatch, Sockets: cpuset.Gather},
	}
	for i := range list {
		t := &list[i]
		t.arms = arms()
		t.Sockets, t.Size = cmp.Or(t.Sockets, cpuset.Spread), cmp.Or(t.Size, 1)
		// The oracles know what the load takes on a CPU of its own, and nothing of siblings or of
		// what batch work does to the memory.
		if t.Threads == 1 && t.Batch[0] == quietBatch[0] {
			t.arms = append(t.arms, oracles()...)
		}
	}
	return list
}

// twinConfig is the agent's configuration with nothing but the partition on.
func twinConfig(sockets string) (*config.Config, error) {
	c, ok := config.Defaults(config.ProfileSingleNode)
	if !ok {
		return nil, fmt.Errorf("partition: no profile %s", config.ProfileSingleNode)
	}
	c.Policies.SetModes(model.ModeOff)
	c.Policies.CPU.CPUSetMode, c.Policies.CPU.CPUSet.Sockets = model.ModeEnforce, sockets
	return &c, nil
}

// divine places everybody as the load of the coming second asks for. No agent can know that load
// beforehand, so this is the best that any partition could do, and what the others are held
// against. LC's cores are taken from both sockets by turns.
func (r *twinRun) divine(cpus, spare float64) error {
	config := r.mach.Config()
	cores := config.Sockets * config.CoresPerSocket
	want := int(math.Ceil((cpus + spare*math.Sqrt(cpus)) / float64(config.ThreadsPerCore)))
	var lc model.CPUSet
	for i := range min(want, cores-1) {
		core := i/config.Sockets + i%config.Sockets*config.CoresPerSocket
		for thread := range config.ThreadsPerCore {
			lc.Add(core + thread*cores)
		}
	}
	be := model.FullSet(config.CPUs()).Without(lc)
	for i := range r.services {
		if err := r.mach.SetCPUs(r.services[i].num, lc); err != nil {
			return err
		}
	}
	for _, num := range r.batch {
		if err := r.mach.SetCPUs(num, be); err != nil {
			return err
		}
	}
	return nil
}

// playTwin plays all tables, as many cases at once as there are CPUs. The result does not
// depend on their number.
func playTwin(ctx context.Context, o Options, size twinSize) ([]TwinTable, error) {
	tables := twinTables()
	type part struct {
		table *TwinTable
		arm   int
	}
	var parts []part
	for t := range tables {
		table := &tables[t]
		table.shape = newShape(o.Seed, size.length, size.day, table.Surges).times(table.Size)
		table.day = int(size.day.Seconds())
		table.Minutes = size.length.Minutes()
		table.CPUs = 64 * table.Threads
		table.Rows, table.sizes = make([]TwinRow, len(table.arms)), make([][]write, len(table.arms))
		for a := range table.arms {
			parts = append(parts, part{table, a})
		}
	}
	_, err := parallel.Map(ctx, 0, len(parts), func(i int) (struct{}, error) {
		p := parts[i]
		return struct{}{}, p.table.play(ctx, o, p.arm, p.table.arms[p.arm])
	})
	if err != nil {
		return nil, err
	}
	for t := range tables {
		tables[t].compare()
	}
	return tables, nil
}

// play plays one arm of a table.
func (t *TwinTable) play(ctx context.Context, o Options, a int, arm Arm) error {
	r, err := newTwinRun(&twinCase{seed: o.Seed, threads: t.Threads, batch: t.Batch, kind: t.Kind, shape: &t.shape, arm: arm, sockets: t.Sockets})
	if err != nil {
		return fmt.Errorf("partition: twin, %s: %w", arm, err)
	}
	if err := r.play(ctx); err != nil {
		return fmt.Errorf("partition: twin, %s: %w", arm, err)
	}
	row, err := r.row()
	if err != nil {
		return fmt.Errorf("partition: twin, %s: %w", arm, err)
	}
	t.Rows[a] = *row
	if arm.byAgent() {
		t.sizes[a] = r.placed()
	}
	return nil
}

// find returns an arm's row.
func (t *TwinTable) find(arm Arm) *TwinRow {
	for i := range t.Rows {
		if t.Rows[i].Arm == arm {
			return &t.Rows[i]
		}
	}
	panic("every table has every arm")
}

// compare fills in what the services suffer against (a): the one that suffers most.
func (t *TwinTable) compare() {
	alone := t.find(ArmAlone)
	for i := range t.Rows {
		row := &t.Rows[i]
		row.Worst, row.WorstAfter = 0, 0
		for k := range row.Services {
			row.Worst = max(row.Worst, row.Services[k].P99/alone.Services[k].P99)
			row.WorstAfter = max(row.WorstAfter, row.Services[k].After/alone.Services[k].After)
		}
	}
}

// frontier returns the utilisation that cores apart can have at most, by the oracles, where
// the service that suffers most may suffer so much; absent where they do not say.
func (t *TwinTable) frontier(worst stat.Number) stat.Number {
	var before *TwinRow
	for i := range t.Rows {
		row := &t.Rows[i]
		if _, ok := row.Arm.spare(); !ok {
			continue
		}
		// The more they spare the less is suffered.
		if before != nil && before.Worst >= worst && row.Worst <= worst && before.Worst > row.Worst {
			return row.Utilisation + (before.Utilisation-row.Utilisation)*(worst-row.Worst)/(before.Worst-row.Worst)
		}
		before = row
	}
	return stat.Absent()
}
