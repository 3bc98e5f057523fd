package reclaim

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
)

// quick is fast enough for a test.
var quick = DAMONConfig{Sample: 10 * time.Millisecond, Aggregate: 200 * time.Millisecond, Update: time.Second, MinRegions: 10, MaxRegions: 100}

// damon is the rig's DAMON, nobody's. It is left as nobody's.
func damon(t *testing.T) (host, *DAMON) {
	t.Helper()
	rigtest.Only(t, "DAMON")
	h := live(t)
	d := NewDAMON(h.fs)
	if _, err := os.Stat(damonDir); errors.Is(err, fs.ErrNotExist) {
		if rigtest.Kernel() != "6.1" {
			t.Fatal("only the rig's 6.1 has no DAMON: ", err)
		}
		// Not built: that is what is to be tested there.
		if _, err := d.Look(Claim{}); !errors.Is(err, ErrNoDAMON) {
			t.Errorf("Look: %v, want ErrNoDAMON", err)
		}
		if _, err := d.Start(background(t), Claim{Mark: NewMark(1), Kdamonds: 1}, quick, []DAMONTarget{{PID: 1}}); !errors.Is(err, ErrNoDAMON) {
			t.Errorf("Start: %v, want ErrNoDAMON", err)
		}
		if err := d.Reap(Claim{Mark: NewMark(1), Kdamonds: 1}); err != nil {
			t.Errorf("Reap: %v", err)
		}
		return h, nil
	}
	rigtest.Set(t, numaBalancing, "0")
	if s, err := d.Look(Claim{}); err != nil || s.Owner != Free {
		t.Fatalf("Look = %+v, %v; want free", s, err)
	}
	t.Cleanup(func() {
		if s, err := d.Look(Claim{}); err != nil || s.Owner != Free {
			t.Errorf("the test left DAMON behind: %+v, %v", s, err)
			for i := range s.Kdamonds {
				_ = os.WriteFile(instance(i)+"/state", []byte("off"), 0)
			}
			_ = os.WriteFile(damonCount, []byte("0"), 0)
		}
	})
	return h, d
}

// kdamonds is what the files say, told without the code under test.
func kdamonds(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, pattern := range []string{damonCount, damonDir + "/*/state", damonDir + "/*/pid", damonDir + "/*/contexts/*/operations",
		damonDir + "/*/contexts/*/schemes/*/action", damonDir + "/*/contexts/*/schemes/*/access_pattern/*/max"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			for end := time.Now().Add(patience); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
				data, err = os.ReadFile(name)
			}
			text.WriteString(name + ": " + string(data))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return text.String()
}

// Whoever uses DAMON here is seen, and left alone. On a machine where it is free this
// starts nothing.
func TestDAMONOfAnotherIsLeftAlone(t *testing.T) {
	h := live(t)
	d := NewDAMON(h.fs)
	if _, err := os.Stat(damonCount); err != nil {
		if _, err := d.Look(Claim{}); !errors.Is(err, ErrNoDAMON) {
			t.Errorf("Look: %v, want ErrNoDAMON", err)
		}
		return
	}
	before := kdamonds(t)
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(strings.SplitN(before, "\n", 2)[0], damonCount+":")))
	if err != nil {
		t.Fatal(err)
	}
	claim := Claim{Mark: NewMark(77), Kdamonds: max(n, 1)}
	s, err := d.Look(claim)
	t.Logf("Look = %+v, %v", s, err)
	if err != nil || s.Kdamonds != n || (s.Owner == Free) != (n == 0) || s.Owner == Ours {
		t.Errorf("Look = %+v, %v; there are %d", s, err, n)
	}
	if s.Owner != Another {
		return
	}
	if _, err := d.Start(background(t), claim, quick, make([]DAMONTarget, claim.Kdamonds)); !errors.Is(err, ErrOwned) {
		t.Errorf("Start: %v, want ErrOwned", err)
	}
	if err := d.Reap(claim); n > 0 && !errors.Is(err, ErrOwned) {
		t.Errorf("Reap: %v, want ErrOwned", err)
	}
	if after := kdamonds(t); after != before {
		t.Errorf("something was touched: was\n%s\nis\n%s", before, after)
	}
}

