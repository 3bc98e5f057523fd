package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/node/linux"
)

// The load of the host's part. Low is a fourteenth of two CPUs and high seven tenths: what
// the service wants goes from well under one core to well over.
const (
	lowCPU      = 0.14
	highCPU     = 1.40
	requestWork = 2 * time.Millisecond
)

// afterStep is how long after a step the tail is looked at.
const afterStep = 5 * time.Second

// hostSize is how much is played.
type hostSize struct {
	rounds    int // every arm once a round, in an order that is drawn
	arms      []Arm
	steps     int // a block of every other arm
	ourSteps  int // a block of ours: its steps are also hand-backs
	leadIn    time.Duration
	low, high time.Duration
}

func sizeOfHost(o Options) hostSize {
	s := hostSize{rounds: 4, arms: arms(), steps: 4, ourSteps: 15, leadIn: 2 * time.Second, low: 2500 * time.Millisecond, high: afterStep}
	switch {
	case o.Defaults:
		s.rounds, s.steps, s.ourSteps = 3, leastSteps/3, leastSteps/3
	case o.Quick:
		// One round, with as many hand-backs as a p99 wants.
		s.rounds, s.steps, s.ourSteps = 1, 2, leastSteps
	}
	return s
}

// block is one stretch of the host's part under one arm.
type block struct {
	arm      Arm
	from, to int64 // what is counted, CLOCK_MONOTONIC
	steps    []int64
	log      openloop.Log
	service  float64 // CPU-seconds from..to
	batch    float64
	stolen   float64 // share of all CPU time that the hypervisor took
	backs    []HandBack
	resizes  int
}

// host is the host's part in progress.
type host struct {
	opt     Options
	size    hostSize
	stage   *stage.Stage
	service string // cgroup paths
	batch   string
	work    *stage.Proc // the batch work
	rounds  float64     // of spin in a microsecond
	blocks  []block
}

// playHost plays the host's part. The host is left as it was found, also when the context
// is cancelled.
func playHost(ctx context.Context, o Options, size hostSize) ([]block, error) {
	st, err := stage.Open(o.Log)
	if err != nil {
		return nil, err
	}
	h := &host{opt: o, size: size, stage: st}
	err = errors.Join(h.play(ctx), st.Close())
	return h.blocks, err
}

func (h *host) play(ctx context.Context) error {
	if err := h.open(); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(h.opt.Seed, 0x686f7374))
	for round := range h.size.rounds {
		list := slices.Clone(h.size.arms)
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		seed := rng.Uint64()
		for _, arm := range list {
			fmt.Fprintf(h.opt.Log, "host: round %d of %d, %s\n", round+1, h.size.rounds, arm)
			b := block{arm: arm}
			if err := h.block(ctx, &b, seed, len(h.blocks)); err != nil {
				return fmt.Errorf("partition: %s: %w", arm, err)
			}
			h.blocks = append(h.blocks, b)
		}
	}
	return nil
}

// open makes the groups and starts the batch work, which waits.
func (h *host) open() error {
	var err error
	if h.service, err = h.stage.Group("service"); err != nil {
		return err
	}
	if h.batch, err = h.stage.Group("batch"); err != nil {
		return err
	}
	h.rounds = openloop.Calibrate()
	// Twice as many threads as CPUs: it takes what it can get.
	h.work, err = openloop.Burn(h.stage, h.batch, "batch", 2*runtime.NumCPU())
	return err
}

// block plays one block.
func (h *host) block(ctx context.Context, b *block, seed uint64, number int) error {
	undo, a, err := h.begin(ctx, b.arm, number)
	if err == nil {
		err = h.serve(ctx, b, seed, number)
	}
	if err = errors.Join(err, undo()); a != nil && h.opt.Keep != "" {
		err = errors.Join(err, a.Keep(filepath.Join(h.opt.Keep, strconv.Itoa(number))))
	}
	if err != nil || a == nil {
		return err
	}
	w, err := readWrites(a.RecordPath(), h.service, h.batch)
	if err != nil {
		return err
	}
	b.resizes = w.resizes(b.from, b.to)
	for _, s := range b.steps {
		b.backs = append(b.backs, handBack(s, h.size.high, w.service, w.batch, b.log.Moves))
	}
	return nil
}

