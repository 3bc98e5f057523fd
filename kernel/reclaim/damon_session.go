package reclaim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// DAMONConfig is how DAMON watches. Its cost, the kernel thread's CPU time (see Kdamond), is
// bounded by MaxRegions samples a Sample interval and target.
type DAMONConfig struct {
	// Sample is the time between two looks at one page of each region.
	Sample time.Duration
	// Aggregate is the time over which looks are counted, and the unit of ages. What
	// takes a command to the kernel waits up to twice as long.
	Aggregate time.Duration
	// Update is the time between two looks at the target's mappings.
	Update time.Duration
	// MinRegions and MaxRegions bound the regions of a target. Idle memory is told
	// from busy memory by whole regions.
	MinRegions, MaxRegions uint64
}

// DefaultDAMONConfig suits ages of minutes to hours: 500 regions, one look a second each.
func DefaultDAMONConfig() DAMONConfig {
	return DAMONConfig{Sample: time.Second, Aggregate: 10 * time.Second, Update: time.Minute, MinRegions: 10, MaxRegions: 500}
}

// Bounds of a configuration.
const (
	minSample    = time.Millisecond
	maxAggregate = time.Minute
	maxRegions   = 10000
)

func (c DAMONConfig) check() error {
	switch {
	case c.Sample < minSample || c.Aggregate < c.Sample || c.Update < c.Aggregate || c.Aggregate > maxAggregate:
		return fmt.Errorf("%w: intervals %v, %v, %v: want %v <= sample <= aggregate <= update, and aggregate <= %v",
			ErrBadAsk, c.Sample, c.Aggregate, c.Update, minSample, maxAggregate)
	case c.MinRegions < 3 || c.MaxRegions < c.MinRegions || c.MaxRegions > maxRegions:
		return fmt.Errorf("%w: %d to %d regions: want 3 to %d", ErrBadAsk, c.MinRegions, c.MaxRegions, maxRegions)
	}
	return nil
}

// Range is memory from Start to before End.
type Range struct {
	Start, End uint64
}

// DAMONTarget is what one kdamond watches: the memory of a process, in the ranges of virtual
// memory that are at least half in memory when it starts ("fvaddr"). DAMON's own choice ("vaddr", all mappings but two large gaps)
// cannot be used: it samples pages by chance, and programs that reserve address space, as
// Go's and Java's do, have gigabytes of holes a region. Seen on 6.12: 8 MiB in use all the
// time, in one region with 23 GiB reserved, were told as idle, and "fvaddr" told them right.
type DAMONTarget struct{ PID int32 }

// DAMONSession is DAMON at work for us. Its methods are safe for concurrent use; commands
// to the kernel go one at a time.
type DAMONSession struct {
	d       *DAMON
	claim   Claim
	config  DAMONConfig
	targets []DAMONTarget
	mu      sync.Mutex // held during a command
	ranges  [][]Range  // of each target, what is watched
	closed  bool
}

