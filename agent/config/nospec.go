package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// NoSpec says which protected jobs can never have a spec with so many tasks as they have on a
// node (tasks, by job), so that nobody is ever found to hurt them; "" when there are none.
func (c *Config) NoSpec(tasks map[string]int) string {
	rules, atLeast := c.Rules(), c.Policies.Spec.MinTasks
	protected := func(job string) bool {
		return slices.ContainsFunc(rules, func(r match.Rule) bool { return r.Job == job && (r.Class == model.LC || r.Eligible) })
	}
	var few []string
	for _, job := range slices.Sorted(maps.Keys(tasks)) {
		if n := tasks[job]; n > 0 && n < atLeast && protected(job) {
			few = append(few, fmt.Sprintf("%s (%d)", job, n))
		}
	}
	if len(few) == 0 {
		return ""
	}
	const shown = 5
	if n := len(few) - shown; n > 0 {
		few = append(few[:shown], fmt.Sprintf("%d more", n))
	}
	text := fmt.Sprintf("nothing will ever be normal or not for jobs with so few tasks here: %s; hard_cap.cpi2.min_tasks asks for %d", strings.Join(few, ", "), atLeast)
	const instead = "; `profile: single-node` is for one machine with few tasks"
	switch c.Profile {
	case ProfileCPI2:
		text += ", as profile cpi2 has it" + instead
	case ProfileRelief:
		text += ", as profile relief has it, which holds where a file names no profile" + instead
	}
	return text
}
