package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
)

// try starts a hub and an agent with one command, whose temporary folders are below tmp, and waits until it says where the pages are.
func (b *bench) try(tmp string, args ...string) (*exec.Cmd, *trial) {
	t := b.t
	t.Helper()
	cmd := exec.Command(filepath.Join(b.bin, "commensal-hub"), append([]string{"try", "--json", "--listen", "127.0.0.1:0"}, args...)...)
	var says bytes.Buffer
	cmd.Stderr, cmd.Env = &says, append(os.Environ(), "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(syscall.SIGINT)
			_ = cmd.Wait()
		}
	})
	var is trial
	if err := json.NewDecoder(out).Decode(&is); err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v: %s", err, says.String())
	}
	return cmd, &is
}

// gone waits until a process has ended, whoever its parent is now.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if _, state, _ := strings.Cut(string(stat), ") "); err != nil || strings.HasPrefix(state, "Z") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

// interrupt ends a try as Ctrl-C does.
func interrupt(t *testing.T, cmd *exec.Cmd, is *trial) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended: %v", err)
	}
	gone(t, is.PID)
}

// groups are the cgroups that a try made, wherever one is.
func groups(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob("/sys/fs/cgroup/*" + tryGroup + "*")
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob("/sys/fs/cgroup" + tryGroup + "*")
	if err != nil {
		t.Fatal(err)
	}
	return append(list, below...)
}

// One command starts a hub and an agent, and ends both.
func TestTry(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the agent wants root")
	}
	b := newBench(t)
	b.tryEnds()
	b.tryIsKilled()
	b.tryRefuses()
}

// tryEnds: the pages are there and know the node; Ctrl-C leaves nothing.
func (b *bench) tryEnds() {
	t := b.t
	tmp := t.TempDir()
	cmd, is := b.try(tmp)
	address, token, _ := strings.Cut(is.Pages, "/#token=")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	var page hub.NodePage
	if err := (&client.Client{URL: address, TokenFile: file}).Do(t.Context(), "/v1/nodes?node="+is.Node, nil, &page); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || is.Tasks == 0 || len(page.Nodes) != 1 || page.Nodes[0].Samples == 0 {
		t.Errorf("pages %s; %+v; %+v", res.Status, is, page)
	}
	text, err := os.ReadFile(filepath.Join(is.Dir, "agent.yaml"))
	if err != nil || bytes.Contains(text, []byte("mode: enforce")) || !bytes.Contains(text, []byte("mode: observe")) {
		t.Errorf("%v; it does more than to observe:\n%s", err, text)
	}
	if len(groups(t)) == 0 {
		t.Error("there is no group")
	}
	interrupt(t, cmd, is)
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 || len(groups(t)) > 0 {
		t.Errorf("it leaves %v %v, %v", left, groups(t), err)
	}
}

// tryIsKilled: a kill ends the agent as well; a folder with a name stays, with the rules in it, and the next try tidies up.
func (b *bench) tryIsKilled() {
	t := b.t
	cmd, is := b.try(t.TempDir(), "--dir", b.dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	gone(t, is.PID)
	rules := filepath.Join(b.dir, "config.yaml")
	text := "version: 1\nhard_cap: {mode: enforce}\ntasks: [{match: /mine, job: mine, class: BE}]\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, is = b.try(t.TempDir(), "--dir", b.dir)
	made, err := os.ReadFile(filepath.Join(b.dir, "agent.yaml"))
	if err != nil || !bytes.Contains(made, []byte("/mine")) || bytes.Contains(made, []byte("mode: enforce")) {
		t.Errorf("%v:\n%s", err, made)
	}
	interrupt(t, cmd, is)
	if kept, err := os.ReadFile(rules); err != nil || string(kept) != text || len(groups(t)) > 0 {
		t.Errorf("%s %v; groups %v", kept, err, groups(t))
	}
}

// tryRefuses: what keeps it from working it says in a line, and leaves nothing.
func (b *bench) tryRefuses() {
	t := b.t
	tmp := t.TempDir()
	kept := filepath.Join(tmp, "kept") // with rules, so that nothing is guessed
	if err := os.CopyFS(kept, os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]os.FileMode{filepath.Dir(b.bin): 0o755, filepath.Dir(tmp): 0o755, tmp: 0o777} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		uid, code int
		want      string
		args      []string
	}{
		{65534, 4, "run it as root", nil},
		{0, 2, "--tls-cert", []string{"--listen", "0.0.0.0:0"}},
		{0, 5, "no such file", []string{"--agent", "/nowhere/commensal"}},
		{0, 1, "the agent ended: ", []string{"--agent", "/bin/false", "--dir", kept}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "commensal-hub"), append([]string{"try", "--listen", "127.0.0.1:0"}, c.args...)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
		var says bytes.Buffer
		cmd.Stderr, cmd.Env = &says, append(os.Environ(), "TMPDIR="+tmp)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid)}}
		_ = cmd.Run() // the code says how it ended
		b.expect(c.code, c.want, cmd.ProcessState.ExitCode(), "", says.String(), "commensal-hub", c.args...)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 1 || len(groups(t)) > 0 {
		t.Errorf("it leaves %v %v, %v", left, groups(t), err)
	}
}
