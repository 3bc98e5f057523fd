package engine_test

import (
	"flag"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens anew")

// scenario is a story about the synthetic node. The golden shows every decision; want and
// never hold whatever the golden says, so that a careless -rewrite cannot lose the point.
type scenario struct {
	name  string
	about string
	build func(t *testing.T) *sim
	until int
	want  []string // in this order
	never []string
	once  []string // exactly once
	// leaves names tasks whose limit or weight may differ at the end from what it was.
	leaves []string
}

func TestScenarios(t *testing.T) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			n := sc.build(t)
			n.run(sc.until)
			points := enginetest.Story{About: sc.about, Want: sc.want, Never: sc.never, Once: sc.once}
			points.Check(t, sc.name, n.out.String(), *rewrite)
			for _, task := range n.tasks {
				if task.there && task.weight != 0 && !slices.Contains(sc.leaves, task.Path) {
					t.Errorf("%s is left idle", task.Path)
				}
				if task.there && task.limit != noLimit && !slices.Contains(sc.leaves, task.Path) {
					t.Errorf("%s is left with %s", task.Path, limitText(task.limit))
				}
			}
		})
	}
}

// shop is the node of most stories: a service, a quiet neighbour and a grinder that hurts
// the service from second 40 on.
func shop(t *testing.T, p engine.Params, grinder func(int) float64) *sim {
	return newSim(t, p,
		lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.5),
		lc(2, "/mail/1", steady(0.5)),
		be(3, "/report/1", model.Batch, steady(0.3)),
		be(4, "/grind/1", model.Batch, grinder),
	)
}

// waiting is the shop where the harm is waiting, of which the grinder does a part also while it
// gives way.
func waiting(t *testing.T, p engine.Params, grinder func(int) float64, spite float64) *sim {
	n := shop(t, p, grinder)
	n.slowdown, n.task("/grind/1").spite = true, spite
	return n
}

func scenarios() []scenario {
	return append(append(lackScenarios(), ladderScenarios()...), append(append(findingScenarios(), seedScenarios()...), append(append(operatorScenarios(), faultScenarios()...), append(beyondScenarios(), reliefScenarios()...)...)...)...)
}

