package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/model"
)

const good = `version: 1
name: small
duration: 20s
machine: {sockets: 2}
tasks:
  - name: web
    class: LC
    cpi: 1
    threads: 2
    requests: {rate: 100, instructions: 1e6}
  - name: batch
    class: BE
    importance: best-effort
    program: stream
    count: 2
control:
  - {name: be, tasks: [batch], ways: 0x3, mba: 50}
timeline:
  - {at: 5s, rate: {task: web, to: 200}}
measure:
  - {name: first, from: 1s, to: 10s}
  - {name: second, from: 10s}
`

func TestGood(t *testing.T) {
	f, err := Parse("f.yaml", []byte(good), Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := f.Plans[0]
	if len(f.Plans) != 1 || len(p.actors) != 3 || p.actors[2].name != "batch-2" || p.actors[2].task.Path != "/batch/2" {
		t.Fatalf("%d plans, actors %+v", len(f.Plans), p.actors)
	}
	if p.Scenario.Measure[1].To != 20*time.Second || p.machine.Sockets != 2 || p.actors[0].cfg.Requests.Variation != 1 {
		t.Errorf("defaults: %+v, %+v", p.Scenario.Measure, p.machine)
	}
	if got := p.find("batch"); len(got) != 2 || len(p.find("batch-1")) != 1 {
		t.Errorf("batch is %v", got)
	}
}

// Every impossible scenario is refused with the line and the key.
func TestBad(t *testing.T) {
	// change replaces a text of the good file; add puts lines behind it.
	change := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %q in the good file", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	add := func(text string) string { return good + text }
	for _, c := range []struct{ text, want string }{
		{"", `version: is missing`},
		{change("version: 1", "version: 2"), `f.yaml:1: version: is 2, newer than this program reads (1)`},
		{change("version: 1", "version: 0"), `f.yaml:1: version: is 0; expected 1`},
		{change("name: small", "nmae: small"), `f.yaml:2: unknown key "nmae"; did you mean "name"?`},
		{change("duration: 20s", "duration: 20"), `f.yaml:3: duration: is "20"; expected a duration such as 10s`},
		{change("duration: 20s", "duration: -1s"), `f.yaml:3: duration: is -1s`},
		{change("duration: 20s", "duration: 20s5ms"), `expected a multiple of the machine's step, 10ms`},
		{change("sockets: 2", "sockets: 9"), `f.yaml:4: machine.sockets: is 9 is not in [1, 8]`},
		{change("sockets: 2", "preset: epyc"), `f.yaml:4: machine.preset: is "epyc"; expected one of skylake`},
		{change("sockets: 2", "llc: big"), `f.yaml:4: machine.llc: is "big"; expected a size such as 22MiB`},
		{change("sockets: 2", "hz: .nan"), `f.yaml:4: machine.hz: is NaN`},
		{change("class: LC", "class: lc"), `f.yaml:7: tasks[0].class: is "lc"; expected LC, BE, system, kernel or none`},
		{change("cpi: 1", "cpi: .nan"), `f.yaml:8: tasks[0].cpi: CPI NaN is not in`},
		{change("cpi: 1", "cpi: -1"), `f.yaml:8: tasks[0].cpi: `},
		{change("    cpi: 1\n", ""), `tasks[0].cpi: is missing; expected a program`},
		{change("threads: 2", "threads: 0"), `f.yaml:9: tasks[0].threads: `},
		{change("threads: 2", "threads: two"), `f.yaml:9: tasks[0].threads: is "two"; expected a whole number`},
		{change("threads: 2", "cpus: 60-64"), `f.yaml:9: tasks[0].cpus: is "60-64", and the machine has CPUs 0-63`},
		{change("threads: 2", "cpus: 3-1"), `f.yaml:9: tasks[0].cpus: is "3-1"; expected a list of CPUs`},
		{change("threads: 2", "pages: [0, 0, 1]"), `f.yaml:9: tasks[0].pages: names 3 nodes, and the machine has 2`},
		{change("threads: 2", "pages: [0.5, 0.2]"), `f.yaml:9: tasks[0].pages: sum to 0.7`},
		{change("threads: 2", "curve: {step: 1MiB, mpki: [1, 2]}"), `tasks[0].curve.mpki[1]: is 2; expected 0 to 1: more cache never means more misses`},
		{change("threads: 2", "phases: [{for: 1s, cpus: 1}]"), `tasks[0].phases: a task has either requests or phases`},
		{change("threads: 2", "importance: batch"), `only BE tasks have an importance`},
		{change("threads: 2", "on_cap: {do: dance}"), `tasks[0].on_cap.do: is "dance"; expected lame-duck or quit`},
		{change("threads: 2", "slo: {quantile: 99, latency: 1ms}"), `tasks[0].slo.quantile: is 99; expected a share`},
		{change("threads: 2", "stop: 30s"), `tasks[0].stop: is 30s; expected 0s to the scenario's duration, 20s`},
		{change("rate: 100", "rate: -1"), `f.yaml:10: tasks[0].requests.rate: is -1; expected 0 to`},
		{change("program: stream", "program: steam"), `f.yaml:14: tasks[1].program: is "steam"; did you mean "stream"?`},
		{change("name: batch", "name: web"), `f.yaml:11: tasks[1].name: is "web", which is also the name in line 6`},
		{change("name: batch", "name: b atch"), `f.yaml:11: tasks[1].name: is "b atch"; expected letters`},
		{change("    count: 2\n", "    path: /web/x\n"), `f.yaml:15: tasks[1].path: /web and /web/x: a task contains no other task`},
		{change("count: 2", "count: 1000"), `f.yaml:15: tasks[1].count: is 1000; expected 1 to 512`},
		{change("count: 2", "job: web"), `tasks[1].class: is BE, and job "web" has class LC in line 6`},
		{change("ways: 0x3", "ways: 0xfff"), `f.yaml:17: control[0].ways: is 0xfff, and the cache has 11 ways: at most 0x7ff`},
		{change("ways: 0x3", "ways: 0x5"), `f.yaml:17: control[0].ways: is 0x5; expected at least one way, and all of them side by side`},
		{change("ways: 0x3", "ways: 0"), `f.yaml:17: control[0].ways: is 0x0`},
		{change("ways: 0x3", "ways: [1, 1, 1]"), `control[0].ways: has 3 masks; expected one, or one for each of 2 last-level caches`},
		{change("mba: 50", "mba: 5"), `f.yaml:17: control[0].mba: is 5; expected 10 to 100 per cent`},
		{change("tasks: [batch]", "tasks: [batsch]"), `f.yaml:17: control[0].tasks[0]: is "batsch"; expected the name of a task; did you mean "batch"?`},
		{change("tasks: [batch]", "tasks: [batch, batch-1]"), `control[0].tasks[1]: batch-1 is in group "be" already`},
		{change("task: web, to: 200", "task: wib, to: 200"), `f.yaml:19: timeline[0].rate.task: is "wib"; expected the name of a task; did you mean "web"?`},
		{change("task: web, to: 200", "task: batch, to: 200"), `timeline[0].rate.task: is "batch", which has no requests`},
		{change("task: web, to: 200", "task: web, to: -5"), `timeline[0].rate.to: is -5`},
		{change("at: 5s", "at: 50s"), `f.yaml:19: timeline[0].at: is 50s; expected 0s to the scenario's duration`},
		{change("at: 5s", "at: 5s, every: 0.1ms"), `timeline[0].every: is 100µs; expected a multiple`},
		{change("at: 5s", "at: 5s, stop: web"), `timeline[0]: does stop and rate; expected one action`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s}"), `timeline[0]: does nothing`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s, offline: 0-3}"), `timeline[0].offline: is "0-3"; the first CPU stays`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s, steal: {cpus: 0-3, share: 0.95}}"), `timeline[0].steal.share: is 0.95; expected 0 to 0.9`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s, softirq: {cpus: 0-1}}"), `timeline[0].softirq.share: is 0`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s, softirq: {cpus: 0-99, share: 0.5}}"), `timeline[0].softirq.cpus: is "0-99", and the machine has`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s, ways: {group: bee, mask: 1}}"), `timeline[0].ways.group: is "bee"; did you mean "be"?`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s, cpu_max: {task: web, cpus: 0.001}}"), `timeline[0].cpu_max.cpus: is 0.001, a quota of 100 us`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s, operator: {do: cap, task: web, cpus: 0}}"), `timeline[0].operator.cpus: is 0`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s, operator: {do: move-pages, task: web, node: 7}}"), `timeline[0].operator.node: is 7`},
		{change("{at: 5s, rate: {task: web, to: 200}}", "{at: 5s, operator: {do: move-pages, task: web, keep: 2}}"), `timeline[0].operator.keep: is 2`},
		{change("name: second", "name: first"), `f.yaml:22: measure[1].name: is "first", which is also the name in line 21`},
		{change("to: 10s}", "to: 1s}"), `f.yaml:21: measure[0].to: is 1s, not after from, 1s`},
		{add("policies: {profile: big}\n"), `policies.profile: is "big"; expected one of cpi2, relief, single-node`},
		{add("policies: {mode: on}\n"), `policies.mode: is "on"; expected off, observe or enforce`},
		{add("policies:\n  config:\n    cpi2: {outlier_treshold_1: 3}\n"), `f.yaml:25: unknown key "outlier_treshold_1"; did you mean "outlier_threshold_1"?`},
		{add("policies:\n  config:\n    cpi2: {outlier_threshold_1: -3}\n"), `f.yaml:25: policies.config.cpi2.outlier_threshold_1: is -3`},
		{add("policies:\n  config: {mode: off}\n"), `policies.config.mode: is said elsewhere`},
		{add("specs: [{job: db, mean: 1}]\n"), `specs[0].job: is "db"; expected the job of a task`},
		{add("specs: [{job: web, mean: .inf}]\n"), `specs[0].mean: is +Inf`},
		{add("sweep: [{key: control.be.colour, values: [1]}]\n"), `sweep[0].key: is "control.be.colour", which is not written in this file`},
		{add("sweep: [{key: control.be.ways, values: [0x1, 0x5]}]\n"), `f.yaml:17: control[0].ways: is 0x5; expected at least one way, and all of them side by side (in the sweep, with control.be.ways = 0x5)`},
		{add("expect: {named: [nobody]}\n"), `expect.named[0]: is "nobody"; expected the name of a task`},
		{add("expect: {figures: [{task: web, window: third, figure: cpi, below: 1}]}\n"), `expect.figures[0].window: is "third"`},
		{add("expect: {figures: [{task: web, window: first, figure: cip, below: 1}]}\n"), `expect.figures[0].figure: is "cip"; expected one of alive_sec, cpi`},
		{add("expect: {decisions: [{kind: hug}]}\n"), `expect.decisions[0].kind: is "hug"`},
		{add("name: twice\n"), `f.yaml:23: name: is given twice, first in line 2`},
		{add("seed: -1\n"), `f.yaml:23: seed: is "-1"; expected a whole number from 0`},
		{add("about: &a x\n"), `f.yaml:23: anchors, aliases`},
		{add("about:\n"), `f.yaml:23: a key without a value`},
	} {
		_, err := Parse("f.yaml", []byte(c.text), Options{})
		switch {
		case err == nil:
			t.Errorf("accepted, expected %q:\n%s", c.want, c.text)
		case !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n"):
			t.Errorf("error %q\nwant  %q", err, c.want)
		}
	}
}

