package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// sparkPython is the Python that `make spark-test` gives pyspark.
const sparkPython = "../../.tools/spark/bin/python"

func needSpark(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(sparkPython); err != nil {
		t.Skipf("no Spark here (%v); `make spark-test` installs it", err)
	}
	if _, err := exec.LookPath("java"); err != nil {
		t.Skipf("Spark needs Java: %v", err)
	}
}

// draw puts two days and a half of a fleet into a store, in two commits of which hours are merged: names as hostile as the wire lets them be,
// thresholds of nothing, incidents that come again in later batches, and many decisions of one moment.
func draw(t *testing.T, dir string, rng *rand.Rand) {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.From("draw")
	jobs := []string{"web", "mail", "batch's", `"build"`, "größer", "日本", ""}
	job := func() string { return jobs[rng.IntN(len(jobs))] }
	platforms, now, message := []string{"cpu a", "cpu b"}, time.Now().Truncate(time.Millisecond), uint64(0)
	acts := int64(0) // bytes of an audit that nobody reads
	for seq := range uint64(30) {
		s.PutSheet(&wire.SpecSheet{Job: jobs[seq%3], Platform: platforms[seq%2], Revision: seq, WallNsec: now.Add(-time.Duration(seq) * time.Hour).UnixNano(), Nodes: 3, Pinned: seq%4 == 0, Specs: []model.Spec{
			{Source: model.SourceCPI, Definition: "d", NumSamples: rng.Int64N(1000), Tasks: 5, Mean: rng.NormFloat64(), StdDev: rng.Float64(), Tail: rng.Float64(), P50: float64(seq % 2), P90: float64(seq % 2), P99: 2 * float64(seq%2)},
		}})
		for k := range 1 + rng.IntN(3) {
			at := now.Add(-time.Duration(rng.IntN(60*3600)) * time.Second)
			acts++
			s.PutAct(wire.Act{
				Time: at, ID: fmt.Sprintf("%d-%d", seq, k/2), By: job(), Role: "operator", What: "cap", Node: []string{"", "n1"}[k%2], Detail: json.RawMessage(`{"task":"/it's"}`), Why: job(), Result: []string{"", "done"}[k%2],
			}, acts)
		}
		for n := range 7 {
			b := &wire.Batch{Node: fmt.Sprintf("n%d", n), Spool: fmt.Sprintf("%016x", n), Seq: seq + 1, Platform: platforms[n%2]}
			b.Tasks = []wire.Task{{Num: 1, Path: "/a", Job: job(), Class: model.LC}}
			b.Samples.Signals = []wire.Signal{{Source: model.SourceCPI, Definition: "d"}}
			for range rng.IntN(5) {
				b.Samples.Task = append(b.Samples.Task, 0)
				b.Samples.WallMsec = append(b.Samples.WallMsec, now.Add(-time.Duration(rng.IntN(60*3600))*time.Second).UnixMilli())
				b.Samples.CPU = append(b.Samples.CPU, rng.Float32())
				b.Samples.Flags = append(b.Samples.Flags, wire.Usable)
				b.Samples.Signals[0].Values = append(b.Samples.Signals[0].Values, float32(rng.NormFloat64()))
			}
			for k := range rng.IntN(6) {
				by, chosen := model.TaskNum(2), job()
				inc := &model.Incident{ // of the batches of three rounds each id is one incident, which changes
					ID: fmt.Sprintf("%d-%d", seq/3, k), VictimJob: jobs[(n+k)%3], VictimPath: "/a", Source: model.Sources()[rng.IntN(3)], Signal: rng.ExpFloat64(), Threshold: float64(rng.IntN(4)) / 2,
					OpenedWall: now.Add(-time.Duration(seq/3)*6*time.Hour - time.Duration(1+n*7+k)*time.Minute).UnixNano(), State: model.IncidentState(rng.IntN(8)), //nolint:gosec // few
				}
				if chosen != "" {
					inc.Rounds = []model.Round{{Chosen: &by, ChosenPath: "/b", SignalBefore: float64(rng.IntN(3)) * rng.Float64(), SignalAfter: float64(rng.IntN(3)) / 2, Suspects: []model.Suspect{{Task: by, Path: "/b", Job: chosen, Score: rng.Float64()}}}}
				}
				b.Incidents = append(b.Incidents, inc)
			}
			for range rng.IntN(60) {
				b.Decisions = append(b.Decisions, model.Decision{
					Kind: model.DecisionKind(1 + rng.IntN(int(model.NumDecisionKinds)-1)), Policy: []string{model.PolicyHardcap, model.PolicyBurst}[rng.IntN(2)], Mode: []string{"observe", "enforce"}[rng.IntN(2)], //nolint:gosec // few
					WallNsec: now.Add(-time.Duration(1+rng.IntN(60)) * time.Hour).UnixNano(), Path: "/" + job(), Incident: fmt.Sprint(rng.IntN(2)), Reason: []string{"it's he", "él", ""}[rng.IntN(3)],
					Facts: [][]model.Fact{nil, {model.FactCap.Is(rng.Float64()), model.FactUsage.Is(math.Exp(30 * rng.NormFloat64()))}}[rng.IntN(2)],
				})
			}
			message++
			s.Put(message, b)
		}
		if seq == 14 {
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Compact(now.Add(-24*time.Hour), message); err != nil { // some hours are one file, others two
		t.Fatal(err)
	}
}

// askSpark returns Spark's answers to questions.
func askSpark(t *testing.T, dir string, list []Query) []Result {
	t.Helper()
	in, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), sparkPython, "../../scripts/spark_sql.py", dir)
	cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC") // it lives a minute, of which optimising would take most
	var says bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &says
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, says.String())
	}
	var answers []Result
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(list) {
		t.Fatalf("%d answers, %v", len(answers), err)
	}
	return answers
}

