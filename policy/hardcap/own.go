package hardcap

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/policy"
)

// leastLoad is from how many times what it uses while its target is met a victim that misses it has more
// to do. Neighbours that take cache or memory bandwidth make the same work take longer, too, and its
// threads then wait for each other; but half as much again is more than they do.
const leastLoad = 1.5

// ownLoad says of a victim that misses its target that this is its own doing, "" where it is not, or
// nobody can tell: its threads wait for each other more than usual, which accounts for more than the
// waiting for others does, while it uses clearly more CPU than while the target is met. A neighbour
// that happens to be busy at such a time, as at any peak, is not accused by correlation.
func (w *waiting) ownLoad(in *policy.View, inc *Incident) string {
	if w == nil || !inc.Source.Row().Targeted {
		return ""
	}
	bad, good := w.bad, w.good
	now, usual := in.History.MeanUsage(inc.Victim, bad.at), in.History.MeanUsage(inc.Victim, good.at)
	others, _ := excess(slices.Clone(bad.charged), good.charged) // which works in place, and blame needs them whole
	if bad.own-good.own <= others || usual == 0 || now < leastLoad*usual {
		return ""
	}
	return fmt.Sprintf("nobody is accused: it is its own load. It uses %.2f CPU, %.2f while its target is met, and its threads wait for each other %.0f ms a second, else %.0f",
		now, usual, bad.own/1e6, good.own/1e6)
}
