package hub

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// oldFolder unpacks what a hub of a commit left, and returns its configuration: nothing is so old that it goes.
func oldFolder(t *testing.T, commit string) Config {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "old", commit+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t.TempDir())
	cfg.Keep = 100 * 365 * 24 * time.Hour
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return cfg
		}
		path := filepath.Join(cfg.Dir, filepath.Clean("/"+h.Name))
		if err == nil && h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o750)
		} else if err == nil {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// oldHub is today's hub in such a folder.
type oldHub struct {
	*bed
	token string
	says  *logged
}

// logged is a log that can be read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) has(words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

func startOld(t *testing.T, cfg Config) *oldHub {
	t.Helper()
	o := &oldHub{says: &logged{}}
	cfg.Log, cfg.SQL = slog.New(slog.NewTextHandler(o.says, nil)), sqlProgram
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o.bed = runHub(t, h)
	token, err := os.ReadFile(AdminToken(cfg.Dir))
	if err != nil {
		t.Fatal(err)
	}
	o.token = strings.TrimSpace(string(token))
	return o
}

func (o *oldHub) ask(method, path, body string) map[string]any {
	o.t.Helper()
	code, m := o.call(o.token, method, path, body)
	if code != http.StatusOK {
		o.t.Fatalf("%s %s: %d %v", path, body, code, m)
	}
	return m
}

// rows answers SQL, a line a row.
func (o *oldHub) rows(sql string) (text string) {
	o.t.Helper()
	for _, row := range o.ask("POST", "/v1/query", fmt.Sprintf(`{"sql": %q}`, sql))["rows"].([]any) {
		text += strings.Trim(fmt.Sprint(row), "[]") + "\n"
	}
	return text
}

// job finds a job among those that are known.
func (o *oldHub) job(name string) map[string]any {
	o.t.Helper()
	for _, j := range o.ask("GET", "/v1/jobs?job="+name, "")["jobs"].([]any) {
		return j.(map[string]any)
	}
	o.t.Fatalf("nothing is known of %s", name)
	return nil
}

var oldCommits = []string{"46488dd", "ae02a6f", "cb817e3"}

// Today's hub goes on in the folder of an older one: people, nodes, specs and who pinned which, kill switch and roll-out, and all rows of all tables are
// there, before and after another start; and it goes on from there.
func TestFoldersOfOlderHubs(t *testing.T) {
	needSQL(t)
	for _, commit := range oldCommits {
		t.Run(commit, func(t *testing.T) {
			t.Parallel()
			cfg := oldFolder(t, commit)
			o := startOld(t, cfg)
			samples := o.rows("SELECT node, count(*), count(DISTINCT job) FROM samples GROUP BY node ORDER BY node")
			if strings.Count(samples, "\n") != 3 || !strings.HasPrefix(samples, "node-0 ") {
				t.Errorf("samples: %q", samples)
			}
			for range 2 {
				o.checkOld(commit != "46488dd")
				if again := o.rows("SELECT node, count(*), count(DISTINCT job) FROM samples GROUP BY node ORDER BY node"); again != samples {
					t.Errorf("samples: %q became %q", samples, again)
				}
				o.stop()
				o = startOld(t, cfg)
			}
			for _, bad := range []string{"level=ERROR", "no act", "cannot be read"} {
				if o.says.has(bad) {
					t.Errorf("the log has %s:\n%s", bad, o.says.b.String())
				}
			}
			o.goesOn()
		})
	}
}

// checkOld looks for what write.go.txt did; later: the hub knew of roll-outs, and kept what it published.
func (o *oldHub) checkOld(later bool) {
	t := o.t
	t.Helper()
	st := o.ask("GET", "/v1/fleet", "")
	if off := st["off"].(map[string]any); off["off"] != true || off["by"] != "ann" || off["why"] != "trouble" {
		t.Errorf("kill switch: %v", off)
	}
	if r := st["rollout"].(map[string]any); later != (r["percent"] == 40.0 && r["overlay"] == "limits: {max_held_tasks: 3}" && r["why"] == "fewer at once" && r["id"] != "") {
		t.Errorf("roll-out: %v", r)
	}
	if n := st["nodes"].(map[string]any); n["enrolled"] != 3.0 {
		t.Errorf("nodes: %v", n)
	}
	web, batch := o.job("web"), o.job("batch")
	if web["pinned"] != true || web["revision"].(float64) < 3 || batch["pinned"] != false || batch["revision"].(float64) < 1 {
		t.Errorf("jobs: %v\n%v", web, batch)
	}
	for _, j := range []map[string]any{web, batch} {
		s := j["signals"].([]any)[0].(map[string]any)
		if s["signal"] != "cpi" || s["published"] != true || s["mean"].(float64) < 1.9 || s["mean"].(float64) > 2.1 || s["samples"].(float64) < 60 {
			t.Errorf("%v: %v", j["job"], s)
		}
	}
	eventually(t, "what the file of the audit had is committed", func() bool { return o.rows("SELECT count(*) > 0 FROM audit") == "true\n" })
	for what, sql := range map[string]string{
		"inc-1 node-0 /web web /be batch cpi recovered": "SELECT id, node, victim, victim_job, antagonist, antagonist_job, signal, state FROM incidents",
		"node-0 cannot-fix /web a decision of old":      "SELECT node, kind, task, reason FROM decisions",
		"web 1 cpi\nweb 2 cpi":                          "SELECT job, revision, signal FROM specs WHERE job = 'web' AND revision <= 2 ORDER BY revision",
		"otto operator spec-rollback the second is wrong\notto operator cap the nightly batch\nann admin kill-switch trouble": "SELECT who, role, what, why FROM audit WHERE result = '' AND what <> 'rollout' ORDER BY time",
	} {
		if rows := o.rows(sql); rows != what+"\n" && (later || !strings.Contains(sql, "FROM specs")) {
			t.Errorf("%s: %q, want %q", sql, rows, what)
		}
	}
	for i := range questions {
		q := &questions[i]
		args := strings.Repeat(`, "3650"`, len(q.Args))
		if len(q.Args) > 0 && q.Args[0] == "job" {
			args = `, "web"` + strings.Repeat(`, "3650"`, len(q.Args)-1)
		} else if len(q.Args) > 0 && q.Args[0] == "node" {
			args = `, "node-0"`
		}
		o.ask("POST", "/v1/query", fmt.Sprintf(`{"sql": %q, "args": [%s]}`, q.SQL, strings.TrimPrefix(args, ", ")))
	}
}

// goesOn: older sheets can be published again, what is told comes to the nodes, and what they send comes to what was there.
func (o *oldHub) goesOn() {
	t := o.t
	t.Helper()
	revision := o.job("web")["revision"].(float64)
	if m := o.ask("POST", "/v1/spec", `{"job": "web", "platform": "cpu", "what": "rollback", "revision": 2, "why": "a test"}`); m["revision"] != revision+1 {
		t.Errorf("%v after revision %v", m, revision)
	}
	n := startNode(t, t.Context(), o.NodesURL(), "node-0", enrol(t, o.dir, "node-0"), t.TempDir())
	defer n.Close()
	n.wall, n.run = time.Now(), "new"
	eventually(t, "the kill switch is heard", n.Off)
	eventually(t, "the pinned sheet is heard", func() bool {
		n.window(2)
		s := n.heard()
		return len(s) > 0 && s[0].Sheet > 0
	})
	o.ask("POST", "/v1/off", `{"off": false, "why": "it is over"}`)
	eventually(t, "it is told", func() bool { return !n.Off() })
	eventually(t, "what is new is beside what was there", func() bool {
		n.window(2)
		return o.rows("SELECT count(*) > 0 FROM samples WHERE task LIKE '%new'") == "true\n" &&
			o.rows("SELECT count(DISTINCT id), count(*) FROM audit WHERE what IN ('kill-switch', 'spec-rollback')") == "4 8\n"
	})
}

// What cannot be read of an older hub's folder is put aside where something else takes its place, and said in any case; the rest is there.
func TestWhatCannotBeReadIsSaid(t *testing.T) {
	needSQL(t)
	for name, c := range map[string]struct {
		spoil func(dir string) error
		says  []string
		aside string
	}{
		"what is learned is damaged": {
			func(dir string) error { return os.Truncate(filepath.Join(dir, "learned"), 100) },
			[]string{"what was learned cannot be read", "learned again from the store"}, "learned.damaged",
		},
		"what is learned is nothing": {
			func(dir string) error { return os.WriteFile(filepath.Join(dir, "learned"), []byte("nothing"), 0o600) },
			[]string{"what was learned cannot be read"}, "learned.damaged",
		},
		"a line of the audit is damaged": {
			func(dir string) error {
				path := filepath.Join(dir, "store", "audit.jsonl")
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				return os.WriteFile(path, append(b, "{\"time\": 12\n"...), 0o600)
			},
			[]string{"a line of the audit is no act", "ends_at_byte"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := oldFolder(t, "cb817e3")
			if err := c.spoil(cfg.Dir); err != nil {
				t.Fatal(err)
			}
			o := startOld(t, cfg)
			if !o.says.has(c.says...) {
				t.Errorf("it is not said:\n%s", o.says.b.String())
			}
			if c.aside != "" {
				if _, err := os.Stat(filepath.Join(cfg.Dir, c.aside)); err != nil {
					t.Error(err)
				}
				eventually(t, "it is learned again", func() bool {
					s := o.job("batch")["signals"].([]any)[0].(map[string]any)
					return s["published"] == true && s["samples"].(float64) >= 60
				})
				return
			}
			o.checkOld(true)
		})
	}
}

// What must neither be overwritten nor left out in silence keeps the hub from starting, by name: a store of a newer version, and a file of samples that is
// damaged and has not been learned from.
func TestWhatMustNotBePassedOverIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		file, want string
		spoil      func(b []byte) []byte
	}{
		"newer":   {"commit.json", "commit.json is of version 9; known here: 1", func(b []byte) []byte { return bytes.Replace(b, []byte(`"version":1`), []byte(`"version":9`), 1) }},
		"damaged": {"samples/date=2026-11-26/hour=16/205-207.parquet", "samples/date=2026-11-26/hour=16/205-207.parquet: ", func(b []byte) []byte { return b[:len(b)/2] }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := oldFolder(t, "cb817e3")
			path := filepath.Join(cfg.Dir, "store", c.file)
			b, err := os.ReadFile(path)
			if err == nil {
				err = errors.Join(os.WriteFile(path, c.spoil(b), 0o600), os.Remove(filepath.Join(cfg.Dir, "learned")))
			}
			if err != nil {
				t.Fatal(err)
			}
			h, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := h.Run(ctx); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
