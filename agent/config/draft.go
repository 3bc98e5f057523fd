package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/node/survey"
)

// draftHead is what a drafted configuration begins with; what was looked at goes in.
const draftHead = `# Commensal: begun by ` + "`commensal init`" + ` from %s.
#
# It observes: every decision is recorded as it would be done, and nothing is written to the
# kernel before a mode below says enforce. Under tasks stands what init guessed, each with its
# reason: go through it. Then
#
#   commensal config match FILE     which cgroups each rule finds here
#   commensal config check FILE     is the file right?
#   commensal config defaults --profile single-node     every key that is not here, and where it comes from
version: 1

# For one machine with few tasks: a window each second. cpi2 has the paper's windows (10 s in
# each minute) and asks for 5 tasks of a job before it knows what is normal for it.
profile: single-node

# off, observe or enforce: of hard caps, and of each policy of the CPU (docs/POLICIES.md).
mode: observe
cpuset: {mode: observe}
cpu_pool: {mode: observe}
burst: {mode: observe}

# class: LC (latency-critical: protected, never held), BE (best-effort: may be held) or system
# (a suspect, never held). job: like tasks have the same one; their signals are compared. A cgroup
# that no rule claims is never touched.
`

// Draft writes a configuration of what survey.Guess suggests: what it could not guess stands in
// it as comments. from says what was looked at, infra how many units were left alone. The
// result passes Parse.
func Draft(list []survey.Suggestion, from string, infra int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, draftHead, from)
	if infra > 0 {
		fmt.Fprintf(&b, "# Left out, since they keep the host going: %d units.\n", infra)
	}
	if slices.ContainsFunc(list, func(s survey.Suggestion) bool { return s.Rule.Containers != nil && s.Rule.Containers.ID != "" }) {
		b.WriteString("# A container's id is another one when it is made anew: started with --cgroup-parent=/NAME it\n# can be told by {container: {parent: /NAME}}.\n")
	}
	b.WriteString("tasks:\n")
	open := 0
	for i := range list {
		if list[i].Guessed {
			draftRule(&b, &list[i], "  ")
		} else {
			open++
		}
	}
	if open > 0 {
		fmt.Fprintf(&b, "\n  # Left open, %d: give those that matter a class, and take the # away.\n", open)
	}
	shown := 0
	for i := range list {
		if s := &list[i]; !s.Guessed && shown < survey.MaxRules {
			shown++
			draftRule(&b, s, "  # ")
		}
	}
	if n := open - shown; n > 0 {
		fmt.Fprintf(&b, "  # and %d more\n", n)
	}
	return []byte(b.String())
}

// draftRule writes one rule with its reason; every line begins with a margin.
func draftRule(b *strings.Builder, s *survey.Suggestion, margin string) {
	class := s.Rule.Class.String()
	if !s.Guessed {
		class = "?"
	}
	reason(b, s.Why)
	line := func(lead, key, value string) { fmt.Fprintf(b, "%s%s%s: %s\n", margin, lead, key, value) }
	for i, kv := range way(&s.Rule) {
		lead := "  "
		if i == 0 {
			lead = "- "
		}
		line(lead, kv[0], kv[1])
	}
	line("  ", "job", plain(s.Rule.Job))
	line("  ", "class", class)
	if s.Guessed && s.Rule.Importance != model.Batch {
		line("  ", "importance", s.Rule.Importance.String())
	}
}

// commentWidth is where the lines of a comment end.
const commentWidth = 98

// reason writes a text as comment lines. It may have names of programs in it, which are
// whatever their owners like.
func reason(b *strings.Builder, text string) {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	line := "  #"
	for _, w := range strings.Fields(text) {
		if len(line)+1+len(w) > commentWidth && line != "  #" {
			b.WriteString(line + "\n")
			line = "  #"
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
}

// way is how a rule says which cgroups it means, as keys and values.
func way(r *match.Rule) [][2]string {
	flow := func(kv ...string) string {
		var parts []string
		for i := 0; i < len(kv); i += 2 {
			if kv[i+1] != "" {
				parts = append(parts, kv[i]+": "+plain(kv[i+1]))
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	switch {
	case r.Unit != nil && r.Unit.Slice != "":
		return [][2]string{{"unit", plain(r.Unit.Name)}, {"slice", plain(r.Unit.Slice)}}
	case r.Unit != nil:
		return [][2]string{{"unit", plain(r.Unit.Name)}}
	case r.Containers != nil:
		c := r.Containers
		return [][2]string{{"container", flow("runtime", string(c.Runtime), "id", c.ID, "parent", c.Parent)}}
	case r.Pods != nil:
		p := r.Pods
		return [][2]string{{"pods", flow("qos", string(p.QoS), "namespace", p.Namespace, "name", p.Name)}}
	}
	return [][2]string{{"match", plain(r.Glob)}}
}

// plain quotes a YAML scalar unless it is a word that stands for itself.
func plain(s string) string {
	word := s != "" && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z' || s[0] == '/')
	for i := range len(s) {
		c := s[i]
		word = word && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_./@", c) >= 0)
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		word = false
	}
	if word {
		return s
	}
	return strconv.Quote(s)
}
