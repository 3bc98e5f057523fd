package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
)

// twinCase is one machine, load and batch work, played under one arm.
type twinCase struct {
	seed    uint64
	threads int // of a core
	batch   []string
	kind    Kind
	shape   *shape
	arm     Arm
	sockets string // of (e): cpuset.Spread or cpuset.Gather
}

// twinRun is a case in progress.
type twinRun struct {
	c        *twinCase
	mach     *machine.Machine
	host     *twin.Host
	player   player.Player
	applied  []model.Result // what became of the agent's writes
	services []twinService
	batch    []int // numbers of the machine
}

// twinService is a service and what its clients saw.
type twinService struct {
	service
	task       model.TaskNum
	num        int // of the machine
	all, after *hdrhistogram.Histogram
	lost       uint64
	tail       []float64
}

// newHist returns a histogram of latencies with the twin's range and precision.
func newHist() *hdrhistogram.Histogram { return hdrhistogram.New(1_000, 600_000_000_000, 2) }

// newTwinRun puts the tasks on a machine and the arm in force.
func newTwinRun(c *twinCase) (*twinRun, error) {
	config := server64(c.threads)
	if c.kind.Bursts {
		config.StepNsec = burstStep.Nanoseconds()
	}
	m, err := machine.New(config, c.seed)
	if err != nil {
		return nil, err
	}
	r := &twinRun{c: c, mach: m, host: twin.NewHost(m, true), player: player.Player{Machine: m}}
	for _, s := range services() {
		task, cfg := s.taskOf(&config, c.kind)
		n, err := r.host.Start(task, cfg)
		if err != nil {
			return nil, err
		}
		num, err := r.host.Physical(n)
		if err != nil {
			return nil, err
		}
		r.services = append(r.services, twinService{service: s, task: n, num: num, all: newHist(), after: newHist()})
	}
	if c.arm != ArmAlone {
		if err := r.startBatch(); err != nil {
			return nil, err
		}
	}
	if c.arm.byAgent() {
		return r, r.startAgent()
	}
	return r, nil
}

// startBatch starts the batch work as the arm has it.
func (r *twinRun) startBatch() error {
	for i, name := range r.c.batch {
		cfg := machine.TaskConfig{Name: name, Threads: batchThreads, Work: &machine.Work{}}
		p := mustFind(name)
		p.Apply(&cfg)
		if r.c.arm == ArmShares {
			cfg.Shares = leastShares
		}
		n, err := r.host.Start(model.Task{Path: fmt.Sprintf("/batch/%d-%s", i, name), Job: name, Class: model.BE, Importance: model.BestEffort}, cfg)
		if err != nil {
			return err
		}
		num, err := r.host.Physical(n)
		if err != nil {
			return err
		}
		if err := r.mach.SetIdle(num, r.c.arm == ArmIdle); err != nil {
			return err
		}
		r.batch = append(r.batch, num)
	}
	return nil
}

// startAgent starts the agent: its own loop without a process or a disk.
func (r *twinRun) startAgent() error {
	cfg, err := twinConfig(r.c.sockets)
	if err != nil {
		return err
	}
	core, err := agent.Assemble(cfg, agent.Deps{Host: r.host, Clock: r.host, Platform: "twin"})
	if err != nil {
		return err
	}
	r.player.Agents = []*agent.Loop{agent.NewLoop(core)}
	r.player.Told = func(int, *engine.Output) {
		_, results := core.Last()
		r.applied = append(r.applied, results...)
	}
	return nil
}

// play plays the case.
func (r *twinRun) play(ctx context.Context) error {
	for second, cpus := range r.c.shape.cpus {
		for i := range r.services {
			if err := r.mach.SetRate(r.services[i].num, r.services[i].perSecond(cpus)); err != nil {
				return err
			}
		}
		if spare, ok := r.c.arm.spare(); ok {
			if err := r.divine(cpus, spare); err != nil {
				return err
			}
		}
		if err := r.player.Until(ctx, int64(second+1)*1e9); err != nil {
			return err
		}
		if err := r.collect(second); err != nil {
			return err
		}
	}
	return nil
}

// warmSeconds are not measured: the services' caches fill, and the partition finds its size.
const warmSeconds = 10

// collect takes what the clients saw in a second, by when they were answered.
func (r *twinRun) collect(second int) error {
	for i := range r.services {
		s := &r.services[i]
		h, lost, err := r.mach.Latencies(s.num)
		if err != nil {
			return err
		}
		s.tail = append(s.tail, float64(msecAt(h, 99)))
		if second < warmSeconds {
			continue
		}
		s.lost += lost
		s.all.Merge(h)
		if r.c.shape.after(second) {
			s.after.Merge(h)
		}
	}
	return nil
}

