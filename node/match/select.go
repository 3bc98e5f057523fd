package match

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/source"
)

// Host is what Select is told of a host, besides the paths of its cgroups.
type Host struct {
	// Names are of pods, for rules that need them.
	Names source.Names
	// Vital are the cgroups of the agent and of PID 1. What is one of them or contains one is of
	// class system, whatever its rule says: at a hundredth of a CPU neither would put back what
	// it holds.
	Vital []string
	// RootOwned reports whether a cgroup's directory belongs to root; nil: all do.
	RootOwned func(path string) bool
}

// Match is a cgroup that a rule claims.
type Match struct {
	Path   string
	Index  int // of the rule
	Rule   *Rule
	Inside string // path of the task that it lies in; "": it is a task itself
	Vital  string // what it is or contains of Host.Vital, for which it is of class system; ""
}

// Refusal is a cgroup that a rule claims and that is no task, and why.
type Refusal struct {
	Path string
	Rule *Rule
	Why  string // the same for all of a kind
}

// Selection is what Select makes of a host's cgroups, each in the order of paths.
type Selection struct {
	Tasks   []Match
	Nested  []Match // would be tasks if they did not lie inside one
	Refused []Refusal
}

// Select says which of a host's cgroups are tasks, and which would be if they did not lie
// inside one that is. What one and the same rule claims inside its own task is not worth
// telling: the outermost is meant.
func (r *Rules) Select(paths []string, h Host) Selection {
	var s Selection
	if !slices.IsSorted(paths) { // a cgroup comes before what lies in it
		paths = slices.Sorted(slices.Values(paths))
	}
	taken := map[string]int{}
	for _, p := range paths {
		i := r.find(p, h.Names)
		if i < 0 {
			continue
		}
		m := Match{Path: p, Index: i, Rule: &r.rules[i]}
		if why := h.refuse(&m); why != "" {
			s.Refused = append(s.Refused, Refusal{p, m.Rule, why})
			continue
		}
		for k := strings.LastIndexByte(p, '/'); k > 0 && m.Inside == ""; k = strings.LastIndexByte(p[:k], '/') {
			if _, ok := taken[p[:k]]; ok {
				m.Inside = p[:k]
			}
		}
		switch {
		case m.Inside == "":
			taken[p] = i
			h.protect(&m)
			s.Tasks = append(s.Tasks, m)
		case taken[m.Inside] != i:
			s.Nested = append(s.Nested, m)
		}
	}
	return s
}

// refuse returns why a cgroup that a rule claims is no task, "" when it is one.
func (h *Host) refuse(m *Match) string {
	if !utf8.ValidString(m.Path) || strings.ContainsFunc(m.Path, unicode.IsControl) {
		return "its name is not UTF-8, or has control characters, which neither the journal nor a terminal keeps as they are"
	}
	if h.RootOwned == nil || m.Rule.Delegated || m.Rule.Containers == nil && m.Rule.Pods == nil {
		return ""
	}
	// The group itself may belong to who is root in the container.
	for k := strings.LastIndexByte(m.Path, '/'); k > 0; k = strings.LastIndexByte(m.Path[:k], '/') {
		if !h.RootOwned(m.Path[:k]) {
			return "it lies in a cgroup that is not root's, whose owner could give any the name of a container (delegated: true in its rule trusts him)"
		}
	}
	return ""
}

// protect makes a task system where the agent or PID 1 is in it.
func (h *Host) protect(m *Match) {
	for _, v := range h.Vital {
		if v == m.Path || strings.HasPrefix(v, m.Path+"/") {
			rule := *m.Rule
			rule.Class, rule.Importance, rule.Eligible, rule.Exclusive, rule.Cores = model.System, model.BestEffort, false, false, 0
			m.Rule, m.Vital = &rule, v
			return
		}
	}
}
