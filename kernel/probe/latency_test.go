package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
)

// An EPYC of Zen 4 whose counters open, are refused, were not tried, are not shown, or read as nonsense.
func TestMemoryLatency(t *testing.T) {
	dir, pmu := t.TempDir(), "/sys/bus/event_source/devices/amd_l3/"
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(dir+path), 0o755), os.WriteFile(dir+path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	p := &prober{fs: hostfs.NewRoot(dir)}
	expect := func(want Answer, why string) {
		t.Helper()
		if f := p.memoryLatency(); f.Answer != want || !strings.Contains(f.Why, why) {
			t.Errorf("%+v, want %s, %s", f, want, why)
		}
	}
	write("/proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n")
	expect(No, "no such PMU")
	write("/sys/devices/system/cpu/online", "0\n")
	at := "/sys/devices/system/cpu/cpu0/cache/index3/"
	for path, text := range map[string]string{
		at + "level": "3", at + "type": "Unified", at + "id": "0", pmu + "type": "20", pmu + "cpumask": "0", pmu + "format/event": "config:0-7", pmu + "format/umask": "config:8-15",
		pmu + "format/enallslices": "config:46", pmu + "format/enallcores": "config:47", pmu + "format/threadmask": "config:56-57",
	} {
		write(path, text+"\n")
	}
	expect(No, "sliceid") // a kernel that is too old
	write(pmu+"format/sliceid", "config:48-50\n")
	expect(CouldNotTell, notLive)
	for want, outcome := range map[Answer]error{Yes: nil, No: perf.ErrPermission, CouldNotTell: perf.ErrTooManyFiles} {
		made := outcomes{MemoryLatency: outcome}
		p.calls = noted{calls: made, made: outcomes{}}
		expect(want, "")
		if back := parseOutcomes(made.format()); fmt.Sprint(back[MemoryLatency]) != fmt.Sprint(outcome) || len(back) != 1 {
			t.Errorf("%v is captured as %v", outcome, back)
		}
	}
	write(pmu+"cpumask", "0-\n")
	expect(CouldNotTell, "malformed")
}
