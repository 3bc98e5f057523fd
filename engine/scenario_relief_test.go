package engine_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// relieved returns the single-node parameters with what the profile relief has on before anything is added.
func relieved(t *testing.T) engine.Params {
	p := with(t, true, true, true)
	p.Hardcap.Confirm.Share, p.Hardcap.Confirm.Witnesses, p.Hardcap.Confirm.MaxPerIncident = 0.5, true, 4
	return p
}

// choir is three services that four tasks of different jobs hurt a little each, from 40 s on, beside two innocents that run at the same time,
// and beside others.
func choir(t *testing.T, p engine.Params, rise float64, others ...*simTask) *sim {
	hurt := func(n *simTask) *simTask {
		for _, path := range []string{"/a/1", "/b/1", "/c/1", "/d/1"} {
			n.hurtBy(path, rise)
		}
		return n
	}
	return newSim(t, p, append(others,
		hurt(lc(1, "/web/1", steady(1))), hurt(lc(2, "/shop/1", steady(1))), hurt(lc(3, "/mail/1", steady(1))),
		be(4, "/a/1", model.Batch, between(40, 160, 1.1, 0.01)), be(5, "/b/1", model.Batch, between(40, 160, 1.12, 0.01)),
		be(6, "/c/1", model.Batch, between(40, 160, 1.14, 0.01)), be(7, "/d/1", model.Batch, between(40, 160, 1.16, 0.01)),
		be(8, "/copy/1", model.Batch, between(40, 160, 1.2, 0)), be(9, "/index/1", model.Batch, between(40, 160, 1.25, 0)))...)
}

// again is a service that a job hurts a little for ten seconds, again and again.
func again(t *testing.T, change func(*engine.Params)) *sim {
	p := relieved(t)
	p.Hardcap.Repeat.Enabled, p.Hardcap.Repeat.HalfLifeNsec = true, 24*3600*second
	p.Hardcap.Confirm.Sigmas = 100 // no single nudge is enough
	change(&p)
	return newSim(t, p,
		lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.0065),
		be(3, "/report/1", model.Batch, steady(0.3)), be(4, "/grind/1", model.Batch, bursts(60, 12, 240, 3, 0)))
}

// pairOf is two services and a job of two tasks: the first task hurts both, the second one service alone.
func pairOf(t *testing.T, witnesses bool) *sim {
	p := relieved(t)
	p.Hardcap.Groups.Witnesses = witnesses
	return newSim(t, p,
		lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.2).hurtBy("/grind/2", 0.001),
		lc(2, "/mail/1", steady(1)).hurtBy("/grind/1", 0.1).hurtBy("/grind/2", 0.2),
		be(3, "/grind/1", model.Batch, between(40, 120, 2, 0)), be(4, "/grind/2", model.Batch, between(40, 120, 2, 0)), be(5, "/report/1", model.Batch, steady(1.5)))
}

// uneven is CPU around v from 40 s to 100 s, that goes up and down by itself.
func uneven(v float64) func(int) float64 {
	return func(s int) float64 {
		if s < 40 || s >= 100 {
			return 0
		}
		return v * (1 + 0.3*float64((s*s*7+int(v*10)*s)%5-2)/2)
	}
}

// unequal is two services that a grinder hurts, the first of them a little.
func unequal(t *testing.T, witnesses bool) *sim {
	p := relieved(t)
	p.Hardcap.Feedback.Witnesses = witnesses
	return newSim(t, p, lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.02), lc(2, "/mail/1", steady(1)).hurtBy("/grind/1", 0.3),
		be(3, "/report/1", model.Batch, steady(1.5)), be(4, "/grind/1", model.Batch, between(40, 110, 3, 0)))
}

// breather is a grinder that pauses for half a minute when its cap would end.
func breather(t *testing.T, through bool) *sim {
	p := with(t, false, true, false)
	p.Hardcap.Feedback.ThroughPauses, p.Hardcap.Feedback.LoosenAfter = through, 1000 // no step renews it
	return shop(t, p, func(s int) float64 {
		if s >= 80 && s < 112 {
			return 0
		}
		return between(40, 140, 3, 0)(s)
	})
}

// slowed is a service that is slow of itself from 40 s on, beside four batch tasks that always do the same; the first of them misses the cache so often; and others.
func slowed(t *testing.T, misses float64, others ...*simTask) *sim {
	n := newSim(t, relieved(t), append(others, lc(1, "/web/1", steady(1)), be(2, "/a/1", model.Batch, steady(1)), be(3, "/b/1", model.Batch, steady(1)),
		be(4, "/c/1", model.Batch, steady(1)), be(5, "/d/1", model.Batch, steady(1)))...)
	n.task("/web/1").self = between(40, 330, 2, 0)
	n.task("/a/1").misses = misses
	return n
}

