package scenario

import (
	"math"
	"strings"
	"testing"
)

const swept = `version: 1
name: swept
duration: 2s
machine: {sockets: 1}
tasks:
  - {name: a, class: BE, cpi: 1, threads: 4, cpu_max: {cpus: 1}}
  - {name: b, class: BE, count: 2, cpi: 2}
sweep:
  - {key: tasks.a.cpu_max.cpus, values: [1, 2, 4]}
  - {key: tasks.b.cpi, values: [1, 2]}
policies: {mode: off}
expect:
  trends:
    - {task: a, figure: cpu, rises_with: tasks.a.cpu_max.cpus}
    - {task: b, figure: work_per_sec, falls_with: tasks.b.cpi}
`

// A trend is judged along one sweep, once for each value of the others and each task.
func TestTrends(t *testing.T) {
	for text, passed := range map[string]bool{swept: true, strings.Replace(swept, "a, figure: cpu, rises", "a, figure: cpu, falls", 1): false} {
		f, err := Parse("swept.yaml", []byte(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.PlayAll(Typed, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Runs) != 6 || len(res.Checks) != 2+2*3 || res.Passed == nil || *res.Passed != passed {
			t.Fatalf("%d runs, passed %v: %+v", len(res.Runs), res.Passed, res.Checks)
		}
		if c := res.Checks[1]; c.Passed != passed || !strings.HasSuffix(c.What, "with tasks.a.cpu_max.cpus at tasks.b.cpi = 2") || !strings.HasSuffix(c.Got, ", 4") {
			t.Errorf("%+v", c)
		}
		if c := res.Checks[7]; !c.Passed || !strings.HasPrefix(c.What, "work_per_sec of b-2 falls") {
			t.Errorf("%+v", c)
		}
	}
	f, err := Parse("swept.yaml", []byte(swept), Options{Seed: new(uint64), Mode: "observe"})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := f.PlayAll(Typed, false); err != nil || res.Passed != nil || res.Checks != nil {
		t.Errorf("judged in another mode: %+v, %v", res, err)
	}
}

func TestTrendHolds(t *testing.T) {
	slack := 0.1
	for _, c := range []struct {
		values       []float64
		rises, falls bool
	}{
		{[]float64{1, 2, 3}, true, false},
		{[]float64{3, 2, 1}, false, true},
		{[]float64{1, 2, 1.9, 3}, true, false},
		{[]float64{1, 2, 1.7, 3}, false, false},
		{[]float64{1, 1.05, 1}, false, false},
		{[]float64{-2, -1}, true, false},
		{[]float64{1, math.NaN(), 2}, false, false},
		{[]float64{1}, false, false},
		{nil, false, false},
	} {
		rises, falls := Trend{RisesWith: "k", Slack: &slack}, Trend{FallsWith: "k", Slack: &slack}
		if rises.holds(c.values) != c.rises || falls.holds(c.values) != c.falls {
			t.Errorf("%v: rises %t, falls %t", c.values, rises.holds(c.values), falls.holds(c.values))
		}
	}
}

func TestTrendRefused(t *testing.T) {
	const from = "{task: a, figure: cpu, rises_with: tasks.a.cpu_max.cpus}"
	for to, want := range map[string]string{
		"{task: c, figure: cpu, rises_with: tasks.a.cpu_max.cpus}":            ".task: is",
		"{task: a, figure: cpus, rises_with: tasks.a.cpu_max.cpus}":           ".figure: is",
		"{task: a, figure: cpu, window: w, rises_with: tasks.a.cpu_max.cpus}": ".window: is",
		"{task: a, figure: cpu}": ": expected one of rises_with and falls_with",
		"{task: a, figure: cpu, rises_with: tasks.a.cpu_max.cpus, falls_with: tasks.a.cpu_max.cpus}": ": expected one of",
		"{task: a, figure: cpu, falls_with: tasks.a.threads}":                                        `.falls_with: is "tasks.a.threads"; expected a key under sweep`,
		"{task: a, figure: cpu, rises_with: tasks.b.cpi, slack: 1}":                                  ".slack: is 1",
	} {
		_, err := Parse("swept.yaml", []byte(strings.Replace(swept, from, to, 1)), Options{})
		if prefix := "swept.yaml:14: expect.trends[0]" + want; err == nil || !strings.HasPrefix(err.Error(), prefix) {
			t.Errorf("%s: %v, want %q", to, err, prefix)
		}
	}
}