func findingScenarios() []scenario {
	return []scenario{{
		name: "antagonist", until: 130,
		about: "a batch task starts at 40 s and hurts the service; named, capped, verified, released when the cap's time is over",
		build: func(t *testing.T) *sim { return shop(t, singleNode(t), between(40, 75, 3, 0)) },
		want:  []string{"anomaly     /web/1", "cap         /grind/1", "hold /grind/1 25000/250000: applied", "verified    /web/1", "the cap's time is over", "release /grind/1: applied, no limit"},
		never: []string{"hold /report/1", "hold /mail/1", "taken-back", "cannot-fix"},
	}, {
		name: "best-effort", until: 130,
		about: "the same with a best-effort job: capped at 0.01 CPU, which stretches the period",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 75, 3, 0))
			n.task("/grind/1").Importance = model.BestEffort
			return n
		},
		want: []string{"hold /grind/1 2500/250000: applied", "verified", "release /grind/1: applied"},
	}, {
		name: "observe", until: 130,
		about: "observe mode: the pick is recorded as it would be done, nothing is written, verified or tried again",
		build: func(t *testing.T) *sim {
			p := singleNode(t)
			p.Mode = model.ModeObserve
			return shop(t, p, between(40, 60, 3, 0))
		},
		want:  []string{"cap         /grind/1", "is observed", "observed only: nothing was written"},
		never: []string{"-> ", "verified", "taken-back", "round 2"},
	}, {
		name: "off", until: 80,
		about: "mode off: the specs are learnt, nobody is accused",
		build: func(t *testing.T) *sim {
			p := singleNode(t)
			p.Mode = model.ModeOff
			return shop(t, p, between(40, 60, 3, 0))
		},
		want:  []string{"spec        web"},
		never: []string{"anomaly", "-> ", "cap  "},
	}, {
		name: "wrong-pick", until: 140,
		about: "a bystander with the same rhythm is held first, taken back; the second round finds the right one",
		build: func(t *testing.T) *sim {
			return newSim(t, singleNode(t),
				lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.5),
				be(2, "/copy/1", model.Batch, between(40, 90, 2, 0)),
				be(3, "/grind/1", model.Batch, between(40, 90, 3, 0.01)))
		},
		want:  []string{"hold /copy/1", "taken-back  /copy/1", "release /copy/1", "hold /grind/1", "verified", "round 1", "did not recover", "round 2"},
		never: []string{"cannot-fix"},
	}, {
		name: "coincidence", until: 160,
		about: "the antagonist pauses just after an innocent was held: recovered, relapsed, taken back, the right one held",
		build: func(t *testing.T) *sim {
			return newSim(t, singleNode(t),
				lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.5),
				be(2, "/copy/1", model.Batch, between(40, 100, 2, 0)),
				be(3, "/grind/1", model.Batch, func(s int) float64 {
					if s >= 43 && s < 46 {
						return 0
					}
					return between(40, 100, 3, 0.01)(s)
				}),
				be(4, "/report/1", model.Batch, steady(4)))
		},
		want: []string{"hold /copy/1", "verified", "relapse", "taken-back  /copy/1", "hold /grind/1", "verified", "the recovery was a coincidence"},
	}, {
		name: "second-antagonist", until: 170,
		about: "the right one is held and helps; later a second one begins: the first stays held, the second is held too",
		build: func(t *testing.T) *sim {
			return newSim(t, singleNode(t),
				lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.5).hurtBy("/mill/1", 0.8),
				be(2, "/grind/1", model.Batch, between(40, 110, 2, 0)),
				be(3, "/mill/1", model.Batch, between(75, 120, 3, 0)),
				be(4, "/report/1", model.Batch, steady(4)))
		},
		want: []string{"hold /grind/1", "verified", "relapse", "hold /mill/1", "verified", "helped at first"},
	}, {
		name: "critical-last", until: 130,
		about: "two suspects qualify, the better one is critical: the other is held first, the critical one in the second round",
		build: func(t *testing.T) *sim {
			return newSim(t, singleNode(t),
				lc(1, "/web/1", steady(1)).hurtBy("/train/1", 0.5),
				be(2, "/copy/1", model.Batch, func(s int) float64 { return between(40, 80, 2, 0.01)(s) }),
				be(3, "/train/1", model.Critical, between(40, 80, 3, 0)))
		},
		want: []string{"hold /copy/1", "taken-back  /copy/1", "hold /train/1", "verified", "critical: held back last", "chosen: critical, but nobody else qualifies"},
	}, {
		name: "eligible-victim", until: 130,
		about: "a BE task that is marked eligible is protected like a service",
		build: func(t *testing.T) *sim {
			n := newSim(t, singleNode(t),
				be(1, "/index/1", model.Batch, steady(1)).hurtBy("/grind/1", 0.5),
				be(2, "/report/1", model.Batch, steady(1)).hurtBy("/grind/1", 0.5),
				be(3, "/grind/1", model.Batch, between(40, 75, 3, 0)))
			n.task("/index/1").Eligible = true
			return n
		},
		want:  []string{"anomaly     /index/1", "hold /grind/1", "verified    /index/1"},
		never: []string{"anomaly     /report/1"},
	}, {
		name: "slowdown", until: 130,
		about: "without hardware counters the run-queue delay tells the same story",
		build: func(t *testing.T) *sim {
			p := singleNode(t)
			p.Hardcap.Demote.Enabled = false
			return waiting(t, p, between(40, 75, 3, 0), 0)
		},
		want: []string{"spec        web", "slowdown of web", "hold /grind/1", "verified", "release /grind/1"},
	}}
}
