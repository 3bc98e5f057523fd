package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
)

// Contention is what the policies of caches and memories cost for services that have targets (BALM: 10 % of a core), apart from the
// system calls of the means themselves: the loop's time on a simulated machine of two sockets, where resctrl and counters are there, and that of a
// real agent which asks as many servers of this host each 20 ms.
type Contention struct {
	LC   int             `json:"lc_tasks"` // a job and a target each
	BE   int             `json:"be_tasks"`
	Arms []ContentionArm `json:"arms"`
	// Asking is the agent's process with a latency source for each service, Silent without: percent of a core, means over turns.
	Asking float64 `json:"asking_core_percent"`
	Silent float64 `json:"silent_core_percent"`
}

// ContentionArm are some policies that enforce.
type ContentionArm struct {
	Name    string  `json:"name"`
	Msec    Spread  `json:"cpu_ms_per_second"` // of the loop: a reading, a window and the engine's step each second
	Worst   float64 `json:"worst_ms"`
	Changes uint64  `json:"changes"` // of the ledger meanwhile
}

const (
	services = 8 // the goal is for so many
	// askTurns is how often the agent is run with and without sources.
	askTurns = 2
)

// contentionArms are what enforces; nothing in the first.
var contentionArms = []struct {
	name   string
	change func(*config.Config)
}{
	{"off", func(*config.Config) {}},
	{"cache, bandwidth, balm", func(c *config.Config) {
		p := &c.Policies.CPU
		p.CacheMode, p.BandwidthMode, p.BalmMode = model.ModeEnforce, model.ModeEnforce, model.ModeEnforce
	}},
	{"cache, bandwidth, remedy", func(c *config.Config) {
		p := &c.Policies.CPU
		p.CacheMode, p.BandwidthMode, p.RemedyMode = model.ModeEnforce, model.ModeEnforce, model.ModeEnforce
	}},
}

// measureContention measures both.
func measureContention(ctx context.Context, o *Options, st *stage.Stage) (*Contention, error) {
	c := &Contention{LC: services, BE: services}
	if err := c.simulate(o); err != nil {
		return nil, err
	}
	return c, c.ask(ctx, o, st)
}

// simulate plays a second of each arm by turns, each on a machine of its own with the same load. What services are late by
// is drawn, and crosses the target all the time, so that there is always something to decide.
func (c *Contention) simulate(o *Options) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	seconds := 240
	if o.Quick {
		seconds = 60
	}
	type player struct {
		loop *agent.Loop
		core *agent.Core
		host *twin.Host
		msec []float64
	}
	var players []*player
	for _, arm := range contentionArms {
		host, err := simulatedHost(32, 2*services, true)
		if err != nil {
			return err
		}
		cfg, _ := config.Defaults(config.ProfileSingleNode)
		cfg.Policies.SetModes(model.ModeOff)
		cfg.Policies.Mode, cfg.Sampling.Duration, cfg.Sampling.Frequency = model.ModeObserve, time.Second, time.Second
		arm.change(&cfg)
		core, err := agent.Assemble(&cfg, agent.Deps{Host: host, Clock: host, Platform: "twin", SLO: drawnTargets(services)})
		if err != nil {
			return err
		}
		p := &player{loop: agent.NewLoop(core), core: core, host: host}
		p.loop.Next()
		players = append(players, p)
	}
	for i := range seconds {
		for _, p := range players {
			p.host.Machine().Advance(p.loop.Due() - p.host.MonoNsec())
			begin := openloop.ThreadNsec()
			p.loop.Next()
			if end := openloop.ThreadNsec(); i >= 20 { // there is a spec, and buffers have grown
				p.msec = append(p.msec, float64(end-begin)/1e6)
			}
		}
	}
	for i, p := range players {
		c.Arms = append(c.Arms, ContentionArm{
			Name: contentionArms[i].name, Msec: spread(p.msec), Worst: stat.Quantile(1, p.msec), Changes: p.core.Engine.State.Ledger.NextChange,
		})
	}
	return nil
}

