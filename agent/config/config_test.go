package config

import (
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/model"
)

const good = `profile: single-node
mode: enforce
tasks:
  - match: /web/*
    job: web
    class: LC
  - match: /batch/*
    job: batch
    class: BE
    importance: best-effort
`

func TestParseKeepsProfileDefaults(t *testing.T) {
	c, err := Parse("f.yaml", []byte(good+"cpi2:\n  outlier_threshold_1: 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := Defaults(ProfileSingleNode)
	want.CPI2.OutlierThreshold1 = 3
	if c.CPI2 != want.CPI2 || c.Slowdown != want.Slowdown || c.Agent != want.Agent {
		t.Errorf("got %+v\nwant %+v", c.CPI2, want.CPI2)
	}
	p := c.Params("cpu")
	if p.Mode != model.ModeEnforce || p.Outlier.Sigmas != 3 || p.HistoryWindows != 120 || !p.Sources[model.SourceCPI] {
		t.Errorf("params %+v", p)
	}
	r := c.Rules()
	if r[0].Class != model.LC || r[1].Class != model.BE || r[1].Importance != model.BestEffort {
		t.Errorf("rules %+v", r)
	}
}

// TestTable2 holds the defaults against the seed's table 2 and the numbers in its text.
func TestTable2(t *testing.T) {
	c, _ := Defaults(ProfileCPI2)
	p := c.CPI2
	for _, row := range []struct {
		name      string
		got, want any
	}{
		{"Collection granularity", p.CollectionGranularity, "task"},
		{"Sampling duration", p.SamplingDuration, 10 * time.Second},
		{"Sampling frequency", p.SamplingFrequency, time.Minute},
		{"Aggregation granularity", p.AggregationGranularity, "job x CPU type"},
		{"Predicted CPI recalculated", p.PredictedCPIRecalculated, 24 * time.Hour},
		{"Required CPU usage", p.RequiredCPUUsage, 0.25},
		{"Outlier threshold 1", p.OutlierThreshold1, 2.0},
		{"Outlier threshold 2", p.OutlierThreshold2, Violations{3, 5 * time.Minute}},
		{"Antagonist correlation threshold", p.AntagonistCorrelationThreshold, 0.35},
		{"Hard-capping quota", p.HardCappingQuota, 0.1},
		{"Hard-capping duration", p.HardCappingDuration, 5 * time.Minute},
		{"section 5, best effort", p.HardCappingQuotaBestEffort, 0.01},
		{"section 5, period", p.HardCappingPeriod, 250 * time.Millisecond},
		{"section 4.2, window", p.CorrelationWindow, 10 * time.Minute},
		{"section 3.1, tasks", p.MinTasks, 5},
		{"section 3.1, samples", p.MinSamplesPerTask, 100},
		{"section 3.1, age weight", p.AgeWeight, 0.9},
	} {
		if row.got != row.want {
			t.Errorf("%s: %v, the seed says %v", row.name, row.got, row.want)
		}
	}
}

func TestBadFiles(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{good + "colour: red\n", `f.yaml:11: unknown key "colour"`},
		{good + "cpi2:\n  sampling_durration: 1s\n", `f.yaml:12: unknown key "sampling_durration"`},
		{good + "cpi2:\n  sampling_duration: soon\n", `f.yaml:12: cpi2.sampling_duration: is "soon"; expected a duration such as 10s`},
		{good + "limits:\n  max_held_tasks: many\n", `f.yaml:12: `},
		{good + "limits:\n  max_held_tasks: 0\n", `f.yaml:12: limits.max_held_tasks: expected at least 1`},
		{good + "cpi2:\n  outlier_threshold_1: -1\n", `f.yaml:12: cpi2.outlier_threshold_1: is -1; expected 0 to 100 (standard deviations)`},
		{good + "cpi2:\n  outlier_threshold_1: .nan\n", `f.yaml:12: cpi2.outlier_threshold_1: is NaN`},
		{good + "cpi2:\n  sampling_duration: 2s\n", `cpi2.sampling_frequency: is 1s; expected at least 2s`},
		{good + "cpi2:\n  outlier_threshold_2:\n    window: 2s\n", `f.yaml:13: cpi2.outlier_threshold_2.window: is 2s, in which 3 windows of 1s do not fit`},
		{good + "slowdown:\n  antagonist_correlation_threshold: 0.6\n", `which no suspect can reach`},
		{good + "  - match: /batch/video\n    job: video\n    class: BE\n", `f.yaml:11: tasks[2].match: match "/batch/*" and match "/batch/video" overlap: one cgroup could match both`},
		{good + "  - match: /web/x/y\n    job: video\n    class: BE\n", `a task contains no other task`},
		{good + "  - match: /c\n    job: web\n    class: BE\n", `job "web" has another class`},
		{good + "  - match: /c\n    job: d\n    class: lc\n", `f.yaml:13: tasks[2].class: is "lc"; expected LC, BE or system`},
		{good + "  - match: /c\n    job: d\n    class: LC\n    importance: batch\n", `only BE tasks have an importance`},
		{"profile: big\n", `f.yaml:1: profile: unknown profile "big"; expected one of cpi2, single-node`},
		{"version: 9\n" + good, `f.yaml:1: version: is 9, newer than this program reads (1)`},
		{"mode: enforce\n", `tasks: is missing`},
		{"mode: yes\n" + good[len("profile: single-node\nmode: enforce\n"):], `f.yaml:1: mode: is "yes"; expected off, observe or enforce`},
		{good + "slo:\n  - job: db\n    kind: memcached\n    address: x\n", `f.yaml:12: slo[0].job: is "db", which no rule under tasks names`},
		{"mode: [\n", `f.yaml:1: `},
		{"a: 1\n---\nb: 2\n", `holds more than one YAML document`},
		{good + "groups:\n  max_members: 1\n", `f.yaml:12: groups.max_members: is 1; expected 2 to 16`},
		{good + "groups:\n  chance: 0\n", `f.yaml:12: groups.chance: is 0; expected`},
		{good + "feedback:\n  step: 2\n", `f.yaml:12: feedback.step: is 2; expected 0.01 to 1 (a share)`},
		{good + "feedback:\n  max_duration: 1s\n", `f.yaml:12: feedback.max_duration: is 1s; expected at least 1m0s`},
		{good + "confirm:\n  windows: 0\n", `f.yaml:12: confirm.windows: expected 1 to 10`},
		{good + "confirm:\n  usage_share: .nan\n", `f.yaml:12: confirm.usage_share: is NaN`},
		{good + "cpi2:\n  margin_over_steady: -1\n", `f.yaml:12: cpi2.margin_over_steady: is -1`},
		{"", `tasks: is missing`},
		{good + "cpi2:\n", `f.yaml:11: anchors`},
		{good + "limits: &l {max_held_tasks: 2}\nrecord: *l\n", `f.yaml:11: anchors`},
	} {
		_, err := Parse("f.yaml", []byte(c.text))
		switch {
		case err == nil:
			t.Errorf("accepted:\n%s", c.text)
		case !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n"):
			t.Errorf("error %q\nwant   %q on one line", err, c.want)
		}
	}
}

// TestPrintRoundTrip: what `config defaults` prints is a file that means the same.
func TestPrintRoundTrip(t *testing.T) {
	for _, name := range Profiles() {
		c, _ := Defaults(name)
		c.Tasks = []Task{{Match: "/a", Job: "a", Class: "LC"}}
		b, err := c.Print()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse("printed", b)
		if err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		if got.CPI2 != c.CPI2 || got.Slowdown != c.Slowdown || got.Groups != c.Groups || got.Feedback != c.Feedback || got.Confirm != c.Confirm || got.Limits != c.Limits || got.Agent != c.Agent || got.Record != c.Record {
			t.Errorf("profile %s changed on its way:\n%s", name, b)
		}
		for path := range sources {
			key := path[strings.LastIndexByte(path, '.')+1:]
			if !strings.Contains(string(b), key+":") {
				t.Errorf("sources names %s, which is not printed", path)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("tasks: [{match: /*, job: a, class: BE}]\ncpi2: {min_tasks: 1e9}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse("f", b)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("error of more than one line: %q", err)
			}
			return
		}
		if p := c.Params(""); p.HistoryWindows < 1 || p.HistoryWindows > maxHistoryWindows {
			t.Fatalf("history of %d windows", p.HistoryWindows)
		}
	})
}
