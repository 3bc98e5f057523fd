// Package hub is the fleet's service: one process and one folder. Nodes send it batches; it keeps them (package store), learns
// from them what is normal of each job (package spec), tells the nodes, and answers people.
package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/commensal-io/commensal/fleet/bucket"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/guard"
	"github.com/commensal-io/commensal/model"
)

// Config is what a hub is told at its start.
type Config struct {
	Dir        string // everything that it keeps
	Listen     string // HTTP: API and pages
	NATSListen string // nodes connect here
	NATS       string // an existing cluster in its place
	NATSCreds  string
	NATSCA     string
	// NATSUnguarded: the cluster may be another machine without TLS or credentials all the same.
	NATSUnguarded bool
	Replicas      int // of stream and buckets; an embedded server has one
	TLSCert       string
	TLSKey        string
	ClientCA      string        // certificates that people's are signed by; "": people enter by token only
	Keep          time.Duration // of the store's days
	HookURL       string        // told of tasks that are held again and again, and of what operators want done with a task; "": nobody
	HookAgain     time.Duration // from a failure of the hook to the next try, longer each time; 0: 5 s
	RolloutLook   time.Duration // how often a roll-out is looked at; 0: 5 s
	ObserveFor    time.Duration // how long a roll-out observes before it may enforce; 0: an hour
	CommitEvery   time.Duration // a batch waits at most so long for the store; 0: 5 s
	TidyEvery     time.Duration // how often files are merged and old ones removed; 0: 10 min
	Reserve       int64         // bytes of the disk that batches leave free; 0: 256 MiB
	// QuerySeconds bounds a query; 0: 25.
	QuerySeconds int
	SQL          string // the program that answers queries; "": the one beside this one
	Spec         spec.Params
	Version      string
	Log          *slog.Logger

	// Several hubs share a fleet: its jobs are in so many partitions (0: 1), and this is hub Shard of Shards (0: 1 of 1).
	Partitions, Shard, Shards int
	TakeOver                  bool          // of partitions whose hub is silent: its folder is lost
	LeaseSilence              time.Duration // that this takes; 0: 30 s
	// Bucket has the store's days as well, where it is not nil.
	Bucket      bucket.Objects
	KeepLocal   time.Duration // how long the folder then keeps days that the bucket has
	BucketEvery time.Duration // from one round of copying to the next; 0: a minute
}

// NodeStatus is what the hub knows of a node since its start.
type NodeStatus struct {
	Name      string    `json:"name"`
	Enrolled  bool      `json:"enrolled"`
	Seen      time.Time `json:"seen"` // when its last batch came
	Platform  string    `json:"platform"`
	Program   string    `json:"program"`
	Boot      string    `json:"boot"`
	Rollout   string    `json:"rollout,omitempty"` // in force; "!ID: why" refused
	Tasks     int       `json:"tasks"`             // in its last batch with samples
	Batches   uint64    `json:"batches"`
	Samples   uint64    `json:"samples"`
	Incidents uint64    `json:"incidents"`
	Lost      uint64    `json:"lost"`    // batches that the node dropped
	Doubles   uint64    `json:"doubles"` // batches that came again
	Refused   uint64    `json:"refused"`
	Why       string    `json:"why,omitempty"` // of the last one that was refused

	tasks map[int]int // by partition
}

// NodeIncident is an incident of a node, as it stood last.
type NodeIncident struct {
	Node string `json:"node"`
	*model.Incident

	bytes int // of the incident as JSON
}

// Hub is one running hub.
type Hub struct {
	cfg   Config
	log   *slog.Logger
	t     *transport
	store *store.Store
	audit *audit
	again again
	door  *door

	shard  shard
	mirror *bucket.Mirror // nil: there is no bucket

	started time.Time
	ready   chan struct{} // closed when it answers
	addr    net.Addr

	// Of the goroutine that ingests.
	kept, tidied, calculated time.Time
	settled                  time.Time    // when a commit was begun last
	pending                  int          // memory that what waits for a commit takes
	tidying                  sync.Mutex   // held while files are merged and removed
	wellTidied               atomic.Int64 // when that was done without an error last (s since 1970); before, when this hub began
	keptCount                uint64

	mu          sync.Mutex
	learner     *spec.State
	unsent      []unsent  // calculated and not yet published
	gaveBack    time.Time // memory
	published   published
	nodes       map[string]*NodeStatus
	names       index[string] // of nodes; it has a lock of its own
	jobNames    index[spec.Key]
	incidents   []NodeIncident // oldest first
	shown       int            // their bytes
	watched     watch          // of the roll-out
	halted      bool           // the roll-out that stands, when it was looked at last
	switchedOff bool           // the fleet's kill switch, likewise
	offenders   map[offenderKey]*offender
	due         map[offenderKey]bool // of whom the hook is to be told
	said        saidPriors
	problem     string // why batches are not read; "": they are
	short       string // why batches are not taken; "": they are
}

