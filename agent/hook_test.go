package agent

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
)

var unfixed = model.Decision{
	Kind: model.DecideCannotFix, Policy: model.PolicyPressure, Mode: "enforce", Task: 3, Path: "/batch", Reason: "memory stays short", Facts: []model.Fact{model.FactHeld.Is(5)},
}

// script writes a program for a hook.
func script(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// What cannot be fixed is told to the program and the URL, whole and once; nothing else is.
func TestHook(t *testing.T) {
	posted := make(chan []byte, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		posted <- b
	}))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "out")
	h := startHook(context.Background(), &config.Agent{HookProgram: script(t, "cat >>"+out), HookURL: server.URL}, slog.New(slog.DiscardHandler))
	h.tell(&model.Decision{Kind: model.DecideCap, Path: "/batch"}, true)
	h.tell(&unfixed, false)
	got := <-posted
	h.close()
	wrote, err := os.ReadFile(out)
	if err != nil || string(wrote) != string(got) || len(posted) > 0 {
		t.Fatalf("the program got %q, %v, the URL %q and %d more", wrote, err, got, len(posted))
	}
	var doc Unfixed
	if err := json.Unmarshal(got, &doc); err != nil || doc.Version != 1 || doc.Decision.Path != "/batch" || doc.Decision.Kind != model.DecideCannotFix || len(doc.Decision.Facts) != 1 {
		t.Errorf("%s: %+v, %v", got, doc, err)
	}
	if startHook(context.Background(), &config.Agent{}, nil) != nil {
		t.Error("a hook that nobody asked for")
	}
	(*hook)(nil).tell(&unfixed, true)
	(*hook)(nil).close()
}

// A program that fails, is not there or hangs, with children that hold its output, and a URL that refuses or sends us
// elsewhere: each is said, and the next decision is handed on.
func TestHookFails(t *testing.T) {
	elsewhere := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	defer elsewhere.Close()
	writable := script(t, "true")
	if err := os.Chmod(writable, 0o777); err != nil { // the umask aside
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		agent config.Agent
		says  string
	}{
		"fails":        {config.Agent{HookProgram: script(t, "echo no room; exit 3")}, "no room"},
		"is not there": {config.Agent{HookProgram: "/no/such/program"}, "no such file"},
		"says much":    {config.Agent{HookProgram: script(t, "head -c 1000000 /dev/zero | base64; exit 1")}, "exit status 1"},
		"writable":     {config.Agent{HookProgram: writable}, "may write it"},
		"refused":      {config.Agent{HookURL: "http://127.0.0.1:1/"}, "refused"},
		"elsewhere":    {config.Agent{HookURL: elsewhere.URL}, "elsewhere"},
	} {
		var log strings.Builder
		h := startHook(context.Background(), &c.agent, slog.New(slog.NewTextHandler(&log, nil)))
		h.tell(&unfixed, false)
		h.tell(&unfixed, false)
		h.close()
		if n := strings.Count(log.String(), "the hook failed"); n != 2 || !strings.Contains(log.String(), c.says) || len(log.String()) > 8<<10 {
			t.Errorf("%s: said %d times: %.2000s", name, n, log.String())
		}
	}
}

// silentServer takes requests, says so, and answers none until the test is over.
func silentServer(t *testing.T) (*httptest.Server, <-chan struct{}) {
	t.Helper()
	asked, release := make(chan struct{}, 10), make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-release
	}))
	t.Cleanup(func() {
		close(release)
		silent.Close()
	})
	return silent, asked
}

// A program that never ends and a URL that never answers are given up in time, which is said, and the next decision is handed on.
func TestHookNeverAnswers(t *testing.T) {
	silent, asked := silentServer(t)
	pids := filepath.Join(t.TempDir(), "pids")
	for name, c := range map[string]struct {
		agent config.Agent
		says  string
	}{
		"program": {config.Agent{HookProgram: script(t, "echo $$ >>"+pids+"; echo so far; sleep 300")}, "killed after 300ms"},
		"url":     {config.Agent{HookURL: silent.URL}, "deadline exceeded"},
	} {
		var log strings.Builder
		begun := time.Now()
		h := startHookWithin(context.Background(), 300*time.Millisecond, &c.agent, slog.New(slog.NewTextHandler(&log, nil)))
		h.tell(&unfixed, false)
		h.tell(&unfixed, false)
		h.close()
		<-h.done
		if took := time.Since(begun); took > 8*time.Second {
			t.Errorf("%s: %v for two", name, took)
		}
		if n := strings.Count(log.String(), c.says); n != 2 {
			t.Errorf("%s: said %d times: %s", name, n, log.String())
		}
	}
	if b, err := os.ReadFile(pids); err != nil || len(strings.Fields(string(b))) != 2 || len(asked) != 2 {
		t.Errorf("the program began as %q, %v; the URL was asked %d times", b, err, len(asked))
	}
}

