package balm

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// What services feel while batch work's pages move: a drawn service on each of two sockets, one of the heavy programs of 2 to 8 GiB on the first with
// all its pages there, and EP on the second: on all of its other CPUs in one
// half of the draws, so that none is idle but the services' own and who copies has those, and on eight of twelve in the other half. The heavy program's pages go to the second socket in ten steps of a tenth, three seconds
// after the one before has come (policy balm's), with small pages and with huge ones. At that moment the machine is forked three ways, which meet the same requests: one moves, in one
// as many pages come as in the first, but for nothing, and one has them left where they are. What counts are the tenths of a second in which pages move, in all three.
//
// Written down before the first run: pages that move fail where any of a service's p50, p95 and p99 is by more than 2 % higher than in the same run without moves, or than
// with pages that moved for nothing, on the mean over ten drawn catalogues with an interval that leaves 0 out.

// Beside is what a service's percentiles while pages move are compared with.
type Beside int

// They are.
const (
	Before  Beside = iota // the half a minute before, in the same run
	Without               // the same moments of the run without moves
	Free                  // the same moments of the run whose pages moved for nothing: what copying alone does
	NumBesides
)

var besideNames = [NumBesides]string{"half a minute before", "the run without moves", "pages moved for nothing"}

// quantiles are the percentiles that are compared.
var quantiles = [...]float64{50, 95, 99}

// Move is one draw with one size of pages.
type Move struct {
	Seed     uint64    `json:"seed"`
	Huge     bool      `json:"huge"`
	Spare    bool      `json:"spare"`    // there are idle CPUs beside the services'
	Services [2]string `json:"services"` // whose memory pages leave, and to whose they come
	Batch    string    `json:"batch"`
	GiB      float64   `json:"gib"`
	Seconds  float64   `json:"seconds"` // in which pages moved
	// Ratios are of the service's percentiles while pages move, by service, Beside and percentile.
	Ratios [2][NumBesides][len(quantiles)]float64 `json:"ratios"`
}

// MoveSum is one row over all draws; intervals are over catalogues.
type MoveSum struct {
	Huge    bool                          `json:"huge"`
	Spare   bool                          `json:"spare"`
	Service int                           `json:"service"`
	Beside  Beside                        `json:"beside"`
	Ratios  [len(quantiles)]stat.Interval `json:"ratios"`
}

const (
	movePlays, moveCatalogues = 10, 10
	mostLater                 = 0.02
	steps, settleNsec         = 10, 3e9
	slotNsec                  = 100e6
	hugeNsec                  = 4 // of 2 us for 2 MiB
)

// moves plays all draws, each with small pages and with huge ones.
func (r *Result) moves(ctx context.Context, o *Options) (err error) {
	n := moveCatalogues
	if o.Quick {
		n = 2
	}
	r.Moves, err = parallel.Map(ctx, 0, n*movePlays*2, func(i int) (Move, error) {
		v := Move{Seed: o.Seed + uint64(i/2/movePlays), Huge: i%2 == 1}
		if err := v.play(i / 2 % movePlays); err != nil {
			return v, fmt.Errorf("moves, seed %d, draw %d: %w", v.Seed, i/2%movePlays, err)
		}
		return v, nil
	})
	r.sumMoves()
	return err
}

// sockets is the machine of the other cells.
func sockets() machine.Config {
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore, c.MemLatencyNsec, c.MemPeakBytes, c.LinkPeakBytes = 2, 16, 1, 100, 30e9, 30e9
	return c
}

// tasked is a program on so many CPUs of a socket from one of them on, with its pages there.
func tasked(p *program.Profile, socket, from, threads int) machine.TaskConfig {
	c := machine.TaskConfig{Name: p.Name, Threads: threads, Spread: 0.04, SpreadNsec: 3e9, Pages: make([]float64, 2)}
	c.Pages[socket] = 1
	c.CPUs = model.FullSet(16*socket + from + threads).Without(model.FullSet(16*socket + from))
	p.Apply(&c)
	return c
}

// serving has a task serve requests of a fifth of a millisecond or more that keep a share of its CPUs busy.
func serving(c *machine.TaskConfig, hz, use float64) {
	const small = instruction / 5
	c.Requests = &machine.Requests{Instructions: small, Variation: 1, PerSecond: use * float64(c.Threads) * hz / (1.5 * c.CPI * small)}
}

