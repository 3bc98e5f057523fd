package config

import (
	"os"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/node/source"
)

const manySources = `profile: single-node
tasks:
  - unit: nginx.service
    job: web
    class: LC
    exclusive: true
    cores: 2
  - {unit: "worker@*.service", slice: system-worker.slice, job: workers, class: BE}
  - {container: {runtime: docker}, job: boxes, class: BE}
  - {container: {runtime: podman, id: 4f3a, parent: "/machine.slice"}, job: one, class: BE}
  - {pods: {qos: besteffort}, job: scraps, class: BE, importance: best-effort}
  - {pods: {qos: guaranteed, level: container}, job: services, class: LC, size: cpu-limit}
  - {pods: {qos: burstable, namespace: prod, name: "web-*"}, job: front, class: LC}
`

func TestSources(t *testing.T) {
	c, err := Parse("f.yaml", []byte(manySources))
	if err != nil {
		t.Fatal(err)
	}
	r := c.Rules()
	if r[0].Unit.Name != "nginx.service" || !r[0].Exclusive || r[0].Cores != 2 || r[1].Unit.Slice != "system-worker.slice" {
		t.Errorf("units: %+v, %+v", r[0], r[1])
	}
	if *r[2].Containers != (source.Containers{Runtime: source.Docker}) || *r[3].Containers != (source.Containers{Runtime: source.Podman, ID: "4f3a", Parent: "/machine.slice"}) {
		t.Errorf("containers: %+v, %+v", r[2].Containers, r[3].Containers)
	}
	if *r[4].Pods != (source.Pods{QoS: source.BestEffort, Level: source.Pod}) || *r[5].Pods != (source.Pods{QoS: source.Guaranteed, Level: source.Container}) {
		t.Errorf("pods: %+v, %+v", r[4].Pods, r[5].Pods)
	}
	if r[4].Size != "" || r[5].Size != model.SizeByCPULimit {
		t.Errorf("sizes: %q %q", r[4].Size, r[5].Size)
	}
	if *r[6].Pods != (source.Pods{QoS: source.Burstable, Namespace: "prod", Name: "web-*", Level: source.Pod}) {
		t.Errorf("pods by name: %+v", r[6].Pods)
	}
	// A QoS class makes nobody LC or BE: the rule says it.
	if r[4].Class != model.BE || r[5].Class != model.LC || r[5].Eligible {
		t.Errorf("classes: %+v, %+v", r[4], r[5])
	}
	rules, err := match.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := rules.Find("/kubepods/besteffort/pod1"); got == nil || got.Job != "scraps" {
		t.Errorf("a pod: %+v", got)
	}
	b, err := c.Print()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse("printed", b); err != nil || *again.Tasks[5].Pods != *c.Tasks[5].Pods || again.Tasks[1].Slice != c.Tasks[1].Slice {
		t.Errorf("printed and read: %v\n%s", err, b)
	}
}

func TestAllContainersAndAllPods(t *testing.T) {
	c, err := Parse("f.yaml", []byte("tasks:\n  - {container: {}, job: a, class: BE}\n  - {pods: {}, job: b, class: BE}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Rules(); *r[0].Containers != (source.Containers{}) || *r[1].Pods != (source.Pods{Level: source.Pod}) {
		t.Errorf("%+v", r)
	}
}

// TestDocExamples: the examples of docs/CONFIG.md about tasks are good, those of one block together.
func TestDocExamples(t *testing.T) {
	doc, err := os.ReadFile("../../docs/CONFIG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Tasks\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := strings.Split(section, "```yaml\n")[1:]
	if len(blocks) < 4 {
		t.Fatalf("%d examples: the test looked in the wrong place", len(blocks))
	}
	for _, text := range blocks {
		text, _, _ = strings.Cut(text, "```")
		if _, err := Parse("example", []byte("tasks:\n"+strings.TrimPrefix(text, "tasks:\n"))); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

func TestBadTasks(t *testing.T) {
	const rest = ", job: j, class: BE}\n"
	for _, c := range []struct{ rule, want string }{
		{"{job: j, class: BE}\n", `f.yaml:14: tasks[7]: does not say which cgroups it means; expected match, unit, container or pods`},
		{"{match: /a, pods: {}" + rest, `f.yaml:14: tasks[7].pods: a rule says in one way which cgroups it means; here are match and pods`},
		{"{match: /a, slice: b.slice" + rest, `f.yaml:14: tasks[7].slice: says where a unit is, and goes with unit`},
		{"{unit: nginx" + rest, `f.yaml:14: tasks[7].unit: is "nginx"; expected a unit's full name, ending in .service, .scope or .slice`},
		{"{unit: a.service, slice: b" + rest, `f.yaml:14: tasks[7].slice: `},
		{"{unit: system.slice" + rest, `tasks[7].unit: unit "nginx.service" and unit "system.slice" overlap: a cgroup of one could lie inside`},
		{"{match: \"/system.slice/*\"" + rest, `tasks[7].match: unit "nginx.service" and match "/system.slice/*" overlap: one cgroup could match both; if they never do, say which slice`},
		{"{container: {runtime: rkt}" + rest, `f.yaml:14: tasks[7].container.runtime: is "rkt"; expected docker, containerd, crio or podman`},
		{"{container: {id: NGINX}" + rest, `tasks[7].container.id: is "NGINX"; expected the beginning of an id`},
		{"{container: {name: web}" + rest, `f.yaml:14: unknown key "name"; known here: runtime, id, parent`},
		{"{container: docker" + rest, `expected keys of its own: runtime, id, parent`},
		{"{container: {parent: batch}" + rest, `f.yaml:14: tasks[7].container.parent: match "batch": must begin with /`},
		{"{container:" + rest, `f.yaml:14: `},
		{"{pods: {qos: best-effort}" + rest, `f.yaml:14: tasks[7].pods.qos: is "best-effort"; expected guaranteed, burstable or besteffort`},
		{"{pods: {name: A}" + rest, `f.yaml:14: tasks[7].pods.name: is "A"; expected a pod's name`},
		{"{pods: {labels: {a: b}}" + rest, `f.yaml:14: unknown key "labels"`},
		{"{pods: {level: node}" + rest, `tasks[7].pods.level: `},
		{"{pods: {}" + rest, `tasks[7].pods: pods qos "besteffort" level "pod" and pods level "pod" overlap: one cgroup could match both`},
		{"{pods: {qos: guaranteed}" + rest, `tasks[7].pods: pods qos "guaranteed" level "container" and pods qos "guaranteed" level "pod" overlap: a cgroup of one could lie inside`},
		{"{match: /a, exclusive: true" + rest, `f.yaml:14: tasks[7].exclusive: only LC tasks keep cores of their own`},
		{"{match: /a, cores: 2" + rest, `f.yaml:14: tasks[7].cores: only exclusive tasks have a number of cores`},
		{"{match: /a, guest: \"tcp:/run/vm.sock\"" + rest, `f.yaml:14: tasks[7].guest: is "tcp:/run/vm.sock"; expected unix:/path/of/*/sockets, hybrid:/path/of/*/sockets or vsock`},
		{"{match: /a, exclusive: true, cores: -1, job: j, class: LC}\n", `f.yaml:14: tasks[7].cores: is -1; expected 0`},
	} {
		_, err := Parse("f.yaml", []byte(manySources+"  - "+c.rule))
		switch {
		case err == nil:
			t.Errorf("accepted: %s", c.rule)
		case !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n"):
			t.Errorf("error %q\nwant   %q on one line", err, c.want)
		}
	}
}
