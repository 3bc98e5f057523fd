package files_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/scenario"
	"github.com/commensal-io/commensal/twin/scenario/files"
)

// every has each action of a timeline that reaches the kernel.
const every = `version: 1
name: every
duration: 100ms
machine: {sockets: 2, cores_per_socket: 2, threads_per_core: 1}
tasks:
  - {name: web, path: /prod/web, class: LC, cpi: 1, threads: 2, requests: {rate: 2000, instructions: 1e5}}
  - {name: late, class: BE, importance: batch, program: stream, cpus: 0-1, cpu_max: {cpus: 0.2, period: 10ms}}
  - {name: work, path: /low/work, class: BE, cpi: 1, idle: true, shares: 512, phases: [{for: 10ms, cpus: 1}]}
control: [{name: be, tasks: [work], ways: 0x3, mba: [20, 30]}]
timeline:
  - {at: 10ms, start: late}
  - {at: 20ms, become: {task: work, program: stream}}
  - {at: 20ms, ways: {group: be, mask: [1, 3]}}
  - {at: 20ms, mba: {group: be, percent: 10}}
  - {at: 30ms, move: {task: late, group: be}}
  - {at: 30ms, cpu_max: {task: work, cpus: 0.2, period: 10ms, burst: 1ms}}
  - {at: 30ms, shares: {task: web, shares: 4096}}
  - {at: 30ms, idle: {task: work, idle: false}}
  - {at: 30ms, cpus: {task: work, cpus: 1-3}}
  - {at: 30ms, pages: {task: work, nodes: [0.25, 0.75]}}
  - {at: 40ms, offline: 2-3}
  - {at: 50ms, online: 2-3}
  - {at: 50ms, lose_counters: {for: 20ms}}
  - {at: 50ms, refuse_writes: {error: EBUSY, for: 20ms}}
  - {at: 60ms, restart_agent: {down: 10ms}}
  - {at: 70ms, kill_switch: true}
  - {at: 80ms, stop: late}
  - {at: 90ms, start: late}
`

// The world's deeds are in the kernel's files, and through them on the machine.
func TestEveryAction(t *testing.T) {
	f := parse(t, "every", every)
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			var bed scenario.Bed
			run, err := f.Plans[0].Play(func(p *scenario.Plan, seed uint64) (scenario.Bed, error) {
				var err error
				bed, err = files.Bed(files.Options{Layout: layout})(p, seed)
				return bed, err
			})
			if err != nil {
				t.Fatal(err)
			}
			want := model.CPUMax{QuotaUsec: 2000, PeriodUsec: 10_000, BurstUsec: 1000}
			if v, err := bed.Setting("/low/work", model.CPUBandwidth); err != nil || v.CPUMax != want {
				t.Errorf("work has the limit %+v, %v", v, err)
			}
			m := bed.Machine()
			const work = 1
			if v, err := m.CPUMax(work); err != nil || model.CPUMax(v) != want {
				t.Errorf("the machine holds work to %+v, %v", v, err)
			}
			if pages, err := m.Pages(work); err != nil || pages[1] != 0.75 {
				t.Errorf("work has the pages %v, %v", pages, err)
			}
			if on := m.Online(); on.Len() != 4 {
				t.Errorf("CPUs %s are online", on)
			}
			if !run.AsFound {
				t.Errorf("%s is not as found", run.NotAsFound)
			}
			if late := run.Windows[0].Tasks[1]; late.AliveSec < 0.079 || late.AliveSec > 0.081 {
				t.Errorf("late: %+v", late)
			}
		})
	}
}

// Tasks in groups of one group weigh what they say, and CPUs that were gone come back to
// those who may use them, also where the kernel forgets them.
func TestSharesAndCPUs(t *testing.T) {
	const text = `version: 1
name: shares
duration: 40s
machine: {sockets: 1, cores_per_socket: 8, threads_per_core: 1}
tasks:
  - {name: many, class: BE, count: 3, cpi: 1, threads: 8}
  - {name: one, class: BE, cpi: 1, threads: 8}
  - {name: rest, path: /low/rest, class: BE, cpi: 1, threads: 8, idle: true}
timeline:
  - {at: 10s, offline: 4-7}
  - {at: 20s, online: 4-7}
  - {at: 30s, idle: {task: rest, idle: false}}
measure:
  - {name: all, from: 1s, to: 10s}
  - {name: half, from: 11s, to: 20s}
  - {name: again, from: 21s, to: 30s}
  - {name: five, from: 31s}
expect:
  figures:
    - {task: many, window: all, figure: cpu, above: 1.99, below: 2.01}
    - {task: one, window: all, figure: cpu, above: 1.99, below: 2.01}
    - {task: rest, window: all, figure: cpu, below: 0.02}
    - {task: many, window: half, figure: cpu, above: 0.99, below: 1.01}
    - {task: one, window: half, figure: cpu, above: 0.99, below: 1.01}
    - {task: many, window: again, figure: cpu, above: 1.99, below: 2.01}
    - {task: one, window: again, figure: cpu, above: 1.99, below: 2.01}
    - {task: many, window: five, figure: cpu, above: 1.59, below: 1.61}
    - {task: rest, window: five, figure: cpu, above: 1.59, below: 1.61}
`
	f := parse(t, "shares", text)
	for _, layout := range layouts {
		passes(t, f, files.Bed(files.Options{Layout: layout}))
	}
	passes(t, f, scenario.Typed)
}

