package reclaim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
)

// mglru switches the multi-generational LRU on until the test ends.
func (h host) mglru(t *testing.T, bits LRUGenBits) *LRUGen {
	t.Helper()
	rigtest.Only(t, "multi-generational LRU")
	rigtest.Set(t, numaBalancing, "0")
	g := NewLRUGen(h.fs)
	before, err := g.SetEnabled(bits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := g.SetEnabled(before); err != nil {
			t.Error(err)
		}
	})
	if now, err := g.Enabled(); err != nil || now != bits {
		t.Fatalf("Enabled = %v, %v; was %v", now, err, before)
	}
	return g
}

// What there is is what the files say, and switched off is not absent.
func TestLRUGenEnabled(t *testing.T) {
	g := NewLRUGen(live(t).fs)
	bits, err := g.Enabled()
	data, readErr := os.ReadFile(lruGenEnabled)
	t.Logf("Enabled = %v, %v", bits, err)
	if readErr != nil {
		if !errors.Is(err, ErrNoMGLRU) {
			t.Errorf("Enabled: %v, want ErrNoMGLRU", err)
		}
		if _, err := g.MinTTL(); !errors.Is(err, ErrNoMGLRU) {
			t.Errorf("MinTTL: %v, want ErrNoMGLRU", err)
		}
		if _, err := g.SetEnabled(LRUGenAll); !errors.Is(err, ErrNoMGLRU) {
			t.Errorf("SetEnabled: %v, want ErrNoMGLRU", err)
		}
		return
	}
	if err != nil || bits.String() != strings.TrimSpace(string(data)) {
		t.Errorf("Enabled = %v, %v; the file says %s", bits, err, data)
	}
	if ttl, err := g.MinTTL(); err != nil || ttl < 0 {
		t.Errorf("MinTTL = %v, %v", ttl, err)
	}
	if bits&LRUGenCore != 0 {
		return
	}
	_, err = g.Ages(background(t), "/none", []time.Duration{time.Second})
	if !errors.Is(err, ErrNoMGLRU) || !strings.Contains(err.Error(), "switched off") {
		t.Errorf("Ages: %v, want ErrNoMGLRU, switched off", err)
	}
	if _, err := g.Age(background(t), "/none", true); !errors.Is(err, ErrNoMGLRU) {
		t.Errorf("Age: %v, want ErrNoMGLRU", err)
	}
}

// Of two groups of one size, one in use and one not, the ages tell which; and eviction
// takes from the idle one only.
func TestAgesTellHotFromCold(t *testing.T) {
	h := needReclaim(t)
	g := h.mglru(t, LRUGenCore|LRUGenMMWalk)
	zram(t)
	hot, cold := h.group(t, "hot"), h.group(t, "cold")
	inner := cold + "/inner"
	h.put(t, cold, "cgroup.subtree_control", "+memory")
	h.mkdir(t, inner)
	wh, wc := h.worker(t, hot), h.worker(t, inner)
	wh.do("spread a 16")
	wc.do("spread a 16")
	ctx := background(t)
	const d = 200 * time.Millisecond
	for range 4 {
		wh.do("touch a")
		for _, group := range []string{hot, cold} {
			done, err := g.Age(ctx, group, true)
			if err != nil || done.Walks == 0 || done.CPU <= 0 {
				t.Fatalf("Age(%s) = %+v, %v", group, done, err)
			}
		}
		time.Sleep(d)
	}
	wh.do("touch a")
	dump(t, g, hot)
	dump(t, g, cold)
	keep(t, lruGenDebug, lruGenEnabled, lruGenMinTTL)
	ask := []time.Duration{d, time.Hour}
	ah, errHot := g.Ages(ctx, hot, ask)
	ac, errCold := g.Ages(ctx, cold, ask)
	t.Logf("hot:  %+v, %v", ah, errHot)
	t.Logf("cold: %+v, %v", ac, errCold)
	if errHot != nil || errCold != nil {
		t.FailNow()
	}
	if ah.Anon[0].AtLeastBytes > 4*mib {
		t.Errorf("hot: %d bytes idle for %v", ah.Anon[0].AtLeastBytes, d)
	}
	if ac.Anon[0].AtLeastBytes < 14*mib || ac.Anon[0].AtMostBytes > 40*mib {
		t.Errorf("cold: %+v idle for %v, want about 16 MiB", ac.Anon[0], d)
	}
	if ac.Anon[1].AtLeastBytes != 0 || ac.Anon[1].AtMostBytes < 14*mib || ac.Horizon < d || ac.Horizon > time.Hour {
		t.Errorf("cold: %+v idle for an hour with a horizon of %v", ac.Anon[1], ac.Horizon)
	}
	h.evict(t, g, hot, cold, d)
}

