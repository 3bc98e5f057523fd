// Package headroom judges forecasts of what services will use: those of policy/headroom, and those of other systems, on
// drawn or recorded loads. Each window of each task is shown to all of them; at each hour (and for the next window at each
// window) they say what the tasks will use at most until a horizon, and are held to what then happened.
//
// What counts as failure, written down before the first run on reported seeds:
//
//   - With its defaults the policy is exceeded in more than 1 % of the windows of any horizon: best-effort work would have had
//     to give way in them.
//   - Once each forecaster is scaled by the one factor that keeps it within 1 % on development seeds, another one that keeps
//     within 1 % on the reported seeds, too, offers more at any horizon.
//
// Seeds below 1000 are for development. What beats the policy is in the table.
package headroom

import "math"

// The time of a trace goes by steps: five minutes, as the published traces have it.
const (
	stepNsec = int64(300e9)
	perHour  = 12
	perDay   = 24 * perHour
)

// Node is the load of the tasks of one machine, step by step. Trace files become one, too.
type Node struct {
	Name  string
	Tasks []Series
}

// Series is what one task used, in CPUs, from some midnight on; NaN where nobody knows.
type Series struct {
	Name  string
	Limit float64 // its quota, which it never exceeds
	CPU   []float64
}

// horizons are for how many steps a forecast is to hold.
var horizons = [...]struct {
	name  string
	steps int
}{{"next window", 1}, {"1h", perHour}, {"6h", 6 * perHour}, {"24h", perDay}}

const numHorizons = len(horizons)

// capacity is what all tasks may use together: the machine, for this experiment.
func (n *Node) capacity() (sum float64) {
	for i := range n.Tasks {
		sum += n.Tasks[i].Limit
	}
	return sum
}

// steps is how long the node was watched.
func (n *Node) steps() int {
	least := math.MaxInt
	for i := range n.Tasks {
		least = min(least, len(n.Tasks[i].CPU))
	}
	return least
}

// total is what all tasks used in a step; NaN where one is not known.
func (n *Node) total(step int) (sum float64) {
	for i := range n.Tasks {
		sum += n.Tasks[i].CPU[step]
	}
	return sum
}
