package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/model"
)

func quota(q int64) model.Setting {
	return model.Bandwidth(model.CPUMax{QuotaUsec: q, PeriodUsec: 100_000})
}

func lim(task, path string, inode uint64, q int64) Limit {
	return Limit{Task: task, Path: path, Inode: inode, Found: quota(-1), Before: quota(-1), Intended: quota(q)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// written returns a journal with two limits outstanding and one done.
func written(t *testing.T) (path string, want []Limit) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "journal")
	j, err := Create(path, "boot-1")
	must(t, err)
	a, b, c := lim("/a", "/a", 1, 5000), lim("/a", "/a/x", 2, 4000), lim("/c", "/c", 3, 3000)
	must(t, j.Intent([]Limit{b, a}))
	must(t, j.Intent([]Limit{c}))
	j.Wrote("/a", 1, quota(5000))
	j.Done(Key{Path: "/c", Inode: 3})
	must(t, j.Close())
	now := quota(5000)
	a.ReadBack = &now
	return path, []Limit{b, a}
}

func TestReadsBack(t *testing.T) {
	path, want := written(t)
	c, err := Read(path)
	must(t, err)
	if d := cmp.Diff(&Contents{Boot: "boot-1", Limits: want}, c); d != "" {
		t.Error(d)
	}
	j, err := Continue(path, "boot-1", c.Limits)
	must(t, err)
	if d := cmp.Diff(want, j.Outstanding()); d != "" {
		t.Error("continued:", d)
	}
	if len(j.Of("/a", model.CPUBandwidth)) != 2 || len(j.Of("/c", model.CPUBandwidth)) != 0 {
		t.Error("of a task:", j.Of("/a", model.CPUBandwidth), j.Of("/c", model.CPUBandwidth))
	}
	must(t, j.Close())
	c, err = Read(path)
	must(t, err)
	if d := cmp.Diff(&Contents{Boot: "boot-1", Limits: want}, c); d != "" {
		t.Error("read after Continue:", d)
	}
}

func TestMissingAndEmpty(t *testing.T) {
	dir := t.TempDir()
	c, err := Read(filepath.Join(dir, "none"))
	if err != nil || len(c.Limits) > 0 || c.Torn {
		t.Errorf("missing: %+v, %v", c, err)
	}
	empty := filepath.Join(dir, "empty")
	must(t, os.WriteFile(empty, nil, 0o600))
	if c, err := Read(empty); !errors.Is(err, ErrCorrupt) || len(c.Limits) > 0 {
		t.Errorf("empty: %+v, %v", c, err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("a folder was read")
	}
}

func TestCutBackWhenNothingIsOutstanding(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := Create(path, "boot-1")
	must(t, err)
	size := func() int64 {
		st, err := os.Stat(path)
		must(t, err)
		return st.Size()
	}
	empty := size()
	for i := range 50 {
		must(t, j.Intent([]Limit{lim("/a", "/a", 1, int64(1000+i))}))
		j.Wrote("/a", 1, quota(int64(1000+i)))
		j.Done(Key{Path: "/a", Inode: 1})
		if size() != empty {
			t.Fatalf("round %d: %d bytes, %d when empty", i, size(), empty)
		}
	}
	must(t, j.Intent([]Limit{lim("/a", "/a", 1, 7)}))
	must(t, j.Close())
	if c, err := Read(path); err != nil || len(c.Limits) != 1 || c.Limits[0].Intended != quota(7) {
		t.Errorf("%+v %v", c, err)
	}
}

// Cut off at every byte: what is read is what a prefix of whole lines says.
func TestTornAtEveryByte(t *testing.T) {
	path, _ := written(t)
	whole, err := os.ReadFile(path)
	must(t, err)
	for n := range len(whole) {
		end := strings.LastIndexByte(string(whole[:n]), '\n') + 1
		want, err := parse(whole[:end])
		must(t, err)
		got, err := parse(whole[:n])
		if err != nil || got.Torn != (n > end) || !cmp.Equal(want.Limits, got.Limits) {
			t.Fatalf("at byte %d: %+v, %v; want %+v", n, got, err, want)
		}
	}
}

// Every byte changed in every bit: noticed, or the very same contents; never other values.
func TestCorruptAtEveryByte(t *testing.T) {
	path, _ := written(t)
	whole, err := os.ReadFile(path)
	must(t, err)
	good, err := parse(whole)
	must(t, err)
	known := map[string]bool{}
	for n := range len(whole) + 1 {
		if n == len(whole) || whole[n] == '\n' {
			c, _ := parse(whole[:min(n+1, len(whole))])
			for _, l := range c.Limits {
				known[limitText(l)] = true
			}
		}
	}
	// What is left when one entry is lost: another state of a limit that did exist.
	for n := range whole {
		for bit := range 8 {
			b := append([]byte(nil), whole...)
			b[n] ^= 1 << bit
			c, err := parse(b)
			switch {
			case err == nil && !c.Torn && !cmp.Equal(good, c):
				t.Fatalf("byte %d bit %d: not noticed: %+v", n, bit, c)
			case err != nil && !errors.Is(err, ErrCorrupt):
				t.Fatalf("byte %d bit %d: %v", n, bit, err)
			}
			for _, l := range c.Limits {
				if !known[limitText(l)] {
					t.Fatalf("byte %d bit %d: a limit that never was: %s", n, bit, limitText(l))
				}
			}
		}
	}
}

func limitText(l Limit) string {
	b, _ := json.Marshal(l)
	return string(b)
}

func line(text string) string {
	return fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)), text)
}

