package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	one = "GPU-67a571b1-79ee-1016-8ea3-c1fff3f1c1d2"
	two = "GPU-3e34e62f-d88e-f448-415e-be2cbf2c6178"
)

func known(v uint64) Figure { return Figure{v, true} }

// What the manual and people's prints have, a word in brackets where the driver tells nothing.
func TestParse(t *testing.T) {
	gpus, err := parseGPUs([]byte(one+", 37, 81920, 50212, Disabled\n"+two+", [N/A], 81920, 81881, Enabled\n"), true)
	want := []GPU{{two, Figure{}, known(81920 << 20), known(81881 << 20), true}, {one, known(37), known(81920 << 20), known(50212 << 20), false}}
	if d := cmp.Diff(want, gpus); d != "" || err != nil {
		t.Error(err, d)
	}
	gpus, err = parseGPUs([]byte(one+", [Not Supported], [Insufficient Permissions], N/A\n"), false)
	if d := cmp.Diff([]GPU{{UUID: one}}, gpus); d != "" || err != nil {
		t.Error(err, d)
	}
	list, err := parseProcesses([]byte("4711, " + one + ", 30100\n4712, " + two + ", [Insufficient Permissions]\n[N/A], " + two + ", 1\n"))
	if d := cmp.Diff([]Process{{4711, one, known(30100 << 20)}, {4712, two, Figure{}}, {0, two, known(1 << 20)}}, list); d != "" || err != nil {
		t.Error(err, d)
	}
	if list, err := parseProcesses(nil); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	for _, bad := range []string{
		"", "\n", "No devices were found\n", one + ", 37, 81920\n", one + ", 37, 81920, 50212, Disabled, 7\n", one + ", 101, 81920, 50212, Disabled\n", one + ", -1, 81920, 50212, Disabled\n",
		one + ", 37 %, 81920, 50212, Disabled\n", one + ", 37, 81920, 81921, Disabled\n", one + ", 37, 99999999999999999999, 1, Disabled\n", one + ", 37, 1073741825, 1, Disabled\n",
		"[GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n", strings.Repeat(one+", 1, 2, 1, Disabled\n", 2), strings.Repeat("GPU-x, 1, 2, 1, Disabled\n", MaxGPUs+1),
	} {
		if got, err := parseGPUs([]byte(bad), true); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.60q: %v, %v", bad, got, err)
		}
	}
	for _, bad := range []string{"no process\n", "x, " + one + ", 1\n", "1, " + one + ", 1 MiB\n"} {
		if got, err := parseProcesses([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(one + ", 37, 81920, 50212, Disabled\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		gpus, err := parseGPUs(text, true)
		for _, g := range gpus {
			if err != nil || g.BusyPercent.V > 100 || g.TotalBytes.Known && g.FreeBytes.V > g.TotalBytes.V {
				t.Errorf("%+v, %v", g, err)
			}
		}
		_, _ = parseProcesses(text)
	})
}

// fake makes a command of a shell script.
func fake(t *testing.T, script string) *Command {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Command{Path: path}
}

const works = `case "$1" in
*mig.mode.current*) echo "` + one + `, 37, 81920, 50212, Disabled" ;;
--query-compute-apps=pid,gpu_uuid,used_gpu_memory) echo "4711, ` + one + `, 30100" ;;
*) exit 9 ;;
esac
[ "$2" = --format=csv,noheader,nounits ] || echo wrong`

func TestCommand(t *testing.T) {
	t.Setenv("COMMENSAL_SECRET", "x")
	r, err := fake(t, `[ -z "$COMMENSAL_SECRET" ] || exit 8`+"\n"+works).Read(t.Context())
	want := Reading{[]GPU{{one, known(37), known(81920 << 20), known(50212 << 20), false}}, []Process{{4711, one, known(30100 << 20)}}}
	if d := cmp.Diff(want, r); d != "" || err != nil {
		t.Error(err, d)
	}
	old := strings.Replace(works, `echo "`+one+`, 37, 81920, 50212, Disabled" ;;`, `echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2 ;;
*memory.free) echo "`+one+`, 37, 81920, 50212" ;;`, 1)
	r, err = fake(t, old).Read(t.Context())
	if d := cmp.Diff(want, r); d != "" || err != nil {
		t.Error(err, d)
	}
	for script, says := range map[string]string{
		"echo No devices were found; exit 6":                `exit status 6; it said "No devices were found"`,
		"echo 'NVIDIA-SMI has failed' >&2; exit 9":          `it said "NVIDIA-SMI has failed"`,
		"echo hello, world":                                 "has 2 fields, not 5",
		"yes '" + one + ", 1, 2, 1, Disabled'":              "it prints more than",
		"yes x >&2 & yes y >&2; wait":                       "it prints more than",
		`case "$1" in *apps*) exit 3;; esac` + "\n" + works: "exit status 3",
	} {
		c := fake(t, script)
		c.Within = 10 * time.Second
		if r, err := c.Read(t.Context()); err == nil || !strings.Contains(err.Error(), says) || len(r.GPUs) > 0 {
			t.Errorf("%s: %v, %v", script, r, err)
		}
	}
	open := fake(t, works)
	if err := os.Chmod(open.Path, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Command{{Path: "nvidia-smi"}, {Path: filepath.Join(t.TempDir(), "none")}, open} {
		if r, err := c.Read(t.Context()); err == nil || len(r.GPUs) > 0 {
			t.Errorf("%s: %v, %v", c.Path, r, err)
		}
	}
}

// A command that hangs is killed in time, with the children that it started, and with the one that left its group nobody waits.
func TestCommandHangs(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	c := fake(t, fmt.Sprintf("sleep 300 & echo $! >%[1]s; echo $$ >>%[1]s; wait", pids))
	c.Within = 500 * time.Millisecond
	began := time.Now()
	_, err := c.Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "killed after 500ms") || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	text, err := os.ReadFile(pids)
	list := strings.Fields(string(text))
	if err != nil || len(list) != 2 {
		t.Fatalf("%q, %v", text, err)
	}
	for _, pid := range list {
		gone := false
		for end := time.Now().Add(10 * time.Second); !gone && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			gone = err != nil || strings.Contains(string(stat), ") Z ") // nobody may be there who reaps it
		}
		if !gone {
			t.Errorf("process %s is still there", pid)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// While a killed process is still there, none is started beside it.
func TestCommandOneAtATime(t *testing.T) {
	c := fake(t, works)
	c.left = true
	if r, err := c.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "the driver hangs") || len(r.GPUs) > 0 {
		t.Error(r, err)
	}
	c.left = false
	if _, err := c.Read(t.Context()); err != nil || c.left {
		t.Error(err, c.left)
	}
}

// GPUs are absent where no driver's device file is, and named where one cannot be asked.
func TestLook(t *testing.T) {
	for want, files := range map[string][]string{
		"false not known": nil, "false absent": {"dev/null", "dev/dri/card0", "dev/nvidia-caps/x"}, "true ": {"dev/nvidiactl", "dev/nvidia0", "dev/dri/renderD128"},
		"true not read: /dev/kfd": {"dev/nvidia0", "dev/kfd"}, "false not read: /dev/kfd": {"dev/kfd"}, "false not read: /dev/dri/renderD128": {"dev/dri/renderD128"},
		"false not read: NVIDIA's driver is loaded": {"dev/null", "proc/driver/nvidia/version"},
	} {
		dir := t.TempDir()
		for _, f := range files {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755), os.WriteFile(filepath.Join(dir, f), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		nvidia, why := Look(hostfs.NewRoot(dir))
		if got := fmt.Sprint(nvidia, " ", why); !strings.HasPrefix(got, want) || nvidia && want == "true " && why != "" {
			t.Errorf("%v: %s", files, got)
		}
	}
}
