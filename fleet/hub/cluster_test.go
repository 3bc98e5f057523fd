package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/commensal-io/commensal/fleet/store"
)

// member is one server of a cluster that is not the hub's own.
type member struct {
	opts *server.Options
	srv  *server.Server
}

func (m *member) start(t *testing.T) {
	t.Helper()
	var err error
	opts := m.opts.Clone()
	if m.srv, err = server.NewServer(opts); err != nil {
		t.Fatal(err)
	}
	go m.srv.Start()
	if !m.srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("a member does not start")
	}
}

// newCluster starts three servers that keep everything three times.
func newCluster(t *testing.T) (members []*member, url string) {
	t.Helper()
	var routes, clients []string
	var ports [3][2]int
	for i := range ports {
		for k := range ports[i] {
			_, port, err := net.SplitHostPort(freeAddress(t))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscan(port, &ports[i][k]); err != nil {
				t.Fatal(err)
			}
		}
		clients = append(clients, fmt.Sprintf("nats://127.0.0.1:%d", ports[i][0]))
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[i][1]))
	}
	for i := range ports {
		m := &member{opts: &server.Options{
			ServerName: fmt.Sprintf("m%d", i), Host: "127.0.0.1", Port: ports[i][0], JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true, MaxPayload: maxPayload,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i][1]}, Routes: server.RoutesFromStr(strings.Join(routes, ",")),
		}}
		m.start(t)
		members = append(members, m)
	}
	t.Cleanup(func() {
		for _, m := range members {
			m.srv.Shutdown()
			m.srv.WaitForShutdown()
		}
	})
	eventually(t, "the cluster has a leader", func() bool {
		for _, m := range members {
			if m.srv.JetStreamIsLeader() {
				return true
			}
		}
		return false
	})
	return members, strings.Join(clients, ",")
}

// With a cluster of three servers, of which one after the other goes away and comes back, no batch is lost and none is there twice; and a
// spec and the kill switch come down all the same.
func TestAClusterLosesMembers(t *testing.T) {
	members, url := newCluster(t)
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
				n.window(2 + 0.01*float64(i%7))
			}
		}
	}()
	rng := rand.New(rand.NewPCG(5, 5))
	for _, k := range rng.Perm(3) {
		time.Sleep(time.Second)
		members[k].srv.Shutdown()
		members[k].srv.WaitForShutdown()
		time.Sleep(time.Duration(500+rng.IntN(1000)) * time.Millisecond)
		members[k].start(t)
		eventually(t, "all are back", func() bool { return members[k].srv.JetStreamIsCurrent() })
	}
	eventually(t, "specs come down", func() bool { return len(nodes[0].heard()) > 0 && len(nodes[2].heard()) > 0 })
	if code, m := b.call(b.token("a", Admin), "POST", "/v1/off", `{"off": true}`); code != 200 {
		t.Errorf("%d %v", code, m)
	}
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
