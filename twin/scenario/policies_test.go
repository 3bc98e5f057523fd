package scenario

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// parted is a scenario in which the border between LC and BE cores moves while a BE task is
// under an operator's cap.
const parted = `version: 1
name: parted
duration: 60s
machine: {sockets: 1, cores_per_socket: 8, threads_per_core: 1}
policies: {mode: enforce, warm_up: 20s, config: {cpuset: {mode: enforce}}}
tasks:
  - {name: web, class: LC, cpi: 1, threads: 8, requests: {rate: 500, instructions: 4e6}}
  - {name: batch, class: BE, cpi: 1, threads: 8, phases: [{for: 1s, cpus: 8}]}
timeline:
  - {at: 30s, operator: {do: cap, task: batch, cpus: 0.5, for: 20s}}
  - {at: 35s, rate: {task: web, to: 2500}}
  - {at: 45s, rate: {task: web, to: 200}}
expect:
  decisions: [{kind: resize}]
  figures: [{task: batch, window: all, figure: held_sec, above: 19.5, below: 21}]
  restored: true
measure: [{name: all, from: 0s, to: 60s}]
`

func playParted(t *testing.T, bed NewBed) (on, off *Run) {
	t.Helper()
	f, err := Parse("parted.yaml", []byte(parted), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if on, err = f.Plans[0].Play(bed); err != nil {
		t.Fatal(err)
	}
	if off, err = f.Plans[0].PlayOff(bed); err != nil {
		t.Fatal(err)
	}
	return on, off
}

// A cap lasts until it is given back, however often the task is placed elsewhere meanwhile;
// decisions of every kind can be expected; and all policies are off before the warm-up is over
// and in a baseline.
func TestPoliciesOfTheCPU(t *testing.T) {
	on, off := playParted(t, Typed)
	for _, c := range on.Checks {
		if !c.Passed {
			t.Errorf("%s: %s", c.What, c.Got)
		}
	}
	resized := 0 // under the cap
	for i := range on.Decisions {
		d := &on.Decisions[i]
		if d.MonoNsec < 20e9 {
			t.Errorf("in the warm-up: %+v", d)
		}
		if d.Kind == model.DecideResize && d.MonoNsec > 31e9 && d.MonoNsec < 49e9 {
			resized++
		}
	}
	if resized == 0 {
		t.Error("the border did not move under the cap: nothing was tested")
	}
	for i := range off.Decisions {
		if d := &off.Decisions[i]; d.Policy != "" {
			t.Errorf("with all policies off: %+v", d)
		}
	}
}

// keeper is a bed whose agents put nothing back.
type keeper struct{ Bed }

type keepingHost struct{ node.Host }

func (keepingHost) Restore() (node.Report, error) { return node.Report{}, nil }

func (b keeper) Assemble(c config.Config, d agent.Deps) (*agent.Core, error) {
	d.Wrap = func(h node.Host) node.Host { return keepingHost{h} }
	return b.Bed.Assemble(c, d)
}

// CPUs that an agent leaves behind are not as they were found.
func TestLeftBehind(t *testing.T) {
	on, off := playParted(t, func(p *Plan, seed uint64) (Bed, error) {
		b, err := Typed(p, seed)
		return keeper{b}, err
	})
	if on.AsFound || !strings.HasSuffix(on.NotAsFound, " in cpuset.cpus") {
		t.Errorf("as found: %t, %q", on.AsFound, on.NotAsFound)
	}
	if !off.AsFound {
		t.Errorf("nothing was written, and %s is not as found", off.NotAsFound)
	}
}