func reliefScenarios() []scenario {
	return []scenario{{
		name: "repeat", until: 2700,
		about: "repeat: a job hurts a little again and again; no nudge proves it, all together do, and from then on it is held at the first bad window",
		build: func(t *testing.T) *sim { return again(t, func(*engine.Params) {}) },
		want: []string{"refute      /grind/1", "refute      /grind/1", "refute      /grind/1", "confirmed",
			"while /grind/1 runs, which hurts web: evidence 4.4 of 3.9 asked for, from 4 experiments", "cap         /grind/1 [i-8]: score 0.00, and grind hurts web: evidence", "verified    /web/1 [i-8]"},
		never: []string{"taken-back", "/report/1 [i"},
	}, {
		name: "repeat-prior", until: 2700,
		about: "repeat with a fleet's word: it has seen grind hurt web elsewhere, and says the same of an innocent job; the one is decided after three experiments in place of four, the other is left alone",
		build: func(t *testing.T) *sim {
			n := again(t, func(*engine.Params) {})
			n.at[5] = func(_ *sim, in *engine.Input) {
				in.Priors = []model.Priors{{Job: "web", Pairs: []model.Prior{
					{Antagonist: "grind", Incidents: 14, Nodes: 6, Degradation: 1.3, Low: 1.2, High: 1.4, Confidence: 0.71},
					{Antagonist: "report", Incidents: 40, Nodes: 9, Degradation: 1.3, Low: 1.2, High: 1.4, Confidence: 0.95},
				}}}
			}
			return n
		},
		want: []string{"report may hurt web: the fleet saw this pair 40 times on 9 nodes: prior 2.0 of 3.9 asked for; it has news of 1 others",
			"refute      /grind/1", "confirmed", "which hurts web: evidence", "the fleet saw this pair 14 times on 6 nodes: prior 0.9 of 3.9 asked for"},
		never: []string{"taken-back", "/report/1 [i"},
	}, {
		name: "repeat-off", until: 2700,
		about: "repeat off: the same; each incident begins anew, and nobody is ever held",
		build: func(t *testing.T) *sim { return again(t, func(p *engine.Params) { p.Hardcap.Repeat.Enabled = false }) },
		want:  []string{"refute      /grind/1", "refute      /grind/1"},
		never: []string{"cap         /grind/1", "evidence 2"},
	}, {
		name: "share-own-fault", until: 330,
		about: "confirm.share: the service is slow of itself, for longer than the history; then four batch tasks score as whoever did it would, and none of them takes half of the cache: nobody is nudged",
		build: func(t *testing.T) *sim { return slowed(t, 1e6) },
		want:  []string{"anomaly", "cannot-fix", "anomaly", "cannot-fix"},
		never: []string{"nudge", "-> hold"},
	}, {
		name: "share-half", until: 330,
		about: "confirm.share: the same, but one of them misses the cache six times as often as another: it alone is nudged, once, in vain",
		build: func(t *testing.T) *sim { return slowed(t, 6e6) },
		want:  []string{"nudge       /a/1", "refute      /a/1", "cannot-fix"},
		never: []string{"hold /b/1", "hold /c/1", "hold /d/1", "taken-back"},
		once:  []string{"nudge       /a/1"},
	}, {
		name: "share-split", until: 230,
		about: "confirm.share: the same, and worse at times, at which a fifth one happens to run: it beats the four, which score little less, so that the evidence is split: it is nudged in vain, and not capped",
		build: func(t *testing.T) *sim {
			n := slowed(t, 1e6, be(6, "/e/1", model.Batch, bursts(184, 20, 12, 1, 0)))
			n.task("/web/1").self = func(s int) float64 { return max(between(40, 330, 2, 0)(s), bursts(184, 20, 12, 3, 0)(s)) }
			return n
		},
		want:  []string{"nudge       /e/1", "refute      /e/1"},
		never: []string{"cap         /e/1", "hold /b/1", "hold /c/1", "hold /d/1"},
	}, {
		name: "coded", until: 220,
		about: "coded: four tasks hurt a little each, by less than a nudge of one shows; held by turns, their effects are told from each other and from two innocents of the same rhythm; a critical task of that rhythm, the largest of all, takes no part",
		build: func(t *testing.T) *sim {
			p := relieved(t)
			p.Hardcap.Groups.Enabled, p.Hardcap.Coded.Enabled, p.Hardcap.Coded.MaxLostNsec = false, true, 60*second
			return choir(t, p, 0.06, be(10, "/close/1", model.Critical, between(40, 160, 1.3, 0)))
		},
		want:  []string{"refute      /index/1", "holds 6 suspects by turns", "cap         /d/1", "cap         /c/1", "cap         /b/1", "cap         /a/1", "the experiment is over: others did it", "verified    /web/1"},
		never: []string{"cap         /copy/1", "cap         /index/1", "hold /close/1", "taken-back"},
	}, {
		name: "relief-first", until: 260,
		about: "relief first: a service is in grave trouble; all batch tasks are held back by half at once, which helps, and then the search goes on; a critical task runs as it did",
		build: func(t *testing.T) *sim {
			p := relieved(t)
			p.Hardcap.First.Enabled, p.Limits.MaxHeldTasks, p.Limits.MaxBETaken = true, 16, 1
			return choir(t, p, 0.3, be(10, "/close/1", model.Critical, steady(2)))
		},
		want:  []string{"holds all 6 best-effort tasks back a little", "the search goes on"},
		never: []string{"hold /close/1"},
	}, {
		name: "relief-first-own", until: 200,
		about: "relief first: the trouble is the service's own; nobody's hold helps, all are let go at once and nobody is nudged",
		build: func(t *testing.T) *sim {
			p := relieved(t)
			p.Hardcap.First.Enabled, p.Limits.MaxHeldTasks, p.Limits.MaxBETaken = true, 16, 1
			n := choir(t, p, 0)
			n.task("/web/1").self = between(40, 160, 1, 0)
			return n
		},
		want:  []string{"holds all 6 best-effort tasks back a little", "no best-effort task's doing"},
		never: []string{"nudge       /copy/1 [", "nudge       /index/1 ["},
	}, {
		name: "trial-witnesses", until: 260,
		about: "groups by witnesses: two tasks of a job are held for a service that hardly feels the second; released on trial it hurts another service, and both are held on",
		build: func(t *testing.T) *sim { return pairOf(t, true) },
		want:  []string{"trial", "suffered while it was released: held again"},
		never: []string{"stayed well for"},
	}, {
		name: "trial-alone", until: 260,
		about: "the same without witnesses: the second task is given back, and the other service suffers on",
		build: func(t *testing.T) *sim { return pairOf(t, false) },
		want:  []string{"trial", "stayed well for"},
		never: []string{"suffered while it was released"},
	}, {
		name: "by-job", until: 160,
		about: "groups by job: two tasks of a job hurt only together, and do not move as one; nudged together they are found",
		build: func(t *testing.T) *sim {
			p := relieved(t)
			p.Hardcap.Groups.ByJob = true
			return newSim(t, p, lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.1).hurtBy("/grind/2", 0.1),
				be(2, "/grind/1", model.Batch, uneven(1.9)), be(3, "/grind/2", model.Batch, uneven(2.3)), be(4, "/copy/1", model.Batch, between(40, 100, 1, 0)))
		},
		want:  []string{"holds /grind/2 and /grind/1", "confirmed", "verified"},
		never: []string{"cap         /copy/1", "taken-back"},
	}, {
		name: "loosen-witnesses", until: 200,
		about: "feedback by witnesses: the service for which the grinder is held could do with less, another one that recovered with it could not; the cap is not loosened at its expense",
		build: func(t *testing.T) *sim { return unequal(t, true) },
		want:  []string{"verified    /web/1", "the cap's time is over"},
		never: []string{"loosened to", "suffers at this level", "i-3"},
	}, {
		name: "loosen-alone", until: 200,
		about: "the same without: the cap is loosened, and the other service suffers before it is tightened",
		build: func(t *testing.T) *sim { return unequal(t, false) },
		want:  []string{"verified    /web/1", "loosened to", "another victim suffers at this level"},
	}, {
		name: "through-pauses", until: 320,
		about: "feedback through pauses: the grinder pauses when its cap would end; the cap is renewed, and the service does not suffer a second time",
		build: func(t *testing.T) *sim { return breather(t, true) },
		want:  []string{"verified", "still needed by /web/1", "the cap's time is over"},
		never: []string{"i-2"},
	}, {
		name: "through-pauses-off", until: 320,
		about: "the same without: the cap ends in the pause, and there is a second incident",
		build: func(t *testing.T) *sim { return breather(t, false) },
		want:  []string{"verified", "the cap's time is over", "anomaly     /web/1 [i-2]"},
	}}
}
