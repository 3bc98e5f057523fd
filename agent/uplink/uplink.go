// Package uplink is a node's end of the fleet: it sends batches up, takes specs, the kill switch and operators'
// commands, and goes on without all that while the hub is away. Nothing here is waited for by the agent's loop.
package uplink

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/agent/uplink/spool"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
	"github.com/commensal-io/commensal/model"
)

// Config says where the hub is and who this node is.
type Config struct {
	URL      string // nats:// or tls://, several with commas between
	Node     string
	SeedFile string // the node's NKey, which `commensal-hub node add` makes
	Creds    string // or a credentials file of an existing cluster
	CAFile   string // of the certificates that the hub has; "": the system's
	Dir      string // of the spool
	MaxBytes int64  // of the spool
}

// Node is what each batch says of its node.
type Node struct{ Boot, Platform, Program string }

// Hooks are what the agent does for the uplink. They are called from goroutines of the uplink.
type Hooks struct {
	Specs   func(specs []model.Spec)
	Priors  func(p model.Priors) // nil: nobody wants them
	Command func(ctx context.Context, c *wire.Command) wire.Answer
	// Rollout takes a change over, or goes back to what the file says; nil: there is none to go back from.
	Rollout func(overlay string, on bool) error
	Log     *slog.Logger
}

// Status is what people are told.
type Status struct {
	Hub       string    `json:"hub"`
	Node      string    `json:"node"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"` // of Connected
	Why       string    `json:"why,omitempty"`
	Waiting   int       `json:"waiting"`       // batches that nobody took yet
	Bytes     int64     `json:"waiting_bytes"` // that they are
	Sent      uint64    `json:"sent"`          // batches, acknowledged
	Lost      uint64    `json:"lost"`          // batches that had to give way
	Sheets    int       `json:"sheets"`        // jobs of which the fleet's spec is known
	Parts     int       `json:"parts"`         // that batches are divided into, by job
	Off       bool      `json:"off"`           // the fleet's kill switch
	OffWhy    string    `json:"off_why,omitempty"`
	// ProtectOff are the jobs whose protection is off in the whole fleet, "" all.
	ProtectOff []wire.Unprotected `json:"protect_off,omitempty"`
	Rollout    string             `json:"rollout,omitempty"` // the change in force; "!ID: why" one that this node refuses
}

// Uplink is one running connection. A nil Uplink is none.
type Uplink struct {
	Gather *Gather // belongs to the agent's loop

	cfg   Config
	node  Node
	hooks Hooks
	nc    *nats.Conn
	js    jetstream.JetStream
	spool *spool.Spool
	notes *notes

	control []*key

	run   string // begins the names of this run's messages
	id    string // of the spool, as the batches say it
	seq   uint64
	lost  uint64 // batches that nobody told the hub of yet: they did not get to disk
	taken bool   // something came in while the hub was asked
	in    chan *wire.Batch
	wake  chan struct{}
	done  chan struct{}
	off   atomic.Bool
	// protection is the fleet's word; nil: there was none.
	protection atomic.Pointer[wire.Protection]

	// handed counts batches that the loop handed on and that are not on disk yet.
	handed atomic.Int64
	parts  atomic.Int64 // that batches are divided into
	ended  atomic.Bool  // the connection is closed by us
	once   sync.Once

	rolling sync.Mutex // held while a change is taken over
	rollout wire.Rollout

	mu     sync.Mutex
	status Status
	last   string // error of the transport that was told last
	giveUp func() // ends the waiting for an acknowledgement, which does not come when the connection is gone; nil: nothing was sent yet
	sheets sheets
	seen   commands
}

const (
	between    = 4 // batches from the loop to the disk
	ackTimeout = 10 * time.Second
	retryFirst = time.Second
	retryMost  = 30 * time.Second
	closeWait  = 3 * time.Second
)

