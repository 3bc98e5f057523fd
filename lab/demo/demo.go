// Package demo is `make demo`: first light on this very host. It plays the scene under
// every way of control in turn, on and off and on again because the host is noisy, and
// says who was named, what the victim's clients saw and what the batch work lost.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/load"
	"github.com/commensal-io/commensal/lab/scene"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/outlier"
)

// The parts of a demo. Each block begins with a lead-in that is not counted, for every
// way of control alike: the antagonist's next burst, detection and the cap fall into it.
const (
	learnTime = 24 * time.Second // bystanders only: the agent learns what is normal
	learnMost = 90 * time.Second // for so long it is waited for
	quietTime = 16 * time.Second // bystanders only, measured, before the antagonist and after it
	calmTime  = 4 * time.Second  // until the antagonist's last burst is over
	blockTime = 24 * time.Second
	leadIn    = 10 * time.Second
)

// The ways of control. The least weight that a group can have is one of two, by the
// version of cgroups.
const (
	wayQuiet   = "quiet (bystanders only)"
	wayAgain   = "quiet again, at the end"
	wayNone    = "no control"
	wayOurs    = "commensal"
	wayShares  = "cpu.shares = 2"
	wayWeight  = "cpu.weight = 1"
	wayIdle    = "cpu.idle"
	wayLargest = "cap on the largest BE"
	wayPSI     = "quotas by pressure (PSI)"
)

// order interleaves no control and ours, A B A B, before the baselines: while one of those
// holds, the antagonist runs and does no harm, which the agent's history would keep.
func order(layout cgroup.Layout, brief bool) []string {
	if brief {
		return []string{wayNone, wayOurs, wayNone, wayOurs, wayIdle}
	}
	least := wayShares
	if layout == cgroup.LayoutV2 {
		least = wayWeight
	}
	return []string{wayNone, wayOurs, wayNone, wayOurs, least, wayIdle, wayLargest, wayPSI}
}

// Options of a demo.
type Options struct {
	Seed   uint64
	Agent  string // path of the agent's binary
	Report string // path of the HTML report
	Rate   int    // requests per second
	Harm   scene.Harm
	Favour uint64 // how many times everybody else's weight the antagonist has
	Brief  bool   // of the simple remedies only cpu.idle is played, after all that the verdict needs
	Record string // folder to keep the agent's record in; "": it goes with the scene
	Log    io.Writer
}

// Block is one stretch of time under one way of control.
type Block struct {
	Way       string  `json:"way"`
	StartNsec int64   `json:"start_mono_nsec"`
	FromNsec  int64   `json:"from_mono_nsec"` // where counting begins
	EndNsec   int64   `json:"end_mono_nsec"`
	BEWork    float64 `json:"be_cpu_seconds"`        // of all BE tasks, counted part
	Innocent  float64 `json:"bystander_cpu_seconds"` // of the bystanders, counted part
}

// run is a demo in progress.
type run struct {
	opt    Options
	scene  *scene.Scene
	order  []string // of the blocks
	blocks []Block
	load   *scene.LoadOutput
}

// Run plays the demo and returns its outcome. The host is left as it was found, also
// when the context is cancelled.
func Run(ctx context.Context, o Options) (*Outcome, error) {
	total := Length(o.Brief)
	fmt.Fprintf(o.Log, "seed %d; the demo takes about %.0f s\n", o.Seed, total.Seconds())
	sc, err := scene.Open(ctx, scene.Options{Seed: o.Seed, Agent: o.Agent, Rate: o.Rate, Harm: o.Harm, Weight: scene.Weight * o.Favour, For: total + learnMost + time.Minute, Log: o.Log})
	if err != nil {
		return nil, err
	}
	r := &run{opt: o, scene: sc, order: order(sc.Stage.Cgroups().Layout(), o.Brief)}
	out, err := r.play(ctx)
	return out, errors.Join(err, sc.Close())
}

func (r *run) play(ctx context.Context) (*Outcome, error) {
	fmt.Fprintf(r.opt.Log, "memcached under %d requests/s; batch-1 to batch-%d are best-effort, one of them will hurt it\n", r.opt.Rate, len(r.scene.BE))
	if err := r.learn(ctx); err != nil {
		return nil, err
	}
	if err := r.block(ctx, wayQuiet, 0, quietTime); err != nil {
		return nil, err
	}
	if err := r.scene.Provoke(); err != nil {
		return nil, err
	}
	for _, way := range r.order {
		if err := r.block(ctx, way, leadIn, blockTime); err != nil {
			return nil, err
		}
	}
	r.scene.Calm()
	err := r.block(ctx, wayAgain, calmTime, calmTime+quietTime)
	if err != nil {
		return nil, err
	}
	if r.load, err = r.scene.FinishLoad(ctx); err != nil {
		return nil, err
	}
	if err := r.scene.FinishAgent(); err != nil {
		return nil, err
	}
	if r.opt.Record != "" {
		if err := os.CopyFS(r.opt.Record, os.DirFS(r.scene.RecordPath())); err != nil {
			return nil, fmt.Errorf("demo: keep the record: %w", err)
		}
	}
	return r.judge()
}

