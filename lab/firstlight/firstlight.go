// Package firstlight is `commensal-lab run first-light`: many short rounds of the scene
// on this host, most with an antagonist and some without, judged against what was in
// fact played: precision and recall of who was named, time to name and to recover, and
// the work that innocents lost; ours beside baselines on the same recorded samples.
package firstlight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/load"
	"github.com/commensal-io/commensal/lab/scene"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/lab/trace"
)

// Kind is what a round plays.
type Kind string

// The kinds. Only in one with an antagonist may anybody be held, and only the antagonist.
const (
	EqualWeights Kind = "forks, equal weights"
	LeastWeight  Kind = "forks, least weight"
	EightTimes   Kind = "calculates, 8 x weight"
	Steady       Kind = "forks, without rest"
	Beside       Kind = "forks, unmanaged work beside"
	OwnFault     Kind = "the victim's own fault" // its load triples, or its own quota throttles it, by turns
	NoAntagonist Kind = "no antagonist"
	Outside      Kind = "antagonist outside our cgroups"
)

// programme is what rounds play in turn: how the scene is set, and whether its antagonist is to be held.
var programme = [...]struct {
	kind Kind
	held bool
	set  scene.Options
}{
	{EqualWeights, true, scene.Options{Harm: scene.Fork}},
	{LeastWeight, true, scene.Options{Harm: scene.Fork, Weight: 2}},
	{EightTimes, true, scene.Options{Harm: scene.Spin, Weight: 8 * scene.Weight}},
	{Steady, true, scene.Options{Harm: scene.Fork, Steady: true}},
	{Beside, true, scene.Options{Harm: scene.Fork, Beside: true}},
	{OwnFault, false, scene.Options{Harm: scene.Fork}},
	{NoAntagonist, false, scene.Options{Harm: scene.Fork}},
	{Outside, false, scene.Options{Harm: scene.Fork, Outside: true}},
}

// KindOf returns what the round of a seed plays.
func KindOf(seed uint64) Kind { return programme[seed%uint64(len(programme))].kind }

// surges says of a round of the victim's own fault which of the two it is.
func surges(seed uint64) bool { return seed/uint64(len(programme))%2 == 0 }

// The parts of a round.
const (
	learnTime = 24 * time.Second
	eventTime = 20 * time.Second
)

const (
	surgeRate = 12_000 // requests per second: about a CPU's worth with its client
	tightCPU  = 0.04   // CPU of the victim's own quota, below what it wants
)

// Options of a run.
type Options struct {
	FirstSeed uint64
	Rounds    int
	Agent     string
	Keep      string // folder to keep the records in; "": none
	Live      bool   // each round is played again under each of the simple remedies
	Log       io.Writer
}

// Round is one round's outcome.
type Round struct {
	Seed       uint64           `json:"seed"`
	Kind       Kind             `json:"kind"`
	Antagonist string           `json:"antagonist,omitempty"` // who is to be held; "": nobody
	Ours       Score            `json:"ours"`
	Baselines  map[string]Score `json:"baselines"`
	Asked      []Score          `json:"asked"` // at each share of the blame that could be asked for
	// Scores are the greatest shares that could be asked for with the antagonist, or an innocent, still named.
	Scores Scores `json:"scores"`
	Arms   []Arm  `json:"arms,omitempty"` // how it went live under each way of control
	// Suffered: the victim was anomalous after the event began, so that there was
	// something to name.
	Suffered  bool     `json:"suffered"`
	P99Before float64  `json:"p99_before_ms"`
	P99Event  float64  `json:"p99_first_seconds_ms"` // before anybody was held
	P99After  float64  `json:"p99_after_hold_ms"`    // from the first hold on; 0: nobody was held
	CannotFix int      `json:"cannot_fix"`
	LeftAlone []string `json:"left_alone,omitempty"` // suspects that were named but cannot be held
}

// Score is what one detector did in a round.
type Score struct {
	Named     []string `json:"named"` // in order
	Right     int      `json:"right"` // of them the antagonist
	Wrong     int      `json:"wrong"`
	ToName    float64  `json:"seconds_to_name"`    // first right name, from the event; -1: none
	ToRecover float64  `json:"seconds_to_recover"` // verified, from the event; -1: none
	// Lost is the CPU-seconds that innocents used less while held than at their rate
	// before; only what was in fact held can lose anything.
	Lost float64 `json:"innocent_cpu_seconds_lost"`
}

