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

// The scenes of agent.TestContentionRemedyLevel and ...Pages, played without a kernel: on the machine and with the tasks that stage contention answers by,
// and with the configuration that the agent has there, the twin's agent decides as the one in the guest does.
func TestTwinDecidesAlike(t *testing.T) {
	for name, c := range map[string]struct{ control, remedy, expect string }{
		"level": {"", "ways: 64, settle: 1s, quiet: 5s", `
    - {kind: level, task: be-0, says: "level 10 of memory bandwidth, had 100"}
    - {kind: kept, task: be-0, says: "with level 10 of memory bandwidth"}
    - {kind: level, task: be-0, says: "services are well"}
    - {kind: cap, never: true}`},
		"pages": {"control: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}]", "settle: 1s, quiet: 10m", `
    - {kind: left-alone, task: be-0, says: "no class of service is left"}
    - {kind: pages, task: be-0, says: "50 % of its pages on the service's memory, had 100 %"}
    - {kind: kept, task: be-0, says: "of its pages on the service's memory"}
    - {kind: level, never: true}`},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := scenario.Parse(name+".yaml", fmt.Appendf(nil, `version: 1
name: %s
about: A service that waits for memory beside who takes its bandwidth.
duration: 5m
machine: {preset: skylake, sockets: 2, cores_per_socket: 2, threads_per_core: 1, hz: 2e9, llc: 16MiB, llc_ways: 11, memory_bandwidth: 11GB, link_bandwidth: 4GB}
tasks:
  - {name: web-0, job: web, class: LC, production: true, threads: 1, cpus: 0-1, pages: [1, 0], phases: [{for: 1h, cpus: 0.6}], %s}
  - {name: be-0, job: batch, class: BE, importance: best-effort, threads: 1, cpus: "1", pages: [1, 0], phases: [{for: 3s, cpus: 1}, {for: 3s, cpus: 0}], stop: 3m, %s}
timeline: [{at: 1m, start: be-0}]
%s
policies:
  profile: cpi2
  mode: observe
  config:
    signals: [cpi]
    remedy: {mode: enforce, %s}
    cpi2: {sampling_duration: 500ms, sampling_frequency: 1s, outlier_threshold_2: {violations: 3, window: 15s}, correlation_window: 30s, min_tasks: 1,
      min_samples_per_task: 12, verify_windows: 10, search_windows: 20, hard_capping_duration: 20s, retry_after: 2s}
expect:
  restored: true
  decisions:%s
`, name, behaviour(&waiter), behaviour(&stream), c.control, c.remedy, c.expect), scenario.Options{})
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
