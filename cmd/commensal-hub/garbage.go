package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much garbage may lie about beside what is in use. Go's own 100 per cent is much where most of what is in use was learned, stays, and is looked through within a fraction of
// a second; what becomes garbage are batches, which are as large in a hub of many jobs as in one of few. So there is as much room as half of what is in use, up to
// garbageRoom, and beyond that a fifth: looking through gigabytes for each few megabytes of batches would cost more than it saves.
const (
	garbage      = 50       // per cent of what is in use
	garbageRoom  = 64 << 20 // bytes
	garbageLeast = 20       // per cent
	garbageEvery = time.Second
)

// garbageOf is that, in per cent of so many bytes that are in use.
func garbageOf(live uint64) int {
	return int(max(garbageLeast, min(garbage, 100*garbageRoom/max(live, 1)))) //nolint:gosec // 20 to 50
}

// boundGarbage bounds it until the context ends, unless GOGC in the environment says how much there may be.
func boundGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := garbage
	debug.SetGCPercent(percent)
	go func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}} // as the last collection found it
		every := time.NewTicker(garbageEvery)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
			metrics.Read(live)
			if is := garbageOf(live[0].Value.Uint64()); is != percent {
				percent = is
				debug.SetGCPercent(percent)
			}
		}
	}()
}
