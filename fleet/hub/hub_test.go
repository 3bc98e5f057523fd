package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
	"github.com/commensal-io/commensal/model"
)

// Samples of three nodes become a spec, which comes down to all of them; an operator's commands reach one node; the kill switch
// reaches all, and is there for one that comes later.
func TestUpAndDown(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	ctx := t.Context()
	var nodes []*testNode
	for i := range 3 {
		name := fmt.Sprintf("node-%d", i)
		n := startNode(t, ctx, b.NodesURL(), name, enrol(t, b.dir, name), t.TempDir())
		defer n.Close()
		nodes = append(nodes, n)
	}
	for i := range 40 {
		for _, n := range nodes {
			n.window(1.8 + 0.1*float64(i%5-2))
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, n := range nodes {
		eventually(t, n.name+" hears of the spec", func() bool {
			n.window(1.8)
			for _, sp := range n.heard() {
				if sp.Job == "web" && sp.Source == model.SourceCPI && sp.Mean > 1.7 && sp.Mean < 1.9 && sp.Sheet > 0 && sp.Tasks == 3 {
					return true
				}
			}
			return false
		})
	}
	viewer, operator, admin := b.token("v", Viewer), b.token("o", Operator), b.token("a", Admin)
	cap1 := `{"node": "node-1", "kind": "cap", "task": "/be", "cap": 0.1, "duration_seconds": 60, "why": "a test"}`
	if code, m := b.call(operator, "POST", "/v1/command", cap1); code != 200 || m["done"] != "cap" {
		t.Errorf("%d %v", code, m)
	}
	if n := nodes[1]; len(n.commands) != 1 || n.commands[0].Why != "a test" || n.commands[0].By != "o through the hub" || len(nodes[0].commands) != 0 {
		t.Errorf("%+v", n.commands)
	}
	if code, m := b.call(operator, "POST", "/v1/command", `{"node": "*", "kind": "protect-off", "job": "web", "why": "a test"}`); code != 200 || len(m["off"].([]any)) != 1 {
		t.Errorf("%d %v", code, m)
	}
	for _, n := range nodes {
		eventually(t, n.name+" hears it", func() bool { return n.Protection().Says("web") == "o (a test)" })
	}
	for body, want := range map[string]string{
		`{"node": "*", "kind": "cap", "task": "/be"}`:                         "expected 1 to 63",
		`{"node": "node-1", "kind": "cap", "task": "/gone", "why": "a test"}`: "no task",
		`{"node": "nobody", "kind": "cap", "task": "/be", "why": "a test"}`:   "not connected",
		`{"node": "node-1", "kind": "format", "task": "/be"}`:                 "expected one of cap",
		`{"node": "a.*", "kind": "cap"}`:                                      "expected 1 to 63",
		`{"node": "node-1", "kind": "cap", "oops": 1}`:                        "oops",
	} {
		if code, m := b.call(operator, "POST", "/v1/command", body); code == 200 || !strings.Contains(fmt.Sprint(m["error"]), want) {
			t.Errorf("%s: %d %v", body, code, m)
		}
	}
	if code, _ := b.call(viewer, "POST", "/v1/command", cap1); code != http.StatusForbidden {
		t.Errorf("a viewer capped: %d", code)
	}
	if code, _ := b.call(operator, "POST", "/v1/off", `{"off": true, "why": "a test"}`); code != http.StatusForbidden {
		t.Errorf("an operator turned the fleet off: %d", code)
	}
	if code, m := b.call(admin, "POST", "/v1/off", `{"off": true, "why": "trouble"}`); code != 200 || m["off"] != true {
		t.Errorf("%d %v", code, m)
	}
	for _, n := range nodes {
		eventually(t, n.name+" is off", n.Off)
	}
	late := startNode(t, ctx, b.NodesURL(), "late", enrol(t, b.dir, "late"), t.TempDir())
	defer late.Close()
	eventually(t, "a node that comes later is off", func() bool { late.window(1); return late.Off() })
	if code, _ := b.call(admin, "POST", "/v1/off", `{"off": false, "why": "a test"}`); code != 200 {
		t.Error("not turned on again")
	}
	eventually(t, "all go on", func() bool { return !nodes[0].Off() && !nodes[1].Off() && !late.Off() })
	audit, err := os.ReadFile(filepath.Join(b.dir, "store", "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"who":"o","role":"operator","what":"cap","node":"node-1"`, `"why":"a test"`, `"what":"kill-switch"`, `"why":"trouble"`, `"result":"refused: no task"`, `not connected`} {
		if !strings.Contains(string(audit), want) {
			t.Errorf("the audit lacks %s", want)
		}
	}
}

// Nobody enters without a token, and a token lets in only as far as its role.
func TestTheDoor(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	for _, r := range b.routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		for _, token := range []string{"", "wrong", strings.Repeat("0", 48)} {
			if code, _ := b.call(token, method, path, "{}"); code != http.StatusUnauthorized {
				t.Errorf("%s with %q: %d", r.pattern, token, code)
			}
		}
	}
	first, err := os.ReadFile(AdminToken(b.dir))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(AdminToken(b.dir)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if code, m := b.call(strings.TrimSpace(string(first)), "GET", "/v1/fleet", ""); code != 200 || m["version"] != "test" {
		t.Errorf("%d %v", code, m)
	}
	persons, err := os.ReadFile(personsFile(b.dir))
	if err != nil || strings.Contains(string(persons), strings.TrimSpace(string(first))) {
		t.Errorf("the file of persons has a token: %v", err)
	}
	for _, addr := range []string{"0.0.0.0:0", "192.0.2.1:80", ":8469"} {
		cfg := testConfig(t.TempDir())
		cfg.Listen = addr
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
			t.Errorf("%s without TLS: %v", addr, err)
		}
	}
	if _, err := lockDir(b.dir); err == nil || !strings.Contains(err.Error(), "another hub") {
		t.Errorf("a second hub: %v", err)
	}
}

// connect is a node's bare connection, which tries what an agent never would.
func connect(t *testing.T, b *bed, node, seed string) *nats.Conn {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	var nc *nats.Conn
	eventually(t, node+" connects", func() bool {
		nc, err = nats.Connect(b.NodesURL(), key, nats.CustomInboxPrefix(wire.InboxPrefix(node)))
		return err == nil
	})
	t.Cleanup(nc.Close)
	return nc
}

// A node may send its own batches and nothing else: not another's, not specs, not the kill switch, not commands; and it may not listen
// to others.
func TestANodeMayDoItsOwnOnly(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	nc := connect(t, b, "evil", enrol(t, b.dir, "evil"))
	refused := make(chan error, 16)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	expect := func(what string) {
		t.Helper()
		select {
		case err := <-refused:
			if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s was let through", what)
		}
	}
	for _, subject := range []string{
		wire.UpPrefix + "other", wire.Up("other", 3), wire.KV(wire.ControlBucket, leaseKey(0)), wire.KVGet(wire.ControlBucket, leaseKey(0)), wire.KV(wire.SpecBucket, wire.SpecKey("cpu", "web")), wire.KV(wire.PriorBucket, wire.SpecKey("cpu", "web")), wire.KV(wire.ControlBucket, wire.KeyOff), wire.CommandPrefix + "other",
		"$JS.API.STREAM.DELETE." + wire.Stream, "$JS.API.STREAM.PURGE." + wire.Stream, "$JS.API.CONSUMER.CREATE.KV_" + wire.SpecBucket, "$SYS.REQ.SERVER.PING",
	} {
		if err := nc.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		expect("publishing to " + subject)
	}
	for _, subject := range []string{wire.CommandPrefix + "other", wire.CommandPrefix + "*", wire.AllUp, ">", wire.InboxPrefix("other") + ".>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		expect("listening to " + subject)
	}
	if _, err := nats.Connect(b.NodesURL(), nats.MaxReconnects(0)); err == nil {
		t.Error("connected without a key")
	}
	if _, err := Dismiss(b.dir, "evil"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a node that is dismissed is put out", func() bool { return !nc.IsConnected() })
}

// What is no batch, or not one of its sender, is refused and counted, and the rest goes on.
func TestBadBatchesAreRefused(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	nc := connect(t, b, "n", enrol(t, b.dir, "n"))
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	good := func() *wire.Batch {
		x := &wire.Batch{Node: "n", Spool: "0123456789abcdef", Seq: 1, Platform: "cpu", Tasks: []wire.Task{{Path: "/web", Job: "web"}}}
		x.Samples = wire.Samples{Task: []uint32{0}, WallMsec: []int64{time.Now().UnixMilli()}, CPU: []float32{1}, Flags: []uint32{0}}
		return x
	}
	other, future, replayed := good(), good(), good()
	other.Node = "m"
	future.Samples.WallMsec[0] += 24 * 3600 * 1000
	sent := 0
	send := func(data []byte) {
		t.Helper()
		if _, err := js.Publish(wire.UpPrefix+"n", data); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	send([]byte("no batch"))
	send(nil)
	for _, x := range []*wire.Batch{other, future, good(), replayed, replayed} {
		data, err := codec.Encode(x)
		if err != nil {
			t.Fatal(err)
		}
		send(data)
	}
	if _, err := js.Publish(wire.UpPrefix+"n", make([]byte, 3<<20)); err == nil {
		t.Error("a message of 3 MiB was taken")
	}
	eventually(t, "all are seen", func() bool { _, n := b.store.Committed(); return n == uint64(sent) })
	b.mu.Lock()
	n := *b.nodes["n"]
	b.mu.Unlock()
	if n.Refused != 4 || n.Doubles != 2 || n.Batches != 1 || !strings.Contains(n.Why, "off the hub's clock") {
		t.Errorf("%+v", n)
	}
	if count, err := storedIn(b.store); err != nil || len(count) != 1 || count["n 0123456789abcdef 1"] != 1 {
		t.Errorf("%v %v", count, err)
	}
}

// A node that says as much as it may in each batch, for hours if it likes, takes a bounded part of the hub's memory: neither what waits for a commit
// nor what the pages show grows with it.
func TestANodeCannotFillTheMemory(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.CommitEvery = time.Hour // only how much waits has it commit
	b := startHub(t, cfg)
	js, err := connect(t, b, "n", enrol(t, b.dir, "n")).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	const batches, each = 10, 80
	for seq := uint64(1); seq <= batches; seq++ {
		x := &wire.Batch{Node: "n", Spool: "0123456789abcdef", Seq: seq}
		for i := range each {
			inc := &model.Incident{ID: fmt.Sprintf("%d-%d", seq, i), OpenedWall: time.Now().UnixNano()}
			for range 12 {
				inc.Rounds = append(inc.Rounds, model.Round{Verdict: strings.Repeat("a", 16<<10)})
			}
			x.Incidents = append(x.Incidents, inc)
		}
		data, err := codec.Encode(x)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(wire.UpPrefix+"n", data); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are taken", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.nodes["n"] != nil && b.nodes["n"].Batches == batches
	})
	if _, count := b.store.Committed(); count < 8 { // of 160 MB
		t.Errorf("%d batches are committed", count)
	}
	b.mu.Lock()
	shown, last, total := len(b.incidents), b.incidents[len(b.incidents)-1].ID, 0
	for i := range b.incidents {
		text, err := json.Marshal(b.incidents[i].Incident)
		if err != nil {
			t.Error(err)
		}
		total += len(text)
	}
	b.mu.Unlock()
	if total > maxShown || total != b.shown || shown < 100 || last != "10-79" {
		t.Errorf("%d incidents of %d bytes (%d) are shown, the last is %s", shown, total, b.shown, last)
	}
	bad := &wire.Batch{Node: "n", Spool: strings.Repeat("é", 1<<22), Seq: 1}
	data, err := codec.Encode(bad)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(wire.UpPrefix+"n", data); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a batch is refused", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		why := b.nodes["n"].Why
		return why != "" && len(why) < 1000
	})
}

// Of a signal NaN is none: such samples are stored without it, and what is normal is learned from the others. As a number of CPUs, or any other value
// that is none, it has the batch refused.
func TestNaNsAreNoValues(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	js, err := connect(t, b, "n", enrol(t, b.dir, "n")).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	nan, seq := float32(math.NaN()), uint64(0)
	send := func(change func(s *wire.Samples)) {
		t.Helper()
		seq++
		x := &wire.Batch{Node: "n", Spool: "0123456789abcdef", Seq: seq, Platform: "cpu", Tasks: []wire.Task{{Num: 1, Path: "/a", Job: "web"}, {Num: 2, Path: "/b", Job: "web"}}}
		x.Samples.Signals = []wire.Signal{{Source: model.SourceCPI, Definition: model.SourceCPI.Definition(false)}}
		for i := range 100 {
			v := nan
			if i%4 < 2 { // of both tasks
				v = 1.9 + 0.1*float32(i%3)
			}
			s := &x.Samples
			s.Task, s.WallMsec = append(s.Task, uint32(i%2)), append(s.WallMsec, time.Now().UnixMilli()-int64(i)*1000)
			s.CPU, s.Flags, s.Signals[0].Values = append(s.CPU, 0.5), append(s.Flags, wire.Usable), append(s.Signals[0].Values, v)
		}
		change(&x.Samples)
		data, err := codec.Encode(x)
		if err == nil {
			_, err = js.Publish(wire.UpPrefix+"n", data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	send(func(s *wire.Samples) { s.CPU[7] = nan })
	send(func(s *wire.Samples) { s.Signals[0].Values[7] = float32(math.Inf(1)) })
	send(func(*wire.Samples) {})
	send(func(s *wire.Samples) { // a column of nothing else
		for i := range s.Signals[0].Values {
			s.Signals[0].Values[i] = nan
		}
	})
	var sheets []wire.SpecSheet
	eventually(t, "a spec forms", func() bool { sheets, err = b.sheets(t.Context()); return len(sheets) > 0 && b.totals().Batches == 2 })
	if sp := sheets[0].Specs[0]; err != nil || len(sheets) != 1 || sp.NumSamples != 50 || !(sp.Mean > 1.95 && sp.Mean < 2.05) || !(sp.StdDev > 0 && sp.StdDev < 0.2) {
		t.Errorf("%+v, %v", sheets, err)
	}
	if all := b.totals(); all.Refused != 2 {
		t.Errorf("%+v", all)
	}
	b.stop()
	known, samples := 0, 0
	if err := b.store.Replay(0, func(of *wire.Batch) {
		samples += of.Samples.Len()
		for _, signal := range of.Samples.Signals {
			for _, v := range signal.Values {
				if v == v {
					known++
				}
			}
		}
	}); err != nil || samples != 200 || known != 50 {
		t.Errorf("%d samples, %d with a value, %v", samples, known, err)
	}
}

// Clocks that disagree by some minutes, either way, cost nothing: what such nodes send is stored and learned, and commands reach them. One that is
// off by more is refused and said, and the others go on.
func TestClocksDisagree(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Spec.MinTasks = 3
	b := startHub(t, cfg)
	off := map[string]time.Duration{"behind": -9 * time.Minute, "ahead": 9 * time.Minute, "right": 0, "far": 11 * time.Minute}
	nodes := map[string]*testNode{}
	for name, by := range off {
		n := startNode(t, t.Context(), b.NodesURL(), name, enrol(t, b.dir, name), t.TempDir())
		defer n.Close()
		n.wall = time.Now().Add(by)
		nodes[name] = n
	}
	for i := range 30 {
		for _, n := range nodes {
			n.window(1.8 + 0.1*float64(i%5-2))
			n.wall = n.wall.Add(-990 * time.Millisecond) // a test's seconds are shorter
		}
		time.Sleep(5 * time.Millisecond)
	}
	eventually(t, "a spec of those three is at all of them", func() bool {
		for _, name := range []string{"behind", "ahead", "right"} {
			nodes[name].window(1.8)
			nodes[name].wall = nodes[name].wall.Add(-990 * time.Millisecond)
			if specs := nodes[name].heard(); len(specs) == 0 || specs[0].Tasks != 3 {
				return false
			}
		}
		return true
	})
	eventually(t, "the fourth is refused", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		n := b.nodes["far"]
		return n.Refused >= 20 && n.Batches == 0 && strings.Contains(n.Why, "off the hub's clock") && b.nodes["ahead"].Refused == 0 && b.nodes["behind"].Refused == 0
	})
	for name := range off {
		if ans, err := b.command(&person{Name: "ann", Role: Operator}, name, wireCommand("cap", "/be", "a test")); err != nil || ans.Done != "cap" {
			t.Errorf("%s: %+v, %v", name, ans, err)
		}
	}
}

// A node goes on while the hub is away, and a hub that comes back knows what it knew: specs, revisions, and which batches it has.
func TestTheHubComesBack(t *testing.T) {
	cfg := testConfig(t.TempDir())
	b := startHub(t, cfg)
	cfg.NATSListen = strings.TrimPrefix(b.NodesURL(), "nats://")
	var nodes []*testNode
	for _, name := range []string{"n1", "n2"} {
		n := startNode(t, context.Background(), b.NodesURL(), name, enrol(t, b.dir, name), t.TempDir())
		defer n.Close()
		nodes = append(nodes, n)
	}
	for range 30 {
		for _, n := range nodes {
			n.window(2)
		}
		time.Sleep(5 * time.Millisecond)
	}
	eventually(t, "a spec forms", func() bool { nodes[0].window(2); nodes[1].window(2); return len(nodes[0].heard()) > 0 })
	before := nodes[0].heard()[0]
	b.stop()
	for range 10 {
		nodes[0].window(2)
		time.Sleep(5 * time.Millisecond)
	}
	eventually(t, "batches wait", func() bool { st := nodes[0].Status(); return st.Waiting >= 8 && !st.Connected })
	b = startHub(t, cfg)
	eventually(t, "they are sent", func() bool {
		st := nodes[0].Status()
		return st.Waiting == 0 && st.Connected
	})
	b.mu.Lock()
	known := len(b.learner.Jobs)
	b.mu.Unlock()
	if known == 0 {
		t.Error("the hub forgot what it had learned")
	}
	eventually(t, "a later revision comes down", func() bool {
		nodes[0].window(2)
		nodes[1].window(2)
		return nodes[0].heard()[0].Sheet > before.Sheet
	})
	for _, n := range nodes {
		n.Close()
	}
	sent := nodes[0].Status().Sent + nodes[1].Status().Sent
	eventually(t, "all is in the store", func() bool {
		count, err := storedIn(b.store)
		return err == nil && uint64(len(count)) == sent
	})
	b.stop()
	s, err := store.Open(filepath.Join(cfg.Dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	count, err := storedIn(s)
	if err != nil || uint64(len(count)) != sent {
		t.Errorf("%d batches of %d, %v", len(count), sent, err)
	}
	for name, n := range count {
		if n != 2 {
			t.Errorf("%s has %d samples", name, n)
		}
	}
}
