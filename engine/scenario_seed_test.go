package engine_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// seedScenarios are the cases of CPI² §6.1 and those in which nobody is to blame.
func seedScenarios() []scenario {
	return []scenario{{
		name: "case-1", until: 130,
		about: "case 1: of the top 5 suspects four are latency-sensitive and left alone; the batch task is held",
		build: func(t *testing.T) *sim {
			return newSim(t, singleNode(t),
				lc(1, "/victim/1", steady(1)).hurtBy("/video/1", 0.4),
				lc(2, "/digitize/1", between(40, 75, 2, 0)),
				lc(3, "/image/1", between(40, 75, 2, 0.004)),
				lc(4, "/bigtable/1", between(40, 75, 2, 0.01)),
				lc(5, "/storage/1", between(40, 75, 2, 0.012)),
				be(6, "/video/1", model.Batch, between(40, 75, 3, 0.002)))
		},
		want:  []string{"left-alone  /digitize/1", "hold /video/1", "verified", "left alone: LC is never held", "chosen"},
		never: []string{"hold /digitize", "hold /image", "hold /bigtable", "hold /storage"},
	}, {
		name: "case-3", until: 120,
		about: "case 3: the CPI rises because the victim hardly runs; below the CPU floor there is no incident",
		build: func(t *testing.T) *sim {
			v := lc(1, "/front/1", bursts(0, 15, 15, 1, 0.01))
			v.self = bursts(15, 15, 15, 2, 0)
			return newSim(t, singleNode(t), v, be(2, "/grind/1", model.Batch, bursts(15, 15, 15, 3, 0)))
		},
		want:  []string{"spec        front"},
		never: []string{"anomaly", "-> "},
	}, {
		name: "case-4", until: 140,
		about: "case 4: nine suspects, eight latency-sensitive; holding the batch one hardly helps, so it is given back",
		build: func(t *testing.T) *sim {
			tasks := []*simTask{lc(1, "/service/1", steady(1)).hurtBy("/prod/1", 0.3).hurtBy("/sim/1", 0.02)}
			for i, name := range []string{"prod", "compile", "security", "stats", "query", "maps", "image", "ads"} {
				tasks = append(tasks, lc(model.TaskNum(2+i), "/"+name+"/1", between(40, 75, 2, 0.002*float64(i))))
			}
			return newSim(t, singleNode(t), append(tasks, be(10, "/sim/1", model.Batch, between(40, 75, 2, 0.02)))...)
		},
		want:  []string{"left-alone  /prod/1", "hold /sim/1", "taken-back  /sim/1", "release /sim/1", "cannot-fix  /service/1", "tried /sim/1"},
		never: []string{"hold /prod", "hold /ads", "verified"},
	}, {
		name: "rounds-used-up", until: 140,
		about: "three suspects are held one after the other without effect: nothing more is tried",
		build: func(t *testing.T) *sim {
			v := lc(1, "/web/1", steady(1))
			v.self = between(40, 90, 1, 0)
			tasks := []*simTask{v}
			for i, name := range []string{"a", "b", "c", "d"} {
				tasks = append(tasks, be(model.TaskNum(2+i), "/"+name+"/1", model.Batch, between(40, 90, 2, 0.005*float64(i))))
			}
			return newSim(t, singleNode(t), tasks...)
		},
		want:  []string{"hold /a/1", "taken-back  /a/1", "hold /b/1", "taken-back  /b/1", "hold /c/1", "taken-back  /c/1", "cannot-fix", "3 suspects were held one after the other"},
		never: []string{"hold /d/1", "verified"},
	}, {
		name: "nobody-correlates", until: 110,
		about: "the victim suffers from something that nobody's usage explains: searched, given up, left in peace",
		build: func(t *testing.T) *sim {
			v := lc(1, "/web/1", steady(1))
			v.self = between(40, 70, 1, 0)
			return newSim(t, singleNode(t), v, be(2, "/report/1", model.Batch, steady(1)), lc(3, "/mail/1", steady(0.5)))
		},
		want:  []string{"anomaly", "search", "cannot-fix"},
		never: []string{"-> "},
	}, {
		name: "own-quota", until: 110,
		about: "slowdown: the victim's own quota throttles it; its delay accuses nobody",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 75, 3, 0))
			n.slowdown = true
			n.task("/web/1").throttledBySelf = func(s int) bool { return s >= 40 }
			return n
		},
		want:  []string{"spec        web"},
		never: []string{"anomaly", "-> "},
	}, {
		name: "own-queue", until: 110,
		about: "slowdown: the victim queues behind itself on one CPU of its own; nobody is accused",
		build: func(t *testing.T) *sim {
			v := lc(1, "/web/1", steady(0.98))
			v.CPUs = 1
			v.self = between(40, 75, 4, 0)
			n := newSim(t, singleNode(t), v, be(2, "/grind/1", model.Batch, between(40, 75, 3, 0)))
			n.slowdown = true
			return n
		},
		want:  []string{"spec        web"},
		never: []string{"anomaly", "-> "},
	}, {
		name: "unmanaged", until: 110,
		about: "CPU that no task of ours used is the top suspect; a bystander that correlates less is not held for it",
		build: func(t *testing.T) *sim {
			n := newSim(t, singleNode(t), lc(1, "/web/1", steady(1)), be(2, "/copy/1", model.Batch, between(40, 75, 2, 0.3)), be(3, "/report/1", model.Batch, steady(1)))
			n.unmanaged, n.hurtUnmanaged = between(40, 75, 4, 0), 0.5
			return n
		},
		want:  []string{"left-alone  (unmanaged CPU)", "cannot-fix", "no task of ours used this CPU", "explains the victim clearly better"},
		never: []string{"-> "},
	}, {
		name: "steal", until: 110,
		about: "steal is the top suspect: nobody is held",
		build: func(t *testing.T) *sim {
			n := newSim(t, singleNode(t), lc(1, "/web/1", steady(1)), be(2, "/report/1", model.Batch, steady(1)))
			n.steal, n.hurtSteal = between(40, 75, 2, 0), 0.8
			return n
		},
		want:  []string{"left-alone  (steal)", "cannot-fix", "the hypervisor took this time"},
		never: []string{"-> "},
	}, {
		name: "system-task", until: 110,
		about: "a system task is the antagonist: neither protected nor held",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 75, 3, 0))
			n.task("/grind/1").Class = model.System
			return n
		},
		want:  []string{"left-alone  /grind/1", "cannot-fix", "left alone: system is never held"},
		never: []string{"-> "},
	}}
}

