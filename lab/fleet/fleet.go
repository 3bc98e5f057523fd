// Package fleet plays a small fleet faster than life: a hub, many simulated nodes with the agent on each, and, as root, two real agents
// on this host. Specs form from all nodes' samples and come down, antagonists arrive on some nodes, an operator caps a task, the kill switch
// is pulled; and it is looked at whether each of that had the effect that it should have.
//
// Written down before the first run, what fails it: a job without a spec from the fleet on a platform; a node that did not hear of its jobs'
// specs; more than 5 % of the nodes on which somebody who is no antagonist was held; fewer than half of the antagonists
// held; a command without effect; a roll-out on other nodes than it is for; anything that is held 10 s after the kill switch was pulled; a batch that was lost, doubled or refused.
// Added later, and also before the run that judged it first: a real agent of which the hub has nothing, that does not do what an operator says, or keeps
// a limit after the kill switch; a page that is not there; an incident that the hub's answer does not explain (look.go);
// where there is a Chromium, a page of an incident without its suspects and charts, or of the audit without the operator's cap (shown.go).
//
// What was changed after runs of seed 1 had been seen: windows' noise lasts one second in place of three, and the second platform has half of
// the memory's bandwidth, since its antagonists had harmed nobody; who was held at any time counts, and not who is held in the end; the roll-out was
// added. So that antagonists do harm is by construction here, and how many of those are held says little; seeds from 1000 on were not used for any of it.
package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
	"github.com/commensal-io/commensal/twin/program"
)

// Options of a run.
type Options struct {
	Seed  uint64
	Nodes int
	Agent string // the agent's binary; "": no real agents
	Stay  bool   // leave the hub's pages open in the end, until the context ends
	Log   func(format string, args ...any)
}

// The course, in seconds of the nodes' time.
const (
	quietSec  = 180 // specs form
	harmSec   = 180 // antagonists are there
	hubPeriod = time.Second
	// minSamples is what a task needs for a spec here: windows are seconds.
	minSamples = 100
	share      = 10 // one node in so many gets an antagonist
)

// node is a simulated machine with an agent, which runs only while its time passes.
type node struct {
	name, platform string
	host           *twin.Host
	loop           *agent.Loop
	up             *uplink.Uplink
	player         player.Player
	antagonist     model.TaskNum   // 0: none
	path           string          // of it
	held           map[string]bool // paths of tasks that policies held at any time

	mu    sync.Mutex
	asked []func() // by the hub, since its time passed last
}

// clock is the node's, which began when the run did: a hub takes no samples of another year.
type clock struct {
	*twin.Host
	offset int64
}

func (c clock) WallNsec() int64 { return c.Host.WallNsec() + c.offset }

// do has something done between two turns, and waits for it.
func (n *node) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	n.mu.Lock()
	n.asked = append(n.asked, func() { f(); close(done) })
	n.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer does what the hub asked.
func (n *node) answer() {
	n.mu.Lock()
	asked := n.asked
	n.asked = nil
	n.mu.Unlock()
	for _, f := range asked {
		f()
	}
}

// until lets the node's time pass, once its disk has what came before: time that is simulated passes faster than a busy machine's disk writes, and an agent does
// not wait for its own.
func (n *node) until(ctx context.Context, sec int64) error {
	if err := until(ctx, time.Millisecond, time.Minute, func() (bool, error) { return n.up.Handed() == 0, nil }); err != nil {
		return fmt.Errorf("%s: batches do not get to disk: %w", n.name, err)
	}
	n.answer()
	if err := n.player.Until(ctx, sec*1e9); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	n.up.Turn(n.host.MonoNsec())
	return nil
}

// platforms are two CPU types, of which the second is a quarter slower and has half of the cache and of the memory's bandwidth.
var platforms = []struct {
	name string
	ways int
	hz   float64
	peak float64 // bytes a second from memory
}{{"twin-a", 11, 2.4e9, 112e9}, {"twin-b", 6, 1.8e9, 56e9}}

// jobs are what every node runs, and who may come.
var jobs = []struct {
	job, program string
	threads      int
	class        model.Class
	busy         float64 // of a service: of its threads
}{
	{"cache", "redis-big", 3, model.LC, 0.5},
	{"search", "web-search-leaf", 3, model.LC, 0.5},
	{"compile", "compilation", 1, model.BE, 0},
	{"sim", "swaptions", 1, model.BE, 0},
}

const cores = 12

