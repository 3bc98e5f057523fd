package source

import (
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/internal/glob"
)

// Unit claims the cgroups of systemd units of the host, each exactly: a slice is the
// slice's own cgroup with all that is in it, not each unit in it. Units of user managers
// (below user@1000.service) and of systemds in containers are not the host's.
type Unit struct {
	Name  string // as systemctl prints it, with * and ?
	Slice string // the slice that it lies directly in; "": any
}

// unitTypes are the units whose cgroup holds what somebody runs. Others have one too, for
// commands of a moment.
var unitTypes = []string{".service", ".scope", ".slice"}

// maxUnitName is systemd's bound.
const maxUnitName = 255

// Check says what is wrong, and with which of unit and slice.
func (u *Unit) Check() (key, why string) {
	switch {
	case !slices.ContainsFunc(unitTypes, func(t string) bool { return len(t) < len(u.Name) && strings.HasSuffix(u.Name, t) }):
		return "unit", fmt.Sprintf("is %q; expected a unit's full name, ending in .service, .scope or .slice", u.Name)
	case !isUnitName(u.Name, "*?"):
		return "unit", `has a character that no unit's name has; expected the name as systemctl prints it, such as foo@1.service or a\x2db.service`
	case u.Name == rootSlice:
		return "unit", "the root slice is the whole machine, and never a task"
	}
	if u.Slice == "" {
		return "", ""
	}
	switch {
	case !strings.HasSuffix(u.Slice, ".slice") || !isUnitName(u.Slice, "") || (u.Slice != rootSlice && SlicePath(u.Slice) == nil):
		return "slice", fmt.Sprintf("is %q; expected a slice's full name, such as batch.slice", u.Slice)
	case strings.HasSuffix(u.Name, ".slice"):
		return "slice", "a slice's own name says where it lies"
	}
	return "", ""
}

func isUnitName(s, wild string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && strings.IndexByte(`:-_.\@`+wild, c) < 0 {
			return false
		}
	}
	return len(s) <= maxUnitName
}

// Matches reports whether a path is a unit's that is claimed.
func (u *Unit) Matches(path string) bool {
	name, slice, ok := UnitOf(path)
	return ok && u.Names(name, slice)
}

// Names reports whether a unit in a slice (UnitOf) is one of those claimed.
func (u *Unit) Names(name, slice string) bool {
	return (u.Slice == "" || u.Slice == slice) && glob.Match(u.Name, name)
}

// rootSlice is the root cgroup, as a unit.
const rootSlice = "-.slice"

// UnitOf returns the unit of the host whose own cgroup a path is, and the slice that it
// lies in.
func UnitOf(path string) (name, slice string, ok bool) {
	if len(path) < 2 || path[0] != '/' {
		return "", "", false
	}
	slice = rootSlice
	for rest := path[1:]; ; {
		part, below, more := strings.Cut(rest, "/")
		part = unescape(part)
		isSlice := strings.HasSuffix(part, ".slice")
		switch {
		case isSlice && (sliceAbove(part) != slice || !isUnitName(part, "")):
			return "", "", false // no unit of systemd's is there
		case more && !isSlice:
			return "", "", false // a cgroup inside a unit
		case !more:
			known := slices.ContainsFunc(unitTypes, func(t string) bool { return len(t) < len(part) && strings.HasSuffix(part, t) })
			return part, slice, known && isUnitName(part, "")
		}
		slice, rest = part, below
	}
}

// sliceAbove returns the slice that a slice lies in: its name says so.
func sliceAbove(name string) string {
	stem := strings.TrimSuffix(name, ".slice")
	cut := strings.LastIndexByte(stem, '-')
	switch {
	case stem == "" || cut == 0 || cut == len(stem)-1:
		return "" // no slice has such a name
	case cut < 0:
		return rootSlice
	}
	return stem[:cut] + ".slice"
}

// SlicePath returns the cgroups from the root to a slice, nil when no slice has such a
// name: a-b.slice is /a.slice/a-b.slice.
func SlicePath(name string) []string {
	var parts []string
	for ; name != rootSlice; name = sliceAbove(name) {
		if sliceAbove(name) == "" {
			return nil
		}
		parts = append(parts, Escape(name))
	}
	slices.Reverse(parts)
	return parts
}

// Escape returns the name of a unit's directory: the unit's, with _ before it where the
// kernel could take it for a file of a controller's.
func Escape(name string) string {
	if name == "" || name[0] == '_' || name[0] == '.' || name == "notify_on_release" || name == "release_agent" || name == "tasks" {
		return "_" + name
	}
	for _, c := range controllers {
		if rest, ok := strings.CutPrefix(name, c); ok && rest != "" && rest[0] == '.' {
			return "_" + name
		}
	}
	return name
}

// controllers are the names before a dot that systemd guards against.
var controllers = [...]string{"cgroup", "cpu", "cpuacct", "cpuset", "io", "blkio", "memory", "devices", "pids"}

func unescape(name string) string { return strings.TrimPrefix(name, "_") }
