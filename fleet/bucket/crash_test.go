package bucket_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/bucket/buckettest"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the crash test; 0: some fixed ones and a new one")

// Whatever a bucket does with requests, and at whichever of them the hub ends, in any order: each row that was committed is in exactly one file that
// counts, of bucket and folder together, at any time; and once the bucket is well again all are in it, each once, and the folder is empty.
// What this does not play: a bucket that loses what it had verified, and a clock that goes back.
func TestCrashes(t *testing.T) {
	seeds := []uint64{1, 2, uint64(time.Now().UnixNano())} //nolint:gosec // any seed will do
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("go test ./fleet/bucket -run TestCrashes -args -seed %d", seed)
			play(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func play(t *testing.T, rng *rand.Rand) {
	w := newWorld(t)
	w.mem.Silent = rng.IntN(2) == 0
	var bad float64 // share of requests that go wrong
	faults := 0
	full := false // only what is written goes wrong
	w.mem.Fault = func(what, _ string) buckettest.Fault {
		if full && what != "put" || rng.Float64() >= bad {
			return buckettest.None
		}
		faults++
		return buckettest.Fault(1 + rng.IntN(int(buckettest.NumFaults)-1))
	}
	crashes, failures, rounds := 0, 0, 0
	for step := range 40 {
		w.now = w.now.Add(time.Duration(rng.IntN(180)) * time.Minute)
		for range rng.IntN(4) {
			at := w.now.Add(-time.Duration(rng.IntN(180)) * time.Minute)
			if rng.IntN(2) == 0 { // a node that was cut off
				at = w.now.Add(-time.Duration(rng.IntN(5*24)) * time.Hour)
			}
			w.sends(fmt.Sprintf("n%d", rng.IntN(3)), at, 1+rng.IntN(90))
		}
		if rng.IntN(5) > 0 {
			if err := w.s.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(4) > 0 {
			w.compacts()
		}
		bad, full = []float64{0, 0.02, 0.1, 0.4, 1}[rng.IntN(5)], rng.IntN(2) == 0
		for range 1 + rng.IntN(3) {
			w.now = w.now.Add(time.Minute)
			rounds++
			crashed, err := w.round()
			if err != nil {
				failures++
			}
			w.check(fmt.Sprintf("step %d", step))
			if crashed {
				crashes++
			}
			if crashed || rng.IntN(8) == 0 {
				w.start()
			}
			w.mem.Settle(rng.IntN(3))
			w.check(fmt.Sprintf("step %d, later", step))
		}
	}
	bad = 0
	w.mem.Settle(-1)
	w.check("all that was late is done")
	if err := w.s.Commit(); err != nil {
		t.Fatal(err)
	}
	for range 5 { // what the folder has no more is swept by the hourly look
		w.now = w.now.Add(2 * day)
		w.compacts()
		w.mustRound()
	}
	got, _ := w.fetched(t.TempDir())
	w.compare("in the end", got, w.committed())
	if left := w.local(); len(left) > 0 {
		t.Errorf("the folder still has %v", left)
	}
	var names []string
	for _, e := range w.named() {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	there := slices.DeleteFunc(w.mem.Names(), func(name string) bool { return strings.Contains(name, "/_") || strings.HasPrefix(name, "_") })
	if !slices.Equal(there, names) {
		t.Errorf("the bucket has %d files, and manifests name %d", len(there), len(names))
	}
	t.Logf("%d batches; %d rounds, of which %d ended in a crash and %d failed; %d faults; %d files", len(w.stream), rounds, crashes, failures, faults, len(names))
	if crashes < 3 || failures < 3 || len(names) < 50 {
		t.Error("this tests nothing")
	}
}