// newNode makes a node with its agent and its way to the hub.
func newNode(ctx context.Context, i int, o *Options, f *field) (*node, error) {
	pl := platforms[i%len(platforms)]
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore, c.Hz = 1, cores, 1, pl.hz
	c.LLCBytes *= float64(pl.ways) / float64(c.LLCWays)
	c.LLCWays, c.MemPeakBytes = pl.ways, pl.peak
	m, err := machine.New(c, o.Seed<<20|uint64(i)) //nolint:gosec // a seed
	if err != nil {
		return nil, err
	}
	n := &node{name: fmt.Sprintf("twin-%03d", i), platform: pl.name, host: twin.NewHost(m, true), held: map[string]bool{}}
	for k := range jobs {
		if _, err := n.start(k, c.Hz); err != nil {
			return nil, err
		}
	}
	cfg, _ := config.Defaults(config.ProfileSingleNode) // which is there
	cfg.Policies.SetModes(model.ModeOff)
	cfg.Policies.Mode, cfg.Signals = model.ModeEnforce, []string{model.SourceCPI.String()}
	for _, j := range jobs {
		cfg.Tasks = append(cfg.Tasks, config.Task{Match: "/" + j.job, Job: j.job, Class: j.class.String()})
	}
	gather := uplink.NewGather(10e9)
	offset := f.begun.UnixNano() - n.host.WallNsec()
	core, err := agent.Assemble(&cfg, agent.Deps{Host: n.host, Clock: clock{n.host, offset}, Platform: pl.name, Gather: gather, IDPrefix: n.name, KillSwitch: func() bool { return n.up.Off() }, Protection: func() *wire.Protection { return n.up.Protection() }})
	if err != nil {
		return nil, err
	}
	n.loop = agent.NewLoop(core)
	n.player = player.Player{Machine: m, Agents: []*agent.Loop{n.loop}, Told: func(_ int, out *engine.Output) {
		for j := range out.Decisions {
			if k := out.Decisions[j].Kind; k == model.DecideCap || k == model.DecideDemote {
				n.held[out.Decisions[j].Path] = true
			}
		}
	}}
	n.up, err = uplink.Start(ctx, uplink.Config{URL: f.hub.NodesURL(), Node: n.name, SeedFile: f.seeds[i], Dir: filepath.Join(f.dir, n.name), MaxBytes: 16 << 20},
		uplink.Node{Boot: "twin", Platform: pl.name, Program: "twin"}, gather, uplink.Hooks{
			Log: slog.New(slog.DiscardHandler),
			Specs: func(specs []model.Spec) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.asked = append(n.asked, func() { core.Tell(specs...) })
			},
			Rollout: func(overlay string, on bool) error {
				now := &cfg
				if on {
					var err error
					if now, err = cfg.Overlaid(overlay); err != nil {
						return err
					}
				}
				p := now.Params(pl.name)
				p.Hardcap.IDPrefix = n.name
				n.mu.Lock()
				defer n.mu.Unlock()
				n.asked = append(n.asked, func() { core.Change(p) })
				return nil
			},
			Command: func(ctx context.Context, c *wire.Command) (ans wire.Answer) {
				err := n.do(ctx, func() {
					done := core.Take(agent.Request{Kind: c.Kind, Task: c.Task, Job: c.Job, Cap: c.Cap, Duration: c.Duration}, c.By)
					ans = wire.Answer{Done: done.Done, Error: done.Error}
				})
				if err != nil {
					ans.Error = err.Error()
				}
				return ans
			},
		})
	return n, err
}

// start starts a task of a job.
func (n *node) start(k int, hz float64) (model.TaskNum, error) {
	j := &jobs[k]
	p, ok := program.Find(j.program)
	if !ok {
		return 0, fmt.Errorf("no program %s", j.program)
	}
	cfg := machine.TaskConfig{Name: j.job, Threads: j.threads, Spread: 0.04, SpreadNsec: 1e9}
	p.Apply(&cfg)
	if j.class == model.LC {
		const instructions = 2e6
		cfg.Requests = &machine.Requests{Instructions: instructions, Variation: 1, PerSecond: j.busy * float64(j.threads) * hz / (2 * p.CPI * instructions)}
	} else {
		cfg.Work = &machine.Work{}
	}
	return n.host.Start(model.Task{Path: "/" + j.job, Job: j.job, Class: j.class, Importance: model.BestEffort, Production: j.class == model.LC}, cfg)
}

// arrive starts an antagonist, which streams through memory now and then.
func (n *node) arrive(rng *rand.Rand) error {
	p, _ := program.Find("stream") // which is there
	cfg := machine.TaskConfig{Name: "scan", Threads: 6, Spread: 0.04, SpreadNsec: 1e9}
	p.Apply(&cfg)
	cfg.Work = &machine.Work{Phases: []machine.Phase{{Nsec: int64(6e9 + 4e9*rng.Float64()), Jitter: 0.3, CPUs: 6}, {Nsec: 3e9, Jitter: 0.3, CPUs: 0.1}}}
	n.path = "/scan"
	var err error
	n.antagonist, err = n.host.Start(model.Task{Path: n.path, Job: "scan", Class: model.BE, Importance: model.BestEffort}, cfg)
	return err
}

// field is what all nodes stand on.
type field struct {
	hub   *hub.Hub
	dir   string
	seeds []string
	begun time.Time
}

// pass lets so many seconds pass on all nodes, one second after the other.
func pass(ctx context.Context, nodes []*node, from, sec int64) error {
	for at := from + 1; at <= from+sec; at++ {
		_, err := parallel.Map(ctx, 0, len(nodes), func(i int) (struct{}, error) { return struct{}{}, nodes[i].until(ctx, at) })
		if err != nil {
			return err
		}
	}
	return nil
}

// enrol lets all nodes in.
func (f *field) enrol(n int) error {
	for i := range n {
		if err := f.let(fmt.Sprintf("twin-%03d", i)); err != nil {
			return err
		}
	}
	return nil
}

// let lets a node in.
func (f *field) let(name string) error {
	seed, err := hub.Enrol(f.dir, name, time.Now())
	if err != nil {
		return err
	}
	f.seeds = append(f.seeds, f.seedFile(name))
	return os.WriteFile(f.seedFile(name), seed, 0o600)
}
