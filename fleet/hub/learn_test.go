package hub

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unique"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// What is learned comes back as it was kept, job by job; what earlier versions kept comes back, too, but for the tasks' samples, and what is cut off is said to be.
func TestWhatIsLearnedIsKept(t *testing.T) {
	h, err := New(testConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	h.learner = spec.New()
	h.learner.Passed = 3
	rng, p := rand.New(rand.NewPCG(3, 3)), spec.Defaults()
	for node := range 6 {
		b := &wire.Batch{Node: fmt.Sprint("n", node), Platform: "cpu", Samples: wire.Samples{Signals: []wire.Signal{{Source: model.SourceCPI, Definition: "d"}, {Source: model.SourceSlowdown, Definition: "e"}}}}
		s := &b.Samples
		for job := range 50 {
			b.Tasks = append(b.Tasks, wire.Task{Path: fmt.Sprint("/", job), Job: fmt.Sprint("job-", job)})
			for range 120 {
				s.Task, s.CPU, s.WallMsec, s.Flags = append(s.Task, uint32(job)), append(s.CPU, 1), append(s.WallMsec, 0), append(s.Flags, wire.Usable) //nolint:gosec // few
				for k := range s.Signals {
					s.Signals[k].Values = append(s.Signals[k].Values, 1+rng.Float32())
				}
			}
		}
		h.learner.Add(&p, b)
		if node == 4 {
			h.learner.Calculate(&p, 1_790_000_000e9)
		}
	}
	if err := h.keepState(7); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(h.learnedFile())
	if err != nil {
		t.Fatal(err)
	}
	first := h.learner.Keep() // version 1 had the jobs in it
	first.Jobs = map[spec.Key]*spec.KeptJob{}
	for k, j := range h.learner.Jobs {
		first.Jobs[k] = j.Keep(k)
	}
	var old bytes.Buffer
	z, err := zstd.NewWriter(&old)
	if err != nil {
		t.Fatal(err)
	}
	if err := gob.NewEncoder(z).Encode(learned{Version: 1, Count: 7, State: first}); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	var second bytes.Buffer // version 2 had what the jobs are now kept as in memory
	z.Reset(&second)
	enc := gob.NewEncoder(z)
	if err := enc.Encode(learned{Version: 2, Count: 7, State: h.learner.Keep(), Jobs: len(first.Jobs)}); err != nil {
		t.Fatal(err)
	}
	for _, j := range first.Jobs {
		if err := enc.Encode(j); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{"version 3": kept, "version 2": second.Bytes(), "version 1": old.Bytes()} {
		l, state, err := unpack(bytes.NewReader(file))
		if err != nil || l.Count != 7 {
			t.Fatalf("%s: %v, %d", name, err, l.Count)
		}
		ignore := []string{"Period"}
		if name != "version 3" { // of which tasks are counted by another hash
			ignore = append(ignore, "Tallies")
		}
		diff := cmp.Diff(h.learner, state, cmpopts.IgnoreUnexported(spec.State{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(spec.Job{}, ignore...), cmp.Comparer(func(a, b unique.Handle[spec.Kind]) bool { return a == b }), cmp.Transformer("bins", func(s spec.Sketch) string { return fmt.Sprint(s.Bins()) }))
		if diff != "" || len(state.Jobs) != 50 {
			t.Errorf("%s: %s", name, diff)
		}
		if _, _, err := unpack(bytes.NewReader(file[:len(file)/2])); err == nil {
			t.Errorf("%s: half of it is read", name)
		}
	}
}