func TestMalformed(t *testing.T) {
	open := line(`{"kind":"open","version":1,"boot":"b"}`)
	tests := []struct {
		name, text string
		want       error
	}{
		{"newer", line(`{"kind":"open","version":4,"boot":"b"}`), ErrNewer},
		{"no header", line(`{"kind":"done","path":"/a","inode":1}`), ErrCorrupt},
		{"unknown kind", open + line(`{"kind":"what"}`), ErrCorrupt},
		{"intent without values", open + line(`{"kind":"intent","path":"/a"}`), ErrCorrupt},
		{"knobs mixed", open + line(`{"kind":"intent","path":"/a","knob":"cpuset.cpus","found":{},"before":{},"value":{}}`), ErrCorrupt},
		{"unknown knob", open + line(`{"kind":"intent","path":"/a","knob":"cpu.what","found":{},"before":{},"value":{}}`), ErrCorrupt},
		{"read-back without intent", open + line(`{"kind":"wrote","path":"/a","value":{}}`), ErrCorrupt},
		{"not JSON", open + line(`{`), ErrCorrupt},
		{"short line", open + "x\n", ErrCorrupt},
		{"empty line", open + "\n", ErrCorrupt},
		{"no checksum", open + "zzzzzzzz {}\n", ErrCorrupt},
		{"done without intent", open + line(`{"kind":"done","path":"/a"}`), nil},
	}
	for _, tt := range tests {
		if _, err := parse([]byte(tt.text)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	newer := line(`{"kind":"open","version":4,"program":"/opt/commensal-4","boot":"b"}`)
	if _, err := parse([]byte(newer)); !strings.Contains(err.Error(), "version 4, this one reads up to 3; what is held is put back by `/opt/commensal-4 restore`") {
		t.Errorf("a newer version is refused without its name: %v", err)
	}
}

func TestEarlierBootIsForgotten(t *testing.T) {
	old, err := json.Marshal(&entry{Kind: kindIntent, Task: "/a", Path: "/a", Inode: 1, Found: &model.Setting{}, Before: &model.Setting{}, Value: &model.Setting{}})
	must(t, err)
	c, err := parse([]byte(line(`{"kind":"open","version":1,"boot":"b"}`) + line(string(old)) + line(`{"kind":"open","version":1,"boot":"c"}`)))
	if err != nil || c.Boot != "c" || len(c.Limits) > 0 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestOurs(t *testing.T) {
	l := Limit{
		Before:   model.Bandwidth(model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000, BurstUsec: 5}),
		Intended: model.Bandwidth(model.CPUMax{QuotaUsec: 25_000, PeriodUsec: 250_000}),
	}
	for _, q := range []int64{-1, 25_000, 7} {
		for _, p := range []int64{100_000, 250_000, 7} {
			for _, b := range []int64{5, 0, 7} {
				now := model.Bandwidth(model.CPUMax{QuotaUsec: q, PeriodUsec: p, BurstUsec: b})
				if got, want := l.Ours(now), q != 7 && p != 7 && b != 7; got != want {
					t.Errorf("%+v: %v", now, got)
				}
			}
		}
	}
	readBack := l.Intended
	l.ReadBack = &readBack
	if l.Ours(l.Before) || !l.Ours(*l.ReadBack) {
		t.Error("after the read-back only that is ours")
	}
}

// Of CPUs, both lists together are a state within a write, and nothing else is.
func TestOursOfCPUs(t *testing.T) {
	set := func(list string) model.Setting {
		s, err := model.ParseCPUSet(list)
		must(t, err)
		return model.Place(s)
	}
	l := Limit{Found: set("0-7"), Before: set("0-3"), Intended: set("4-7")}
	for list, want := range map[string]bool{"0-3": true, "4-7": true, "0-7": true, "": false, "0": false, "0-5": false} {
		if got := l.Ours(set(list)); got != want {
			t.Errorf("%q: %v", list, got)
		}
	}
	if l.Ours(quota(-1)) {
		t.Error("a bandwidth limit is none of a cpuset's")
	}
	now := set("4-7")
	l.ReadBack = &now
	if l.Ours(l.Before) || !l.Ours(now) {
		t.Error("after the read-back only that is ours")
	}
}

// Both knobs of one cgroup, side by side: neither is taken for the other, in memory or in
// the file, and an empty list is kept as one.
func TestTwoKnobsOfOneGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := Create(path, "boot-1")
	must(t, err)
	cpus := model.FullSet(6)
	place := Limit{Task: "/a", Path: "/a", Inode: 1, Found: model.Place(model.CPUSet{}), Before: model.Place(model.CPUSet{}), Intended: model.Place(cpus)}
	must(t, j.Intent([]Limit{lim("/a", "/a", 1, 5000), place}))
	back := model.Place(cpus)
	j.Note([]Note{{place.Key(), &back}, {Key: Key{Path: "/a", Inode: 1}}})
	place.ReadBack = &back
	c, err := Read(path)
	must(t, err)
	for _, got := range [][]Limit{c.Limits, j.Outstanding(), j.Of("/a", model.CPUPlace)} {
		if d := cmp.Diff([]Limit{place}, got); d != "" {
			t.Error(d)
		}
	}
	if got := j.Of("/a", model.CPUBandwidth); len(got) > 0 {
		t.Errorf("bandwidth: %+v", got)
	}
	j.Note([]Note{{Key{Path: "/a", Inode: 1}, &model.Setting{}}})
	if c, err := Read(path); err != nil || len(c.Limits) != 1 || j.Has(Key{Path: "/a", Inode: 1}) {
		t.Errorf("a read-back without an intent was taken: %+v, %v", c, err)
	}
	j.Done(place.Key())
	if c, err := Read(path); err != nil || len(c.Limits) > 0 {
		t.Errorf("%+v %v", c, err)
	}
	must(t, j.Close())
}

// A journal of version 1, as that version wrote it, is read as it is.
func TestReadsVersion1(t *testing.T) {
	text := line(`{"kind":"open","version":1,"boot":"b"}`) +
		line(`{"kind":"intent","task":"/a","path":"/a","inode":7,"found":{"quota_usec":-1,"period_usec":100000,"burst_usec":0},"before":{"quota_usec":-1,"period_usec":100000,"burst_usec":0},"value":{"quota_usec":5000,"period_usec":100000,"burst_usec":0}}`) +
		line(`{"kind":"wrote","path":"/a","inode":7,"value":{"quota_usec":5000,"period_usec":100000,"burst_usec":0}}`)
	c, err := parse([]byte(text))
	must(t, err)
	want := lim("/a", "/a", 7, 5000)
	now := quota(5000)
	want.ReadBack = &now
	if d := cmp.Diff([]Limit{want}, c.Limits); d != "" {
		t.Error(d)
	}
}

// What is in the file is what the journal holds in memory, after any sequence.
func TestFileAndMemoryAgree(t *testing.T) {
	const seed = 9
	rng := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "journal")
	j, err := Create(path, "boot-1")
	must(t, err)
	defer j.Close() //nolint:errcheck // the test is over
	for step := range 300 {
		p, ino := fmt.Sprintf("/%c", 'a'+rng.IntN(4)), uint64(rng.IntN(2))
		switch rng.IntN(3) {
		case 0:
			must(t, j.Intent([]Limit{lim(p, p, ino, int64(rng.IntN(1000)))}))
		case 1:
			if l := j.Of(p, model.CPUBandwidth); len(l) > 0 {
				j.Wrote(l[0].Path, l[0].Inode, quota(int64(step)))
			}
		case 2:
			j.Done(Key{Path: p, Inode: ino})
		}
		c, err := Read(path)
		must(t, err)
		if len(c.Limits)+len(j.Outstanding()) > 0 && !cmp.Equal(c.Limits, j.Outstanding()) {
			t.Fatalf("seed %d step %d: %s", seed, step, cmp.Diff(c.Limits, j.Outstanding()))
		}
	}
}