// Start makes one kdamond a target, as many as the claim says, and switches them on. The
// claim must stand in the caller's journal before. When DAMON is somebody else's the error
// is ErrOwned, and nothing was touched; a process that has ended gives ErrNotWatching. On
// any error what was made is removed. Processes' page tables are walked: it blocks.
func (d *DAMON) Start(ctx context.Context, c Claim, config DAMONConfig, targets []DAMONTarget) (*DAMONSession, error) {
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("start DAMON: %w", err)
	}
	if !c.Mark.valid() || c.Kdamonds != len(targets) || len(targets) == 0 || len(targets) > maxKdamonds {
		return nil, fmt.Errorf("start DAMON: %w: mark %#x, %d kdamonds for %d targets, want 1 to %d",
			ErrBadAsk, uint64(c.Mark), c.Kdamonds, len(targets), maxKdamonds)
	}
	s := &DAMONSession{d: d, claim: c, config: config, targets: targets}
	// Looking for the memory takes time, in which somebody may come: look again after.
	for _, step := range []func() error{d.free, func() error { return s.find(ctx) }, d.free} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("start DAMON: %w", err)
		}
	}
	if err := s.write(damonCount, strconv.Itoa(len(targets))); err != nil {
		if errors.Is(err, unix.EBUSY) { // somebody was quicker, and runs
			err = fmt.Errorf("%w: %w", ErrOwned, err)
		}
		return nil, fmt.Errorf("start DAMON: %w", err)
	}
	if err := s.make(); err != nil {
		return nil, fmt.Errorf("start DAMON: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

// free fails unless nobody uses DAMON.
func (d *DAMON) free() error {
	state, err := d.Look(Claim{})
	if err == nil && state.Owner != Free {
		err = fmt.Errorf("%w: %s", ErrOwned, state.Why)
	}
	return err
}

// find finds what is to be watched.
func (s *DAMONSession) find(ctx context.Context) error {
	for _, t := range s.targets {
		ranges, err := denseRanges(ctx, s.d.fs, t.PID, s.maxRanges())
		if err != nil {
			return err
		}
		s.ranges = append(s.ranges, ranges)
	}
	return nil
}

// maxRanges leaves DAMON room to split each range once.
func (s *DAMONSession) maxRanges() int { return int(s.config.MaxRegions / 2) }

// Refresh looks anew where the memory of a process is, and watches that: memory allocated
// since Start, or since the last Refresh, is not watched otherwise. Ranges that are watched
// already keep their ages (Linux 6.11; before, they may begin anew). It waits for the
// kdamond: up to two aggregation intervals.
func (s *DAMONSession) Refresh(ctx context.Context, target int) error {
	if target < 0 || target >= len(s.targets) {
		return fmt.Errorf("refresh DAMON's ranges: %w: target %d of %d", ErrBadAsk, target, len(s.targets))
	}
	ranges, err := denseRanges(ctx, s.d.fs, s.targets[target].PID, s.maxRanges())
	if err != nil {
		return fmt.Errorf("refresh DAMON's ranges: %w", err)
	}
	return s.command(ctx, target, "commit", func() error {
		s.ranges[target] = ranges
		return s.writeRanges(target, ranges)
	})
}

// watched returns what is watched of a target.
func (s *DAMONSession) watched(target int) []Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ranges[target]
}

// make marks, sets up and starts, in this order.
func (s *DAMONSession) make() error {
	for i := range s.targets {
		if err := s.mark(i); err != nil {
			return err
		}
	}
	if _, err := s.d.fs.Inode(scheme(0) + "/tried_regions"); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it does not tell regions (Linux 6.2 does): %w", ErrNoDAMON, err)
	}
	for i := range s.targets {
		if err := s.setUp(i); err != nil {
			return err
		}
	}
	for i := range s.targets {
		err := s.write(instance(i)+"/state", "on")
		if errors.Is(err, unix.EBUSY) { // one of DAMON's users inside the kernel
			return fmt.Errorf("%w: %w", ErrOwned, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mark marks a new kdamond as ours.
func (s *DAMONSession) mark(i int) error {
	return s.writeAll([][2]string{
		{instance(i) + "/contexts/nr_contexts", "1"},
		{instance(i) + "/contexts/0/schemes/nr_schemes", "1"},
		{scheme(i) + "/access_pattern/sz/max", strconv.FormatUint(uint64(s.claim.Mark), 10)},
	})
}

// setUp configures a kdamond: its scheme counts what is idle and does nothing else.
func (s *DAMONSession) setUp(i int) error {
	usec := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	at := instance(i) + "/contexts/0"
	list := [][2]string{
		{at + "/operations", "fvaddr"},
		{at + "/monitoring_attrs/intervals/sample_us", usec(s.config.Sample)},
		{at + "/monitoring_attrs/intervals/aggr_us", usec(s.config.Aggregate)},
		{at + "/monitoring_attrs/intervals/update_us", usec(s.config.Update)},
		// max first: the kernel's own min is below any of ours.
		{at + "/monitoring_attrs/nr_regions/max", strconv.FormatUint(s.config.MaxRegions, 10)},
		{at + "/monitoring_attrs/nr_regions/min", strconv.FormatUint(s.config.MinRegions, 10)},
		{scheme(i) + "/action", "stat"},
		{scheme(i) + "/access_pattern/sz/min", "0"},
		{scheme(i) + "/access_pattern/nr_accesses/min", "0"},
		{scheme(i) + "/access_pattern/nr_accesses/max", "0"},
		{scheme(i) + "/access_pattern/age/min", "0"},
		{scheme(i) + "/access_pattern/age/max", strconv.FormatUint(math.MaxUint32, 10)},
		{at + "/targets/nr_targets", "1"},
	}
	if pid := s.targets[i].PID; pid != 0 {
		list = append(list, [2]string{at + "/targets/0/pid_target", strconv.Itoa(int(pid))})
	}
	if err := s.writeAll(list); err != nil {
		return err
	}
	return s.writeRanges(i, s.ranges[i])
}

// writeRanges says what is to be watched of a target.
func (s *DAMONSession) writeRanges(i int, ranges []Range) error {
	at := instance(i) + "/contexts/0/targets/0/regions/"
	list := [][2]string{{at + "nr_regions", strconv.Itoa(len(ranges))}}
	for j, r := range ranges {
		list = append(list, [2]string{at + strconv.Itoa(j) + "/start", strconv.FormatUint(r.Start, 10)},
			[2]string{at + strconv.Itoa(j) + "/end", strconv.FormatUint(r.End, 10)})
	}
	return s.writeAll(list)
}

// writeAll writes files and their values, in order.
func (s *DAMONSession) writeAll(list [][2]string) error {
	for _, w := range list {
		if err := s.write(w[0], w[1]); err != nil {
			return err
		}
	}
	return nil
}

func (s *DAMONSession) write(path, value string) error {
	return patient(busyWait, func() error { return s.d.fs.WriteFile(path, []byte(value)) })
}

// Kdamond returns the process id of the kernel thread that watches a target, so that its
// CPU time can be told; 0 when it has ended, as it does when its process has.
func (s *DAMONSession) Kdamond(target int) (int, error) {
	text, err := s.d.text(instance(target) + "/pid")
	if err != nil {
		return 0, fmt.Errorf("find kdamond: %w", err)
	}
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 0 {
		return 0, nil // -1
	}
	return pid, nil
}

// Close switches our kdamonds off and removes them, if they are still ours: when somebody
// else's have taken their place the error is ErrOwned, and nothing is touched. It waits for
// a command under way.
func (s *DAMONSession) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("close DAMON: %w", fs.ErrClosed)
	}
	s.closed = true
	return s.d.remove(s.claim)
}

// Reap removes what a dead run left behind, recognised by the claim in its journal. There
// being nothing is no error. Somebody else's gives ErrOwned, and is not touched.
func (d *DAMON) Reap(c Claim) error {
	err := d.remove(c)
	if errors.Is(err, ErrNoDAMON) {
		return nil
	}
	return err
}

func (d *DAMON) remove(c Claim) error {
	state, err := d.Look(c)
	if err != nil {
		return err
	}
	switch {
	case state.Kdamonds == 0:
		return nil
	case state.Owner != Ours:
		return fmt.Errorf("remove DAMON instances: %w: %s", ErrOwned, state.Why)
	}
	s := &DAMONSession{d: d, claim: c}
	var errs []error
	for i := range state.Kdamonds {
		text, err := d.text(instance(i) + "/state")
		if err == nil && text == "on" {
			err = s.write(instance(i)+"/state", "off")
			if now, readErr := d.text(instance(i) + "/state"); readErr == nil && now == "off" {
				err = nil // it ended by itself meanwhile, with its process
			}
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("switch DAMON off: %w", err)
	}
	if err := s.write(damonCount, "0"); err != nil {
		return fmt.Errorf("remove DAMON instances: %w", err)
	}
	return nil
}

// command prepares (with prepare, if any), gives a kdamond a command and waits until it has
// carried it out. The kernel cannot be interrupted meanwhile: when the context ends first, its error is returned, and
// the next command, and Close, wait for this one.
func (s *DAMONSession) command(ctx context.Context, target int, name string, prepare func() error) error {
	done := make(chan error, 1)
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		done <- s.commandLocked(target, name, prepare)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("DAMON %s: %w", name, ctx.Err())
	}
}

func (s *DAMONSession) commandLocked(target int, name string, prepare func() error) error {
	if s.closed {
		return fmt.Errorf("DAMON %s: %w", name, fs.ErrClosed)
	}
	k, err := s.d.lookAt(target, s.claim.Mark)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !k.marked {
		return fmt.Errorf("DAMON %s: %w: kdamond %d does not bear our mark any more", name, ErrOwned, target)
	}
	if err != nil {
		return fmt.Errorf("DAMON %s: %w", name, err)
	}
	if !k.running {
		return fmt.Errorf("DAMON %s: %w: the kdamond has ended, as it does with its process", name, ErrNotWatching)
	}
	if prepare != nil {
		if err := prepare(); err != nil {
			return fmt.Errorf("DAMON %s: %w", name, err)
		}
	}
	if err := s.write(instance(target)+"/state", name); err != nil {
		return fmt.Errorf("DAMON %s: %w", name, err)
	}
	return nil
}
