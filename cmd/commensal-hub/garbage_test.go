package main

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// Garbage is at most half of what is in use; beyond 128 MB as much as then, and beyond 320 MB a fifth.
func TestGarbageIsBounded(t *testing.T) {
	for live, want := range map[uint64]int{0: 50, 1 << 20: 50, 128 << 20: 50, 256 << 20: 25, 320 << 20: 20, 1 << 40: 20, math.MaxUint64: 20} {
		if is := garbageOf(live); is != want {
			t.Errorf("%d bytes in use: %d %%, want %d", live, is, want)
		}
	}
}

// What is set follows what is in use, but not where somebody says how much it is to be.
func TestGarbageFollowsWhatIsInUse(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer func() { debug.SetGCPercent(before) }()
	percent := func() int {
		is := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(is)
		return int(is[0].Value.Uint64()) //nolint:gosec // hundreds at most
	}
	t.Setenv("GOGC", "100")
	if boundGarbage(t.Context()); percent() != 100 {
		t.Errorf("%d %% in place of what GOGC says", percent())
	}
	if err := os.Unsetenv("GOGC"); err != nil { // t.Setenv puts back what was
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if boundGarbage(ctx); percent() != garbage {
		t.Errorf("%d %%", percent())
	}
	much := make([]byte, 400<<20) // which is not touched, and so takes no memory
	runtime.GC()
	for begin := time.Now(); percent() != garbageLeast; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%d %% beside 400 MB", percent())
		}
	}
	runtime.KeepAlive(much)
}
