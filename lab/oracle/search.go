package oracle

import "context"

// The grid of the search.
var (
	gridWays   = []int{2, 5, 8, allWays}
	gridLevels = []int{10, 30, 60, 100}
	gridCPUs   = []float64{0.25, 0.5, 1}
)

// search finds the best fixed division; ok is false where none misses no target: then it is the one that misses least.
func (w *world) search(ctx context.Context) (best []Share, ok bool, err error) {
	off, err := w.fixed(ctx, w.shares(Share{allWays, 100, 1}), searchSeconds, searchLast)
	if err != nil {
		return nil, false, err
	}
	work, missed := -1.0, 2.0
	try := func(shares []Share) (better bool, err error) {
		out, err := w.fixed(ctx, shares, searchSeconds, searchLast)
		if err != nil {
			return false, err
		}
		did := beside(out.each, off.each)
		if good := out.Missed <= mostMissed; good && (!ok || did > work) || !good && !ok && out.Missed < missed {
			best, work, missed, ok = append([]Share(nil), shares...), did, out.Missed, good
			return true, nil
		}
		return false, nil
	}
	for _, ways := range gridWays {
		for _, level := range gridLevels {
			for _, cpus := range gridCPUs {
				if _, err := try(w.shares(Share{ways, level, cpus})); err != nil {
					return nil, false, err
				}
			}
		}
	}
	for gained := true; gained; {
		gained = false
		for k := range best {
			for _, s := range near(best[k]) {
				shares := append([]Share(nil), best...)
				shares[k] = s
				better, err := try(shares)
				if err != nil {
					return nil, false, err
				}
				gained = gained || better
			}
		}
	}
	return best, ok, nil
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