// A disk that is full in the middle of an entry, and has room again later.
func TestFullDisk(t *testing.T) {
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	signal.Ignore(unix.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(unix.SIGXFSZ) })
	path := filepath.Join(t.TempDir(), "journal")
	j, err := Create(path, "boot-1")
	must(t, err)
	must(t, j.Intent([]Limit{lim("/a", "/a", 1, 5000)}))
	st, err := os.Stat(path)
	must(t, err)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(st.Size()) + 30, Max: was.Max}))
	err = j.Intent([]Limit{lim("/b", "/b", 2, 5000)})
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	if !errors.Is(err, unix.EFBIG) {
		t.Fatalf("the write went through: %v", err)
	}
	must(t, j.Intent([]Limit{lim("/c", "/c", 3, 5000)}))
	must(t, j.Close())
	c, err := Read(path)
	if err != nil || c.Torn || len(c.Limits) != 2 || c.Limits[1].Path != "/c" {
		t.Errorf("%+v, %v", c, err)
	}
}

// Many limits: the file is written anew when it has doubled, not at every append, and what
// could not be read again is not appended.
func TestAtScale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	d := &counted{Disk: RealDisk()}
	j, err := ContinueOn(d, path, "boot-1", nil)
	must(t, err)
	defer j.Close() //nolint:errcheck // the test is over
	long := strings.Repeat("/kubepods-burstable-pod0123456789abcdef.slice", 4)
	var many []Limit
	for i := range 3000 {
		many = append(many, lim(long, fmt.Sprintf("%s/%d", long, i), uint64(i), 5000))
	}
	must(t, j.Intent(many))
	if j.size < compactBytes {
		t.Fatalf("%d bytes: the test proves nothing", j.size)
	}
	d.creates = 0
	for i := range 100 {
		must(t, j.Intent(many[i:i+10]))
	}
	if d.creates > 2 {
		t.Errorf("written anew %d times in 100 intents", d.creates)
	}
	all := j.Outstanding()
	for n := 0; err == nil && n < 10; n++ {
		for i := range many {
			many[i].Inode += 3000
		}
		err = j.Intent(many)
	}
	if !errors.Is(err, errFull) || j.size > maxBytes/2 {
		t.Errorf("%d bytes: %v", j.size, err)
	}
	c, err := Read(path)
	if err != nil || !reflect.DeepEqual(c.Limits[:len(all)], all) || !reflect.DeepEqual(c.Limits, j.Outstanding()) {
		t.Errorf("%d limits of %d, %v", len(c.Limits), len(j.Outstanding()), err)
	}
}

