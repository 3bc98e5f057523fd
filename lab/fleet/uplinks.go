package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Reach is how soon what the hub says is at all nodes: agents' own uplinks, each enrolled with a key of its own and with a spool, all in this process.
type Reach struct {
	Nodes    int     `json:"nodes"`
	Ready    float64 `json:"ready_seconds"`    // from the first connection until each had sent a batch and had the spec of its job
	Files    int     `json:"open_files"`       // of this process then, both ends of each connection among them
	Spread   float64 `json:"spread_seconds"`   // until a changed spec was in all agents' hands; the slowest of a few
	Told     float64 `json:"told_seconds"`     // until the last one had heard that protection is off, or on, in the whole fleet; the slowest of a few
	Answered float64 `json:"answered_seconds"` // until who said so had the hub's answer
}

const (
	reachJob    = "spread"
	reachRounds = 3
	reachTime   = 2 * time.Minute // until it is given up
	filesANode  = 4               // two ends of a connection, and what a spool opens now and then
)

// all waits until so many have done something.
type all struct {
	left atomic.Int64
	done chan struct{}
}

func (a *all) one() {
	if a.left.Add(-1) == 0 {
		close(a.done)
	}
}

func (a *all) wait(ctx context.Context, what string) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(reachTime):
		return fmt.Errorf("%s: after %s %d nodes are left", what, reachTime, a.left.Load())
	}
}

// crowd are the nodes. What they hear counts for who waits for it.
type crowd struct {
	ups      []*uplink.Uplink
	specs    atomic.Pointer[all]
	revision atomic.Uint64 // that counts
}

func (c *crowd) expect(p *atomic.Pointer[all]) *all {
	a := &all{done: make(chan struct{})}
	a.left.Store(int64(len(c.ups)))
	p.Store(a)
	return a
}

// join starts a node, which has a task of the job.
func (c *crowd) join(ctx context.Context, f *field, name string) error {
	gather := uplink.NewGather(1)
	gather.Add(&uplink.Window{
		MonoNsec: 1, WallNsec: time.Now().UnixNano(), Tasks: []model.Task{{Num: 1, Path: "/task", Job: reachJob, Class: model.LC}},
		Observed: []model.TaskObservation{{Num: 1, CPU: model.Value{V: 1, Outcome: model.OK}}}, Flags: []uint32{wire.Usable},
	})
	u, err := uplink.Start(ctx, uplink.Config{URL: f.hub.NodesURL(), Node: name, SeedFile: f.seedFile(name), Dir: filepath.Join(f.dir, name), MaxBytes: 1 << 20},
		uplink.Node{Boot: "bench", Platform: platforms[0].name, Program: "bench"}, gather, uplink.Hooks{
			Log: slog.New(slog.DiscardHandler),
			Specs: func(specs []model.Spec) {
				if len(specs) > 0 && specs[0].Sheet == c.revision.Load() {
					c.specs.Load().one()
				}
			},
		})
	if err != nil {
		return err
	}
	c.ups = append(c.ups, u)
	u.Turn(2)
	return nil
}

// publish sends the job's next spec, and says how long it took until all had it.
func (c *crowd) publish(ctx context.Context, f *field, revision uint64) (float64, error) {
	heard := c.expect(&c.specs)
	c.revision.Store(revision)
	begin := time.Now()
	if err := f.hub.Publish(ctx, reachSheet(revision)); err != nil {
		return 0, err
	}
	err := heard.wait(ctx, "a spec to all nodes")
	return time.Since(begin).Seconds(), err
}

func reachSheet(revision uint64) *wire.SpecSheet {
	return &wire.SpecSheet{
		Version: wire.SheetVersion, Job: reachJob, Platform: platforms[0].name, Revision: revision, WallNsec: time.Now().UnixNano(), Nodes: 5,
		Specs: []model.Spec{{Source: model.SourceCPI, Definition: "d", NumSamples: 500, Tasks: 5, Mean: 1 + float64(revision), StdDev: 0.1}},
	}
}

// filesFor says so where this process may not open the files of so many nodes.
func filesFor(nodes, each int) error {
	var limit unix.Rlimit                                                                                // which Go has raised to what is allowed at all
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(each*nodes) { //nolint:gosec // not negative
		return fmt.Errorf("%d nodes need about %d files, and this process may open %d (ulimit -n; %w)", nodes, each*nodes, limit.Cur, err)
	}
	return nil
}

// reach measures.
func (c *Cost) reach(ctx context.Context, f *field, cl *client.Client, nodes int) (err error) {
	r := &c.Reach
	r.Nodes = nodes
	if err := filesFor(nodes, filesANode); err != nil {
		return err
	}
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("up-%04d", i)
		if err := f.let(names[i]); err != nil {
			return err
		}
	}
	if err := f.hub.Publish(ctx, reachSheet(1)); err != nil {
		return err
	}
	crowd := &crowd{}
	crowd.specs.Store(&all{})
	defer func() {
		for _, u := range crowd.ups {
			u.Close()
		}
	}()
	begin := time.Now()
	for _, name := range names {
		if err := crowd.join(ctx, f, name); err != nil {
			return err
		}
	}
	if err := until(ctx, 20*time.Millisecond, reachTime, func() (bool, error) {
		for _, u := range crowd.ups {
			if st := u.Status(); st.Sent == 0 || st.Sheets == 0 {
				return false, nil
			}
		}
		return true, nil
	}); err != nil {
		return fmt.Errorf("not all of %d nodes came in: %w", nodes, err)
	}
	r.Ready = time.Since(begin).Seconds()
	files, err := os.ReadDir("/proc/self/fd")
	r.Files = len(files)
	for round := range reachRounds {
		took, err2 := crowd.publish(ctx, f, uint64(round+2)) //nolint:gosec // few
		r.Spread = max(r.Spread, took)
		if err = errors.Join(err, err2, r.protect(ctx, crowd, cl)); err != nil {
			return err
		}
	}
	return nil
}

// protect turns protection of a job off in the whole fleet, and on again, and notes how long it takes until all nodes have heard it.
func (r *Reach) protect(ctx context.Context, c *crowd, cl *client.Client) error {
	for _, kind := range []string{model.CommandProtectOff, model.CommandProtectOn} {
		begin := time.Now()
		var now wire.Protection
		if err := cl.Do(ctx, "/v1/command", map[string]string{"node": "*", "kind": kind, "job": reachJob, "why": "the bench"}, &now); err != nil {
			return err
		}
		r.Answered = max(r.Answered, time.Since(begin).Seconds())
		if err := until(ctx, time.Millisecond, reachTime, func() (bool, error) {
			return !slices.ContainsFunc(c.ups, func(u *uplink.Uplink) bool { return len(u.Protection().Jobs()) != len(now.Off) }), nil
		}); err != nil {
			return fmt.Errorf("%s in the whole fleet: %w", kind, err)
		}
		r.Told = max(r.Told, time.Since(begin).Seconds())
	}
	return nil
}

func (r *Reach) write(w io.Writer) {
	fmt.Fprintf(w, "seconds until %d agents' uplinks, each with its own key, have a changed spec (the slowest of %d; they came in within %.0f s, %d open files)\t%.3f\t≤ %g\n", r.Nodes, reachRounds, r.Ready, r.Files, r.Spread, goalReach)
	fmt.Fprintf(w, "seconds until the last of them has heard of protection in the whole fleet, and until the hub answers\t%.2f, %.2f\t-\n", r.Told, r.Answered)
}
