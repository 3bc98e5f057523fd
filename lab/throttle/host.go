package throttle

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/node/linux"
)

// hostTimes is how long the parts of a run on this host take.
type hostTimes struct {
	rounds        int
	lead, measure time.Duration // of a block; what happens in the lead is not counted
	step          time.Duration // of a rate of figure 13; 0: by Quick
}

// AIMD works in steps of 5 s from the limits that it finds: the lead lets it settle, and is
// the same for all columns.
func (o *Options) hostTimes() hostTimes {
	switch {
	case o.host.rounds > 0:
		return o.host
	case o.Quick:
		return hostTimes{rounds: 1, lead: 25 * time.Second, measure: 10 * time.Second}
	}
	return hostTimes{rounds: 3, lead: 30 * time.Second, measure: 15 * time.Second}
}

// settleTime is for the processes to start, before the first request is due.
const settleTime = 1500 * time.Millisecond

// sampleEvery is the finer of the two intervals of figure 12.
const sampleEvery = 50 * time.Millisecond

// hostLab is the stage on which blocks are played.
type hostLab struct {
	opt   *Options
	stage *stage.Stage
	stat  *procstat.Reader
	load  Workload
	times hostTimes
	cpus  int
}

func openLab(o *Options) (*hostLab, error) {
	st, err := stage.Open(o.Log)
	if err != nil {
		return nil, err
	}
	stat, err := procstat.Open(hostfs.NewRoot("/"))
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	n := runtime.NumCPU()
	return &hostLab{opt: o, stage: st, stat: stat, load: hostWorkload(n), times: o.hostTimes(), cpus: n}, nil
}

func (b *hostLab) close() error { return b.stage.Close() }

// instances is the instances of one block on the stage.
type instances struct {
	lab    *hostLab
	name   string
	list   []Instance
	paths  []string
	orders []*openloop.Order
	procs  []*openloop.Service
	groups []cgroup.Group
	limits []cgroup.CPUMax // that they began with
	start  int64
	length time.Duration
}

// start makes a group with its quota for each instance and starts them all; their requests
// begin at the same moment, a little later.
func (b *hostLab) start(name string, list []Instance, limits []cgroup.CPUMax, length time.Duration) (*instances, error) {
	t := &instances{lab: b, name: name, list: list, limits: limits, length: length, start: linux.MonotonicNsec() + int64(settleTime)}
	for i := range list {
		group := name + "-" + list[i].Name
		path, err := b.stage.Group(group)
		if err != nil {
			return t, err
		}
		t.paths = append(t.paths, path)
		if err := b.stage.Cgroups().WriteCPUMax(path, limits[i]); err != nil {
			return t, fmt.Errorf("throttle: %w", err)
		}
		g, err := b.stage.Cgroups().Open(path)
		if err != nil {
			return t, fmt.Errorf("throttle: %w", err)
		}
		t.groups = append(t.groups, g)
		o := list[i].order(t.start, length)
		p, err := openloop.Start(b.stage, path, group, o)
		if err != nil {
			return t, err
		}
		t.orders, t.procs = append(t.orders, o), append(t.procs, p)
	}
	return t, nil
}

// plain are the limits that a container runtime would give: a quota, no burst.
func plain(list []Instance) []cgroup.CPUMax {
	limits := make([]cgroup.CPUMax, len(list))
	for i := range list {
		limits[i] = cgroup.CPUMax{QuotaUsec: list[i].QuotaUsec, PeriodUsec: list[i].PeriodUsec}
	}
	return limits
}

// until waits until so long after the start.
func (t *instances) until(ctx context.Context, at time.Duration) error {
	return stage.Sleep(ctx, time.Duration(t.start+int64(at)-linux.MonotonicNsec()))
}

// read takes one reading.
func (t *instances) read(throttling bool) (Reading, error) {
	r := Reading{MonoNsec: linux.MonotonicNsec(), UsageNsec: make([]uint64, len(t.groups))}
	var err error
	for i, g := range t.groups {
		if r.UsageNsec[i], err = g.UsageNsec(); err != nil {
			return r, err
		}
	}
	if !throttling {
		return r, nil
	}
	r.Stat = make([]cgroup.CPUStat, len(t.groups))
	for i, g := range t.groups {
		s, err := g.Throttling()
		if err != nil {
			return r, err
		}
		r.Stat[i] = s.Own
	}
	s, err := t.lab.stat.Read()
	r.OtherNsec = s.Total.BusyNsec() + s.Total.StealNsec()
	return r, err
}

// sample reads every 50 ms for so long, the throttling at both ends and every 5 s.
func (t *instances) sample(ctx context.Context, length time.Duration) ([]Reading, error) {
	begin := linux.MonotonicNsec()
	ticks := int(length / sampleEvery)
	list := make([]Reading, 0, ticks+1)
	for i := range ticks + 1 {
		if err := stage.Sleep(ctx, time.Duration(begin+int64(i)*int64(sampleEvery)-linux.MonotonicNsec())); err != nil {
			return nil, err
		}
		r, err := t.read(i%int(windowTime/sampleEvery) == 0 || i == ticks)
		if err != nil {
			return nil, fmt.Errorf("throttle: %w", err)
		}
		list = append(list, r)
	}
	return list, nil
}

