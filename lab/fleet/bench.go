package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/model"
)

// Cost is what the hub's work costs. The goals (goals.go) were written down before the first run: 500,000 samples a second from batch to Parquet, nodes'
// side included; 24 bytes a stored sample; 4 KiB of memory a job and platform; a spec at 1,000 connected nodes within a second; a month of
// 1,000 nodes' incidents answers each ready-made question in a second. Later, also before its first run: what hubs that share a fleet cost (Shared).
type Cost struct {
	report.Judged
	Seed     uint64   `json:"seed"`
	Ingest   Ingest   `json:"ingest"`
	Memory   []Grown  `json:"memory"`
	Growth   []Growth `json:"growth"`
	NoGrowth string   `json:"no_growth,omitempty"`
	Reach    Reach    `json:"reach"`
	Rows     int      `json:"incident_rows"`
	Answers  []Took   `json:"answers"`
	NoAnswer string   `json:"no_answer,omitempty"`
	Rivals   []Rival  `json:"rivals"`
	Shared   []Shared `json:"shared"`
	Carried  Carried  `json:"transport"`
}

// Took is how long a question took.
type Took struct {
	Question string  `json:"question"`
	Seconds  float64 `json:"seconds"`
}

// minuteBatch is a node's minute: windows of a second, or one, of its tasks. With 200 nodes of 30 each of 500 jobs has six tasks on each platform, enough for a spec.
func minuteBatch(rng *rand.Rand, node, tasks, windows int, seq uint64, begin time.Time) *wire.Batch {
	b := &wire.Batch{Node: feedNode(node), Spool: fmt.Sprintf("%016x", node), Seq: seq, Platform: platforms[node%2].name}
	for i := range tasks {
		b.Tasks = append(b.Tasks, wire.Task{Num: uint32(i + 1), Path: fmt.Sprintf("/kubepods/pod%08x/%d", node, i), Job: fmt.Sprintf("job-%d", (node/len(platforms)*tasks+i)%500), Class: model.Class(1 + i%2)}) //nolint:gosec // few
	}
	n := tasks * windows
	s := &b.Samples
	s.Task, s.WallMsec, s.CPU, s.Flags = make([]uint32, n), make([]int64, n), make([]float32, n), make([]uint32, n)
	s.Signals = []wire.Signal{{Source: model.SourceCPI, Definition: "d", Values: make([]float32, n)}, {Source: model.SourceSlowdown, Definition: "d", Values: make([]float32, n)}}
	for i := range n {
		s.Task[i] = uint32(i % tasks) //nolint:gosec // few
		s.WallMsec[i] = begin.Add(time.Duration(i/tasks) * time.Second).UnixMilli()
		s.CPU[i] = rng.Float32()
		s.Flags[i] = wire.Usable
		s.Signals[0].Values[i] = 1 + 0.2*float32(rng.NormFloat64())*0.5
		s.Signals[1].Values[i] = 1 + rng.Float32()
	}
	return b
}

// Parts are those of a bench, in their order: memory of the learner, and of a whole hub, questions, ingest, what reaches the nodes, the rivals (which are
// compared with ingest), hubs that share a fleet, what connections and messages cost the transport.
var Parts = []string{"memory", "growth", "questions", "ingest", "reach", "rivals", "shards", "transport"}

// Bench measures; of the parts only those named, all where none is.
func Bench(ctx context.Context, seed uint64, quick bool, only []string, log func(format string, args ...any)) (c *Cost, err error) {
	c = &Cost{Seed: seed}
	dir, err := os.MkdirTemp("", "commensal-fleet-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of /tmp
	has := func(part string) bool { return len(only) == 0 || slices.Contains(only, part) }
	if has("memory") {
		log("memory of the learner")
		if err := c.grow(quick); err != nil {
			return nil, err
		}
	}
	if has("growth") {
		if err := c.growHub(ctx, dir, quick, log); err != nil {
			return nil, err
		}
	}
	if has("questions") || has("ingest") || has("reach") {
		if err := c.inHub(ctx, dir, seed, quick, has, log); err != nil {
			return nil, err
		}
	}
	if has("rivals") {
		if err := c.compete(ctx, dir, seed, quick, log); err != nil {
			return nil, err
		}
	}
	if has("shards") {
		log("hubs that share a fleet")
		if err := c.share(ctx, dir, seed, quick, log); err != nil {
			return nil, err
		}
	}
	if has("transport") {
		log("the transport")
		if err := c.carry(ctx, filepath.Join(dir, "transport"), seed, quick); err != nil {
			return nil, err
		}
	}
	c.Goals = c.goals()
	return c, nil
}

// inHub measures what one hub in this process does.
func (c *Cost) inHub(ctx context.Context, dir string, seed uint64, quick bool, has func(part string) bool, log func(format string, args ...any)) error {
	if has("questions") {
		log("a month of incidents")
		if err := c.month(filepath.Join(dir, "store"), seed, quick); err != nil {
			return err
		}
	}
	f, cl, end, err := hubIn(ctx, dir, ingestSpec())
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name, text string
		measure    func() error
	}{
		{"questions", "questions", func() error { return c.ask(ctx, cl) }},
		{"ingest", "ingest", func() error { return c.ingest(ctx, f, cl, seed, quick) }},
		{"reach", "a spec and a command to all nodes", func() error {
			nodes := 1000
			if quick {
				nodes = 200
			}
			return c.reach(ctx, f, cl, nodes)
		}},
	} {
		if err == nil && has(part.name) {
			log("%s", part.text)
			err = part.measure()
		}
	}
	return errors.Join(err, end())
}