// Start begins. An error is one of the configuration: a hub that cannot be reached is none.
func Start(ctx context.Context, cfg Config, node Node, gather *Gather, hooks Hooks) (*Uplink, error) {
	sp, err := spool.Open(cfg.Dir, cfg.MaxBytes)
	if err != nil {
		return nil, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	u := &Uplink{
		Gather: gather, cfg: cfg, node: node, hooks: hooks, spool: sp, id: hex.EncodeToString(id[:]),
		in: make(chan *wire.Batch, between), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	u.parts.Store(1)
	u.notes = openNotes(filepath.Join(cfg.Dir, heardFile), cfg.URL, hooks.Log)
	u.seen.ids = maps.Clone(u.notes.heard.Done)
	u.run = fmt.Sprintf("%016x-%s", time.Now().UnixNano(), u.id)
	u.status = Status{Hub: cfg.URL, Node: cfg.Node, Since: time.Now(), Why: "not yet connected", Waiting: sp.Len(), Bytes: sp.Bytes()}
	u.setOff(&u.notes.heard.Off)
	u.protection.Store(u.notes.heard.Protection)
	if err := u.connect(); err != nil {
		u.notes.close()
		return nil, err
	}
	go u.work(ctx)
	return u, nil
}

// connect makes the connection, which comes and goes by itself from then on.
func (u *Uplink) connect() error {
	opts := []nats.Option{
		nats.Name("commensal " + u.cfg.Node), nats.CustomInboxPrefix(wire.InboxPrefix(u.cfg.Node)),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second), nats.ReconnectJitter(time.Second, time.Second),
		nats.ReconnectBufSize(-1), // what cannot be sent waits in the spool, and nowhere else
		nats.Timeout(5 * time.Second), nats.PingInterval(20 * time.Second),
		nats.ConnectHandler(func(*nats.Conn) { u.connected() }), nats.ReconnectHandler(func(*nats.Conn) { u.connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { u.disconnected(cmp.Or(err, nats.ErrConnectionClosed)) }),
		nats.IgnoreAuthErrorAbort(), // a node may be enrolled while it runs
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { u.says(err) }),
	}
	switch {
	case u.cfg.SeedFile != "":
		key, err := nats.NkeyOptionFromSeed(u.cfg.SeedFile)
		if err != nil {
			return fmt.Errorf("fleet.seed_file: %w", err)
		}
		opts = append(opts, key)
	case u.cfg.Creds != "":
		opts = append(opts, nats.UserCredentials(u.cfg.Creds))
	}
	if u.cfg.CAFile != "" {
		opts = append(opts, nats.RootCAs(u.cfg.CAFile))
	}
	nc, err := nats.Connect(u.cfg.URL, opts...)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	u.nc = nc
	if u.js, err = jetstream.New(nc); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if _, err := nc.Subscribe(wire.CommandPrefix+u.cfg.Node, u.command); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	u.control = u.controls()
	for _, k := range u.control {
		if err := u.listen(k); err != nil {
			return fmt.Errorf("fleet: %w", err)
		}
	}
	return nil
}

func (u *Uplink) connected() {
	u.say(true, "")
	u.hooks.Log.Info("connected to the hub", "hub", u.cfg.URL, "node", u.cfg.Node)
	u.poke()
}

func (u *Uplink) disconnected(err error) {
	u.say(false, err.Error())
	u.mu.Lock()
	if u.giveUp != nil {
		u.giveUp()
	}
	u.mu.Unlock()
	if u.ended.Load() {
		return
	}
	u.hooks.Log.Warn("the hub is away: this node goes on with what it knows", "hub", u.cfg.URL, "error", err)
}

// says tells of an error of the transport, not again and again of the same.
func (u *Uplink) says(err error) {
	u.mu.Lock()
	again := u.last == err.Error()
	u.last, u.status.Why = err.Error(), err.Error()
	u.mu.Unlock()
	if !again {
		u.hooks.Log.Warn("the hub's transport says", "error", err)
	}
}

func (u *Uplink) say(connected bool, why string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status.Connected, u.status.Since, u.status.Why, u.last = connected, time.Now(), why, ""
}

func (u *Uplink) poke() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// Status returns how the connection stands.
func (u *Uplink) Status() *Status {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	st := u.status
	if p := u.protection.Load(); p != nil {
		st.ProtectOff = p.Off
	}
	st.Off, st.Sheets, st.Parts = u.off.Load(), u.sheets.known(), int(u.parts.Load())
	return &st
}

// Off reports whether the fleet's kill switch is set: as the hub said last, also while it is away, and to a run before this one.
func (u *Uplink) Off() bool { return u != nil && u.off.Load() }

// Protection returns of which jobs protection is off in the whole fleet, as the hub said last, also while it is away, and to a run before this one; nil: it
// never said. Nobody changes it.
func (u *Uplink) Protection() *wire.Protection {
	if u == nil {
		return nil
	}
	return u.protection.Load()
}

// Turn is called by the loop after each turn, and hands on what is due.
func (u *Uplink) Turn(monoNsec int64) {
	if u == nil {
		return
	}
	u.Gather.due(monoNsec, u.hand)
}

// hand hands a batch on; false: the disk hangs.
func (u *Uplink) hand(b *wire.Batch) bool {
	u.handed.Add(1)
	select {
	case u.in <- b:
		return true
	default:
		u.handed.Add(-1)
		return false
	}
}

// Handed is how many batches were handed on and are not on disk yet. An agent's loop never waits for these; simulated time, which outruns disks, has to.
func (u *Uplink) Handed() int { return int(u.handed.Load()) }

// Close sends nothing more; what was not taken waits for the next run.
func (u *Uplink) Close() {
	if u == nil {
		return
	}
	u.once.Do(u.end)
}

func (u *Uplink) end() {
	u.Gather.due(1<<62, u.hand) // what the last minute brought
	close(u.in)
	select {
	case <-u.done:
	case <-time.After(closeWait):
	}
	u.ended.Store(true)
	u.nc.Close()
	u.notes.close()
}

// work puts batches on disk, and sends what is there.
func (u *Uplink) work(ctx context.Context) {
	defer close(u.done)
	wait := time.Duration(0)
	timer := time.NewTimer(time.Hour)
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		again := false
		select {
		case b, ok := <-u.in:
			if !ok {
				return
			}
			u.store(b)
		case <-u.wake:
			u.sheets.stale()
			u.askControl()
		case <-refresh.C:
			u.sheets.stale()
			u.askControl()
		case <-timer.C:
			again = true
		}
		u.taken = false
		switch err := u.send(ctx); {
		case err == nil:
			wait = 0
			u.fetch()
		case wait == 0:
			wait = retryFirst
		case again: // what new batches have it try beside does not count
			wait = min(2*wait, retryMost)
		}
		switch {
		case wait > 0:
			timer.Reset(wait)
		case u.taken: // while the hub was asked for specs
			timer.Reset(0)
		default:
			timer.Stop()
		}
	}
}

