package hub

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/commensal-io/commensal/fleet/wire"
)

// The example of a cluster of one's own lets a node do what the embedded server does: two hubs with a password share a fleet on it, the node's samples
// come to them, a command reaches it, and it may not send for another.
func TestAClusterWithAccounts(t *testing.T) {
	dir := t.TempDir()
	seed := enrol(t, dir, "web-1")
	list, err := Nodes(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HUB_PASSWORD", "secret")
	t.Setenv("WEB_1", list[0].Key)
	text, err := os.ReadFile("../../deploy/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	alone := regexp.MustCompile(`(?ms)^(cluster|tls) \{.*?^\}`).ReplaceAllString(string(text), "")
	alone = strings.NewReplacer("0.0.0.0:4222", "127.0.0.1:-1", "/var/lib/nats", filepath.Join(dir, "nats")).Replace(alone)
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(alone), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := opts.Nkeys[0].Permissions, permissions("web-1"); !reflect.DeepEqual(got, want) || !opts.SyncAlways || opts.MaxPayload != maxPayload {
		t.Errorf("%+v %+v %+v, sync %v, %d bytes; expected what the hub's own server has", got.Publish, got.Subscribe, got.Response, opts.SyncAlways, opts.MaxPayload)
	}
	url := serve(t, opts)
	withPassword := strings.Replace(url, "nats://", "nats://hub:secret@", 1)
	n := startNode(t, t.Context(), url, "web-1", seed, t.TempDir())
	defer n.Close()
	eventually(t, "a node keeps what it has while nobody has made a stream", func() bool {
		n.window(2)
		st := n.Status()
		return st.Connected && st.Waiting >= 5 && st.Lost == 0
	})
	first, second := startHub(t, shardConfig(filepath.Join(dir, "1"), withPassword, 1, 2)), startHub(t, shardConfig(filepath.Join(dir, "2"), withPassword, 2, 2))
	eventually(t, "both jobs are with the hub that has them", func() bool {
		n.window(2)
		return len(first.jobs())+len(second.jobs()) == 2
	})
	eventually(t, "what it kept is stored", func() bool {
		one, err1 := storedIn(first.store)
		two, err2 := storedIn(second.store)
		st := n.Status()
		return err1 == nil && err2 == nil && st.Waiting == 0 && uint64(len(one)+len(two)) == st.Sent && st.Sent >= 5
	})
	if ans, err := second.command(&person{Name: "ann", Role: Operator}, "web-1", wireCommand("cap", "/be", "a test")); err != nil || ans.Done != "cap" {
		t.Errorf("%+v, %v", ans, err)
	}
	protectsFrom(t, second, n)
	late := startNode(t, t.Context(), url, "web-1", seed, t.TempDir())
	defer late.Close()
	eventually(t, "a node that comes later hears it", func() bool { return slices.Equal(late.Protection().Jobs(), []string{"web"}) })
	if _, err := nats.Connect(url); err == nil {
		t.Error("a stranger is connected")
	}
	key, err := nats.NkeyOptionFromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	sendsForItselfOnly(t, url, key)
	if u := first.NodesURL(); strings.Contains(u, "secret") {
		t.Errorf("viewers see the hub's password: %s", u)
	}
}

// protectsFrom turns protection off and on in the whole fleet through a hub in whose folder no node is.
func protectsFrom(t *testing.T, b *bed, n *testNode) {
	t.Helper()
	if list, err := Nodes(b.dir); err != nil || len(list) != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	operator := b.token("ann", Operator)
	say := func(kind, job string, want ...string) {
		t.Helper()
		code, m := b.call(operator, "POST", "/v1/command", fmt.Sprintf(`{"node": "*", "kind": %q, "job": %q, "why": "a test"}`, kind, job))
		if code != http.StatusOK || len(m["off"].([]any)) != len(want) {
			t.Fatalf("%s %q: %d %v", kind, job, code, m)
		}
		eventually(t, fmt.Sprintf("the node hears %s %q", kind, job), func() bool { return slices.Equal(n.Protection().Jobs(), want) })
	}
	say("protect-off", "web", "web")
	say("protect-off", "", "", "web")
	say("protect-on", "mail", "", "web") // which was not off
	say("protect-on", "")
	say("protect-off", "web", "web")
	if code, m := b.call(operator, "POST", "/v1/command", `{"node": "*", "kind": "protect-off", "job": "web"}`); code != http.StatusBadRequest || !strings.Contains(fmt.Sprint(m["error"]), "why") {
		t.Errorf("%d %v", code, m)
	}
	acts := 0
	for _, act := range b.audit.list() {
		if act.Node == "*" && act.By == "ann" && act.Why == "a test" && strings.HasPrefix(act.What, "protect-") {
			acts++
		}
	}
	if acts != 10 {
		t.Errorf("%d lines of the audit, expected two of each of 5 commands: %+v", acts, b.audit.list())
	}
}

// serve starts a server of somebody else in this process.
func serve(t *testing.T, opts *server.Options) (url string) {
	t.Helper()
	opts.NoSigs, opts.NoLog = true, true
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("it does not start")
	}
	return srv.ClientURL()
}

// sendsForItselfOnly tries to send a batch for another node with what a node has.
func sendsForItselfOnly(t *testing.T, url string, as nats.Option) {
	t.Helper()
	refused := make(chan error, 4)
	nc, err := nats.Connect(url, as, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.Publish(wire.UpPrefix+"other", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-refused:
		if !strings.Contains(err.Error(), "ermissions") {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it sent for another")
	}
}
