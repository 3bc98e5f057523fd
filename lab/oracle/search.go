package oracle

import (
	"context"
	"slices"
)

// The grid of the search.
var (
	gridWays   = []int{2, 5, 8, allWays}
	gridLevels = []int{10, 30, 60, 100}
	gridCPUs   = []float64{0.25, 0.5, 1}
)

// pagesAway are the shares of a task's pages on the other socket that are searched.
var pagesAway = []float64{0, 0.5, 1}

// search finds the best fixed division, and with placed the best places, too; ok is false where none misses no target: then it is the one that misses least.
func (w *world) search(ctx context.Context, placed bool) (best []Share, where []Place, ok bool, err error) {
	off, err := w.fixed(ctx, w.shares(Share{allWays, 100, 1}), nil, searchSeconds, searchLast)
	if err != nil {
		return nil, nil, false, err
	}
	if placed {
		where = make([]Place, len(w.shares(Share{})))
	}
	work, missed := -1.0, 2.0
	try := func(shares []Share, places []Place) (better bool, err error) {
		out, err := w.fixed(ctx, shares, places, searchSeconds, searchLast)
		if err != nil {
			return false, err
		}
		did := beside(out.each, off.each)
		if good := out.Missed <= mostMissed; good && (!ok || did > work) || !good && !ok && out.Missed < missed {
			best, where, work, missed, ok = slices.Clone(shares), slices.Clone(places), did, out.Missed, good
			return true, nil
		}
		return false, nil
	}
	for _, ways := range gridWays {
		for _, level := range gridLevels {
			for _, cpus := range gridCPUs {
				if _, err := try(w.shares(Share{ways, level, cpus}), where); err != nil {
					return nil, nil, false, err
				}
			}
		}
	}
	for gained := true; gained; {
		gained = false
		for k := range best {
			steps := w.around(best, where, k)
			for i := range steps {
				better, err := try(steps[i].shares, steps[i].places)
				if err != nil {
					return nil, nil, false, err
				}
				gained = gained || better
			}
		}
	}
	return best, where, ok, nil
}

// step is a division in places.
type step struct {
	shares []Share
	places []Place
}

// around are the divisions and the places a step away for one task; a place goes with its division, and with none of it, for which the place may be.
func (w *world) around(shares []Share, places []Place, k int) (list []step) {
	add := func(s Share, p Place) {
		one := step{slices.Clone(shares), slices.Clone(places)}
		if one.shares[k] = s; len(places) > 0 {
			one.places[k] = p
		}
		list = append(list, one)
	}
	var here Place
	if len(places) > 0 {
		here = places[k]
	}
	for _, s := range near(shares[k]) {
		add(s, here)
	}
	if len(places) == 0 {
		return list
	}
	for _, away := range [...]bool{false, true} {
		for _, pages := range pagesAway {
			if p := (Place{away, pages}); p != here {
				add(shares[k], p)
				add(Share{allWays, 100, 1}, p)
			}
		}
	}
	return list
}

// near are the divisions a step away, in each direction of the grid.
func near(s Share) (list []Share) {
	for i := range gridWays {
		if i > 0 && gridWays[i-1] == s.Ways || i+1 < len(gridWays) && gridWays[i+1] == s.Ways {
			list = append(list, Share{gridWays[i], s.Level, s.CPUs})
		}
	}
	for i := range gridLevels {
		if i > 0 && gridLevels[i-1] == s.Level || i+1 < len(gridLevels) && gridLevels[i+1] == s.Level {
			list = append(list, Share{s.Ways, gridLevels[i], s.CPUs})
		}
	}
	for i := range gridCPUs {
		if i > 0 && gridCPUs[i-1] == s.CPUs || i+1 < len(gridCPUs) && gridCPUs[i+1] == s.CPUs {
			list = append(list, Share{s.Ways, s.Level, gridCPUs[i]})
		}
	}
	return list
}