// publish sends one message and waits for its acknowledgement.
func (u *Uplink) publish(ctx context.Context, msg *nats.Msg, id string) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	u.mu.Lock()
	u.giveUp = cancel
	u.mu.Unlock()
	return u.waitFor(func() error {
		_, err := u.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectStream(wire.Stream))
		return err
	})
}

// waitFor does what asks the hub. Meanwhile what is handed in goes to disk: a hub that takes its time must not cost the next minute.
func (u *Uplink) waitFor(ask func() error) error {
	done := make(chan error, 1)
	go func() { done <- ask() }()
	in := u.in
	for {
		select {
		case err := <-done:
			return err
		case b, ok := <-in:
			if !ok {
				in = nil // work sees it, too
				continue
			}
			u.store(b)
			u.taken = true
		}
	}
}

// store puts a batch on disk, divided as the hub wants it: what is on disk is sent as it is, whatever the hub says later.
func (u *Uplink) store(b *wire.Batch) {
	defer u.handed.Add(-1)
	b.Node, b.Boot, b.Platform, b.Program = u.cfg.Node, u.node.Boot, u.node.Platform, u.node.Program
	b.Lost += u.spool.Lost()
	u.mu.Lock()
	u.status.Lost += b.Lost
	b.Rollout = u.status.Rollout
	u.mu.Unlock()
	b.Lost, u.lost = b.Lost+u.lost, 0
	u.sheets.want(u, b)
	for _, part := range b.Split(int(u.parts.Load())) {
		u.keep(part)
	}
}

// nameOf is what the spool calls a message: the names of all runs are in the order in which they were drawn.
func (u *Uplink) nameOf(b *wire.Batch) string {
	name := fmt.Sprintf("%s-%012d", u.run, b.Seq)
	if b.Part != 0 {
		name += "-" + strconv.Itoa(b.Part)
	}
	return name
}

// partOf is the part in a name of the spool.
func partOf(name string) int {
	words := strings.Split(name, "-")
	if len(words) != 4 { // run, spool, number
		return 0
	}
	part, err := strconv.Atoi(words[3])
	if err != nil {
		return 0
	}
	return part
}

// keep names a batch and puts it on disk.
func (u *Uplink) keep(b *wire.Batch) {
	u.seq++
	b.Spool, b.Seq = u.id, u.seq
	data, err := codec.Encode(b)
	if err != nil && len(b.Decisions)+len(b.Incidents) > 0 { // samples at least
		u.hooks.Log.Error("decisions do not go up: they are too much for one batch", "decisions", len(b.Decisions), "incidents", len(b.Incidents), "error", err)
		b.Decisions, b.Incidents = nil, nil
		data, err = codec.Encode(b)
	}
	if err == nil {
		err = u.spool.Put(u.nameOf(b), data)
	}
	u.mu.Lock()
	if err != nil {
		u.lost += 1 + b.Lost
		u.status.Lost++
	}
	u.status.Waiting, u.status.Bytes = u.spool.Len(), u.spool.Bytes()
	u.mu.Unlock()
	if err != nil {
		u.hooks.Log.Error("a batch for the hub is lost", "error", err)
	}
}

var errAway = errors.New("the hub is away")

// send sends what waits, the oldest first and one at a time, so that the hub sees each spool's numbers in their order.
func (u *Uplink) send(ctx context.Context) error {
	for {
		name, data, ok, err := u.spool.Oldest()
		u.mu.Lock()
		u.status.Waiting, u.status.Bytes = u.spool.Len(), u.spool.Bytes()
		u.mu.Unlock()
		switch {
		case err != nil:
			u.hooks.Log.Error("batches for the hub cannot be read", "error", err)
			return err
		case !ok:
			return nil
		case !u.nc.IsConnected():
			return errAway
		}
		msg := &nats.Msg{Subject: wire.Up(u.cfg.Node, partOf(name)), Data: data}
		if err := u.publish(ctx, msg, u.cfg.Node+"-"+name); err != nil {
			u.mu.Lock()
			u.status.Why = err.Error()
			u.mu.Unlock()
			return err
		}
		if err := u.spool.Remove(name); err != nil {
			u.hooks.Log.Error("a batch that the hub took cannot be removed", "error", err)
			return err
		}
		u.mu.Lock()
		u.status.Sent++
		u.status.Waiting, u.status.Bytes, u.status.Why = u.spool.Len(), u.spool.Bytes(), ""
		u.mu.Unlock()
	}
}
