package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const fixture = "testdata/epyc-6.18-hybrid"

var (
	_ Driver = (*V1)(nil)
	_ Group  = (*v1Group)(nil)
	_ Driver = (*V2)(nil)
	_ Group  = (*v2Group)(nil)
)

func fixtureDriver(t *testing.T, fs hostfs.FS) *V1 {
	t.Helper()
	m, err := Discover(fs)
	if err != nil {
		t.Fatal(err)
	}
	return openV1(fs, m)
}

// copyFixture gives a test a tree of its own to change.
func copyFixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(fixture)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFixtureMounts(t *testing.T) {
	got, err := Discover(hostfs.NewRoot(fixture))
	if err != nil {
		t.Fatal(err)
	}
	want := &Mounts{
		Layout: LayoutHybrid, V1: map[Controller]string{},
		Unified: "/sys/fs/cgroup/unified", UnifiedControllers: []Controller{"hugetlb"},
	}
	for _, c := range controllers() {
		want.V1[c] = "/sys/fs/cgroup/" + string(c)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFixtureGroup(t *testing.T) {
	d := fixtureDriver(t, hostfs.NewRoot(fixture))
	list, err := d.List()
	if err != nil || !slices.Equal(list, []string{"/batch", "/batch/job-1", "/service"}) {
		t.Errorf("List = %v, %v", list, err)
	}
	g, err := d.Open("/batch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, err := g.UsageNsec(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("UsageNsec after Close: %v", err)
		}
	}()
	if usage, err := g.UsageNsec(); err != nil || usage != 621680905 {
		t.Errorf("UsageNsec = %d, %v", usage, err)
	}
	want := Throttling{
		Own:               CPUStat{HasQuota: true, NrPeriods: 31, NrThrottled: 30, ThrottledNsec: 3899378604, HasBursts: true, NrBursts: 1, BurstNsec: 5000000},
		NrThrottledAround: 30 + 27,
	}
	if got, err := g.Throttling(); err != nil || got != want {
		t.Errorf("Throttling = %+v, %v", got, err)
	}
	if got, err := g.Procs(nil); err != nil || !slices.Equal(got, []int32{21941, 21942}) {
		t.Errorf("Procs = %v, %v", got, err)
	}
	if got, err := d.Procs("/batch"); err != nil || !slices.Equal(got, []int32{21942}) {
		t.Errorf("Procs of the group alone = %v, %v", got, err)
	}
	if got, err := d.ReadCPUMax("/batch"); err != nil || got != (CPUMax{20000, 100000, 5000}) {
		t.Errorf("ReadCPUMax = %v, %v", got, err)
	}
	// A descendant counts its ancestor's throttling.
	job, err := d.Open("/batch/job-1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = job.Close() }()
	if got, err := job.Throttling(); err != nil || got.Own.NrThrottled != 27 || got.NrThrottledAround != 57 {
		t.Errorf("Throttling of /batch/job-1 = %+v, %v", got, err)
	}
}

// TestReplacedDescendant: the counts of a group that is gone stay in the sum, and the
// new group at its path counts from its own zero.
func TestReplacedDescendant(t *testing.T) {
	dir := copyFixture(t)
	d := fixtureDriver(t, hostfs.NewRoot(dir))
	g, err := d.Open("/batch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	around := func() uint64 {
		t.Helper()
		got, err := g.Throttling()
		if err != nil {
			t.Fatal(err)
		}
		return got.NrThrottledAround
	}
	if got := around(); got != 57 {
		t.Fatalf("around = %d", got)
	}
	job := filepath.Join(dir, "sys/fs/cgroup/cpu/batch/job-1")
	if err := os.Rename(job, job+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(job, os.DirFS(job+"-old")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(job + "-old"); err != nil {
		t.Fatal(err)
	}
	text := "nr_periods 4\nnr_throttled 3\nthrottled_time 3\n"
	if err := os.WriteFile(filepath.Join(job, "cpu.stat"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := g.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got := around(); got != 60 {
		t.Errorf("around after the replacement = %d, want 30 + 27 + 3", got)
	}
	if err := os.RemoveAll(job); err != nil {
		t.Fatal(err)
	}
	if err := g.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got := around(); got != 60 {
		t.Errorf("around after the removal = %d, want 60 still", got)
	}
	if got, err := g.Procs(nil); err != nil || !slices.Equal(got, []int32{21942}) {
		t.Errorf("Procs = %v, %v", got, err)
	}
}

func TestAbsentFilesAreNamed(t *testing.T) {
	dir := copyFixture(t)
	d := fixtureDriver(t, hostfs.NewRoot(dir))
	remove := func(name string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(dir, "sys/fs/cgroup", name)); err != nil {
			t.Fatal(err)
		}
	}
	remove("cpu/batch/cpu.cfs_burst_us") // before Linux 5.14
	remove("cpu/batch/cpu.idle")         // before Linux 5.15
	if got, err := d.ReadCPUMax("/batch"); err != nil || got != (CPUMax{20000, 100000, 0}) {
		t.Errorf("ReadCPUMax without burst = %v, %v", got, err)
	}
	err := d.WriteCPUMax("/batch", CPUMax{20000, 100000, 100})
	var ce *CPUMaxError
	if !errors.Is(err, ErrUnsupported) || !errors.As(err, &ce) || ce.File != burstFile || len(ce.Written) != 0 {
		t.Errorf("WriteCPUMax with burst on a kernel without: %v", err)
	}
	if _, err := d.ReadIdle("/batch"); !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrVanished) {
		t.Errorf("ReadIdle: %v", err)
	}
	if _, err := d.ReadIdle("/gone"); !errors.Is(err, ErrVanished) || errors.Is(err, ErrUnsupported) {
		t.Errorf("ReadIdle of a missing group: %v", err)
	}
	if _, err := d.Open("/gone"); !errors.Is(err, ErrVanished) {
		t.Errorf("Open of a missing group: %v", err)
	}
	if _, err := d.Descendants("/gone"); !errors.Is(err, ErrVanished) {
		t.Errorf("Descendants of a missing group: %v", err)
	}
	if err := d.WriteCPUMax("/gone", CPUMax{-1, 100000, 0}); !errors.Is(err, ErrVanished) {
		t.Errorf("WriteCPUMax of a missing group: %v", err)
	}

	remove("cpu/batch/cpu.stat") // a kernel without CFS bandwidth
	remove("cpu/batch/job-1/cpu.stat")
	remove("cpuacct/batch") // a group that was made for cpu only
	g, err := d.Open("/batch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	if _, err := g.Throttling(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("Throttling: %v", err)
	}
	if _, err := g.UsageNsec(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("UsageNsec: %v", err)
	}
	if got, err := g.Procs(nil); err != nil || len(got) != 2 {
		t.Errorf("Procs = %v, %v", got, err)
	}
}

// TestRenamedGroup: a group that has another name is gone from its path, also when another one
// is there.
func TestRenamedGroup(t *testing.T) {
	dir := copyFixture(t)
	d := fixtureDriver(t, hostfs.NewRoot(dir))
	g, err := d.Open("/batch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	at := filepath.Join(dir, "sys/fs/cgroup/cpu/batch")
	if err := os.Rename(at, at+"-old"); err != nil {
		t.Fatal(err)
	}
	for _, anew := range []bool{false, true} {
		if anew {
			if err := os.CopyFS(at, os.DirFS(at+"-old")); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Refresh(); !errors.Is(err, ErrVanished) {
			t.Errorf("made anew %t: Refresh says %v", anew, err)
		}
	}
}

// absentOnceFS answers the first opening of a file with ENOENT, as happens when a group
// is removed and made again around that moment.
type absentOnceFS struct {
	hostfs.FS
	path string
	hits int
}

func (f *absentOnceFS) ReadFile(path string, buf []byte) ([]byte, error) {
	if path == f.path && f.hits == 0 {
		f.hits++
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
	}
	return f.FS.ReadFile(path, buf)
}

// TestRemadeGroupIsNotUnsupported: a file that is missing at one moment and there at the
// next says that the group was replaced, not that the kernel lacks the file.
func TestRemadeGroupIsNotUnsupported(t *testing.T) {
	f := &absentOnceFS{FS: hostfs.NewRoot(fixture), path: "/sys/fs/cgroup/cpu/batch/cpu.cfs_burst_us"}
	d := fixtureDriver(t, f)
	if got, err := d.ReadCPUMax("/batch"); !errors.Is(err, ErrVanished) || errors.Is(err, ErrUnsupported) {
		t.Errorf("ReadCPUMax = %v, %v; a burst of 5000 must not read as none", got, err)
	}
	if got, err := d.ReadCPUMax("/batch"); err != nil || got.BurstUsec != 5000 {
		t.Errorf("again: %v, %v", got, err)
	}
}

func TestMalformedFilesAreNamed(t *testing.T) {
	dir := copyFixture(t)
	d := fixtureDriver(t, hostfs.NewRoot(dir))
	for _, name := range []string{"cpu/batch/cpu.stat", "cpuacct/batch/cpuacct.usage", "cpu/batch/job-1/cgroup.procs", "cpu/batch/cpu.shares",
		"cpu/batch/cpu.cfs_period_us", "cpu/batch/cpu.idle", "freezer/batch/freezer.state"} {
		if err := os.WriteFile(filepath.Join(dir, "sys/fs/cgroup", name), []byte("what?\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	g, err := d.Open("/batch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	for name, f := range map[string]func() error{
		"usage":      func() error { _, err := g.UsageNsec(); return err },
		"throttling": func() error { _, err := g.Throttling(); return err },
		"procs":      func() error { _, err := g.Procs(nil); return err },
		"shares":     func() error { _, err := d.ReadShares("/batch"); return err },
		"limit":      func() error { _, err := d.ReadCPUMax("/batch"); return err },
		"idle":       func() error { _, err := d.ReadIdle("/batch"); return err },
		"freezer":    func() error { _, err := d.ReadFreezer("/batch"); return err },
	} {
		if err := f(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "/batch") {
			t.Errorf("%s: %v, want ErrMalformed and the group's path", name, err)
		}
	}
}

func TestRootIsNeverWritten(t *testing.T) {
	d := fixtureDriver(t, hostfs.NewRoot(copyFixture(t)))
	for name, err := range map[string]error{
		"limit":   d.WriteCPUMax("/", CPUMax{1000, 100000, 0}),
		"shares":  d.WriteShares("/", 2),
		"cpus":    d.WriteCPUs("/", "0"),
		"freezer": d.WriteFreezer("/", Frozen, 0),
		"mkdir":   d.Mkdir("/"),
		"rmdir":   d.Rmdir("/"),
	} {
		if !errors.Is(err, ErrRootGroup) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.Open("/"); !errors.Is(err, ErrRootGroup) {
		t.Errorf("open: %v", err)
	}
	if err := d.WriteShares("/../x", 2); !errors.Is(err, hostfs.ErrBadPath) {
		t.Errorf("escape: %v", err)
	}
	if err := d.MovePID("/batch", 0); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("MovePID 0, which the kernel takes for the caller: %v", err)
	}
}

// refusingFS fails the write number refuse with errno EBUSY. Writes before it replace
// the file, as the kernel would.
type refusingFS struct {
	hostfs.FS
	dir    string
	refuse int
	writes []string
}

func (f *refusingFS) WriteFile(path string, data []byte) error {
	f.writes = append(f.writes, filepath.Base(path)+"="+string(data))
	if len(f.writes) == f.refuse {
		return &fs.PathError{Op: "write", Path: path, Err: unix.EBUSY}
	}
	return os.WriteFile(filepath.Join(f.dir, path), append(data, '\n'), 0o644)
}

// TestWriteCPUMaxSaysHowFarItCame refuses each write of a three-file change in turn: the
// error names what stands, the state left is intermediate, and writing back what was
// found succeeds.
func TestWriteCPUMaxSaysHowFarItCame(t *testing.T) {
	found, intended := CPUMax{10000, 100000, 0}, CPUMax{4000, 50000, 2000}
	order := []string{quotaFile, periodFile, burstFile}
	for refuse := 1; refuse <= 3; refuse++ {
		dir := copyFixture(t)
		f := &refusingFS{FS: hostfs.NewRoot(dir), dir: dir, refuse: refuse}
		d := fixtureDriver(t, f)
		err := d.WriteCPUMax("/batch/job-1", intended)
		var ce *CPUMaxError
		if !errors.As(err, &ce) || !errors.Is(err, unix.EBUSY) {
			t.Fatalf("refusing write %d: %v", refuse, err)
		}
		if ce.File != order[refuse-1] || !slices.Equal(ce.Written, order[:refuse-1]) || !strings.Contains(err.Error(), "/batch/job-1") {
			t.Errorf("refusing write %d: %v, writes %v", refuse, err, f.writes)
		}
		now, err := d.ReadCPUMax("/batch/job-1")
		if err != nil || !IsIntermediate(found, intended, now) || now == intended {
			t.Errorf("left behind: %s, %v", now, err)
		}
		if err := d.WriteCPUMax("/batch/job-1", found); err != nil {
			t.Errorf("writing back: %v", err)
		}
		if now, err := d.ReadCPUMax("/batch/job-1"); err != nil || now != found {
			t.Errorf("after writing back: %s, %v", now, err)
		}
	}
}

func TestWriteCPUMaxSkipsAndRefusesEarly(t *testing.T) {
	dir := copyFixture(t)
	f := &refusingFS{FS: hostfs.NewRoot(dir), dir: dir}
	d := fixtureDriver(t, f)
	for _, c := range []struct {
		path   string
		v      CPUMax
		writes string
		text   string // of the error; "" for none
	}{
		{"/batch", CPUMax{20000, 100000, 5000}, "[]", ""},
		{"/batch", CPUMax{20000, 100000, 4000}, "[cpu.cfs_burst_us=4000]", ""},
		{"/batch/job-1", CPUMax{30000, 100000, 0}, "[]", "of its ancestor /batch"},
		{"/batch", CPUMax{9999, 100000, 0}, "[]", "of its descendant /batch/job-1"},
		{"/batch", CPUMax{20000, 100000, -1}, "[]", "burst -1 µs is not within"},
		{"/batch", CPUMax{500, 100000, 0}, "[]", "neither -1 nor"},
	} {
		f.writes = nil
		err := d.WriteCPUMax(c.path, c.v)
		if got := strings.Join(f.writes, " "); "["+got+"]" != c.writes {
			t.Errorf("%s %s: writes [%s], want %s", c.path, c.v, got, c.writes)
		}
		if c.text == "" && err != nil {
			t.Errorf("%s %s: %v", c.path, c.v, err)
		}
		if c.text != "" && (err == nil || !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), c.text)) {
			t.Errorf("%s %s: %v, want EINVAL and %q", c.path, c.v, err, c.text)
		}
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	d := fixtureDriver(t, hostfs.NewRoot(fixture))
	g, err := d.Open("/batch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	procs := make([]int32, 0, 16)
	for name, f := range map[string]func() error{
		"UsageNsec":  func() error { _, err := g.UsageNsec(); return err },
		"Throttling": func() error { _, err := g.Throttling(); return err },
		"UsageAndStat": func() error {
			usage, own, err := g.UsageAndStat()
			if was, _ := g.UsageNsec(); err == nil && (usage != was || !own.HasQuota) {
				return fmt.Errorf("usage %d, %+v; UsageNsec says %d", usage, own, was)
			}
			return err
		},
		"Procs": func() error { procs, err = g.Procs(procs); return err },
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
