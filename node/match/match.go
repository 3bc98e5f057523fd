// Package match says which cgroups are tasks: rules with globs of cgroup paths. It
// refuses rules that could both claim a cgroup, or of which one could lie inside the
// other, before any cgroup exists: a task belongs to one rule and contains no other
// task (DESIGN.md, decision 4).
//
// A glob is a cgroup path below the hierarchy's root ("/batch/job-*"). `*` stands for
// any run of characters within one component, also an empty one, `?` for one character.
// There is nothing else: no `**`, no character classes.
package match

import (
	"errors"
	"fmt"
	"strings"

	"github.com/commensal-io/commensal/model"
)

// Rule gives the cgroups that a glob matches their job and class.
type Rule struct {
	Glob       string
	Job        string
	Class      model.Class
	Importance model.Importance
	Production bool
	Eligible   bool
}

// Rules are checked rules.
type Rules struct {
	rules []Rule
	parts [][]string
}

// Compile checks rules and makes them ready. The error names the rules by their globs.
func Compile(rules []Rule) (*Rules, error) {
	r := &Rules{rules: rules}
	for _, rule := range rules {
		parts, err := split(rule.Glob)
		if err != nil {
			return nil, fmt.Errorf("match %q: %w", rule.Glob, err)
		}
		r.parts = append(r.parts, parts)
	}
	for i := range r.parts {
		for j := range i {
			if why := overlap(r.parts[j], r.parts[i]); why != "" {
				return nil, fmt.Errorf("match %q and match %q overlap: %s", rules[j].Glob, rules[i].Glob, why)
			}
		}
	}
	return r, nil
}

// split checks a glob and cuts it into components.
func split(glob string) ([]string, error) {
	switch {
	case glob == "":
		return nil, errors.New("is empty; expected a cgroup path such as /batch/*")
	case glob[0] != '/':
		return nil, errors.New("must begin with /")
	case glob == "/":
		return nil, errors.New("the root cgroup is never a task")
	case strings.ContainsAny(glob, "[]\\\x00\n"):
		return nil, errors.New("has a character other than the wildcards * and ? that no glob may have")
	}
	parts := strings.Split(glob[1:], "/")
	for _, p := range parts {
		switch p {
		case "", ".", "..":
			return nil, errors.New("has an empty, . or .. component")
		case "**":
			return nil, errors.New("** is not supported: name the depth, one * a component")
		}
	}
	return parts, nil
}

// Find returns the rule of a cgroup path, nil when none matches.
func (r *Rules) Find(path string) *Rule {
	if len(path) < 2 || path[0] != '/' {
		return nil
	}
	parts := strings.Split(path[1:], "/")
	for i, p := range r.parts {
		if len(p) != len(parts) {
			continue
		}
		all := true
		for k := range p {
			if !matches(p[k], parts[k]) {
				all = false
				break
			}
		}
		if all {
			return &r.rules[i]
		}
	}
	return nil
}

// overlap says why two globs cannot stand side by side: some path matches both, or some
// path that one matches lies below one that the other matches.
func overlap(a, b []string) string {
	n := min(len(a), len(b))
	for k := range n {
		if !intersect(a[k], b[k]) {
			return ""
		}
	}
	if len(a) == len(b) {
		return "one cgroup could match both"
	}
	return "a cgroup of one could lie inside a cgroup of the other, and a task contains no other task"
}

// matches reports whether a component matches a pattern; it keeps one point to go back
// to, so that its time is at most the product of both lengths.
func matches(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// intersect reports whether some string matches both patterns. reach[j] holds, after the
// first i characters of a, whether the first j of b can have consumed the same string.
func intersect(a, b string) bool {
	reach := make([]bool, len(b)+1)
	next := make([]bool, len(b)+1)
	reach[0] = true
	for j := 1; j <= len(b); j++ {
		reach[j] = reach[j-1] && b[j-1] == '*'
	}
	for i := 1; i <= len(a); i++ {
		next[0] = reach[0] && a[i-1] == '*'
		for j := 1; j <= len(b); j++ {
			x, y := a[i-1], b[j-1]
			if x == '*' || y == '*' {
				// A star stands for nothing, or takes what the other side has there.
				next[j] = reach[j] || next[j-1] || reach[j-1]
				continue
			}
			next[j] = reach[j-1] && (x == '?' || y == '?' || x == y)
		}
		reach, next = next, reach
	}
	return reach[len(b)]
}
