package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
)

// Grown is the learner's memory with so many jobs, each with so many tasks on as many nodes and so many signals: heap in use a job and
// platform, before the first calculation, when it has all nodes' samples and no spec, after it, and before the second one, when it has both.
type Grown struct {
	Jobs      int     `json:"jobs"`
	Tasks     int     `json:"tasks_a_job"`
	Signals   int     `json:"signals"`
	Gaps      bool    `json:"gaps"` // of each signal one value in twenty is missing, each time of other windows
	Before    float64 `json:"bytes_a_job_before_a_calculation"`
	Bytes     float64 `json:"bytes_a_job"`
	Again     float64 `json:"bytes_a_job_before_the_next_calculation"`
	Calculate float64 `json:"calculation_seconds"`
}

// Growth is a whole hub, a process of its own with its transport, store and learner, which got more and more jobs.
type Growth struct {
	Jobs      int     `json:"jobs"`
	Tasks     int     `json:"tasks_a_job"`
	Signals   int     `json:"signals"`
	Samples   int     `json:"samples"`             // of the jobs that were added last, as are:
	Ingest    float64 `json:"ingest_seconds"`      // until they were taken and learned from, and all but the last few seconds' stored
	Calculate float64 `json:"calculation_seconds"` // all calculations until each had a spec
	Publish   float64 `json:"publishing_seconds"`
	Sheets    int     `json:"sheets"`
	CPU       float64 `json:"cpu_seconds"`  // of the process
	Resident  float64 `json:"resident_mib"` // of it, at the end
	Peak      float64 `json:"peak_mib"`     // at most, since its start
	Empty     float64 `json:"empty_mib"`    // and before it had any job
}

// growWindows are those of a task: as many samples as a spec is allowed to be of here.
const (
	growWindows = 30
	growBlock   = 100 // jobs in a batch
	growFew     = 10  // tasks of a job
	growMany    = 300
	growGap     = 20               // one value in so many is missing, where some are
	growUsual   = 2                // signals that an agent sends where nobody asks for more
	growTime    = 15 * time.Minute // of one step
	growLook    = 50 * time.Millisecond
)

// growSizes are how many jobs a hub or learner gets to, step by step.
func growSizes(most int, quick bool) (sizes []int) {
	if quick {
		most = 1_000
	}
	for n := 100; n < most; n *= 10 {
		sizes = append(sizes, n)
	}
	return append(sizes, most)
}

func growNode(i int) string { return fmt.Sprintf("grow-%03d", i) }

// learned are the signals of which specs are learned: as many as an agent can send.
func learned() (list []model.Source) {
	for _, src := range model.Sources() {
		if !src.Row().Targeted {
			list = append(list, src)
		}
	}
	return list
}

// jobsBatch is what a node sends of some jobs, with a task of each.
func jobsBatch(rng *rand.Rand, node, from, jobs, windows int, signals []model.Source) *wire.Batch {
	b := minuteBatch(rng, node, jobs, windows, 1, time.Now().Add(-time.Minute))
	b.Node, b.Platform = growNode(node), "cpu"
	for i := range b.Tasks {
		b.Tasks[i].Path, b.Tasks[i].Job = fmt.Sprintf("/kubepods/pod%08x/%d", node, from+i), fmt.Sprintf("job-%d", from+i)
	}
	b.Samples.Signals = nil
	for _, src := range signals {
		values := make([]float32, b.Samples.Len())
		for i := range values {
			values[i] = 1 + 0.1*float32(rng.NormFloat64())
		}
		b.Samples.Signals = append(b.Samples.Signals, wire.Signal{Source: src, Definition: src.Definition(false), Values: values})
	}
	return b
}

// growths are the loads: tasks of a job, windows of each, signals, whether values are missing, and the most jobs of a learner and of a whole hub (0: none is run).
// Of many tasks each gives few windows, for the samples' sake; what is linear in jobs is not measured at all sizes, for the time's.
var growths = []struct {
	tasks, windows, signals int
	gaps                    bool
	learner, hub            int
}{
	{growFew, growWindows, growUsual, false, 100_000, 100_000}, {growFew, growWindows, len(learned()), false, 10_000, 100_000},
	{growMany, growMany / 100, growUsual, false, 1_000, 1_000}, {growMany, growMany / 100, len(learned()), false, 1_000, 1_000},
	{growFew, growWindows, len(learned()), true, 10_000, 0}, {growMany, growMany / 100, len(learned()), true, 1_000, 0},
}

