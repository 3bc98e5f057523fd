package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/mountinfo"
	"github.com/google/go-cmp/cmp"
)

// A distribution of the v1 age: cpu and cpuacct share a mount that has two names.
const comounted = `25 30 0:23 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
30 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 25 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:10 - cgroup cgroup rw,xattr,name=systemd
36 31 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct
37 31 0:33 / /sys/fs/cgroup/cpuset rw,nosuid shared:16 master:2 propagate_from:3 - cgroup cgroup rw,cpuset,clone_children
38 31 0:34 / /sys/fs/cgroup/net_cls,net_prio rw,nosuid shared:17 - cgroup cgroup rw,net_cls,net_prio
`

const pureV2 = `25 30 0:23 / /sys rw shared:7 - sysfs sysfs rw
30 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`

// A container without a cgroup namespace: each mount shows its own group only.
const insideContainer = `600 599 0:60 / / rw - overlay overlay rw
610 600 0:61 / /sys ro - sysfs sysfs ro
611 610 0:62 / /sys/fs/cgroup rw - tmpfs tmpfs rw
612 611 0:28 /docker/0a1b /sys/fs/cgroup/cpu rw master:11 - cgroup cgroup rw,cpu
613 611 0:29 /docker/0a1b /sys/fs/cgroup/cpuset rw master:11 - cgroup cgroup rw,cpuset
`

// The same with the host's hierarchy mounted a second time.
const containerWithHost = insideContainer + `620 600 0:28 / /host\040cgroup/cpu rw - cgroup cgroup rw,cpu
`

// A container with a cgroup namespace of its own on a v2 host: its root is the container's
// group. Then the same with the host's mount beside it, as a privileged agent gets it, and
// with a bind mount of some other group.
const cgroupNamespace = `600 599 0:60 / / rw - overlay overlay rw
610 600 0:61 / /sys ro - sysfs sysfs ro
611 610 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate
`
const namespaceWithHost = cgroupNamespace + `620 600 0:26 /../../.. /host/cgroup rw - cgroup2 cgroup2 rw,nsdelegate
621 600 0:26 /../.. /host/slice rw - cgroup2 cgroup2 rw,nsdelegate
`
const namespaceWithNeighbour = cgroupNamespace + `620 600 0:26 /../neighbour /host/cgroup rw - cgroup2 cgroup2 rw
`

// cgroup2 elsewhere, with a bind mount of one of its groups before it.
const elsewhere = `30 1 8:1 / / rw - ext4 /dev/sda1 rw
40 30 0:38 /batch /srv/batch rw - cgroup2 none rw
41 30 0:38 / /cgroups\040here rw - cgroup2 none rw
`

// cgroup2 mounted over a v1 tree: the v1 mounts are there and cannot be reached.
const overmounted = `30 1 8:1 / / rw - ext4 /dev/sda1 rw
31 30 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
36 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
40 31 0:38 / /sys/fs/cgroup rw - cgroup2  rw
`

