package match

import (
	"strings"

	"github.com/commensal-io/commensal/internal/glob"
	"github.com/commensal-io/commensal/node/source"
)

// places returns globs of where a rule's cgroups are unless somebody put them elsewhere:
// what each runtime and systemd do by themselves.
func (c *claim) places() [][]string {
	switch {
	case c.Unit != nil:
		return unitPlaces(c.Unit)
	case c.parent != nil:
		var list [][]string
		for _, f := range c.all {
			list = append(list, f.parts)
		}
		return list
	case c.Containers != nil:
		return containerPlaces(c.Containers)
	case c.Pods != nil:
		return podPlaces(c)
	}
	return [][]string{c.parts}
}

// unitPlaces follows systemd.resource-control(5), Slice=: services and scopes are in
// system.slice, instances of a template in a slice of their own below it, users' managers
// and sessions in the user's slice, machines in machine.slice; a slice is where its name says.
func unitPlaces(u *source.Unit) [][]string {
	name := source.Escape(u.Name)
	if u.Slice != "" {
		return [][]string{join(source.SlicePath(u.Slice), name)}
	}
	if strings.HasSuffix(u.Name, ".slice") {
		if parts := source.SlicePath(u.Name); parts != nil {
			return [][]string{parts}
		}
		return [][]string{{name}}
	}
	list := [][]string{{"system.slice", name}}
	if glob.Intersect(u.Name, "*@*") {
		list = append(list, []string{"system.slice", "system-*.slice", name})
	}
	if glob.Intersect(u.Name, "init.scope") {
		list = append(list, []string{name})
	}
	if strings.HasSuffix(u.Name, ".scope") {
		list = append(list, []string{"machine.slice", name})
	}
	if glob.Intersect(u.Name, "user@*.service") || glob.Intersect(u.Name, "session-*.scope") {
		list = append(list, []string{"user.slice", "user-*.slice", name})
	}
	return list
}

func containerPlaces(c *source.Containers) [][]string {
	id := anyID(c.ID)
	var list [][]string
	for _, p := range []struct {
		runtime source.Runtime
		parts   []string
	}{
		{source.Docker, []string{"docker", id}},
		{source.Docker, []string{"system.slice", "docker-" + id + ".scope"}},
		{source.Containerd, []string{"default", id}},
		{source.Containerd, []string{"k8s.io", id}},
		{source.Containerd, []string{"system.slice", "nerdctl-" + id + ".scope"}},
		{source.Containerd, []string{"system.slice", "cri-containerd-" + id + ".scope"}},
		{source.CRIO, []string{"system.slice", "crio-" + id + ".scope"}},
		{source.Podman, []string{"machine.slice", "libpod-" + id + ".scope"}},
		{source.Podman, []string{"libpod_parent", "libpod-" + id}},
	} {
		if c.Runtime == source.Any || c.Runtime == p.runtime {
			list = append(list, p.parts)
		}
	}
	return list
}

// podPlaces: kubepods at the root, or below the kubelet cgroup that kind gives its nodes.
func podPlaces(c *claim) [][]string {
	var list [][]string
	for _, f := range c.all {
		first := f.parts[0]
		switch {
		case first == "kubepods":
			list = append(list, f.parts, append([]string{"kubelet"}, f.parts...))
		case first == "*kubepods.slice":
			list = append(list, unstar(f.parts, "", nil), unstar(f.parts, "kubelet-", []string{"kubelet.slice"}))
		case strings.HasSuffix(first, ".slice"):
			list = append(list, unstar(f.parts, "", []string{"kubepods.slice"}),
				unstar(f.parts, "kubelet-", []string{"kubelet.slice", "kubelet-kubepods.slice"}))
		}
	}
	return list
}

// unstar gives slices the root that their leading * stands for, and what they lie in.
func unstar(parts []string, root string, above []string) []string {
	list := append([]string{}, above...)
	for _, p := range parts {
		if rest, ok := strings.CutPrefix(p, "*"); ok {
			p = root + rest
		}
		list = append(list, p)
	}
	return list
}
