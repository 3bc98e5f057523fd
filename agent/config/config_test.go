package config

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/commensal-io/commensal/internal/strictyaml"
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
	want.Policies.Outlier.Sigmas = 3
	want.Policies.Mode = model.ModeEnforce
	if c.Policies != want.Policies || c.Sampling != want.Sampling || c.Agent != want.Agent {
		t.Errorf("got %+v\nwant %+v", c.Policies, want.Policies)
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

// A file that names no profile has the one that is proved best, whose measuring is CPI²'s.
func TestDefaultProfile(t *testing.T) {
	const rule = "tasks: [{match: /a, job: a, class: LC}]\n"
	measured, _ := Defaults(ProfileCPI2)
	c, err := Parse("x.yaml", []byte("version: 1\n"+rule))
	if err != nil || c.Profile != ProfileRelief || !c.Policies.Hardcap.Confirm.Enabled || c.Sampling.Frequency != measured.Sampling.Frequency {
		t.Fatalf("%v, %+v", err, c)
	}
	if c, err = Parse("x.yaml", []byte("version: 1\nprofile: cpi2\n"+rule)); err != nil || c.Policies.Hardcap.Confirm.Enabled {
		t.Errorf("%v, %+v", err, c.Policies.Hardcap.Confirm)
	}
}

// TestTable2 holds the defaults against the paper's table 2 and the numbers in its text.
func TestTable2(t *testing.T) {
	c, _ := Defaults(ProfileCPI2)
	rows := map[string]string{}
	for _, row := range c.Rows() {
		rows[strings.TrimPrefix(row.Key, "hard_cap.cpi2.")] = row.Text()
	}
	for _, row := range []struct{ name, key, want string }{
		{"Collection granularity", "collection_granularity", "task"},
		{"Sampling duration", "sampling_duration", "10s"},
		{"Sampling frequency", "sampling_frequency", "1m"},
		{"Aggregation granularity", "aggregation_granularity", "job x CPU type"},
		{"Predicted CPI recalculated", "predicted_cpi_recalculated", "24h"},
		{"Required CPU usage", "required_cpu_usage", "0.25"},
		{"Outlier threshold 1", "outlier_threshold_1", "2"},
		{"Outlier threshold 2", "outlier_threshold_2.violations", "3"},
		{"Outlier threshold 2", "outlier_threshold_2.window", "5m"},
		{"Antagonist correlation threshold", "antagonist_correlation_threshold", "0.35"},
		{"Hard-capping quota", "hard_capping_quota", "0.1"},
		{"Hard-capping duration", "hard_capping_duration", "5m"},
		{"section 5, best effort", "hard_capping_quota_best_effort", "0.01"},
		{"section 5, period", "hard_capping_period", "250ms"},
		{"section 4.2, window", "correlation_window", "10m"},
		{"section 3.1, tasks", "min_tasks", "5"},
		{"section 3.1, samples", "min_samples_per_task", "100"},
		{"section 3.1, age weight", "age_weight", "0.9"},
	} {
		if rows[row.key] != row.want {
			t.Errorf("%s: %s, the paper says %s", row.name, rows[row.key], row.want)
		}
	}
}

// A hub on another machine is reached by TLS, and knows who comes, unless the file says that something else sees to that.
func TestGuardedHubs(t *testing.T) {
	for _, fleet := range []string{
		"hub: 'nats://127.0.0.1:4222'", "hub: 'tls://hub:4222', seed_file: /s", "hub: 'tls://hub:4222', creds_file: /c", "hub: 'nats://hub:4222', creds_file: /c, ca_file: /a",
		"hub: 'nats://hub:4222', unguarded: true",
	} {
		if _, err := Parse("f.yaml", []byte(good+"fleet: {node: n, "+fleet+"}\n")); err != nil {
			t.Errorf("%s: %v", fleet, err)
		}
	}
}

func TestBadFiles(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{good + "colour: red\n", `f.yaml:11: unknown key "colour"`},
		{good + "cpi2:\n  sampling_durration: 1s\n", `f.yaml:12: unknown key "sampling_durration"`},
		{good + "cpi2:\n  sampling_duration: soon\n", `f.yaml:12: cpi2.sampling_duration: is "soon"; expected a duration such as 10s`},
		{good + "limits:\n  max_held_tasks: many\n", `f.yaml:12: `},
		{good + "limits:\n  max_held_tasks: 0\n", `f.yaml:12: limits.max_held_tasks: is 0; expected at least 1 (tasks; mode: observe holds nobody)`},
		{good + "cpi2:\n  outlier_threshold_1: -1\n", `f.yaml:12: cpi2.outlier_threshold_1: is -1; expected 0 to 100 (standard deviations)`},
		{good + "cpi2:\n  outlier_threshold_1: .nan\n", `f.yaml:12: cpi2.outlier_threshold_1: is NaN`},
		{good + "cpi2:\n  sampling_duration: 2s\n", `f.yaml:12: cpi2.sampling_frequency: is 1s; expected at least 2s`},
		{good + "cpi2:\n  outlier_threshold_2:\n    window: 2s\n", `f.yaml:13: cpi2.outlier_threshold_2.window: is 2s, in which 3 windows of 1s do not fit`},
		{good + "slowdown:\n  antagonist_correlation_threshold: 0.6\n", `which no suspect can reach`},
		{good + "  - match: /batch/video\n    job: video\n    class: BE\n", `f.yaml:11: tasks[2].match: match "/batch/*" and match "/batch/video" overlap: one cgroup could match both`},
		{good + "  - match: /web/x/y\n    job: video\n    class: BE\n", `a task contains no other task`},
		{good + "  - match: /c\n    job: web\n    class: BE\n", `job "web" has another class`},
		{good + "  - match: /c\n    job: d\n    class: lc\n", `f.yaml:13: tasks[2].class: is "lc"; expected LC, BE or system`},
		{good + "  - match: /c\n    job: d\n    class: LC\n    importance: batch\n", `only BE tasks have an importance`},
		{good + "  - match: /c\n    job: d\n    class: LC\n    size: Large\n", `f.yaml:14: tasks[2].size: size "Large"; expected at most 63 of a-z`},
		{"profile: big\n", `f.yaml:1: profile: unknown profile "big"; expected one of cpi2, relief, single-node`},
		{"version: 9\n" + good, `f.yaml:1: version: is 9, newer than this program reads (1)`},
		{"mode: enforce\n", `tasks: is missing`},
		{"mode: yes\n" + good[len("profile: single-node\nmode: enforce\n"):], `f.yaml:1: mode: is "yes"; expected off, observe or enforce`},
		{good + "slo:\n  - job: db\n    kind: memcached\n    address: x\n", `f.yaml:12: slo[0].job: is "db", which no rule under tasks names`},
		{good + "fleet: {hub: 'nats://hub:4222', node: n, seed_file: /s}\n", `f.yaml:11: fleet.hub: hub:4222 is another machine, reached in plain text; expected tls://hub:4222, or unguarded: true`},
		{good + "fleet: {hub: 'nats://127.0.0.1:1,nats://10.0.0.1:1', node: n, seed_file: /s}\n", `10.0.0.1:1 is another machine, reached in plain text`},
		{good + "fleet: {hub: 'tls://hub:4222', node: n}\n", `f.yaml:11: fleet.hub: hub:4222 is another machine, and nothing proves to it who comes; expected a key or a credentials file, or unguarded: true`},
		{sloFile("kind: nginx"), `slo[0].kind: is "nginx"; expected one of memcached, redis, http, prometheus, program`},
		{sloFile("kind: memcached"), `slo[0].address: is missing; expected host:port or unix:/path`},
		{sloFile("kind: memcached, address: 'localhost:1'"), `slo[0]: probe: bad address: tcp "localhost:1"`},
		{sloFile("kind: memcached, address: '127.0.0.1:1', path: /x"), `slo[0].path: is of kind http and prometheus; memcached has none`},
		{sloFile("kind: memcached, address: '127.0.0.1:1', keys: [a b]"), `slo[0]: key "a b": expected 1 to 250 bytes without blanks`},
		{sloFile("kind: redis, address: '127.0.0.1:1', quantile: 0.999"), `slo[0].quantile: is 0.999, which takes 1000 requests a window; 3s with one each 20ms are 150`},
		{sloFile("kind: redis, address: '127.0.0.1:1', quantile: 99"), `slo[0].quantile: is 99; expected 0.5 to 0.9999, such as 0.99`},
		{sloFile("kind: redis, address: '127.0.0.1:1', target: 2s, timeout: 1s"), `slo[0].target: is 2s; expected less than timeout, 1s`},
		{sloFile("kind: redis, address: '127.0.0.1:1', target: 5"), `slo[0].target: is "5"; expected a duration`},
		{sloFile("kind: redis, address: '127.0.0.1:1', target: 5ms, yellow: 0.3"), `slo[0].yellow: is 0.3; expected a share of the target, at most green (0.2)`},
		{sloFile("kind: http, address: '127.0.0.1:1', method: POST"), `slo[0].method: is "POST"; expected GET or HEAD`},
		{sloFile("kind: http, address: '127.0.0.1:1', status: 20"), `slo[0].status: is 20; expected 200 to 599`},
		{sloFile("kind: http, address: 127.0.0.1"), `slo[0]: address "127.0.0.1": expected host:port or unix:/path`},
		{sloFile("kind: prometheus, address: '127.0.0.1:1'"), `slo[0].metric: is missing; expected the name of a histogram`},
		{sloFile("kind: prometheus, address: '127.0.0.1:1', metric: m, poll: 2s, window: 3s"), `slo[0].window: expected at least two times poll`},
		{sloFile("kind: program"), `slo[0].command: is missing; expected the program and its arguments`},
		{sloFile("kind: program, command: [x], address: '127.0.0.1:1'"), `slo[0].address: is of kind memcached and redis and http and prometheus; program has none`},
		{sloFile("kind: program, command: [x], poll: 1us"), `slo[0].poll: expected at least 1ms`},
		{sloFile("kind: program, command: [x]") + "  - {job: web, kind: program, command: [y]}\n", `slo[1].job: is "web" again; a job has one source`},
		{sloFile("kind: program, commands: [x]"), `unknown key "commands"; did you mean "command"?`},
		{"mode: [\n", `f.yaml:1: `},
		{"a: 1\n---\nb: 2\n", `holds more than one YAML document`},
		{good + "groups:\n  max_members: 1\n", `f.yaml:12: groups.max_members: is 1; expected 2 to 16`},
		{good + "groups:\n  chance: 0\n", `f.yaml:12: groups.chance: is 0; expected`},
		{good + "feedback:\n  step: 2\n", `f.yaml:12: feedback.step: is 2; expected 0.01 to 1 (a share)`},
		{good + "feedback:\n  max_duration: 1s\n", `f.yaml:12: feedback.max_duration: is 1s; expected at least 1m0s, the cpi2.hard_capping_duration`},
		{good + "confirm:\n  windows: 0\n", `f.yaml:12: confirm.windows: is 0; expected 1 to 10 (windows: a nudge is short)`},
		{good + "confirm:\n  usage_share: .nan\n", `f.yaml:12: confirm.usage_share: is NaN`},
		{good + "cpi2:\n  margin_over_steady: -1\n", `f.yaml:12: cpi2.margin_over_steady: is -1`},
		{"", `tasks: is missing`},
		{good + "hard_cap:\n  cpi2:\n    outlier_threshold_1: -1\n", `f.yaml:13: hard_cap.cpi2.outlier_threshold_1: is -1; expected 0 to 100 (standard deviations)`},
		{good + "hard_cap:\n  mode: off\n", `f.yaml:12: hard_cap.mode: is given twice, first in line 2 under its other name`},
		{good + "cpi2:\n  min_tasks: 2\nhard_cap:\n  cpi2:\n    min_tasks: 2\n", `f.yaml:15: hard_cap.cpi2.min_tasks: is given twice, first in line 12 under its other name`},
		{good + "hard_cap:\n  cpi2:\n    sampling_duration: 2s\n", `f.yaml:13: hard_cap.cpi2.sampling_frequency: is 1s; expected at least 2s`},
		{good + "hard_cap:\n  groups: true\n", `f.yaml:12: hard_cap.groups: expected keys of its own: enabled, max_members`},
		{good + "hard_cap:\n  group: {}\n", `f.yaml:12: unknown key "group"; did you mean "groups"?`},
		{good + "cpuset:\n  sockets: both\n", `f.yaml:12: cpuset.sockets: is "both"; expected spread or gather`},
		{good + "cpuset:\n  fall: 100ms\n", `f.yaml:12: cpuset.fall: is 100ms; expected at least rise, 200ms`},
		{good + "burst:\n  min_raise: 4\n", `f.yaml:12: burst.min_raise: is 4; expected 1 to 3`},
		{good + "cpu_pool:\n  interval: 5\n", `f.yaml:12: cpu_pool.interval: is "5"; expected a duration`},
		{good + "cpu_pool: {interval: 1s, interval: 2s}\n", `f.yaml:11: cpu_pool.interval: is given twice, first in line 11`},
		{good + "agent:\n  pulse: 5ms\n", `f.yaml:12: agent.pulse: is 5ms; expected 10ms to 1s`},
		{good + "agent:\n  gpu_every: 5s\n", `f.yaml:12: agent.gpu_every: is 5s; expected 0s, or at least 10s`},
		{good + "agent:\n  gpu_every: 11m\n", `f.yaml:12: agent.gpu_every: is 11m`},
		{good + "agent:\n  nvidia_smi: nvidia-smi\n", `f.yaml:12: agent.nvidia_smi: is "nvidia-smi"; expected an absolute path`},
		{good + "cpi2:\n", `f.yaml:11: a key without a value`},
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
		if got.Policies != c.Policies || got.Sampling != c.Sampling || got.Agent != c.Agent || got.Record != c.Record {
			t.Errorf("profile %s changed on its way:\n%s", name, b)
		}
	}
}

