package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/model"
)

// Queries are answered by a program of its own, commensal-sql: an engine that is given any text may use up its memory, hang or crash, and must
// not take the hub with it. It reads the store's files and can write none.

// Query is a question in SQL. Args are put where it says ?, and are never part of the text.
type Query struct {
	SQL  string `json:"sql"`
	Args []any  `json:"args,omitempty"`
}

// Result is the answer.
type Result struct {
	Columns   []string `json:"columns"`
	Types     []string `json:"types"`
	Rows      [][]any  `json:"rows"`
	Truncated bool     `json:"truncated"` // there are more rows than are shown
	Seconds   float64  `json:"seconds"`
}

const (
	querySeconds = 25              // of the engine
	queryGrace   = 5 * time.Second // until it is killed
	queriesMost  = 2               // at once
	maxAnswer    = 64 << 20
)

var (
	errQuery = errors.New("query")
	queries  = make(chan struct{}, queriesMost)
)

// query asks the program.
func (h *Hub) query(ctx context.Context, q *Query) (*Result, error) {
	program := h.cfg.SQL
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program = filepath.Join(filepath.Dir(self), "commensal-sql")
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%w: the engine is not installed (%w); `make hub` builds it", errQuery, err)
	}
	limit := time.Duration(h.cfg.QuerySeconds)*time.Second + queryGrace
	turn, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case queries <- struct{}{}:
		defer func() { <-queries }()
	case <-turn.Done():
		return nil, fmt.Errorf("%w: %d others are being answered", errQuery, queriesMost)
	}
	done, err := h.store.Read(turn)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errQuery, err)
	}
	defer done()
	ctx, cancel = context.WithTimeout(ctx, limit)
	defer cancel()
	in, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	var out, says bytes.Buffer
	cmd := exec.CommandContext(ctx, program, h.store.Dir(), strconv.Itoa(h.cfg.QuerySeconds))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &limited{&out, maxAnswer, "the answer"}, &limited{&says, 4096, "the answer"}
	cmd.Env, cmd.Dir = []string{"HOME=/nonexistent", "GOTRACEBACK=none"}, "/" // of one that has no memory left a line is enough
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: it took more than %s", errQuery, limit)
	case err != nil:
		text := strings.Join(strings.Fields(says.String()), " ")
		if text == "" {
			text = err.Error()
		}
		return nil, fmt.Errorf("%w: %s", errQuery, text)
	}
	res := &Result{}
	if err := json.Unmarshal(out.Bytes(), res); err != nil {
		return nil, fmt.Errorf("%w: the engine's answer cannot be read: %w", errQuery, err)
	}
	res.Seconds = time.Since(begin).Seconds()
	return res, nil
}

// limited is a writer that fails once more than so many bytes would be written, and says of what.
type limited struct {
	to   io.Writer
	left int
	what string
}

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.left {
		return 0, errors.New(l.what + " is too long")
	}
	l.left -= len(b)
	return l.to.Write(b)
}

// interference is the question that is asked for schedulers, too.
const (
	interference      = "interference"
	interferenceDays  = 30
	interferenceEvery = 10 * time.Minute
)

// InterferenceFile is where schedulers find which job hurts which (CPI² section 9), in a hub's folder.
func InterferenceFile(dir string) string { return filepath.Join(dir, "interference.json") }

// export keeps the file of interference current, and what nodes know of it.
func (h *Hub) export(ctx context.Context) error {
	for wait := 10 * time.Second; ; wait = interferenceEvery {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := errors.Join(h.exportOnce(ctx), h.sendPriors(ctx)); err != nil && ctx.Err() == nil {
			h.log.Warn("schedulers or nodes do not hear who hurts whom", "error", err)
		}
	}
}

func (h *Hub) exportOnce(ctx context.Context) error {
	for _, q := range questions {
		if q.Name != interference {
			continue
		}
		res, err := h.query(ctx, &Query{SQL: q.SQL, Args: []any{interferenceDays}})
		if err != nil {
			return err
		}
		f, err := interferenceOf(res, time.Now())
		if err != nil {
			return err
		}
		b, err := json.MarshalIndent(f, "", " ")
		if err != nil {
			return err
		}
		return store.Replace(InterferenceFile(h.cfg.Dir), append(b, '\n'))
	}
	return nil
}

// Question is one that people ask often.
type Question struct {
	Name string   `json:"name"`
	Text string   `json:"text"`
	Args []string `json:"args"` // what each ? stands for
	SQL  string   `json:"sql"`
}

// latest are the incidents as they stood last.
const latest = `(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY node, spool, id ORDER BY batch DESC) AS nth FROM incidents) AS numbered WHERE nth = 1) AS latest`