// drawnTargets are latency sources of so many jobs, whose figures wander about their targets of 10 ms.
func drawnTargets(jobs int) func([]model.Latency) []model.Latency {
	r := rand.New(rand.NewPCG(1, 2))
	at := make([]float64, jobs)
	return func(dst []model.Latency) []model.Latency {
		for i := range at {
			at[i] = 0.9*at[i] + 0.15*r.NormFloat64()
			figure := 0.01 * math.Exp(at[i])
			l := model.Latency{
				Job: webJob(2 * i), P50: model.Known(figure / 3), P99: model.Known(figure), Figure: model.Known(figure), Samples: 150, Target: 0.01, Quantile: 0.99, State: "green",
			}
			if figure > 0.01 {
				l.State = "red"
			}
			dst = append(dst, l)
		}
		return dst
	}
}

// ask runs the agent with and without a source for each service, by turns.
func (c *Contention) ask(ctx context.Context, o *Options, st *stage.Stage) (err error) {
	cr := &crowd{stage: st}
	if err := cr.grow(ctx, 2*services); err != nil {
		return err
	}
	var list []config.SLO
	var rules []config.Task
	for i := range services {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		go answer(l)
		list = append(list, config.SLO{Job: webJob(i), Kind: "memcached", Address: l.Addr().String(), Target: time.Second})
		rules = append(rules, config.Task{Match: cr.groups[i], Job: webJob(i), Class: "LC", Production: true},
			config.Task{Match: cr.groups[services+i], Job: fmt.Sprintf("batch%d", i), Class: "BE", Importance: "batch"})
	}
	for turn := range 2 * askTurns {
		to, sources := &c.Silent, []config.SLO(nil)
		if turn%2 == 1 {
			to, sources = &c.Asking, list
		}
		change := func(cfg *config.Config) { cfg.Tasks, cfg.SLO = rules, sources }
		err := runAgent(ctx, o, cr, fmt.Sprintf("agent-asking-%d", turn), change, func(p *stage.Proc, metrics string) error {
			res, err := watch(ctx, o.agentTime()/2, p, metrics, len(cr.groups))
			if err == nil {
				*to += res.CorePercent / askTurns
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// answer is a server of memcached's text protocol that has no keys.
func answer(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer conn.Close() //nolint:errcheck // the agent has gone
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				text := "END\r\n"
				if strings.HasPrefix(lines.Text(), "version") {
					text = "VERSION 1.6\r\n"
				}
				if _, err := conn.Write([]byte(text)); err != nil {
					return
				}
			}
		}()
	}
}

func (r *Result) contentionTable() report.Table {
	t := report.Table{Title: "Policies of caches and memories, for services with targets"}
	c := r.Contention
	if c == nil {
		return t
	}
	t.Columns = []report.Column{{Name: "enforcing"}, report.Figures("a second", "ms"), report.Figures("p90", "ms"), report.Figures("worst", "ms"), report.Figures("of a core beyond off", "%"), report.Figures("changes", "")}
	t.Notes = []string{
		fmt.Sprintf("%d services with a target and %d batch tasks on a simulated machine of two sockets: the loop's CPU time, readings through the typed seam. What a schemata write or moved page costs is not in it.", c.LC, c.BE),
		fmt.Sprintf("A real agent that asks %d servers each 20 ms takes %s %% of a core, and without %s.", c.LC, num(c.Asking, 2), num(c.Silent, 2)),
	}
	for i := range c.Arms {
		a := &c.Arms[i]
		t.Rows = append(t.Rows, report.Cells(a.Name, num(a.Msec.Median, 3), num(a.Msec.P90, 3), num(a.Worst, 2), num(c.beyond(a), 3), strconv.FormatUint(a.Changes, 10)))
	}
	return t
}

// beyond is what an arm takes more than nothing, percent of a core.
func (c *Contention) beyond(a *ContentionArm) float64 {
	return (a.Msec.Median - c.Arms[0].Msec.Median) / 10
}

// dearest is the most that any arm takes more than nothing, with the asking, percent of a core.
func (c *Contention) dearest() float64 {
	most := 0.0
	for i := range c.Arms {
		most = max(most, c.beyond(&c.Arms[i]))
	}
	return most + c.Asking - c.Silent
}
