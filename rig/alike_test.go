package rig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/scenario"
)

// behaviour writes down what a tenant's instructions are like, as scenarios have it.
func behaviour(c *machine.TaskConfig) string {
	return fmt.Sprintf("cpi: %g, apki: %g, overlap: %g, prefetched: %g, spread: %g, spread_every: %dns, curve: {step: %g, mpki: %s}",
		c.CPI, c.APKI, c.Overlap, c.Prefetched, c.Spread, c.SpreadNsec, float64(c.Curve.StepBytes), strings.ReplaceAll(fmt.Sprint(c.Curve.MPKI), " ", ", "))
}

// A scene of stage contention: who the tenants are, what they have besides, and what the agent's configuration and decisions are.
type alike struct {
	service, batch *machine.TaskConfig
	others         string // their groups
	timeline       string
	works          string // phases of the batch work
	serves         string // what the service does; "": what the tests' web does
	config, expect string // of policies and decisions
}

// bursts are how the tests' hog works, and steady how their stream does.
const bursts, steady = "[{for: 3s, cpus: 1}, {for: 3s, cpus: 0}]", "[{for: 1h, cpus: 0.5}]"

// late batch work begins when the service has a spec of its own, and all of it ends before the agent does.
const late = "timeline: [{at: 1m, start: be-0}]"

var scenes = map[string]alike{
	"cache": {
		service: &service, batch: &scan, works: bursts,
		config: "cache: {mode: enforce, windows: 8, settle: 4s, patience: 90s, rest: 10m}",
		expect: `
    - {kind: divide, says: "2 of 11 ways"}
    - {kind: kept}
    - {kind: taken-back, never: true}
    - {kind: cap, never: true}`,
	},
	"worse": {
		service: &waiter, batch: &solver, works: bursts,
		config: "cache: {mode: enforce, windows: 8, settle: 4s, patience: 90s, rest: 10m}",
		expect: `
    - {kind: divide}
    - {kind: taken-back}
    - {kind: kept, never: true}
    - {kind: cap, never: true}`,
	},
	"remedy": {
		service: &service, batch: &scan, works: bursts, timeline: late,
		config: "remedy: {mode: enforce, settle: 1s, quiet: 10m}",
		expect: `
    - {kind: divide, task: be-0, says: "2 ways of the cache"}
    - {kind: kept, task: be-0}
    - {kind: taken-back, never: true}`,
	},
	"level": {
		service: &waiter, batch: &stream, works: bursts, timeline: late,
		config: "remedy: {mode: enforce, ways: 64, settle: 1s, quiet: 5s}",
		expect: `
    - {kind: level, task: be-0, says: "level 10 of memory bandwidth, had 100"}
    - {kind: kept, task: be-0, says: "with level 10 of memory bandwidth"}
    - {kind: level, task: be-0, says: "services are well"}
    - {kind: cap, never: true}`,
	},
	"pages": {
		service: &waiter, batch: &stream, works: bursts, timeline: late, others: "control: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}]",
		config: "remedy: {mode: enforce, settle: 1s, quiet: 10m}",
		expect: `
    - {kind: left-alone, task: be-0, says: "no class of service is left"}
    - {kind: pages, task: be-0, says: "50 % of its pages on the service's memory, had 100 %"}
    - {kind: kept, task: be-0, says: "of its pages on the service's memory"}
    - {kind: level, never: true}`,
	},
	// The twin tells how long memory takes to answer, and nobody does in the guest: that it is slow is taken for granted.
	"bandwidth": {
		service: &waiter, batch: &stream, works: steady, timeline: "timeline: [{at: 1m, start: be-0}, {at: 1m, start: be-1}]",
		config: "bandwidth: {mode: enforce, latency: 0s, peak: 11, utilisation_high: 0.3, threshold_least: 5, windows: 6, patience: 8s, rest: 10m}",
		expect: `
    - {kind: level, says: "for best-effort work, was 100"}
    - {kind: trial, says: "best-effort work has all memory bandwidth for some windows"}
    - {kind: kept, says: "with less memory bandwidth for best-effort work"}
    - {kind: level, says: "level 100 of memory bandwidth for best-effort work"}
    - {kind: taken-back, never: true}
    - {kind: cap, never: true}`,
	},
	// The margins are the defaults, so the target is another; requests come by themselves.
	"balm": {
		service: &waiter, batch: &stream, works: "[{for: 1h, cpus: 0.75}]", timeline: late, serves: "requests: {rate: 20, instructions: 10e6, variation: 0}, slo: {quantile: 0.75, latency: 13ms, told: true}",
		config: "balm: {mode: enforce, until: grey, settle: 2s, retry: 2s}",
		expect: `
    - {kind: level, task: be-0, says: "services are red"}
    - {kind: level, task: be-0, says: "level 10 of memory bandwidth, was 100"}
    - {kind: level, task: be-0, says: "level 20 of memory bandwidth, was 10"}
    - {kind: pages, task: be-0, says: "at most 90 % of its pages stay"}
    - {kind: cannot-fix, task: be-0, never: true}
    - {kind: cap, never: true}`,
	},
}