// lastCommit is how long what comes last waits for a commit, in place of five seconds: at the rate that is measured rows have them due long before, so
// that of a run of ten seconds a third would be that wait.
const lastCommit = time.Second

// hubIn starts a hub in a folder; parameters of nothing are the defaults. end ends it.
func hubIn(ctx context.Context, dir string, p spec.Params) (f *field, cl *client.Client, end func() error, err error) {
	f = &field{dir: dir}
	if f.hub, err = hub.New(hub.Config{Dir: dir, Listen: "127.0.0.1:0", NATSListen: "127.0.0.1:0", Keep: 40 * 24 * time.Hour, Spec: p, Version: "bench", CommitEvery: lastCommit}); err != nil {
		return nil, nil, nil, err
	}
	hubCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.hub.Run(hubCtx) }()
	select {
	case <-f.hub.Ready():
	case err := <-ended:
		stop()
		return nil, nil, nil, errors.Join(err, ctx.Err())
	}
	return f, &client.Client{URL: f.hub.URL(), TokenFile: hub.AdminToken(dir)}, func() error { stop(); return <-ended }, nil
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}

func cpuSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// minutesOf is a load: so many minutes of so many nodes.
type minutesOf struct{ nodes, minutes int }

// ingestLoad is what the hub takes in, and then its rivals.
func ingestLoad(quick bool) minutesOf {
	if quick {
		return minutesOf{nodes: 200, minutes: 3}
	}
	return minutesOf{nodes: 200, minutes: 20}
}

const loadTasks, loadWindows, loadSenders = 30, 60, 4 // tasks of a node, windows of a minute, connections

func (l *minutesOf) samples() int { return l.nodes * l.minutes * loadTasks * loadWindows }

const loadValues = 3 // of a sample: CPU and two signals

// draw makes the batches of a load from a seed. Each of several senders, which work at once, has next give it its own, in order; nil: there are no more.
func (l *minutesOf) draw(ctx context.Context, seed uint64, sender func(ctx context.Context, k int, next func() *wire.Batch) error) error {
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now().Add(-time.Duration(l.minutes) * time.Minute)
	for k := range loadSenders {
		g.Go(func() error {
			rng := rand.New(rand.NewPCG(seed, uint64(k))) //nolint:gosec // few
			m, node := 0, k
			return sender(ctx, k, func() *wire.Batch {
				if node >= l.nodes {
					m, node = m+1, k
				}
				if m >= l.minutes {
					return nil
				}
				b := minuteBatch(rng, node, loadTasks, loadWindows, uint64(m+1), begin.Add(time.Duration(m)*time.Minute)) //nolint:gosec // few
				node += loadSenders
				return b
			})
		})
	}
	return g.Wait()
}

// send hands each batch of a load to put, on several connections at once.
func (l *minutesOf) send(ctx context.Context, seed uint64, connect func() (*nats.Conn, error), put func(ctx context.Context, js jetstream.JetStream, b *wire.Batch) error) error {
	return l.draw(ctx, seed, func(ctx context.Context, _ int, next func() *wire.Batch) error {
		nc, err := connect()
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		for b := next(); b != nil; b = next() {
			if err := put(ctx, js, b); err != nil {
				return err
			}
		}
		return nil
	})
}

