package headroom

import (
	"math"

	"github.com/commensal-io/commensal/lab/stat"
)

// said is one forecast of all tasks together, and what then happened.
type said struct {
	cpus   float64   // that they will use at most, before any factor
	peak   float64   // that they used at most
	actual []float64 // in each window; shared with the others
}

// heard is what one forecaster said of one node, by horizon.
type heard [numHorizons][]said

// listen shows a node to all forecasters and takes down what they say in the second half of the time, in which all windows are
// known. The machine is all that tasks may use, so that more is never forecast.
func listen(n *Node, arms []arm) (all []heard) {
	steps, totals := n.steps(), []float64(nil)
	for step := range steps {
		totals = append(totals, n.total(step))
	}
	known := unknownFrom(totals)
	all = make([]heard, len(arms))
	for a := range arms {
		f := arms[a].open(n)
		cpu := make([]float64, len(n.Tasks))
		for step := range steps {
			for i := range n.Tasks {
				cpu[i] = n.Tasks[i].CPU[step]
			}
			f.see(step, cpu)
			if step < steps/2 {
				continue
			}
			var now *[numHorizons]float64
			for h := range horizons {
				if end := step + horizons[h].steps; h > 0 && step%perHour != 0 || end >= steps || known[step+1] <= end {
					continue
				}
				if now == nil {
					s := f.say(step)
					now = &s
				}
				s := said{cpus: now[h], actual: totals[step+1 : step+1+horizons[h].steps]}
				for _, v := range s.actual {
					s.peak = max(s.peak, v)
				}
				all[a][h] = append(all[a][h], s)
			}
		}
	}
	return all
}

// unknownFrom is, for each step, the first one from there on of which nobody knows.
func unknownFrom(totals []float64) []int {
	next := make([]int, len(totals)+1)
	next[len(totals)] = len(totals)
	for i := len(totals) - 1; i >= 0; i-- {
		if next[i] = next[i+1]; math.IsNaN(totals[i]) {
			next[i] = i
		}
	}
	return next
}

// Score is how forecasts of one horizon did on some nodes, times a factor.
type Score struct {
	// GaveWay is the share of windows in which services used more than was forecast, so that BE would have had to give way.
	GaveWay stat.Share `json:"gave_way"`
	// Offered is what BE was offered, as a share of the machine; Oracle what one who knows the future would have offered.
	Offered stat.Number `json:"offered"`
	Oracle  stat.Number `json:"oracle"`
	// Covered is the share of forecasts that were not exceeded at all.
	Covered stat.Number `json:"covered"`
	// Error is the mean distance of forecasts from the peak, as a share of the mean peak.
	Error stat.Number `json:"error"`
}

// score judges what a forecaster said of nodes of a capacity, times a factor. Nodes count alike, and so do forecasts of a node.
func score(nodes []*Node, list []heard, h int, factor float64) Score {
	var gave, windows int
	var offered, oracle, covered, wrong []float64
	for i := range list {
		all, sum := nodes[i].capacity(), struct{ offered, oracle, covered, wrong, peak float64 }{}
		for _, s := range list[i][h] {
			cpus := min(all, s.cpus*factor)
			for _, v := range s.actual {
				if v > cpus {
					gave++
				}
			}
			windows += len(s.actual)
			if s.peak <= cpus {
				sum.covered++
			}
			sum.offered += all - cpus
			sum.oracle += all - s.peak
			sum.wrong += math.Abs(cpus - s.peak)
			sum.peak += s.peak
		}
		if n := float64(len(list[i][h])); n > 0 {
			offered, oracle, covered = append(offered, sum.offered/n/all), append(oracle, sum.oracle/n/all), append(covered, sum.covered/n)
			wrong = append(wrong, stat.Ratio(sum.wrong, sum.peak))
		}
	}
	return Score{
		GaveWay: stat.ShareOf(gave, windows), Offered: stat.Number(stat.Mean(offered)), Oracle: stat.Number(stat.Mean(oracle)),
		Covered: stat.Number(stat.Mean(covered)), Error: stat.Number(stat.Mean(wrong)),
	}
}

// bound is the share of windows in which BE may have to give way.
const bound = 0.01

// fit returns the least factor, in steps of a hundredth, that keeps a forecaster within the bound; ok is false where even the
// greatest does not.
func fit(nodes []*Node, list []heard, h int) (factor float64, ok bool) {
	low, high := 50, 500 // per cent
	within := func(f int) bool { return score(nodes, list, h, float64(f)/100).GaveWay.Value() <= bound }
	if !within(high) {
		return float64(high) / 100, false
	}
	for low < high {
		if mid := (low + high) / 2; within(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return float64(low) / 100, true
}