// finish waits for the instances and returns what became of their requests.
func (t *instances) finish(ctx context.Context) ([][]Response, error) {
	ctx, cancel := context.WithTimeout(ctx, grace+10*time.Second+time.Duration(max(0, t.start+int64(t.length)-linux.MonotonicNsec())))
	defer cancel()
	out := make([][]Response, len(t.procs))
	for i, p := range t.procs {
		log, err := p.Finish(ctx)
		if err != nil {
			return nil, fmt.Errorf("throttle: %w", err)
		}
		out[i] = responses(t.orders[i], log)
	}
	return out, nil
}

// stop ends what still runs and removes the groups.
func (t *instances) stop() error {
	var errs []error
	for _, g := range t.groups {
		errs = append(errs, g.Close())
	}
	for _, p := range t.procs {
		p.Stop()
	}
	for _, path := range t.paths {
		errs = append(errs, t.lab.stage.Cgroups().Rmdir(path))
	}
	return errors.Join(errs...)
}

// limitsNow reads the limits in force.
func (t *instances) limitsNow() ([]cgroup.CPUMax, error) {
	list := make([]cgroup.CPUMax, len(t.paths))
	var err error
	for i, path := range t.paths {
		if list[i], err = t.lab.stage.Cgroups().ReadCPUMax(path); err != nil {
			return nil, fmt.Errorf("throttle: %w", err)
		}
	}
	return list, nil
}

// putBack says which limit is not what it was before the agent came.
func (t *instances) putBack() error {
	now, err := t.limitsNow()
	if err != nil {
		return err
	}
	for i := range now {
		if now[i] != t.limits[i] {
			return fmt.Errorf("throttle: the agent ended and left %s with %s; it was %s", t.paths[i], now[i], t.limits[i])
		}
	}
	return nil
}

// block plays one column once.
func (b *hostLab) block(ctx context.Context, c Column, round int, seed uint64) (out *Block, readings []Reading, err error) {
	list := b.load.Draw(seed, uint64(round))
	length := b.times.lead + b.times.measure
	t, err := b.start(fmt.Sprintf("pool-%d-%d", round, slices.Index(columns(), c)), list, plain(list), length)
	defer func() { err = errors.Join(err, t.stop()) }()
	if err != nil {
		return nil, nil, err
	}
	agent, err := b.direct(ctx, t, t.name+"-*", c)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if agent != nil {
			err = errors.Join(err, agent.Finish())
		}
	}()
	out = &Block{Column: c, Round: round, Instances: make([]InstanceBlock, len(list))}
	if err := t.until(ctx, b.times.lead); err != nil {
		return nil, nil, err
	}
	if readings, err = t.sample(ctx, b.times.measure); err != nil {
		return nil, nil, err
	}
	limits, err := t.limitsNow()
	if err != nil {
		return nil, nil, err
	}
	err, agent = agent.Finish(), nil
	if err = errors.Join(err, t.putBackUnless(err)); err != nil {
		return nil, nil, err
	}
	served, err := t.finish(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		out.Instances[i].Name = list[i].Name
		out.Instances[i].answer(served[i], b.times.lead)
		out.Quota += float64(limits[i].QuotaUsec) / float64(list[i].QuotaUsec) / float64(len(list))
		out.BurstK += float64(limits[i].BurstUsec) / float64(list[i].QuotaUsec) / float64(len(list))
	}
	out.use(readings, b.load.PoolCPUs, time.Duration(b.load.PeriodUsec)*time.Microsecond, total)
	return out, readings, nil
}

// putBackUnless checks the limits unless the agent's end failed already.
func (t *instances) putBackUnless(err error) error {
	if err != nil {
		return nil
	}
	return t.putBack()
}

// playHost plays all columns by turns.
func playHost(ctx context.Context, o *Options) (h *Host, err error) {
	b, err := openLab(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	h = &Host{CPUs: b.cpus, Layout: b.stage.Cgroups().Layout().String(), Load: b.load}
	list := b.load.Draw(o.Seed, 0)
	h.Burstiest = burstiest(list, 2*time.Minute, theBurstiest)
	for round := range b.times.rounds {
		for _, c := range columns() {
			fmt.Fprintf(o.Log, "round %d of %d: %s (%.0f s)\n", round+1, b.times.rounds, c, (settleTime + b.times.lead + b.times.measure + grace).Seconds())
			block, readings, err := b.block(ctx, c, round, o.Seed)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", c, round+1, err)
			}
			h.Blocks = append(h.Blocks, *block)
			if round == 0 && (c == Default || c == All) {
				h.Jitter = append(h.Jitter, jitterOf(c, &list[h.Burstiest[0]], readings, h.Burstiest[0]))
			}
		}
	}
	h.Columns = Summarise(h.Blocks, h.Burstiest)
	if h.Buckets, err = b.playBuckets(ctx); err != nil {
		return nil, fmt.Errorf("bucket sizes: %w", err)
	}
	return h, nil
}
