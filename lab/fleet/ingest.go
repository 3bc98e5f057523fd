package fleet

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
	"github.com/commensal-io/commensal/model"
)

// Ingest is what a hub takes from nodes: agents' own uplinks, each enrolled with a key, a connection and a spool of its own, all in this process. The clock
// begins when all are connected, and ends when each sample is in Parquet and each node has the specs of all its jobs from the hub.
type Ingest struct {
	Nodes     int     `json:"nodes"`
	Samples   int     `json:"samples"`
	Batches   int     `json:"batches"`
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpu_seconds"` // of nodes and hub
	Jobs      int     `json:"jobs"`        // on a platform
	Sheets    int     `json:"sheets"`      // of specs that were published meanwhile: each job's several times
	Calculate float64 `json:"calculation_seconds"`
	Publish   float64 `json:"publishing_seconds"`
	Wire      float64 `json:"wire_bytes_a_sample"`
	Stored    float64 `json:"stored_bytes_a_sample"`
}

const (
	ingestPeriod = 5 * time.Second // from one calculation to the next: several fall into the time that is measured
	ingestTime   = 3 * time.Minute
	windowNsec   = int64(1e9)
)

// ingestSpec are the parameters of a hub whose ingest is measured.
func ingestSpec() spec.Params {
	p := spec.Defaults()
	p.PeriodNsec = ingestPeriod.Nanoseconds()
	return p
}