// TwinRow is one arm on the twin in numbers.
type TwinRow struct {
	Arm      Arm           `json:"arm"`
	Services []TwinLatency `json:"services"`
	// Worst is the p99 of the service that suffers most against (a), as a multiple of it.
	Worst       stat.Number `json:"worst_p99_of_alone"`
	WorstAfter  stat.Number `json:"worst_p99_after_surge_of_alone"`
	Utilisation stat.Number `json:"utilisation"`    // share of all CPUs
	Service     stat.Number `json:"service_cpu"`    // CPU-sec/sec
	Batch       stat.Number `json:"batch_cpu"`      // CPU-sec/sec
	Work        stat.Number `json:"batch_work"`     // instructions per second
	Lost        uint64      `json:"requests_lost"`  // given up by their clients
	Resizes     int         `json:"resizes"`        // of the services' CPUs
	First       Spread      `json:"hand_back_ms"`   // from a surge to the first write that gives the services a core
	Enough      Spread      `json:"enough_ms"`      // until they have as many as the surge wants
	Pulses      Spread      `json:"enough_pulses"`  // the same in pulses of the agent
	Surges      int         `json:"surges"`         // in the measured time
	NeededMore  int         `json:"surges_growing"` // of them those that wanted more cores than the services had

	tail []float64 // p99 of the first service, second by second, in milliseconds
}

// TwinLatency is what one service's clients saw, in milliseconds.
type TwinLatency struct {
	Service string      `json:"service"`
	P50     stat.Number `json:"p50_ms"`
	P99     stat.Number `json:"p99_ms"`
	P999    stat.Number `json:"p999_ms"`
	After   stat.Number `json:"p99_after_surge_ms"`
}

func msecAt(h *hdrhistogram.Histogram, percentile float64) stat.Number {
	if h.TotalCount() == 0 {
		return stat.Absent()
	}
	return stat.Number(float64(h.ValueAtQuantile(percentile)) / 1e6)
}

// row sums the run up.
func (r *twinRun) row() (*TwinRow, error) {
	row := &TwinRow{Arm: r.c.arm, Worst: stat.Absent(), WorstAfter: stat.Absent(), tail: r.services[0].tail}
	seconds := float64(len(r.c.shape.cpus))
	for i := range r.services {
		s := &r.services[i]
		row.Services = append(row.Services, TwinLatency{
			Service: s.program, P50: msecAt(s.all, 50), P99: msecAt(s.all, 99), P999: msecAt(s.all, 99.9), After: msecAt(s.after, 99),
		})
		row.Lost += s.lost
		k, err := r.mach.Counters(s.num)
		if err != nil {
			return nil, err
		}
		row.Service += stat.Number(float64(k.UsageNsec) / 1e9 / seconds)
	}
	for _, num := range r.batch {
		k, err := r.mach.Counters(num)
		if err != nil {
			return nil, err
		}
		row.Batch += stat.Number(float64(k.UsageNsec) / 1e9 / seconds)
		row.Work += stat.Number(float64(k.WorkDone) / seconds)
	}
	config := r.mach.Config()
	row.Utilisation = (row.Service + row.Batch) / stat.Number(config.CPUs())
	r.follow(row)
	return row, nil
}

// placed returns when the services were given which CPUs.
func (r *twinRun) placed() []write {
	var list []write
	for i := range r.applied {
		a := &r.applied[i]
		if a.Kind == model.Applied && a.Task() == r.services[0].task && a.Now.Knob == model.CPUPlace {
			list = append(list, write{a.MonoNsec, a.Now})
		}
	}
	return list
}

// follow fills in what the agent did after each surge.
func (r *twinRun) follow(row *TwinRow) {
	list := r.placed()
	w := writes{service: list}
	row.Resizes = w.resizes(warmSeconds*1e9, r.mach.NowNsec())
	var first, enough, pulses []stat.Number
	for _, second := range r.c.shape.surges {
		if second < warmSeconds {
			continue
		}
		row.Surges++
		step := int64(second) * 1e9
		had := placeAt(list, step)
		want := r.c.shape.cpus[second]
		if len(r.player.Agents) == 0 || float64(had.Len()) >= want {
			continue
		}
		row.NeededMore++
		f, e := growth(list, step, had.Len(), want)
		first, enough, pulses = append(first, f), append(enough, e), append(pulses, e/stat.Number(pulseMsec))
	}
	row.First, row.Enough, row.Pulses = spread(first), spread(enough), spread(pulses)
}

// growth returns the milliseconds from a step until a set has more than it had, and until
// it has as much as is wanted.
func growth(list []write, step int64, had int, want float64) (first, enough stat.Number) {
	first, enough = stat.Absent(), stat.Absent()
	for i := range list {
		w := &list[i]
		if w.nsec < step || w.nsec > step+afterStep.Nanoseconds() {
			continue
		}
		n := w.value.CPUs.Len()
		if !first.Known() && n > had {
			first = msecBetween(step, w.nsec)
		}
		if float64(n) >= want {
			return first, msecBetween(step, w.nsec)
		}
	}
	return first, enough
}

// pulseMsec is the agent's pulse in the twin.
const pulseMsec = float64(50 * time.Millisecond / time.Millisecond)
