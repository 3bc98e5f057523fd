package oracle

import (
	"context"
	"errors"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
)

// configOf is the agent of an arm.
func configOf(arm Arm) *config.Config {
	c, _ := config.Defaults(config.ProfileSingleNode)
	c.Policies.SetModes(model.ModeOff)
	cpu := &c.Policies.CPU
	switch arm {
	case Balm:
		cpu.BalmMode = model.ModeEnforce
	case Ours:
		cpu.BalmMode, c.Policies.Mode, cpu.CacheMode = model.ModeEnforce, model.ModeEnforce, model.ModeEnforce
	case Remedy:
		cpu.RemedyMode, c.Policies.Mode = model.ModeEnforce, model.ModeEnforce
	}
	return &c
}

// agent has the agent of an arm run on a machine.
func (r *run) agent(arm Arm) error {
	c := configOf(arm)
	core, err := agent.Assemble(c, agent.Deps{Host: r.host, Clock: r.host, Platform: "twin", SLO: r.tell})
	if err != nil {
		return err
	}
	r.player.Agents = []*agent.Loop{agent.NewLoop(core)}
	return nil
}

// run is a mix as it runs.
type run struct {
	*world
	host   *twin.Host
	player player.Player
	nums   []int // the machine's, by task
	class  []int // of batch tasks, in their order
	now    int64
	// seen is of each service the latencies of the last seconds, the newest last.
	seen [][]*hdrhistogram.Histogram
}

// start starts the services, and batch work if it is to be there.
func (w *world) start(batch bool) (*run, error) {
	m, err := machine.New(w.config, w.seed)
	if err != nil {
		return nil, err
	}
	r := &run{world: w, host: twin.NewHost(m, true), player: player.Player{Machine: m}, seen: make([][]*hdrhistogram.Histogram, len(w.list))}
	for k := range w.list {
		t := model.Task{Path: r.path(k), Class: w.list[k].class, Production: w.list[k].class == model.LC}
		if t.Job = t.Path; t.Class == model.BE && !batch {
			r.nums = append(r.nums, -1)
			continue
		}
		n, err := r.host.Start(t, w.list[k].cfg)
		if err != nil {
			return nil, err
		}
		num, err := r.host.Physical(n)
		if err != nil {
			return nil, err
		}
		r.nums = append(r.nums, num)
	}
	return r, nil
}

// second lets one pass, and takes in what the services' requests took.
func (r *run) second(ctx context.Context) error {
	r.now++
	if err := r.player.Until(ctx, r.now*1e9); err != nil {
		return err
	}
	for k := range r.list {
		if r.list[k].class != model.LC {
			continue
		}
		h, _, err := r.host.Machine().Latencies(r.nums[k])
		if err != nil {
			return err
		}
		r.seen[k] = append(r.seen[k][max(0, len(r.seen[k])-lookBack+1):], h)
	}
	return nil
}

// newest is what a service's requests took in the last second; nil: it is no service.
func (r *run) newest(k int) *hdrhistogram.Histogram {
	if n := len(r.seen[k]); n > 0 {
		return r.seen[k][n-1]
	}
	return nil
}

// figure is a service's p99 over the last seconds, beside its target; ok is false where it had no requests.
func (r *run) figure(k int) (ratio float64, samples int64, ok bool) {
	if len(r.seen[k]) == 0 {
		return 0, 0, false
	}
	all := hdrhistogram.Import(r.seen[k][0].Export())
	for _, h := range r.seen[k][1:] {
		all.Merge(h)
	}
	return float64(all.ValueAtQuantile(99)) / 1e9 / r.list[k].target, all.TotalCount(), all.TotalCount() > 0
}

// worst is the worst figure of all services beside its target.
func (r *run) worst() (ratio float64) {
	for k := range r.list {
		if now, _, ok := r.figure(k); ok {
			ratio = max(ratio, now)
		}
	}
	return ratio
}

// tell is a latency source of each service, for an agent.
func (r *run) tell(dst []model.Latency) []model.Latency {
	for k := range r.list {
		ratio, samples, ok := r.figure(k)
		if !ok {
			continue
		}
		target := r.list[k].target
		l := model.Latency{Job: r.path(k), Target: target, Quantile: 0.99, Figure: model.Known(ratio * target), Samples: int(samples), State: model.LatencyGrey}
		switch { // BALM's margins
		case ratio > 1:
			l.State = model.LatencyRed
		case ratio > 0.95:
			l.State = model.LatencyYellow
		case ratio <= 0.8:
			l.State = model.LatencyGreen
		}
		dst = append(dst, l)
	}
	return dst
}

func (r *run) path(k int) string {
	return fmt.Sprintf("/%s/%d-%s", r.list[k].class, k, r.list[k].cfg.Name)
}

// divide gives each batch task its share.
func (r *run) divide(shares []Share) error {
	m, j := r.host.Machine(), 0
	for k := range r.list {
		t := &r.list[k]
		if t.class != model.BE {
			continue
		}
		s := shares[j]
		if j == len(r.class) {
			r.class = append(r.class, m.AddCLOS())
			if err := m.SetCLOS(r.nums[k], r.class[j]); err != nil {
				return err
			}
		}
		for cache := range r.config.Caches() {
			if err := errors.Join(m.SetWays(r.class[j], cache, 1<<s.Ways-1), m.SetMBA(r.class[j], cache, s.Level)); err != nil {
				return err
			}
		}
		quota := machine.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}
		if s.CPUs < 1 {
			quota.QuotaUsec = int64(s.CPUs * float64(t.cfg.Threads) * 100_000)
		}
		if err := m.SetCPUMax(r.nums[k], quota); err != nil {
			return err
		}
		j++
	}
	return nil
}

// place puts batch tasks into their places, with their pages there from the beginning.
func (r *run) place(places []Place) error {
	m, j := r.host.Machine(), 0
	for k := range r.list {
		if r.list[k].class != model.BE || j >= len(places) {
			continue
		}
		home := r.config.SocketOf(r.list[k].cfg.CPUs.Members()[0])
		pages := make([]float64, r.config.Sockets)
		pages[home], pages[1-home] = 1-places[j].Pages, places[j].Pages
		if err := m.SetPages(r.nums[k], pages); err != nil {
			return err
		}
		if places[j].Away { // beside who is there
			from := (1 - home) * cores
			cpus := model.FullSet(from + cores).Without(model.FullSet(from + lcCores))
			if err := m.SetCPUs(r.nums[k], cpus); err != nil {
				return err
			}
		}
		j++
	}
	return nil
}

// play lets seconds pass, of which the last count; each is called after each, where it is not nil.
func (r *run) play(ctx context.Context, seconds, last int, each func(*run) error) (out Outcome, err error) {
	var before []float64
	for s := range seconds {
		if s == seconds-last {
			if before, err = r.instructions(); err != nil {
				return out, err
			}
		}
		if err := r.second(ctx); err != nil {
			return out, err
		}
		if each != nil {
			if err := each(r); err != nil {
				return out, err
			}
		}
		if s >= seconds-last && r.worst() > 1 {
			out.Missed += 1 / float64(last)
		}
	}
	out.each, err = r.instructions()
	for k := range out.each {
		out.each[k] -= before[k]
	}
	return out, err
}

// instructions are those of the batch tasks.
func (r *run) instructions() (list []float64, err error) {
	for k := range r.list {
		if r.list[k].class != model.BE {
			continue
		}
		c, err := r.host.Machine().Counters(r.nums[k])
		if err != nil {
			return nil, err
		}
		list = append(list, float64(c.Instructions))
	}
	return list, nil
}
