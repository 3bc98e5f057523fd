package cgroup

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestParsePaths(t *testing.T) {
	const v1 = "5:cpuset:/set\n4:cpu,cpuacct:/a/b\n3:memory:/c\n2:cpu:/a/b\n1:name=systemd:/d\n0::/e\n"
	for _, c := range []struct {
		text   string
		layout Layout
		want   []string
	}{
		{v1, LayoutV1, []string{"/set", "/a/b"}},
		{v1, LayoutHybrid, []string{"/set", "/a/b"}},
		{v1, LayoutV2, []string{"/e"}},
		{"0::/a:b (deleted)\n", LayoutV2, []string{"/a:b"}},
		{"0::/\n", LayoutV2, nil},
		{"0::/../x\n", LayoutV2, nil}, // outside of our namespace
	} {
		if got, err := parsePaths(c.text, c.layout); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q on %s: %q, %v; want %q", c.text, c.layout, got, err, c.want)
		}
	}
	for _, text := range []string{"0:", "0::relative\n", "\n"} {
		if got, err := parsePaths(text, LayoutV2); err == nil {
			t.Errorf("%q: %q, no error", text, got)
		}
	}
	if _, err := ReadPaths(hostfs.NewRoot("/"), LayoutV2, "self"); err != nil {
		t.Error(err)
	}
}