func TestDiscover(t *testing.T) {
	for _, c := range []struct {
		name, mountinfo string
		controllers     string // of the unified mount; "" writes none
		unified         string
		partial         bool // its root is an ordinary group
		want            Mounts
	}{
		{name: "comounted", mountinfo: comounted, want: Mounts{
			Layout: LayoutV1,
			V1: map[Controller]string{
				CPU: "/sys/fs/cgroup/cpu,cpuacct", CPUAcct: "/sys/fs/cgroup/cpu,cpuacct", CPUSet: "/sys/fs/cgroup/cpuset",
			},
		}},
		{name: "v2", mountinfo: pureV2, unified: "/sys/fs/cgroup", controllers: "cpuset cpu io memory\n", want: Mounts{
			Layout: LayoutV2, V1: map[Controller]string{}, Unified: "/sys/fs/cgroup", NSDelegate: true,
			UnifiedControllers: []Controller{"cpuset", "cpu", "io", "memory"},
		}},
		{name: "namespace", mountinfo: cgroupNamespace, unified: "/sys/fs/cgroup", partial: true, controllers: "cpu\n", want: Mounts{
			Layout: LayoutV2, V1: map[Controller]string{}, Unified: "/sys/fs/cgroup", UnifiedPartial: true, NSDelegate: true,
			UnifiedControllers: []Controller{"cpu"},
		}},
		{name: "namespace with the host's mount", mountinfo: namespaceWithHost, unified: "/host/cgroup", controllers: "cpu\n", want: Mounts{
			Layout: LayoutV2, V1: map[Controller]string{}, Unified: "/host/cgroup", NSDelegate: true,
			UnifiedControllers: []Controller{"cpu"},
		}},
		{name: "namespace with a neighbour", mountinfo: namespaceWithNeighbour, unified: "/sys/fs/cgroup", partial: true, want: Mounts{
			Layout: LayoutV2, V1: map[Controller]string{}, Unified: "/sys/fs/cgroup", UnifiedPartial: true, NSDelegate: true,
			Refused: []Refusal{{"/host/cgroup", "shows only the subtree /../neighbour of its hierarchy (a bind mount or a container): the host's groups cannot be seen"}},
		}},
		{name: "elsewhere", mountinfo: elsewhere, unified: "/cgroups here", want: Mounts{
			Layout: LayoutV2, V1: map[Controller]string{}, Unified: "/cgroups here",
			Refused: []Refusal{{"/srv/batch", "shows only the subtree /batch of its hierarchy (a bind mount or a container): the host's groups cannot be seen"}},
		}},
		{name: "container", mountinfo: insideContainer, want: Mounts{
			Layout: LayoutNone, V1: map[Controller]string{},
			Refused: []Refusal{
				{"/sys/fs/cgroup/cpu", "shows only the subtree /docker/0a1b of its hierarchy (a bind mount or a container): the host's groups cannot be seen"},
				{"/sys/fs/cgroup/cpuset", "shows only the subtree /docker/0a1b of its hierarchy (a bind mount or a container): the host's groups cannot be seen"},
			},
		}},
		{name: "overmounted", mountinfo: overmounted, unified: "/sys/fs/cgroup", want: Mounts{
			Layout: LayoutV2, V1: map[Controller]string{}, Unified: "/sys/fs/cgroup",
			Refused: []Refusal{{"/sys/fs/cgroup/cpu", "hidden by mount 40 on /sys/fs/cgroup"}},
		}},
		{name: "noprefix", mountinfo: "36 1 0:32 / /dev/cpuset rw - cgroup none rw,cpuset,noprefix\n", want: Mounts{
			V1: map[Controller]string{}, Refused: []Refusal{{"/dev/cpuset", "mounted with noprefix: its files have other names"}},
		}},
		{name: "none", mountinfo: "", want: Mounts{V1: map[Controller]string{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"proc/self/mountinfo": c.mountinfo}
			if c.unified != "" {
				files[strings.TrimPrefix(c.unified, "/")+"/cgroup.controllers"] = c.controllers
			}
			if c.partial {
				files[strings.TrimPrefix(c.unified, "/")+"/cgroup.type"] = "domain\n"
			}
			got, err := Discover(hostfs.NewRoot(writeTree(t, files)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDiscoverPrefersTheWholeHierarchy(t *testing.T) {
	got, err := Discover(hostfs.NewRoot(writeTree(t, map[string]string{"proc/self/mountinfo": containerWithHost})))
	if err != nil || got.V1[CPU] != "/host cgroup/cpu" || got.Layout != LayoutV1 || len(got.Refused) != 2 {
		t.Errorf("Discover = %+v, %v", got, err)
	}
}

func TestDiscoverFails(t *testing.T) {
	if _, err := Discover(hostfs.NewRoot(t.TempDir())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without mountinfo: %v", err)
	}
	for _, text := range []string{
		"garbage\n",
		"32 31 0:29 / /sys/fs/cgroup/cpu rw shared:3 cgroup cgroup rw,cpu\n", // no separator
		"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup\n",               // cut off
		"x 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
		"32 y 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
	} {
		_, err := Discover(hostfs.NewRoot(writeTree(t, map[string]string{"proc/self/mountinfo": text})))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), mountinfo.Path) || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", text, err)
		}
	}
	// A unified mount whose root cannot be read is an error, not an empty host.
	if _, err := Discover(hostfs.NewRoot(writeTree(t, map[string]string{"proc/self/mountinfo": pureV2}))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without cgroup.controllers: %v", err)
	}
}

func TestOpenRefusesLayouts(t *testing.T) {
	for _, m := range []*Mounts{{Layout: LayoutV2}, {Layout: LayoutNone}} {
		d, err := Open(hostfs.NewRoot("/"), m)
		if d != nil || !errors.Is(err, ErrUnsupportedLayout) || !strings.Contains(err.Error(), m.Layout.String()) {
			t.Errorf("Open on %s: %v, %v", m.Layout, d, err)
		}
	}
}

func FuzzParseMountinfo(f *testing.F) {
	for _, s := range []string{comounted, pureV2, cgroupNamespace, namespaceWithHost, elsewhere, insideContainer, containerWithHost, overmounted, "1 1 - - - - - - -", "1 1 0:1 / / rw - a b c", "\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseMountinfo(data)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("error without its sentinel: %v", err)
			}
			return
		}
		m := selectMounts(list) // parent ids may form circles: it must come back
		for c, dir := range m.V1 {
			if !strings.Contains(string(data), string(c)) {
				t.Errorf("%s on %q is not in the input", c, dir)
			}
		}
	})
}

func TestLevelsAbove(t *testing.T) {
	for root, want := range map[string]int{"/": 0, "/..": 1, "/../..": 2, "": -1, "/a": -1, "/..a": -1, "/../a": -1, "/a/..": -1, "..": -1, "/../": -1} {
		n, ok := levelsAbove(root)
		if ok != (want >= 0) || (ok && n != want) {
			t.Errorf("levelsAbove(%q) = %d, %v", root, n, ok)
		}
	}
}

// writeTree makes a root directory that holds files by relative path.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
