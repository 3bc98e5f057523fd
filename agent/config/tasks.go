package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// Task says which cgroups are tasks of which job.
type Task struct {
	Match      string `yaml:"match"`
	Job        string `yaml:"job"`
	Class      string `yaml:"class"`      // LC, BE or system
	Importance string `yaml:"importance"` // of BE: best-effort, batch or critical
	Production bool   `yaml:"production"`
	Eligible   bool   `yaml:"eligible"`  // protected although not LC
	Exclusive  bool   `yaml:"exclusive"` // of LC: keeps physical cores of its own
	Cores      int    `yaml:"cores"`     // of exclusive: how many; 0: as its quota comes to
}

// maxCores bounds the cores of an exclusive task: more than any machine has.
const maxCores = 4096

func (c *Config) checkTasks() []check {
	checks := []check{{"tasks", len(c.Tasks) > 0, "is missing; expected at least one rule with match, job and class"}}
	for i := range c.Tasks {
		t := &c.Tasks[i]
		k := func(name string) string { return fmt.Sprintf("tasks[%d].%s", i, name) }
		var class model.Class
		var imp model.Importance
		classErr := class.UnmarshalText([]byte(t.Class))
		checks = append(checks,
			check{k("job"), t.Job != "", "is missing: every task belongs to a job"},
			check{k("class"), classErr == nil, fmt.Sprintf("is %q; expected LC, BE or system", t.Class)},
			check{k("importance"), t.Importance == "" || imp.UnmarshalText([]byte(t.Importance)) == nil, fmt.Sprintf("is %q; expected best-effort, batch or critical", t.Importance)},
			check{k("importance"), t.Importance == "" || class == model.BE, "only BE tasks have an importance"},
			check{k("class"), !c.jobHasOtherClass(i), fmt.Sprintf("job %q has another class in an earlier rule", t.Job)},
			check{k("exclusive"), !t.Exclusive || class == model.LC, "only LC tasks keep cores of their own"},
			check{k("cores"), t.Cores >= 0 && t.Cores <= maxCores, fmt.Sprintf("is %d; expected 0 (as many as the task's quota comes to) to %d", t.Cores, maxCores)},
			check{k("cores"), t.Cores == 0 || t.Exclusive, "only exclusive tasks have a number of cores"},
		)
	}
	return checks
}

// jobHasOtherClass: a job is a set of like tasks.
func (c *Config) jobHasOtherClass(i int) bool {
	return slices.ContainsFunc(c.Tasks[:i], func(t Task) bool { return t.Job == c.Tasks[i].Job && t.Class != c.Tasks[i].Class })
}

// ruleOf finds the last rule that a match error names.
func (c *Config) ruleOf(err error) string {
	for i := len(c.Tasks) - 1; i >= 0; i-- {
		if strings.Contains(err.Error(), fmt.Sprintf("match %q", c.Tasks[i].Match)) {
			return fmt.Sprintf("tasks[%d].match", i)
		}
	}
	return "tasks"
}

// Rules returns the task rules of a checked configuration.
func (c *Config) Rules() []match.Rule {
	rules := make([]match.Rule, len(c.Tasks))
	for i := range c.Tasks {
		t := &c.Tasks[i]
		rules[i] = match.Rule{
			Glob: t.Match, Job: t.Job, Production: t.Production, Eligible: t.Eligible, Exclusive: t.Exclusive, Cores: t.Cores,
		}
		_ = rules[i].Class.UnmarshalText([]byte(t.Class)) // checked by Validate
		if t.Importance != "" {
			_ = rules[i].Importance.UnmarshalText([]byte(t.Importance))
		}
	}
	return rules
}
