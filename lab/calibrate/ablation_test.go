package calibrate

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/twin/machine"
)

// The first row is the model of the other tables, each term changes something of what it is about, and what was
// measured says which terms are nearer.
//
// Not verified: the size of a term's effect beside services, of which nothing was measured.
func TestAblation(t *testing.T) {
	a, err := Ablate()
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]*Ablated{}
	for i := range a.Rows {
		r := &a.Rows[i]
		rows[r.Terms] = r
		if !r.finite() || len(r.Beside) != len(batches)*len(helds) || len(r.Pool) != len(utilisations) {
			t.Errorf("%s: %+v", r.Terms, r)
		}
		t.Logf("%s: %d judged points, median error %.3f, worst %.3f", r.Terms, r.Judged().Points, r.Judged().Median, r.Judged().Worst)
	}
	none, all := &a.Rows[0], rows["all of these"]
	alone, err := beside{service: "web-search-leaf"}.play()
	if err != nil {
		t.Fatal(err)
	}
	both, err := beside{service: "web-search-leaf", batch: batches[0]}.play()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := none.Beside[0].CPI, both.cpi/alone.cpi; math.Abs(got-want) > 1e-9 {
		t.Errorf("without a term the leaf's relative CPI is %v, in the other tables %v", got, want)
	}
	for name, r := range rows {
		if r != none && same(r, none) {
			t.Errorf("%s changes nothing", name)
		}
	}
	worst := func(r *Ablated, curve int) float64 { return spread(r.Measured[curve].Points, Fitted, Judged).Worst }
	if worst(all, oneCore) > 0.08 || worst(none, oneCore) < 0.4 {
		t.Errorf("one core at MBA levels is %.3f off by measured clocks, %.3f by a linear reading", worst(all, oneCore), worst(none, oneCore))
	}
	if worst(all, traffic) > 0.08 || worst(all, sixCores) > 0.05 {
		t.Errorf("beside a victim five cores at MBA levels are %.3f off, six of another CPU %.3f", worst(all, traffic), worst(all, sixCores))
	}
	for name, r := range rows { // of the co-runner only the order is held: nothing, 20 %, 10 %
		if p := r.Measured[shares].Points; p[0].Twin >= min(p[1].Twin, p[2].Twin) || max(p[1].Twin, p[2].Twin) >= min(p[3].Twin, p[4].Twin) {
			t.Errorf("%s: less of STREAM does not help who waits for memory: %+v", name, p)
		}
	}
	full := func(r *Ablated, i int) float64 { return r.Measured[fullLoad].Points[i].Error() }
	for i := range none.Measured[fullLoad].Points {
		if i < 2 && (math.Abs(full(none, i)) > 0.1 || full(rows["refuted: a queue of 22 lines a channel"], i) > -0.25) {
			t.Errorf("at full load latency is %.3f off, with a queue of 22 lines a channel %.3f, for which that is no part of all", full(none, i), full(rows["refuted: a queue of 22 lines a channel"], i))
		}
	}
	var out bytes.Buffer
	if err := a.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"all of these", "MBA 10 %", "refuted", "282.7"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the tables do not say %q:\n%s", want, out.String())
		}
	}
}

// The curves of a row.
const (
	shares = iota
	traffic
	oneCore
	sixCores
	fullLoad
)

// same says whether two rows agree in everything.
func same(a, b *Ablated) bool {
	apart := func(x, y float64) bool { return math.Abs(x-y) > 1e-6 }
	for i := range a.Beside {
		if apart(a.Beside[i].CPI, b.Beside[i].CPI) || apart(a.Beside[i].Kept, b.Beside[i].Kept) {
			return false
		}
	}
	for i := range a.Pool {
		if apart(a.Pool[i].Slower, b.Pool[i].Slower) {
			return false
		}
	}
	for i := range a.Measured {
		for j := range a.Measured[i].Points {
			if apart(a.Measured[i].Points[j].Twin, b.Measured[i].Points[j].Twin) {
				return false
			}
		}
	}
	return true
}

// No terms are no change, and those of Published are not the default.
func TestTerms(t *testing.T) {
	c := machine.Skylake()
	if (&terms()[0]).on(c).Physics != c.Physics || c.Physics != (machine.Physics{}) {
		t.Errorf("the model of the other tables has terms: %+v", c.Physics)
	}
	if machine.Published(c).Physics == c.Physics {
		t.Error("what was published adds nothing")
	}
}