// A stranger's instances are respected in every state: running, set up, and only made.
func TestDAMONRespectsStrangers(t *testing.T) {
	h, d := damon(t)
	if d == nil {
		return
	}
	w := h.worker(t, h.group(t, "stranger"))
	write := func(name, value string) {
		t.Helper()
		if err := os.WriteFile(damonDir+"/"+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	claim := Claim{Mark: NewMark(5), Kdamonds: 2}
	target := []DAMONTarget{{PID: w.pid()}, {PID: w.pid()}}
	check := func(what string) {
		t.Helper()
		before := kdamonds(t)
		if s, err := d.Look(claim); err != nil || s.Owner != Another {
			t.Errorf("%s: Look = %+v, %v; want another's", what, s, err)
		}
		if _, err := d.Start(background(t), claim, quick, target); !errors.Is(err, ErrOwned) {
			t.Errorf("%s: Start: %v, want ErrOwned", what, err)
		}
		if err := d.Reap(claim); !errors.Is(err, ErrOwned) {
			t.Errorf("%s: Reap: %v, want ErrOwned", what, err)
		}
		if after := kdamonds(t); after != before {
			t.Errorf("%s: was\n%s\nis\n%s", what, before, after)
		}
	}
	write("nr_kdamonds", "1")
	check("only made")
	write("0/contexts/nr_contexts", "1")
	write("0/contexts/0/operations", "vaddr")
	write("0/contexts/0/targets/nr_targets", "1")
	write("0/contexts/0/targets/0/pid_target", strconv.Itoa(int(w.pid())))
	write("0/contexts/0/schemes/nr_schemes", "1")
	check("set up")
	write("0/state", "on")
	check("running")
	write("0/state", "off")
	// With as many as ours, one of them ours by its mark: not ours.
	write("nr_kdamonds", "2")
	for i, mark := range []Mark{claim.Mark, NewMark(6)} {
		at := strconv.Itoa(i)
		write(at+"/contexts/nr_contexts", "1")
		write(at+"/contexts/0/schemes/nr_schemes", "1")
		write(at+"/contexts/0/schemes/0/access_pattern/sz/max", strconv.FormatUint(uint64(mark), 10))
	}
	check("partly marked like ours")
	write("nr_kdamonds", "0")
	for _, module := range []string{"damon_reclaim", "damon_lru_sort"} {
		path := "/sys/module/" + module + "/parameters/enabled"
		if _, err := os.Stat(path); err != nil {
			t.Logf("this kernel has no %s", module)
			continue
		}
		if err := os.WriteFile(path, []byte("Y"), 0); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		s, err := d.Look(claim)
		if err != nil || s.Owner != Another || !strings.Contains(s.Why, module) {
			t.Errorf("with %s: Look = %+v, %v", module, s, err)
		}
		if err := os.WriteFile(path, []byte("N"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// What a dead run left behind is known by its mark, and removed; also when it died before
// it could mark anything.
func TestDAMONReapsALeftover(t *testing.T) {
	h, d := damon(t)
	if d == nil {
		return
	}
	w := h.worker(t, h.group(t, "leftover"))
	claim := Claim{Mark: NewMark(math.MaxUint64), Kdamonds: 2}
	if err := d.Reap(claim); err != nil {
		t.Errorf("Reap of nothing: %v", err)
	}
	s, err := d.Start(background(t), claim, quick, []DAMONTarget{{PID: w.pid()}, {PID: w.pid()}})
	if err != nil {
		t.Fatal(err)
	}
	// The run dies here: nobody closes the session.
	for _, other := range []Claim{{}, {Mark: NewMark(7), Kdamonds: 2}, {Mark: claim.Mark, Kdamonds: 1}} {
		if state, err := d.Look(other); err != nil || state.Owner != Another || state.Running != 2 {
			t.Errorf("Look(%+v) = %+v, %v; want another's", other, state, err)
		}
		if err := d.Reap(other); !errors.Is(err, ErrOwned) {
			t.Errorf("Reap(%+v): %v, want ErrOwned", other, err)
		}
	}
	state, err := d.Look(claim)
	t.Logf("Look = %+v, %v", state, err)
	if err != nil || state.Owner != Ours {
		t.Errorf("Look = %+v, %v; want ours", state, err)
	}
	if err := d.Reap(claim); err != nil {
		t.Errorf("Reap: %v", err)
	}
	// The session that is still there finds out.
	if _, err := s.Regions(background(t), 0); !errors.Is(err, ErrOwned) {
		t.Errorf("Regions of a reaped session: %v, want ErrOwned", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close of a reaped session: %v", err)
	}
	for _, marked := range []int{0, 1} {
		if err := os.WriteFile(damonCount, []byte("2"), 0); err != nil {
			t.Fatal(err)
		}
		if marked == 1 {
			half := &DAMONSession{d: d, claim: claim, targets: make([]DAMONTarget, 1)}
			if err := half.mark(0); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Reap(claim); err != nil {
			t.Errorf("Reap with %d of 2 marked: %v", marked, err)
		}
	}
}

// A start that fails leaves nothing.
func TestDAMONStartFails(t *testing.T) {
	h, d := damon(t)
	if d == nil {
		return
	}
	w := h.worker(t, h.group(t, "fails"))
	gone := h.worker(t, h.group(t, "gone"))
	gone.End()
	claim := Claim{Mark: NewMark(9), Kdamonds: 2}
	if s, err := d.Start(background(t), claim, quick, []DAMONTarget{{PID: w.pid()}, {PID: gone.pid()}}); err == nil {
		t.Errorf("Start with a process that is gone = %v", errors.Join(err, s.Close()))
	} else {
		t.Log(err)
	}
	for _, bad := range []DAMONConfig{{}, {Sample: time.Second, Aggregate: time.Millisecond, Update: time.Second, MinRegions: 10, MaxRegions: 100}} {
		if _, err := d.Start(background(t), claim, bad, make([]DAMONTarget, 2)); !errors.Is(err, ErrBadAsk) {
			t.Errorf("Start(%+v): %v, want ErrBadAsk", bad, err)
		}
	}
	if _, err := d.Start(background(t), Claim{Mark: 3, Kdamonds: 1}, quick, make([]DAMONTarget, 1)); !errors.Is(err, ErrBadAsk) {
		t.Errorf("Start with a mark that is none: %v, want ErrBadAsk", err)
	}
	// The cleanup of damon fails the test if anything is left.
}

// DAMON's ages tell a process in use from one that is not, and end with the process.
func TestDAMONAges(t *testing.T) {
	h, d := damon(t)
	if d == nil {
		return
	}
	hot, cold := h.group(t, "damonhot"), h.group(t, "damoncold")
	wh, wc := h.worker(t, hot), h.worker(t, cold)
	wh.do("anon a 8")
	wh.do("hot a")
	wc.do("anon a 24")
	claim := Claim{Mark: NewMark(1234), Kdamonds: 2}
	s, err := d.Start(background(t), claim, quick, []DAMONTarget{{PID: wh.pid()}, {PID: wc.pid()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if pid, err := s.Kdamond(0); err != nil || pid <= 0 {
		t.Errorf("Kdamond = %d, %v", pid, err)
	}
	others := h.group(t, "others")
	procs := map[string][]int32{hot: {wh.pid()}, cold: {wc.pid()}, others: {1}}
	source := NewDAMONAges(s, h.m, func(group string) ([]int32, error) { return procs[group], nil })
	durations := []time.Duration{time.Second, time.Hour}
	var ac Ages
	eventually(t, "20 MiB of the idle process are idle", func() bool {
		if ac, err = source.Ages(background(t), cold, durations); err != nil {
			t.Fatal(err)
		}
		return ac.Anon[0].AtLeastBytes >= 20*mib
	})
	ah, err := source.Ages(background(t), hot, durations)
	t.Logf("cold: %+v", ac)
	t.Logf("hot:  %+v, %v", ah, err)
	if ac.Anon[1].AtLeastBytes != 0 || ac.Anon[0].AtMostBytes > 50*mib || !ac.Sampled || ac.Horizon < time.Second {
		t.Errorf("cold: %+v", ac)
	}
	if err != nil || ah.Anon[0].AtLeastBytes > 6*mib {
		t.Errorf("hot: %+v, %v", ah, err)
	}
	if _, err := source.Ages(background(t), others, durations); !errors.Is(err, ErrNotWatching) {
		t.Errorf("Ages of others: %v, want ErrNotWatching", err)
	}
	if a, err := FirstAges(background(t), []Source{NewLRUGen(h.fs), source}, cold, durations); err != nil {
		t.Errorf("FirstAges = %+v, %v", a, err)
	}
	keepDAMON(t, s)
	h.refresh(t, s, source, wc, cold, ac)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Regions(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Regions, cancelled: %v", err)
	}
	wc.End()
	eventually(t, "the kdamond ends with its process", func() bool {
		_, err := s.Regions(background(t), 1)
		return errors.Is(err, ErrNotWatching)
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if _, err := s.Regions(background(t), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Regions after Close: %v", err)
	}
}

// refresh makes a session see memory that is new, and keep the ages of what is not.
func (h host) refresh(t *testing.T, s *DAMONSession, source *DAMONAges, w worker, group string, before Ages) {
	t.Helper()
	w.do("anon b 16")
	if err := s.Refresh(background(t), 1); err != nil {
		t.Fatal(err)
	}
	// Without a wait: ages that had begun anew would not have reached the horizon.
	a, err := source.Ages(background(t), group, []time.Duration{before.Horizon})
	t.Logf("refreshed: %+v, %v", a, err)
	if err != nil || a.Anon[0].AtLeastBytes < 12*mib {
		t.Errorf("Ages after Refresh = %+v, %v; ages were lost", a, err)
	}
	eventually(t, "the new memory becomes idle", func() bool {
		a, err := source.Ages(background(t), group, []time.Duration{time.Second})
		return err == nil && a.Anon[0].AtLeastBytes >= 34*mib
	})
}

// keepDAMON saves a session's folder, with the regions that an update left.
func keepDAMON(t *testing.T, s *DAMONSession) {
	t.Helper()
	if err := s.command(background(t), 1, "update_schemes_tried_regions", nil); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"nr_kdamonds", "*/state", "*/pid", "*/contexts/nr_contexts", "*/contexts/0/operations",
		"*/contexts/0/schemes/nr_schemes", "*/contexts/0/schemes/0/action", "*/contexts/0/schemes/0/access_pattern/sz/max",
		"1/contexts/0/schemes/0/tried_regions/total_bytes", "1/contexts/0/schemes/0/tried_regions/*/*"} {
		names, err := filepath.Glob(damonDir + "/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		keep(t, names...)
	}
}
