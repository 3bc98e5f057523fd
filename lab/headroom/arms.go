package headroom

import (
	"math"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	forecast "github.com/commensal-io/commensal/policy/headroom"
)

// forecaster is told what all tasks of a node used in a step, and says what they will use at most together through each
// horizon. NaN: not known.
type forecaster interface {
	see(step int, cpu []float64)
	say(step int) [numHorizons]float64
}

// numOurs of the arms are the policy's own: as it is, and without a part of it.
const numOurs = 2

// arm is a forecaster by name.
type arm struct {
	name string
	open func(n *Node) forecaster
}

// arms are the forecasters of CPU, the policy first.
var arms = []arm{
	{"commensal", func(n *Node) forecaster { return openOurs(n, forecast.Defaults()) }},
	{"commensal, profile alone", func(n *Node) forecaster {
		p := forecast.Defaults()
		p.MaxLevel, p.RecentNsec = 1, 0
		return openOurs(n, p)
	}},
	{"last value", func(n *Node) forecaster { return &lastValue{n: n, last: make([]float64, len(n.Tasks))} }},
	// pkg/koordlet/prediction: p95, half-life 12 h, + 10 %; what is reclaimable is the least of what tasks and their sum say.
	{"Koordinator", func(n *Node) forecaster {
		return &histogram{n: n, margin: 0.1, share: 0.95, sum: true, tasks: decaying(len(n.Tasks)+1, 12*perHour, exponential)}
	}},
	// pkg/prediction/percentile: p95 of buckets of 0.1, half-life 24 h, + 15 %.
	{"Crane percentile", func(n *Node) forecaster {
		return &histogram{n: n, margin: 0.15, share: 0.95, tasks: decaying(len(n.Tasks), perDay, linear)}
	}},
	// pkg/prediction/dsp, maxValue estimator: the greatest of seven days at the same time; its margin is 0.
	{"Crane dsp, max value", func(n *Node) forecaster { return &daily{n: n} }},
	// pkg/controller/overcommit/prediction, NSigma: mean and three deviations of each hour of seven days.
	{"Katalyst N-sigma", func(n *Node) forecaster { return &daily{n: n, sigma: true} }},
}

// ours is the policy itself, fed with windows as the engine feeds it.
type ours struct {
	p   forecast.Params
	s   forecast.State
	v   policy.View
	obs model.Observation
	w   policy.Wishes
}

// midnight is when traces begin, by the wall clock.
const midnight = int64(20_000) * 24 * 3600e9

func openOurs(n *Node, p forecast.Params) *ours {
	o := &ours{p: p}
	o.obs = model.Observation{CPUs: int(math.Ceil(n.capacity())), Unmanaged: model.Known(0), Steal: model.Known(0)}
	for i := range n.Tasks {
		t := policy.TaskView{Task: model.Task{Num: model.TaskNum(i + 1), Job: n.Tasks[i].Name, Class: model.LC}}
		k := &t.Knobs[model.CPUBandwidth]
		k.Known, k.Found = true, model.Bandwidth(model.CPUMax{QuotaUsec: int64(n.Tasks[i].Limit * 1e5), PeriodUsec: 100_000})
		k.Now = k.Found
		o.v.Tasks = append(o.v.Tasks, t)
		o.obs.Tasks = append(o.obs.Tasks, model.TaskObservation{Num: t.Task.Num})
	}
	o.v.TakeBackNsec = 1e9
	o.v.Changed = true
	return o
}

func (o *ours) see(step int, cpu []float64) {
	for i := range cpu {
		if o.obs.Tasks[i].CPU = model.Known(cpu[i]); math.IsNaN(cpu[i]) {
			o.obs.Tasks[i].CPU = model.Missing(model.Unavailable)
		}
	}
	o.v.NowNsec, o.v.WallNsec = int64(step+1)*stepNsec, midnight+int64(step+1)*stepNsec-1
	o.v.Window = policy.Window{Closed: true, LengthNsec: stepNsec, Observation: &o.obs}
	o.w.Reset()
	o.s.Step(&o.p, &o.v, &o.w)
	o.v.Changed = false
}

func (o *ours) say(int) (all [numHorizons]float64) {
	for i, h := range o.s.Report().Horizons {
		all[i] = h.LC
	}
	return all
}

// lastValue takes everything to stay as it is.
type lastValue struct {
	n    *Node
	last []float64
}

func (l *lastValue) see(_ int, cpu []float64) {
	for i, v := range cpu {
		if !math.IsNaN(v) {
			l.last[i] = v
		}
	}
}

