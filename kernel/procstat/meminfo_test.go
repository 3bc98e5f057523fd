package procstat

import (
	"errors"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const meminfo = "MemTotal:        8140368 kB\nMemFree:          381200 kB\nMemAvailable:    6702416 kB\nBuffers:               0 kB\n" +
	"SwapCached:            0 kB\nSwapTotal:       1048572 kB\nSwapFree:         524288 kB\nDirty:               120 kB\n"

func TestParseMeminfo(t *testing.T) {
	got, err := parseMeminfo([]byte(meminfo))
	if want := (Meminfo{Total: 8140368 << 10, Available: 6702416 << 10, SwapTotal: 1048572 << 10, SwapFree: 512 << 20}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{
		"", "MemTotal: 1 kB\n", "MemTotal: 1 kB\nMemAvailable: 1 kB\nSwapTotal: 0 kB\n", "MemTotal: 1\nMemAvailable: 1 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
		"MemTotal: -1 kB\nMemAvailable: 1 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n", "MemTotal: 99999999999999999999 kB\n", "MemTotal: 18014398509481984 kB\n",
	} {
		if got, err := parseMeminfo([]byte(bad)); !errors.Is(err, ErrMalformed) || got != (Meminfo{}) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

func FuzzParseMeminfo(f *testing.F) {
	f.Add([]byte(meminfo))
	f.Add([]byte("MemTotal:\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := parseMeminfo(data); err != nil && m != (Meminfo{}) {
			t.Errorf("%+v beside %v", m, err)
		}
	})
}

// TestKernelMeminfo: this kernel's own, which fits together and is read without allocation.
func TestKernelMeminfo(t *testing.T) {
	r, err := OpenMeminfo(hostfs.NewRoot("/"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	m, err := r.Read()
	if err != nil || m.Available == 0 || m.Available > m.Total || m.SwapFree > m.SwapTotal {
		t.Errorf("%+v, %v", m, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = r.Read() }); n != 0 {
		t.Errorf("Read allocates %v times", n)
	}
}
