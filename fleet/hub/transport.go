package hub

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/commensal-io/commensal/fleet/wire"
)

// transport is NATS JetStream: a server in this process, or a connection to somebody's cluster.
type transport struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	own nkeys.KeyPair // of the hub itself
	tls *tls.Config   // of pages and, where the server is in this process, transport
	// specs is the bucket of specs: a sheet is sent often enough for not looking it up each time.
	specs jetstream.KeyValue
	cfg   *Config

	srv      atomic.Pointer[server.Server] // nil: it is somebody else's
	changing sync.Mutex                    // held while it becomes another one, or gets other options
	port     int                           // that the first one had

	// Of the goroutine that watches the disk.
	most     int64 // bytes that the stream takes, 1 while it refuses batches; 0: not known
	reopened time.Time
}

// maxStream bounds what waits in the transport for the hub, maxTransport that and all buckets (which a server finds by the disk's room at its
// start where nobody says it: too little for good), and maxPayload one message: a batch with its headers.
const (
	maxStream    = 4 << 30
	maxTransport = 2 * maxStream
	maxPayload   = wire.MaxBytes + 64<<10

	prepareTries  = 6
	prepareWithin = 5 * time.Second
)

// openTransport starts the server, or connects to an existing cluster.
func openTransport(ctx context.Context, cfg *Config) (t *transport, err error) {
	t = &transport{cfg: cfg}
	opened := t
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	if cfg.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("hub: %w", err)
		}
		t.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	opts := []nats.Option{nats.Name("commensal-hub"), nats.MaxReconnects(-1), nats.Timeout(5 * time.Second)}
	url := cfg.NATS
	if url == "" {
		if err := t.embed(); err != nil {
			return nil, err
		}
		public, err := t.own.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("hub: %w", err)
		}
		opts = append(opts, nats.InProcessServer(t), nats.Nkey(public, t.own.Sign))
	} else if cfg.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(cfg.NATSCreds))
	}
	if url != "" && cfg.NATSCA != "" {
		opts = append(opts, nats.RootCAs(cfg.NATSCA))
	}
	if t.nc, err = nats.Connect(url, opts...); err != nil {
		return nil, fmt.Errorf("hub: the transport at %q: %w", shown(url), err)
	}
	if t.js, err = jetstream.New(t.nc); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	for try := 0; ; try++ { // a cluster between two leaders answers nothing, and not later either
		if err = t.prepare(ctx); try == prepareTries-1 || !errors.Is(err, context.DeadlineExceeded) {
			return t, err
		}
	}
}

// prepare makes the stream and the buckets where they are not there.
func (t *transport) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, prepareWithin)
	defer cancel()
	if _, err := t.js.CreateOrUpdateStream(ctx, t.stream()); err != nil {
		return fmt.Errorf("hub: stream %s: %w", wire.Stream, err)
	}
	for bucket, history := range map[string]uint8{wire.SpecBucket: 16, wire.PriorBucket: 1, wire.ControlBucket: 16} {
		kv, err := t.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, History: history, Storage: jetstream.FileStorage, Replicas: t.cfg.Replicas})
		if err != nil {
			return fmt.Errorf("hub: bucket %s: %w", bucket, err)
		}
		if bucket == wire.SpecBucket {
			t.specs = kv
		}
	}
	return nil
}

// stream is how the batches' stream should be.
func (t *transport) stream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: wire.Stream, Subjects: []string{wire.AllUp, wire.AllParts}, Storage: jetstream.FileStorage, Replicas: t.cfg.Replicas,
		// What nobody took away yet is never dropped for something newer: nodes keep it until there is room.
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: maxStream, MaxMsgSize: maxPayload,
		Description: "batches of nodes, until the hub has them in its store",
	}
}

// embed starts the server in this process.
func (t *transport) embed() (err error) {
	if t.own, err = nkeys.CreateUser(); err != nil { // drawn anew at each start: nobody else ever needs it
		return fmt.Errorf("hub: %w", err)
	}
	return t.start()
}

// start starts the server, in the place of one that there was: its connections come again.
func (t *transport) start() error {
	t.changing.Lock()
	defer t.changing.Unlock()
	opts, err := t.options()
	if err != nil {
		return err
	}
	t.stop()
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	t.srv.Store(srv)
	srv.SetLoggerV2(&serverLog{log: t.cfg.Log}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		return errors.New("hub: the embedded transport did not start; its log says why")
	}
	t.port = srv.Addr().(*net.TCPAddr).Port // it listens on TCP
	return nil
}

