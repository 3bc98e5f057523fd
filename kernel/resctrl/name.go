package resctrl

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	monGroupsDir = "mon_groups"
	monDataDir   = "mon_data"
	infoDir      = "info"

	// maxOwnName bounds the names that we give: they stand in logs and metrics. The
	// kernel would take 255 bytes.
	maxOwnName = 100
)

// Name names a group: a control group ("" is the root group), or a monitoring group
// below one.
type Name struct {
	Ctrl string // a directory of the root; "" is the root group itself
	Mon  string // a directory of the control group's mon_groups; "" is the control group
}

// Identity tells a group from one that is later made at the same place.
type Identity struct {
	Name  Name
	Inode uint64 // of the group's directory; unique within one mount
}

// IsRoot says whether it is the root group.
func (n Name) IsRoot() bool { return n == Name{} }

// IsMon says whether it is a monitoring group.
func (n Name) IsMon() bool { return n.Mon != "" }

// Parent returns the control group that a monitoring group belongs to, and a control
// group itself.
func (n Name) Parent() Name { return Name{Ctrl: n.Ctrl} }

// String returns the name as the path below the mount: "/", "/a", "/a/mon_groups/m".
func (n Name) String() string {
	s := "/" + n.Ctrl
	if n.Mon == "" {
		return s
	}
	if n.Ctrl != "" {
		s += "/"
	}
	return s + monGroupsDir + "/" + n.Mon
}

// MarshalText writes String's form.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads String's form.
func (n *Name) UnmarshalText(text []byte) error {
	got, err := ParseName(string(text))
	if err == nil {
		*n = got
	}
	return err
}

// ParseName reads String's form. Names that others gave may hold anything but a slash, a
// newline and a NUL.
func ParseName(s string) (Name, error) {
	var n Name
	rest, ok := strings.CutPrefix(s, "/")
	if ok && rest != "" {
		parts := strings.Split(rest, "/")
		switch {
		case len(parts) == 1:
			n.Ctrl = parts[0]
		case len(parts) == 2 && parts[0] == monGroupsDir:
			n.Mon = parts[1]
			ok = validElement(n.Mon)
		case len(parts) == 3 && parts[1] == monGroupsDir:
			n.Ctrl, n.Mon = parts[0], parts[2]
			ok = validElement(n.Mon)
		default:
			ok = false
		}
		ok = ok && (n.Ctrl == "" || validElement(n.Ctrl) && !reserved(n.Ctrl)) && !n.IsRoot()
	}
	if !ok {
		return Name{}, fmt.Errorf("%w: %q", ErrBadName, clip(s))
	}
	return n, nil
}

// validElement says whether the kernel could have a directory of that name.
func validElement(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= unix.NAME_MAX && !strings.ContainsAny(s, "/\n\x00")
}

// reserved says whether a directory of the root is none of a group.
func reserved(s string) bool { return s == infoDir || s == monDataDir || s == monGroupsDir }

// checkOwnName refuses what we would not call a group: one that a log line, a shell or a
// metric label would have to escape.
func checkOwnName(s string) error {
	if s == "" || len(s) > maxOwnName {
		return fmt.Errorf("%w: %q is empty or longer than %d bytes", ErrBadName, clip(s), maxOwnName)
	}
	for _, c := range []byte(s) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if !ok {
			return fmt.Errorf("%w: %q has other characters than letters, digits, '-', '_' and '.'", ErrBadName, s)
		}
	}
	if reserved(s) || s[0] == '.' {
		return fmt.Errorf("%w: %q", ErrBadName, s)
	}
	return nil
}

// ToolPqos is how a group is called that pqos made, by its name.
const ToolPqos = "pqos (intel-cmt-cat)"

// tool guesses from a name who made a group. It is a guess and for people only.
func tool(n Name) string {
	last := n.Ctrl
	if n.Mon != "" {
		last = n.Mon
	}
	digits := strings.TrimPrefix(last, "COS")
	switch {
	case strings.HasPrefix(last, "cadvisor-"):
		return "cAdvisor"
	case digits != last && digits != "" && strings.Trim(digits, "0123456789") == "",
		n.IsMon() && strings.HasPrefix(last, "pqos-"): // pqos-PID-N, while it monitors
		return ToolPqos
	case strings.HasPrefix(last, "goresctrl."), strings.HasPrefix(last, "rdt_"):
		return "goresctrl (containerd, CRI-O or an NRI plugin)"
	case len(last) == 64 && strings.Trim(last, "0123456789abcdef") == "":
		return "a container runtime (the name is a container's id)"
	}
	return ""
}

// clip bounds what of a foreign text stands in an error.
func clip(s string) string {
	const most = 120
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
