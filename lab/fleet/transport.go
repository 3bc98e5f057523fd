package fleet

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"golang.org/x/sync/errgroup"

	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
)

// Carried is what connections and messages cost the transport that a hub embeds, with its options. A connection that idles is a socket in this process, which
// has authenticated with a node's key and has the subscriptions of a node with 30 jobs; all are of one node. Who sends is a node each, whose batch of one
// window of 30 tasks (a minute at CPI²'s cadence) waits for the one before to be acknowledged; the hub reads and stores them meanwhile.
type Carried struct {
	Connections   int     `json:"connections"`
	Subscriptions int     `json:"subscriptions_a_connection"`
	KiB           float64 `json:"kib_a_connection"` // of Go's memory in use, heap and stacks, of both ends
	Joined        float64 `json:"joined_seconds"`
	Told          float64 `json:"told_seconds"` // until a changed key is at all of them; the slowest of a few
	Sent          []Sent  `json:"sent"`
	Syncs         float64 `json:"syncs_a_second"` // of the disk alone: one file, to which a batch's bytes are added each time
}

// Sent is what so many nodes at once had acknowledged, each batch synced.
type Sent struct {
	Nodes    int     `json:"nodes"`
	Messages int     `json:"messages"`
	Bytes    float64 `json:"bytes_a_message"`
	Seconds  float64 `json:"seconds"` // until all were acknowledged
	Stored   float64 `json:"stored_seconds"`
}

const (
	carryRounds      = 3
	carrySenders     = 64
	carrySyncs       = 1000
	carryBytes       = 700 // of a batch, about
	filesAConnection = 2
)

// carry measures both.
func (c *Cost) carry(ctx context.Context, dir string, seed uint64, quick bool) (err error) {
	r := &c.Carried
	var messages []int
	r.Connections, messages = 5_000, []int{5_000, 20_000}
	if quick {
		r.Connections, messages = 500, []int{500, 5_000}
	}
	if err := errors.Join(filesFor(r.Connections, filesAConnection), os.MkdirAll(dir, 0o750)); err != nil {
		return err
	}
	if r.Syncs, err = syncsOf(dir); err != nil {
		return err
	}
	f, cl, end, err := hubIn(ctx, dir, spec.Params{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	for i := range carrySenders {
		if err := f.let(feedNode(i)); err != nil {
			return err
		}
	}
	for i, nodes := range []int{1, carrySenders} {
		s := Sent{Nodes: nodes, Messages: messages[i]}
		if err := s.send(ctx, f, cl, seed+uint64(i)); err != nil { //nolint:gosec // few
			return fmt.Errorf("%d nodes that send: %w", nodes, err)
		}
		r.Sent = append(r.Sent, s)
	}
	return r.idle(ctx, f, cl)
}

// syncsOf is how often a second a file in a folder can be added to and synced.
func syncsOf(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	for range carrySyncs {
		if _, err = f.Write(make([]byte, carryBytes)); err == nil {
			err = f.Sync()
		}
		if err != nil {
			break
		}
	}
	took := time.Since(begin).Seconds()
	return carrySyncs / took, errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// send has nodes send small batches as fast as they are acknowledged.
func (s *Sent) send(ctx context.Context, f *field, cl *client.Client, seed uint64) error {
	each := s.Messages / s.Nodes
	s.Messages = each * s.Nodes
	list, bytes := make([][][]byte, s.Nodes), 0
	for node := range list {
		rng := rand.New(rand.NewPCG(seed, uint64(node))) //nolint:gosec // few
		for i := range each {
			b := minuteBatch(rng, node, loadTasks, 1, uint64(i+1), time.Now().Add(-time.Minute)) //nolint:gosec // few
			b.Spool = fmt.Sprintf("%08x%08x", s.Nodes, node)
			data, err := codec.Encode(b)
			if err != nil {
				return err
			}
			list[node], bytes = append(list[node], data), bytes+len(data)
		}
	}
	s.Bytes = float64(bytes) / float64(s.Messages)
	var before, st hub.Status
	if err := cl.Do(ctx, "/v1/fleet", nil, &before); err != nil {
		return err
	}
	g, sendCtx := errgroup.WithContext(ctx)
	start := make(chan struct{})
	for node, batches := range list {
		nc, err := dialAs(f.hub.NodesURL(), feedNode(node), f.seeds[node])
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		g.Go(func() error {
			<-start
			for _, data := range batches {
				if _, err := js.Publish(sendCtx, wire.UpPrefix+feedNode(node), data); err != nil {
					return err
				}
			}
			return nil
		})
	}
	begin := time.Now()
	close(start)
	if err := g.Wait(); err != nil {
		return err
	}
	s.Seconds = time.Since(begin).Seconds()
	err := until(ctx, 20*time.Millisecond, ingestTime, func() (bool, error) {
		err := cl.Do(ctx, "/v1/fleet", nil, &st)
		return st.Count-before.Count == uint64(s.Messages), err //nolint:gosec // few
	})
	s.Stored = time.Since(begin).Seconds()
	return err
}

// idle makes connections, and tells them something.
func (r *Carried) idle(ctx context.Context, f *field, cl *client.Client) error {
	subjects := []string{wire.InboxPrefix(feedNode(0)) + ".>", wire.CommandPrefix + feedNode(0)}
	for _, key := range []string{wire.KeyOff, wire.KeyProtection, wire.KeyRollout, wire.KeyLayout} {
		subjects = append(subjects, wire.KV(wire.ControlBucket, key))
	}
	r.Subscriptions = len(subjects) + 2*loadTasks
	before, begin := inUse(), time.Now()
	socks := make([]*sock, r.Connections)
	defer func() {
		for _, s := range socks {
			if s != nil {
				_ = s.Close() // which ends its listening
			}
		}
	}()
	var dial errgroup.Group
	dial.SetLimit(loadSenders)
	for i := range socks {
		mine := append([]string{}, subjects...)
		for k := range loadTasks {
			key := wire.SpecKey(platforms[0].name, fmt.Sprintf("job-%d", (i*loadTasks+k)%500))
			mine = append(mine, wire.KV(wire.SpecBucket, key), wire.KV(wire.PriorBucket, key))
		}
		dial.Go(func() (err error) { socks[i], err = dialSock(ctx, f, mine); return err })
	}
	if err := dial.Wait(); err != nil {
		return err
	}
	r.Joined = time.Since(begin).Seconds()
	r.KiB = float64(inUse()-before) / 1024 / float64(r.Connections)
	told := &all{}
	for _, s := range socks {
		go s.listen(func() { told.one() })
	}
	for round := range carryRounds {
		told.left.Store(int64(r.Connections))
		told.done = make(chan struct{})
		begin := time.Now()
		var now wire.Protection
		kind := []string{"protect-off", "protect-on"}[round%2]
		if err := cl.Do(ctx, "/v1/command", map[string]string{"node": "*", "kind": kind, "job": "job-1", "why": "the bench"}, &now); err != nil {
			return err
		}
		if err := told.wait(ctx, kind+" to all connections"); err != nil {
			return err
		}
		r.Told = max(r.Told, time.Since(begin).Seconds())
	}
	return nil
}

// inUse is Go's memory of this process in bytes, stacks as well.
func inUse() int64 {
	bytes := heap()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return bytes + int64(m.StackInuse) //nolint:gosec // far below
}

// sock is a connection that speaks as much of the transport's protocol as listening takes: a client's own memory would be most of what is measured.
type sock struct {
	net.Conn
	in *bufio.Reader
}

func dialSock(ctx context.Context, f *field, subjects []string) (s *sock, err error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(f.hub.NodesURL(), "nats://"))
	if err != nil {
		return nil, err
	}
	s = &sock{nc, bufio.NewReaderSize(nc, 512)}
	defer func() {
		if err != nil {
			err = errors.Join(err, nc.Close())
			s = nil
		}
	}()
	if err := nc.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return s, err
	}
	line, err := s.line()
	if err != nil {
		return s, err
	}
	var info struct{ Nonce string }
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info); err != nil {
		return s, fmt.Errorf("the server begins with %.100q: %w", line, err)
	}
	seed, err := os.ReadFile(f.seeds[0])
	if err != nil {
		return s, err
	}
	key, err := nkeys.ParseDecoratedUserNKey(seed)
	if err != nil {
		return s, err
	}
	public, err := key.PublicKey()
	if err != nil {
		return s, err
	}
	sig, err := key.Sign([]byte(info.Nonce))
	if err != nil {
		return s, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "CONNECT {\"verbose\":false,\"pedantic\":false,\"protocol\":1,\"lang\":\"go\",\"nkey\":%q,\"sig\":%q}\r\n", public, base64.RawURLEncoding.EncodeToString(sig))
	for i, subject := range subjects {
		fmt.Fprintf(&b, "SUB %s %d\r\n", subject, i+1)
	}
	b.WriteString("PING\r\n")
	if _, err := io.WriteString(nc, b.String()); err != nil {
		return s, err
	}
	for line != "PONG" {
		if line, err = s.line(); err != nil {
			return s, err
		}
		if strings.HasPrefix(line, "-ERR") {
			return s, fmt.Errorf("the server says %s", line)
		}
	}
	return s, nc.SetReadDeadline(time.Time{})
}

