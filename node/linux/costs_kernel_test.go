package linux

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
)

// TestCostOfMeans prints how long each means takes from the wish to the kernel's answer, by turns with a control step that changes nothing
// (docs/RIG.md; `make rig-test PKG=./node/linux RUN=TestCostOfMeans ARGS=-v`). What counts are the ratios: an emulated machine has no cost of
// hardware.
func TestCostOfMeans(t *testing.T) {
	b := newClassBed(t, "costs")
	nodes, err := numa.ReadTopology(b.fs)
	if err != nil || len(nodes.MemoryNodes()) < 2 {
		t.Skip("this machine has no two memory nodes")
	}
	child := testchild.Start(t, "grow").Await("ready")
	if err := b.cg.MovePID(b.second, child.PID()); err != nil {
		t.Fatal(err)
	}
	child.Say("now")
	child.Await("grown")
	b.observe(0)
	done := func(c model.Change) {
		t.Helper()
		b.seq++
		c.Seq = b.seq
		var got []model.Result
		b.h.Apply([]model.Change{c})
		for end := time.Now().Add(30 * time.Second); len(got) == 0; got = b.h.Results(got) {
			if time.Sleep(100 * time.Microsecond); time.Now().After(end) {
				t.Fatalf("no answer to %+v", c)
			}
		}
		if got[0].Kind != model.Applied {
			t.Fatalf("%+v", got[0])
		}
	}
	b.ask(model.Applied, limitOf(model.Set, model.Level(20)), b.into(b.first)) // the class stands meanwhile
	moved, list := 0.0, nodes.MemoryNodes()
	means := []struct {
		name string
		do   func(turn int)
	}{
		{"a control step that changes nothing", func(int) { b.observe(model.WindowStart); b.h.Apply(nil) }},
		{"a level of memory bandwidth, in one domain", func(turn int) {
			done(limitOf(model.Set, model.Level(int64(10+10*(turn%2)))))
		}},
		{"a task into a class", func(turn int) { done(b.into(b.second)) }},
		{"and out of it", func(turn int) { done(b.outOf(b.second)) }},
		{"all pages of a task to the other node", func(turn int) {
			done(model.Change{Target: model.OfTask(b.tasks[b.second].Num), Kind: model.Run, Value: model.Pages(0, list[turn%2])})
			moved += growBytes
		}},
	}
	took := make([][]float64, len(means))
	for turn := range 4 {
		for i := range means {
			begin := time.Now()
			means[i].do(turn)
			took[i] = append(took[i], float64(time.Since(begin).Nanoseconds())/1e6)
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "median of %d turns; pages: %d MiB a turn\n", len(took[0]), growBytes>>20)
	floor := 0.0
	for i := range means {
		slices.Sort(took[i])
		median := took[i][len(took[i])/2]
		if i == 0 {
			floor = median
		}
		fmt.Fprintf(&text, "%-44s %9.2f ms %7.1f x\n", means[i].name, median, median/floor)
		if i == len(means)-1 {
			fmt.Fprintf(&text, "%-44s %9.0f ms %7.0f x\n", "the same, of 1 GiB", median*(1<<30)/growBytes, median*(1<<30)/growBytes/floor)
		}
	}
	t.Log("\n" + text.String())
	if moved == 0 {
		t.Error("nothing was moved")
	}
}
