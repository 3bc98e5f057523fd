package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// listed is a host that makes generations as it is told to, on the files of a folder.
type listed struct {
	hostfs.FS
	groups []listedGroup
	uptime time.Duration
	reads  int
	before func(l *listed, command string) // what happens just before a command
}

type listedGroup struct {
	id   uint64
	path string
	gens []Generation
}

// newListed is a host with so many groups, which are 100 s old and have a page of anonymous memory in the second generation.
func newListed(t *testing.T, groups int) *listed {
	l := &listed{FS: writeTree(t, map[string]string{lruGenEnabled: "0x0003\n"}), uptime: time.Hour}
	for i := range groups {
		l.groups = append(l.groups, listedGroup{uint64(i + 1), fmt.Sprintf("/task-%d", i), fourGens()})
	}
	return l
}

func fourGens() []Generation {
	return []Generation{{1, 100e3, 0, 0}, {2, 100e3, 1, 0}, {3, 60e3, 0, 0}, {4, 20e3, 0, 0}}
}

func (l *listed) ReadFile(path string, buf []byte) ([]byte, error) {
	if path == "/proc/uptime" {
		return fmt.Appendf(buf[:0], "%.2f 1.00\n", l.uptime.Seconds()), nil
	}
	if path != lruGenDebug {
		return l.FS.ReadFile(path, buf)
	}
	l.reads++
	buf = buf[:0]
	for _, g := range l.groups {
		buf = fmt.Appendf(buf, "memcg %5d %s\n node %5d\n", g.id, g.path, 0)
		for _, gen := range g.gens {
			buf = fmt.Appendf(buf, " %10d %10d %10d %10d \n", gen.Seq, gen.AgeMsec, gen.AnonPages, gen.FilePages)
		}
	}
	return buf, nil
}

func (l *listed) WriteFile(path string, data []byte) error {
	if l.before != nil {
		l.before(l, string(data))
	}
	var id, seq, anon uint64
	if _, err := fmt.Sscanf(string(data), "+ %d 0 %d %d 1", &id, &seq, &anon); err != nil || path != lruGenDebug {
		return unix.EPERM
	}
	i := slices.IndexFunc(l.groups, func(g listedGroup) bool { return g.id == id })
	if i < 0 {
		return unix.EINVAL
	}
	if g := &l.groups[i]; g.gens[3].Seq == seq {
		g.gens = append(g.gens[1:], Generation{Seq: seq + 1})
	}
	return nil
}

// OpenFolder says that this is no kernel of descriptors.
func (l *listed) OpenFolder(string) (hostfs.Folder, error) { return nil, unix.ENOSYS }

func (l *listed) asks() []AgeAsk {
	var asks []AgeAsk
	for _, g := range l.groups {
		asks = append(asks, AgeAsk{g.path, true})
	}
	return asks
}

// remove takes a group away.
func (l *listed) remove(path string) {
	l.groups = slices.DeleteFunc(l.groups, func(g listedGroup) bool { return g.path == path })
}

// A pass over 150 tasks, in turns, walks each and reads the list twice a turn.
func TestAgeAllReadsTwice(t *testing.T) {
	const tasks = 150
	l := newListed(t, tasks)
	g := NewLRUGen(l)
	asks, turns := l.asks(), 0
	for turn := range slices.Chunk(asks, TurnGroups) {
		turns++
		for i, a := range g.AgeAll(t.Context(), turn, []time.Duration{50 * time.Second, 70 * time.Second}) {
			if a.Err != nil || a.Walks != 1 || a.Ages.Anon[0].AtLeastBytes != pageSize() || a.Ages.Anon[1].AtLeastBytes != 0 || a.Ages.Horizon != time.Minute {
				t.Errorf("%s: %+v", turn[i].Path, a)
			}
		}
	}
	if want := (tasks + TurnGroups - 1) / TurnGroups; turns != want || l.reads != 2*turns {
		t.Errorf("the list was read %d times in %d turns", l.reads, turns)
	}
	if done, err := g.Age(t.Context(), "/task-7", false); err != nil || done.Walks != 1 || l.reads != 2*turns+2 {
		t.Errorf("one more: %+v, %v, %d readings", done, err, l.reads)
	}
}

