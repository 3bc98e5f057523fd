package match

// What two rules could both claim. The proof is over forms: globs that together cover
// every path that a rule claims, some of them only its last components. Two rules whose
// forms share no path share no cgroup. It is a proof of the absence of overlaps, not of their
// presence: of rules that only a contrived path could match twice some are refused.
//
// Nesting is judged by the places where a rule's cgroups are unless somebody put them
// elsewhere (package comment): judged by what is possible at all, a rule for a unit would
// exclude a rule for the slice that it is not in.

import (
	"slices"
	"strings"

	"github.com/commensal-io/commensal/internal/glob"
	"github.com/commensal-io/commensal/node/source"
)

const nests = "a cgroup of one could lie inside a cgroup of the other, and a task contains no other task"

// overlap says why two rules cannot stand side by side.
func overlap(a, b *claim) string {
	if same(a, b) || same(b, a) {
		why := "one cgroup could match both"
		if a.Pods != nil && b.Pods != nil {
			return why + "; give them a qos, namespace or name of which a pod can have only one"
		}
		for _, c := range []*claim{a, b} {
			if c.Unit != nil && c.Unit.Slice == "" && !strings.HasSuffix(c.Unit.Name, ".slice") {
				return why + "; if they never do, say which slice the unit is in (slice: system.slice)"
			}
		}
		return why
	}
	if a.Pods != nil && b.Pods != nil && !samePod(a.Pods, b.Pods) {
		return ""
	}
	for _, p := range a.usual {
		for _, q := range b.usual {
			if len(p) != len(q) && intersect(p[:min(len(p), len(q))], q[:min(len(p), len(q))]) {
				return nests
			}
		}
	}
	return ""
}

// intersect reports whether some path of so many components matches both.
func intersect(a, b []string) bool {
	for k := range a {
		if !glob.Intersect(a[k], b[k]) {
			return false
		}
	}
	return true
}

// form is a glob of paths, or of their last components.
type form struct {
	parts []string
	whole bool
}

func (f form) meets(parts []string) bool {
	n := len(f.parts)
	return n <= len(parts) && (!f.whole || n == len(parts)) && intersect(f.parts, parts[len(parts)-n:])
}

// crosses reports whether some path has both forms.
func (f form) crosses(g form) bool {
	n := min(len(f.parts), len(g.parts))
	if f.whole && len(f.parts) < len(g.parts) || g.whole && len(g.parts) < len(f.parts) {
		return false
	}
	return intersect(f.parts[len(f.parts)-n:], g.parts[len(g.parts)-n:])
}

// same reports whether some cgroup could match both rules; it knows one order of kinds.
func same(a, b *claim) bool {
	switch {
	case a.parts != nil && b.parts != nil:
		return len(a.parts) == len(b.parts) && intersect(a.parts, b.parts)
	case a.parts != nil && b.Unit != nil:
		return unitMeets(b.Unit, a.parts)
	case a.parts != nil:
		return meetsAny(b.all, a.parts)
	case a.Unit != nil && b.Unit != nil:
		return glob.Intersect(a.Unit.Name, b.Unit.Name) && (a.Unit.Slice == "" || b.Unit.Slice == "" || a.Unit.Slice == b.Unit.Slice)
	case a.Unit != nil && (b.Containers != nil || b.Pods != nil):
		return unitMeetsForms(a.Unit, b.all)
	case a.Containers != nil && b.Containers != nil:
		x, y := a.Containers.ID, b.Containers.ID
		return (strings.HasPrefix(x, y) || strings.HasPrefix(y, x)) && slices.ContainsFunc(a.all, func(f form) bool { return slices.ContainsFunc(b.all, f.crosses) })
	case a.Pods != nil && b.Pods != nil:
		return a.Pods.Level == b.Pods.Level && samePod(a.Pods, b.Pods)
	}
	return false // containers are never pods
}

// samePod reports whether two rules could mean one pod.
func samePod(x, y *source.Pods) bool {
	return (x.QoS == source.AnyQoS || y.QoS == source.AnyQoS || x.QoS == y.QoS) && (x.UID == "" || y.UID == "" || x.UID == y.UID) &&
		couldBoth(x.Namespace, y.Namespace) && couldBoth(x.Name, y.Name)
}

// couldBoth reports whether one name could match both patterns; "" is any.
func couldBoth(a, b string) bool { return a == "" || b == "" || glob.Intersect(a, b) }

func meetsAny(forms []form, parts []string) bool {
	return slices.ContainsFunc(forms, func(f form) bool { return f.meets(parts) })
}

// unitMeets reports whether a glob could match a unit's cgroup.
func unitMeets(u *source.Unit, parts []string) bool {
	if u.Slice != "" || strings.HasSuffix(u.Name, ".slice") && !strings.ContainsAny(u.Name, "*?") {
		return slices.ContainsFunc(unitPlaces(u), func(p []string) bool {
			n := len(p) - 1
			return n+1 == len(parts) && intersect(p[:n], parts[:n]) && (glob.Intersect(p[n], parts[n]) || glob.Intersect("_"+p[n], parts[n]))
		})
	}
	above := ""
	for _, p := range parts[:len(parts)-1] {
		// A slice lies in the slice that its name begins with.
		if !glob.Intersect(p, above+"*.slice") && !glob.Intersect(p, "_"+above+"*.slice") {
			return false
		}
		above = ""
		if !strings.ContainsAny(p, "*?") {
			above = strings.TrimSuffix(strings.TrimPrefix(p, "_"), ".slice") + "-"
		}
	}
	last := parts[len(parts)-1]
	return glob.Intersect(u.Name, last) || glob.Intersect("_"+u.Name, last)
}