// dump logs the generations of a group.
func dump(t *testing.T, g *LRUGen, group string) {
	t.Helper()
	found, err := g.group(group)
	if err != nil {
		t.Error(err)
	}
	for _, m := range found.members {
		t.Logf("%s on node %d: %+v", m.path, m.node, m.gens)
	}
}

func (h host) evict(t *testing.T, g *LRUGen, hot, cold string, d time.Duration) {
	t.Helper()
	ask := EvictAsk{Bytes: 8 * mib, StepBytes: 2 * mib, Idle: d, Kind: FavourAnon}
	fromHot, err := h.reclaimer(t, hot).Evict(background(t), g, ask)
	t.Logf("evict from hot:  %+v, %v", fromHot, err)
	if err != nil || fromHot.FellBytes > 4*mib {
		t.Errorf("evict from hot: %+v, %v", fromHot, err)
	}
	fromCold, err := h.reclaimer(t, cold).Evict(background(t), g, ask)
	t.Logf("evict from cold: %+v, %v", fromCold, err)
	if err != nil || fromCold.FellBytes < 6*mib || fromCold.FellBytes > 12*mib || fromCold.SwappedBytes.Bytes < 6*mib {
		t.Errorf("evict from cold: %+v, %v; want about 8 MiB", fromCold, err)
	}
	ask.Idle = time.Hour
	none, err := h.reclaimer(t, cold).Evict(background(t), g, ask)
	if err != nil || none.Steps != 0 {
		t.Errorf("evict what was idle for an hour: %+v, %v; want nothing", none, err)
	}
	ask.Kind = KernelsChoice
	if _, err := h.reclaimer(t, cold).Evict(background(t), g, ask); !errors.Is(err, ErrBadAsk) {
		t.Errorf("evict without a kind: %v, want ErrBadAsk", err)
	}
}

