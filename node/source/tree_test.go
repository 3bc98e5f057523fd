package source

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseTree(t *testing.T) {
	for _, c := range []struct {
		text  string
		paths string
		v1    bool
	}{
		{"/sys/fs/cgroup\n/sys/fs/cgroup/a\n/sys/fs/cgroup/a/b\n", "/a /a/b", false},
		{"/sys/fs/cgroup/\r\n/sys/fs/cgroup/a\r\n", "/a", false},
		{".\n./b\n./a\n", "/a /b", false},
		{"/a\n/b\n/a\n", "/a /b", false},
		{"/a\n/a/b\n/c\n", "/a /a/b /c", false}, {"/kubepods\n/kubepods/pod1\n", "/kubepods /kubepods/pod1", false},
		{"/host/sys/fs/cgroup/cpu,cpuacct\n/host/sys/fs/cgroup/cpu,cpuacct/x\n", "/x", false}, {"/sys/fs/cgroup\n", "", false},
		{"/cgroup\n/cgroup/cpu,cpuacct\n/cgroup/cpu,cpuacct/x\n/cgroup/memory\n/cgroup/memory/y\n/cgroup/systemd/z\n", "/x", true},
		{"/cgroup\n/cgroup/cpu\n/cgroup/cpu/x\n/cgroup/cpuset\n/cgroup/unified/y\n", "/x", true},
		{"/cgroup\n/cgroup/cpu\n/cgroup/cpu/x\n", "/cpu /cpu/x", false}, // one group that is named so
		{"/a\n", "/a", false},
	} {
		tree, err := ParseTree(strings.NewReader(c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got := strings.Join(tree.Paths, " "); got != c.paths || tree.V1 != c.v1 {
			t.Errorf("%q: %q, v1 %v; want %q, %v", c.text, got, tree.V1, c.paths, c.v1)
		}
	}
	for _, text := range []string{"", "\n\n", "hello\n", "/a\nb\n", "/" + strings.Repeat("x", 1<<17)} {
		if _, err := ParseTree(strings.NewReader(text)); !errors.Is(err, ErrTree) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func FuzzParseTree(f *testing.F) {
	f.Add("/sys/fs/cgroup\n/sys/fs/cgroup/a\n")
	f.Add("/cgroup\n/cgroup/cpu,cpuacct\n/cgroup/cpu,cpuacct/x\n/cgroup/memory\n")
	f.Add(".\n./a")
	f.Fuzz(func(t *testing.T, text string) {
		tree, err := ParseTree(strings.NewReader(text))
		if err != nil {
			return
		}
		if !slices.IsSorted(tree.Paths) {
			t.Fatalf("%q: not sorted: %q", text, tree.Paths)
		}
		for _, p := range tree.Paths {
			if p == "" || p[0] != '/' {
				t.Fatalf("%q: path %q", text, p)
			}
		}
	})
}