// within are the last days; its argument is their number.
const within = ` >= CAST(now() AS TIMESTAMP) - INTERVAL '1' DAY * CAST(? AS INTEGER)`

// hurt is how bad a signal was, in times of its threshold; null where that is 0. Engines do not agree on what a float by a float is, nor by 0.
const hurt = `CAST(value AS DOUBLE) / nullif(threshold, 0)`

// relief is how much worse a signal was before the last hold than in it: what the antagonist made of it; null where either is not known.
const relief = `CASE WHEN before > 0 AND after > 0 THEN CAST(before AS DOUBLE) / after END`

// resource is what a signal says that the victim had less of.
func resource() string {
	var b strings.Builder
	b.WriteString("CASE signal")
	for _, src := range model.Sources() {
		if r := src.Row(); r.Resource != "" {
			fmt.Fprintf(&b, " WHEN '%s' THEN '%s'", r.Name, r.Resource)
		}
	}
	return b.String() + " ELSE '' END"
}

// fact is the number of a decision's fact; null: it has none. What a document holds the engines ask for in different words, what a text holds not.
func fact(k model.FactKind) string {
	return `CAST(nullif(regexp_extract(facts, '"name":"` + k.String() + `","value":([-+.0-9eE]+)', 1), '') AS DOUBLE)`
}

// seconds are those of an interval, whole ones: engines have no other word for them in common.
func seconds(interval string) string {
	return fmt.Sprintf("(86400e0 * extract(DAY FROM %[1]s) + 3600e0 * extract(HOUR FROM %[1]s) + 60e0 * extract(MINUTE FROM %[1]s) + CAST(floor(extract(SECOND FROM %[1]s)) AS DOUBLE))", interval)
}

