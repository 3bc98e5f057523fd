package engine_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// stalls is a service that a task hurts from 40 s on, beside another one that runs at the same time and uses as much CPU. mpki is what the service
// misses per 1000 instructions; the other one is what misses of perf tell of.
func stalls(t *testing.T, mpki func(int) float64, guilty, other string, byLack bool) *sim {
	p := with(t, false, false, true)
	p.Hardcap.Confirm.ByLack = byLack
	n := newSim(t, p,
		lc(1, "/web/1", steady(1)).hurtBy(guilty, 0.5),
		be(2, "/report/1", model.Batch, steady(1)),
		be(3, other, model.Batch, between(40, 90, 2, 0)), be(4, guilty, model.Batch, between(40, 90, 2, 0)))
	n.task("/web/1").mpki = mpki
	n.task("/web/1").lines, n.task("/web/1").moves = 8e6, 0.5e9
	n.task("/report/1").lines, n.task("/report/1").moves = 4e6, 1e9
	return n
}

// streamed is a service whose memory is slow because of a task whose prefetchers fetch nearly all that it reads, so that it misses little.
func streamed(t *testing.T, byLack, counted bool) *sim {
	n := stalls(t, steady(5), "/stream/1", "/join/1", byLack)
	n.task("/join/1").misses = 20e6
	if counted {
		n.task("/join/1").moves, n.task("/join/1").lines = 1.5e9, 6e6
		n.task("/stream/1").moves, n.task("/stream/1").lines = 9e9, 5e6
	}
	return n
}

// filled is a service that misses the cache more because of one of two tasks: /scan/1 misses often, /index/1 seldom, and so many bytes of the cache each of them fills.
func filled(t *testing.T, guilty, other string, scan, index float64) *sim {
	n := stalls(t, between(40, 90, 9, 3), guilty, other, true)
	n.task("/scan/1").misses, n.task("/scan/1").lines, n.task("/scan/1").moves = 20e6, scan, 3e9
	n.task("/index/1").misses, n.task("/index/1").lines, n.task("/index/1").moves = 4e6, index, 0.5e9
	return n
}

func lackScenarios() []scenario {
	return []scenario{{
		name: "by-lack-memory", until: 140,
		about: "by_lack: a task streams at the pace of its prefetchers, which misses of perf leave out, and another one misses twenty times as often; the service misses no more than before and is slower, so it is memory, and who moves most is nudged first",
		build: func(t *testing.T) *sim { return streamed(t, true, true) },
		want:  []string{"nudge       /stream/1", "it lacks memory (5 misses in 1000 instructions, 5 while it was well), of which /stream/1 has 18 GB/s more than then", "confirmed", "verified", "release /stream/1: applied, no limit"},
		never: []string{"hold /join/1", "refute", "taken-back"},
	}, {
		name: "by-lack-cache", until: 140,
		about: "by_lack: the service misses more than before, so it is the cache, and who fills it is nudged first, not who runs through it with many misses and leaves little there",
		build: func(t *testing.T) *sim { return filled(t, "/index/1", "/scan/1", 1e6, 12e6) },
		want:  []string{"nudge       /index/1", "it lacks cache (9 misses in 1000 instructions, 3 while it was well), of which /index/1 has 24 MB more than then", "confirmed", "verified"},
		never: []string{"hold /scan/1", "refute", "taken-back"},
	}, {
		name: "by-lack-wrong", until: 140,
		about: "by_lack loses: a bystander fills more of the cache than the one that pushes the service's lines out; misses would have named that one, now the bystander is nudged first, in vain",
		build: func(t *testing.T) *sim { return filled(t, "/scan/1", "/index/1", 5e6, 9e6) },
		want:  []string{"nudge       /index/1", "refute      /index/1", "cap         /scan/1", "verified"},
	}, {
		name: "by-lack-pause", until: 140,
		about: "by_lack: while the one that streams is nudged another one pauses, with a rhythm of its own, that moves two thirds as much and hardly misses: nothing is concluded from the nudge",
		build: func(t *testing.T) *sim {
			n := streamed(t, true, true)
			n.e.Params.Hardcap.Confirm.Witnesses = true
			copying := be(5, "/copy/1", model.Batch, func(s int) float64 {
				if s >= 43 && s < 46 {
					return 0
				}
				return 2
			})
			copying.misses, copying.lines, copying.moves = 0.2e6, 1e6, 6e9
			n.tasks = append(n.tasks, copying)
			return n
		},
		want: []string{"nudge       /stream/1", "refute      /stream/1", "but /copy/1 paused meanwhile: nothing is known", "cap         /stream/1", "verified"},
	}, {
		name: "by-lack-off", until: 140,
		about: "by_lack is off: who misses most is nudged first, in vain, although resctrl counts who streams",
		build: func(t *testing.T) *sim { return streamed(t, false, true) },
		want:  []string{"nudge       /join/1", "refute      /join/1", "cap         /stream/1", "verified"},
		never: []string{"it lacks"},
	}}
}

// Where nobody counts tasks, where traffic does not tell that it is memory, and where the service hardly misses, the switch changes nothing: what is decided
// is the same to the byte.
func TestByLackWithoutCounters(t *testing.T) {
	told := func(n *sim) string {
		n.run(140)
		return n.out.String()
	}
	for name, build := range map[string]func(byLack bool) *sim{
		"nobody counts": func(on bool) *sim { return streamed(t, on, false) },
		"it hardly misses": func(on bool) *sim {
			n := streamed(t, on, true)
			n.task("/web/1").mpki = steady(0.5)
			return n
		},
		"traffic is as ever": func(on bool) *sim {
			n := streamed(t, on, true)
			n.task("/report/1").moves = 1e12
			return n
		},
		"misses are unknown": func(on bool) *sim {
			n := streamed(t, on, true)
			n.slowdown = true
			return n
		},
	} {
		off, on := told(build(false)), told(build(true))
		if off != on {
			t.Errorf("%s: with the switch\n%s\nwithout\n%s", name, on, off)
		}
		if !strings.Contains(off, "anomaly") {
			t.Errorf("%s: nothing happens:\n%s", name, off)
		}
	}
	if on := told(streamed(t, true, true)); on == told(streamed(t, false, true)) {
		t.Error("the switch does nothing where tasks are counted, too")
	}
}
