package headroom

import (
	"context"
	"fmt"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Options of a run.
type Options struct {
	Seed  uint64 // the first of the seeds that are reported
	Quick bool   // fewer nodes
	// Recorded loads that are judged beside the drawn ones: CPUs, and GiB in use.
	Traces, MemoryTraces []*Traces
	Log                  func(format string, args ...any)
}

// FirstSeed is the first of the seeds that may be reported.
const FirstSeed = 1000

// developmentSeed is the first seed of the nodes on which factors are fitted.
const developmentSeed = 1

// Part is what forecasters did on one set of nodes.
type Part struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
	Steps int    `json:"steps"` // of the longest
	Arms  []Arm  `json:"arms"`
}

// Arm is one forecaster on one set of nodes.
type Arm struct {
	Name     string                `json:"name"`
	Horizons [numHorizons]ArmScore `json:"horizons"`
}

// ArmScore is a forecaster's score at one horizon: with its defaults, and times the factor that keeps it within the bound on
// development seeds.
type ArmScore struct {
	Horizon string      `json:"horizon"`
	Default Score       `json:"default"`
	Factor  stat.Number `json:"factor"` // null: none is enough
	Scaled  Score       `json:"scaled"`
}

// Result is the JSON document.
type Result struct {
	Seed  uint64  `json:"seed"`
	Quick bool    `json:"quick"`
	Bound float64 `json:"bound"` // share of windows in which BE may have to give way
	Parts []Part  `json:"parts"`
	report.Judged
}

// Run draws the nodes, fits each forecaster's factor on those of development, and judges all on the others.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Seed < FirstSeed {
		return nil, fmt.Errorf("seed %d; expected at least %d: those below are for development", o.Seed, FirstSeed)
	}
	num := 48
	if o.Quick {
		num = 8
	}
	r := &Result{Seed: o.Seed, Quick: o.Quick, Bound: bound}
	for _, of := range [...]struct {
		what string
		draw func(seed uint64) Node
		arms []arm
		real []*Traces
	}{{"drawn", Draw, arms, o.Traces}, {"memory, drawn", DrawMemory, memoryArms, o.MemoryTraces}} {
		develop, fitted, err := play(ctx, developmentSeed, num, of.draw, of.arms)
		if err != nil {
			return nil, err
		}
		o.Log("%s, development: %d nodes", of.what, num)
		factors := fitAll(develop, fitted, of.arms)
		judged, heardOf, err := play(ctx, o.Seed, num, of.draw, of.arms)
		if err != nil {
			return nil, err
		}
		o.Log("%s, reported: %d nodes", of.what, num)
		r.Parts = append(r.Parts, judge(fmt.Sprintf("%s, seeds %d to %d", of.what, o.Seed, o.Seed+uint64(num)-1), judged, heardOf, factors, of.arms))
		r.ask(&r.Parts[len(r.Parts)-1], len(of.arms) == len(arms))
		for _, t := range of.real {
			heardOf, err := parallel.Map(ctx, 0, len(t.Nodes), func(i int) ([]heard, error) { return listen(t.Nodes[i], of.arms), nil })
			if err != nil {
				return nil, err
			}
			r.Parts = append(r.Parts, judge(t.Name, t.Nodes, heardOf, factors, of.arms))
			r.ask(&r.Parts[len(r.Parts)-1], len(of.arms) == len(arms))
		}
	}
	return r, nil
}

// play draws nodes by seeds from a first one on and shows them to all forecasters.
func play(ctx context.Context, first uint64, num int, draw func(seed uint64) Node, arms []arm) (nodes []*Node, list [][]heard, err error) {
	type both struct {
		n *Node
		h []heard
	}
	all, err := parallel.Map(ctx, 0, num, func(i int) (both, error) {
		n := draw(first + uint64(i))
		return both{&n, listen(&n, arms)}, nil
	})
	for _, b := range all {
		nodes, list = append(nodes, b.n), append(list, b.h)
	}
	return nodes, list, err
}

// of picks what one forecaster said of each node.
func of(list [][]heard, arm int) (one []heard) {
	for i := range list {
		one = append(one, list[i][arm])
	}
	return one
}

// fitAll returns each forecaster's factor for each horizon; NaN where none is enough.
func fitAll(nodes []*Node, list [][]heard, arms []arm) [][numHorizons]stat.Number {
	factors := make([][numHorizons]stat.Number, len(arms))
	for a := range arms {
		for h := range horizons {
			factors[a][h] = stat.Absent()
			if f, ok := fit(nodes, of(list, a), h); ok {
				factors[a][h] = stat.Number(f)
			}
		}
	}
	return factors
}

func judge(name string, nodes []*Node, list [][]heard, factors [][numHorizons]stat.Number, arms []arm) Part {
	p := Part{Name: name, Nodes: len(nodes)}
	for _, n := range nodes {
		p.Steps = max(p.Steps, n.steps())
	}
	for a := range arms {
		arm := Arm{Name: arms[a].name}
		for h := range horizons {
			one, s := of(list, a), &arm.Horizons[h]
			s.Horizon, s.Default, s.Factor = horizons[h].name, score(nodes, one, h, 1), factors[a][h]
			none := stat.Absent()
			s.Scaled = Score{Offered: none, Oracle: none, Covered: none, Error: none, GaveWay: stat.ShareOf(0, 0)}
			if s.Factor.Known() {
				s.Scaled = score(nodes, one, h, float64(s.Factor))
			}
		}
		p.Arms = append(p.Arms, arm)
	}
	return p
}

// ask holds the policy, which is the first arm, to what was written down (package comment, memory.go). Its variants are no other
// forecasters; beside is whether it is held to what they offer, too.
func (r *Result) ask(p *Part, beside bool) {
	for h := range horizons {
		us := &p.Arms[0].Horizons[h]
		gave := us.Default.GaveWay
		g := report.Goal{
			Where: p.Name, What: us.Horizon + ": windows in which BE would have had to give way, by the defaults", Want: "at most 1 %",
			Got: fmt.Sprintf("%.2f %%", 100*gave.Value()), Met: gave.Value() <= bound,
		}
		if gave.Of == 0 {
			g.Unclear = "no window can be judged"
		}
		if r.Goals = append(r.Goals, g); !beside {
			continue
		}
		best := bestOther(p, h)
		g = report.Goal{Where: p.Name, What: us.Horizon + ": offered at the factor fitted for 1 %, and at most 1 % of windows", Got: armText(us)}
		g.Want = "more than any other within 1 %"
		g.Met = us.Factor.Known() && us.Scaled.GaveWay.Value() <= bound
		if best != nil {
			s := &best.Horizons[h]
			g.Want = fmt.Sprintf("%.1f %% (%s), the most of others within 1 %%", 100*float64(s.Scaled.Offered), best.Name)
			g.Met = g.Met && us.Scaled.Offered >= s.Scaled.Offered
		}
		r.Goals = append(r.Goals, g)
	}
}

// bestOther is who offers most of those other than the policy that keep within the bound; nil: none does.
func bestOther(p *Part, h int) (best *Arm) {
	for a := numOurs; a < len(p.Arms); a++ {
		s := &p.Arms[a].Horizons[h]
		if !s.Factor.Known() || !(s.Scaled.GaveWay.Value() <= bound) {
			continue
		}
		if best == nil || s.Scaled.Offered > best.Horizons[h].Scaled.Offered {
			best = &p.Arms[a]
		}
	}
	return best
}

func armText(s *ArmScore) string {
	return fmt.Sprintf("%s %%, in %.2f %% of windows exceeded", percent(s.Scaled.Offered, 1), 100*s.Scaled.GaveWay.Value())
}