// Run plays the rounds.
func Run(ctx context.Context, o Options) ([]Round, error) {
	if err := CheckSeeds(o.FirstSeed, o.Rounds); err != nil {
		return nil, err
	}
	var rounds []Round
	for i := range o.Rounds {
		seed := o.FirstSeed + uint64(i)
		r, err := play(ctx, o, seed)
		if err != nil {
			return rounds, fmt.Errorf("first-light: seed %d: %w", seed, err)
		}
		if err := live(ctx, o, seed, r); err != nil {
			return rounds, fmt.Errorf("first-light: seed %d: %w", seed, err)
		}
		fmt.Fprintf(o.Log, "seed %3d  %-30s named %v right %d wrong %d\n", seed, r.Kind, r.Ours.Named, r.Ours.Right, r.Ours.Wrong)
		rounds = append(rounds, *r)
	}
	return rounds, nil
}

// Reported is from which seed on rounds are reported; parameters are chosen on those below (docs/FIRST-LIGHT.md).
const Reported = 1000

// CheckSeeds refuses a run that has seeds of both kinds: its figures would be neither a choice nor a proof.
func CheckSeeds(first uint64, n int) error {
	if first < Reported && first+uint64(n) > Reported {
		return fmt.Errorf("seeds %d to %d: those below %d are for choosing parameters and those from it on for reporting; expected one or the other", first, first+uint64(n)-1, Reported)
	}
	return nil
}

// open opens the scene of a round.
func open(ctx context.Context, o Options, seed uint64) (*scene.Scene, error) {
	round := &programme[seed%uint64(len(programme))]
	opt := round.set
	opt.Seed, opt.Agent, opt.For, opt.Log = seed, o.Agent, learnTime+eventTime+time.Minute, o.Log
	if round.kind == OwnFault && surges(seed) {
		opt.Rates = []load.RateStep{{At: learnTime, RatePerSec: surgeRate}}
	}
	return scene.Open(ctx, opt)
}

// play plays one round and judges it.
func play(ctx context.Context, o Options, seed uint64) (*Round, error) {
	sc, err := open(ctx, o, seed)
	if err != nil {
		return nil, err
	}
	r, err := perform(ctx, sc, o, seed)
	return r, errors.Join(err, sc.Close())
}

func perform(ctx context.Context, sc *scene.Scene, o Options, seed uint64) (*Round, error) {
	if err := sc.Protect(ctx, true); err != nil {
		return nil, err
	}
	if err := stage.Sleep(ctx, learnTime); err != nil {
		return nil, err
	}
	event := scene.Now()
	if err := provoke(sc, seed); err != nil {
		return nil, err
	}
	if err := stage.Sleep(ctx, eventTime); err != nil {
		return nil, err
	}
	end := scene.Now()
	out, err := sc.FinishLoad(ctx)
	if err != nil {
		return nil, err
	}
	if err := sc.FinishAgent(); err != nil {
		return nil, err
	}
	if o.Keep != "" {
		dir := filepath.Join(o.Keep, "seed-"+strconv.FormatUint(seed, 10))
		if err := os.CopyFS(dir, os.DirFS(sc.RecordPath())); err != nil {
			return nil, err
		}
	}
	t, err := trace.Read(sc.RecordPath())
	if err != nil {
		return nil, err
	}
	r := &Round{Seed: seed, Kind: KindOf(seed), Baselines: map[string]Score{}}
	if programme[seed%uint64(len(programme))].held {
		r.Antagonist = sc.Antagonist
	}
	judge(r, t, event, end)
	if err := baselines(r, sc.RecordPath(), event); err != nil {
		return nil, err
	}
	if err := sweep(r, sc.RecordPath(), event); err != nil {
		return nil, err
	}
	latencies(r, t, out, event, end)
	r.Scores, err = scores(sc.RecordPath(), r.Antagonist, event)
	return r, err
}

// provoke begins the event of a round.
func provoke(sc *scene.Scene, seed uint64) error {
	switch {
	case KindOf(seed) == NoAntagonist || KindOf(seed) == OwnFault && surges(seed):
		return nil // nothing happens, or the load has its own step
	case KindOf(seed) == OwnFault:
		return sc.Stage.Cgroups().WriteCPUMax(sc.Victim, cgroup.CPUMax{QuotaUsec: int64(tightCPU * 100_000), PeriodUsec: 100_000})
	}
	return sc.Provoke()
}

// latencies fills in what the clients saw.
func latencies(r *Round, t *trace.Trace, out *scene.LoadOutput, event, end int64) {
	p99 := func(from, to int64) float64 {
		s := out.Result.Between(time.Duration(from-out.StartNsec), time.Duration(to-out.StartNsec))
		return s.P99.Seconds() * 1e3
	}
	r.P99Before = p99(event-10e9, event)
	hold := end
	for _, h := range t.Holds {
		if h.FromNsec > event {
			hold = h.FromNsec
			r.P99After = p99(hold+1e9, end)
			break
		}
	}
	r.P99Event = p99(event, hold)
}
