package scenarios

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Waits lists the scenes in which a service waits for a CPU.
func Waits() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return !strings.HasPrefix(name, "wait-") })
}

// guilty are the tasks that hurt the service in a scene of waiting, and that may be held.
var guilty = map[string][]string{
	"wait-equal": {"hog"}, "wait-steady": {"hog"}, "wait-rhythm": {"hog"}, "wait-turns": {"one", "two"}, "wait-equals": {"crowd"}, "wait-slices": {"hog"}, "wait-beside": {"hog"}, "wait-first": {"hog"}, "wait-stolen": {"hog"},
}

// Guilty returns the tasks of a scene of waiting that are to be held, by their names there; none where nobody is.
func Guilty(name string) []string { return guilty[name] }

// Vary draws the figures of a scene of waiting anew: the service's load, the antagonists' threads and rhythm, and how
// many bystanders there are and what they use. What the scene is about stays.
func Vary(name string, seed uint64) (text []byte, ok bool) {
	b, ok := Find(name)
	if !ok {
		return nil, false
	}
	r := rand.New(rand.NewPCG(seed, 0x76617279))
	between := func(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
	return []byte(strings.NewReplacer(
		"rate: 250", fmt.Sprintf("rate: %.0f", between(120, 500)),
		"threads: 8, program: compute", fmt.Sprintf("threads: %.0f, program: compute", between(4, 12)),
		"count: 3", fmt.Sprintf("count: %.0f", between(1, 4)),
		"cpus: 0.3}", fmt.Sprintf("cpus: %.2f}", between(0.05, 0.6)),
		"for: 8s", fmt.Sprintf("for: %.0fs", between(3, 15)), "for: 6s", fmt.Sprintf("for: %.0fs", between(2, 12)),
		"for: 2ms", fmt.Sprintf("for: %.0fms", between(1, 4)), "for: 6ms", fmt.Sprintf("for: %.0fms", between(3, 9)),
	).Replace(string(b))), true
}