// month fills a store with a month of 1,000 nodes: three incidents a node and day, each of three changes and six decisions.
func (c *Cost) month(dir string, seed uint64, quick bool) error {
	s, err := store.Open(dir)
	if err != nil {
		return err
	}
	s.From("month")
	nodes, days, rng := 1000, 30, rand.New(rand.NewPCG(seed, 9))
	if quick {
		days = 3
	}
	now, message := time.Now(), uint64(0)
	for day := range days {
		for node := range nodes {
			at := now.Add(-time.Duration(day)*24*time.Hour - time.Duration(rng.IntN(86400))*time.Second)
			incidents := [3]*model.Incident{}
			for k := range incidents {
				by := model.TaskNum(2)
				incidents[k] = &model.Incident{
					ID: fmt.Sprintf("%d-%d", day, k), VictimJob: fmt.Sprintf("job-%d", rng.IntN(500)), VictimPath: "/web", Signal: 2 + rng.Float64(), Threshold: 2, OpenedWall: at.UnixNano(),
					Rounds: []model.Round{{Chosen: &by, ChosenPath: "/be", SignalBefore: 2 + rng.Float64(), SignalAfter: 1 + rng.Float64(), Suspects: []model.Suspect{{Task: by, Path: "/be", Job: fmt.Sprintf("batch-%d", rng.IntN(200)), Score: rng.Float64()}}}},
				}
			}
			for change, state := range []model.IncidentState{model.Holding, model.Verifying, model.Recovered} {
				b := &wire.Batch{Node: fmt.Sprintf("node-%d", node), Spool: fmt.Sprintf("%016x", node), Seq: uint64(3*day + change + 1), Platform: platforms[node%2].name} //nolint:gosec // few
				for _, inc := range incidents {
					now := *inc
					now.State = state
					b.Incidents = append(b.Incidents, &now)
					b.Decisions = append(b.Decisions, model.Decision{Kind: model.DecideCap, Policy: model.PolicyHardcap, Mode: "enforce", WallNsec: at.UnixNano(), Path: "/be", Reason: "for the bench"}, model.Decision{Kind: model.DecideVerified, Policy: model.PolicyHardcap, WallNsec: at.UnixNano(), Reason: "for the bench"})
				}
				c.Rows += len(incidents)
				message++
				s.Put(message, b)
			}
		}
		if err := s.Commit(); err != nil {
			return err
		}
	}
	_, err = s.Compact(now.Add(24*time.Hour), message)
	return err
}

// ask puts the ready-made questions, and the one whose answer goes to the nodes.
func (c *Cost) ask(ctx context.Context, cl *client.Client) error {
	var list []hub.Question
	if err := cl.Do(ctx, "/v1/questions", nil, &list); err != nil {
		return err
	}
	values := map[string]any{"job": "job-7", "days": "30", "node": "node-7"}
	queries, names := []*hub.Query{hub.PriorQuestion(time.Now())}, []string{"priors (the hub's own)"}
	for _, q := range list {
		ask := &hub.Query{SQL: q.SQL}
		for _, a := range q.Args {
			ask.Args = append(ask.Args, values[a])
		}
		queries, names = append(queries, ask), append(names, q.Name)
	}
	for i, q := range queries {
		var res hub.Result
		err := cl.Do(ctx, "/v1/query", q, &res)
		var refused *client.Refused
		if errors.As(err, &refused) {
			c.NoAnswer = refused.Text
			return nil
		}
		if err != nil {
			return err
		}
		c.Answers = append(c.Answers, Took{names[i], res.Seconds})
	}
	return nil
}

// WriteText prints what was measured, beside what was asked for.
func (c *Cost) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "WHAT\tMEASURED\tGOAL")
	if c.Ingest.Samples > 0 {
		c.Ingest.write(tw)
	}
	c.writeGrowth(tw)
	if c.Reach.Nodes > 0 {
		c.Reach.write(tw)
	}
	for _, a := range c.Answers {
		fmt.Fprintf(tw, "seconds of question %s, %d rows of incidents\t%.2f\t≤ %g\n", a.Question, c.Rows, a.Seconds, goalAnswer)
	}
	if c.NoAnswer != "" {
		fmt.Fprintf(tw, "questions\tnot answered: %s\t≤ %g\n", c.NoAnswer, goalAnswer)
	}
	c.writeRivals(tw)
	c.writeShared(tw)
	c.Carried.write(tw)
	if err := tw.Flush(); err != nil {
		return err
	}
	c.writeGoals(w)
	return nil
}
