package headroom

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// flat is a node of one task that uses one CPU of four, and two CPUs at noon.
func flat(days int) *Node {
	s := Series{Name: "web", Limit: 4, CPU: make([]float64, days*perDay)}
	for i := range s.CPU {
		if s.CPU[i] = 1; i%perDay/perHour == 12 {
			s.CPU[i] = 2
		}
	}
	return &Node{Name: "flat", Tasks: []Series{s}}
}

// Each forecaster says of a plain load what its documents say that it would.
func TestForecasters(t *testing.T) {
	n := flat(8)
	want := map[string][2]float64{ // at midnight: for the next window, and through the day
		"last value": {1, 1}, "Crane dsp, max value": {1, 2}, "Katalyst N-sigma": {1, 2},
		// One hour of 24 is less than one of 20: p95 is below the noon. Bucket ends.
		"Koordinator": {1.1, 1.1}, "Crane percentile": {1.1 * 1.15, 1.1 * 1.15},
		"commensal": {1.1, 2.2}, "commensal, profile alone": {1.1, 2.2},
	}
	for _, a := range arms {
		f := a.open(n)
		for step := range n.steps() {
			f.see(step, []float64{n.Tasks[0].CPU[step]})
		}
		got := f.say(n.steps() - 1)
		for i, h := range []int{0, numHorizons - 1} {
			if w := want[a.name][i]; got[h] < w*(1-1e-9) || got[h] > w*1.06 {
				t.Errorf("%s, %s: %v, not %v", a.name, horizons[h].name, got[h], w)
			}
		}
	}
}

// Of memory, too, each says of a plain load what it would; a leak goes on by the day.
func TestMemoryForecasters(t *testing.T) {
	n := flat(8)
	for _, a := range memoryArms {
		f := a.open(n)
		for step := range n.steps() {
			f.see(step, []float64{n.Tasks[0].CPU[step]})
		}
		got, want := f.say(n.steps()-1), map[string]float64{"last value": 1, "Crane dsp, max value": 2, "Katalyst N-sigma": 2}[a.name]
		if want == 0 {
			want = 2.2
		}
		if far := got[numHorizons-1]; far < want*(1-1e-9) || far > want*1.06 {
			t.Errorf("%s: %v through the day, not %v", a.name, far, want)
		}
	}
	for i := range n.Tasks[0].CPU {
		n.Tasks[0].CPU[i] = 1 + float64(i)/perDay/10 // a tenth more each day
	}
	f := memoryArms[0].open(n)
	for step := range n.steps() {
		f.see(step, []float64{n.Tasks[0].CPU[step]})
	}
	if got := f.say(n.steps() - 1); got[3] < 1.9*1.1 || got[3] > 2.5 {
		t.Errorf("a leak: %v", got)
	}
}

// Scores of hand-made figures: shares, factors, and windows that nobody knows.
func TestScore(t *testing.T) {
	n := flat(4)
	list := []heard{{{{cpus: 2, peak: 3, actual: []float64{1, 3}}, {cpus: 2, peak: 1, actual: []float64{1, 1}}}}}
	s := score([]*Node{n}, list, 0, 1)
	if s.GaveWay.N != 1 || s.GaveWay.Of != 4 || s.Offered != 0.5 || s.Oracle != 0.5 || s.Covered != 0.5 || s.Error != 0.5 {
		t.Errorf("%+v", s)
	}
	if f, ok := fit([]*Node{n}, list, 0); f != 1.5 || !ok {
		t.Errorf("factor %v, %t", f, ok)
	}
	n.Tasks[0].CPU[3*perDay+5] = math.NaN()
	for _, h := range listen(n, arms) {
		for _, s := range h[0] {
			for _, v := range s.actual {
				if math.IsNaN(v) {
					t.Fatal("a window that nobody knows is judged")
				}
			}
		}
		if len(h[0]) == 0 || len(h[0]) > 2*perDay || len(h[3]) > 24 {
			t.Errorf("%d and %d forecasts", len(h[0]), len(h[3]))
		}
	}
}

