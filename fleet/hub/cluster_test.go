package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/internal/testchild"
)

// member is one server, a process of its own, of a cluster that is not the hub's.
type member struct {
	role, monitor string
	*testchild.Child
}

// natsChild is a server: nats NAME PORT MONITOR DIR [ROUTES PORT]. Of a cluster, what it acknowledges is on its disk.
func natsChild(p *testchild.Parent, args []string) error {
	opts := &server.Options{ServerName: args[0], Host: "127.0.0.1", HTTPHost: "127.0.0.1", JetStream: true, StoreDir: args[3], SyncAlways: true, NoSigs: true, NoLog: true, MaxPayload: maxPayload}
	var err error
	if opts.Port, err = strconv.Atoi(args[1]); err != nil {
		return err
	}
	if opts.HTTPPort, err = strconv.Atoi(args[2]); err != nil {
		return err
	}
	if len(args) > 4 {
		opts.Routes = server.RoutesFromStr(args[4])
		opts.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1"}
		if opts.Cluster.Port, err = strconv.Atoi(args[5]); err != nil {
			return err
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	go srv.Start()
	if !srv.ReadyForConnections(20 * time.Second) {
		return errors.New("it does not start")
	}
	return p.Stay()
}

func (m *member) start(t *testing.T) {
	t.Helper()
	m.Child = testchild.Start(t, m.role).Await("ready")
}

// well: it is of the cluster, and has all that it should have.
func (m *member) well() bool {
	res, err := http.Get("http://" + m.monitor + "/healthz")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// newCluster starts so many servers, each of which keeps everything.
func newCluster(t *testing.T, count int) (members []*member, url string) {
	t.Helper()
	var routes, clients, ports []string
	for range count {
		port := freePort(t)
		ports = append(ports, port)
		routes = append(routes, "nats://127.0.0.1:"+port)
	}
	for i := range count {
		port, monitor := freePort(t), freePort(t)
		clients = append(clients, "nats://127.0.0.1:"+port)
		m := &member{role: strings.Join([]string{"nats", fmt.Sprintf("m%d", i), port, monitor, t.TempDir()}, " "), monitor: "127.0.0.1:" + monitor}
		if count > 1 {
			m.role += " " + strings.Join(routes, ",") + " " + ports[i]
		}
		m.start(t)
		members = append(members, m)
	}
	eventually(t, "the servers are one cluster", func() bool {
		return !slices.ContainsFunc(members, func(m *member) bool { return !m.well() })
	})
	return members, strings.Join(clients, ",")
}

// With a cluster of three servers, of which one after the other is killed (SIGKILL) and comes back, no batch is lost and none is there twice; and a
// spec and the kill switch come down all the same.
func TestAClusterLosesMembers(t *testing.T) {
	t.Parallel()
	members, url := newCluster(t, 3)
	cfg := testConfig(t.TempDir())
	cfg.NATS, cfg.Replicas = url, 3
	b := startHub(t, cfg)
	var nodes []*testNode
	for i := range 3 {
		n := startNode(t, context.Background(), url, fmt.Sprintf("n%d", i), "", t.TempDir())
		defer n.Close()
		nodes = append(nodes, n)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			for _, n := range nodes {
				if !n.onDisk(func() { n.window(2 + 0.01*float64(i%7)) }) {
					t.Error("a batch does not get to disk")
					return
				}
			}
		}
	}()
	rng := rand.New(rand.NewPCG(5, 5))
	for _, k := range rng.Perm(3) {
		time.Sleep(time.Second)
		members[k].End()
		time.Sleep(time.Duration(500+rng.IntN(1000)) * time.Millisecond)
		members[k].start(t)
		eventually(t, "all are back", members[k].well)
	}
	eventually(t, "specs come down", func() bool { return len(nodes[0].heard()) > 0 && len(nodes[2].heard()) > 0 })
	admin := b.token("a", Admin)
	eventually(t, "the kill switch is taken", func() bool { // a leader that was killed is missed for 4 to 9 seconds
		code, _ := b.call(admin, "POST", "/v1/off", `{"off": true, "why": "a test"}`)
		return code == http.StatusOK
	})
	eventually(t, "all are off", func() bool { return nodes[0].Off() && nodes[1].Off() && nodes[2].Off() })
	close(stop)
	<-done
	var sent uint64
	for _, n := range nodes {
		eventually(t, n.name+" gets rid of all", func() bool { return n.Status().Waiting == 0 })
		n.Close()
		if st := n.Status(); st.Lost > 0 {
			t.Errorf("%s lost %d", n.name, st.Lost)
		}
		sent += n.Status().Sent
	}
	eventually(t, "all is in the store", func() bool { _, n := b.store.Committed(); return n >= sent })
	b.stop()
	s, err := store.Open(b.dir + "/store")
	if err != nil {
		t.Fatal(err)
	}
	got, err := storedIn(s)
	if err != nil || uint64(len(got)) != sent || sent < 300 {
		t.Errorf("%d batches of %d, %v", len(got), sent, err)
	}
	for name, n := range got {
		if n != 2 {
			t.Errorf("%s has %d samples", name, n)
		}
	}
}

// A hub connects to another machine's cluster by TLS and with credentials only, unless it is told that something else guards the way.
func TestAHubsClusterIsGuarded(t *testing.T) {
	for _, x := range []struct {
		change func(c *Config)
		want   string // in the error; "": there is none
	}{
		{func(c *Config) { c.NATS = "nats://hub:secret@10.0.0.1:4222" }, "--nats: 10.0.0.1:4222 is another machine, reached in plain text; expected tls://10.0.0.1:4222, or --nats-unguarded"},
		{func(c *Config) { c.NATS = "tls://10.0.0.1:4222" }, "nothing proves to it who comes"},
		{func(c *Config) { c.NATS = "tls://hub:secret@10.0.0.1:4222" }, ""},
		{func(c *Config) { c.NATS, c.NATSCreds, c.NATSCA = "nats://10.0.0.1:4222", "file", "file" }, ""},
		{func(c *Config) { c.NATS, c.NATSUnguarded = "nats://10.0.0.1:4222", true }, ""},
	} {
		cfg := testConfig(t.TempDir())
		x.change(&cfg)
		if _, err := New(cfg); (err == nil) != (x.want == "") || err != nil && (!strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", cfg.NATS, err)
		}
	}
}