// grow measures what the learner takes. All nodes speak of a job before the next ones come: of jobs that one node alone speaks of only so many are learned.
func (c *Cost) grow(quick bool) error {
	for _, of := range growths {
		for _, n := range growSizes(of.learner, quick) {
			before := heap()
			s, p := spec.New(), spec.Defaults()
			p.MinSamplesPerTask, p.MinTasks = of.windows-1, 4
			rng := rand.New(rand.NewPCG(1, 1))
			feed := func() float64 {
				for from := 0; from < n; from += growBlock {
					for node := range of.tasks {
						b := jobsBatch(rng, node, from, growBlock, of.windows, learned()[:of.signals])
						if of.gaps {
							sprinkle(rng, b)
						}
						s.Add(&p, b)
					}
				}
				return float64(heap()-before) / float64(n)
			}
			g := Grown{Jobs: n, Tasks: of.tasks, Signals: of.signals, Gaps: of.gaps, Before: feed()}
			begin := time.Now()
			if sheets, _ := s.Calculate(&p, begin.UnixNano()); len(s.Jobs) != n || len(sheets) != n {
				return fmt.Errorf("of %d jobs %d are learned and %d published", n, len(s.Jobs), len(sheets))
			}
			g.Calculate = time.Since(begin).Seconds()
			g.Bytes = float64(heap()-before) / float64(n)
			g.Again = feed()
			c.Memory = append(c.Memory, g)
			runtime.KeepAlive(s)
		}
	}
	return nil
}

// sprinkle takes values out of a batch.
func sprinkle(rng *rand.Rand, b *wire.Batch) {
	for k := range b.Samples.Signals {
		for i := range b.Samples.Signals[k].Values {
			if rng.IntN(growGap) == 0 {
				b.Samples.Signals[k].Values[i] = float32(math.NaN())
			}
		}
	}
}

// growHub measures a whole hub, with few tasks a job and with many.
func (c *Cost) growHub(ctx context.Context, dir string, quick bool, log func(format string, args ...any)) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(self), "commensal-hub")
	if _, err := os.Stat(program); err != nil {
		c.NoGrowth = fmt.Sprintf("%s is not there; `make hub` builds it", program)
		return nil
	}
	for _, of := range growths {
		if of.hub == 0 {
			continue
		}
		g := &growing{field: field{dir: filepath.Join(dir, fmt.Sprintf("grow-%d-%d", of.tasks, of.signals))}, tasks: of.tasks, windows: of.windows, signals: learned()[:of.signals]}
		if err := c.growIn(ctx, program, g, growSizes(of.hub, quick), log); err != nil {
			return err
		}
	}
	return nil
}

// growIn runs one hub.
func (c *Cost) growIn(ctx context.Context, program string, g *growing, sizes []int, log func(format string, args ...any)) (err error) {
	pages, err := stage.FreeAddress()
	if err != nil {
		return err
	}
	nodes, err := stage.FreeAddress()
	if err != nil {
		return err
	}
	dir := g.dir
	g.nodes, g.client = "nats://"+nodes, client.Client{URL: "http://" + pages, TokenFile: hub.AdminToken(dir)}
	for i := range g.tasks {
		if err := g.let(growNode(i)); err != nil {
			return err
		}
	}
	p, err := spawn(ctx, program, dir, "serve", "--dir", dir, "--listen", pages, "--nats-listen", nodes, "--min-samples", strconv.Itoa(g.windows), "--spec-every", "10s")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(p.end(err), os.RemoveAll(dir)) }()
	if err := until(ctx, growLook, 30*time.Second, func() (bool, error) {
		_, err := call(ctx, "GET", g.client.URL+"/metrics")
		return err == nil, nil
	}); err != nil {
		return fmt.Errorf("the hub does not answer: %w", err)
	}
	g.pid = p.Process.Pid
	empty, err := usageOf(g.pid)
	if err != nil {
		return err
	}
	for from := 0; len(sizes) > 0; from, sizes = sizes[0], sizes[1:] {
		log("a hub of %d jobs, %d tasks each, %d signals", sizes[0], g.tasks, len(g.signals))
		step := Growth{Jobs: sizes[0], Tasks: g.tasks, Signals: len(g.signals), Samples: (sizes[0] - from) * g.tasks * g.windows, Empty: empty.resident}
		if err := g.step(ctx, &step, from); err != nil {
			return fmt.Errorf("a hub of %d jobs: %w", step.Jobs, err)
		}
		c.Growth = append(c.Growth, step)
	}
	return nil
}

// growing is a hub that gets jobs.
type growing struct {
	field
	client  client.Client
	nodes   string // address
	pid     int
	tasks   int // of a job, each on a node of its own
	windows int // of a task
	signals []model.Source
}