// A program that hangs keeps nobody waiting: not the loop, and not an agent that ends; nothing of it is left.
func TestHookHangs(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h := startHook(ctx, &config.Agent{HookProgram: script(t, "sleep 300 & echo $! >"+pids+"; sleep 300")}, slog.New(slog.DiscardHandler))
	h.tell(&unfixed, false)
	var child string
	for range 100 {
		if b, err := os.ReadFile(pids); err == nil && len(b) > 0 {
			child = strings.TrimSpace(string(b))
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	begun := time.Now()
	for range 4 * maxHooked {
		h.tell(&unfixed, false)
	}
	if took := time.Since(begun); took > 5*time.Second || h.lost < 2*maxHooked {
		t.Errorf("%v for handing in, %d left out", took, h.lost)
	}
	cancel()
	h.close()
	<-h.done
	if child == "" {
		t.Fatal("it started no child: the test proves nothing")
	}
	for deadline := time.Now().Add(5 * time.Second); !zombie(child); time.Sleep(10 * time.Millisecond) { // who is killed is not gone at once
		if time.Now().After(deadline) {
			t.Fatalf("its child %q is left", child)
		}
	}
}

// zombie reports whether a process is gone, or has ended and waits for whoever took it over.
func zombie(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

// Where pressure.hook says so whom pressure freezes, lets go on and ends is told as it is written, and then what came of it, once; else it is not, and nobody else's is.
// In mode observe nothing comes of it.
func TestHookOfPressure(t *testing.T) {
	d := func(kind model.DecisionKind, policy, mode string, task model.TaskNum) *model.Decision {
		return &model.Decision{Kind: kind, Policy: policy, Mode: mode, Task: task, Path: "/batch"}
	}
	result := func(task model.TaskNum, kind model.ResultKind, now model.Setting) *model.Result {
		return &model.Result{Target: model.OfTask(task), Kind: kind, Now: now}
	}
	play := func(pressure bool) (told []string) {
		posted := make(chan []byte, 100)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			posted <- b
		}))
		defer server.Close()
		h := startHook(context.Background(), &config.Agent{HookURL: server.URL}, slog.New(slog.DiscardHandler))
		h.tell(d(model.DecideFreeze, model.PolicyPressure, "enforce", 3), pressure)
		h.became(result(4, model.Applied, model.Freeze(true)))
		h.became(result(3, model.Applied, model.Reclaim(5)))
		h.became(result(3, model.Applied, model.Freeze(true)))
		h.became(result(3, model.Applied, model.Freeze(true)))
		h.tell(d(model.DecideReclaim, model.PolicyPressure, "enforce", 3), pressure)
		h.tell(d(model.DecideEnd, model.PolicyRemedy, "enforce", 5), false)
		h.tell(d(model.DecideEnd, model.PolicyPressure, "enforce", 3), pressure)
		h.became(result(3, model.Applied, model.Freeze(false))) // on cgroup v1 it is let go of, so that it can end
		h.became(result(3, model.Applied, model.End(0)))
		h.tell(d(model.DecideFreeze, model.PolicyPressure, "observe", 6), pressure)
		h.became(result(6, model.Applied, model.Freeze(true)))
		h.tell(d(model.DecideRelease, model.PolicyPressure, "enforce", 7), pressure)
		h.became(result(7, model.Vanished, model.Setting{}))
		h.tell(&unfixed, pressure)
		h.close()
		<-h.done
		close(posted)
		for b := range posted {
			var doc Unfixed
			if err := json.Unmarshal(b, &doc); err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			text := doc.Decision.Kind.String()
			if doc.Result != nil {
				text += " " + doc.Result.Kind.String()
			}
			told = append(told, text)
		}
		return told
	}
	if got, want := strings.Join(play(true), ", "), "freeze, freeze applied, end, end applied, freeze, release, release vanished, cannot-fix"; got != want {
		t.Errorf("told: %s; want %s", got, want)
	}
	if got := strings.Join(play(false), ", "); got != "cannot-fix" {
		t.Errorf("not asked for, and told: %s", got)
	}
}

// However many tasks are frozen while a hook hangs, the loop does not wait, what cannot be fixed has room, and no more is kept than a bound.
func TestHookOfPressureHangs(t *testing.T) {
	silent, asked := silentServer(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h := startHook(ctx, &config.Agent{HookURL: silent.URL}, slog.New(slog.DiscardHandler))
	h.tell(&unfixed, true)
	<-asked // from now on nobody makes room
	begun := time.Now()
	for n := range model.TaskNum(3 * maxAwaited) {
		h.tell(&model.Decision{Kind: model.DecideFreeze, Policy: model.PolicyPressure, Mode: "enforce", Task: n}, true)
	}
	lost := h.lost
	h.tell(&unfixed, true)
	if took := time.Since(begun); took > 5*time.Second || lost < 3*maxAwaited-maxHooked || h.lost != 0 || len(h.awaited) > maxAwaited {
		t.Errorf("%v for handing in, %d left out, then %d; %d awaited", took, lost, h.lost, len(h.awaited))
	}
}