func passes(t *testing.T, f *scenario.File, bed scenario.NewBed) *scenario.Run {
	t.Helper()
	res, err := f.PlayAll(bed, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range res.Runs[0].Checks {
		if !c.Passed {
			t.Errorf("%s: %s: got %s", res.Seam, c.What, c.Got)
		}
	}
	return &res.Runs[0]
}

// An agent is killed while the kernel refuses all writes: neither its guardian nor the next
// agent's start can put the cap back. It stays in the journal, and goes once writes are
// taken again, without that it were anybody's to see.
func TestRestartWhileRefused(t *testing.T) {
	const text = `version: 1
name: refused
duration: 3m
machine: {sockets: 1}
tasks:
  - {name: web, class: LC, cpi: 1, threads: 2}
  - {name: batch, class: BE, cpi: 1, threads: 2}
timeline:
  - {at: 20s, operator: {do: cap, task: batch, cpus: 0.5, for: 10m}}
  - {at: 30s, refuse_writes: {error: device or resource busy, for: 60s}}
  - {at: 40s, restart_agent: {down: 5s}}
policies: {mode: enforce}
measure:
  - {name: held, from: 30s, to: 1m30s}
  - {name: free, from: 2m}
expect:
  restored: true
  figures:
    - {task: batch, window: held, figure: cpu, above: 0.49, below: 0.51}
    - {task: batch, window: free, figure: cpu, above: 1.99}
`
	f := parse(t, "refused", text)
	for _, layout := range layouts {
		run := passes(t, f, files.Bed(files.Options{Layout: layout, DiscoverEvery: 5e9}))
		told := false
		for _, e := range run.Events {
			told = told || strings.Contains(e.What, "/batch could not be restored") && strings.Contains(e.What, "busy")
		}
		if !told {
			t.Errorf("%s: nobody says that the guardian failed: %v", layout, run.Events)
		}
	}
}

// What cannot be played is refused with its line, and only where it cannot.
func TestRefused(t *testing.T) {
	const head = "version: 1\nname: r\nduration: 10s\ntasks:\n  - {name: a, class: BE, cpi: 1%s}\n%s"
	for _, c := range []struct {
		task, more string
		layout     cgroup.Layout
		want       string
	}{
		{"", "", cgroup.LayoutV2, ""},
		{", shares: 102401", "", cgroup.LayoutV2, "r.yaml:5: tasks[0].shares: is 102401; on cgroup v2 there is no weight above that of 102400 shares"},
		{", shares: 102401", "", cgroup.LayoutHybrid, ""},
		{"", "control: [{name: g, tasks: [a], shares: 200000}]\n", cgroup.LayoutV2, "r.yaml:6: control[0].shares: is 200000"},
		{"", "timeline:\n  - {at: 1s, shares: {task: a, shares: 200000}}\n", cgroup.LayoutV2, "r.yaml:7: timeline[0].shares.shares: is 200000"},
		{"", "timeline:\n  - {at: 1s, refuse_writes: {error: it rains, for: 1s}}\n", cgroup.LayoutHybrid, `r.yaml:7: timeline[0].refuse_writes.error: is "it rains"; through files it has to be an error of the kernel`},
		{"", "timeline:\n  - {at: 1s, refuse_writes: {error: EIO, for: 1s}}\n", cgroup.LayoutHybrid, ""},
		{"", "timeline:\n  - {at: 1s, refuse_writes: {for: 1s}}\n", cgroup.LayoutV2, ""},
	} {
		f := parse(t, "r", strings.Replace(strings.Replace(head, "%s", c.task, 1), "%s", c.more, 1))
		o := files.Options{Layout: c.layout}
		err := o.Check(f)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s %q: %v, want %q", c.layout, c.task+c.more, err, c.want)
		}
		if _, played := f.PlayAll(files.Bed(o), false); (played == nil) != (c.want == "") {
			t.Errorf("%s %q: played: %v", c.layout, c.task+c.more, played)
		}
	}
	if _, err := files.ParseOptions("v1"); err == nil {
		t.Error("a layout that is none")
	}
}

// Through files too, one scenario and one seed give one result, byte for byte.
func TestDeterministic(t *testing.T) {
	f := library(t, "faults")
	var first []byte
	for _, procs := range []int{1, 4} {
		before := runtime.GOMAXPROCS(procs)
		res, err := f.PlayAll(files.Bed(files.Options{Layout: cgroup.LayoutHybrid, DiscoverEvery: 5e9}), false)
		runtime.GOMAXPROCS(before)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		} else if !bytes.Equal(first, b) {
			t.Errorf("another result with %d processors", procs)
		}
	}
}

// A bed's world knows its tasks.
func TestNoTask(t *testing.T) {
	f := parse(t, "every", every)
	bed, err := files.Bed(files.Options{Layout: cgroup.LayoutV2})(f.Plans[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"stop": bed.Stop("/none"), "shares": bed.SetShares("/none", 3), "idle": bed.SetIdle("/none", true), "cpus": bed.SetCPUs("/none", model.FullSet(1)),
		"stranger": bed.Stranger("/none", model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}),
	} {
		if err == nil {
			t.Errorf("%s of no task is nothing", what)
		}
	}
}
