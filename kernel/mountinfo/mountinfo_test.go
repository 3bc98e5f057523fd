package mountinfo

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		line string
		want Mount
		err  string
	}{
		{
			line: `41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate`,
			want: Mount{
				ID: 41, Parent: 31, Device: "0:38", Root: "/", Point: "/sys/fs/cgroup/unified", Options: []string{"rw", "relatime"},
				FSType: "cgroup2", SuperOptions: []string{"rw", "nsdelegate"},
			},
		},
		{
			line: `5 1 8:1 /a\040b /mnt/c\134d ro - ext4  rw,x=\054`, // an empty source
			want: Mount{
				ID: 5, Parent: 1, Device: "8:1", Root: "/a b", Point: `/mnt/c\d`, Options: []string{"ro"},
				FSType: "ext4", SuperOptions: []string{"rw", "x=,"},
			},
		},
		{line: "", err: `"" has too few fields`},
		{line: "5 1 8:1 / /mnt rw - ext4 rw", err: `"5 1 8:1 / /mnt rw - ext4 rw" has too few fields`},
		{line: "x 1 8:1 / /mnt rw - ext4 /dev/a rw", err: `mount id "x"`},
		{line: "5 y 8:1 / /mnt rw - ext4 /dev/a rw", err: `parent id "y"`},
	} {
		got, err := Parse(c.line)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", c.line, d)
		}
		if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: error %v, want %q", c.line, err, c.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("41 31 0:38 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw")
	f.Add(`5 1 8:1 /a\040b /mnt ro - ext4  rw`)
	f.Fuzz(func(t *testing.T, line string) {
		m, err := Parse(line)
		if err == nil && (len(m.Options) == 0 || len(m.SuperOptions) == 0) {
			t.Errorf("%q: %+v", line, m)
		}
	})
}
