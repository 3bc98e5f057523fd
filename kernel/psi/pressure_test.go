package psi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestFixture(t *testing.T) {
	root := hostfs.NewRoot("testdata/epyc-6.18")
	got, err := Read(root, IO.Path())
	want := Pressure{
		Some:    Line{Avg10: 0.19, Avg60: 0.29, Avg300: 0.21, TotalUsec: 18958968},
		Full:    Line{Avg10: 0.15, Avg60: 0.13, Avg300: 0.08, TotalUsec: 16417478},
		HasFull: true,
	}
	if err != nil || got != want {
		t.Errorf("Read = %+v, %v", got, err)
	}
	for r, want := range map[Resource]Totals{
		CPU: {187388374, 0, true}, Memory: {0, 0, true}, IO: {18958968, 16417478, true},
	} {
		reader, err := Open(root, r.Path())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := reader.Totals(); err != nil || got != want {
				t.Errorf("%s: %+v, %v", r, got, err)
			}
		}
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
		if _, err := reader.Totals(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after Close: %v", r, err)
		}
	}
}

const line = " avg10=1.00 avg60=2.50 avg300=100.00 total=7"

func TestParse(t *testing.T) {
	l := Line{1, 2.5, 100, 7}
	for _, c := range []struct {
		name, text string
		want       Pressure
	}{
		{"both", "some" + line + "\nfull" + line + "\n", Pressure{l, l, true}},
		{"cpu before 5.13", "some" + line + "\n", Pressure{Some: l}},
		{"no newline", "some" + line, Pressure{Some: l}},
		{"a kind to come", "some" + line + "\nmost" + line + "\n", Pressure{Some: l}},
		{"other order", "full" + line + "\nsome total=7 avg10=1.00 avg300=100.00 avg60=2.50 new=3\n", Pressure{l, l, true}},
	} {
		got, err := parsePressure([]byte(c.text))
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "only full": "full" + line + "\n", "twice": "some" + line + "\nsome" + line + "\n",
		"no total": "some avg10=0.00 avg60=0.00 avg300=0.00\n", "no average": "some avg10=0.00 avg60=0.00 total=3\n",
		"negative": "some avg10=-1.00 avg60=0.00 avg300=0.00 total=3\n", "NaN": "some avg10=NaN avg60=0.00 avg300=0.00 total=3\n",
		"above 100": "some avg10=100.01 avg60=0.00 avg300=0.00 total=3\n", "words": "some avg10=a avg60=0.00 avg300=0.00 total=3\n",
		"total": "some avg10=0.00 avg60=0.00 avg300=0.00 total=-3\n", "overflow": "some avg10=0.00 avg60=0.00 avg300=0.00 total=18446744073709551616\n",
	} {
		if got, err := parsePressure([]byte(text)); !errors.Is(err, ErrMalformed) || got != (Pressure{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, text := range map[string]string{"empty": "", "only full": "full total=1\n", "no total": "some avg10=0.00\n", "words": "some total=x\n", "twice": "some total=1\nsome total=2\n"} {
		if got, err := parseTotals([]byte(text)); !errors.Is(err, ErrMalformed) || got != (Totals{}) {
			t.Errorf("totals, %s: %+v, %v", name, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("some" + line + "\nfull" + line + "\n"))
	f.Add([]byte("some" + line))
	f.Add([]byte("full total=\nsome total=3"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parsePressure(data)
		if err != nil {
			return
		}
		for _, v := range []float64{p.Some.Avg10, p.Some.Avg60, p.Some.Avg300, p.Full.Avg10, p.Full.Avg60, p.Full.Avg300} {
			if !(v >= 0 && v <= 100) {
				t.Errorf("average %v in %+v", v, p)
			}
		}
	})
}

// FuzzTotalsAgree: on lines as the kernel orders them, both parsers read the same totals.
func FuzzTotalsAgree(f *testing.F) {
	f.Add("0.00", uint64(7), "1.50", uint64(0))
	f.Add("x", uint64(1<<63), "", uint64(3))
	f.Fuzz(func(t *testing.T, avg string, some uint64, avgFull string, full uint64) {
		text := func(kind, avg string, total uint64) string {
			return kind + " avg10=" + avg + " avg60=0.00 avg300=0.00 total=" + strconv.FormatUint(total, 10) + "\n"
		}
		data := []byte(text("some", avg, some) + text("full", avgFull, full))
		p, err := parsePressure(data)
		if err != nil {
			return
		}
		got, err := parseTotals(data)
		if err != nil || got != (Totals{p.Some.TotalUsec, p.Full.TotalUsec, p.HasFull}) {
			t.Errorf("%q: %+v and %+v, %v", data, p, got, err)
		}
	})
}

// withoutPSI answers as a kernel does where PSI is built and switched off.
type withoutPSI struct{ hostfs.FS }

func (withoutPSI) ReadFile(path string, _ []byte) ([]byte, error) {
	return nil, &fs.PathError{Op: "read", Path: path, Err: unix.EOPNOTSUPP}
}

func (withoutPSI) Open(path string) (hostfs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.EOPNOTSUPP}
}

func TestUnsupportedIsNamed(t *testing.T) {
	for name, f := range map[string]hostfs.FS{"not built": hostfs.NewRoot(t.TempDir()), "switched off": withoutPSI{}} {
		if _, err := Read(f, CPU.Path()); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "/proc/pressure/cpu") {
			t.Errorf("%s: Read: %v", name, err)
		}
		if _, err := Open(f, CPU.Path()); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: Open: %v", name, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p"), []byte("what?\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(hostfs.NewRoot(dir), "/p"); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "/p") {
		t.Errorf("malformed: %v", err)
	}
	if _, err := OpenTrigger(withoutPSI{}, CPU.Path(), Some, 1, 2); !errors.Is(err, ErrUnsupported) {
		t.Errorf("trigger without a way to write: %v", err)
	}
}

func liveRoot(t *testing.T) hostfs.FS {
	t.Helper()
	root := hostfs.NewRoot("/")
	if _, err := Read(root, CPU.Path()); errors.Is(err, ErrUnsupported) {
		t.Skipf("this kernel reports no pressure: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestKernelTotals(t *testing.T) {
	root := liveRoot(t)
	for _, r := range []Resource{CPU, Memory, IO} {
		reader, err := Open(root, r.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reader.Close() }()
		before, err := reader.Totals()
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := reader.Totals(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: Totals allocates %v times", r, n)
		}
		after, err := reader.Totals()
		if err != nil || after.SomeUsec < before.SomeUsec || after.FullUsec > after.SomeUsec {
			t.Errorf("%s: %+v, then %+v, %v", r, before, after, err)
		}
	}
}
