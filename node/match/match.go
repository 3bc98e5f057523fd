// Package match says which cgroups are tasks. A rule names them by a glob of cgroup paths,
// or by their source (node/source): a systemd unit, containers, Kubernetes pods. Rules
// that could both claim one cgroup are refused before any cgroup exists, and so are those
// of which one could lie inside the other where things are put as a rule: a task belongs
// to one rule and contains no other task (DESIGN.md, decision 4).
//
// Where a unit or a container lies is up to Slice= and --cgroup-parent, of which a rule
// says nothing. Nesting that only they can bring about is left to Select: of two cgroups
// the outer one is the task, and the inner one is reported. The outer cgroup is there first
// and goes last, so that no order of appearance makes a difference.
//
// A glob is a cgroup path below the hierarchy's root ("/batch/job-*"). `*` stands for
// any run of characters within one component, also an empty one, `?` for one character.
// There is nothing else: no `**`, no character classes.
package match

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/commensal-io/commensal/internal/glob"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/source"
)

// Rule gives cgroups their job and class. Exactly one of the first four says which.
type Rule struct {
	Glob       string
	Unit       *source.Unit
	Containers *source.Containers
	Pods       *source.Pods

	Job        string
	Class      model.Class
	Importance model.Importance
	Production bool
	Eligible   bool
	// Delegated: Containers and Pods count also below a group that somebody else than root
	// owns, who could give any group such a name.
	Delegated bool
	// Exclusive: an LC task that keeps physical cores of its own; Cores is how many, 0: as
	// many as its quota comes to.
	Exclusive bool
	Cores     int
	// Size is which of the job's sizes the task has; model.SizeByCPULimit: by its limit.
	Size string
	// Guest: tasks are virtual machines, and this is where their guests are asked (guest.Address).
	Guest string
}

// String names what a rule claims, as its configuration does.
func (r *Rule) String() string {
	words := []string{}
	add := func(key, value string) {
		if value != "" {
			words = append(words, fmt.Sprintf("%s %q", key, value))
		}
	}
	switch {
	case r.Unit != nil:
		add("unit", r.Unit.Name)
		add("slice", r.Unit.Slice)
	case r.Containers != nil:
		words = append(words, "container")
		add("runtime", string(r.Containers.Runtime))
		add("id", r.Containers.ID)
		add("parent", r.Containers.Parent)
	case r.Pods != nil:
		words = append(words, "pods")
		add("namespace", r.Pods.Namespace)
		add("name", r.Pods.Name)
		add("qos", string(r.Pods.QoS))
		add("uid", r.Pods.UID)
		add("level", string(r.Pods.Level))
	default:
		return fmt.Sprintf("match %q", r.Glob)
	}
	return strings.Join(words, " ")
}

// RuleError is what is wrong with a rule: by itself, or with one before it.
type RuleError struct {
	Rule int    // its index
	Key  string // of its configuration, such as container.id
	Err  error
}

func (e *RuleError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RuleError) Unwrap() error { return e.Err }

// Rules are checked rules.
type Rules struct {
	rules  []Rule
	claims []claim
	// Some rule is of units, or of containers and pods: else no path is taken apart for them.
	units, identify bool
}

// claim is a rule, ready to match.
type claim struct {
	*Rule
	key    string     // the configuration's word for what it claims
	parts  []string   // of Glob
	parent []string   // of Containers.Parent
	all    []form     // of Containers and Pods: every path that they claim
	usual  [][]string // globs of where its cgroups are as a rule
}

// Compile checks rules and makes them ready. An error is a *RuleError, and names the
// rules by what they claim.
func Compile(rules []Rule) (*Rules, error) {
	r := &Rules{rules: rules}
	for i := range rules {
		c, key, err := claimOf(&rules[i])
		if err != nil {
			return nil, &RuleError{i, key, err}
		}
		for j := range r.claims {
			if why := overlap(&r.claims[j], &c); why != "" {
				return nil, &RuleError{i, c.key, fmt.Errorf("%s and %s overlap: %s", r.claims[j].Rule, c.Rule, why)}
			}
		}
		r.claims = append(r.claims, c)
		r.units, r.identify = r.units || c.Unit != nil, r.identify || c.Containers != nil || c.Pods != nil
	}
	return r, nil
}