// line reads one, however long: the server's first is longer than the buffer.
func (s *sock) line() (string, error) {
	text, err := s.in.ReadString('\n')
	return strings.TrimRight(text, "\r\n"), err
}

// listen calls heard at each change of the key until the connection is closed.
func (s *sock) listen(heard func()) {
	begin := "MSG " + wire.KV(wire.ControlBucket, wire.KeyProtection) + " "
	for {
		line, err := s.line()
		switch {
		case err != nil:
			return
		case line == "PING":
			_, _ = io.WriteString(s, "PONG\r\n")
		case strings.HasPrefix(line, begin):
			heard()
		}
	}
}

func (r *Carried) write(w io.Writer) {
	for _, s := range r.Sent {
		fmt.Fprintf(w, "batches a second of %.0f bytes that the transport acknowledges, each synced, to %d nodes at once (%d of one window of %d tasks), and that are then in the store\t%.0f, %.0f\t-\n",
			s.Bytes, s.Nodes, s.Messages, loadTasks, float64(s.Messages)/s.Seconds, float64(s.Messages)/s.Stored)
	}
	if r.Connections > 0 {
		fmt.Fprintf(w, "  syncs a second of this disk alone, of one file to which %d bytes are added each time\t%.0f\t-\n", carryBytes, r.Syncs)
		fmt.Fprintf(w, "KiB a connection that idles, of %d with %d subscriptions each (all were there within %.1f s), and seconds until a changed key is at all (the slowest of %d)\t%.0f, %.2f\t-\n",
			r.Connections, r.Subscriptions, r.Joined, carryRounds, r.KiB, r.Told)
	}
}