// A sweep makes a run of each combination, the last key changing fastest.
func TestSweep(t *testing.T) {
	f, err := Parse("f.yaml", []byte(good+"sweep:\n  - {key: control.be.ways, values: [0x1, 0x3]}\n  - {key: 'control[0].mba', values: [10, 100]}\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range f.Plans {
		g := p.Scenario.Control[0]
		got = append(got, p.Settings[0].Value+" "+p.Settings[1].Value)
		if len(g.Ways) != 1 || len(g.MBA) != 1 {
			t.Errorf("%+v", g)
		}
	}
	if want := "0x1 10,0x1 100,0x3 10,0x3 100"; strings.Join(got, ",") != want {
		t.Errorf("runs %v, want %s", got, want)
	}
	if f.Plans[3].Scenario.Control[0].Ways[0] != 3 || f.Plans[3].Scenario.Control[0].MBA[0] != 100 {
		t.Errorf("the last run has %+v", f.Plans[3].Scenario.Control[0])
	}
}

// What the command line says stands above the file, and the file's expectations are then
// not judged.
func TestOptions(t *testing.T) {
	seed := uint64(7)
	f, err := Parse("f.yaml", []byte(good), Options{
		Seed: &seed, Profile: "cpi2", Mode: "observe", Switches: []Setting{{"groups.enabled", "true"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := f.Plans[0]
	if p.Scenario.Seed != 7 || p.config.Profile != "cpi2" || p.config.Policies.Mode != model.ModeObserve || !p.config.Policies.Hardcap.Groups.Enabled || p.judged {
		t.Errorf("%+v", p.config)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(every))
	f.Add([]byte(good + "sweep: [{key: control.be.ways, values: [0x1, 0x3]}]\nexpect: {named: [batch-1], figures: [{task: web, window: first, figure: cpi, below: .inf}]}\n"))
	f.Add([]byte("version: 1\nname: x\nduration: 1s\ntasks: [{name: a, class: BE, cpi: 1e308, threads: 99999999999}]"))
	f.Add([]byte("version: 1\nmachine: {llc: 1e400GiB, sockets: -1, step: 1ns}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Parse("f", b, Options{})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("error of more than one line: %q", err)
			}
			return
		}
		// What is accepted can be played. A short stretch of a small one is enough here.
		p := file.Plans[0]
		if p.Scenario.Duration > 200*time.Millisecond || len(p.actors) > 8 {
			return
		}
		if _, err := p.Play(Typed); err != nil {
			t.Fatalf("accepted, and cannot be played: %v", err)
		}
	})
}