// What happens to one group in the midst of a turn takes nothing from the others.
func TestAgeAllOfWhoComesAndGoes(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(l *listed, command string)
		err    error  // of /task-2
		text   string // in its error
		walks  int
	}{
		{"it is gone before its walk", func(l *listed, _ string) { l.remove("/task-2") }, ErrNotListed, "", 0},
		{"it is gone after its walk", func(l *listed, command string) {
			if strings.HasPrefix(command, "+ 5 ") {
				l.remove("/task-2")
			}
		}, ErrNotListed, "", 1},
		{"another takes its place", func(l *listed, _ string) { l.groups[2].id = 99 }, cgroup.ErrVanished, "replaced", 0},
		{"somebody was quicker", func(l *listed, _ string) {
			if g := &l.groups[2]; g.gens[3].Seq == 4 {
				g.gens = append(g.gens[1:], Generation{Seq: 5, AgeMsec: 8})
			}
		}, nil, "", 1},
		{"nothing comes of it", func(l *listed, command string) {
			if strings.HasPrefix(command, "+ 4 ") {
				l.groups[2].gens = fourGens()
			}
		}, errAny, "still the youngest", 1},
		{"a descendant comes", func(l *listed, command string) {
			if strings.HasPrefix(command, "+ 3 ") {
				l.groups = append(l.groups, listedGroup{77, "/task-2/new", []Generation{{0, 3, 5, 0}, {1, 3, 0, 0}}})
			}
		}, nil, "", 1},
	} {
		l := newListed(t, 5)
		asks := l.asks()
		l.before = c.before
		for i, a := range NewLRUGen(l).AgeAll(t.Context(), asks, []time.Duration{time.Second}) {
			switch {
			case i != 2 || c.err == nil:
				if a.Err != nil || a.Walks != 1 || a.Ages.Anon[0].AtLeastBytes != pageSize() {
					t.Errorf("%s: %s: %+v", c.name, asks[i].Path, a)
				}
			case a.Walks != c.walks || !strings.Contains(fmt.Sprint(a.Err), c.text) || !errors.Is(c.err, errAny) && !errors.Is(a.Err, c.err):
				t.Errorf("%s: %+v, want %v, %q after %d walks", c.name, a, c.err, c.text, c.walks)
			}
		}
		if l.reads != 2 {
			t.Errorf("%s: read %d times", c.name, l.reads)
		}
	}
}

// errAny is some error.
var errAny = errors.New("any")