// The scenes of stage contention, played without a kernel: on the machine and with the tasks that the stage answers by, and with the configuration that
// the agent has there, the twin's agent decides as the one in the guest does (agent.TestContentionCache, ...CacheWorse, ...Remedy, ...RemedyLevel,
// ...RemedyPages, ...Bandwidth and ...Balm).
func TestTwinDecidesAlike(t *testing.T) {
	for name, c := range scenes {
		t.Run(name, func(t *testing.T) {
			on, serves, second := "\"0\"", c.serves, ""
			if serves == "" {
				on, serves = "0-1", "phases: [{for: 1h, cpus: 0.6}]"
			}
			if c.works == steady {
				second = fmt.Sprintf("  - {name: be-1, job: batch, class: BE, importance: best-effort, threads: 1, cpus: \"1\", pages: [1, 0], phases: %s, stop: 3m, %s}", c.works, behaviour(c.batch))
			}
			f, err := scenario.Parse(name+".yaml", fmt.Appendf(nil, `version: 1
name: %s
about: A service beside who takes its cache, or its memory's bandwidth.
duration: 5m
machine: {preset: skylake, sockets: 2, cores_per_socket: 2, threads_per_core: 1, hz: 2e9, llc: 16MiB, llc_ways: 11, memory_bandwidth: 11GB, link_bandwidth: 4GB}
tasks:
  - {name: web-0, job: web, class: LC, production: true, threads: 1, cpus: %s, pages: [1, 0], %s, %s}
  - {name: be-0, job: batch, class: BE, importance: best-effort, threads: 1, cpus: "1", pages: [1, 0], phases: %s, stop: 3m, %s}
%s
%s
%s
policies:
  profile: cpi2
  mode: observe
  config:
    signals: [cpi]
    %s
    cpi2: {sampling_duration: 500ms, sampling_frequency: 1s, outlier_threshold_1: 5, outlier_threshold_2: {violations: 3, window: 15s}, correlation_window: 30s,
      min_tasks: 1, min_samples_per_task: 12, verify_windows: 10, search_windows: 20, hard_capping_duration: 20s, retry_after: 2s}
expect:
  restored: true
  decisions:%s
`, name, on, serves, behaviour(c.service), c.works, behaviour(c.batch), second, c.timeline, c.others, c.config, c.expect), scenario.Options{})
			if err != nil {
				t.Fatal(err)
			}
			res, err := f.PlayAll(scenario.Typed, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range res.Runs {
				for _, c := range r.Checks {
					if !c.Passed {
						t.Errorf("%s: got %s", c.What, c.Got)
					}
				}
				for _, d := range r.Decisions {
					if !t.Failed() {
						break
					}
					t.Logf("%s %s: %s", d.Kind, d.Path, d.Reason)
				}
			}
			want := contended()
			want.FaultNsec = f.Plans[0].MachineConfig().FaultNsec // there is no swap
			if diff := cmp.Diff(want, f.Plans[0].MachineConfig()); diff != "" {
				t.Errorf("another machine, -stage +scenario:\n%s", diff)
			}
		})
	}
}