// With all bits on, memory in use on the node that is walked second looks idle before 6.12:
// no lower bound is claimed. Eviction spares it all the same.
func TestAgesOnTwoNodes(t *testing.T) {
	h := needReclaim(t)
	g := h.mglru(t, LRUGenAll)
	zram(t)
	group := h.group(t, "nodes")
	w := h.worker(t, group)
	w.do("spread a 16")
	for range 4 {
		w.do("touch a")
		if _, err := g.Age(background(t), group, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.do("touch a")
	dump(t, g, group)
	a, err := g.Ages(background(t), group, []time.Duration{100 * time.Millisecond})
	t.Logf("%+v, %v", a, err)
	if err != nil || a.Anon[0].AtLeastBytes > mib || a.Anon[0].AtMostBytes < 14*mib {
		t.Errorf("Ages = %+v, %v; want next to nothing idle", a, err)
	}
	if old := rigtest.Kernel() == "6.1"; strings.Contains(a.Note, "2 nodes") != old {
		t.Errorf("Note = %q on %s", a.Note, rigtest.Kernel())
	}
	out, err := h.reclaimer(t, group).Evict(background(t), g, EvictAsk{Bytes: 8 * mib, Idle: 100 * time.Millisecond, Kind: FavourAnon})
	t.Logf("evict: %+v, %v", out, err)
	if err != nil || out.FellBytes > 4*mib {
		t.Errorf("Evict = %+v, %v; want next to nothing of memory in use", out, err)
	}
}

// File pages that are read with read(2) lie among the oldest however new and hot they are:
// the lower bound claims nothing, and the upper one holds. Mapped ones do move.
func TestFileAgesClaimNothingOfReads(t *testing.T) {
	h := needReclaim(t)
	g := h.mglru(t, LRUGenCore|LRUGenMMWalk)
	group := h.group(t, "file")
	w := h.worker(t, group)
	path, mapped := file(t), file(t)
	w.do("write %s 8", mapped)
	w.do("map m %s", mapped)
	ctx := background(t)
	for range 4 {
		if _, err := g.Age(ctx, group, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
	}
	w.do("write %s 8", path)
	for range 3 {
		w.do("read %s", path)
	}
	w.do("touch m")
	if _, err := g.Age(ctx, group, true); err != nil {
		t.Fatal(err)
	}
	found, err := g.group(group)
	if err != nil {
		t.Fatal(err)
	}
	old, young := uint64(0), uint64(0)
	for _, m := range found.members {
		t.Logf("node %d: %+v", m.node, m.gens)
		for i, gen := range m.gens {
			if m.idleMsec(i) >= 300 {
				old += gen.FilePages * pageSize()
			} else {
				young += gen.FilePages * pageSize()
			}
		}
	}
	t.Logf("just read, and %d MiB among the oldest; just used through a mapping, and %d MiB among the youngest", old/mib, young/mib)
	a, err := g.Ages(ctx, group, []time.Duration{300 * time.Millisecond})
	if err != nil || a.File[0].AtLeastBytes != 0 || a.File[0].AtMostBytes < old {
		t.Errorf("Ages = %+v, %v; want no lower bound and at least %d above", a, err, old)
	}
	if young < 6*mib {
		t.Errorf("mapped pages in use did not become young: %d bytes", young)
	}
	// Evicting file pages that are idle takes from the file that nobody mapped, and
	// spares the mapping in use.
	out, err := h.reclaimer(t, group).Evict(ctx, g, EvictAsk{Bytes: 4 * mib, Idle: 300 * time.Millisecond, Kind: FileOnly})
	t.Logf("evict: %+v, %v", out, err)
	if err != nil || out.SwappedBytes.Bytes != 0 {
		t.Errorf("Evict = %+v, %v", out, err)
	}
}

// A removed group's pages stay under its path with the id 0; the group that is made in its
// place is told from it.
func TestAgesOfAGroupMadeAnew(t *testing.T) {
	h := needReclaim(t)
	g := h.mglru(t, LRUGenCore|LRUGenMMWalk)
	group := h.group(t, "anew")
	w := h.worker(t, group)
	w.do("write %s 8", file(t))
	w.End()
	if err := h.rmdir(group); err != nil {
		t.Fatal(err)
	}
	h.mkdir(t, group)
	// It keeps its id for a moment, and until then there are two.
	dead := 0
	eventually(t, "the removed group's id is 0", func() bool {
		dead = 0
		_, err := g.group(group) // before the look: ids only ever become 0
		if err := g.Scan(func(l *LRUNode) error {
			if string(l.Path) == group && l.Memcg == 0 {
				dead++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if dead == 0 && !errors.Is(err, ErrAmbiguous) {
			t.Errorf("two groups with ids: %v, want ErrAmbiguous", err)
		}
		return dead > 0
	})
	if _, err := g.Age(background(t), group, true); err != nil {
		t.Error(err)
	}
	a, err := g.Ages(background(t), group, []time.Duration{time.Millisecond})
	t.Logf("beside %d nodes of the dead one: %+v, %v", dead, a, err)
	if err != nil || dead == 0 || a.File[0].AtMostBytes > mib {
		t.Errorf("Ages = %+v, %v with %d nodes of the dead group", a, err, dead)
	}
}

// Reading all groups does not allocate: it may be done for thousands.
func TestScanDoesNotAllocate(t *testing.T) {
	h := live(t)
	g := NewLRUGen(h.fs)
	if _, err := os.Stat(lruGenDebug); err != nil {
		if err := g.Scan(func(*LRUNode) error { return nil }); !errors.Is(err, ErrNoMGLRU) {
			t.Errorf("Scan: %v, want ErrNoMGLRU", err)
		}
		return
	}
	nodes := 0
	scan := func() {
		if err := g.Scan(func(l *LRUNode) error {
			nodes++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	scan()
	if n := testing.AllocsPerRun(20, scan); n != 0 {
		t.Errorf("Scan allocates %v times", n)
	}
	if nodes == 0 {
		t.Error("no groups")
	}
}

// The sources are asked in order, and the refusal of all names each reason.
func TestFirstAges(t *testing.T) {
	h := live(t)
	durations := []time.Duration{time.Second}
	yes := fakeSource{name: "yes"}
	no := fakeSource{name: "no", err: fmt.Errorf("because: %w", ErrOwned)}
	if a, err := FirstAges(background(t), []Source{no, yes, no}, "/g", durations); err != nil || a.Source != "yes" {
		t.Errorf("FirstAges = %+v, %v", a, err)
	}
	_, err := FirstAges(background(t), []Source{no, NewLRUGen(h.fs)}, "/commensal-test-none", durations)
	if !errors.Is(err, ErrNoSource) || !errors.Is(err, ErrOwned) || strings.Contains(err.Error(), "\n") {
		t.Errorf("FirstAges: %v, want ErrNoSource and its reasons in one line", err)
	}
	t.Log(err)
	if _, err := FirstAges(background(t), nil, "/g", durations); !errors.Is(err, ErrNoSource) {
		t.Errorf("FirstAges of none: %v", err)
	}
	for _, bad := range [][]time.Duration{nil, {0}, {-1}, make([]time.Duration, maxDurations+1)} {
		if _, err := FirstAges(background(t), []Source{yes}, "/g", bad); !errors.Is(err, ErrBadAsk) {
			t.Errorf("FirstAges(%v): %v, want ErrBadAsk", bad, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := FirstAges(ctx, []Source{no, yes}, "/g", durations); err == nil || errors.Is(err, ErrNoSource) {
		t.Errorf("FirstAges, cancelled: %v", err)
	}
}

type fakeSource struct {
	name string
	err  error
}

func (f fakeSource) Name() string { return f.name }

func (f fakeSource) Ages(context.Context, string, []time.Duration) (Ages, error) {
	return Ages{Source: f.name}, f.err
}
