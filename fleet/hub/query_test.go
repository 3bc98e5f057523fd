package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// fill puts a day of a small fleet into a store: in each hour job "batch" hurts "web" on every node once, and "scan" hurts "mail" on the
// first node.
func fill(t *testing.T, dir string, nodes int) {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.From("test")
	rng, message := rand.New(rand.NewPCG(1, 1)), uint64(0)
	begin := time.Now().Add(-24 * time.Hour).Truncate(time.Hour)
	for hour := range 24 {
		for n := range nodes {
			at := begin.Add(time.Duration(hour) * time.Hour)
			b := &wire.Batch{Node: fmt.Sprintf("n%d", n), Spool: fmt.Sprintf("%016x", n), Seq: uint64(hour + 1), Platform: "cpu"}
			b.Tasks = []wire.Task{{Num: 1, Path: "/web", Job: "web", Class: model.LC}, {Num: 2, Path: "/batch-1", Job: "batch", Class: model.BE}, {Num: 3, Path: "/scan", Job: "scan", Class: model.BE}}
			b.Samples.Signals = []wire.Signal{{Source: model.SourceCPI, Definition: "d"}}
			for i := range 30 {
				b.Samples.Task = append(b.Samples.Task, uint32(i%3))
				b.Samples.WallMsec = append(b.Samples.WallMsec, at.Add(time.Duration(i)*time.Minute).UnixMilli())
				b.Samples.CPU = append(b.Samples.CPU, rng.Float32())
				b.Samples.Flags = append(b.Samples.Flags, wire.Usable)
				b.Samples.Signals[0].Values = append(b.Samples.Signals[0].Values, 1+rng.Float32())
			}
			hurt := func(id, victim string, by model.TaskNum, path, job string, state model.IncidentState) {
				chosen, before, after := by, 3.0, 0.0 // of who was held in vain nothing is known
				if victim == "web" {
					after = []float64{1, 1.5}[hour%2] // three times as bad, or twice
				}
				b.Incidents = append(b.Incidents, &model.Incident{
					ID: id, VictimJob: victim, VictimPath: "/" + victim, Signal: 3, Threshold: 2, OpenedWall: at.UnixNano(), State: state,
					Rounds: []model.Round{{Chosen: &chosen, ChosenPath: path, SignalBefore: before, SignalAfter: after, Suspects: []model.Suspect{{Task: by, Path: path, Job: job}}}},
				})
				b.Decisions = append(b.Decisions, model.Decision{Kind: model.DecideCap, Policy: model.PolicyHardcap, Mode: "enforce", WallNsec: at.UnixNano(), Path: path, Incident: id, Reason: "it's he"})
			}
			id := fmt.Sprintf("%d", hour)
			hurt("a"+id, "web", 2, "/batch-1", "batch", model.Verifying)
			hurt("a"+id, "web", 2, "/batch-1", "batch", model.Recovered) // the same, later
			b.Incidents = b.Incidents[1:]                                // a batch has an incident once
			if n == 0 {
				hurt("b"+id, "mail", 3, "/scan", "scan", model.CannotFix)
			}
			message++
			s.Put(message, b)
		}
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
}

// hold has a node tell of holds that end by a release, a next step, the kill switch and the task's own end, and of some whose end nobody knows.
func hold(t *testing.T, dir string) {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.From("hold")
	begin := time.Now().Add(-36 * time.Hour).Truncate(time.Second)
	b := &wire.Batch{Node: "holder", Spool: strings.Repeat("e", 16), Seq: 1, Platform: "cpu"}
	say := func(second int, kind model.DecisionKind, task, incident string, facts ...model.Fact) {
		policy, mode := model.PolicyHardcap, "enforce"
		switch {
		case task == "/memory":
			policy = model.PolicyMemory
		case task == "/remedy", task == "/idle":
			policy = model.PolicyRemedy
		case task == "/observed":
			mode = "observe"
		case kind == model.DecideRelease:
			mode = "" // the ledger's own, of a claim whose time is over
		}
		b.Decisions = append(b.Decisions, model.Decision{
			Kind: kind, Policy: policy, Mode: mode, WallNsec: begin.Add(time.Duration(second) * time.Second).UnixNano(), Path: task, Incident: incident, Reason: "it's he", Facts: facts,
		})
	}
	less := func(limit, usage float64) []model.Fact {
		return []model.Fact{model.FactCap.Is(limit), model.FactUsage.Is(usage), model.FactLevel.Is(0)}
	}
	say(0, model.DecideCap, "/x", "1", less(0.1, 0.6)...)
	say(200, model.DecideStep, "/x", "1", less(0.2, 0.6)...)
	say(300, model.DecideRelease, "/x", "1")
	say(1000, model.DecideCap, "/y", "2", less(0.1, 0.6)...)
	say(1060, model.DecideKill, "", "")
	say(2000, model.DecideCap, "/z", "3", less(0.5, 24)...)
	say(2010, model.DecideGone, "/z", "")
	say(3000, model.DecideCap, "/w", "4", less(2, 0.6)...)
	say(3060, model.DecideRelease, "/w", "4")
	say(4000, model.DecideCap, "/w", "5", less(0.1, 0.6)...)
	say(5000, model.DecideCap, "/w", "6", less(0.1, 0.6)...)
	say(6000, model.DecideCap, "/observed", "7", less(0.1, 0.6)...)
	say(6060, model.DecideRelease, "/observed", "7")
	say(7000, model.DecideDemote, "/memory", "8")
	say(7000+(24*60+10)*60, model.DecideRelease, "/memory", "8")
	say(8000, model.DecideCap, "/remedy", "", less(1.5, 3)...)
	say(8100, model.DecideCap, "/remedy", "", less(0.75, 3)...)
	say(8160, model.DecideTakenBack, "/remedy", "", less(1.5, 3)...)
	say(8260, model.DecideCap, "/remedy", "", less(2.25, 3)...)
	say(8320, model.DecideCap, "/remedy", "", less(3, 3)...) // all is given back
	say(8320, model.DecideRelease, "/remedy", "")
	say(8400, model.DecideCap, "/remedy", "", less(1.5, 3)...)
	say(8440, model.DecideTakenBack, "/remedy", "", less(3, 3)...)
	say(8440, model.DecideRelease, "/remedy", "")
	say(8500, model.DecideCap, "/remedy", "", less(1.5, 3)...) // and ends nobody knows when
	say(9000, model.DecideDemote, "/idle", "")
	say(9060, model.DecideStep, "/idle", "") // it is given back
	say(9060, model.DecideRelease, "/idle", "")
	say(9900, model.DecideDemote, "/idle", "")
	say(9910, model.DecideTakenBack, "/io", "9") // which tells of no cap
	s.Put(1, b)
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
}

// lie has one node tell that an innocent job hurts "web", many times.
func lie(t *testing.T, dir string, times int) {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.From("lie")
	b := &wire.Batch{Node: "liar", Spool: strings.Repeat("f", 16), Seq: 1, Platform: "cpu", Tasks: []wire.Task{{Num: 1, Path: "/web", Job: "web", Class: model.LC}}}
	chosen := model.TaskNum(2)
	for i := range times {
		b.Incidents = append(b.Incidents, &model.Incident{
			ID: fmt.Sprint(i), VictimJob: "web", VictimPath: "/web", Signal: 3, Threshold: 2, OpenedWall: time.Now().UnixNano(), State: model.Recovered,
			Rounds: []model.Round{{Chosen: &chosen, ChosenPath: "/i", SignalBefore: 9, SignalAfter: 1, Suspects: []model.Suspect{{Task: 2, Path: "/i", Job: "innocent"}}}},
		})
	}
	s.Put(1, b)
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
}

// interferes asks the hub over HTTP for what is in its file of interference: all of it, for viewers, and not what another version wrote.
func interferes(t *testing.T, b *bed) {
	t.Helper()
	code, m := b.call(b.token("x", Viewer), "GET", "/v1/interference", "")
	var file map[string]any
	text, err := os.ReadFile(InterferenceFile(b.dir))
	if err != nil || json.Unmarshal(text, &file) != nil || code != 200 || !reflect.DeepEqual(m, file) || len(m["pairs"].([]any)) != 2 {
		t.Errorf("%d %v, %v; want\n%s", code, m, err, text)
	}
	if code, m := b.call("nobody's", "GET", "/v1/interference", ""); code != 401 {
		t.Errorf("nobody: %d %v", code, m)
	}
	if err := os.WriteFile(InterferenceFile(b.dir), []byte(`{"version": 1, "pairs": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, m := b.call(b.token("x", Viewer), "GET", "/v1/interference", ""); code != 422 || !strings.Contains(fmt.Sprint(m["error"]), "another version") {
		t.Errorf("of another version: %d %v", code, m)
	}
}

// The file of interference is of one type for who writes it and who reads it: a question that has other columns is told, and writes nothing.
func TestInterferenceIsOneDocument(t *testing.T) {
	of := func(column, value string) *Result {
		res := &Result{}
		var row []any
		for _, name := range strings.Fields("victim_job antagonist_job platform signal resource incidents nodes held degradation low high above confidence") {
			if name == column {
				name = value
			}
			if name != "" {
				res.Columns, row = append(res.Columns, name), append(row, nil)
			}
		}
		res.Rows = [][]any{row}
		return res
	}
	now := time.Unix(7, 0)
	if f, err := interferenceOf(of("", ""), now); err != nil || len(f.Pairs) != 1 || f.WallNsec != 7e9 || f.Version != interferenceVersion || f.Days != interferenceDays {
		t.Errorf("%+v %v", f, err)
	}
	for value, want := range map[string]string{"": "12 columns; a pair has 13", "headroom": `unknown field "headroom"`} {
		if f, err := interferenceOf(of("above", value), now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q in the place of a column: %+v %v, want %s", value, f, err, want)
		}
	}
	res := of("", "")
	res.Rows = nil
	f, err := interferenceOf(res, now)
	if b, err2 := json.Marshal(f); errors.Join(err, err2) != nil || !strings.Contains(string(b), `"pairs":[]`) {
		t.Errorf("without a pair: %s %v", b, err)
	}
}

// The ready-made questions and any SELECT are answered from the files; what is no SELECT, reads elsewhere, takes for ever or all memory is not.
func TestQueries(t *testing.T) {
	needSQL(t)
	dir := t.TempDir()
	fill(t, filepath.Join(dir, "store"), 5)
	hold(t, filepath.Join(dir, "store"))
	cfg := testConfig(dir)
	cfg.Keep = 7 * 24 * time.Hour
	b := startHub(t, cfg)
	viewer := b.token("v", Viewer)
	if code, m := b.call(viewer, "GET", "/v1/interference", ""); code != 422 || !strings.Contains(fmt.Sprint(m["error"]), "not known yet") {
		t.Errorf("before the store was asked: %d %v", code, m)
	}
	ask := func(sql string, args ...any) (*Result, error) { return b.query(t.Context(), &Query{sql, args}) }
	one := func(sql string, args ...any) string {
		t.Helper()
		r, err := ask(sql, args...)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(r.Rows)
	}
	for sql, want := range map[string]string{
		"SELECT count(*), count(DISTINCT node), count(DISTINCT hour) FROM samples":           "[[3600 5 24]]",
		"SELECT count(*), count(slowdown), min(cpi) >= 1 FROM samples WHERE job = 'web'":     "[[1200 0 true]]",
		"SELECT kind, taken_by, count(*) FROM decisions WHERE node <> 'holder' GROUP BY ALL": "[[cap hard_cap 264]]",
		"SELECT count(*) FROM incidents WHERE date = CAST('1970-01-01' AS DATE)":             "[[0]]",
		"SELECT document->>'victim_job' FROM incidents WHERE victim_job = 'mail' LIMIT 1":    "[[mail]]",
		"SELECT sum(json_array_length(CAST(document->'rounds' AS JSON))) > 0 FROM incidents": "[[true]]",
		"WITH x AS (SELECT 1 AS a) SELECT a, NULL, 'NaN'::DOUBLE, 2.5::DECIMAL(4,1) FROM x":  "[[1 <nil> NaN 2.5]]",
	} {
		if got := one(sql); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	for name, c := range map[string]struct {
		args []any
		want string
	}{
		"antagonists": {[]any{"web", "2"}, "[[batch 120 5 1.5 1]]"},
		"apart":       {[]any{2}, "[[web batch cpu 120 5 1.5] [mail scan cpu 24 1 1.5]]"},
		// Of fill's caps nobody knows the end, but of those 120 that the next of the same incident follows at once. Of hold's four are ended: 200, 60, 10 and 60 s at 0.5, 0.5, 23.5 and no CPUs less than was used.
		// Of remedy's caps four are ended: 100, 60, 60 and 40 s at 1.5, 2.25, 0.75 and 1.5 CPUs less; 100 s at 1.5 CPUs less are what a step that was taken back left.
		"cost": {[]any{"2"}, "[[hard_cap enforce cap 270 6 10 124 5.5 4 365] [remedy enforce cap 5 1 1 4 4.3 4 390] [remedy enforce demote 2 1 1 1 1 0 <nil>] [hard_cap enforce step 1 1 1 1 1.7 1 40] [hard_cap observe cap 1 1 1 0 <nil> 0 <nil>] [memory enforce demote 1 1 1 1 1450 0 <nil>] [remedy enforce step 1 1 1 1 0 0 <nil>] [remedy enforce taken-back 1 1 1 1 1.7 1 150]]"},
	} {
		for _, q := range questions {
			if q.Name == name {
				if got := one(q.SQL, c.args...); got != c.want {
					t.Errorf("%s: %s, want %s", name, got, c.want)
				}
			}
		}
	}
	if err := b.exportOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(InterferenceFile(dir))
	for _, want := range []string{`"antagonist_job": "batch"`, `"incidents": 120`, `"held": 50`, `"degradation": 2.5`, `"low": 2.36`, `"high": 2.64`, `"above": 1.5`, `"resource": "memory"`, `"confidence": 0.929`, `"victim_job": "mail"`, `"held": 0`, `"degradation": null`, `"low": null`, `"confidence": 0`} {
		if err != nil || !strings.Contains(string(table), want) {
			t.Errorf("%v: the file of interference lacks %s:\n%s", err, want, table)
		}
	}
	interferes(t, b)
	for name, rows := range map[string]int{"victims": 48, "node": 72 + 48} {
		for _, q := range questions {
			if q.Name != name {
				continue
			}
			arg := map[string]any{"victims": "2", "node": "n0"}[name]
			if r, err := ask(q.SQL, arg); err != nil || len(r.Rows) != rows {
				t.Errorf("%s: %v, %v", name, r, err)
			}
		}
	}
	lie(t, filepath.Join(dir, "store"), 400)
	for _, q := range questions {
		if q.Name != interference {
			continue
		}
		r, err := ask(q.SQL, interferenceDays)
		if err != nil || len(r.Rows) != 3 || fmt.Sprint(r.Rows[0][:2]) != "[web batch]" || fmt.Sprintf("%v %v %v", r.Rows[1][1], r.Rows[1][5:7], r.Rows[1][12]) != "innocent [400 1] 0.723" {
			t.Errorf("one node says a lot: %v, %v", r, err)
		}
	}
	target := filepath.Join(dir, "store", "samples", "out.csv")
	for sql, want := range map[string]string{
		"COPY (SELECT 1) TO '" + target + "'":                                "expected one SELECT",
		"SELECT 1; COPY (SELECT 1) TO '" + target + "'; SELECT 2":            "there are 3 statements",
		"CREATE TABLE x(a INT)":                                              "expected one SELECT",
		"INSERT INTO samples SELECT * FROM samples":                          "",
		"ATTACH '" + target + ".db'":                                         "expected one SELECT",
		"SET threads = 64":                                                   "expected one SELECT",
		"SELECT * FROM read_csv('/etc/passwd')":                              "Permission",
		"SELECT * FROM read_text('/proc/self/environ')":                      "Permission",
		"SELECT * FROM '" + dir + "/persons.json'":                           "ermission",
		"SELECT * FROM glob('/etc/*')":                                       "ermission",
		"SELECT * FROM read_parquet('https://example.com/x.parquet')":        "",
		"INSTALL httpfs":                                                     "expected one SELECT",
		"SELECT count(*) FROM range(100000000000) a, range(100000) b":        "took more than",
		"SELECT list(a.range) FROM range(1000000000) a":                      "emory|took more than", // whichever is first on this machine
		"SELECT repeat('x', 100000) FROM range(10000)":                       "emory|took more than",
		"SELECT repeat('x', 200000) FROM range(10000)":                       "emory|took more than",
		"SELECT if(range < 8000, 1, error('in the midst')) FROM range(9000)": "in the midst",
		"SELECT nothing FROM samples":                                        "nothing",
		"SELEC 1":                                                            "syntax error",
		"":                                                                   "",
	} {
		r, err := ask(sql)
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("%s: %v, %v", sql, r, err)
		}
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("a query wrote a file")
	}
	if r, err := ask("SELECT range FROM range(20000)"); err != nil || len(r.Rows) != 10_000 || !r.Truncated {
		t.Errorf("%v", err)
	}
	if code, m := b.call(viewer, "POST", "/v1/query", `{"sql": "SELECT count(*) AS n FROM samples WHERE job = ?", "args": ["web'; DROP TABLE samples; --"]}`); code != 200 || fmt.Sprint(m["rows"]) != "[[0]]" {
		t.Errorf("%d %v", code, m)
	}
	if code, m := b.call(viewer, "POST", "/v1/query", `{"sql": "SELECT x"}`); code != 422 || m["error"] == "" {
		t.Errorf("%d %v", code, m)
	}
	if code, m := b.call(viewer, "GET", "/v1/questions", ""); code != 200 || len(m["list"].([]any)) != len(questions) {
		t.Errorf("%d %v", code, m)
	}
}

// Whatever is asked, the program takes no more than it is promised to: 512 MiB resident. The queries are those that the engine's own limit does not count:
// texts, long values, tables that nobody needs whole. What is cut off is told.
func TestQueriesTakeBoundedMemory(t *testing.T) {
	needSQL(t)
	dir := filepath.Join(t.TempDir(), "store")
	fill(t, dir, 5)
	for sql, want := range map[string]string{
		"SELECT repeat('x', 100000) FROM range(10000)":                              "emory",
		"SELECT repeat('x', 200000) FROM range(10000)":                              "emory",
		"SELECT repeat('x', 20000) FROM range(10000)":                               `"truncated":true`,
		"SELECT repeat('x', 3000) FROM range(10000)":                                `"truncated":false`, // 30 MB
		"SELECT a.*, b.* FROM samples a, samples b, range(1000)":                    `"truncated":true`,
		"SELECT repeat('x', 30000000) FROM range(100)":                              "emory",
		"SELECT list(range) FROM range(10000000)":                                   "emory",
		"SELECT string_agg(repeat('x', 100000), '') FROM range(20000)":              "emory",
		"SELECT max(repeat('x', 1000000) || range) FROM range(5000) GROUP BY range": "emory",
	} {
		question, err := json.Marshal(Query{SQL: sql})
		if err != nil {
			t.Fatal(err)
		}
		var out, says bytes.Buffer
		cmd := exec.Command(sqlProgram, dir, "25")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(question), &out, &says
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended, peak := make(chan error, 1), 0
		go func() { ended <- cmd.Wait() }()
		for running := true; running; {
			select {
			case <-ended:
				running = false
			case <-time.After(5 * time.Millisecond):
				status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // none: it just ended
				if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
					var kib int
					_, _ = fmt.Sscan(after, &kib)
					peak = max(peak, kib)
				}
			}
		}
		t.Logf("%s: %d MiB, %d bytes", sql, peak>>10, out.Len())
		if peak == 0 || peak > 512<<10 || out.Len() > maxAnswer/2+1000 {
			t.Errorf("%s: %d KiB resident, %d bytes", sql, peak, out.Len())
		}
		if text := says.String() + out.String()[max(0, out.Len()-100):]; !strings.Contains(text, want) {
			t.Errorf("%s: %s; want %s", sql, text, want)
		}
	}
}

// A hub to which nothing comes, and which somebody asks all the time, lets old days go all the same, and says when it last did.
func TestOldDaysGo(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Keep, cfg.TidyEvery, cfg.CommitEvery = time.Hour, 300*time.Millisecond, 50*time.Millisecond
	samples, date := filepath.Join(cfg.Dir, "store", "samples"), "date=2020-01-01"
	day := filepath.Join(samples, date)
	put := func() { // at once: the hub may tidy at any moment
		t.Helper()
		dir := t.TempDir()
		hour := filepath.Join(dir, date, "hour=00")
		if err := errors.Join(os.MkdirAll(hour, 0o750), os.WriteFile(filepath.Join(hour, "1-1.parquet"), nil, 0o600), os.MkdirAll(samples, 0o750), os.Rename(filepath.Join(dir, date), day)); err != nil {
			t.Fatal(err)
		}
	}
	b := startHub(t, cfg)
	put()
	gone := func() bool { _, err := os.Stat(day); return err != nil }
	eventually(t, "an old day is gone", gone)
	first := b.wellTidied.Load()
	done, err := b.store.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put()
	time.Sleep(time.Second)
	if gone() {
		t.Error("it went while somebody read")
	}
	_, count := b.store.Committed()
	done()
	eventually(t, "an old day is gone again", gone)
	eventually(t, "that is told", func() bool { return b.wellTidied.Load() > first })
	if _, now := b.store.Committed(); now != count {
		t.Errorf("something came: %d, %d before", now, count)
	}
	rec := httptest.NewRecorder()
	b.metrics().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if text := rec.Body.String(); !strings.Contains(text, "\ncommensal_hub_tidied_timestamp_seconds 1.") {
		t.Error(text)
	}
}
