package probe

// /proc/self/mountinfo (Documentation/filesystems/proc.rst): what the packages cgroup and resctrl do not say of a
// mount, whether it is read-only, and where the controllers are that only we ask for.
//
//	28 23 0:25 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate

import (
	"slices"
	"strings"
)

// mount is one line.
type mount struct {
	dir, fstype string
	options     []string // of the mount, then of the file system
}

// readMounts reads the table; without it nothing is found here, and the cgroup layout says why.
func (p *prober) readMounts() {
	if text, err := p.read("/proc/self/mountinfo"); err == nil {
		p.mounts = parseMounts(text)
	}
}

// parseMounts reads the mount table; lines that are none are left out.
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		// An empty source leaves two blanks in a row: strings.Fields would lose it.
		head, tail := strings.Fields(before), strings.Split(strings.TrimSpace(after), " ")
		if !ok || len(head) < 6 || len(tail) < 3 || tail[0] == "" {
			continue
		}
		options := append(strings.Split(head[5], ","), strings.Split(tail[2], ",")...)
		mounts = append(mounts, mount{dir: unescape(head[4]), fstype: tail[0], options: options})
	}
	return mounts
}

// unescape undoes \040 and its like, which the kernel writes for blanks and backslashes in a path.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1:i+4]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// octal says whether three characters are one byte in octal.
func octal(s string) bool {
	return s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7'
}

// readOnly says whether the last mount on dir, which is the one that is seen, cannot be written.
func (p *prober) readOnly(dir string) bool {
	for _, m := range slices.Backward(p.mounts) {
		if m.dir == dir {
			return slices.Contains(m.options, "ro")
		}
	}
	return false
}

// mountedV1 is where a v1 hierarchy has a controller, or "".
func (p *prober) mountedV1(controller string) string {
	for _, m := range p.mounts {
		if m.fstype == "cgroup" && slices.Contains(m.options, controller) {
			return m.dir
		}
	}
	return ""
}
