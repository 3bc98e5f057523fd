package bucket_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/bucket"
	"github.com/commensal-io/commensal/fleet/bucket/buckettest"
)

func TestMemoryConforms(t *testing.T) {
	buckettest.Conform(t, buckettest.NewMemory())
}

// samples lists the objects of a day's samples; manifests without their numbers.
func (w *world) samples(date string) (names []string) {
	for _, name := range w.mem.Names() {
		if rest, ok := strings.CutPrefix(name, "samples/date="+date+"/"); ok {
			if strings.HasPrefix(rest, "_manifest-") {
				rest = "manifest"
			}
			names = append(names, rest)
		}
	}
	return names
}

func (w *world) expect(what string, got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: %q; expected %q", what, got, want)
	}
}

// An hour goes to the bucket once it has ended and is one file, is replaced whole by what a late batch makes of it, and leaves the folder when its day is
// old enough. What comes after that is a file of its own.
func TestAnHour(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.sends("n", noon.Add(5*time.Minute), 10)
		w.commits()
	}
	w.now = noon.Add(time.Hour)
	w.mustRound()
	w.expect("while it may change", w.samples("2026-05-04"))
	w.now = noon.Add(3 * time.Hour)
	w.mustRound()
	w.expect("of three files", w.samples("2026-05-04"))
	w.compacts()
	w.mustRound()
	w.expect("settled", w.samples("2026-05-04"), "manifest", "hour=12/1-3.parquet")
	w.sends("n", noon.Add(10*time.Minute), 10)
	w.commits()
	w.mustRound()
	w.expect("after a late batch", w.samples("2026-05-04"), "manifest", "hour=12/1-4.parquet")
	if st := w.m.Status(); st.Copied != 6 || st.Dropped != 0 || st.WaitingFiles != 0 || !st.Complete.Equal(w.now) || st.Problem != "" {
		t.Errorf("%+v", st)
	}
	w.now = noon.Add(12*time.Hour + day) // the day ended a day ago
	w.mustRound()
	if left := w.local(); len(left) > 0 {
		t.Errorf("the folder has %v", left)
	}
	w.sends("n", noon.Add(15*time.Minute), 10)
	w.commits()
	w.mustRound()
	w.expect("long after", w.samples("2026-05-04"), "manifest", "hour=12/1-4.parquet", "hour=12/5-5.parquet")
	w.check("in the end")
	got, n := w.fetched(t.TempDir())
	if w.compare("fetched", got, w.committed()); n.Files != 6 || n.Copied != 6 {
		t.Errorf("%+v", n)
	}
}

// A restart copies nothing again.
func TestARestartCopiesNothing(t *testing.T) {
	w := newWorld(t)
	w.sends("n", noon, 10)
	w.commits()
	w.now = noon.Add(3 * time.Hour)
	w.mustRound()
	w.start()
	w.mustRound()
	if st := w.m.Status(); st.Copied != 0 || st.WaitingFiles != 0 || st.Deleted != 0 {
		t.Errorf("%+v", st)
	}
}

// While the bucket is away the folder keeps everything, and says how much waits and why.
func TestABucketThatIsAway(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.sends("n", noon.Add(time.Duration(i)*day), 10)
	}
	w.commits()
	w.now = noon.Add(10 * day)
	asked := 0
	w.mem.Fault = func(string, string) buckettest.Fault { asked++; return buckettest.Refuse }
	if _, err := w.round(); !errors.Is(err, buckettest.ErrFault) {
		t.Errorf("%v", err)
	}
	st := w.m.Status()
	if st.WaitingFiles != 15 || st.WaitingBytes == 0 || !strings.Contains(st.Problem, buckettest.ErrFault.Error()) || !st.Since.Equal(w.now) || len(w.local()) != 15 || !st.Complete.IsZero() {
		t.Errorf("%+v", st)
	}
	if asked > 5 {
		t.Errorf("it was asked %d times", asked)
	}
	w.mem.Fault = nil
	w.mustRound()
	if st := w.m.Status(); st.WaitingFiles != 0 || st.Problem != "" || !st.Since.IsZero() || len(w.local()) != 0 {
		t.Errorf("%+v", st)
	}
	w.mem.Fault = func(what, _ string) buckettest.Fault { // full: it can be read
		if what == "put" {
			return buckettest.Refuse
		}
		return buckettest.None
	}
	w.sends("n", noon, 10)
	w.commits()
	if _, err := w.round(); !errors.Is(err, buckettest.ErrFault) || len(w.local()) != 3 {
		t.Errorf("%v, %v", err, w.local())
	}
	w.check("full")
}

