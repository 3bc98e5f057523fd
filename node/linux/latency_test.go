package linux

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/uncore"
	"github.com/commensal-io/commensal/model"
)

// steps are the counters of a last-level cache that sums how long reads took.
type steps struct {
	values [2]uint64
	ns     uint64
	err    error
}

func (*steps) Enable() error { return nil }
func (*steps) Close() error  { return nil }

func (s *steps) Read(values []uint64) (enabled, running uint64, ended bool, err error) {
	copy(values, s.values[:])
	return s.ns, s.ns, false, s.err
}

// add counts reads that took so many ns.
func (s *steps) add(reads, nsec uint64) {
	s.values[0] += reads * nsec / 10
	s.values[1] += reads
	s.ns += 1e9
}

// epyc is the files of a machine with two last-level caches of a CPU each.
func epyc(t *testing.T) string {
	t.Helper()
	dir, pmu := t.TempDir(), "/sys/bus/event_source/devices/amd_l3/"
	files := map[string]string{
		"/proc/cpuinfo":                  "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n",
		"/sys/devices/system/cpu/online": "0-1\n", pmu + "type": "20\n", pmu + "cpumask": "0-1\n",
		pmu + "format/event": "config:0-7\n", pmu + "format/umask": "config:8-15\n", pmu + "format/enallslices": "config:46\n",
		pmu + "format/enallcores": "config:47\n", pmu + "format/sliceid": "config:48-50\n", pmu + "format/threadmask": "config:56-57\n",
	}
	for cpu := range 2 {
		at := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/", cpu)
		files[at+"cache/index3/level"], files[at+"cache/index3/type"], files[at+"cache/index3/id"] = "3\n", "Unified\n", fmt.Sprintln(4*cpu)
	}
	for path, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(dir+path), 0o755), os.WriteFile(dir+path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Each reason has its outcome, and the log has it when it is another than before.
func TestLatencyOutcomes(t *testing.T) {
	var log bytes.Buffer
	counts := map[int]*steps{}
	open := func(cpu int, _ []perf.Raw) (uncore.Counters, error) {
		counts[cpu] = &steps{}
		return counts[cpu], nil
	}
	l, err := openLatency(hostfs.NewRoot(epyc(t)), open, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	var seam MemoryLatency = l.Of
	expect := func(domain int32, want model.Counter, said string) {
		t.Helper()
		if got := seam(domain); got != want || strings.Count(log.String(), "\n") != min(1, len(said)) || !strings.Contains(log.String(), said) {
			t.Errorf("domain %d: %+v, want %+v; log %q, want %q", domain, got, want, log.String(), said)
		}
		log.Reset()
	}
	counts[0].add(1000, 130)
	counts[1].add(1000, 250)
	expect(0, model.Read(130), "")
	expect(4, model.Read(250), "") // resctrl's number of CPU 1's cache
	counts[1].add(1, 250)
	expect(4, model.Counter{}, "") // a memory that nobody reads is no fault
	expect(4, model.Counter{}, "somebody else has the counters")
	expect(4, model.Counter{}, "")
	expect(0, model.Counter{}, "somebody else has the counters")
	counts[1].add(1000, 90)
	expect(4, model.Read(90), "is read again")
	counts[1].values[1]--
	counts[1].ns++
	expect(4, model.Counter{Outcome: model.GoneBackwards}, "went backwards")
	expect(7, model.Counter{Outcome: model.Absent}, "no CPU of this cache is online")
	counts[1].err = fs.ErrInvalid
	expect(4, model.Counter{}, "invalid")
	expect(4, model.Counter{Outcome: model.Fresh}, "")
	l.Close()
	expect(4, model.Counter{}, "")
}

func TestLatencyNotToBeHad(t *testing.T) {
	refuse := func(int, []perf.Raw) (uncore.Counters, error) { return nil, perf.ErrPermission }
	for dir, want := range map[string]error{t.TempDir(): fs.ErrNotExist, epyc(t): perf.ErrPermission} {
		if _, err := openLatency(hostfs.NewRoot(dir), refuse, slog.New(slog.DiscardHandler)); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
