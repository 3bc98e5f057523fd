package procstat

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const fixture = "testdata/epyc-6.18"

func TestFixture(t *testing.T) {
	root := hostfs.NewRoot(fixture)
	r, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	want := Stat{CPUs: 2, Total: CPUTimes{
		UserTicks: 78472, NiceTicks: 196, SystemTicks: 27867, IdleTicks: 643511, IowaitTicks: 2148, SoftirqTicks: 2547, StealTicks: 202,
	}}
	for range 2 {
		if got, err := r.Read(); err != nil || got != want {
			t.Errorf("Read = %+v, %v", got, err)
		}
	}
	if got := want.Total.BusyNsec(); got != (78472+196+27867+2547)*10_000_000 {
		t.Errorf("BusyNsec = %d", got)
	}
	if got := want.Total.StealNsec(); got != 2_020_000_000 {
		t.Errorf("StealNsec = %d", got)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Read after Close: %v", err)
	}
	if got, err := ReadPlatform(root); err != nil || got != "AMD EPYC" {
		t.Errorf("ReadPlatform = %q, %v", got, err)
	}
	info, err := ReadCPUInfo(root)
	if want := (CPUInfo{VendorID: "AuthenticAMD", Family: "25", Model: "1", Stepping: "1", ModelName: "AMD EPYC"}); err != nil || info != want {
		t.Errorf("ReadCPUInfo = %+v, %v", info, err)
	}
	if got, err := ReadBootID(root); err != nil || len(got) != 36 {
		t.Errorf("ReadBootID = %q, %v", got, err)
	}
	if got, err := ReadKernelRelease(root); err != nil || !strings.HasPrefix(got, "6.18.") {
		t.Errorf("ReadKernelRelease = %q, %v", got, err)
	}
}

func TestMissingAndMalformed(t *testing.T) {
	reads := map[string]func(hostfs.FS) error{
		statPath: func(f hostfs.FS) error {
			r, err := Open(f)
			if err != nil {
				return err
			}
			defer func() { _ = r.Close() }()
			_, err = r.Read()
			return err
		},
		bootIDPath:    func(f hostfs.FS) error { _, err := ReadBootID(f); return err },
		osreleasePath: func(f hostfs.FS) error { _, err := ReadKernelRelease(f); return err },
		cpuinfoPath:   func(f hostfs.FS) error { _, err := ReadPlatform(f); return err },
		uptimePath:    func(f hostfs.FS) error { _, err := ReadUptime(f); return err },
	}
	for path, read := range reads {
		dir := t.TempDir()
		root := hostfs.NewRoot(dir)
		if err := read(root); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s missing: %v", path, err)
		}
		name := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"", "what is this\n"} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := read(root); !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNoCPUType) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s holding %q: %v", path, text, err)
			}
		}
	}
}