// unitMeetsForms reports whether a unit could be a container's scope or a pod's slice.
func unitMeetsForms(u *source.Unit, forms []form) bool {
	for _, f := range forms {
		n := len(f.parts)
		if !glob.Intersect(u.Name, f.parts[n-1]) {
			continue
		}
		switch {
		case u.Slice == "" || n == 1 && !f.whole:
			return true
		case n == 1 && u.Slice == "-.slice", n > 1 && glob.Intersect(f.parts[n-2], u.Slice):
			return true
		}
	}
	return false
}

// anyID is the form of a container's id that begins so.
func anyID(begin string) string { return begin + strings.Repeat(string(rune(glob.Hex)), 64-len(begin)) }

// leaf is the last component of containers of one form.
type leaf struct {
	runtime source.Runtime
	name    func(id string) string
	parents [][]string // where it can lie: whole paths where fixed, else their last component
	fixed   bool
}

func around(before, after string) func(string) string {
	return func(id string) string { return before + id + after }
}

// managed are the parents of a scope: a slice, a user's manager, or the root.
var managed = [][]string{{"*.slice"}, {"*.service"}}

// leaves are the forms of containers that lie in no pod (source.Identify).
func leaves() []leaf {
	list := []leaf{
		{source.Any, around("", ""), [][]string{{"*"}}, false},
		{source.Docker, around("", ""), [][]string{{"docker"}}, true},
		{source.Containerd, around("", ""), [][]string{{"default"}, {"k8s.io"}}, true},
		{source.Podman, around("libpod-", ""), [][]string{{"*"}}, false},
		{source.Podman, around("libpod-payload-", ""), [][]string{{"*.service"}}, false},
	}
	for _, s := range scopeNames {
		list = append(list,
			leaf{s.runtime, around(s.prefix+"-", ".scope"), managed, false},
			leaf{s.runtime, around(s.prefix+"-", ".scope"), [][]string{{}}, true},
			leaf{s.runtime, around("*.slice:"+s.prefix+":", ""), [][]string{{"*.service"}}, false},
			leaf{s.runtime, around("*.slice:"+s.prefix+":", ""), [][]string{{}}, true})
	}
	return list
}

// scopeNames are the scopes of containers.
var scopeNames = [...]struct {
	prefix  string
	runtime source.Runtime
}{
	{"docker", source.Docker}, {"cri-containerd", source.Containerd}, {"nerdctl", source.Containerd}, {"crio", source.CRIO}, {"libpod", source.Podman},
}

// forms covers every path that a rule for containers or pods claims.
func (c *claim) forms() []form {
	var list []form
	if c.Containers == nil && c.Pods == nil {
		return nil
	}
	if c.Containers != nil {
		for _, l := range leaves() {
			if c.Containers.Runtime != source.Any && c.Containers.Runtime != l.runtime {
				continue
			}
			name := l.name(anyID(c.Containers.ID))
			for _, p := range l.parents {
				switch {
				case c.parent == nil:
					list = append(list, form{join(p, name), l.fixed})
				case form{p, l.fixed}.meets(c.parent):
					list = append(list, form{join(c.parent, name), true})
				}
			}
		}
		return list
	}
	for _, p := range podForms(c.Pods) {
		if c.Pods.Level == source.Pod {
			list = append(list, form{p, false})
			continue
		}
		for _, name := range podLeaves(strings.HasSuffix(p[len(p)-1], ".slice")) {
			list = append(list, form{join(p, name), false})
		}
		for _, s := range scopeNames {
			mixed := p[len(p)-1] + ":" + s.prefix + ":" + anyID("")
			list = append(list, form{[]string{mixed}, true}, form{[]string{"*.service", mixed}, false})
		}
	}
	return list
}

func podLeaves(slice bool) []string {
	if !slice {
		return []string{anyID(""), "crio-" + anyID("")}
	}
	var names []string
	for _, s := range scopeNames {
		names = append(names, s.prefix+"-"+anyID("")+".scope")
	}
	return names
}

// podForms are the last components of the paths of pods.
func podForms(p *source.Pods) [][]string {
	uid, under := "?*", "?*"
	if p.UID != "" {
		uid, under = p.UID, strings.ReplaceAll(p.UID, "-", "_")
	}
	var list [][]string
	for _, q := range source.Classes() {
		switch {
		case p.QoS != source.AnyQoS && p.QoS != q:
		case q == source.Guaranteed:
			list = append(list, []string{"kubepods", "pod" + uid}, []string{"*kubepods.slice", "*kubepods-pod" + under + ".slice"})
		default:
			list = append(list, []string{"kubepods", string(q), "pod" + uid},
				[]string{"*kubepods-" + string(q) + ".slice", "*kubepods-" + string(q) + "-pod" + under + ".slice"})
		}
	}
	return list
}

func join(parts []string, name string) []string {
	return append(append(make([]string, 0, len(parts)+1), parts...), name)
}
