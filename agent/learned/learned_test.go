package learned

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/burst"
	"github.com/commensal-io/commensal/policy/hardcap"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/remedy"
)

func here() Under {
	return Under{Platform: "cpu", Kernel: "6.1", Profile: "single-node", Window: "1s in each 1s", Signals: Signals(false)}
}

func state() engine.Restored {
	return engine.Restored{
		Specs: []localspec.Kept{{
			Spec:    model.Spec{Job: "web", Platform: "cpu", NumSamples: 20, Tasks: 1, Mean: 1.5, StdDev: 0.1, Source: model.SourceSlowdown},
			History: localspec.Moments{N: 20, Mean: 1.5, M2: 0.2}, WallNsec: 3e9,
		}},
		BurstBound: &burst.KeptBound{K: 1, Bucket: 10}, ProtectOff: []string{"", "web"},
		Pairs:    []hardcap.KeptPair{{Pair: hardcap.Pair{Victim: "web", Antagonist: "grind", Evidence: 2.5, Times: 4}, WallNsec: 3e9}},
		Remedies: []remedy.Known{{Victim: "web", Job: "grind", Means: remedy.Ways, Effect: 0.2}},
	}
}

// write lets a Writer write one state and returns the file.
func write(t *testing.T, r engine.Restored) string {
	t.Helper()
	path := Path(t.TempDir())
	w := NewWriter(path, "test", here(), slog.New(slog.DiscardHandler))
	w.Close(r)
	return path
}

func TestRoundTrip(t *testing.T) {
	path := write(t, state())
	got, problem, notes := Read(path, here())
	if problem != "" || notes != nil {
		t.Fatal(problem, notes)
	}
	want := state()
	if d := cmp.Diff(&want, got); d != "" {
		t.Error(d)
	}
	if list, err := filepath.Glob(path + "*"); err != nil || len(list) != 1 {
		t.Errorf("files %v, %v", list, err)
	}
	if r, problem, _ := Read(path+"-none", here()); r != nil || problem != "" {
		t.Errorf("no file: %v, %q", r, problem)
	}
}

// TestOtherCircumstances: specs are taken up on the same platform, in the same profile, with
// the same windows and signals only, and so are pairs of jobs; the bound on the same kernel; protection always.
func TestOtherCircumstances(t *testing.T) {
	for name, change := range map[string]func(*Under){
		"CPU type": func(u *Under) { u.Platform = "other" },
		"profile":  func(u *Under) { u.Profile = "cpi2" },
		"windows":  func(u *Under) { u.Window = "10s in each 1m0s" },
		"signal":   func(u *Under) { u.Signals = append([]string{"cpi = something else"}, u.Signals[1:]...) },
		"kernel":   func(u *Under) { u.Kernel = "6.12" },
	} {
		now := here()
		now.Signals = Signals(false)
		change(&now)
		r, problem, notes := Read(write(t, state()), now)
		if r == nil || problem != "" || len(notes) != 2 && name != "kernel" || !strings.Contains(strings.Join(notes, "; "), name) {
			t.Fatalf("%s: %v, %q, %q", name, r, problem, notes)
		}
		if kernel := name == "kernel"; (r.BurstBound == nil) != kernel || (r.Specs == nil) == kernel || (r.Pairs == nil) == kernel || len(r.ProtectOff) != 2 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestOldFile: a file of a version that knew no pairs is read.
func TestOldFile(t *testing.T) {
	old := state()
	old.Pairs = nil
	path := write(t, old)
	b, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(b), "pairs") {
		t.Fatalf("%v, %s", err, b)
	}
	if got, problem, notes := Read(path, here()); problem != "" || notes != nil || got.Pairs != nil || len(got.Specs) != 1 {
		t.Errorf("%+v, %q, %q", got, problem, notes)
	}
}

// TestDamage: a file with any byte changed, cut anywhere, newer or not ours is never taken up,
// is kept aside, and said.
func TestDamage(t *testing.T) {
	good, err := os.ReadFile(write(t, state()))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(b []byte, want string) {
		t.Helper()
		path := Path(t.TempDir())
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		r, problem, _ := Read(path, here())
		if r != nil || !strings.Contains(problem, want) {
			t.Fatalf("%q: %v, %q", b[:min(len(b), 60)], r, problem)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("it is there still: %v", err)
		}
		list, _ := filepath.Glob(path + ".*")
		if len(list) != 1 || !strings.Contains(problem, list[0]) {
			t.Fatalf("aside: %v, said: %q", list, problem)
		}
		if kept, err := os.ReadFile(list[0]); err != nil || string(kept) != string(b) {
			t.Fatalf("aside: %v", err)
		}
	}
	for i := range good {
		b := append([]byte{}, good...)
		b[i] ^= 1
		if c, err := parse(b); err == nil {
			t.Fatalf("byte %d changed: %+v", i, c)
		}
		if _, err := parse(good[:i]); err == nil {
			t.Fatalf("cut at %d", i)
		}
	}
	refused(good[:len(good)/2], "is damaged")
	refused([]byte(strings.Replace(string(good), magic+" 1", magic+" 2", 1)), "newer version")
	refused([]byte("notes of mine\n"), "no file of commensal's")
	refused(nil, "no file of commensal's")
	dir := filepath.Join(t.TempDir(), "learned")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if r, problem, _ := Read(dir, here()); r != nil || !strings.Contains(problem, "no regular file") {
		t.Errorf("a folder: %v, %q", r, problem)
	}
}

// TestWriterGivesWay: what cannot be written is said and leaves nothing behind, and a state
// that is as before is not written again.
func TestWriterGivesWay(t *testing.T) {
	var log strings.Builder
	w := NewWriter(filepath.Join(t.TempDir(), "none", "learned"), "test", here(), slog.New(slog.NewTextHandler(&log, nil)))
	w.Close(state())
	if !strings.Contains(log.String(), "cannot be kept") {
		t.Errorf("log: %q", log.String())
	}
	path := Path(t.TempDir())
	w = NewWriter(path, "test", here(), slog.New(slog.DiscardHandler))
	for !w.Offer(state()) {
	}
	for !w.Offer(state()) { // taken when the first was taken out
	}
	for !w.Offer(state()) {
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	w.Close(state())
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same state was written twice: %v", err)
	}
}

// FuzzParse: no bytes make a crash, and what is taken is what would be written.
func FuzzParse(f *testing.F) {
	b, err := (&content{Program: "test", Under: here(), State: state()}).format()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(magic + " 1 crc32c=00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parse(b)
		if err != nil {
			return
		}
		again, err := c.format()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(again); err != nil {
			t.Fatal(err)
		}
	})
}
