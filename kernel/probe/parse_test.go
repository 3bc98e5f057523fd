package probe

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/perf"
)

func TestParseMounts(t *testing.T) {
	got := parseMounts("28 23 0:25 / /sys/fs/cg\\040roup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\nshort line\n\n" +
		"29 23 0:26 / /c ro - cgroup  rw,cpu,cpuacct\n30 23 0:27 / /d rw - cgroup\n")
	if len(got) != 2 || got[0].Point != "/sys/fs/cg roup" || got[1].Point != "/c" || got[1].FSType != "cgroup" {
		t.Errorf("mounts %+v", got)
	}
	p := &prober{mounts: got}
	if p.readOnly("/sys/fs/cg roup") || !p.readOnly("/c") || p.readOnly("/elsewhere") || p.mountedV1("cpuacct") != "/c" || p.mountedV1("nsdelegate") != "" {
		t.Errorf("asked of %+v", got)
	}
}

func TestOutcomes(t *testing.T) {
	made := outcomes{Taskstats: nil,
		PerfCycles:    fmt.Errorf("perf: open\ncycles: %w", perf.ErrNotSupported),
		PerfRefCycles: fmt.Errorf("perf: %w", perf.ErrPermission),
		PerfPerCgroup: fmt.Errorf("perf: %w", perf.ErrNotCgroup2),
		PerfLLCMisses: errors.New("perf: bad luck")}
	text := made.format()
	got := parseOutcomes(text + "no line\nperf: bad\n")
	if again := got.format(); again != text || strings.Count(text, "\n") != len(made) {
		t.Errorf("written %q, read and written %q", text, again)
	}
	for name, err := range made {
		back, ok := got[name]
		if !ok || (err == nil) != (back == nil) {
			t.Errorf("%s: %v came back as %v", name, err, back)
		}
		for _, sentinel := range []error{perf.ErrNotSupported, perf.ErrPermission, perf.ErrNotCgroup2} {
			if errors.Is(err, sentinel) != errors.Is(back, sentinel) {
				t.Errorf("%s: %v came back as %v", name, err, back)
			}
		}
	}
	if err := got.event(perf.Instructions); err == nil {
		t.Error("an event without a line was counted")
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
	if !(version{6, 1}).atLeast(version{5, 19}) || (version{5, 9}).atLeast(version{5, 10}) || !(version{5, 10}).atLeast(version{5, 10}) {
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
	f.Add("28 23 0:25 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n")
	f.Add("1 1 0:2 / \\04\\777\\ rw - cgroup  rw\n")
	f.Add("taskstats: ok\nperf cycles: not supported: no such file\n")
	f.Add("4:cpu,cpuacct:/a\n0::/\n")
	f.Add("flags : fpu cat_l3\n")
	f.Add("cpu  1 2 3 4 5 6 7 8 9 10\n")
	f.Add("Max open files 1 2 files\n")
	f.Add("6.18.44-x")
	f.Add("Uid:\t0\t0\t0\t0\nCapEff:\tffff\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMounts(text) {
			if m.ID == 0 && len(m.Options) == 0 {
				t.Errorf("%q: mount %+v", text, m)
			}
		}
		if own, err := parseOwnGroup(text, "cpu"); err == nil && !strings.HasPrefix(own, "/") {
			t.Errorf("%q: own group %q", text, own)
		}
		if v, ok := parseRelease(text); !ok && v != (version{}) {
			t.Errorf("%q: refused, and yet %+v", text, v)
		}
		if once := parseOutcomes(text).format(); parseOutcomes(once).format() != once {
			t.Errorf("%q: outcomes change when written again: %q", text, once)
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
