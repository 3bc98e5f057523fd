package outlier

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// table2 has CPI²'s own values.
var table2 = Params{RequiredCPUUsage: 0.25, Sigmas: 2, Violations: 3, WindowNsec: 300e9, MinRise: [model.NumSources]float64{model.SourceSlowdown: 0.5}}

func TestSection41_TwoSigma(t *testing.T) {
	// Figure 7: mean 1.8, sigma 0.16.
	web := &model.Spec{Source: model.SourceCPI, Mean: 1.8, StdDev: 0.16}
	if got := table2.Threshold(web); math.Abs(got-2.12) > 1e-12 {
		t.Errorf("threshold %v, want 2.12", got)
	}
	quiet := &model.Spec{Source: model.SourceSlowdown, Mean: 1.01, StdDev: 0.005}
	if got := table2.Threshold(quiet); math.Abs(got-1.51) > 1e-12 {
		t.Errorf("threshold of a quiet node %v, want 1.51", got)
	}
	noisy := &model.Spec{Source: model.SourceSlowdown, Mean: 2, StdDev: 1}
	if got := table2.Threshold(noisy); got != 4 {
		t.Errorf("threshold of a noisy node %v, want 4", got)
	}
}

func TestSection41_ThreeInFiveMinutes(t *testing.T) {
	const minute = int64(60e9)
	tests := []struct {
		name string
		at   []int64 // minutes
		now  int64
		want bool
	}{
		{"two", []int64{0, 1}, 1, false},
		{"three in a row", []int64{0, 1, 2}, 2, true},
		{"three within five minutes", []int64{0, 2, 4}, 4, true},
		{"the first is five minutes old", []int64{0, 2, 5}, 5, false},
		{"four, of which three count", []int64{0, 3, 4, 6}, 6, true},
		{"three, long ago", []int64{0, 1, 2}, 60, false},
		{"none", nil, 0, false},
	}
	for _, tt := range tests {
		var f Flags
		for _, m := range tt.at {
			f.Flag(&table2, 1000*minute+m*minute)
		}
		if got := f.Anomalous(&table2, 1000*minute+tt.now*minute); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		if len(f.AtNsec) > table2.Violations {
			t.Errorf("%s: keeps %d", tt.name, len(f.AtNsec))
		}
		f.Clear()
		if f.Recent(&table2, 1000*minute) != 0 {
			t.Errorf("%s: remembers after Clear", tt.name)
		}
	}
}

func observation(cpu, cpi float64) *model.TaskObservation {
	o := &model.TaskObservation{CPU: model.Known(cpu), ThrottledKnown: true}
	o.Signals[model.SourceCPI] = model.Known(cpi)
	return o
}

func slow(cpu, raw, net float64) *model.TaskObservation {
	o := &model.TaskObservation{CPU: model.Known(cpu), ThrottledKnown: true}
	o.Raw[model.SourceSlowdown] = model.Known(raw)
	o.Signals[model.SourceSlowdown] = model.Known(net)
	return o
}

func TestSection41_Judge(t *testing.T) {
	cpi := &model.Spec{Source: model.SourceCPI, Mean: 1.8, StdDev: 0.16}
	sd := &model.Spec{Source: model.SourceSlowdown, Mean: 1.1, StdDev: 0.1}
	throttled, unknown, lost, noCPU := slow(1, 9, 9), slow(1, 9, 9), observation(1, 1), observation(1, 9)
	throttled.Throttled = true
	unknown.ThrottledKnown = false
	lost.Signals[model.SourceCPI] = model.Missing(model.GoneBackwards)
	noCPU.CPU = model.Missing(model.Fresh)
	cpiThrottled := observation(1, 3)
	cpiThrottled.Throttled = true
	tests := []struct {
		name   string
		src    model.Source
		spec   *model.Spec
		o      *model.TaskObservation
		want   Verdict
		usable bool
	}{
		{"normal", model.SourceCPI, cpi, observation(1, 2.1), Good, true},
		{"outlier", model.SourceCPI, cpi, observation(1, 2.13), Outlier, true},
		{"exactly the threshold", model.SourceCPI, &model.Spec{Mean: 1, StdDev: 0.5}, observation(1, 2), Good, true},
		{"case 3: below the floor", model.SourceCPI, cpi, observation(0.249, 10), BelowFloor, false},
		{"at the floor", model.SourceCPI, cpi, observation(0.25, 10), Outlier, true},
		{"no spec yet", model.SourceCPI, nil, observation(1, 10), NoSpec, true},
		{"the counter went back", model.SourceCPI, cpi, lost, NoSignal, false},
		{"no CPU reading", model.SourceCPI, cpi, noCPU, NoSignal, false},
		{"CPI keeps throttled windows", model.SourceCPI, cpi, cpiThrottled, Outlier, true},
		{"slowdown normal", model.SourceSlowdown, sd, slow(1, 1.5, 1.4), Good, true},
		{"slowdown outlier", model.SourceSlowdown, sd, slow(1, 4, 2), Outlier, true},
		{"queues behind itself", model.SourceSlowdown, sd, slow(1, 4, 1.2), SelfQueueing, true},
		{"throttled by its own quota", model.SourceSlowdown, sd, throttled, OwnThrottling, false},
		{"throttling unknown", model.SourceSlowdown, sd, unknown, NoSignal, false},
	}
	for _, tt := range tests {
		if got := Judge(&table2, tt.src, tt.spec, tt.o); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if got := Usable(&table2, tt.src, tt.o); got != tt.usable {
			t.Errorf("%s: usable %v", tt.name, got)
		}
	}
	for v := NoSignal; v <= Outlier; v++ {
		if v.String() == "" || v.Evidence() != (v == Good || v == Outlier) {
			t.Errorf("verdict %d: %q, evidence %v", v, v, v.Evidence())
		}
	}
}

