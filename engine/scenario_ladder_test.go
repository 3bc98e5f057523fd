package engine_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// brief is the profile single-node with a demotion of 90 seconds.
func brief(t *testing.T) engine.Params {
	p := singleNode(t)
	p.Hardcap.Demote.DurationNsec = 90e9
	return p
}

// The mildest hold first: demote, then a cap just tight enough, then CPI²'s.
func ladderScenarios() []scenario {
	return []scenario{{
		name: "demote", until: 180,
		about: "where the harm is waiting the antagonist gives way, which is enough: no cap; given back when its time is over",
		build: func(t *testing.T) *sim { return waiting(t, brief(t), between(40, 100, 3, 0), 0) },
		want: []string{
			"anomaly     /web/1", "demote      /grind/1", "hold cpu.weight of /grind/1: applied, cpu.idle", "verified    /web/1", "with /grind/1 demoted",
			"release     /grind/1 [i-1]: the cap's time is over", "release cpu.weight of /grind/1: applied",
		},
		never: []string{"hold /grind/1", "cap  ", "taken-back", "of /report/1", "of /mail/1"},
	}, {
		name: "demote-and-cap", until: 200,
		about: "it gives way, which is not enough: two windows later it is capped to half of what it used, which is; the cap ends first",
		build: func(t *testing.T) *sim {
			n := waiting(t, brief(t), between(40, 110, 3, 0), 1)
			n.task("/grind/1").free = 1.6
			return n
		},
		want: []string{
			"demote      /grind/1", "applied, cpu.idle", "while /grind/1 gives way to everybody", "holds /grind/1 to 1.5 CPU of the 3", "hold /grind/1 375000/250000: applied",
			"verified    /web/1", "release /grind/1: applied, no limit", "the cap is over; for now it still gives way", "release cpu.weight of /grind/1: applied",
		},
		never: []string{"hold /grind/1 25000/250000", "taken-back", "of /report/1", "cannot-fix"},
	}, {
		name: "demote-to-quota", until: 200,
		about: "neither is enough: CPI²'s quota comes last",
		build: func(t *testing.T) *sim { return waiting(t, brief(t), between(40, 110, 3, 0), 1) },
		want: []string{
			"demote      /grind/1", "hold /grind/1 375000/250000: applied", "step        /grind/1", "hold /grind/1 25000/250000: applied", "verified    /web/1",
			"release /grind/1: applied, no limit", "release cpu.weight of /grind/1: applied",
		},
		never: []string{"taken-back", "of /report/1"},
	}, {
		name: "demote-refused", until: 200,
		about: "the kernel refuses to demote: the cap comes at once",
		build: func(t *testing.T) *sim {
			n := waiting(t, brief(t), between(40, 110, 3, 0), 0)
			n.task("/grind/1").refuseIdle, n.task("/grind/1").free = "operation not permitted", 1.6
			return n
		},
		want:  []string{"demote      /grind/1", "refused", "it cannot be demoted", "hold /grind/1 375000/250000: applied", "verified    /web/1", "release /grind/1: applied"},
		never: []string{"cpu.weight of /grind/1: applied, cpu.idle", "taken-back"},
	}, {
		name: "demote-innocent", until: 240,
		about: "an innocent is demoted and capped first: both are taken back together, and the next round finds the right one",
		build: func(t *testing.T) *sim {
			n := newSim(t, brief(t),
				lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.5),
				be(2, "/copy/1", model.Batch, between(40, 120, 2, 0)),
				be(3, "/grind/1", model.Batch, between(40, 120, 3, 0.01)))
			n.slowdown = true
			return n
		},
		want: []string{
			"demote      /copy/1", "hold /copy/1 25000/250000", "taken-back  /copy/1", "demote      /grind/1", "release cpu.weight of /copy/1", "hold cpu.weight of /grind/1: applied, cpu.idle", "verified    /web/1",
		},
		never: []string{"cannot-fix", "hold /grind/1"},
	}, {
		name: "demote-again", until: 260,
		about: "the antagonist never rests: each time it has its weight back it is found and gives way again within seconds",
		build: func(t *testing.T) *sim { return waiting(t, brief(t), between(40, 220, 3, 0), 0) },
		want: []string{
			"demote      /grind/1 [i-1]", "verified", "release cpu.weight of /grind/1", "demote      /grind/1 [i-2]", "verified", "release cpu.weight of /grind/1",
		},
		never: []string{"cannot-fix", "search  ", "hold /grind/1"},
	}, {
		name: "demote-observe", until: 130,
		about: "observe mode: it says whom it would demote, and writes nothing",
		build: func(t *testing.T) *sim {
			p := brief(t)
			p.Mode = model.ModeObserve
			return waiting(t, p, between(40, 75, 3, 0), 0)
		},
		want:  []string{"demote      /grind/1", "would demote /grind/1"},
		never: []string{"->"},
	}, {
		name: "demoted-already", until: 160,
		about: "who gives way already, by the policy that demotes all, is capped without another try of it",
		build: func(t *testing.T) *sim {
			p := brief(t)
			p.CPU.DemoteMode = model.ModeEnforce
			n := waiting(t, p, between(40, 75, 3, 0), 1)
			n.task("/grind/1").free = 1.6
			n.pulses = true
			return n
		},
		want:   []string{"hold cpu.weight of /grind/1: applied, cpu.idle", "anomaly     /web/1", "cap         /grind/1", "hold /grind/1 375000/250000", "verified    /web/1", "release /grind/1: applied"},
		never:  []string{"gives way to everybody, above", "release cpu.weight"},
		leaves: []string{"/grind/1", "/report/1"},
	}}
}