// claimOf checks one rule by itself.
func claimOf(r *Rule) (c claim, key string, err error) {
	c = claim{Rule: r, key: "match"}
	var bad string
	switch ways := bit(r.Glob != "") + bit(r.Unit != nil) + bit(r.Containers != nil) + bit(r.Pods != nil); {
	case ways > 1:
		return c, c.key, errors.New("a rule says in one way which cgroups it means: by match, unit, container or pods")
	case r.Unit != nil:
		c.key = "unit"
		key, bad = r.Unit.Check()
	case r.Containers != nil:
		c.key = "container"
		if key, bad = r.Containers.Check(); bad == "" && r.Containers.Parent != "" {
			key = "parent"
			c.parent, err = split(r.Containers.Parent)
		}
		key = strings.TrimSuffix("container."+key, ".")
	case r.Pods != nil:
		c.key = "pods"
		key, bad = r.Pods.Check()
		key = "pods." + key
	default:
		key = "match"
		c.parts, err = split(r.Glob)
	}
	if bad != "" {
		err = errors.New(bad)
	}
	if err == nil {
		c.all = c.forms()
		c.usual = c.places()
	}
	return c, key, err
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// split checks a glob and cuts it into components.
func split(text string) ([]string, error) {
	refuse := func(why string) ([]string, error) { return nil, fmt.Errorf("match %q: %s", text, why) }
	switch {
	case text == "":
		return refuse("is empty; expected a cgroup path such as /batch/*")
	case text[0] != '/':
		return refuse("must begin with /")
	case text == "/":
		return refuse("the root cgroup is never a task")
	case strings.ContainsAny(text, "[]\\") || strings.ContainsFunc(text, unicode.IsControl):
		return refuse("has a character other than the wildcards * and ? that no glob may have")
	}
	parts := strings.Split(text[1:], "/")
	for _, p := range parts {
		switch p {
		case "", ".", "..":
			return refuse("has an empty, . or .. component")
		case "**":
			return refuse("** is not supported: name the depth, one * a component")
		}
	}
	return parts, nil
}

// Find returns the rule of a cgroup path, nil when none matches. Whether the path lies in
// another task it does not say: that is Select's. Rules that name pods match nothing here.
func (r *Rules) Find(path string) *Rule {
	if i := r.find(path, nil); i >= 0 {
		return &r.rules[i]
	}
	return nil
}

// find returns the index of the first rule that claims a path, -1 when none does.
func (r *Rules) find(path string, names source.Names) int {
	if len(path) < 2 || path[0] != '/' {
		return -1
	}
	parts := strings.Split(path[1:], "/")
	var id source.Identity
	var name, slice string
	var known, isUnit bool
	if r.identify {
		id, known = source.Identify(path)
	}
	if r.units {
		name, slice, isUnit = source.UnitOf(path)
	}
	return slices.IndexFunc(r.claims, func(c claim) bool {
		switch {
		case c.Unit != nil:
			return isUnit && c.Unit.Names(name, slice)
		case c.Containers != nil:
			return known && id.Pod == "" && (c.Containers.Runtime == source.Any || c.Containers.Runtime == id.Runtime) &&
				strings.HasPrefix(id.ID, c.Containers.ID) && (c.parent == nil || all(c.parent, parts[:len(parts)-1]))
		case c.Pods != nil:
			return known && c.Pods.Matches(id, names)
		}
		return all(c.parts, parts)
	})
}

// NeedNames reports whether some rule names pods.
func (r *Rules) NeedNames() bool {
	return slices.ContainsFunc(r.rules, func(x Rule) bool { return x.Pods != nil && x.Pods.NeedNames() })
}

// all reports whether each component matches its pattern.
func all(patterns, parts []string) bool {
	return slices.EqualFunc(patterns, parts, glob.Match)
}