// counted counts the files that are made.
type counted struct {
	Disk
	creates int
}

func (d *counted) Create(path string) (File, error) {
	d.creates++
	return d.Disk.Create(path)
}

// Of a file that is too long what fits is used.
func TestTooLong(t *testing.T) {
	var text bytes.Buffer
	must(t, add(&text, &entry{Kind: kindOpen, Version: Version, Boot: "b"}))
	old, n := &Journal{boot: "b"}, 0
	for ; text.Len() < maxBytes+1<<20; n++ {
		l := lim("/a", fmt.Sprintf("/a%s/%d", strings.Repeat("/kubepods.slice", 100), n), uint64(n), 5000)
		must(t, add(&text, old.intent(&l)))
	}
	path := filepath.Join(t.TempDir(), "journal")
	must(t, os.WriteFile(path, text.Bytes(), 0o600))
	c, err := Read(path)
	if !errors.Is(err, ErrCorrupt) || len(c.Bad) != 1 || c.Torn || len(c.Limits) < n*9/10 || len(c.Limits) >= n {
		t.Fatalf("%d of %d limits, bad %v, torn %v, %v", len(c.Limits), n, c.Bad, c.Torn, err)
	}
	// All of them are known from now on, although nothing more can be appended.
	j, err := Continue(path, "b", c.Limits)
	must(t, err)
	defer j.Close() //nolint:errcheck // the test is over
	if err := j.Intent([]Limit{lim("/b", "/b", 1, 5000)}); !errors.Is(err, errFull) {
		t.Errorf("an intent more: %v", err)
	}
	if again, _ := Read(path); len(again.Limits) < len(c.Limits)-1 { // the first line is longer
		t.Errorf("read again: %d limits of %d", len(again.Limits), len(c.Limits))
	}
}