// start draws a machine: tasks 0 and 1 are services, 2 is the heavy one.
func (v *Move) start(draw int) (*machine.Machine, error) {
	rng := rand.New(rand.NewPCG(v.Seed, uint64(draw)))
	c := sockets()
	if v.Huge {
		c.MoveNsec = hugeNsec
	}
	var served []program.Profile
	for _, name := range program.Names() {
		if p, _ := program.Find(name); p.Service {
			served = append(served, p)
		}
	}
	m, err := machine.New(c, v.Seed*100+uint64(draw))
	if err != nil {
		return nil, err
	}
	var list []machine.TaskConfig
	for s := range 2 {
		p := served[rng.IntN(len(served))]
		t := tasked(&p, s, 0, 4)
		serving(&t, c.Hz, 0.3+0.3*rng.Float64())
		v.Services[s], list = p.Name, append(list, t)
	}
	v.Batch, v.GiB = heavy[rng.IntN(len(heavy))], 2+6*rng.Float64()
	p, _ := program.Find(v.Batch)
	ep, _ := program.Find("npb-ep")
	others := busy
	if v.Spare = draw%2 == 1; v.Spare {
		others -= 4
	}
	list = append(list, tasked(&p, 0, 4, busy), tasked(&ep, 1, 4, others))
	list[2].Memory = []machine.Heat{{Bytes: v.GiB * (1 << 30)}}
	for i := range list {
		if i >= 2 {
			list[i].Work = &machine.Work{}
		}
		if _, err := m.Add(list[i]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// latencies are what a machine's two services' requests took since they were last asked.
func latencies(m *machine.Machine) (h [2]*hdrhistogram.Histogram, err error) {
	for s := range h {
		if h[s], _, err = m.Latencies(s); err != nil {
			return h, err
		}
	}
	return h, nil
}

func (v *Move) play(draw int) error {
	m, err := v.start(draw)
	if err != nil {
		return err
	}
	m.Advance(20e9)
	if _, err := latencies(m); err != nil {
		return err
	}
	m.Advance(30e9)
	before, err := latencies(m)
	if err != nil {
		return err
	}
	// By Beside: with moves, without, and for nothing; what is before is of the first.
	worlds, all := [NumBesides]*machine.Machine{m, m.Fork(), m.Fork()}, [NumBesides][2]*hdrhistogram.Histogram{}
	step, next := 0, m.NowNsec()
	for {
		left, err := m.Copying(2)
		if err != nil {
			return err
		}
		switch now := m.NowNsec(); {
		case left > 0:
			next = now + settleNsec
		case now >= next && step == steps:
			return v.compare(&all, before)
		case now >= next:
			step++
			if err := m.MovePages(2, []float64{1 - float64(step)/steps, float64(step) / steps}); err != nil {
				return err
			}
			left, next = v.GiB*(1<<30)/steps, now+settleNsec
		}
		come := max(0, float64(step)/steps-left/(v.GiB*(1<<30)))
		if err := worlds[Free].SetPages(2, []float64{1 - come, come}); err != nil {
			return err
		}
		if left > 0 {
			v.Seconds += slotNsec / 1e9
		}
		for w, world := range worlds {
			world.Advance(slotNsec)
			h, err := latencies(world)
			if err != nil {
				return err
			}
			for s := range h {
				switch {
				case left <= 0:
				case all[w][s] == nil:
					all[w][s] = h[s]
				default:
					all[w][s].Merge(h[s])
				}
			}
		}
	}
}

// compare takes the ratios.
func (v *Move) compare(all *[NumBesides][2]*hdrhistogram.Histogram, before [2]*hdrhistogram.Histogram) error {
	for s := range before {
		moving := all[0][s]
		all[Before][s] = before[s]
		for b := range NumBesides {
			for q, at := range quantiles {
				of := float64(all[b][s].ValueAtQuantile(at))
				if !(of > 0) {
					return fmt.Errorf("service %s has no requests", v.Services[s])
				}
				v.Ratios[s][b][q] = float64(moving.ValueAtQuantile(at)) / of
			}
		}
	}
	return nil
}

// sumMoves sums the draws up and judges them.
func (r *Result) sumMoves() {
	for _, huge := range [...]bool{false, true} {
		var worst [NumBesides]stat.Interval
		var later [NumBesides]bool
		for i := range NumBesides * 4 {
			row := MoveSum{Huge: huge, Spare: i/NumBesides/2 == 1, Service: int(i / NumBesides % 2), Beside: i % NumBesides}
			for q := range quantiles {
				in := r.higher(&row, q)
				if row.Ratios[q] = in; worst[row.Beside].Blocks == 0 || in.Mean > worst[row.Beside].Mean {
					worst[row.Beside] = in
				}
				later[row.Beside] = later[row.Beside] || in.Mean > mostLater && in.Low > 0
			}
			r.MoveSums = append(r.MoveSums, row)
		}
		for b := Without; b < NumBesides; b++ { // half a minute before there were other requests
			r.Goals = append(r.Goals, report.Goal{
				Where: pageNames(huge), What: "the worst of services' p50, p95 and p99 while pages move, against " + besideNames[b], Want: fmt.Sprintf("at most %.0f %% higher, or by chance", 100*mostLater),
				Got: worst[b].Text(100, 2) + " %", Met: !later[b] && worst[b].Blocks > 0,
			})
		}
	}
}

// higher is by how much one percentile of a row is higher.
func (r *Result) higher(row *MoveSum, q int) stat.Interval {
	var of stat.Groups
	for i := range r.Moves {
		if v := &r.Moves[i]; v.Huge == row.Huge && v.Spare == row.Spare {
			of.Add(v.Seed, v.Ratios[row.Service][row.Beside][q]-1)
		}
	}
	return of.Interval()
}

func pageNames(huge bool) string {
	if huge {
		return "huge pages"
	}
	return "small pages"
}

// moveTable is for people.
func (r *Result) moveTable() report.Table {
	t := report.Table{Columns: report.Heads("pages", "idle CPUs", "service", "while pages move, against", "p50|% higher", "p95|% higher", "p99|% higher")}
	seconds, gib := [2]float64{}, [2]float64{}
	for i := range r.Moves {
		k := i % 2
		seconds[k], gib[k] = seconds[k]+r.Moves[i].Seconds, gib[k]+r.Moves[i].GiB
	}
	for i := range r.MoveSums {
		m := &r.MoveSums[i]
		name := [...]string{"its memory is left", "they come to its memory"}[m.Service]
		row := report.Cells(pageNames(m.Huge), map[bool]string{false: "services' own", true: "others, too"}[m.Spare], name, besideNames[m.Beside])
		for _, in := range m.Ratios {
			row = append(row, report.Cells(in.Text(100, 2))...)
		}
		t.Rows = append(t.Rows, row)
	}
	t.Notes = []string{fmt.Sprintf("Means over %d draws with their 95 %% intervals over catalogues; pages moved by %.2f GiB a second where they are small and %.2f where they are huge, rests included.",
		len(r.Moves)/2, stat.Ratio(gib[0], seconds[0]), stat.Ratio(gib[1], seconds[1]))}
	return t
}