// operatorScenarios are about what people say and about limits.
func operatorScenarios() []scenario {
	grind := model.TaskNum(4)
	return []scenario{{
		name: "max-held-tasks", until: 130,
		about: "limits.max_held_tasks 1: a second victim's antagonist is not held",
		build: func(t *testing.T) *sim {
			p := singleNode(t)
			p.Limits.MaxHeldTasks = 1
			return newSim(t, p,
				lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.5),
				lc(2, "/mail/1", steady(1)).hurtBy("/mill/1", 0.5),
				be(3, "/grind/1", model.Batch, between(40, 75, 3, 0)),
				be(4, "/mill/1", model.Batch, between(52, 75, 3, 0)))
		},
		want:  []string{"hold /grind/1", "limit       /mill/1", "limits.max_held_tasks"},
		never: []string{"hold /mill/1"},
	}, {
		name: "max-be-cpu-taken", until: 130,
		about: "limits.max_be_cpu_taken 0.6: the first may always be held, the second would take too much",
		build: func(t *testing.T) *sim {
			p := singleNode(t)
			p.Limits.MaxBETaken = 0.6
			return newSim(t, p,
				lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.5),
				lc(2, "/mail/1", steady(1)).hurtBy("/mill/1", 0.5),
				be(3, "/grind/1", model.Batch, between(40, 75, 3, 0)),
				be(4, "/mill/1", model.Batch, between(52, 75, 3, 0)),
				be(5, "/report/1", model.Batch, steady(1)))
		},
		want:  []string{"hold /grind/1", "limit       /mill/1", "limits.max_be_cpu_taken"},
		never: []string{"hold /mill/1"},
	}, {
		name: "kill-switch", until: 190,
		about: "the kill switch appears while a cap is in force: released at once, observed only; it goes: enforced again",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 125, 3, 0))
			n.at[50] = func(n *sim, _ *engine.Input) { n.kill = true }
			n.at[90] = func(n *sim, _ *engine.Input) { n.kill = false }
			return n
		},
		want: []string{"hold /grind/1", "kill-switch", "everything is released", "release /grind/1", "observed only", "kill switch is gone", "hold /grind/1", "verified"},
	}, {
		name: "protect-job", until: 150,
		about: "protection of the job is turned off while its antagonist is held, and on again",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 110, 3, 0))
			n.at[50] = command(model.Command{Kind: model.CommandProtectOff, Job: "web"})
			n.at[70] = command(model.Command{Kind: model.CommandProtectOn, Job: "web"})
			return n
		},
		want: []string{"hold /grind/1", "turned protection off", "protection was turned off for its job", "release /grind/1", "turned protection on", "anomaly", "hold /grind/1"},
	}, {
		name: "protect-job-after-relapse", until: 130,
		about: "protection is turned off while a first cap that helped is still in force and the search goes on: nothing stays held",
		build: func(t *testing.T) *sim {
			v := lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.5)
			v.self = between(60, 110, 0.2, 0)
			n := newSim(t, singleNode(t), v, be(2, "/grind/1", model.Batch, between(40, 110, 4, 0)), be(3, "/report/1", model.Batch, steady(1)))
			n.at[64] = command(model.Command{Kind: model.CommandProtectOff, Job: "web"})
			n.at[70] = func(n *sim, _ *engine.Input) {
				if n.task("/grind/1").limit != noLimit {
					n.t.Errorf("six seconds after protection went off %s is still held", "/grind/1")
				}
			}
			return n
		},
		want: []string{"hold /grind/1", "relapse", "turned protection off", "release /grind/1: applied"},
	}, {
		name: "protect-job-two-held", until: 110,
		about: "two suspects are held for one victim, one after the other, when its protection is turned off: both are released",
		build: func(t *testing.T) *sim {
			n := newSim(t, singleNode(t),
				lc(1, "/web/1", steady(1)).hurtBy("/grind/1", 0.5).hurtBy("/mill/1", 0.8),
				be(2, "/grind/1", model.Batch, between(40, 100, 2, 0)),
				be(3, "/mill/1", model.Batch, between(75, 100, 3, 0)),
				be(4, "/report/1", model.Batch, steady(4)))
			n.at[85] = command(model.Command{Kind: model.CommandProtectOff, Job: "web"})
			n.at[88] = func(n *sim, _ *engine.Input) {
				for _, path := range []string{"/grind/1", "/mill/1"} {
					if n.task(path).limit != noLimit {
						n.t.Errorf("three seconds after protection went off %s is still held", path)
					}
				}
			}
			return n
		},
		want: []string{"hold /grind/1", "hold /mill/1", "turned protection off", "release /grind/1: applied", "release /mill/1: applied"},
	}, {
		name: "protect-all", until: 150,
		about: "protection of all jobs is turned off and on",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 110, 3, 0))
			n.at[50] = command(model.Command{Kind: model.CommandProtectOff})
			n.at[70] = command(model.Command{Kind: model.CommandProtectOn})
			return n
		},
		want: []string{"hold /grind/1", "(all jobs): ann turned protection off", "release /grind/1", "turned protection on", "hold /grind/1"},
	}, {
		name: "operator-cap", until: 60,
		about: "an operator caps a batch task for 20 s in observe mode and frees it early; then for 5 s until it expires; a service nobody caps",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), steady(0))
			n.at[10] = command(model.Command{Kind: model.CommandCap, Task: 3, Cap: 0.2, DurationNsec: 20 * second})
			n.at[15] = command(model.Command{Kind: model.CommandUncap, Task: 3})
			n.at[30] = command(model.Command{Kind: model.CommandCap, Task: 3, Cap: 0.001, DurationNsec: 5 * second})
			n.at[40] = command(model.Command{Kind: model.CommandCap, Task: 2, Cap: 0.2, DurationNsec: 5 * second})
			n.at[45] = command(model.Command{Kind: model.CommandCap, Task: 99, Cap: 1, DurationNsec: 5 * second})
			return n
		},
		want:  []string{"hold /report/1 50000/250000", "ann frees it", "release /report/1", "hold /report/1 1000/1000000", "the cap's time is over", "release /report/1", "LC is never held", "a task that is gone"},
		never: []string{"hold /mail/1"},
	}, {
		name: "operator-demote", until: 60,
		about: "an operator demotes a batch task for 20 s in observe mode and frees it early; then for 5 s until it expires; a service nobody demotes",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), steady(0))
			n.at[10] = command(model.Command{Kind: model.CommandDemote, Task: 3, DurationNsec: 20 * second})
			n.at[15] = command(model.Command{Kind: model.CommandUncap, Task: 3})
			n.at[30] = command(model.Command{Kind: model.CommandDemote, Task: 3, DurationNsec: 5 * second})
			n.at[40] = command(model.Command{Kind: model.CommandDemote, Task: 2, DurationNsec: 5 * second})
			return n
		},
		want:  []string{"cpu.weight of /report/1: applied, cpu.idle", "ann frees it", "release cpu.weight of /report/1", "cpu.idle", "time is over", "release cpu.weight of /report/1", "LC is never held"},
		never: []string{"hold /mail/1"},
	}, {
		name: "operator-uncap", until: 150,
		about: "an operator frees a held suspect: policies leave it alone for a cap's duration",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 140, 3, 0))
			n.at[48] = command(model.Command{Kind: model.CommandUncap, Task: grind})
			n.at[108] = func(n *sim, _ *engine.Input) {
				if n.task("/grind/1").limit != noLimit {
					n.t.Error("held before the exemption is over")
				}
			}
			return n
		},
		want:   []string{"hold /grind/1", "ann frees it", "release /grind/1", "left alone: an operator freed it"},
		never:  []string{"hold /report/1"},
		leaves: []string{"/grind/1"},
	}}
}