func TestParseStat(t *testing.T) {
	total := CPUTimes{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	if busy, all := total.BusyTicks(), total.TotalTicks(); busy != 1+2+3+6+7 || all != 1+2+3+4+5+6+7+8 {
		t.Errorf("busy %d, total %d: guest time is in user and nice already", busy, all)
	}
	for _, c := range []struct {
		name, text string
		cpus       int // 0: malformed
	}{
		{"one", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\nintr 3\n", 1},
		{"a hole in the numbers", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\ncpu3 1\ncpu7 1\nintr 3\ncpu9\n", 3},
		{"a column to come", "cpu  1 2 3 4 5 6 7 8 9 10 11\ncpu0 1\n", 1},
		{"no newline at the end", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0", 1},
		{"nine columns", "cpu  1 2 3 4 5 6 7 8 9\ncpu0 1\n", 0},
		{"word", "cpu  1 2 x 4 5 6 7 8 9 10\ncpu0 1\n", 0},
		{"negative", "cpu  1 2 -3 4 5 6 7 8 9 10\ncpu0 1\n", 0},
		{"no CPU", "cpu  1 2 3 4 5 6 7 8 9 10\nintr 3\n", 0},
		{"no total", "cpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 1\n", 0},
		{"late", "intr 3\ncpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n", 0},
		{"empty", "", 0},
	} {
		got, err := parseStat([]byte(c.text))
		if c.cpus == 0 {
			if !errors.Is(err, ErrMalformed) || got != (Stat{}) {
				t.Errorf("%s: %+v, %v", c.name, got, err)
			}
		} else if err != nil || got != (Stat{Total: total, CPUs: c.cpus}) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestPlatform(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"blanks", "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU           E5-2670 0 @ 2.60GHz\n\nprocessor : 1\nmodel name : other\n", "Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz"},
		{"colon in the name", "model name: A: B\n", "A: B"},
		{"arm64", "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n", "arm implementer 0x41 part 0xd0c variant 0x3 revision 1"},
		{"only later", "processor : 0\n\nmodel name : X\n", ""},
		{"empty name", "model name\t:\n", ""},
	} {
		got, err := parseCPUInfo(c.text).Platform()
		if got != c.want || (err == nil) != (c.want != "") || (err != nil && !errors.Is(err, ErrNoCPUType)) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestBootID(t *testing.T) {
	const good = "42a8d51d-5c61-4721-94ca-436f427d9a7d"
	for text, ok := range map[string]bool{
		good + "\n": true, good: true, good[:35]: false, good + "0": false, strings.ToUpper(good): false,
		strings.Replace(good, "-", "0", 1): false, strings.Replace(good, "d", "g", 1): false, "": false, good + "\n\n": false,
	} {
		if got, err := parseBootID([]byte(text)); (err == nil) != ok || (ok && got != good) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestParseUptime(t *testing.T) {
	for text, want := range map[string]time.Duration{"1523.47 5892.12\n": 1523470 * time.Millisecond, "0.00 0.00\n": 0, "4294967.30 1.00": 4294967300 * time.Millisecond} {
		if got, err := parseUptime([]byte(text)); err != nil || (got-want).Abs() > time.Microsecond {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "-1 0\n", "x 0\n", "NaN 0\n", "+Inf 0\n", "1e300 0\n"} {
		if got, err := parseUptime([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("cpu  23433 12 9177 269858 1658 0 150 63 0 0\ncpu0 10926 4 3846 137213 106 0 18 24 0 0\nintr 1\n"))
	f.Add([]byte("cpu 1 2\ncpu0"))
	f.Add([]byte("cpu"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parseStat(data)
		if (err == nil) != (got.CPUs > 0) || (err != nil && got != (Stat{})) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func FuzzParseText(f *testing.F) {
	f.Add("processor\t: 0\nmodel name\t: AMD EPYC\n\n")
	f.Add("42a8d51d-5c61-4721-94ca-436f427d9a7d\n")
	f.Add("6.12.43+deb13-amd64\n")
	f.Fuzz(func(t *testing.T, text string) {
		if name, err := parseCPUInfo(text).Platform(); err == nil && (name == "" || strings.ContainsAny(name, "\n\t")) {
			t.Errorf("platform %q", name)
		}
		if id, err := parseBootID([]byte(text)); err == nil && id != strings.TrimSuffix(text, "\n") {
			t.Errorf("boot id %q of %q", id, text)
		}
		if up, err := parseUptime([]byte(text)); err == nil && up < 0 {
			t.Errorf("uptime %v of %q", up, text)
		}
		if release, err := parseRelease([]byte(text)); err == nil && release != strings.TrimSuffix(text, "\n") {
			t.Errorf("release %q of %q", release, text)
		}
	})
}

// TestKernel compares with what the kernel says elsewhere.
func TestKernel(t *testing.T) {
	root := hostfs.NewRoot("/")
	r, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	before, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	if before.CPUs < runtime.NumCPU() { // NumCPU may be restricted by affinity
		t.Errorf("%d CPUs, and this process may use %d", before.CPUs, runtime.NumCPU())
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Read allocates %v times", n)
	}
	after, err := r.Read()
	if err != nil || after.Total.UserTicks < before.Total.UserTicks || after.Total.SystemTicks < before.Total.SystemTicks {
		t.Errorf("%+v, then %+v, %v", before, after, err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadKernelRelease(root); err != nil || got != unix.ByteSliceToString(name.Release[:]) {
		t.Errorf("ReadKernelRelease = %q, %v", got, err)
	}
	first, err := ReadBootID(root)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ReadBootID(root); err != nil || again != first {
		t.Errorf("boot id %q, then %q, %v", first, again, err)
	}
	if got, err := ReadPlatform(root); err != nil || got == "" {
		t.Errorf("ReadPlatform = %q, %v", got, err)
	}
	up, err := ReadUptime(root)
	if again, err2 := ReadUptime(root); err != nil || err2 != nil || up <= 0 || again < up {
		t.Errorf("up for %v, %v, then for %v, %v", up, err, again, err2)
	}
}

// TotalTicks returns all time that passed on the CPUs that were online.
func (c CPUTimes) TotalTicks() uint64 {
	return c.BusyTicks() + c.IdleTicks + c.IowaitTicks + c.StealTicks
}
