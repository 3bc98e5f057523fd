package cpi2

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

var lack = flag.String("lack", "", "first..last: print what the order by what the victim lacks is worth on these catalogues of development, as docs/EVALUATION.md has it")

// nudgeColumns are beside those of relief what an order of suspects changes first.
var nudgeColumns = []struct {
	head     string
	figure   func(*Catalogue, *ArmSummary) float64
	most     float64
	decimals int
}{
	{"nudges a trial, times 100", func(_ *Catalogue, a *ArmSummary) float64 { return of(a, a.Nudges) }, math.Inf(1), 0},
	{"of them in vain, times 100", func(_ *Catalogue, a *ArmSummary) float64 { return of(a, a.Refuted) }, math.Inf(1), 0},
	{"named in s, times 100", namedIn, math.Inf(1), 0},
}

// lackCatalogues are those that are asked for; the test is skipped where none are.
func lackCatalogues(t *testing.T) (first uint64, n int) {
	last := uint64(0)
	if _, err := fmt.Sscanf(*lack, "%d..%d", &first, &last); err != nil {
		t.Skip("asked for with -lack FIRST..LAST")
	}
	if last >= firstCatalogue {
		t.Fatalf("catalogues from %d on are not for development", firstCatalogue)
	}
	return first, int(last-first) + 1
}

// lackKinds are machines whose counters tell of all misses, and whose counters leave out what prefetchers fetch.
var lackKinds = []struct {
	name string
	kind kind
}{
	{"all misses are counted", kind{between: usual.between, within: usual.within, counted: true}},
	{"prefetches are not", kind{between: usual.between, within: usual.within, counted: true, demand: true}},
}

func lackArms() []Arm {
	return []Arm{Arms()[0], Arms()[1], {Name: reliefArm, Mutate: profileRelief}, {Name: "relief, by_lack", Mutate: func(p *engine.Params) {
		profileRelief(p)
		p.Hardcap.Confirm.ByLack = true
	}}}
}

// printLack prints what the arms did, but for the first, which holds nobody.
func printLack(what string, list []Catalogue) {
	for k := range list[0].Arms[1:] {
		fmt.Printf("| %s | %s |", what, list[0].Arms[k+1].Arm)
		for _, c := range append(reliefColumns, nudgeColumns...) {
			fmt.Printf(" %s |", interval(over(list, k+1, c.figure), c.most, c.decimals+1))
		}
		fmt.Println()
	}
}

// TestLackTable compares the profile relief with and without hard_cap.confirm.by_lack on the machines of the lab.
func TestLackTable(t *testing.T) {
	first, n := lackCatalogues(t)
	for _, of := range lackKinds {
		list, err := reliefOf(t.Context(), first, n, 30, 2, of.kind, lackArms())
		if err != nil {
			t.Fatal(err)
		}
		printLack(of.name+" | all", list)
		printLack(of.name+" | production", ofProduction(list))
	}
}

// TestLackPairs compares them where two jobs come at once: one whose prefetchers fetch nine tenths of what it reads, and one that waits for each of its misses and
// moves little.
func TestLackPairs(t *testing.T) {
	first, n := lackCatalogues(t)
	for _, of := range lackKinds {
		var list []Catalogue
		for seed := first; seed < first+uint64(n); seed++ {
			b, err := newBench(t.Context(), seed, 2, of.kind)
			if err != nil {
				t.Fatal(err)
			}
			b.arms = lackArms()
			plays, err := parallel.Map(t.Context(), 2, 12, func(i int) (*Play, error) { return b.playMix(b.cat.pair(t, seed<<20+uint64(i))) })
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, catalogueOf(seed, (&Result{Plays: plays}).trials(), b.arms))
			fmt.Printf("catalogue %d: %d trials\n", seed, list[len(list)-1].Trials)
		}
		printLack(of.name+" | pairs", list)
	}
}

// pair draws a machine to which such two jobs come.
func (c *catalogue) pair(t *testing.T, seed uint64) *mix {
	rng := rand.New(rand.NewPCG(seed, 0x70616972))
	m := c.drawMix(rng, quiet, warmMinutes, warmMinutes+causeWithin, playMinutes)
	m.cause = single
	for name, threads := range map[string]int{"stream": 6, "pointer-chase": 8} {
		base, err := baseOf(name, usual)
		if err != nil {
			t.Fatal(err)
		}
		s := start{task: model.Task{Path: "/" + name + "/0", Job: name, Class: model.BE}, cfg: base}
		s.cfg.Name, s.cfg.Threads, s.cfg.Work = s.task.Path, threads, &machine.Work{Phases: sized(nil, float64(threads))}
		m.plan = append(m.plan, action{atNsec: m.atNsec, start: &s})
		m.actors = append(m.actors, s.task.Path)
	}
	slices.Sort(m.actors)
	slices.SortFunc(m.plan, func(a, b action) int {
		return cmp.Or(cmp.Compare(a.atNsec, b.atNsec), cmp.Compare(pathOf(a), pathOf(b)))
	})
	return m
}

func pathOf(a action) string {
	if a.start == nil {
		return ""
	}
	return a.start.task.Path
}