// New prepares a hub.
func New(cfg Config) (*Hub, error) {
	h := &Hub{cfg: cfg, log: cfg.Log, nodes: map[string]*NodeStatus{}, offenders: map[offenderKey]*offender{}, due: map[offenderKey]bool{}, said: saidPriors{last: map[string]said{}}, ready: make(chan struct{}), started: time.Now()}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.cfg.Log = h.log
	h.cfg.Replicas, h.cfg.QuerySeconds = max(1, cfg.Replicas), cmp.Or(cfg.QuerySeconds, querySeconds)
	h.cfg.RolloutLook = cmp.Or(cfg.RolloutLook, rolloutLook)
	h.cfg.ObserveFor = cmp.Or(cfg.ObserveFor, observeFor)
	h.cfg.CommitEvery = cmp.Or(cfg.CommitEvery, commitEvery)
	h.cfg.TidyEvery = cmp.Or(cfg.TidyEvery, tidyEvery)
	h.wellTidied.Store(h.started.Unix())
	h.cfg.HookAgain = cmp.Or(cfg.HookAgain, hookFirst)
	h.cfg.Reserve = cmp.Or(cfg.Reserve, reserve)
	h.cfg.BucketEvery = cmp.Or(cfg.BucketEvery, bucketEvery)
	if h.cfg.Spec == (spec.Params{}) {
		h.cfg.Spec = spec.Defaults()
	}
	if err := h.cfg.checkShard(); err != nil {
		return nil, err
	}
	if (cfg.TLSCert == "") != (cfg.TLSKey == "") {
		return nil, errors.New("--tls-cert and --tls-key go together")
	}
	if cfg.ClientCA != "" && cfg.TLSCert == "" {
		return nil, errors.New("--client-ca needs --tls-cert and --tls-key: without TLS nobody shows a certificate")
	}
	listens := []string{cfg.Listen}
	if cfg.NATS == "" {
		listens = append(listens, cfg.NATSListen)
	} else if err := guard.NATS(cfg.NATS, cfg.NATSCA != "", cfg.NATSCreds != ""); err != nil && !cfg.NATSUnguarded {
		return nil, fmt.Errorf("--nats: %w, or --nats-unguarded", err)
	}
	for _, addr := range listens {
		if err := guarded(addr, cfg.TLSCert != ""); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// guarded refuses to listen beyond this machine without TLS.
func guarded(addr string, tls bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q: %w", addr, err)
	}
	if tls || guard.Here(host) {
		return nil
	}
	return fmt.Errorf("%s can be reached from other machines: that needs --tls-cert and --tls-key", addr)
}

// Run runs until the context ends.
func (h *Hub) Run(ctx context.Context) (err error) {
	if err := os.MkdirAll(h.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	lock, err := lockDir(h.cfg.Dir)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // closing is unlocking
	if err := h.openShard(); err != nil {
		return err
	}
	if h.door, err = openDoor(h.cfg.Dir, h.cfg.ClientCA); err != nil {
		return err
	}
	if h.store, err = store.Open(filepath.Join(h.cfg.Dir, "store")); err != nil {
		return err
	}
	if h.audit, err = openAudit(auditFile(h.cfg.Dir), h.store, h.log); err != nil {
		return err
	}
	defer h.audit.close()
	h.openBucket()
	if err := h.recall(); err != nil {
		return err
	}
	enrolled, _ := os.Stat(nodesFile(h.cfg.Dir)) // nil: there is no list yet
	list, err := Nodes(h.cfg.Dir)
	if err != nil {
		return err
	}
	h.enrolled(list)
	if h.t, err = openTransport(ctx, &h.cfg); err != nil {
		return err
	}
	defer h.t.close()
	listener, err := net.Listen("tcp", h.cfg.Listen)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	h.addr = listener.Addr()
	srv := &http.Server{Handler: h.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, TLSConfig: h.door.asks(h.t.tls)}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.ingest(ctx) })
	g.Go(func() error { return h.watchNodes(ctx, enrolled) })
	g.Go(func() error { return h.audit.follow(ctx) })
	g.Go(func() error { return h.watchDisk(ctx) })
	g.Go(func() error { return h.export(ctx) })
	g.Go(func() error { return h.fillBucket(ctx) })
	g.Go(func() error { return h.watchRollout(ctx) })
	g.Go(func() error { return h.runHook(ctx) })
	g.Go(func() error {
		if h.t.tls != nil {
			return srv.ServeTLS(listener, "", "")
		}
		return srv.Serve(listener)
	})
	g.Go(func() error {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = srv.Shutdown(end) // after two seconds the process ends anyway
		return nil
	})
	h.log.Info("the hub is running", "version", h.cfg.Version, "dir", h.cfg.Dir, "pages", h.URL(), "nodes_connect_to", h.NodesURL())
	close(h.ready)
	if err := g.Wait(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Ready is closed when the hub answers.
func (h *Hub) Ready() <-chan struct{} { return h.ready }

// URL is where the pages are, and NodesURL where nodes connect.
func (h *Hub) URL() string {
	scheme := "http"
	if h.cfg.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + h.addr.String()
}

// NodesURL is what a node's configuration says under fleet.hub.
func (h *Hub) NodesURL() string {
	srv := h.t.srv.Load()
	if srv == nil {
		return shown(h.cfg.NATS)
	}
	return srv.ClientURL()
}

// userInfo is a name, and a password, in an address.
var userInfo = regexp.MustCompile(`//[^/@,]*@`)

// shown is a list of addresses as everybody may see them.
func shown(urls string) string { return userInfo.ReplaceAllString(urls, "//") }

// watchNodes takes over who was enrolled or dismissed by another process since the list was as the transport began with it.
func (h *Hub) watchNodes(ctx context.Context, last os.FileInfo) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if st, err := os.Stat(nodesFile(h.cfg.Dir)); err == nil && (last == nil || !st.ModTime().Equal(last.ModTime()) || st.Size() != last.Size()) {
			list, err := Nodes(h.cfg.Dir)
			if err == nil {
				h.enrolled(list)
				err = h.t.reload()
			}
			if err != nil {
				h.log.Error("the list of nodes is not taken over", "error", err)
			}
			last = st
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// trouble notes why batches are not read, and says whether that is news.
func (h *Hub) trouble(err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.problem
	h.problem = ""
	if err != nil {
		h.problem = err.Error()
	}
	return h.problem != was
}

// Status is what the hub says of itself and of the fleet.
type Status struct {
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	NodesURL string    `json:"nodes_connect_to"`
	// Shard is which of the fleet's hubs this is, "1/1" the only one, and Mine the partitions that are its own, of so many.
	Shard      string `json:"shard"`
	Partitions int    `json:"partitions"`
	Mine       []int  `json:"own_partitions"`

	Problem   string         `json:"problem,omitempty"`
	Waiting   int            `json:"waiting_rows"` // for a commit
	Committed uint64         `json:"committed"`    // the stream's last message in the store
	Count     uint64         `json:"count"`        // messages in the store, of all streams there were
	Store     []store.Usage  `json:"store"`
	Bucket    *bucket.Status `json:"bucket,omitempty"`
	Jobs      int            `json:"jobs"`
	Passed    uint64         `json:"samples_not_learned"` // of nodes that alone speak of too many jobs
	Off       *offStatus     `json:"off"`
	// Protection is of which jobs it is off in the whole fleet.
	Protection *wire.Protection `json:"protection"`
	Rollout    *RolloutStatus   `json:"rollout"`
	Nodes      NodeTotals       `json:"nodes"` // which they are says /v1/nodes
}

func (h *Hub) status(ctx context.Context) (*Status, error) {
	usage, err := h.store.Usage()
	if err != nil {
		return nil, err
	}
	off, err := h.off(ctx)
	if err != nil {
		return nil, err
	}
	protection, err := h.protection(ctx)
	if err != nil {
		return nil, err
	}
	roll, err := h.rolloutStatus(ctx)
	if err != nil {
		return nil, err
	}
	st := &Status{Rollout: roll, Version: h.cfg.Version, Started: h.started, NodesURL: h.NodesURL(), Store: usage, Bucket: h.bucketStatus(), Off: off, Protection: protection, Shard: h.cfg.shardName(), Partitions: h.cfg.Partitions, Mine: h.shard.parts}
	st.Committed, st.Count = h.store.Committed()
	st.Waiting, st.Nodes, st.Problem = h.store.Pending(), h.totals(), h.wrong()
	h.mu.Lock()
	defer h.mu.Unlock()
	st.Jobs, st.Passed = len(h.learner.Jobs), h.learner.Passed
	return st, nil
}