// step adds jobs, and waits until each has a published spec.
func (g *growing) step(ctx context.Context, step *Growth, from int) error {
	before, err := figures(ctx, g.client.URL)
	if err != nil {
		return err
	}
	was, err := usageOf(g.pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := g.feed(ctx, from, step.Jobs); err != nil {
		return err
	}
	now := before
	if err := until(ctx, growLook, growTime, func() (bool, error) {
		now, err = figures(ctx, g.client.URL)
		return now["samples_total"]-before["samples_total"] == float64(step.Samples), err
	}); err != nil {
		return fmt.Errorf("%.0f samples came of %d: %w", now["samples_total"]-before["samples_total"], step.Samples, err)
	}
	step.Ingest = time.Since(begin).Seconds()
	err = until(ctx, growLook, growTime, func() (bool, error) {
		now, err = figures(ctx, g.client.URL)
		return now["specs_published_total"]-before["specs_published_total"] >= float64(step.Jobs-from) && now["jobs"] == float64(step.Jobs) && now["waiting_rows"] == 0, err
	})
	step.Sheets = int(now["specs_published_total"] - before["specs_published_total"])
	step.Calculate, step.Publish = now["specs_calculating_seconds_total"]-before["specs_calculating_seconds_total"], now["specs_publishing_seconds_total"]-before["specs_publishing_seconds_total"]
	memory, err2 := usageOf(g.pid)
	step.CPU, step.Resident, step.Peak = memory.cpu-was.cpu, memory.resident, memory.peak
	return errors.Join(err, err2)
}

var figure = regexp.MustCompile(`(?m)^commensal_hub_(\w+) (\S+)$`)

// figures are what a hub tells Prometheus.
func figures(ctx context.Context, url string) (map[string]float64, error) {
	page, err := call(ctx, "GET", url+"/metrics")
	out := map[string]float64{}
	for _, line := range figure.FindAllStringSubmatch(page, -1) {
		v, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			return nil, err
		}
		out[line[1]] = v
	}
	return out, err
}

// feed sends the jobs from one to another, each node's batches over a connection of its own, a block of jobs from all nodes before the next one.
func (g *growing) feed(ctx context.Context, from, to int) error {
	ways := make([]jetstream.JetStream, g.tasks)
	for i := range ways {
		nc, err := dialAs(g.nodes, growNode(i), g.seeds[i])
		if err != nil {
			return err
		}
		defer nc.Close()
		if ways[i], err = jetstream.New(nc); err != nil {
			return err
		}
	}
	grp, ctx := errgroup.WithContext(ctx)
	for k := range loadSenders {
		grp.Go(func() error {
			rng, seq := rand.New(rand.NewPCG(uint64(from), uint64(k))), uint64(0) //nolint:gosec // few
			for at := from + k*growBlock; at < to; at += loadSenders * growBlock {
				seq++
				for node, js := range ways {
					b := jobsBatch(rng, node, at, min(growBlock, to-at), g.windows, g.signals)
					b.Spool, b.Seq = fmt.Sprintf("%08x%06x%02x", from, node, k), seq // each sender counts for itself
					data, err := codec.Encode(b)
					if err != nil {
						return err
					}
					if _, err := js.Publish(ctx, wire.UpPrefix+b.Node, data); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return grp.Wait()
}

// dialAs connects as a node that was let in.
func dialAs(url, node, seedFile string) (nc *nats.Conn, err error) {
	key, err := nats.NkeyOptionFromSeed(seedFile)
	if err != nil {
		return nil, err
	}
	for range 50 { // the hub takes over who is enrolled within a second
		if nc, err = nats.Connect(url, key, nats.CustomInboxPrefix(wire.InboxPrefix(node))); err == nil {
			return nc, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}

func (c *Cost) writeGrowth(w io.Writer) {
	for _, m := range c.Memory {
		fmt.Fprintf(w, "bytes of the learner's memory a job and platform, %d jobs of %d tasks, %d signals%s: before the first calculation (of %.2f s), after it, and before the next\t%.0f, %.0f, %.0f\t≤ %d\n",
			m.Jobs, m.Tasks, m.Signals, m.missing(), m.Calculate, m.Before, m.Bytes, m.Again, goalMemory)
	}
	if c.NoGrowth != "" {
		fmt.Fprintf(w, "a whole hub\tnot measured: %s\t≤ %d\n", c.NoGrowth, goalMemory)
	}
	for _, g := range c.Growth {
		goal := "-"
		if g.Jobs >= goalHubJobs {
			goal = fmt.Sprintf("≤ %d", goalMemory)
		}
		fmt.Fprintf(w, "bytes a job and platform of a whole hub above the empty one, and at most; %d jobs of %d tasks, %d signals (%.0f MiB resident, empty %.0f, at most %.0f)\t%.0f, %.0f\t%s\n",
			g.Jobs, g.Tasks, g.Signals, g.Resident, g.Empty, g.Peak, g.each(g.Resident), g.each(g.Peak), goal)
		fmt.Fprintf(w, "  samples a second into it; its CPU-seconds; seconds of calculation and of publishing, sheets\t%.0f; %.1f; %.2f, %.2f, %d\t-\n", float64(g.Samples)/g.Ingest, g.CPU, g.Calculate, g.Publish, g.Sheets)
	}
}

// each is how many bytes so many MiB are a job, above those of the empty hub.
func (g *Growth) each(mib float64) float64 { return (mib - g.Empty) * (1 << 20) / float64(g.Jobs) }

func (m *Grown) missing() string {
	if !m.Gaps {
		return ""
	}
	return fmt.Sprintf(", of each one value in %d missing", growGap)
}
