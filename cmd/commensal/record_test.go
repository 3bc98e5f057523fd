package main

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
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// recorded runs `record --cpu-trace` and returns what it printed, and its exit code.
func recorded(t *testing.T, asJSON bool, task, out string, d time.Duration) (string, int) {
	t.Helper()
	var b bytes.Buffer
	err := recordTrace(context.Background(), &cli.Printer{JSON: asJSON, Out: &b}, io.Discard, task, out, d)
	var ce *cli.Error
	switch {
	case err == nil:
		return b.String(), cli.CodeDone
	case errors.As(err, &ce):
		return b.String(), ce.Code
	}
	t.Log(err)
	return b.String(), cli.CodeBroken
}

func TestRecordRefuses(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none", "trace")
	for _, c := range []struct {
		task, out string
		d         time.Duration
	}{
		{"relative", "", time.Second}, {"/", "", time.Second}, {"/commensal-test-no-such-group", "", time.Second}, {"/a", "", 0}, {"/a", "", 2 * time.Hour}, {"/a", none, time.Second},
	} {
		if out, code := recorded(t, false, c.task, c.out, c.d); code != cli.CodeBadInput || out != "" {
			t.Errorf("%+v: exit code %d, %q", c, code, out)
		}
	}
	if err := recordFailed(fmt.Errorf("open: %w", unix.EACCES)); !strings.Contains(err.Error(), "run it as root") || err.(*cli.Error).Code != cli.CodePrivilege { //nolint:errorlint // that very one
		t.Error(err)
	}
}

func TestRecordWrites(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making cgroups takes root")
	}
	path := workingGroup(t)
	file := filepath.Join(t.TempDir(), "trace")
	text, code := recorded(t, false, path, file, 200*time.Millisecond)
	data, err := os.ReadFile(file)
	if code != 0 || err != nil || !strings.Contains(text, "next: commensal-lab run burst --trace "+file) {
		t.Fatalf("exit code %d, %v, %s", code, err, text)
	}
	if n := strings.Count(string(data), "\n"); !strings.HasPrefix(string(data), "# ") || n < 200 {
		t.Errorf("%d lines: %.300s", n, data)
	}
	if list, err := os.ReadDir(filepath.Dir(file)); err != nil || len(list) != 1 {
		t.Errorf("beside the trace: %v, %v", list, err)
	}
	if text, code = recorded(t, false, path, "", 200*time.Millisecond); code != 0 || !strings.HasPrefix(text, "# CPU use by the millisecond") {
		t.Errorf("to stdout: exit code %d, %.300s", code, text)
	}
	var doc struct {
		Task  string    `json:"task"`
		Trace []float64 `json:"trace_ms"`
	}
	if text, code = recorded(t, true, path, "", 200*time.Millisecond); code != 0 || json.Unmarshal([]byte(text), &doc) != nil || doc.Task != path || len(doc.Trace) != 200 {
		t.Errorf("as JSON: exit code %d, %.300s", code, text)
	}
}

// workingGroup makes a cgroup in which a process of ours works.
func workingGroup(t *testing.T) string {
	t.Helper()
	root := hostfs.NewRoot("/")
	mounts, err := cgroup.Discover(root)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cgroup.Open(root, mounts)
	if err != nil {
		t.Skipf("no cgroups that are driven: %v", err)
	}
	path := fmt.Sprintf("/commensal-test-%d-record", os.Getpid())
	if err := d.Mkdir(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 1000 {
			if err = d.Rmdir(path); !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			t.Error(err)
		}
	})
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	if err := d.MovePID(path, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return path
}