// What happened while the file could not be written goes into it when it can be.
func TestOwed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	d := &failingDisk{Disk: RealDisk()}
	j, err := ContinueOn(d, path, "boot-1", []Limit{lim("/a", "/a", 1, 1000), lim("/b", "/b", 2, 1000), lim("/c", "/c", 3, 1000)})
	must(t, err)
	defer j.Close() //nolint:errcheck // the test is over
	d.always = true
	if err := j.Intent([]Limit{lim("/d", "/d", 4, 1000)}); !errors.Is(err, unix.EIO) || j.Has(Key{Path: "/d", Inode: 4}) {
		t.Errorf("an intent to take: %v", err)
	}
	if err := j.Tend(); !errors.Is(err, unix.EIO) {
		t.Errorf("the last intent was refused, and nothing is owed: %v", err)
	}
	j.Done(Key{Path: "/a", Inode: 1})
	j.Assume([]Limit{lim("/b", "/b", 2, 2000)})
	j.Wrote("/b", 2, quota(2000))
	if err := j.Tend(); !errors.Is(err, unix.EIO) {
		t.Errorf("the disk fails: %v", err)
	}
	if c, err := Read(path); err != nil || len(c.Limits) != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	d.always = false
	must(t, j.Tend())
	c, err := Read(path)
	must(t, err)
	if len(c.Limits) != 2 || !cmp.Equal(c.Limits, j.Outstanding()) || *j.Limit("/b", model.CPUBandwidth).ReadBack != quota(2000) {
		t.Errorf("file and memory: %s", cmp.Diff(c.Limits, j.Outstanding()))
	}
}

// Whoever removes the file, its directory or puts another in its place under a running agent
// finds it there again, with all that is outstanding.
func TestRemovedUnderUs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(dir, "journal")
	must(t, os.Mkdir(dir, 0o700))
	j, err := Create(path, "boot-1")
	must(t, err)
	defer j.Close() //nolint:errcheck // the test is over
	must(t, j.Intent([]Limit{lim("/a", "/a", 1, 1000)}))
	for name, harm := range map[string]func() error{
		"removed":     func() error { return os.Remove(path) },
		"all removed": func() error { return os.RemoveAll(dir) },
		"replaced": func() error {
			return errors.Join(os.WriteFile(path+".x", nil, 0o600), os.Rename(path+".x", path))
		},
	} {
		must(t, harm())
		must(t, j.Tend())
		c, err := Read(path)
		if err != nil || !cmp.Equal(c.Limits, j.Outstanding()) || len(c.Limits) != 1 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	// As long as it cannot be made again nothing is taken: nobody could read of it.
	must(t, os.RemoveAll(dir))
	must(t, os.WriteFile(dir, nil, 0o600))
	if err := j.Tend(); err == nil {
		t.Error("a file was made below a file")
	}
	if err := j.Intent([]Limit{lim("/b", "/b", 2, 1000)}); err == nil {
		t.Error("an intent went into a file that nobody finds")
	}
	must(t, os.Remove(dir))
	must(t, j.Intent([]Limit{lim("/b", "/b", 2, 1000)}))
	if c, err := Read(path); err != nil || len(c.Limits) != 2 {
		t.Errorf("made again: %+v, %v", c, err)
	}
}