// same compares two cells: floats to 1e-9 of themselves or of one, moments as moments.
func same(a, b any) bool {
	switch x := a.(type) {
	case float64:
		y, ok := b.(float64)
		return ok && math.Abs(x-y) <= 1e-9*max(1, math.Abs(x))
	case string:
		y, ok := b.(string)
		if !ok {
			return false
		}
		at, err := time.Parse(time.RFC3339Nano, x)
		if err != nil {
			return x == y
		}
		too, err := time.Parse(time.RFC3339Nano, y)
		return err == nil && at.Equal(too)
	}
	return a == b
}

// TestSparkAnswersTheSame: the ready-made questions get the same rows of Spark as of the hub's own engine, from the same files.
func TestSparkAnswersTheSame(t *testing.T) {
	needSpark(t)
	needSQL(t)
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) //nolint:gosec // any seed will do
	}
	t.Logf("go test ./fleet/hub -run TestSpark -args -seed %d", seed)
	dir := t.TempDir()
	draw(t, filepath.Join(dir, "store"), rand.New(rand.NewPCG(seed, 2)))
	cfg := testConfig(dir)
	cfg.QuerySeconds = 30
	b := startHub(t, cfg)
	var list []Query
	var names []string
	for _, q := range questions {
		for _, given := range []map[string]any{{"job": "web", "days": "1", "node": "n0"}, {"job": "mail", "days": 30, "node": "n3"}, {"job": "none", "days": 0, "node": "it's none"}} {
			ask := Query{SQL: q.SQL}
			for _, name := range q.Args {
				ask.Args = append(ask.Args, given[name])
			}
			list, names = append(list, ask), append(names, fmt.Sprintf("%s %v", q.Name, ask.Args))
		}
	}
	// What people may ask of all columns is in the files for both.
	list, names = append(list, Query{SQL: "SELECT count(*), count(DISTINCT date), max(hour), avg(cpu), avg(cpi), count(slowdown), min(time), max(task) FROM samples"}), append(names, "samples")
	begin := time.Now()
	answers, rows := askSpark(t, filepath.Join(dir, "store"), list), 0
	t.Logf("Spark: %d questions in %.1f s, its start included", len(list), time.Since(begin).Seconds())
	for i := range list {
		want, err := b.query(t.Context(), &list[i])
		if err != nil {
			t.Fatalf("%s: %v", names[i], err)
		}
		got := answers[i]
		if len(got.Rows) != len(want.Rows) || len(got.Columns) != len(want.Columns) {
			t.Errorf("%s: Spark has %d rows of %d columns, DuckDB %d of %d", names[i], len(got.Rows), len(got.Columns), len(want.Rows), len(want.Columns))
			continue
		}
		if asked := i%3 != 2; asked == (len(want.Rows) == 0) {
			t.Errorf("%s: %d rows: the test asks the wrong thing", names[i], len(want.Rows))
		}
		rows += len(want.Rows)
		compare(t, names[i], want, &got)
	}
	t.Logf("%d rows are the same", rows)
}

func compare(t *testing.T, name string, want, got *Result) {
	t.Helper()
	for r := range want.Rows {
		for c := range want.Columns {
			if !same(want.Rows[r][c], got.Rows[r][c]) {
				t.Errorf("%s: row %d, %s: DuckDB %v, Spark %v", name, r, want.Columns[c], want.Rows[r][c], got.Rows[r][c])
				return
			}
		}
	}
}