func (l *lastValue) say(int) (all [numHorizons]float64) {
	for h := range all {
		for _, v := range l.last {
			all[h] += v
		}
	}
	return all
}

// histogram forecasts a percentile of all that was seen, of which the older weighs less: the same at each horizon.
type histogram struct {
	n             *Node
	margin, share float64
	sum           bool // also of the sum of all tasks, which is in force where it is greater
	tasks         []decay
}

func (h *histogram) see(step int, cpu []float64) {
	all := 0.0
	for i, v := range cpu {
		h.tasks[i].add(step, v)
		all += v
	}
	if h.sum {
		h.tasks[len(cpu)].add(step, all)
	}
}

func (h *histogram) say(int) (all [numHorizons]float64) {
	sum := 0.0
	for i := range h.n.Tasks {
		sum += min(h.n.Tasks[i].Limit, h.tasks[i].quantile(h.share)*(1+h.margin))
	}
	if h.sum {
		sum = max(sum, h.tasks[len(h.n.Tasks)].quantile(h.share)*(1+h.margin))
	}
	for i := range all {
		all[i] = sum
	}
	return all
}

// buckets gives a histogram's bucket of a value, and the end of a bucket, as Kubernetes' vertical autoscaler has them.
type buckets struct {
	of  func(v float64) int
	end func(i int) float64
}

var (
	exponential = buckets{
		of:  func(v float64) int { return int(math.Log(v*0.05/0.025+1) / math.Log(1.05)) },
		end: func(i int) float64 { return 0.025 * (math.Pow(1.05, float64(i+1)) - 1) / 0.05 },
	}
	linear = buckets{of: func(v float64) int { return int(v / 0.1) }, end: func(i int) float64 { return float64(i+1) * 0.1 }}
)

// decay is a decaying histogram: a later observation weighs more, so that none has to be changed.
type decay struct {
	buckets
	half    float64 // in steps
	weights []float64
}

func decaying(n int, half float64, b buckets) []decay {
	list := make([]decay, n)
	for i := range list {
		list[i] = decay{buckets: b, half: half}
	}
	return list
}

func (d *decay) add(step int, v float64) {
	if math.IsNaN(v) {
		return
	}
	i := d.of(v)
	for len(d.weights) <= i {
		d.weights = append(d.weights, 0)
	}
	d.weights[i] += math.Exp2(float64(step) / d.half)
}

func (d *decay) quantile(share float64) float64 {
	all, sum := 0.0, 0.0
	for _, w := range d.weights {
		all += w
	}
	for i, w := range d.weights {
		if sum += w; w > 0 && sum >= share*all {
			return d.end(i)
		}
	}
	return 0
}

// daily forecasts from the last seven days: the greatest value at each time of the day, or mean and deviation of each hour.
type daily struct {
	n       *Node
	sigma   bool
	history [][]float64 // by task
	day     [][perDay]float64
	made    int
}

func (d *daily) see(step int, cpu []float64) {
	if d.history == nil {
		d.history, d.day = make([][]float64, len(cpu)), make([][perDay]float64, len(cpu))
	}
	for i, v := range cpu {
		d.history[i] = append(d.history[i], v)
	}
	if step >= d.made && step >= perDay { // once an hour
		d.made = step + perHour
		for i := range cpu {
			d.day[i] = d.model(d.history[i][max(0, step+1-7*perDay):], max(0, step+1-7*perDay))
		}
	}
}

// model works out a task's day from what was seen since a step.
func (d *daily) model(seen []float64, from int) (day [perDay]float64) {
	if !d.sigma {
		for i, v := range seen {
			if at := (from + i) % perDay; v > day[at] { // not where nobody knows
				day[at] = v
			}
		}
		return day
	}
	var n, sum, squares [24]float64
	for i, v := range seen {
		if at := (from + i) % perDay / perHour; !math.IsNaN(v) {
			n[at]++
			sum[at] += v
			squares[at] += v * v
		}
	}
	for i := range day {
		if at := i / perHour; n[at] > 0 {
			mean := sum[at] / n[at]
			day[i] = mean + 3*math.Sqrt(max(0, squares[at]/n[at]-mean*mean))
		}
	}
	return day
}

func (d *daily) say(step int) (all [numHorizons]float64) {
	for i := range d.n.Tasks {
		for h := range all {
			most, steps := 0.0, horizons[h].steps
			for at := step + 1; at <= step+steps; at++ {
				most = max(most, d.day[i][at%perDay])
			}
			all[h] += min(d.n.Tasks[i].Limit, most)
		}
	}
	return all
}
