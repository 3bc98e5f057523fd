package reclaim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// four are generations made 40, 30, 20 and 10 seconds ago, with 1, 2, 4 and 8 pages of
// anonymous memory, and ten times as many of files.
func four(node int) lruMember {
	return lruMember{memcg: 5, path: "/a", node: node, gens: []Generation{
		{Seq: 3, AgeMsec: 40000, AnonPages: 1, FilePages: 10}, {Seq: 4, AgeMsec: 30000, AnonPages: 2, FilePages: 20},
		{Seq: 5, AgeMsec: 20000, AnonPages: 4, FilePages: 40}, {Seq: 6, AgeMsec: 10000, AnonPages: 8, FilePages: 80}}}
}

func TestAgesOfGenerations(t *testing.T) {
	sec := func(n int) time.Duration { return time.Duration(n) * time.Second }
	pages := func(least, most uint64) Idle {
		return Idle{AtLeastBytes: least * pageSize(), AtMostBytes: most * pageSize()}
	}
	one := lruGroup{members: []lruMember{four(0)}}
	durations := []time.Duration{1, sec(10), sec(15), sec(20), sec(25), sec(41)}
	// The last look was 10 s ago. Then the oldest had been idle for 20 s (they were not
	// seen since the second walk), the next for 10 s, the rest for less.
	want := Ages{Source: "mglru", AsOf: sec(10), Horizon: sec(20),
		FileSorted: []uint64{30 * pageSize(), 30 * pageSize(), 10 * pageSize(), 10 * pageSize(), 0, 0},
		Anon:       []Idle{pages(3, 15), pages(3, 15), pages(1, 7), pages(1, 7), pages(0, 3), pages(0, 1)},
		File:       []Idle{pages(0, 150), pages(0, 150), pages(0, 70), pages(0, 70), pages(0, 30), pages(0, 10)}}
	if diff := cmp.Diff(want, one.ages(durations, true, false)); diff != "" {
		t.Error(diff)
	}
	// Without swap the kernel's walks make cold anonymous memory look young.
	for i, idle := range one.ages(durations, false, false).Anon {
		if idle != (Idle{want.Anon[i].AtLeastBytes, 15 * pageSize()}) {
			t.Errorf("without swap, for %v: %+v", durations[i], idle)
		}
	}
	// One node's walks do not blind themselves; two nodes' do.
	if diff := cmp.Diff(want, one.ages(durations, true, true)); diff != "" {
		t.Error(diff)
	}
	two := lruGroup{members: []lruMember{four(0), four(1)}}
	if a := two.ages(durations, true, true); a.Note == "" || a.Anon[0] != pages(0, 30) {
		t.Errorf("on two nodes, blind: %+v", a)
	}
	if a := two.ages(durations, true, false); a.Note != "" || a.Anon[0] != pages(6, 30) {
		t.Errorf("on two nodes: %+v", a)
	}
	// A descendant without pages has been aged less often, which takes nothing away.
	empty := four(1)
	empty.gens = []Generation{{Seq: 1, AgeMsec: 99000}, {Seq: 2, AgeMsec: 99000}}
	if a := (&lruGroup{members: []lruMember{four(0), empty}}).ages(durations, true, true); cmp.Diff(want, a) != "" {
		t.Errorf("with an empty descendant: %+v", a)
	}
	dead := lruGroup{members: one.members, deadAnonPages: 100, deadFilePages: 1000}
	if a := dead.ages(durations, true, false); a.Note == "" || a.Anon[5] != pages(0, 101) || a.File[5] != pages(0, 1010) {
		t.Errorf("with dead descendants: %+v", a)
	}
	// Two generations are the fewest: nothing is known to be idle.
	young := lruGroup{members: []lruMember{{gens: []Generation{{Seq: 0, AgeMsec: 50, AnonPages: 9}, {Seq: 1, AgeMsec: 0}}}}}
	if a := young.ages(durations[:1], true, false); a.Anon[0] != pages(0, 9) || a.Horizon != 0 {
		t.Errorf("two generations: %+v", a)
	}
}