// What was not learned yet is read from the folder after a crash: it stays there.
func TestWhatIsNotLearnedStays(t *testing.T) {
	w := newWorld(t)
	w.sends("n", noon, 10)
	w.commits()
	w.m.Learned(0)
	w.now = noon.Add(10 * day)
	w.mustRound()
	if len(w.local()) != 3 || len(w.named()) != 3 {
		t.Errorf("%v, %v", w.local(), w.named())
	}
}

// Another store's bucket, and one that a store with another past has filled, are left as they are.
func TestForeignBuckets(t *testing.T) {
	w := newWorld(t)
	w.sends("n", noon, 10)
	w.sends("n", noon, 10)
	w.commits()
	w.now = noon.Add(3 * time.Hour)
	w.mustRound()
	before := w.mem.Names()

	other := newWorld(t)
	other.mem, other.now = w.mem, noon.Add(10*day)
	other.start()
	other.sends("n", noon, 10)
	other.commits()
	if _, err := other.round(); err == nil || !strings.Contains(err.Error(), "of the store") || len(other.local()) != 3 {
		t.Errorf("%v, %v", err, other.local())
	}
	w.expect("after another store", w.mem.Names(), before...)

	backup := newWorldLike(t, w) // the folder as it was before all
	backup.sends("n", noon, 10)
	backup.commits()
	for _, why := range []string{"backup", "of the store"} {
		if _, err := backup.round(); err == nil || !strings.Contains(err.Error(), why) {
			t.Error(err)
		}
		backup.start()
		backup.sends("n", noon.Add(time.Hour), 10) // by the third message nobody could tell from numbers any more
		backup.sends("n", noon.Add(time.Hour), 10)
		backup.commits()
	}
	w.expect("after a backup", w.mem.Names(), before...)
}

// Two hubs with copies of one folder, which neither could know: what is in question is left where it is.
func TestTwoHubs(t *testing.T) {
	a := newWorld(t)
	a.mustRound()
	b := newWorldLike(t, a)
	b.mustRound()
	a.sends("n", noon, 10)
	a.sends("n", noon, 10)
	a.commits()
	b.sends("n", noon, 10)
	b.commits()
	a.now, b.now = noon.Add(3*time.Hour), noon.Add(10*day)
	a.mustRound()
	before := a.mem.Names()
	if _, err := b.round(); err == nil || !strings.Contains(err.Error(), "two hubs") || len(b.local()) != 3 {
		t.Errorf("%v, %v", err, b.local())
	}
	a.expect("after the second hub", a.mem.Names(), before...)
}