// TestKeysStay: every key that version 0.1 had is read as before, has its default, and is
// printed with it, those of the hard cap in its own section now.
func TestKeysStay(t *testing.T) {
	for _, name := range []string{ProfileCPI2, ProfileSingleNode} {
		old, err := os.ReadFile("testdata/defaults-" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		c, _ := Defaults(name)
		text, err := c.Print()
		if err != nil {
			t.Fatal(err)
		}
		var before, now yaml.Node
		if yaml.Unmarshal(old, &before) != nil || yaml.Unmarshal(text, &now) != nil {
			t.Fatal("no YAML")
		}
		count := 0
		for _, row := range c.Rows() {
			was := strictyaml.Find(&before, strings.TrimPrefix(row.Key, hardCap))
			is := strictyaml.Find(&now, row.Key)
			if was == nil {
				continue // newer than that
			}
			if row.Key == "signals" && name == ProfileSingleNode {
				count++
				if _, still := strings.CutPrefix(strings.Join(c.Signals, " "), "cpi wait "); !still {
					t.Errorf("signals %v: those of before, and wait before slowdown", c.Signals)
				}
				continue // the one default that changed: waits have a signal of their own since
			}
			if is == nil || was.Value != is.Value || len(was.Content) != len(is.Content) {
				t.Errorf("profile %s: %s: was %+v, is %+v", name, row.Key, was, is)
			}
			count++
		}
		if leaves := leavesOf(&before); leaves != count {
			t.Errorf("profile %s had %d keys, of which there are %d", name, leaves, count)
		}
		again := c
		for _, row := range again.Rows() {
			if strictyaml.Find(&before, strings.TrimPrefix(row.Key, hardCap)) != nil {
				row.Set(-1) // whatever it is, the file says otherwise
			}
		}
		doc, err := strictyaml.Parse(name, old)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.DecodeAt(doc, ""); err != nil || again.Policies != c.Policies || again.Sampling != c.Sampling || again.Agent != c.Agent || again.Record != c.Record {
			t.Errorf("profile %s, read: %v\n%+v\nnot %+v", name, err, again, c)
		}
	}
}

// leavesOf counts values: plain ones, and lists whole.
func leavesOf(n *yaml.Node) int {
	if n.Kind != yaml.MappingNode && n.Kind != yaml.DocumentNode {
		return 1
	}
	sum := 0
	for i, c := range n.Content {
		if n.Kind == yaml.DocumentNode || i%2 == 1 {
			sum += leavesOf(c)
		}
	}
	return sum
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
