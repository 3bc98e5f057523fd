package cgrouptest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// testListRemembers: a driver that has walked the tree before, and lists only what changed,
// finds what a driver finds that sees it for the first time; also where a group came for
// each one that went, so that the number of links stays.
func testListRemembers(t *testing.T, b Bed) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	d := driver(t, b)
	top := ownGroup(t, b, d, "walks")
	list := func(d cgroup.Driver) []string {
		t.Helper()
		all, err := d.List()
		must(t, err)
		return slices.DeleteFunc(all, func(path string) bool { return !strings.HasPrefix(path, top+"/") })
	}
	var have []string
	t.Cleanup(func() {
		slices.Sort(have)
		for _, path := range slices.Backward(have) {
			removeGroup(t, b, d, path)
		}
	})
	make1 := func() {
		parent := top
		if len(have) > 0 && rng.IntN(2) == 0 {
			parent = have[rng.IntN(len(have))]
		}
		path := parent + "/" + string(rune('a'+rng.IntN(26)))
		if len(parent) < len(top)+6 && !slices.Contains(have, path) {
			must(t, d.Mkdir(path))
			have = append(have, path)
		}
	}
	remove1 := func() {
		if len(have) == 0 {
			return
		}
		i := rng.IntN(len(have))
		if path := have[i]; !slices.ContainsFunc(have, func(p string) bool { return strings.HasPrefix(p, path+"/") }) {
			must(t, d.Rmdir(path))
			have = slices.Delete(have, i, i+1)
		}
	}
	for round := range 60 {
		for range rng.IntN(3) {
			make1()
		}
		for range rng.IntN(3) {
			remove1()
			if rng.IntN(2) == 0 {
				make1()
			}
		}
		want := list(driver(t, b))
		if got := list(d); !slices.Equal(got, want) || len(want) != len(have) {
			t.Fatalf("seed %d, round %d: %d groups there\n found %v\n    not %v", seed, round, len(have), got, want)
		}
		below, err := d.Descendants(top)
		if err != nil || !slices.Equal(below, want) {
			t.Fatalf("seed %d, round %d: below %v, %v", seed, round, below, err)
		}
	}
}