// newWorldLike is a new folder that says that it is the other's.
func newWorldLike(t *testing.T, w *world) *world {
	t.Helper()
	n := newWorld(t)
	b, err := os.ReadFile(filepath.Join(w.dir, "bucket.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "bucket.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	n.mem, n.now = w.mem, w.now
	n.start()
	return n
}

// The bucket keeps days for so long, and days that are too old do not come to it.
func TestOldDaysGo(t *testing.T) {
	w := newWorld(t)
	w.cfg.Keep = 5 * day
	w.start()
	w.sends("n", noon, 10)
	w.sends("n", noon.Add(3*day), 10)
	w.commits()
	w.now = noon.Add(5 * day)
	w.mustRound()
	if len(w.named()) != 6 {
		t.Fatalf("%v", w.named())
	}
	var deleted []string
	w.mem.Fault = func(what, name string) buckettest.Fault {
		if what == "delete" {
			deleted = append(deleted, name)
		}
		return buckettest.None
	}
	w.now = noon.Add(6 * day)
	w.mustRound()
	if names := w.named(); len(names) != 3 || !strings.Contains(names[0].Name, "2026-05-07") || len(w.mem.Names()) != 7 {
		t.Errorf("%v, %v", names, w.mem.Names())
	}
	if len(deleted) != 6 || !strings.Contains(deleted[0], "_manifest-") || !strings.Contains(deleted[2], "_manifest-") {
		t.Errorf("%q", deleted)
	}
	w.sends("n", noon, 10)
	w.commits()
	w.mustRound()
	if st := w.m.Status(); len(w.named()) != 3 || st.WaitingFiles != 0 {
		t.Errorf("%v, %+v", w.named(), st)
	}
}

// A file that somebody deletes in the bucket is copied again while the folder has it, and is named where it has not.
func TestSomebodyDeletes(t *testing.T) {
	w := newWorld(t)
	w.sends("n", noon, 10)
	w.commits()
	w.now = noon.Add(3 * time.Hour)
	w.mustRound()
	const name = "samples/date=2026-05-04/hour=12/1-1.parquet"
	w.mem.Remove(name)
	w.now = noon.Add(10 * day)
	w.mustRound()
	if w.mem.Object(name) != nil || len(w.local()) != 1 {
		t.Errorf("the folder has %v", w.local())
	}
	w.mustRound()
	w.mustRound()
	if w.mem.Object(name) == nil || len(w.local()) != 0 {
		t.Errorf("the folder has %v", w.local())
	}
	w.check("copied again")
	w.mem.Remove(name)
	w.now = w.now.Add(2 * time.Hour)
	w.mustRound()
	w.expect("gone", w.m.Status().Gone, name)
	if _, err := bucket.Fetch(t.Context(), w.mem, t.TempDir(), noon, noon); !errors.Is(err, bucket.ErrNone) {
		t.Errorf("%v", err)
	}
}

// What does not lie there as it was written counts for nothing, whether the server says sums or not.
func TestWhatIsWrittenIsVerified(t *testing.T) {
	for _, fault := range []buckettest.Fault{buckettest.Forget, buckettest.HalfTold} {
		for _, silent := range []bool{false, true} {
			w := newWorld(t)
			w.mem.Silent = silent
			w.mem.Fault = func(what, name string) buckettest.Fault {
				if what == "put" && strings.HasSuffix(name, ".parquet") {
					return fault
				}
				return buckettest.None
			}
			w.sends("n", noon, 10)
			w.commits()
			w.now = noon.Add(10 * day)
			if _, err := w.round(); err == nil || len(w.named()) != 0 || len(w.local()) != 3 {
				t.Errorf("fault %d, silent %v: %v; named %v; the folder has %v", fault, silent, err, w.named(), w.local())
			}
		}
	}
}

// Fetching goes on where it was, reads again what is damaged, removes what counts no more, and does not touch a hub's own store.
func TestFetch(t *testing.T) {
	w := newWorld(t)
	w.sends("n", noon, 10)
	w.commits()
	w.now = noon.Add(3 * time.Hour)
	w.mustRound()
	into := t.TempDir()
	w.fetched(into)
	path := filepath.Join(into, "samples/date=2026-05-04/hour=12/1-1.parquet")
	if err := os.WriteFile(path, []byte("PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, n := w.fetched(into); n.Files != 3 || n.Copied != 1 {
		t.Errorf("%+v, %v", n, got)
	}
	w.sends("n", noon, 10)
	w.commits()
	w.mustRound()
	got, n := w.fetched(into)
	if w.compare("fetched again", got, w.committed()); n.Copied != 3 {
		t.Errorf("%+v", n)
	}
	w.mem.Fault = func(what, _ string) buckettest.Fault {
		if what == "get" {
			return buckettest.HalfTold
		}
		return buckettest.None
	}
	if _, err := bucket.Fetch(t.Context(), w.mem, t.TempDir(), noon, noon); err == nil {
		t.Error("half of a bucket was fetched")
	}
	if _, err := bucket.Fetch(t.Context(), w.mem, w.dir, noon, noon); err == nil || !strings.Contains(err.Error(), "hub's store") {
		t.Errorf("%v", err)
	}
}