// ingest has nodes send their minutes, and waits until the store has them and the nodes have specs.
func (c *Cost) ingest(ctx context.Context, f *field, cl *client.Client, seed uint64, quick bool) (err error) {
	load, r := ingestLoad(quick), &c.Ingest
	r.Nodes, r.Samples, r.Batches = load.nodes, load.samples(), load.nodes*load.minutes
	if r.Wire, err = load.wireBytes(ctx, seed); err != nil {
		return err
	}
	ups, err := f.connect(ctx, load.nodes)
	defer func() {
		for _, u := range ups {
			u.Close()
		}
	}()
	if err != nil {
		return err
	}
	var before, st hub.Status
	if err := cl.Do(ctx, "/v1/fleet", nil, &before); err != nil {
		return err
	}
	was, err := figures(ctx, cl.URL)
	if err != nil {
		return err
	}
	start, cpu := time.Now(), cpuSeconds()
	if err := load.draw(ctx, seed, func(ctx context.Context, _ int, next func() *wire.Batch) error {
		for b := next(); b != nil; b = next() {
			if err := hand(ctx, ups[b.Node], b); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := until(ctx, 20*time.Millisecond, ingestTime, func() (bool, error) {
		if err := cl.Do(ctx, "/v1/fleet", nil, &st); err != nil {
			return false, err
		}
		return st.Count >= before.Count+uint64(r.Batches) && st.Waiting == 0 && allKnow(ups), nil //nolint:gosec // few
	}); err != nil {
		return fmt.Errorf("of %d batches the store has %d, and all specs are at all nodes: %v: %w", r.Batches, st.Count-before.Count, allKnow(ups), err)
	}
	r.Seconds, r.CPU = time.Since(start).Seconds(), cpuSeconds()-cpu
	var now map[string]float64
	if err := until(ctx, 20*time.Millisecond, ingestTime, func() (bool, error) { // a node may have its last sheet before the hub has counted it
		now, err = figures(ctx, cl.URL)
		return now["specs_published_total"]-was["specs_published_total"] >= now["jobs"], err
	}); err != nil {
		return err
	}
	since := func(name string) float64 { return now[name] - was[name] }
	r.Jobs, r.Sheets, r.Calculate, r.Publish = int(now["jobs"]), int(since("specs_published_total")), since("specs_calculating_seconds_total"), since("specs_publishing_seconds_total")
	if err := cl.Do(ctx, "/v1/fleet", nil, &st); err != nil {
		return err
	}
	for i, u := range st.Store {
		if u.Table == "samples" {
			r.Stored = float64(u.Bytes-before.Store[i].Bytes) / float64(r.Samples)
		}
	}
	if taken := since("samples_total"); taken != float64(r.Samples) || since("lost_batches_total")+since("refused_batches_total") > 0 {
		return fmt.Errorf("of %d samples %.0f came; batches lost %.0f, refused %.0f", r.Samples, taken, since("lost_batches_total"), since("refused_batches_total"))
	}
	return nil
}

func feedNode(i int) string { return fmt.Sprintf("feed-%03d", i) }

// connect enrols so many nodes, and starts the uplink of each. It returns when all are connected, and those that were started with an error, too.
func (f *field) connect(ctx context.Context, nodes int) (map[string]*uplink.Uplink, error) {
	ups := map[string]*uplink.Uplink{}
	for i := range nodes {
		if err := f.let(feedNode(i)); err != nil {
			return ups, err
		}
	}
	for i := range nodes {
		name := feedNode(i)
		u, err := uplink.Start(ctx, uplink.Config{URL: f.hub.NodesURL(), Node: name, SeedFile: f.seedFile(name), Dir: filepath.Join(f.dir, name), MaxBytes: 64 << 20},
			uplink.Node{Boot: "bench", Platform: platforms[i%2].name, Program: "bench"}, uplink.NewGather((loadWindows-1)*windowNsec),
			uplink.Hooks{Log: slog.New(slog.DiscardHandler), Specs: func([]model.Spec) {}})
		if err != nil {
			return ups, err
		}
		ups[name] = u
	}
	return ups, until(ctx, 20*time.Millisecond, time.Minute, func() (bool, error) {
		for _, u := range ups {
			if !u.Status().Connected {
				return false, nil
			}
		}
		return true, nil
	})
}

// hand gives a node's uplink a minute as its agent does, window by window, once the hub has the minute before: until then it waits in the spool.
func hand(ctx context.Context, u *uplink.Uplink, b *wire.Batch) error {
	if err := until(ctx, time.Millisecond, time.Minute, func() (bool, error) { return u.Status().Sent+1 >= b.Seq, nil }); err != nil {
		return fmt.Errorf("minute %d of %s is not sent: %w", b.Seq-1, b.Node, err)
	}
	s, n := &b.Samples, len(b.Tasks)
	w := &uplink.Window{Tasks: make([]model.Task, n), Observed: make([]model.TaskObservation, n), Flags: make([]uint32, n)}
	for i := range b.Tasks {
		t := &b.Tasks[i]
		w.Tasks[i] = model.Task{Num: model.TaskNum(t.Num), Path: t.Path, Job: t.Job, Class: t.Class}
		w.Observed[i].Num = w.Tasks[i].Num
		for src := range w.Observed[i].Signals {
			w.Observed[i].Signals[src] = model.Missing(model.Absent)
		}
	}
	for at := 0; at < s.Len(); at += n {
		w.MonoNsec += windowNsec
		w.WallNsec = s.WallMsec[at] * 1e6
		for i := range n {
			w.Observed[i].CPU, w.Flags[i] = model.Known(float64(s.CPU[at+i])), s.Flags[at+i]
			for k := range s.Signals {
				w.Observed[i].Signals[s.Signals[k].Source] = model.Known(float64(s.Signals[k].Values[at+i]))
			}
		}
		u.Gather.Add(w)
		u.Turn(w.MonoNsec)
	}
	return nil
}

// allKnow reports whether each node has the fleet's specs of all its jobs.
func allKnow(ups map[string]*uplink.Uplink) bool {
	for _, u := range ups {
		if u.Status().Sheets < loadTasks {
			return false
		}
	}
	return true
}

// wireBytes is what a sample takes on the way, of the first minute of all nodes.
func (l *minutesOf) wireBytes(ctx context.Context, seed uint64) (float64, error) {
	first, sums := minutesOf{nodes: l.nodes, minutes: 1}, [loadSenders]int{}
	err := first.draw(ctx, seed, func(_ context.Context, k int, next func() *wire.Batch) error {
		for b := next(); b != nil; b = next() {
			data, err := codec.Encode(b)
			if err != nil {
				return err
			}
			sums[k] += len(data)
		}
		return nil
	})
	all := 0
	for _, n := range sums {
		all += n
	}
	return float64(all) / float64(first.samples()), err
}

// whole reports whether so much was sent that it judges the rate: of less a good part is the beginning, and the wait for the last commit.
func (r *Ingest) whole() bool {
	load := ingestLoad(false)
	return r.Samples >= load.samples()
}

func (r *Ingest) write(w io.Writer) {
	goal := "-"
	if r.whole() {
		goal = fmt.Sprintf("≥ %d", goalSamples)
	}
	fmt.Fprintf(w, "samples a second from agents' windows to Parquet, agents' side and specs included (%d in %d batches of %d nodes, each with key, connection and spool; %.1f CPU-seconds)\t%.0f\t%s\n",
		r.Samples, r.Batches, r.Nodes, r.CPU, float64(r.Samples)/r.Seconds, goal)
	fmt.Fprintf(w, "  meanwhile: sheets of specs of %d jobs, until each node has those of all its jobs; seconds of calculation and of publishing\t%d; %.2f, %.2f\t-\n", r.Jobs, r.Sheets, r.Calculate, r.Publish)
	fmt.Fprintf(w, "bytes a sample on the way\t%.1f\t-\n", r.Wire)
	fmt.Fprintf(w, "bytes a stored sample\t%.1f\t≤ %d\n", r.Stored, goalStored)
}