// The questions are in the SQL that DuckDB and Spark both answer, and alike (TestSparkAnswersTheSame): numbers with a fraction are doubles
// (1e0), since the mean of decimals is rounded in one of them, and what is cut off by LIMIT is ordered to the last column.
var questions = []Question{
	{"antagonists", "the most aggressive antagonists of a job in the last days", []string{"job", "days"}, `
SELECT antagonist_job, count(*) AS incidents, count(DISTINCT node) AS nodes, round(avg(` + hurt + `), 3) AS degradation, round(avg(CASE WHEN state = 'recovered' THEN 1e0 ELSE 0e0 END), 3) AS recovered
FROM ` + latest + ` WHERE victim_job = ? AND antagonist_job <> '' AND opened` + within + `
GROUP BY 1 ORDER BY incidents DESC, antagonist_job LIMIT 50`},
	{"apart", "jobs that should not share a machine", []string{"days"}, `
SELECT victim_job, antagonist_job, platform, count(*) AS incidents, count(DISTINCT node) AS nodes, round(avg(` + hurt + `), 3) AS degradation
FROM ` + latest + ` WHERE antagonist_job <> '' AND opened` + within + `
GROUP BY ALL HAVING count(*) >= 3 ORDER BY incidents DESC, victim_job, antagonist_job, platform LIMIT 100`},
	{interference, "which job hurts which, and at what, the most widely seen first: how often, on how many nodes, and by the latest ten of each node, so that none says most of it: how much (the victim's signal before a hold by that in it, over the incidents in which both are known, with a 95 % interval), how far above its threshold, and how sure it is: the least share of incidents in which the victim recovered (Wilson, 95 %)", []string{"days"}, `
WITH numbered AS (SELECT *, row_number() OVER (PARTITION BY victim_job, antagonist_job, platform, signal, node ORDER BY opened DESC, id, spool) AS mine,
  count(*) OVER (PARTITION BY victim_job, antagonist_job, platform, signal) AS incidents
FROM ` + latest + ` WHERE antagonist_job <> '' AND state <> 'observed' AND opened` + within + `),
pairs AS (SELECT victim_job, antagonist_job, platform, signal, max(incidents) AS incidents, count(*) AS n, count(DISTINCT node) AS nodes, count(` + relief + `) AS held, avg(` + relief + `) AS degradation,
  1.96e0 * stddev_samp(` + relief + `) / sqrt(nullif(count(` + relief + `), 0)) AS error, avg(` + hurt + `) AS above, avg(CASE WHEN state = 'recovered' THEN 1e0 ELSE 0e0 END) AS recovered
FROM numbered WHERE mine <= ` + strconv.Itoa(priorCounted) + ` GROUP BY victim_job, antagonist_job, platform, signal)
SELECT victim_job, antagonist_job, platform, signal, ` + resource() + ` AS resource, incidents, nodes, held, round(degradation, 3) AS degradation, round(degradation - error, 3) AS low, round(degradation + error, 3) AS high, round(above, 3) AS above,
  round(greatest(0e0, (recovered + 1.92e0 / n - 1.96e0 * sqrt((recovered * (1 - recovered) + 0.96e0 / n) / n)) / (1 + 3.84e0 / n)), 3) AS confidence
FROM pairs ORDER BY nodes DESC, confidence DESC, incidents DESC, victim_job, antagonist_job, platform, signal LIMIT 5000`},
	{"victims", "victims by hour in the last days", []string{"days"}, `
SELECT date_trunc('hour', opened) AS hour, victim_job, count(*) AS incidents, count(*) FILTER (WHERE state = 'cannot-fix') AS not_fixed
FROM ` + latest + ` WHERE opened` + within + ` GROUP BY ALL ORDER BY hour, victim_job`},
	{"node", "a node's history: what was decided and which incidents there were, newest first", []string{"node"}, `
SELECT time, kind, taken_by, mode, task, incident, reason FROM (
  SELECT node, time, kind, taken_by, mode, task, incident, reason FROM decisions
  UNION ALL SELECT node, opened, 'incident', '', '', victim, id, state || ': ' || victim_job || ' by its ' || signal || CASE WHEN antagonist = '' THEN '' ELSE '; chosen last: ' || antagonist END FROM ` + latest + `
) AS history WHERE node = ? ORDER BY time DESC, kind, taken_by, mode, task, incident, reason LIMIT 500`},
	{"specs", "what was published of a job, newest first", []string{"job"}, `
SELECT time, platform, size, revision, signal, mean, stddev, tail, p50, p90, p99, samples, tasks, nodes, pinned FROM specs WHERE job = ? ORDER BY time DESC, platform, size, signal, definition LIMIT 500`},
	{"audit", "what operators did in the last days, newest first", []string{"days"}, `
SELECT time, who, role, what, node, detail, why, result, id FROM audit WHERE time` + within + ` ORDER BY time DESC, id, result, what, detail LIMIT 500`},
	{"cost", "what policies took from batch work in the last days, by what was done: how often, and of the holds whose end is known how many minutes, and how many CPU-seconds less than these tasks used when they were held", []string{"days"}, `
WITH said AS (SELECT node, taken_by, mode, task, incident, kind, time, ` + fact(model.FactUsage) + ` AS used, ` + fact(model.FactCap) + ` AS cap
FROM decisions WHERE kind IN ('cap', 'nudge', 'step', 'demote', 'pool', 'divide', 'level', 'freeze', 'taken-back', 'release', 'gone', 'kill-switch') AND (task <> '' OR kind = 'kill-switch') AND time` + within + `),
told AS (SELECT *, kind NOT IN ('release', 'gone', 'kill-switch') AND coalesce(cap <> used, true) AS begins FROM said WHERE kind <> 'taken-back' OR cap IS NOT NULL),
began AS (SELECT DISTINCT node, taken_by, task FROM told WHERE begins),
ends AS (SELECT began.node, began.taken_by, began.task, told.time FROM began JOIN told ON told.node = began.node AND told.task = began.task WHERE told.kind = 'gone'
  UNION ALL SELECT began.node, began.taken_by, began.task, told.time FROM began JOIN told ON told.node = began.node WHERE told.kind = 'kill-switch'),
events AS (SELECT node, taken_by, mode, task, incident, kind, time, begins, used, cap FROM told WHERE kind NOT IN ('gone', 'kill-switch')
  UNION ALL SELECT node, taken_by, '', task, '', 'gone', time, false, CAST(NULL AS DOUBLE), CAST(NULL AS DOUBLE) FROM ends),
turns AS (SELECT *, lead(time) OVER turn AS next_time, lead(begins) OVER turn AS next_begins, lead(incident) OVER turn AS next_incident
FROM events WINDOW turn AS (PARTITION BY node, taken_by, task ORDER BY time, CASE WHEN incident = '' THEN NOT begins ELSE begins END, kind, incident, mode, cap NULLS LAST, used NULLS LAST)),
holds AS (SELECT *, CASE WHEN mode = 'enforce' AND (NOT next_begins OR next_incident = incident) THEN next_time - time END AS held FROM turns WHERE begins),
took AS (SELECT *, ` + seconds("held") + ` AS seconds FROM holds)
SELECT taken_by, mode, kind, count(*) AS holds, count(DISTINCT node) AS nodes, count(DISTINCT node || ' ' || task) AS tasks, count(seconds) AS ended, round(sum(seconds) / 60, 1) AS minutes,
  count(seconds * (used - cap)) AS counted, round(sum(seconds * CASE WHEN used > cap THEN used - cap WHEN used <= cap THEN 0e0 END), 1) AS cpu_seconds
FROM took GROUP BY taken_by, mode, kind ORDER BY holds DESC, taken_by, mode, kind LIMIT 200`},
}
