package cpi2

import (
	"flag"
	"fmt"
	"math"
	"testing"

	"github.com/commensal-io/commensal/engine"
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

// TestLackTable compares the profile relief with and without hard_cap.confirm.by_lack, with misses as the twin counts them and with misses that leave out
// what prefetchers fetch.
func TestLackTable(t *testing.T) {
	first, last := uint64(0), uint64(0)
	if _, err := fmt.Sscanf(*lack, "%d..%d", &first, &last); err != nil {
		t.Skip("asked for with -lack FIRST..LAST")
	}
	if last >= firstCatalogue {
		t.Fatalf("catalogues from %d on are not for development", firstCatalogue)
	}
	arms := []Arm{Arms()[0], Arms()[1], {Name: reliefArm, Mutate: profileRelief}, {Name: "relief, by_lack", Mutate: func(p *engine.Params) {
		profileRelief(p)
		p.Hardcap.Confirm.ByLack = true
	}}}
	for _, of := range []struct {
		name string
		kind kind
	}{{"all misses are counted", usual}, {"prefetches are not", kind{between: usual.between, within: usual.within, demand: true}}} {
		of.kind.counted = true
		list, err := reliefOf(t.Context(), first, int(last-first+1), 30, 2, of.kind, arms)
		if err != nil {
			t.Fatal(err)
		}
		for _, victims := range []struct {
			name string
			list []Catalogue
		}{{"all", list}, {"production", ofProduction(list)}} {
			for k := range arms[1:] {
				fmt.Printf("| %s | %s | %s |", of.name, victims.name, arms[k+1].Name)
				for _, c := range append(reliefColumns, nudgeColumns...) {
					fmt.Printf(" %s |", interval(over(victims.list, k+1, c.figure), c.most, c.decimals+1))
				}
				fmt.Println()
			}
		}
	}
}
