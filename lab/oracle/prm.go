package oracle

import (
	"context"
	"math"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// prm has the contention controllers of Intel's platform resource manager for cache and memory bandwidth: a service whose CPI is above
// its fence contends for the cache where its misses are above theirs, and for memory where its stalls are, or where it moves fewer bytes
// than ever. Its counter of stalls is here what a core waits for memory by the twin's own equations: cycles beyond those that the
// program takes where every load hits. What is contended is at the minimum at once for all batch work, and has a step back after quiet windows. Its controller of
// cycles is left out: no service shares a core with batch work here.
type prm struct {
	fences []fence            // by task
	before []machine.Counters // by task, when the window began
	now    Share
	quiet  [2]int // windows without contention for the cache, and for memory
}

// fence bounds what a service's windows are while it is alone.
type fence struct{ cpi, misses, stalls, bytes float64 }

const (
	prmWindow = 20 // s, as by default
	prmAlone  = 30 // windows that a fence is made of
	prmSigma  = 4  // standard deviations, or the most that was seen where that is nearer, as by default
	prmQuiet  = 4  // windows to a step back, of the plug-in that has memory bandwidth
)

// prm makes the controllers of a mix.
func (w *world) prm(ctx context.Context) (*prm, error) {
	r, err := w.start(false)
	if err != nil {
		return nil, err
	}
	p := &prm{now: Share{allWays, 100, 1}, fences: make([]fence, len(w.list)), before: make([]machine.Counters, len(w.list))}
	seen := make([][]fence, len(w.list))
	for s := range prmWindow * (prmAlone + 1) {
		if err := r.second(ctx); err != nil {
			return nil, err
		}
		if (s+1)%prmWindow != 0 {
			continue
		}
		now, err := p.window(r)
		if err != nil {
			return nil, err
		}
		for k := range now {
			if s > prmWindow { // the first is cold
				seen[k] = append(seen[k], now[k])
			}
		}
	}
	for k := range seen {
		p.fences[k] = fence{
			cpi:    bound(seen[k], func(f fence) float64 { return f.cpi }),
			misses: bound(seen[k], func(f fence) float64 { return f.misses }),
			stalls: bound(seen[k], func(f fence) float64 { return f.stalls }),
			bytes:  -bound(seen[k], func(f fence) float64 { return -f.bytes }),
		}
	}
	clear(p.before)
	return p, nil
}

// window is what the window that ends now is, of each service.
func (p *prm) window(r *run) ([]fence, error) {
	list := make([]fence, len(r.list))
	for k := range r.list {
		if r.list[k].class != model.LC {
			continue
		}
		c, err := r.host.Machine().Counters(r.nums[k])
		if err != nil {
			return nil, err
		}
		was := &p.before[k]
		n := float64(c.Instructions - was.Instructions)
		cpi := float64(c.Cycles-was.Cycles) / n
		list[k] = fence{cpi, float64(c.LLCMisses-was.LLCMisses) / n, cpi - r.list[k].cfg.CPI, float64(c.MemBytes - was.MemBytes)}
		*was = c
	}
	return list, nil
}

func (p *prm) second(r *run) error {
	if r.now%prmWindow != 0 {
		return nil
	}
	now, err := p.window(r)
	if err != nil {
		return err
	}
	var cache, memory bool
	for k := range now {
		if f := &p.fences[k]; r.list[k].class == model.LC && now[k].cpi > f.cpi {
			cache = cache || now[k].misses > f.misses
			memory = memory || now[k].stalls > f.stalls || now[k].bytes < f.bytes
		}
	}
	was := p.now
	p.now.Ways = p.step(0, cache, p.now.Ways, 2, allWays, 1)
	p.now.Level = p.step(1, memory, p.now.Level, 10, 100, 10)
	if p.now == was {
		return nil
	}
	return r.divide(r.shares(p.now))
}

// step is what a controller makes of what it gave.
func (p *prm) step(of int, contended bool, now, least, most, by int) int {
	if p.quiet[of]++; contended {
		p.quiet[of] = 0
		return least
	}
	if p.quiet[of] < prmQuiet {
		return now
	}
	p.quiet[of] = 0
	return min(most, now+by)
}

// bound is the mean and some standard deviations, or the most where that is less.
func bound(list []fence, of func(fence) float64) float64 {
	var n, mean, square float64
	most := math.Inf(-1)
	for i := range list {
		x := of(list[i])
		n++
		d := x - mean
		mean += d / n
		square += d * (x - mean)
		most = max(most, x)
	}
	return min(most, mean+prmSigma*math.Sqrt(square/max(1, n-1)))
}
