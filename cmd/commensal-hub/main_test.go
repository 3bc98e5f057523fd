package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// bench is a hub as it is installed, with its engine beside it, and the programs that ask it.
type bench struct {
	t                *testing.T
	bin, dir         string
	hub, nodes, file string // addresses of pages and transport, and the administrator's token
}

// startBench starts a hub of the programs. Of its options only those are not the default ones that would meet another hub of this machine, or
// have a spec take half an hour.
func startBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.build("../../sql", "commensal-sql", "1")
	b.hub, b.nodes = b.serve(b.dir)
	return b
}

// newBench builds hub and agent.
func newBench(t *testing.T) *bench {
	t.Helper()
	for _, program := range []string{"go", "g++"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the programs cannot be built here: %v", err)
		}
	}
	b := &bench{t: t, bin: t.TempDir(), dir: filepath.Join(t.TempDir(), "hub")}
	b.file = filepath.Join(b.dir, "admin.token")
	b.build(".", "commensal-hub", "0")
	b.build("../commensal", "commensal", "0")
	return b
}

func (b *bench) build(folder, name, cgo string) {
	b.t.Helper()
	cmd := exec.Command("go", "build", "-o", filepath.Join(b.bin, name), ".")
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%v\n%s", err, out)
	}
}

// serve runs a hub in a folder until the test ends.
func (b *bench) serve(dir string) (hub, nodes string) {
	t := b.t
	t.Helper()
	cmd := exec.Command(filepath.Join(b.bin, "commensal-hub"), "serve", "--dir", dir, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--spec-every", "1s", "--min-tasks", "1", "--min-samples", "20", "--observe-for", "2s")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the hub ended: %v", err)
		}
	})
	lines, said := bufio.NewScanner(log), []string{}
	for lines.Scan() {
		said = append(said, lines.Text())
		if m := regexp.MustCompile(`pages=(\S+) nodes_connect_to=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, log) //nolint:errcheck // it ends with the hub
			return m[1], m[2]
		}
	}
	t.Fatalf("the hub does not start:\n%s", strings.Join(said, "\n"))
	return "", ""
}

// run runs a program to its end.
func (b *bench) run(program string, args ...string) (code int, out, says string) {
	b.t.Helper()
	var o, e bytes.Buffer
	ctx, cancel := context.WithTimeout(b.t.Context(), 50*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, program), args...)
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		b.t.Fatalf("%s %q: %v", program, args, err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// ask runs a line, asking the bench's hub, and expects an exit code and a text: of 0 in what is printed, else in the one line that is said.
func (b *bench) ask(code int, want, program string, args ...string) string {
	b.t.Helper()
	got, out, says := b.run(program, append(args, "--hub", b.hub, "--token-file", b.file)...)
	b.expect(code, want, got, out, says, program, args...)
	return out
}

func (b *bench) expect(code int, want string, got int, out, says, program string, args ...string) {
	b.t.Helper()
	in := out
	if code != 0 {
		in = says
	}
	if got != code || !strings.Contains(in, want) || code != 0 && (strings.Count(says, "\n") != 1 || !strings.HasPrefix(says, program+": ")) {
		b.t.Errorf("%s %q: %d, expected %d and %q\n%s%s", program, args, got, code, want, out, says)
	}
}

// node is an agent's end of a fleet that has one task of a job.
func (b *bench) node(name string) (u *uplink.Uplink, feed func()) {
	b.t.Helper()
	seed := filepath.Join(b.dir, name+".seed")
	u, err := uplink.Start(b.t.Context(), uplink.Config{URL: b.nodes, Node: name, SeedFile: seed, Dir: b.t.TempDir(), MaxBytes: 64 << 20}, uplink.Node{Boot: "boot", Platform: "cpu x", Program: "test"}, uplink.NewGather(1), uplink.Hooks{
		Log: slog.New(slog.DiscardHandler), Specs: func([]model.Spec) {}, Rollout: func(string, bool) error { return nil },
		Command: func(_ context.Context, c *wire.Command) wire.Answer {
			if c.Task == "/gone" {
				return wire.Answer{Error: "no task"}
			}
			return wire.Answer{Done: c.Kind}
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(u.Close)
	mono, wall := int64(0), time.Now()
	return u, func() {
		mono += 1e9
		w := uplink.Window{MonoNsec: mono, WallNsec: wall.UnixNano() + mono/1e6, Flags: []uint32{wire.Usable}, Tasks: []model.Task{{Num: 1, Path: "/web", Job: "web", Class: model.LC}}}
		o := model.TaskObservation{Num: 1, CPU: model.Known(0.5)}
		for src := range model.NumSources {
			o.Signals[src] = model.Missing(model.Absent)
		}
		o.Signals[model.SourceCPI] = model.Known(2 + 0.01*float64(mono/1e9%7))
		w.Observed = []model.TaskObservation{o}
		u.Gather.Add(&w)
		u.Turn(mono + 1)
	}
}

// until runs a line until it prints a text.
func (b *bench) until(want string, feed func(), program string, args ...string) {
	b.t.Helper()
	out, says := "", ""
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for range 10 {
			feed()
			time.Sleep(2 * time.Millisecond)
		}
		if _, out, says = b.run(program, append(args, "--hub", b.hub, "--token-file", b.file)...); regexp.MustCompile(want).MatchString(out) {
			return
		}
	}
	b.t.Fatalf("%s %q does not print %q:\n%s%s", program, args, want, out, says)
}

// Every subcommand of commensal-hub, and commensal query, as the programs themselves, against a hub as it is installed.
func TestThePrograms(t *testing.T) {
	b := startBench(t)
	hub := "commensal-hub"
	local := func(code int, want string, args ...string) string {
		t.Helper()
		got, out, says := b.run(hub, args...)
		b.expect(code, want, got, out, says, hub, args...)
		return out
	}
	local(0, "n1 may connect. Bring "+b.dir+"/n1.seed to it", "node", "add", "n1", "--dir", b.dir)
	local(0, "may connect", "node", "add", "n2", "--dir", b.dir, "--seed-file", filepath.Join(b.bin, "n2.seed"))
	local(2, "expected 1 to 63", "node", "add", "N 1", "--dir", b.dir)
	local(0, "n2\tU", "node", "list", "--dir", b.dir)
	local(0, "may connect no more", "node", "remove", "n2", "--dir", b.dir, "--why", "its rack is gone")
	local(2, "one line of text", "node", "remove", "n2", "--dir", b.dir, "--why", "a\nb")
	if audit, err := os.ReadFile(filepath.Join(b.dir, "store", "audit.jsonl")); err != nil || !regexp.MustCompile(`"who":"\S.*"role":"local","what":"node-remove","node":"n2","why":"its rack is gone","result":"done"`).Match(audit) {
		b.t.Errorf("%v: the audit lacks it:\n%s", err, audit)
	}
	local(2, `no node "n2" is enrolled`, "node", "remove", "n2", "--dir", b.dir)
	local(2, "expected viewer, operator or admin", "person", "add", "v", "--role", "king", "--dir", b.dir)
	local(2, "usage: commensal-hub person add NAME", "person", "add", "--dir", b.dir)
	local(0, "samples.cpi\t", "schema")
	local(2, "unknown command", "dance")
	local(2, "--shard", "serve", "--dir", b.dir, "--shard", "x")
	local(2, "--tls-cert", "serve", "--dir", b.dir, "--listen", "0.0.0.0:1")
	local(5, "another hub runs in "+b.dir, "serve", "--dir", b.dir, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	local(2, "--from and --to are days", "store", "fetch", "--bucket", "s3://b/p", "--into", b.bin)
	b.looks(hub)
	b.changes(hub)
	b.documented()
	b.queries()
	b.refusals()
	local(0, "may enter no more", "person", "remove", "viv", "--dir", b.dir)
	b.file = filepath.Join(b.bin, "viv.token")
	b.ask(4, "the token is not known", hub, "status")
}

// looks: what only looks.
func (b *bench) looks(hub string) {
	u, feed := b.node("n1")
	b.until(`web +cpi +[2-9]`, feed, hub, "jobs", "--match", "we") // a second sheet
	if !u.Status().Connected {
		b.t.Error("the node is not connected")
	}
	b.ask(0, "1 nodes, of which 1 are enrolled and 1 were heard since", hub, "status")
	b.ask(0, "n1 ", hub, "nodes")
	b.ask(2, "expected one of silent", hub, "nodes", "--only", "asleep")
	b.ask(0, "no roll-out", hub, "rollout")
	var st map[string]any
	if err := json.Unmarshal([]byte(b.ask(0, "", hub, "status", "--json")), &st); err != nil || st["jobs"] != 1.0 {
		b.t.Errorf("%v %v", st, err)
	}
}

// changes: what changes the fleet, each with a reason and without.
func (b *bench) changes(hub string) {
	t := b.t
	overlay := filepath.Join(b.bin, "change.yaml")
	if err := os.WriteFile(overlay, []byte("hard_cap: {mode: enforce}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"command", "n1", "cap", "--task", "/be"}, {"command", "*", "protect-off"}, {"spec", "rollback", "web", "--platform", "cpu x"}, {"rollout", "--overlay", overlay, "--percent", "100"}, {"rollout", "--percent", "0"}, {"off"}, {"off", "--back"},
	} {
		b.ask(2, "a reason is missing (why)", hub, args...)
	}
	b.ask(2, `; say: commensal-hub spec rollback web --platform 'cpu x' --hub `+b.hub, hub, "spec", "rollback", "web", "--platform", "cpu x")
	why := func(args ...string) []string { return append(args, "--why", "a test") }
	b.ask(0, "cap: done on n1", hub, why("command", "n1", "cap", "--task", "/be")...)
	b.ask(2, "node n1: no task", hub, why("command", "n1", "cap", "--task", "/gone")...)
	b.ask(5, "node n9 is not connected", hub, why("command", "n9", "cap", "--task", "/be")...)
	b.ask(2, "no hook is configured", hub, why("command", "n1", "restart", "--task", "/be")...)
	b.ask(0, "protection is OFF in the whole fleet for web (admin: a test)", hub, why("command", "*", "protect-off", "--job", "web")...)
	b.ask(0, "protection is OFF in the whole fleet for web (admin: a test)", hub, "status")
	b.ask(2, "a text that is no name", hub, why("command", "*", "protect-off", "--job", "a\x07")...)
	b.ask(0, "protection is on in the whole fleet", hub, why("command", "*", "protect-on")...)
	b.ask(0, "of job \"web\" on \"cpu x\" is published", hub, why("spec", "rollback", "web", "--platform", "cpu x")...)
	b.ask(0, "web follows what is learned again", hub, why("spec", "unpin", "web", "--platform", "cpu x")...)
	b.ask(2, "no spec of job \"web\" on \"cpu x\" is held back", hub, why("spec", "accept", "web", "--platform", "cpu x")...)
	b.ask(2, "what these must observe first, for 2s; it is not there as `observe`", hub, why("rollout", "--overlay", overlay, "--percent", "100")...)
	b.ask(2, "a change needs --percent", hub, why("rollout", "--overlay", overlay)...)
	b.ask(2, "no such file", hub, why("rollout", "--overlay", overlay+"x", "--percent", "1")...)
	b.ask(0, "hard_cap: {mode: observe}", hub, why("rollout", "--overlay", overlay, "--percent", "100", "--observe")...)
	_, feed := b.node("n1") // in place of the first one, which is the same to the hub
	b.until("1 of the 1 nodes that it is for have had it for [3-9]", feed, hub, "rollout")
	b.ask(0, "it enforces; it was observed on 100 % before", hub, why("rollout", "--overlay", overlay, "--percent", "50")...)
	b.ask(0, "no roll-out", hub, why("rollout", "--percent", "0")...)
	b.ask(0, "it enforces; it was observed on 0 % before", hub, why("rollout", "--overlay", overlay, "--percent", "50", "--skip-observe")...)
	b.ask(0, "the kill switch is on", hub, why("off")...)
	b.ask(0, "THE KILL SWITCH IS ON (admin: a test)", hub, "status")
	b.ask(0, "the kill switch is off", hub, why("off", "--back")...)
}

// documented: the lines of docs/OPERATIONS.md as they stand there, in a shell, on a hub with a node and a task of the page's names.
func (b *bench) documented() {
	t := b.t
	b.run("commensal-hub", "node", "add", "web-1", "--dir", b.dir)
	b.connects("web-1")
	shell := func(script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Env = append(os.Environ(), "PATH="+b.bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	for title, want := range map[string][]string{
		"Hold, free, protect": {"cap: done on web-1", "uncap: done on web-1", "protect-off: done on web-1", "protection is OFF in the whole fleet for shop", "protection is on in the whole fleet"},
		"The kill switch":     {"the kill switch is on", "the kill switch is off"},
	} {
		lines := page(t, title)
		if len(lines) != len(want) {
			t.Fatalf("%s: %q; expected %d lines", title, lines, len(want))
		}
		for i, line := range lines {
			if out := shell(line + " --hub " + b.hub + " --token-file " + b.file); !strings.Contains(out, want[i]) {
				t.Errorf("%s: %s; expected %q", line, out, want[i])
			}
		}
	}
	copied := filepath.Join(t.TempDir(), "backup")
	backup := strings.NewReplacer("/var/lib/commensal-hub", b.dir, "/backup", copied).Replace(strings.Join(page(t, "Back up, restore, upgrade, move"), "\n"))
	shell(backup)
	restored := filepath.Join(t.TempDir(), "restored")
	if err := os.Rename(copied, restored); err != nil {
		t.Fatal(err)
	}
	other := &bench{t: t, bin: b.bin, dir: restored, file: filepath.Join(restored, "admin.token")}
	other.hub, _ = other.serve(restored)
	other.ask(0, "web-1 ", "commensal-hub", "nodes")
	other.until("kill-switch", func() {}, "commensal", "query", "--question", "audit", "1") // the last lines are in the table once the hub commits
}

// connects has a node connect.
func (b *bench) connects(name string) {
	b.t.Helper()
	u, _ := b.node(name)
	for end := time.Now().Add(20 * time.Second); !u.Status().Connected; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s does not connect", name)
		}
	}
}

// page returns the lines of the first block of commands in a section of docs/OPERATIONS.md.
func page(t *testing.T, title string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+title+"\n")
	for line := range strings.Lines(section) {
		command, indented := strings.CutPrefix(line, "    ")
		if indented {
			lines = append(lines, strings.TrimSpace(command))
		} else if len(lines) > 0 {
			break
		}
	}
	if len(lines) == 0 {
		t.Fatalf("no commands in %q", title)
	}
	return lines
}

// queries: what is asked of the store.
func (b *bench) queries() {
	b.until("web", func() {}, "commensal", "query", "SELECT job, count(*) FROM samples GROUP BY job")
	b.ask(0, "antagonists JOB DAYS", "commensal", "query", "--question", "list")
	b.until("kill-switch", func() {}, "commensal", "query", "--question", "audit", "1")
	b.ask(2, "question audit takes 1 values: days", "commensal", "query", "--question", "audit")
	b.ask(2, `no question "x"`, "commensal", "query", "--question", "x")
	b.ask(2, "expected one text in SQL", "commensal", "query")
	for sql, want := range map[string]string{
		"DROP TABLE samples": "SELECT", "SELECT 1; SELECT 2": "", "SELECT nothing FROM samples": "nothing", "SELECT * FROM read_text('/etc/passwd')": "", "COPY samples TO '/tmp/x'": "",
	} {
		b.ask(2, want, "commensal", "query", sql)
	}
	begin := time.Now()
	b.ask(5, "the hub does not answer", "commensal", "query", "--timeout", "2s", "SELECT count(*) FROM range(10000000000000) WHERE hash(range) % 7 = 3")
	if took := time.Since(begin); took > 20*time.Second {
		b.t.Errorf("it took %s", took)
	}
	var failed struct {
		Error string `json:"error"`
		Code  int    `json:"exit_code"`
	}
	code, out, _ := b.run("commensal", "query", "--json", "DROP TABLE samples", "--hub", b.hub, "--token-file", b.file)
	if err := json.Unmarshal([]byte(out), &failed); err != nil || code != 2 || failed.Code != 2 || failed.Error == "" {
		b.t.Errorf("%d %s %v", code, out, err)
	}
}

// refusals: a wrong token, a role that is too low, a wrong address, and a hub that hangs.
func (b *bench) refusals() {
	t := b.t
	write := func(name, text string) string {
		path := filepath.Join(b.bin, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, token, _ := b.run("commensal-hub", "person", "add", "viv", "--dir", b.dir)
	viewer, wrong := write("viv.token", token), write("wrong.token", strings.Repeat("0", 48)+"\n")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	lines := [][]string{{"commensal", "query", "SELECT 1"}}
	for _, args := range []string{"status", "nodes", "jobs", "rollout", "spec unpin web --why test", "off --why test", "rollout --percent 0 --why test", "command n1 cap --task /be --why test"} {
		lines = append(lines, append([]string{"commensal-hub"}, strings.Fields(args)...))
	}
	for _, line := range lines {
		for _, c := range []struct {
			code int
			want string
			args []string
		}{
			{4, "the token is not known", []string{"--hub", b.hub, "--token-file", wrong}},
			{5, "the token to enter by", []string{"--hub", b.hub, "--token-file", wrong + "x"}},
			{5, "connection refused", []string{"--hub", "http://" + nobody.Addr().String(), "--token-file", b.file}},
			{5, "the hub does not answer", []string{"--hub", "http://" + silent.Addr().String(), "--token-file", b.file, "--timeout", "200ms"}},
			{5, "expected https://", []string{"--hub", "http://192.0.2.1:8469", "--token-file", b.file}},
			{5, "--hub is", []string{"--hub", "127.0.0.1:8469", "--token-file", b.file}},
		} {
			args := append(append([]string{}, line[1:]...), c.args...)
			got, out, says := b.run(line[0], args...)
			b.expect(c.code, c.want, got, out, says, line[0], args...)
		}
	}
	for _, args := range []string{"off --why test", "command n1 cap --task /be --why test", "rollout --percent 0 --why test"} {
		all := append(strings.Fields(args), "--hub", b.hub, "--token-file", viewer)
		got, out, says := b.run("commensal-hub", all...)
		b.expect(4, "viv is viewer; this takes ", got, out, says, "commensal-hub", all...)
	}
	got, out, says := b.run("commensal", "query", "SELECT 1 AS one", "--hub", b.hub, "--token-file", viewer)
	b.expect(0, fmt.Sprintln("ONE")+"1", got, out, says, "commensal", "query", "SELECT 1")
}