// One that is not there, or twice, or badly named, is refused alone; a context that ends in the midst ends the walks, and nothing at all is read where all fail.
func TestAgeAllRefuses(t *testing.T) {
	l := newListed(t, 3)
	l.groups = append(l.groups, listedGroup{9, "/task-2", l.groups[2].gens})
	asks := append(l.asks()[:3], AgeAsk{Path: "/none"}, AgeAsk{Path: "../x"})
	answers := NewLRUGen(l).AgeAll(t.Context(), asks, []time.Duration{time.Second})
	for i, want := range []error{nil, nil, ErrAmbiguous, ErrNotListed} {
		if !errors.Is(answers[i].Err, want) {
			t.Errorf("%s: %v, want %v", asks[i].Path, answers[i].Err, want)
		}
	}
	if answers[4].Err == nil {
		t.Error("a bad path is taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l = newListed(t, 3)
	l.before = func(_ *listed, command string) {
		if strings.HasPrefix(command, "+ 2 ") {
			cancel()
		}
	}
	answers = NewLRUGen(l).AgeAll(ctx, l.asks(), []time.Duration{time.Second})
	if answers[0].Err != nil || answers[1].Err != nil || !errors.Is(answers[2].Err, context.Canceled) || answers[2].Walks != 0 {
		t.Errorf("cancelled at the second: %+v", answers)
	}
	answers = NewLRUGen(l).AgeAll(ctx, l.asks(), nil)
	if l.reads != 3 || !errors.Is(answers[0].Err, context.Canceled) {
		t.Errorf("cancelled before: %d readings, %+v", l.reads, answers[0])
	}
	for _, a := range NewLRUGen(l).AgeAll(t.Context(), l.asks(), []time.Duration{0}) {
		if !errors.Is(a.Err, ErrBadAsk) {
			t.Errorf("for no time: %v", a.Err)
		}
	}
}

// No age is above what the machine has run for, and none is told of a reading in whose midst generations went on.
func TestImpossibleAges(t *testing.T) {
	second := []time.Duration{time.Second}
	hour := []Generation{{1, 3600e3, 1, 1}, {2, 3600e3, 1, 1}, {3, 1e3, 1, 1}, {4, 0, 1, 1}}
	for _, c := range []struct {
		name   string
		gens   []Generation
		uptime time.Duration
		ok     bool
	}{
		{"an hour old, 25 s after boot", hour, 25 * time.Second, false},
		{"an hour old, of a machine that has run for an hour", hour, time.Hour - time.Second, true},
		{"the same without pages", []Generation{{1, 3600e3, 0, 0}, {2, 3600e3, 0, 0}}, 25 * time.Second, true},
		{"a generation ended meanwhile", []Generation{{1, 2, 1, 1}, {2, 60e3, 1, 1}, {3, 1e3, 1, 1}, {4, 0, 1, 1}}, time.Hour, false},
		// What said so: all were made with the group, and the clock ticked between two lines.
		{"a tick between lines, 25 s after boot", []Generation{{1, 9000, 1, 1}, {2, 9000, 1, 1}, {3, 9004, 1, 1}, {4, 0, 1, 1}}, 25 * time.Second, true},
	} {
		l := newListed(t, 2)
		l.groups[1].gens, l.uptime = c.gens, c.uptime
		if c.uptime < time.Minute {
			l.groups[0].gens = []Generation{{1, 9000, 1, 1}, {2, 9000, 1, 1}, {3, 9000, 1, 1}, {4, 0, 1, 1}}
		}
		g := NewLRUGen(l)
		if a, err := g.Ages(t.Context(), "/task-0", second); err != nil {
			t.Errorf("%s: the other group: %+v, %v", c.name, a, err)
		}
		a, err := g.Ages(t.Context(), "/task-1", []time.Duration{time.Second, time.Hour})
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, ErrImpossible) || a.Anon != nil) {
			t.Errorf("%s: %+v, %v", c.name, a, err)
		}
		if c.ok && c.uptime < time.Minute && (a.Anon[1].AtLeastBytes != 0 || a.FileSorted[1] != 0) {
			t.Errorf("%s: idle for an hour: %+v", c.name, a)
		}
	}
	l := newListed(t, 1)
	g := NewLRUGen(upless{l})
	if a, err := g.Ages(t.Context(), "/task-0", second); err == nil {
		t.Errorf("nobody knows how long the machine has run: %+v", a)
	}
	if err := g.Usable(); err == nil || NewLRUGen(l).Usable() != nil {
		t.Errorf("Usable: %v", err)
	}
}

// upless does not say how long it has run.
type upless struct{ *listed }

func (u upless) ReadFile(path string, buf []byte) ([]byte, error) {
	if path == "/proc/uptime" {
		return buf[:0], unix.ENOENT
	}
	return u.listed.ReadFile(path, buf)
}

// A list of many groups does not stay in memory.
func TestLargeListIsLetGo(t *testing.T) {
	l := newListed(t, 20)
	g := NewLRUGen(l)
	for range 2 {
		if _, err := g.group("/task-3"); err != nil {
			t.Fatal(err)
		}
	}
	if cap(g.buf) == 0 {
		t.Error("a small buffer is not kept")
	}
	l.groups[0].path = "/" + strings.Repeat("x", keepBytes)
	if _, err := g.group("/task-3"); err != nil || cap(g.buf) > 0 {
		t.Errorf("%d bytes are kept, %v", cap(g.buf), err)
	}
}
