package probe

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

func TestParseMounts(t *testing.T) {
	got := parseMounts("cgroup2 /sys/fs/cg\\040roup cgroup2 rw,relatime 0 0\nshort line\n\ncgroup /c cgroup ro,cpu,cpuacct 0 0")
	want := []mount{{"/sys/fs/cg roup", "cgroup2", "rw,relatime"}, {"/c", "cgroup", "ro,cpu,cpuacct"}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParseOwnGroup(t *testing.T) {
	const text = "4:cpu,cpuacct:/a:b\n1:name=systemd:/s\n0::/u\n"
	for controller, want := range map[string]string{"cpu": "/a:b", "cpuacct": "/a:b", "": "/u"} {
		if got, err := parseOwnGroup(text, controller); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", controller, got, err, want)
		}
	}
	for _, bad := range []string{"", "0:/u\n", "0::u\n"} {
		if got, err := parseOwnGroup(bad, ""); err == nil {
			t.Errorf("%q: got %q, want an error", bad, got)
		}
	}
}

func TestCountList(t *testing.T) {
	for text, want := range map[string]int{"": 0, "0": 1, "0-3": 4, "0-1,4,6-7\n": 5} {
		if got, err := countList(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"a", "1-", "-1", "3-1", "0,,1", "0-99999", "0-65535,0-65535"} {
		if got, err := countList(bad); err == nil {
			t.Errorf("%q: got %d, want an error", bad, got)
		}
	}
}

func TestParseRelease(t *testing.T) {
	for text, want := range map[string]version{"6.18.44-x": {6, 18}, "5.4": {5, 4}, "4.19-rc1": {4, 19}} {
		if got, ok := parseRelease(text); !ok || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, ok, want)
		}
	}
	for _, bad := range []string{"", "six", "6", "6.x", "-6.1"} {
		if got, ok := parseRelease(bad); ok {
			t.Errorf("%q: got %+v, want none", bad, got)
		}
	}
	if !(version{6, 1}).atLeast(5, 19) || (version{5, 9}).atLeast(5, 10) || !(version{5, 10}).atLeast(5, 10) {
		t.Error("releases compare as strings, not as numbers")
	}
}

func TestHardFilesAndSteal(t *testing.T) {
	if n, err := hardFiles("Limit\nMax open files            1024                 unlimited            files\n"); err != nil || n != ^uint64(0) {
		t.Errorf("unlimited: %d, %v", n, err)
	}
	for _, bad := range []string{"", "Max open files 1024\n", "Max open files 1024 many files\n"} {
		if n, err := hardFiles(bad); err == nil {
			t.Errorf("%q: got %d, want an error", bad, n)
		}
	}
	if n, err := stealTicks("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1\n"); err != nil || n != 88 {
		t.Errorf("steal: %d, %v; want 88", n, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3 4 5 6 7\n", "cpu 1 2 3 4 5 6 7 x\n", "cpu0 1 2 3 4 5 6 7 8\n"} {
		if n, err := stealTicks(bad); err == nil {
			t.Errorf("%q: got %d, want an error", bad, n)
		}
	}
}

func TestConfigured(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("CONFIG_A=m\nCONFIG_B=y\nCONFIG_BB=y\n")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	p := &prober{fs: tree(t, map[string]string{"/proc/sys/kernel/osrelease": "6.1\n", "/proc/config.gz": packed.String()})}
	for option, want := range map[string]bool{"CONFIG_A": false, "CONFIG_B": true, "CONFIG_C": false} {
		if got, where, err := p.configured(option); err != nil || got != want || where != "/proc/config.gz" {
			t.Errorf("%s: got %v from %q, %v; want %v", option, got, where, err, want)
		}
	}
	for name, files := range map[string]map[string]string{
		"absent":     {"/proc/sys/kernel/osrelease": "6.1\n"},
		"not packed": {"/proc/sys/kernel/osrelease": "6.1\n", "/proc/config.gz": "CONFIG_B=y\n"},
		"cut short":  {"/proc/sys/kernel/osrelease": "6.1\n", "/proc/config.gz": packed.String()[:packed.Len()-10]},
	} {
		p := &prober{fs: tree(t, files)}
		if got, _, err := p.configured("CONFIG_B"); err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
		}
	}
}

// FuzzParsers gives every text parser the same input: none may panic, and evidence stays on one line.
func FuzzParsers(f *testing.F) {
	f.Add("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
	f.Add("a \\04 \\777\\ cgroup rw\n")
	f.Add("4:cpu,cpuacct:/a\n0::/\n")
	f.Add("flags : fpu cat_l3\n")
	f.Add("0-3,8,9-1")
	f.Add("cpu  1 2 3 4 5 6 7 8 9 10\n")
	f.Add("Max open files 1 2 files\n")
	f.Add("6.18.44-x")
	f.Add("Uid:\t0\t0\t0\t0\nCapEff:\tffff\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMounts(text) {
			if m.dir == "" || m.fstype == "" {
				t.Errorf("%q: mount %+v", text, m)
			}
		}
		if own, err := parseOwnGroup(text, "cpu"); err == nil && !strings.HasPrefix(own, "/") {
			t.Errorf("%q: own group %q", text, own)
		}
		if n, err := countList(text); err == nil && (n < 0 || n > maxList) {
			t.Errorf("%q: %d members", text, n)
		}
		if v, ok := parseRelease(text); !ok && v != (version{}) {
			t.Errorf("%q: refused, and yet %+v", text, v)
		}
		_ = parseFlags(text)
		_ = parseStatus(text)
		_, _ = hardFiles(text)
		_, _ = stealTicks(text)
		if strings.ContainsAny(oneLine(text), "\n\r") {
			t.Errorf("%q: more than one line", text)
		}
	})
}