func (t *transport) stop() {
	if srv := t.srv.Load(); srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

// InProcessConn connects the hub itself to the server that there is now.
func (t *transport) InProcessConn() (net.Conn, error) { return t.srv.Load().InProcessConn() }

// options are the server's, with the nodes that are enrolled now.
func (t *transport) options() (*server.Options, error) {
	host, port, err := net.SplitHostPort(t.cfg.NATSListen)
	if err != nil {
		return nil, fmt.Errorf("hub: nats-listen: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("hub: nats-listen: port %q: %w", port, err)
	}
	if number == 0 { // a port that was drawn is kept
		number = cmp.Or(t.port, server.RANDOM_PORT)
	}
	public, err := t.own.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	users := []*server.NkeyUser{{Nkey: public}}
	nodes, err := Nodes(t.cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		users = append(users, &server.NkeyUser{Nkey: n.Key, Permissions: permissions(n.Name)})
	}
	return &server.Options{
		ServerName: "commensal-hub", Host: host, Port: number, NoSigs: true, MaxPayload: maxPayload, Nkeys: users,
		JetStream: true, StoreDir: t.dir(), JetStreamMaxStore: maxTransport, SyncAlways: true, TLSConfig: t.tls, TLSTimeout: 5,
		MaxControlLine: 4096, DisableShortFirstPing: true,
	}, nil
}

// permissions are all that a node may do: send its own batches, read specs and priors, the kill switch and the roll-out, answer commands.
func permissions(node string) *server.Permissions {
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			wire.UpPrefix + node, wire.UpPrefix + node + ".*", wire.KVGet(wire.SpecBucket, "*.*"), wire.KVGet(wire.PriorBucket, "*.*"), wire.KVGet(wire.ControlBucket, "*"),
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{
			wire.InboxPrefix(node) + ".>", wire.CommandPrefix + node, wire.KV(wire.SpecBucket, "*.*"), wire.KV(wire.PriorBucket, "*.*"), wire.KV(wire.ControlBucket, "*"),
		}},
		Response: &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute},
	}
}

// reload takes over who is enrolled now.
func (t *transport) reload() error {
	t.changing.Lock()
	defer t.changing.Unlock()
	srv := t.srv.Load()
	if srv == nil {
		return nil
	}
	opts, err := t.options()
	if err != nil {
		return err
	}
	if err := srv.ReloadOptions(opts); err != nil {
		return fmt.Errorf("hub: the nodes that are enrolled: %w", err)
	}
	return nil
}

func (t *transport) close() {
	if t.nc != nil {
		t.nc.Close()
	}
	t.stop()
}

// serverLog is the server's log: what it does every day is no news, and strangers who knock cannot fill it.
type serverLog struct {
	log *slog.Logger

	mu      sync.Mutex
	told    time.Time
	swallow int // errors since
}

// errorsEvery is how often an error of the server is told.
const errorsEvery = 10 * time.Second

func (l *serverLog) fail(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.told) < errorsEvery {
		l.swallow++
		return
	}
	l.log.Error("transport", "says", text, "more_before", l.swallow)
	l.told, l.swallow = time.Now(), 0
}

// Noticef, Warnf, Errorf, Fatalf, Debugf and Tracef implement the server's Logger.
func (l *serverLog) Noticef(f string, v ...any) {
	l.log.Debug("transport", "says", fmt.Sprintf(f, v...))
}

// Warnf is for what may become trouble.
func (l *serverLog) Warnf(f string, v ...any) { l.fail(fmt.Sprintf(f, v...)) }

// Errorf is for what failed, mostly somebody's connection.
func (l *serverLog) Errorf(f string, v ...any) { l.fail(fmt.Sprintf(f, v...)) }

// Fatalf is for what ends the server.
func (l *serverLog) Fatalf(f string, v ...any) {
	l.log.Error("transport", "says", fmt.Sprintf(f, v...))
}

// Debugf is never asked for.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef is never asked for.
func (l *serverLog) Tracef(string, ...any) {}