// begin puts an arm in force and returns what ends it.
func (h *host) begin(ctx context.Context, arm Arm, number int) (undo func() error, a *stage.Agent, err error) {
	cg := h.stage.Cgroups()
	nothing := func() error { return nil }
	switch arm {
	case ArmAlone:
		h.work.Signal(syscall.SIGSTOP)
		return func() error { h.work.Signal(syscall.SIGCONT); return nil }, nil, nil
	case ArmIdle:
		return func() error { return cg.WriteIdle(h.batch, false) }, nil, cg.WriteIdle(h.batch, true)
	case ArmShares:
		found, err := cg.ReadShares(h.batch)
		if err != nil {
			return nothing, nil, err
		}
		return func() error { return cg.WriteShares(h.batch, found) }, nil, cg.WriteShares(h.batch, leastShares)
	case ArmOurs:
		a, err := startAgent(ctx, h, number)
		if err != nil {
			return nothing, nil, err
		}
		return a.Finish, a, nil
	}
	return nothing, nil, nil
}

// load is what a block plays under an arm.
func (h *host) load(arm Arm, seed uint64) Load {
	l := Load{
		Seed: seed, Low: lowCPU / requestWork.Seconds(), High: highCPU / requestWork.Seconds(), Work: requestWork,
		LeadIn: h.size.leadIn, LowFor: h.size.low, HighFor: h.size.high, Steps: h.size.steps,
	}
	if arm == ArmOurs {
		l.Steps = h.size.ourSteps
	}
	return l
}

// catchUp is how long a service that fell behind may take until it ends: its patience, and
// the time that a busy machine takes for the rest.
const catchUp = patience + 30*time.Second

// serveThreads is how many requests the service has under way at once: more than this
// host's CPUs, as those of most services.
const serveThreads = 4

// patience is for how long after a block what it left is still served. Requests that are
// given up count with the time until then.
const patience = 10 * time.Second

// startIn is how long the service's process has to start.
const startIn = time.Second

// serve runs the service for a block.
func (h *host) serve(ctx context.Context, b *block, seed uint64, number int) error {
	load := h.load(b.arm, seed)
	start := linux.MonotonicNsec() + startIn.Nanoseconds()
	o := openloop.Order{
		Threads: serveThreads, StartNsec: start, EndNsec: start + (load.length() + patience).Nanoseconds(),
		RoundsPerUsec: h.rounds, Moves: true, Requests: load.arrivals(),
	}
	b.from, b.to = start+load.LeadIn.Nanoseconds(), start+load.length().Nanoseconds()
	for _, s := range load.steps() {
		b.steps = append(b.steps, start+s)
	}
	p, err := openloop.Start(h.stage, h.service, "service-"+strconv.Itoa(number), &o)
	if err != nil {
		return err
	}
	defer p.Stop()
	before, err := h.after(ctx, b.from)
	if err != nil {
		return err
	}
	after, err := h.after(ctx, b.to)
	if err != nil {
		return err
	}
	b.service, b.batch = after.service-before.service, after.batch-before.batch
	b.stolen = (after.steal - before.steal) / float64(runtime.NumCPU()) / (float64(b.to-b.from) / 1e9)
	wait, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	log, err := p.Finish(wait)
	if err != nil {
		return err
	}
	b.log = *log
	return nil
}

// used is what was used up to a time, in CPU-seconds.
type used struct{ service, batch, steal float64 }

// after waits until a time and reads what was used until then.
func (h *host) after(ctx context.Context, nsec int64) (used, error) {
	var u used
	if err := stage.Sleep(ctx, time.Duration(nsec-linux.MonotonicNsec())); err != nil {
		return u, err
	}
	service, err := h.stage.UsageNsec(h.service)
	if err != nil {
		return u, err
	}
	batch, err := h.stage.UsageNsec(h.batch)
	if err != nil {
		return u, err
	}
	u.service, u.batch = float64(service)/1e9, float64(batch)/1e9
	u.steal, err = stealSeconds(hostfs.NewRoot("/"))
	return u, err
}

// stealSeconds returns how much CPU time the hypervisor took since boot, of all CPUs.
func stealSeconds(fs hostfs.FS) (float64, error) {
	r, err := procstat.Open(fs)
	if err != nil {
		return 0, err
	}
	st, err := r.Read()
	return float64(st.Total.StealNsec()) / 1e9, errors.Join(err, r.Close())
}