// A path may be any bytes but a newline.
func TestAnyPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := Create(path, "boot-1")
	must(t, err)
	for i, p := range []string{"/be-\xff", "/\xed\xa0\x80", "/\ufffd", "/\x1b]0;\a", "/[\"", "/\u2028<&>"} {
		l := lim(p, p+"/x", uint64(i), 1000)
		must(t, j.Intent([]Limit{l}))
		j.Wrote(l.Path, l.Inode, quota(1000))
	}
	must(t, j.Close())
	c, err := Read(path)
	must(t, err)
	if d := cmp.Diff(j.Outstanding(), c.Limits); d != "" {
		t.Error(d)
	}
}

// The first line may be damaged: the others say of which boot they are.
func TestBootOfEachIntent(t *testing.T) {
	path, want := written(t)
	whole, err := os.ReadFile(path)
	must(t, err)
	whole[12] ^= 1
	c, err := parse(whole)
	if !errors.Is(err, ErrCorrupt) || c.Boot != "boot-1" || !cmp.Equal(c.Limits, want) {
		t.Errorf("%+v, %v", c, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(line(`{"kind":"open","version":1,"boot":"b"}`) + line(`{"kind":"intent","path":"/a","found":{},"before":{},"value":{}}`)))
	f.Add([]byte(line(`{"kind":"open","version":3,"boot":"b"}`)))
	f.Add([]byte(line(`{"kind":"open","version":2,"boot":"b"}`) + line(`{"kind":"intent","path":"/a","knob":"cpuset.cpus","found":{"knob":"cpuset.cpus"},"before":{"knob":"cpuset.cpus"},"value":{"knob":"cpuset.cpus","cpus":"0-3"}}`)))
	f.Add([]byte("00000000 {}\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parse(b)
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
			t.Fatalf("%v", err)
		}
		if (len(c.Bad) > 0) != errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
			t.Fatalf("%v, bad %v", err, c.Bad)
		}
	})
}

// A limit that moved to another path is in the file wherever an append of that ends: under the old
// name, the new one or both.
func TestMovedAndCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := Create(path, "boot-1")
	must(t, err)
	a, b := lim("/a", "/a", 1, 5000), lim("/a", "/a", 1, 0)
	b.Found, b.Before, b.Intended = model.Weight(1024), model.Weight(1024), model.Weight(model.WeightIdle)
	must(t, j.Intent([]Limit{a, b}))
	before, err := os.ReadFile(path)
	must(t, err)
	for _, l := range []Limit{a, b} {
		was := l.Key()
		l.Path = "/was-a"
		j.Move(was, l)
	}
	must(t, j.Intent([]Limit{lim("/c", "/c", 3, 3000)}))
	must(t, j.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	for cut := len(before); cut <= len(whole); cut++ {
		must(t, os.WriteFile(path, whole[:cut], 0o600))
		c, err := Read(path)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		kinds := map[model.KnobKind]bool{}
		for _, l := range c.Limits {
			kinds[l.Found.Knob] = kinds[l.Found.Knob] || l.Inode == 1
		}
		if !kinds[model.CPUBandwidth] || !kinds[model.CPUWeight] {
			t.Fatalf("cut at byte %d of %d: %+v", cut, len(whole), c.Limits)
		}
	}
}
