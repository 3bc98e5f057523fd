package reclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// Region is memory that was not seen in use in the last aggregation interval.
type Region struct {
	Range
	Accesses uint64 // looks that found it in use: 0
	// Idle is for how long: whole aggregation intervals. It is an estimate: one page
	// of a region is looked at at a time, and where regions are joined their ages are
	// averaged.
	Idle time.Duration
}

// Regions returns the idle regions of a target, by address. It waits for the kdamond: up
// to two aggregation intervals. A process that has ended gives ErrNotWatching.
func (s *DAMONSession) Regions(ctx context.Context, target int) ([]Region, error) {
	if target < 0 || target >= len(s.targets) {
		return nil, fmt.Errorf("read DAMON's regions: %w: target %d of %d", ErrBadAsk, target, len(s.targets))
	}
	if err := s.command(ctx, target, "update_schemes_tried_regions", nil); err != nil {
		return nil, err
	}
	list, err := s.readRegions(target)
	if err != nil {
		return nil, fmt.Errorf("read DAMON's regions: %w", err)
	}
	// The kernel keeps a folder a region until it is told not to.
	return list, s.command(ctx, target, "clear_schemes_tried_regions", nil)
}

func (s *DAMONSession) readRegions(target int) ([]Region, error) {
	dir := scheme(target) + "/tried_regions"
	entries, err := s.d.fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []Region
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name, 10, 32); err != nil || !e.IsDir {
			continue // total_bytes
		}
		var r Region
		var age uint64
		for _, f := range []struct {
			name string
			dst  *uint64
		}{{"start", &r.Start}, {"end", &r.End}, {"nr_accesses", &r.Accesses}, {"age", &age}} {
			if *f.dst, err = s.d.number(dir + "/" + e.Name + "/" + f.name); err != nil {
				return nil, err
			}
		}
		if r.End < r.Start {
			return nil, fmt.Errorf("%w: %s/%s: from %#x to %#x", cgroup.ErrMalformed, dir, e.Name, r.Start, r.End)
		}
		r.Idle = intervals(age, s.config.Aggregate)
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Region) int { return cmp.Compare(a.Start, b.Start) })
	return list, nil
}

// intervals multiplies without overflow.
func intervals(n uint64, d time.Duration) time.Duration {
	if n > uint64(math.MaxInt64/d) {
		return math.MaxInt64
	}
	return time.Duration(n) * d
}

// DAMONAges is the Source that a running session makes: the ages of the processes that it
// watches.
//
// What of a region is in memory, and of which kind, is read from the process's pagemap at
// the same time. AtLeast counts the memory of idle regions that are at least half in
// memory, and only pages that no other process maps: those that one process left idle may
// be in use by another. AtMost is all that the group has but what was seen in use. Page
// cache that no process maps is never watched, nor are processes that were not there when
// the session began.
type DAMONAges struct {
	session *DAMONSession
	memory  *Memory
	procs   func(group string) ([]int32, error)
}

var _ Source = (*DAMONAges)(nil)

// NewDAMONAges returns a Source. procs lists the processes of a group and its descendants.
func NewDAMONAges(s *DAMONSession, m *Memory, procs func(group string) ([]int32, error)) *DAMONAges {
	return &DAMONAges{session: s, memory: m, procs: procs}
}

// Name implements Source.
func (a *DAMONAges) Name() string { return "damon" }

// Ages implements Source. It waits for each watched process of the group: up to two
// aggregation intervals each. A group none of whose processes is watched gives
// ErrNotWatching.
func (a *DAMONAges) Ages(ctx context.Context, group string, durations []time.Duration) (Ages, error) {
	if err := checkDurations(durations); err != nil {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, err)
	}
	procs, err := a.procs(group)
	if err != nil {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, err)
	}
	meter, err := a.memory.OpenMeter(group)
	if err != nil {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, err)
	}
	var stat Stat
	if err := errors.Join(meter.Stat(&stat), meter.Close()); err != nil {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, err)
	}
	out := Ages{Source: "damon", Sampled: true, Anon: make([]Idle, len(durations)), File: make([]Idle, len(durations))}
	for i := range durations {
		out.Anon[i].AtMostBytes, out.File[i].AtMostBytes = stat.Anon.Bytes, stat.File.Bytes
	}
	watched := 0
	for i, t := range a.session.targets {
		if !slices.Contains(procs, t.PID) {
			continue
		}
		err := a.addProcess(ctx, i, durations, &out)
		if errors.Is(err, ErrNotWatching) {
			continue // it ended since it was listed
		}
		if err != nil {
			return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, err)
		}
		watched++
	}
	if watched == 0 {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w: processes: %d, watched: 0", group, ErrNotWatching, len(procs))
	}
	for i := range durations {
		out.Anon[i].settle(stat.Anon.Bytes)
		out.File[i].settle(stat.File.Bytes)
	}
	// What was looked at last may be one sampling interval old.
	out.AsOf = a.session.config.Sample
	if watched < len(procs) {
		out.Note = fmt.Sprintf("processes: %d, watched: %d", len(procs), watched)
	}
	return out, nil
}

// settle keeps the bounds in order and within what the group has: readings are not of one
// moment.
func (i *Idle) settle(most uint64) {
	i.AtLeastBytes = min(i.AtLeastBytes, most)
	i.AtMostBytes = max(i.AtMostBytes, i.AtLeastBytes)
}

// addProcess adds what one process has idle to AtLeast, and takes what it has in use off
// AtMost.
func (a *DAMONAges) addProcess(ctx context.Context, target int, durations []time.Duration, out *Ages) error {
	regions, err := a.session.Regions(ctx, target)
	if err != nil {
		return err
	}
	pages, err := openPagemap(a.session.d.fs, a.session.targets[target].PID)
	if err != nil {
		return err
	}
	return errors.Join(a.addRegions(ctx, pages, target, regions, durations, out), pages.close())
}

func (a *DAMONAges) addRegions(ctx context.Context, pages *pagemap, target int, regions []Region, durations []time.Duration, out *Ages) error {
	var all resident
	for _, r := range a.session.watched(target) {
		res, err := pages.count(ctx, r)
		if err != nil {
			return err
		}
		all.ownAnon += res.ownAnon
		all.ownFile += res.ownFile
	}
	idle := make([]resident, len(durations))
	for _, r := range regions {
		res, err := pages.count(ctx, r.Range)
		if err != nil {
			return err
		}
		out.Horizon = max(out.Horizon, r.Idle)
		for j, d := range durations {
			if r.Idle < d {
				continue
			}
			idle[j].ownAnon += res.ownAnon
			idle[j].ownFile += res.ownFile
			if res.dense(r.Range) {
				out.Anon[j].AtLeastBytes += res.ownAnon
				out.File[j].AtLeastBytes += res.ownFile
			}
		}
	}
	for j := range durations {
		out.Anon[j].inUse(all.ownAnon, idle[j].ownAnon)
		out.File[j].inUse(all.ownFile, idle[j].ownFile)
	}
	return nil
}

// inUse takes what is watched and not idle off the upper bound.
func (i *Idle) inUse(all, idle uint64) {
	used := all - min(all, idle)
	i.AtMostBytes -= min(i.AtMostBytes, used)
}