// learn waits until the agent knows what is normal for the service, and says what it waits for.
func (r *run) learn(ctx context.Context) error {
	fmt.Fprintf(r.opt.Log, "learning what is normal, for %.0f s at least ...\n", learnTime.Seconds())
	said := ""
	for began := time.Now(); ; {
		if err := stage.Sleep(ctx, time.Second); err != nil {
			return err
		}
		st, err := r.scene.Status(ctx)
		if err != nil {
			return err
		}
		waits, known := learning(st, r.scene.Victim)
		passed := time.Since(began)
		switch {
		case known && passed >= learnTime:
			fmt.Fprintf(r.opt.Log, "  %s\n", waits)
			return nil
		case passed >= learnMost:
			fmt.Fprintf(r.opt.Log, "  goes on without it: after %.0f s %s\n", passed.Seconds(), waits)
			return nil
		case waits != said && !known:
			fmt.Fprintf(r.opt.Log, "  %s\n", waits)
			said = waits
		}
	}
}

// learning says what the agent's knowledge of a service waits for, or what is known.
func learning(st *agent.Status, victim string) (text string, known bool) {
	i := slices.IndexFunc(st.Tasks, func(t agent.TaskStatus) bool { return t.Path == victim })
	if i < 0 {
		return "the agent has not found memcached yet", false
	}
	t := &st.Tasks[i]
	if k := slices.IndexFunc(st.Specs, func(s *model.Spec) bool { return s.Job == t.Job && s.Source == t.Source }); k >= 0 {
		s := st.Specs[k]
		return fmt.Sprintf("normal for memcached: %s %.3g +- %.2g %s; above %.3g it suffers", s.Source, s.Mean, s.StdDev, s.Origin(), t.Threshold), true
	}
	if t.Verdict == outlier.NoSpec {
		return fmt.Sprintf("waits for more windows of memcached's %s: a spec needs 20", t.Source), false
	}
	return fmt.Sprintf("waits for windows that say something: memcached's last one was %q", t.Verdict), false
}

// block plays one block under one way of control.
func (r *run) block(ctx context.Context, way string, lead, length time.Duration) error {
	fmt.Fprintf(r.opt.Log, "%-26s %.0f s\n", way, length.Seconds())
	b := Block{Way: way, StartNsec: scene.Now()}
	undo, err := r.begin(ctx, way)
	if err != nil {
		return errors.Join(err, undo())
	}
	err = stage.Sleep(ctx, lead)
	var before, after []float64
	if err == nil {
		b.FromNsec = scene.Now()
		before, err = r.scene.Usage()
	}
	if err == nil {
		err = stage.Sleep(ctx, length-lead)
	}
	if err == nil {
		b.EndNsec = scene.Now()
		after, err = r.scene.Usage()
	}
	if err = errors.Join(err, undo()); err != nil {
		return err
	}
	for i, path := range r.scene.BE {
		used := after[i] - before[i]
		b.BEWork += used
		if path != r.scene.Antagonist {
			b.Innocent += used
		}
	}
	r.blocks = append(r.blocks, b)
	return nil
}

// begin puts a way of control in force and returns what ends it.
func (r *run) begin(ctx context.Context, way string) (undo func() error, err error) {
	none := func() error { return nil }
	switch way {
	case wayOurs:
		return func() error { return r.scene.Protect(context.WithoutCancel(ctx), false) }, r.scene.Protect(ctx, true)
	case wayShares, wayWeight:
		return r.scene.LeastWeight()
	case wayIdle:
		return r.scene.Idle()
	case wayLargest:
		return r.scene.CapLargest(ctx)
	case wayPSI:
		return r.scene.ThrottleByPressure(ctx)
	}
	return none, nil
}

// seconds turns a monotonic time into seconds since the load began.
func (r *run) seconds(nsec int64) float64 { return float64(nsec-r.load.StartNsec) / 1e9 }

// summary merges the windows of the load that lie inside the counted parts of a way's
// blocks.
func (r *run) summary(way string, from func(*Block) int64) load.Summary {
	return r.load.Result.Over(func(w *load.Window) bool {
		start := r.load.StartNsec + w.Start.Nanoseconds()
		end := start + w.Length.Nanoseconds()
		return slices.ContainsFunc(r.blocks, func(b Block) bool { return b.Way == way && start >= from(&b) && end <= b.EndNsec })
	})
}

func counted(b *Block) int64 { return b.FromNsec }
func whole(b *Block) int64   { return b.StartNsec }

// writeReport writes the HTML page.
func (r *run) writeReport(o *Outcome) error {
	f, err := os.Create(r.opt.Report)
	if err != nil {
		return fmt.Errorf("demo: report: %w", err)
	}
	if err := errors.Join(o.page.WriteHTML(f), f.Close()); err != nil {
		return fmt.Errorf("demo: report: %w", err)
	}
	return nil
}