func TestEvictableGenerations(t *testing.T) {
	m := four(0)
	for _, c := range []struct {
		idle       time.Duration
		kind       Swappiness
		seq, pages uint64
	}{
		{time.Second, FavourAnon, 4, 3}, {10 * time.Second, FavourAnon, 4, 3}, {11 * time.Second, FavourAnon, 3, 1},
		{20 * time.Second, FileOnly, 3, 10}, {21 * time.Second, FileOnly, 0, 0}, {1, FileOnly, 4, 30},
	} {
		if seq, pages := m.idle(&EvictAsk{Idle: c.idle, Kind: c.kind}); seq != c.seq || pages != c.pages {
			t.Errorf("idle for %v, kind %d: up to %d, %d pages; want %d, %d", c.idle, c.kind, seq, pages, c.seq, c.pages)
		}
		// The kernel never takes the two youngest.
		if seq, pages := m.idle(&EvictAsk{Idle: 1, Kind: c.kind}); pages > 0 && seq+2 > m.youngest().Seq {
			t.Errorf("generation %d of %d", seq, m.youngest().Seq)
		}
	}
}

// writeTree makes files below a new root.
func writeTree(t *testing.T, files map[string]string) *hostfs.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return hostfs.NewRoot(dir)
}

func TestGroupIsFoundByPath(t *testing.T) {
	const gens = " node 0\n 1 5 1 1\n 2 0 1 1\n"
	for _, c := range []struct {
		name, text string
		err        error
		members    int
		dead       uint64
	}{
		{"alone", "memcg 1 /\n" + gens + "memcg 2 /a\n" + gens, nil, 1, 0},
		{"with descendants, and others of like names", "memcg 2 /a\n" + gens + "memcg 3 /a/b\n" + gens + "memcg 4 /ab\n" + gens + "memcg 5 /b/a\n" + gens, nil, 2, 0},
		{"made anew", "memcg 0 /a\n" + gens + "memcg 3 /a\n" + gens, nil, 1, 0},
		{"with dead descendants", "memcg 3 /a\n" + gens + "memcg 0 /a/b\n" + gens, nil, 1, 2},
		{"handed out twice", "memcg 3 /a\n" + gens + "memcg 3 /a\n" + gens, nil, 1, 0},
		{"two with ids", "memcg 3 /a\n" + gens + "memcg 4 /a\n" + gens, ErrAmbiguous, 0, 0},
		{"dead only", "memcg 0 /a\n" + gens, ErrNotListed, 0, 0},
		{"descendants only", "memcg 4 /a/b\n" + gens, ErrNotListed, 0, 0},
		{"nothing", "", ErrNotListed, 0, 0},
	} {
		g := NewLRUGen(writeTree(t, map[string]string{lruGenDebug: c.text}))
		found, err := g.group("/a")
		if !errors.Is(err, c.err) || err == nil && (len(found.members) != c.members || found.deadAnonPages != c.dead) {
			t.Errorf("%s: %+v, %v", c.name, found, err)
		}
	}
}

// Before 6.12 one node's walk hides what was used from the next; who does not say how new
// it is counts as old.
func TestWalksApart(t *testing.T) {
	for release, want := range map[string]bool{"6.1.0-56-amd64": false, "6.11.9": false, "6.12.43+deb13-amd64": true, "6.18.44": true, "7.0.0": true, "5.19": false, "x": false} {
		g := NewLRUGen(writeTree(t, map[string]string{"/proc/sys/kernel/osrelease": release + "\n"}))
		if got := g.walksApart(); got != want {
			t.Errorf("%s: %v", release, got)
		}
	}
	if NewLRUGen(hostfs.NewRoot(t.TempDir())).walksApart() {
		t.Error("without a release")
	}
}

// A command that made nothing is noticed: a file takes it, and does not obey.
func TestAgeWithoutEffect(t *testing.T) {
	text := "memcg 3 /a\n node 0\n 1 5 1 1\n 2 0 1 1\n"
	// The command is written over the file's beginning: let that be another group's.
	text = "memcg 1 /" + strings.Repeat("x", 40) + "\n node 0\n 1 5 1 1\n" + text
	g := NewLRUGen(writeTree(t, map[string]string{lruGenEnabled: "0x0007\n", lruGenDebug: text}))
	if done, err := g.Age(context.Background(), "/a", true); err == nil {
		t.Errorf("Age = %+v, and nothing was made", done)
	}
}