// Drawn nodes have what they are drawn for, and the same seed draws the same.
func TestDraw(t *testing.T) {
	holes := 0
	for i := range uint64(10) {
		seed, draw := i/2, []func(uint64) Node{Draw, DrawMemory}[i%2]
		n, again := draw(seed), draw(seed)
		if d := cmp.Diff(n, again, cmpopts.EquateNaNs()); d != "" {
			t.Fatal(d)
		}
		for _, s := range n.Tasks {
			for _, v := range s.CPU {
				if math.IsNaN(v) {
					holes++
				} else if !(v >= 0 && v <= s.Limit) {
					t.Fatalf("%s of seed %d uses %v of %v", s.Name, seed, v, s.Limit)
				}
			}
		}
	}
	if holes == 0 {
		t.Error("no holes")
	}
}

// A trace is averaged by steps and keeps its holes; what is wrong is named by line.
func TestReadTrace(t *testing.T) {
	var b strings.Builder
	b.WriteString("time,task,cpu\n0,a,1\n299,a,3\n600,a,5\n")
	for i := 3; i < 4*perDay; i++ {
		b.WriteString(strings.Join([]string{strconv.Itoa(i * 300), "a", "1"}, ",") + "\n")
	}
	read, err := ReadTrace("t", strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if n := read.Nodes[0]; n.Tasks[0].CPU[0] != 2 || !math.IsNaN(n.Tasks[0].CPU[1]) || n.Tasks[0].CPU[2] != 5 || n.Tasks[0].Limit != 5*1.125 {
		t.Errorf("%+v", n)
	}
	two := strings.ReplaceAll(b.String(), ",a,", ",m/a,") + strings.ReplaceAll(b.String()[len("time,task,cpu\n"):], ",a,", ",n/b,")
	if read, err := ReadTrace("t", strings.NewReader(two)); err != nil || len(read.Nodes) != 2 || read.Nodes[1].Name != "t/n" || read.Nodes[1].Tasks[0].CPU[2] != 5 {
		t.Errorf("two machines: %+v, %v", read, err)
	}
	for text, want := range map[string]string{"": "96", "0,a,1\n": "96", "time,task,cpu\n0,a,x\n": "t:2", "0,m/a,1\n": "96", "0,a\n": "wrong number of fields", "0,a,-1\n": "t:1", "1e99,a,1\n": "t:1", "0,a,NaN\n": "t:1"} {
		if _, err := ReadTrace("t", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A short run is the same each time, names its goals, and refuses development seeds.
func TestRun(t *testing.T) {
	o := Options{Seed: 5000, Quick: true, Traces: []*Traces{{"t", []*Node{flat(6)}}}, MemoryTraces: []*Traces{{"u", []*Node{flat(6), flat(7)}}}, Log: t.Logf}
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Parts) != 4 || len(r.Goals) != 6*numHorizons || r.Parts[3].Nodes != 2 || len(r.Parts[2].Arms) != len(memoryArms) || len(r.Parts[0].Arms) != len(arms) {
		t.Errorf("%d parts, %d goals", len(r.Parts), len(r.Goals))
	}
	one, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := json.Marshal(again); err != nil || string(one) != string(two) {
		t.Errorf("another run is another: %v", err)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "Koordinator") {
		t.Errorf("%v\n%s", err, b.String())
	}
	if _, err := Run(context.Background(), Options{Seed: 7}); err == nil {
		t.Error("a development seed is reported")
	}
}

// The verdict: too many windows fail, and so does another forecaster that offers more within the bound.
func TestGoals(t *testing.T) {
	verdict := func(ours, others float64, gave int) report.Outcome {
		p := Part{Name: "p", Arms: []Arm{{Name: "us"}, {Name: "us too"}, {Name: "others"}}}
		for h := range horizons {
			for a, offered := range []float64{ours, 1, others} {
				s := &p.Arms[a].Horizons[h]
				s.Default.GaveWay.N, s.Default.GaveWay.Of, s.Factor = gave, 1000, 1
				s.Scaled.GaveWay.N, s.Scaled.GaveWay.Of, s.Scaled.Offered = 5, 1000, stat.Number(offered)
			}
		}
		var r Result
		r.ask(&p, true)
		return report.Judge(r.Goals).Outcome
	}
	if verdict(0.6, 0.5, 10) != report.Pass || verdict(0.6, 0.5, 11) != report.Fail || verdict(0.4, 0.5, 10) != report.Fail {
		t.Error("the verdict is not what was written down")
	}
}