// faultScenarios are about a world that does not do as it is asked.
func faultScenarios() []scenario {
	return []scenario{{
		name: "foreign-writer", until: 150,
		about: "a stranger writes the held knob: left, disowned, claims void; `uncap` makes it ours again",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 140, 3, 0))
			n.at[50] = func(n *sim, _ *engine.Input) {
				n.task("/grind/1").limit = model.CPUMax{QuotaUsec: 77_000, PeriodUsec: 100_000}
			}
			return n
		},
		want:   []string{"hold /grind/1", "foreign     /grind/1", "quota 77000 us", "disown /grind/1", "another program"},
		leaves: []string{"/grind/1"},
	}, {
		name: "foreign-then-cap", until: 80,
		about: "after a stranger's write an operator's `cap` takes the knob again, and gives back what the stranger had set",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), steady(0.5))
			n.at[10] = command(model.Command{Kind: model.CommandCap, Task: 4, Cap: 0.2, DurationNsec: 50 * second})
			n.at[20] = func(n *sim, _ *engine.Input) {
				n.task("/grind/1").limit = model.CPUMax{QuotaUsec: 77_000, PeriodUsec: 100_000}
			}
			n.at[30] = command(model.Command{Kind: model.CommandCap, Task: 4, Cap: 0.1, DurationNsec: 10 * second})
			n.at[60] = func(n *sim, _ *engine.Input) {
				if got := n.task("/grind/1").limit.QuotaUsec; got != 77_000 {
					n.t.Errorf("quota %d, the stranger had set 77000", got)
				}
			}
			return n
		},
		want:   []string{"foreign", "disown", "hold /grind/1 25000/250000", "release /grind/1: applied, limit 77000/100000"},
		leaves: []string{"/grind/1"},
	}, {
		name: "refused", until: 150,
		about: "the kernel refuses every write: told once, backed off, nothing of ours remains",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 140, 3, 0))
			n.task("/grind/1").refuse = "invalid argument"
			return n
		},
		want:  []string{"hold /grind/1 25000/250000: refused", "refused     /grind/1", "next try in", "the write was refused: invalid argument"},
		never: []string{"hold /grind/1 25000/250000: applied", "release /grind/1", "hold /report/1"},
		once:  []string{"refused     /grind/1"},
	}, {
		name: "release-refused", until: 150,
		about: "the kernel refuses the release for a while: tried again with growing pauses until it is taken",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 75, 3, 0))
			n.task("/grind/1").refuseLoose = "device or resource busy"
			n.at[115] = func(n *sim, _ *engine.Input) { n.task("/grind/1").refuseLoose = "" }
			return n
		},
		want: []string{"hold /grind/1", "release /grind/1: refused", "release /grind/1: applied, no limit"},
	}, {
		name: "antagonist-vanishes", until: 130,
		about: "the held task's cgroup goes away: the victim is watched all the same",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 75, 3, 0))
			n.task("/grind/1").until = 46
			return n
		},
		want: []string{"hold /grind/1", "is recovered"},
	}, {
		name: "antagonist-vanishes-first", until: 130,
		about: "the suspect's cgroup goes away before the write",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 75, 3, 0))
			n.task("/grind/1").until = 43
			return n
		},
		want:  []string{"hold /grind/1 25000/250000: vanished", "is recovered", "the victim recovered"},
		never: []string{": applied"},
	}, {
		name: "victim-vanishes", until: 130,
		about: "the victim's cgroup goes away while its antagonist is held: released",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 75, 3, 0))
			n.task("/web/1").until = 50
			return n
		},
		want: []string{"hold /grind/1", "the victim's cgroup is gone", "is victim-gone", "release /grind/1: applied"},
	}, {
		name: "clock-gap", until: 130,
		about: "the agent sleeps for ten minutes while a cap is in force: the cap is over, nothing is judged by old violations",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), between(40, 75, 3, 0))
			n.at[44] = func(n *sim, _ *engine.Input) { n.mono += 600 * second }
			return n
		},
		want: []string{"hold /grind/1", "the cap's time is over", "release /grind/1: applied"},
	}, {
		name: "clock-back", until: 80,
		about: "a monotonic clock that stands still or goes back closes no window",
		build: func(t *testing.T) *sim {
			n := shop(t, singleNode(t), steady(0))
			n.at[30] = func(n *sim, _ *engine.Input) { n.mono -= 10 * second }
			n.at[40] = func(n *sim, _ *engine.Input) { n.mono -= second }
			return n
		},
		want:  []string{"spec        web"},
		never: []string{"anomaly"},
	}}
}