// Each verdict has a name for programs, a text and a word or two for people, all of them
// different; names and the numbers of earlier records are read back, and nothing else is.
func TestVerdictNames(t *testing.T) {
	seen := map[string]bool{}
	for v := NoSignal; v <= Outlier; v++ {
		b, err := json.Marshal(v)
		if err != nil || b[0] != '"' || seen[string(b)] || seen[v.String()+"."] || seen[v.Short()+":"] {
			t.Errorf("%s, %q, %q: %v", b, v, v.Short(), err)
		}
		seen[string(b)], seen[v.String()+"."], seen[v.Short()+":"] = true, true, true
		for _, text := range []string{string(b), strconv.Itoa(int(v))} {
			var back Verdict
			if err := json.Unmarshal([]byte(text), &back); err != nil || back != v {
				t.Errorf("%s: %v, %v", text, back, err)
			}
		}
	}
	for _, bad := range []string{`"fine"`, "7", "-1", "1.5", "{}", `"`} {
		var v Verdict
		if err := json.Unmarshal([]byte(bad), &v); err == nil {
			t.Errorf("%s is %v", bad, v)
		}
	}
}

// A job whose own work takes long hardly feels a rise that is much for one whose work is short.
func TestRiseInRuns(t *testing.T) {
	p := Params{Sigmas: 2}
	p.MinRise[model.SourceWait], p.MinRuns[model.SourceWait] = 0.2, 3
	for _, c := range []struct {
		source             model.Source
		mean, stddev, runs float64
		want               float64
	}{
		{model.SourceWait, 0.3, 0.05, 0.05, 0.5}, // 3 x 0.05 is less than 0.2
		{model.SourceWait, 0.3, 0.05, 1, 3.3},
		{model.SourceWait, 0.3, 2, 1, 4.3},
		{model.SourceWait, 0.3, 0.05, 0, 0.5},       // a spec from elsewhere does not know it
		{model.SourceSlowdown, 0.3, 0.05, 100, 0.4}, // nor do other signals ask for it
	} {
		spec := model.Spec{Source: c.source, Mean: c.mean, StdDev: c.stddev, RunMean: c.runs}
		if got := p.Threshold(&spec); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: threshold %v", c, got)
		}
	}
}

// Who usually waits little suffers when it waits some times as long, below what is much for who waits a lot; next to nothing is nothing for anybody.
func TestRiseInTimes(t *testing.T) {
	p := Defaults()
	p.MinRise[model.SourceIO], p.MinTimes[model.SourceIO], p.LeastRise[model.SourceIO] = 0.1, 2, 0.02
	for _, c := range []struct {
		source             model.Source
		mean, stddev, want float64
	}{
		{model.SourceIO, 0.004, 0.003, 0.024},
		{model.SourceIO, 0.02, 0.003, 0.06},
		{model.SourceIO, 0.02, 0.03, 0.08}, // its spread is more
		{model.SourceIO, 0.2, 0.01, 0.3},
		{model.SourceMemory, 0.004, 0.003, 0.104},
	} {
		if got := p.Threshold(&model.Spec{Source: c.source, Mean: c.mean, StdDev: c.stddev}); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: threshold %v", c, got)
		}
	}
	p.MinTimes[model.SourceIO] = 0
	if got := p.Threshold(&model.Spec{Source: model.SourceIO, Mean: 0.004}); math.Abs(got-0.104) > 1e-9 {
		t.Errorf("without min_times: threshold %v", got)
	}
}
