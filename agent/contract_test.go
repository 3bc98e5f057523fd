package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/internal/rigtest"
)

// TestSocketMode: the operators' socket is root's, and a group's where there is one.
func TestSocketMode(t *testing.T) {
	t.Parallel()
	if rigtest.Inside() { // a guest has no groups at all
		if err := errors.Join(os.MkdirAll("/etc", 0o755), os.WriteFile("/etc/group", []byte("root:x:0:\ndaemon:x:1:\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	group, err := user.LookupGroupId("1") // daemon on most systems; any that is not root's will do
	if err != nil {
		t.Skipf("no second group on this system: %v", err)
	}
	b := newBed(t, "socket", settings{})
	b.group("be-0", unlimited)
	for _, c := range []struct {
		group string
		mode  os.FileMode
		gid   uint32
	}{{"no-such-group", 0o600, 0}, {group.Name, 0o660, 1}} {
		b.configure(settings{group: c.group})
		p := b.agent()
		st, err := os.Stat(b.dir + "/agent.sock")
		if err != nil {
			t.Fatal(err)
		}
		sys := st.Sys().(*syscall.Stat_t)
		if st.Mode().Perm() != c.mode || sys.Uid != 0 || sys.Gid != c.gid {
			t.Errorf("group %s: mode %o, owner %d:%d; expected %o, 0:%d", c.group, st.Mode().Perm(), sys.Uid, sys.Gid, c.mode, c.gid)
		}
		// Who may not open the socket is told so, with exit 4; who may, may operate.
		member := &syscall.Credential{Uid: 65534, Gid: c.gid}
		want := map[bool]int{true: 0, false: 4}[c.gid != 0]
		if c.gid == 0 {
			member.Gid = 65534
		}
		for _, args := range [][]string{{"status"}, {"cap", b.groups[0], "--cpus", "0.5", "--for", "1m"}} {
			r := b.runAs(member, append(args, "--config", b.config)...)
			if r.code != want {
				t.Errorf("group %s: %v as %d:%d: exit %d, expected %d: %s", c.group, args, member.Uid, member.Gid, r.code, want, r.err)
			}
			if want == 4 && !strings.Contains(r.err, "socket_group") {
				t.Errorf("%v does not say who may: %s", args, r.err)
			}
		}
		p.stop(unix.SIGTERM)
	}
}

// TestUnprivilegedAgent: the missing capability is named, with exit 4.
func TestUnprivilegedAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, "nobody", settings{})
	r := b.runAs(&syscall.Credential{Uid: 65534, Gid: 65534}, "agent", "--config", b.config)
	if r.code != 4 || !strings.Contains(r.err, "CAP_DAC_OVERRIDE") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	for _, dir := range []string{"/state", "/run"} {
		if _, err := os.Stat(b.dir + dir); !os.IsNotExist(err) {
			t.Errorf("it left %s behind (%v)", dir, err)
		}
	}
}

// TestCommands: every command's exit code, and one JSON document with --json.
func TestCommands(t *testing.T) {
	t.Parallel()
	b := newBed(t, "commands", settings{})
	be, lc := b.group("be-0", unlimited), b.group("victim", unlimited)
	bad := filepath.Join(b.dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("version: 1\nmood: observe\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	conf := []string{"--config", b.config}
	type command struct {
		code int
		args []string
		key  string // that the document must have
		says string // in the one line on stderr
	}
	check := func(list ...command) {
		t.Helper()
		for _, c := range list {
			b.document(c.code, c.key, c.says, c.args...)
		}
	}
	on := func(args ...string) []string { return append(args, conf...) }
	check(
		command{0, []string{"doctor"}, "findings", ""},
		command{0, []string{"config", "defaults"}, "hard_cap", ""},
		command{2, []string{"config", "defaults", "--profile", "x"}, "error", "--profile x"},
		command{0, []string{"config", "check", b.config}, "ok", ""},
		command{2, []string{"config", "check", bad}, "error", bad + ":2:"},
		command{2, []string{"config", "check", bad + ".not"}, "error", bad + ".not"},
		command{2, []string{"agent", "--config", bad}, "error", bad + ":2:"},
		command{2, []string{"no-such-command"}, "error", "no-such-command"},
		command{2, []string{"status", "--no-such-flag"}, "error", "--no-such-flag"},
		command{2, []string{"cap"}, "error", ""},
		command{0, on("restore"), "items", ""}, // no agent ever ran here
		command{2, []string{"restore", "--config", bad}, "items", bad + ":2:"},
		command{5, on("status"), "error", "no agent"},
		command{5, on("headroom"), "error", "no agent"},
		command{5, on("cap", be), "error", "no agent"},
		command{5, []string{"guardian", "--run-dir", b.dir}, "error", "started by the agent"},
	)
	p := b.agent()
	check(
		command{0, on("status"), "tasks", ""},
		command{0, on("headroom"), "horizons", ""},
		command{0, on("cap", be, "--cpus", "0.1", "--for", "1m"), "done", ""},
		command{2, on("cap", be, "--cpus", "0"), "error", "0.001"},
		command{2, on("cap", be, "--cpus", "NaN"), "error", ""},
		command{2, on("cap", be, "--for", "-1s"), "error", "duration"},
		command{2, on("cap", be, "--for", "25h"), "error", "duration"},
		command{2, on("cap", lc), "error", "LC"},
		command{2, on("cap", b.root+"/none"), "error", b.root + "/none"},
		command{0, on("uncap", be), "done", ""},
		command{2, on("uncap", b.root+"/none"), "error", b.root + "/none"},
		command{0, on("protect", "off", "victim"), "done", ""},
		command{0, on("protect", "on"), "done", ""},
		command{2, on("protect", "maybe"), "error", "on or off"},
		command{2, on("protect", "on", "nobody"), "error", "nobody"},
		command{5, on("agent"), "error", "pid"},
		command{5, on("restore"), "error", "pid"},
		command{2, on("explain", "i0"), "error", "i0"},
	)
	p.stop(unix.SIGTERM)
	rec := agent.RecordPath(b.dir + "/state")
	check(
		command{0, []string{"replay", rec}, "ticks", ""},
		command{2, []string{"replay", b.dir + "/none"}, "error", b.dir + "/none"},
		command{2, on("explain", "i0"), "error", "i0"},
		command{5, on("status"), "error", "no agent"},
		command{0, on("restore"), "items", ""},
	)
	b.brokenRecord(rec)
}

// document runs a command with --json and, but for the rig, where each takes its time and
// the text is the same, without.
func (b *bed) document(code int, key, says string, args ...string) {
	b.t.Helper()
	if !rigtest.Inside() {
		if r := b.run(args...); r.code != code || !strings.Contains(r.err+r.out, says) {
			b.t.Errorf("%v: exit %d, expected %d and %q in: %s%s", args, r.code, code, says, r.out, r.err)
		} else if key == "error" && strings.Count(r.err, "\n") != 1 {
			b.t.Errorf("%v: an error is one line, this is:\n%s", args, r.err)
		}
	}
	r := b.run(append([]string{"--json"}, args...)...)
	dec := json.NewDecoder(strings.NewReader(r.out))
	var doc map[string]json.RawMessage
	if err := dec.Decode(&doc); err != nil {
		b.t.Errorf("%v --json: %v:\n%s", args, err, r.out)
		return
	}
	if err := dec.Decode(new(any)); err != io.EOF {
		b.t.Errorf("%v --json: more than one document:\n%s", args, r.out)
	}
	if r.code != code || doc[key] == nil {
		b.t.Errorf("%v --json: exit %d, expected %d and the key %s:\n%s%s", args, r.code, code, key, r.out, r.err)
	}
	if key == "error" && string(doc["exit_code"]) != strconv.Itoa(code) {
		b.t.Errorf("%v --json: exit_code %s, expected %d", args, doc["exit_code"], code)
	}
}

// brokenRecord: a record that a crash cut off replays up to there; one with a flipped
// byte, also in a length, does so too, is named and is a failure.
func (b *bed) brokenRecord(rec string) {
	b.t.Helper()
	files, err := os.ReadDir(rec)
	if err != nil || len(files) == 0 {
		b.t.Fatalf("no record: %v", err)
	}
	name := filepath.Join(rec, files[0].Name())
	text, err := os.ReadFile(name)
	if err != nil {
		b.t.Fatal(err)
	}
	write := func(text []byte) {
		b.t.Helper()
		if err := os.WriteFile(name, text, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	write(text[:len(text)-3])
	b.document(0, "torn", "", "replay", rec)
	for _, at := range []int{len("commensal-record\n") + 1, bytes.Index(text, []byte(`"tasks"`))} {
		flipped := bytes.Clone(text)
		flipped[at] ^= 0x10
		write(flipped)
		b.document(2, "damaged", name, "replay", rec)
	}
}

// TestMetrics compares the names, types, help texts and labels of /metrics with a golden
// file. Values are left out, except those that the test brings about.
func TestMetrics(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	b := newBed(t, "metrics", settings{metrics: address})
	victim, be := b.group("victim", unlimited), b.group("be-0", unlimited)
	b.start("service", victim, -1)
	p := b.agent()
	b.hold(be, "0.05", "10m")
	var text string
	eventually(t, "the victim has a threshold", func() bool {
		res, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK {
			t.Logf("%s: %s", res.Status, body) // a very busy machine: the loop was too slow to answer
			return false
		}
		text = string(body)
		return strings.Contains(text, "commensal_task_signal_ratio{") && strings.Contains(text, "commensal_task_signal_threshold_ratio{")
	})
	p.stop(unix.SIGTERM)
	for name, want := range map[string]float64{
		`commensal_enforcing{policy="hard_cap"}`: 1, `commensal_warnings`: 0, `commensal_decisions_total{kind="operator",policy="operators"}`: 1,
		`commensal_task_cap_cores{task="` + be + `"}`: 0.05, `commensal_agent_failures_total`: 0,
	} {
		if got := series(t, text, name); got != want {
			t.Errorf("%s is %g, expected %g", name, got, want)
		}
	}
	for _, name := range []string{
		"commensal_windows_total", "commensal_agent_cycles_total", "commensal_agent_cycle_seconds_total",
		"commensal_process_cpu_seconds_total", "commensal_process_resident_memory_bytes", "commensal_process_open_fds",
	} {
		if got := series(t, text, name); got <= 0 {
			t.Errorf("%s is %g: the agent's own cost", name, got)
		}
	}
	golden(t, "testdata/metrics.txt", normal(text, b.root))
}

// series returns one value.
func series(t *testing.T, text, name string) float64 {
	t.Helper()
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Errorf("no series %s", name)
	return -1
}

var value = regexp.MustCompile(`(?m)^([^#\s]\S*(?:\{.*\})?) \S+$`)

// normal replaces values by V and the test's folder by /T.
func normal(text, root string) string {
	return value.ReplaceAllString(strings.ReplaceAll(text, root, "/T"), "$1 V")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-golden +now; -args -rewrite writes it anew):\n%s", name, diff)
	}
}

// TestAPI: what a client other than ours may send.
func TestAPI(t *testing.T) {
	t.Parallel()
	b := newBed(t, "api", settings{})
	be := b.group("be-0", unlimited)
	p := b.agent()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", b.dir+"/agent.sock")
	}}}
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"GET", "/v1/status", "", 200},
		{"POST", "/v1/status", "", 405},
		{"GET", "/v1/command", "", 405},
		{"GET", "/", "", 404},
		{"POST", "/v1/command", "", 400},
		{"POST", "/v1/command", "{", 400},
		{"POST", "/v1/command", `{"kind":"cap","unknown":1}`, 400},
		{"POST", "/v1/command", `{"kind":"` + strings.Repeat("x", 70<<10) + `"}`, 400},
		{"POST", "/v1/command", `{"kind":"reboot"}`, 422},
		{"POST", "/v1/command", `{"kind":"cap","task":"/"}`, 422},
		{"POST", "/v1/command", fmt.Sprintf(`{"kind":"cap","task":%q,"cap":1e308,"duration_seconds":60}`, be), 422},
		{"POST", "/v1/command", fmt.Sprintf(`{"kind":"cap","task":%q,"cap":0.1,"duration_seconds":1e308}`, be), 422},
		{"POST", "/v1/command", fmt.Sprintf(`{"kind":"cap","task":%q,"cap":0.1,"duration_seconds":60}`, be), 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://agent"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.code {
			t.Errorf("%s %s %.60s: %s (%v), expected %d: %.200s", c.method, c.path, c.body, res.Status, err, c.code, body)
		}
		if slices.Contains([]int{400, 422}, c.code) {
			var ans agent.Answer
			if json.Unmarshal(body, &ans) != nil || ans.Error == "" {
				t.Errorf("%s %s: no error in %s", c.method, c.path, body)
			}
		}
	}
	eventually(t, "the one good command is carried out", func() bool { return b.read(be).Ratio() == 0.1 })
	p.stop(unix.SIGTERM)
}
