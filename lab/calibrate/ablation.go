package calibrate

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/commensal-io/commensal/twin/machine"
)

// Beside is how four cores of a web-search leaf fare beside sixteen of a batch program, and how the batch
// program does.
type Beside struct {
	Batch string  `json:"batch"`
	At    string  `json:"at"`   // what the batch program has
	CPI   float64 `json:"cpi"`  // of the leaf, in reference cycles, relative to alone
	Kept  float64 `json:"kept"` // of the batch program's instructions a second with all ways and no level
}

// Pool is how much longer instructions take of a pool of 32 CPUs of 16 cores that serves requests of 1 ms.
type Pool struct {
	Utilisation float64 `json:"utilisation"`
	Slower      float64 `json:"slower"`
}

// Ablated is what one set of terms makes of the headline situations, and of what was measured.
type Ablated struct {
	Terms    string   `json:"terms"`
	Beside   []Beside `json:"beside"`
	Pool     []Pool   `json:"pool"`
	Measured []Curve  `json:"measured"`
}

// Ablation says what each term changes.
type Ablation struct {
	Rows []Ablated `json:"rows"`
}

// batches are the neighbours, and helds what they may have; the first is everything.
var (
	batches = []string{"stream", "lbm", "batch-analytics"}
	helds   = []struct {
		name    string
		ways    uint32
		percent int
	}{{"all", 0, 0}, {"2 ways", 3, 0}, {"MBA 10 %", 0, 10}, {"MBA 40 %", 0, 40}}
	utilisations = []float64{0.30, 0.45, 0.61}
)

// Ablate plays the headline situations under each term alone, under all and under none.
func Ablate() (*Ablation, error) {
	a := &Ablation{}
	for _, p := range terms() {
		row, err := p.ablate()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		a.Rows = append(a.Rows, *row)
	}
	return a, nil
}

func (p *physics) ablate() (*Ablated, error) {
	row := &Ablated{Terms: p.name}
	alone, err := beside{service: "web-search-leaf", under: p}.play()
	if err != nil {
		return nil, err
	}
	for _, batch := range batches {
		free := 0.0
		for _, h := range helds {
			o, err := beside{service: "web-search-leaf", batch: batch, ways: h.ways, percent: h.percent, under: p}.play()
			if err != nil {
				return nil, err
			}
			if free == 0 {
				free = o.batch
			}
			row.Beside = append(row.Beside, Beside{batch, h.name, o.refCPI / alone.refCPI, o.batch / free})
		}
	}
	for _, u := range utilisations {
		slower, err := p.pool(u)
		if err != nil {
			return nil, err
		}
		row.Pool = append(row.Pool, Pool{u, slower})
	}
	shares, traffic, err := p.coRunner()
	if err != nil {
		return nil, err
	}
	row.Measured = []Curve{shares, traffic}
	for _, play := range []func() (Curve, error){p.oneCore, p.sixCores, p.fullLoad} {
		c, err := play()
		if err != nil {
			return nil, err
		}
		row.Measured = append(row.Measured, c)
	}
	return row, nil
}

// pool returns how much longer instructions take on a pool that is used to a share: requests that take longer use more
// of it, so that what is asked for is searched.
func (p *physics) pool(utilisation float64) (slower float64, err error) {
	low, high := utilisation/2, utilisation
	for range 9 {
		asked := (low + high) / 2
		c := machine.Skylake()
		c.Sockets = 1
		c = p.on(c)
		b, err := newBench(c)
		if err != nil {
			return 0, err
		}
		const each = 1e-3
		task, _ := b.add(machine.TaskConfig{
			Name: "pool", Threads: 64, CPI: 1, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}},
			Requests: &machine.Requests{PerSecond: asked * float64(c.CPUs()) / each, Instructions: each * c.Hz, Variation: 1},
		})
		r := b.over(500e6, 8e9, task)
		if b.err != nil {
			return 0, b.err
		}
		slower = r[0].cycles/r[0].instructions - 1
		if r[0].refCycles/c.Hz/float64(c.CPUs()) < utilisation {
			low = asked
		} else {
			high = asked
		}
	}
	return slower, nil
}

// WriteText writes the tables for people.
func (a *Ablation) WriteText(w io.Writer) error {
	for i, batch := range batches {
		fmt.Fprintf(w, "Four cores of a web-search leaf beside sixteen of %s: its CPI relative to alone (what the batch work keeps)\n", batch)
		var heads []string
		for _, h := range helds {
			heads = append(heads, h.name)
		}
		err := a.table(w, heads, func(r *Ablated, j int) string {
			b := &r.Beside[i*len(helds)+j]
			return fmt.Sprintf("%.2f (%.0f %%)", b.CPI, 100*b.Kept)
		})
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "Instructions of a pool of 32 CPUs of 16 cores, requests of 1 ms, take longer by, at a utilisation of")
	var heads []string
	for _, u := range utilisations {
		heads = append(heads, fmt.Sprintf("%.0f %%", 100*u))
	}
	if err := a.table(w, heads, func(r *Ablated, j int) string { return fmt.Sprintf("%.1f %%", 100*r.Pool[j].Slower) }); err != nil {
		return err
	}
	for i := range a.Rows[0].Measured {
		c := &a.Rows[0].Measured[i]
		fmt.Fprintf(w, "%s, %s; by %s\n%s\n", c.Name, c.Unit, c.X, c.Source)
		var heads []string
		for _, p := range c.Points {
			heads = append(heads, fmt.Sprintf("%s: %.4g (%s)", p.At, p.Published, p.Use))
		}
		err := a.table(w, heads, func(r *Ablated, j int) string {
			p := &r.Measured[i].Points[j]
			return fmt.Sprintf("%.3g (%+.0f %%)", p.Twin, 100*p.Error())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Ablation) table(w io.Writer, heads []string, cell func(r *Ablated, j int) string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  terms")
	for _, h := range heads {
		fmt.Fprint(t, "\t", h)
	}
	fmt.Fprintln(t)
	for i := range a.Rows {
		fmt.Fprint(t, "  ", a.Rows[i].Terms)
		for j := range heads {
			fmt.Fprint(t, "\t", cell(&a.Rows[i], j))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// Judged is how far the twin under a set of terms is from what was measured and nothing was chosen by.
func (r *Ablated) Judged() Spread {
	var all []Point
	for i := range r.Measured {
		all = append(all, r.Measured[i].Points...)
	}
	return spread(all, Judged)
}

// finite says whether all figures are numbers.
func (r *Ablated) finite() bool {
	for _, b := range r.Beside {
		if math.IsNaN(b.CPI+b.Kept) || math.IsInf(b.CPI+b.Kept, 0) {
			return false
		}
	}
	return true
}
