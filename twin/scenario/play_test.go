package scenario

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

// every has each action of a timeline once, and is over soon.
const every = `version: 1
name: every
duration: 100ms
machine: {sockets: 2, cores_per_socket: 2, threads_per_core: 1}
tasks:
  - {name: web, class: LC, cpi: 1, threads: 2, requests: {rate: 2000, instructions: 1e5}, slo: {quantile: 0.9, latency: 1ms}}
  - {name: late, class: BE, importance: batch, program: stream, cpus: 0-1, cpu_max: {cpus: 0.2, period: 10ms}, on_cap: {do: quit}}
  - {name: work, class: BE, cpi: 1, idle: true, phases: [{for: 10ms, cpus: 1}, {for: 10ms, cpus: 0}], on_cap: {do: lame-duck, for: 10ms}}
control: [{name: be, tasks: [work], ways: 0x3, mba: [20, 30], shares: 100}]
timeline:
  - {at: 10ms, start: late}
  - {at: 10ms, rate: {task: web, to: 4000, over: 20ms}}
  - {at: 20ms, diurnal: {task: web, mean: 1000, amplitude: 1, period: 1s, peak: 1s}}
  - {at: 20ms, become: {task: work, program: stream, phases: [{for: 5ms, cpus: 1}]}}
  - {at: 20ms, ways: {group: be, mask: [1, 3]}}
  - {at: 20ms, mba: {group: be, percent: 10}}
  - {at: 30ms, move: {task: late, group: be}}
  - {at: 30ms, every: 10ms, until: 60ms, cpu_max: {task: work, cpus: 0.2, period: 10ms, burst: 1ms}}
  - {at: 30ms, shares: {task: web, shares: 4096}}
  - {at: 30ms, idle: {task: work, idle: false}}
  - {at: 30ms, cpus: {task: work, cpus: 1-2}}
  - {at: 30ms, pages: {task: work, nodes: [0.25, 0.75]}}
  - {at: 40ms, offline: "3"}
  - {at: 50ms, online: "3"}
  - {at: 50ms, lose_counters: {for: 20ms}}
  - {at: 50ms, refuse_writes: {for: 20ms}}
  - {at: 60ms, restart_agent: {down: 10ms}}
  - {at: 70ms, kill_switch: true}
  - {at: 70ms, operator: {do: cap, task: late, cpus: 0.1, for: 1s}}
  - {at: 70ms, operator: {do: protect-off}}
  - {at: 80ms, stop: late}
`

// Each action leaves on the machine what it says.
func TestEveryAction(t *testing.T) {
	f, err := Parse("every.yaml", []byte(every), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var bed Bed
	run, err := f.Plans[0].Play(func(p *Plan, seed uint64) (Bed, error) {
		var err error
		bed, err = Typed(p, seed)
		return bed, err
	})
	if err != nil {
		t.Fatal(err)
	}
	m := bed.Machine()
	work := 1 // late starts later
	if v, err := m.CPUMax(work); err != nil || v.QuotaUsec != 2000 || v.PeriodUsec != 10_000 || v.BurstUsec != 1000 {
		t.Errorf("work has the limit %+v, %v", v, err)
	}
	if pages, err := m.Pages(work); err != nil || math.Abs(pages[1]-0.75) > 1e-9 {
		t.Errorf("work has the pages %v, %v", pages, err)
	}
	if on := m.Online(); on.Len() != 4 {
		t.Errorf("CPUs %s are online", on)
	}
	w := &run.Windows[0]
	if late := &w.Tasks[1]; math.Abs(float64(late.AliveSec)-0.07) > 1e-9 || !(late.CPU > 0.15 && late.CPU < 0.25) {
		t.Errorf("late: %+v", late)
	}
	if web := w.Tasks[0].Latency; web == nil || web.Requests == 0 {
		t.Errorf("web: %+v", w.Tasks[0])
	}
	if !run.AsFound {
		t.Errorf("%s is not as found", run.NotAsFound)
	}
	var said []string
	for _, e := range run.Events {
		said = append(said, e.What)
	}
	if got := strings.Join(said, "; "); got != "the agent is killed; the agent starts" {
		t.Errorf("events: %s", got)
	}
	if _, err := json.Marshal(run); err != nil {
		t.Error(err)
	}
}

// A number that there is not is null, and others have five digits.
func TestNumber(t *testing.T) {
	b, err := json.Marshal([]Number{Number(math.NaN()), Number(math.Inf(1)), 1234567, 0.1 + 0.2})
	if err != nil || string(b) != "[null,null,1.2346e+06,0.3]" {
		t.Errorf("%s, %v", b, err)
	}
}

// A long scenario has no more points and no more beats than a short one.
func TestBounded(t *testing.T) {
	text := strings.Replace(good, "duration: 20s", "duration: 25m", 1)
	f, err := Parse("f.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := f.Plans[0].Play(Typed)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(run.Series.AtSec); n > maxPoints || n < maxPoints/3 {
		t.Errorf("%d points", n)
	}
	for _, s := range run.Series.Tasks {
		if len(s.CPI) != len(run.Series.AtSec) || len(s.CPU) != len(s.CPI) {
			t.Errorf("%s has %d points of %d", s.Task, len(s.CPI), len(run.Series.AtSec))
		}
	}
}

// An operator is told no where the agent's API says no, and nothing is held.
func TestOperatorRefused(t *testing.T) {
	f, err := Parse("f.yaml", []byte(`version: 1
name: operator
duration: 1m
machine: {sockets: 1}
tasks:
  - {name: web, class: LC, cpi: 1}
  - {name: late, class: BE, cpi: 1, start: 50s}
  - {name: batch, class: BE, cpi: 1}
timeline:
  - {at: 10s, operator: {do: cap, task: web, cpus: 0.5, for: 1m}}
  - {at: 20s, operator: {do: uncap, task: late}}
  - {at: 30s, kill_switch: true}
  - {at: 40s, operator: {do: cap, task: batch, cpus: 0.5, for: 1m}}
expect: {nobody_held: true}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := f.Plans[0].Play(Typed)
	if err != nil {
		t.Fatal(err)
	}
	want := []StoryEvent{
		{10, "cap of web is refused: /web is LC: it is never held"},
		{20, "uncap of late is refused: no task \"/late\"; `commensal status` lists the tasks"},
		{40, "cap of batch is refused: the kill switch /run/commensal/off is there, or the fleet's is on: nothing is held while it is"},
	}
	if !slices.Equal(run.Events, want) || !run.Checks[0].Passed {
		t.Errorf("%+v, %+v", run.Events, run.Checks)
	}
}
