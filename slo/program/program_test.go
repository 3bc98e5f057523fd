package program

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/slo"
)

func start(t *testing.T, script string) *Source {
	t.Helper()
	s, err := New(Config{Command: []string{"/bin/sh", "-c", script}, Window: 300 * time.Millisecond, Quantile: 0.9})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func await(t *testing.T, s *Source, what string, ok func(slo.Reading) bool) {
	t.Helper()
	for began := time.Now(); !ok(s.Read(time.Now())); time.Sleep(2 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("never %s: %+v", what, s.Read(time.Now()))
		}
	}
}

func TestNumbers(t *testing.T) {
	s := start(t, `while :; do echo 2.5; echo " 4 "; sleep 0.01; done`)
	await(t, s, "p90 of 4 ms", func(r slo.Reading) bool {
		return r.Valid.Has(slo.HasAsked) && r.Asked == 4*time.Millisecond && r.P50 == 2500*time.Microsecond && r.Errors == 0
	})
	failing := start(t, `while :; do echo 1; echo inf; sleep 0.01; done`)
	await(t, failing, "failed", func(r slo.Reading) bool { return r.Valid.Has(slo.HasAsked) && r.Errors > 1 && r.Asked == time.Second })
}

// What a program must not do, and what is said of it. None of it has figures.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"garbage":  {"echo 1; echo hello; sleep 60", `printed "hello"`},
		"negative": {"echo -1; sleep 60", `printed "-1"`},
		"nan":      {"echo nan; sleep 60", `printed "nan"`},
		"endless":  {"while :; do printf xxxxxxxxxxxxxxxx; done", "more than 128 bytes"},
		"flood":    {"while :; do echo 1; done", "lines a second"},
		"ends":     {"echo 1; exit 3", "exit status 3"},
		"fine":     {"exit 0", "the program ended"},
		"killed":   {"kill -9 $$", "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			await(t, start(t, c.script), c.want, func(r slo.Reading) bool {
				return r.Status.State == slo.StateUnavailable && strings.Contains(r.Status.Reason, c.want) && r.Valid == 0
			})
		})
	}
	silent := start(t, "i=0; while [ $i -lt 50 ]; do echo 1; i=$((i+1)); done; sleep 60")
	await(t, silent, "figures", func(r slo.Reading) bool { return r.Valid.Has(slo.HasAsked) })
	await(t, silent, "none once it is silent", func(r slo.Reading) bool { return r.Valid == 0 && r.Status.State == slo.StateTooFew })
	if s, err := New(Config{Command: []string{"/no/such/program"}}); err != nil {
		t.Error(err)
	} else if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	} else {
		await(t, s, "not found", func(r slo.Reading) bool { return strings.Contains(r.Status.Reason, "no such file") })
		_ = s.Close()
	}
	if _, err := New(Config{}); err == nil {
		t.Error("took no command")
	}
}

// Close ends the whole group, also what a child of the program left behind; the agent's precedence and that
// it is killed last are not handed on.
func TestCloseEndsTheGroup(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "sleep 300 & echo $! >"+dir+"/child; echo $$ >"+dir+"/self; trap '' TERM INT; while :; do echo 1; sleep 0.02; done")
	await(t, s, "figures", func(r slo.Reading) bool { return r.Valid.Has(slo.HasP50) })
	var pids []int
	for _, name := range []string{"child", "self"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	var files unix.Rlimit
	if err := unix.Prlimit(pids[1], unix.RLIMIT_NOFILE, nil, &files); err != nil || files.Cur != maxFiles {
		t.Errorf("may open %d files: %v", files.Cur, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		for began := time.Now(); alive(pid); time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("process %d lives on", pid)
			}
		}
	}
	if r := s.Read(time.Now()); r.Status.String() != "unavailable: closed" {
		t.Error(r.Status)
	}
}

// alive reports whether a process runs: one that ended and was not waited for yet does not.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
