package probe

// /proc/self/mountinfo (Documentation/filesystems/proc.rst): what the packages cgroup and resctrl do not say of a
// mount, whether it is read-only, and where the controllers are that only we ask for.
//
//	28 23 0:25 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate

import (
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/mountinfo"
)

// readMounts reads the table; without it nothing is found here, and the cgroup layout says why.
func (p *prober) readMounts() {
	if text, err := p.read(mountinfo.Path); err == nil {
		p.mounts = parseMounts(text)
	}
}

// parseMounts reads the mount table; lines that are none are left out.
func parseMounts(text string) []mountinfo.Mount {
	var mounts []mountinfo.Mount
	for line := range strings.Lines(text) {
		if m, err := mountinfo.Parse(strings.TrimSuffix(line, "\n")); err == nil {
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// readOnly says whether the last mount on dir, which is the one that is seen, cannot be written.
func (p *prober) readOnly(dir string) bool {
	for _, m := range slices.Backward(p.mounts) {
		if m.Point == dir {
			return m.ReadOnly()
		}
	}
	return false
}

// mountedV1 is where a v1 hierarchy has a controller, or "".
func (p *prober) mountedV1(controller string) string {
	for _, m := range p.mounts {
		if m.FSType == "cgroup" && slices.Contains(m.SuperOptions, controller) {
			return m.Point
		}
	}
	return ""
}
