package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/guest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/node/source"
)

// Task says which cgroups are tasks of which job, in one of four ways.
type Task struct {
	Match     string     `yaml:"match,omitempty"`     // a cgroup path, with * and ? within a component
	Unit      string     `yaml:"unit,omitempty"`      // a systemd unit, with * and ?
	Slice     string     `yaml:"slice,omitempty"`     // of unit: the slice that it lies directly in
	Container *Container `yaml:"container,omitempty"` // containers that are in no pod
	Pods      *Pods      `yaml:"pods,omitempty"`      // the pods of a Kubernetes node
	Delegated bool       `yaml:"delegated,omitempty"` // of container and pods: also below groups that are not root's

	Job        string `yaml:"job"`
	Class      string `yaml:"class"`      // LC, BE or system
	Importance string `yaml:"importance"` // of BE: best-effort, batch or critical
	Production bool   `yaml:"production"`
	Eligible   bool   `yaml:"eligible"`        // protected although not LC
	Exclusive  bool   `yaml:"exclusive"`       // of LC: keeps physical cores of its own
	Cores      int    `yaml:"cores"`           // of exclusive: how many; 0: as its quota comes to
	Size       string `yaml:"size"`            // what it was given, by a name; cpu-limit: by its limit
	Guest      string `yaml:"guest,omitempty"` // the tasks are virtual machines: where their guests are asked for idle memory
}

// Container names containers by what their cgroups' paths tell. Without keys: all.
type Container struct {
	Runtime string `yaml:"runtime,omitempty"` // docker, containerd, crio or podman
	ID      string `yaml:"id,omitempty"`      // the beginning of the id
	Parent  string `yaml:"parent,omitempty"`  // the cgroup that they lie directly in
}

// Pods names Kubernetes pods by what their cgroups' paths and log folders tell. Without
// keys: all.
type Pods struct {
	Namespace string `yaml:"namespace,omitempty"` // with * and ?
	Name      string `yaml:"name,omitempty"`      // with * and ?
	QoS       string `yaml:"qos,omitempty"`       // guaranteed, burstable or besteffort
	UID       string `yaml:"uid,omitempty"`       // of one pod
	Level     string `yaml:"level,omitempty"`     // pod (the default): a pod is a task; container: each of its containers
}

// maxCores bounds the cores of an exclusive task: more than any machine has.
const maxCores = 4096

func (c *Config) checkTasks() []check {
	checks := []check{{"tasks", len(c.Tasks) > 0, "is missing; expected at least one rule with match (or unit, container, pods), job and class"}}
	for i := range c.Tasks {
		t := &c.Tasks[i]
		k := func(name string) string { return fmt.Sprintf("tasks[%d].%s", i, name) }
		var class model.Class
		var imp model.Importance
		classErr := class.UnmarshalText([]byte(t.Class))
		_, guestErr := guest.ParseAddress(t.Guest)
		checks = append(checks, c.checkWay(i)...)
		checks = append(checks,
			check{k("job"), t.Job != "", "is missing: every task belongs to a job"},
			check{k("class"), classErr == nil, fmt.Sprintf("is %q; expected LC, BE or system", t.Class)},
			check{k("importance"), t.Importance == "" || imp.UnmarshalText([]byte(t.Importance)) == nil, fmt.Sprintf("is %q; expected best-effort, batch or critical", t.Importance)},
			check{k("importance"), t.Importance == "" || class == model.BE, "only BE tasks have an importance"},
			check{k("class"), !c.jobHasOtherClass(i), fmt.Sprintf("job %q has another class in an earlier rule", t.Job)},
			check{k("exclusive"), !t.Exclusive || class == model.LC, "only LC tasks keep cores of their own"},
			check{k("cores"), t.Cores >= 0 && t.Cores <= maxCores, fmt.Sprintf("is %d; expected 0 (as many as the task's quota comes to) to %d", t.Cores, maxCores)},
			check{k("size"), model.SizeName(t.Size) == nil, fmt.Sprint(model.SizeName(t.Size))},
			check{k("cores"), t.Cores == 0 || t.Exclusive, "only exclusive tasks have a number of cores"},
			check{k("guest"), t.Guest == "" || guestErr == nil, fmt.Sprintf("is %v", guestErr)},
		)
	}
	return checks
}

// jobHasOtherClass: a job is a set of like tasks.
func (c *Config) jobHasOtherClass(i int) bool {
	return slices.ContainsFunc(c.Tasks[:i], func(t Task) bool { return t.Job == c.Tasks[i].Job && t.Class != c.Tasks[i].Class })
}

// checkWay checks that a rule says in one way which cgroups it means. What it says there
// is for match.Compile to judge.
func (c *Config) checkWay(i int) []check {
	t := &c.Tasks[i]
	var ways []string
	for _, w := range []struct {
		key string
		is  bool
	}{{"match", t.Match != ""}, {"unit", t.Unit != ""}, {"container", t.Container != nil}, {"pods", t.Pods != nil}} {
		if w.is {
			ways = append(ways, w.key)
		}
	}
	at := fmt.Sprintf("tasks[%d]", i)
	if len(ways) > 1 {
		at += "." + ways[1]
	}
	return []check{
		{at, len(ways) > 0, "does not say which cgroups it means; expected match, unit, container or pods"},
		{at, len(ways) <= 1, fmt.Sprintf("a rule says in one way which cgroups it means; here are %s", strings.Join(ways, " and "))},
		{fmt.Sprintf("tasks[%d].delegated", i), !t.Delegated || t.Container != nil || t.Pods != nil, "trusts the names of containers and pods, and goes with container or pods"},
		{fmt.Sprintf("tasks[%d].slice", i), t.Slice == "" || t.Unit != "", "says where a unit is, and goes with unit"},
	}
}

// ruleOf returns the key that an error of match.Compile is about.
func ruleOf(err error) string {
	var rule *match.RuleError
	if errors.As(err, &rule) {
		return fmt.Sprintf("tasks[%d].%s", rule.Rule, rule.Key)
	}
	return "tasks"
}

// Rules returns the task rules of a checked configuration.
func (c *Config) Rules() []match.Rule {
	rules := make([]match.Rule, len(c.Tasks))
	for i := range c.Tasks {
		t := &c.Tasks[i]
		rules[i] = match.Rule{
			Glob: t.Match, Unit: t.unit(), Containers: t.containers(), Pods: t.pods(), Delegated: t.Delegated,
			Job: t.Job, Production: t.Production, Eligible: t.Eligible, Exclusive: t.Exclusive, Cores: t.Cores, Size: t.Size, Guest: t.Guest,
		}
		_ = rules[i].Class.UnmarshalText([]byte(t.Class)) // checked by Validate
		if t.Importance != "" {
			_ = rules[i].Importance.UnmarshalText([]byte(t.Importance))
		}
	}
	return rules
}

func (t *Task) unit() *source.Unit {
	if t.Unit == "" {
		return nil
	}
	return &source.Unit{Name: t.Unit, Slice: t.Slice}
}

func (t *Task) containers() *source.Containers {
	if t.Container == nil {
		return nil
	}
	return &source.Containers{Runtime: source.Runtime(t.Container.Runtime), ID: t.Container.ID, Parent: t.Container.Parent}
}

func (t *Task) pods() *source.Pods {
	if t.Pods == nil {
		return nil
	}
	p := &source.Pods{
		Namespace: t.Pods.Namespace, Name: t.Pods.Name, QoS: source.QoS(t.Pods.QoS), UID: t.Pods.UID, Level: source.Level(t.Pods.Level),
	}
	p.Level = cmp.Or(p.Level, source.Pod)
	return p
}
