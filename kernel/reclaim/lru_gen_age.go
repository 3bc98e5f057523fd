package reclaim

// The aging command of /sys/kernel/debug/lru_gen, and what ages mean.
//
// https://docs.kernel.org/admin-guide/mm/multigen_lru.html#working-set-estimation
//
//	+ 3 0 7 1 1       memcg id, node, youngest generation [anonymous too [all entries]]
//
// It walks the page tables of the group's processes, moves every page whose accessed bit
// is set to the youngest generation, and begins a new one. If the youngest is not the one
// named, somebody was quicker and nothing happens. With "anonymous" 0, the default where
// there is no swap, anonymous pages are not looked at; they then seem young, as their
// generation's place is used again for the new one. The last argument 0 would leave out
// page tables that had few accessed bits before.
//
// A page in generation i was in use at some time before generation i+1 was made, and in no
// walk since. So right after a walk it has been idle at least for the age of i+1, and at
// most for its own. That is what Ages derives; since the last walk nobody has looked.
//
// There are no more than four generations: with the next one the two oldest become one.
// Aged every P, the oldest holds what has been idle for 2 P or more, and that is the
// longest that can be told. 6 h of idleness takes a walk every 3 h; with walks every 45
// minutes no more than 1.5 h can be told, of anonymous and of file memory alike. The kernel makes
// generations by itself when memory is short, which shortens what can be told.
//
// Before Linux 6.12, walks of several nodes get into each other's way. A walk visits all page
// tables and promotes the pages of its own node; with LRUGenNonleafBits (0x0004) it leaves
// out tables that nobody used since the last visit, and that was another node's, a moment
// ago. Seen on 6.1: of a group with pages on two nodes, in use all the time, all those on
// the node that was walked second stayed among the oldest. So there, with that bit on, a
// group with pages on several nodes has no lower bound. Without it (SetEnabled(LRUGenCore |
// LRUGenMMWalk)) each walk costs more and sees all. Eviction is not misled: it looks at the
// bits of the page itself, which a walk that passed it by did not clear.
//
// A walk sees a page only through processes of the group that the page is charged to. What
// only a process of another group uses, or one that moved away after it had allocated it,
// looks idle. CPUs keep page table entries for a while, and set no bits meanwhile.
//
// File pages are another matter. Only pages that are mapped have accessed bits. A page that
// is read with read(2) is put into the oldest generation or the one after, however new it
// is, and stays there however often it is read: the kernel notes the reads beside and
// heeds them when it comes to evicting. So of file pages an upper bound can be told, and no
// lower one.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Aged is what Age did.
type Aged struct {
	Walks int // of groups on nodes with pages; each has a new generation now
	Gone  int // groups on nodes that were removed meanwhile
	Took  time.Duration
	CPU   time.Duration // that the walks had, on threads of their own
}

// AgeAsk is a group that is to be aged.
type AgeAsk struct {
	Path string
	Anon bool // anonymous memory, too
}

// AgeAnswer is what came of it.
type AgeAnswer struct {
	Aged
	Ages Ages
	Err  error // why there are no ages
}

// TurnGroups is how many groups should be aged at once: their walks come one after the other, in one burst.
const TurnGroups = 8

// Age begins a new generation of a group and its descendants on every node where they have
// pages, the fullest first, with anonymous memory or without. Each walks the page tables of
// the group's processes, on the caller's CPU time, with their mmap_lock held for reading. It
// blocks; a context that ends is noticed between one walk and the next. With
// the LRU off or absent: ErrNoMGLRU.
func (g *LRUGen) Age(ctx context.Context, path string, anon bool) (Aged, error) {
	a := g.AgeAll(ctx, []AgeAsk{{path, anon}}, nil)[0]
	return a.Aged, a.Err
}

// AgeAll is Age of several groups, one after the other, and then what Ages tells of each (with no durations: nothing). The list is read
// twice, whatever the number of groups: what is to be walked, and what came of it. One that fails keeps no other from its ages.
func (g *LRUGen) AgeAll(ctx context.Context, asks []AgeAsk, durations []time.Duration) []AgeAnswer {
	answers := make([]AgeAnswer, len(asks))
	paths := make([]string, len(asks))
	for i := range asks {
		paths[i] = asks[i].Path
	}
	fail := func(err error) []AgeAnswer {
		for i := range answers {
			if answers[i].Err == nil {
				answers[i].Err = fmt.Errorf("age cgroup %s: %w", paths[i], err)
			}
		}
		return answers
	}
	_, err := g.on()
	if err == nil && len(durations) > 0 {
		err = checkDurations(durations)
	}
	if err != nil {
		return fail(err)
	}
	before, err := g.groups(paths)
	if err != nil {
		return fail(err)
	}
	ok := false
	for i := range before {
		a := &answers[i]
		if a.Err = before[i].err; a.Err == nil {
			a.Aged, a.Err = g.walk(ctx, &before[i], asks[i].Anon)
		}
		ok = ok || a.Err == nil
	}
	if !ok {
		return answers
	}
	after, err := g.groups(paths)
	if err != nil {
		return fail(err)
	}
	var s sight
	if len(durations) > 0 {
		if s, err = g.look(); err != nil {
			return fail(err)
		}
	}
	for i := range after {
		a := &answers[i]
		if a.Err == nil {
			a.Err = after[i].follows(&before[i])
		}
		if a.Err == nil && len(durations) > 0 {
			a.Ages, a.Err = after[i].tell(durations, s)
		}
	}
	return answers
}

// walk begins a new generation of each of a group's members that has pages.
func (g *LRUGen) walk(ctx context.Context, group *lruGroup, anon bool) (done Aged, err error) {
	start := time.Now()
	defer func() { done.Took = time.Since(start) }()
	scanAnon := 0
	if anon {
		scanAnon = 1
	}
	slices.SortStableFunc(group.members, func(a, b lruMember) int { return cmp.Compare(b.pages(), a.pages()) })
	for i := range group.members {
		m := &group.members[i]
		if m.pages() == 0 {
			break
		}
		cpu, err := g.command(ctx, fmt.Sprintf("+ %d %d %d %d 1", m.memcg, m.node, m.youngest().Seq, scanAnon))
		done.CPU += cpu
		if errors.Is(err, unix.EINVAL) {
			done.Gone++ // its id is nobody's now
			continue
		}
		if err != nil {
			return done, fmt.Errorf("age cgroup %s on node %d: %w", m.path, m.node, err)
		}
		done.Walks++
	}
	return done, nil
}

// follows makes sure that the group is still the same, and that each member has a younger generation than before. The command
// says nothing when it did nothing.
func (f *lruGroup) follows(before *lruGroup) error {
	if f.err != nil {
		return f.err
	}
	if f.self != before.self {
		return fmt.Errorf("age cgroup %s: %w: replaced meanwhile", f.path, cgroup.ErrVanished)
	}
	for i := range f.members {
		now := &f.members[i]
		was := before.find(now.memcg, now.node)
		if was != nil && was.pages() > 0 && now.youngest().Seq == was.youngest().Seq {
			return fmt.Errorf("age cgroup %s on node %d: generation %d is still the youngest",
				now.path, now.node, now.youngest().Seq)
		}
	}
	return nil
}

// on returns what is on; it fails unless the LRU is built and switched on.
func (g *LRUGen) on() (LRUGenBits, error) {
	bits, err := g.Enabled()
	if err == nil && bits&LRUGenCore == 0 {
		err = fmt.Errorf("%w: it is switched off (%s: %s)", ErrNoMGLRU, lruGenEnabled, bits)
	}
	return bits, err
}

// command writes one command, and returns the CPU time that it took; 0 where the kernel is simulated.
func (g *LRUGen) command(ctx context.Context, text string) (cpu time.Duration, err error) {
	opener, ok := g.fs.(hostfs.WriteOpener)
	if _, simulated := g.fs.(hostfs.FolderOpener); !ok && simulated { // it has no descriptors, and is done at once
		if err := errors.Join(ctx.Err(), g.fs.WriteFile(lruGenDebug, []byte(text))); err != nil {
			return 0, fmt.Errorf("write %q to %s: %w", text, lruGenDebug, err)
		}
		return 0, nil
	}
	if !ok {
		return 0, fmt.Errorf("%w: this file access opens nothing for writing", cgroup.ErrUnsupported)
	}
	fd, closeFD, err := opener.OpenReadWrite(lruGenDebug)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeFD()) }()
	if cpu, err = writeOnce(ctx, fd, []byte(text)); err != nil {
		return cpu, fmt.Errorf("write %q to %s: %w", text, lruGenDebug, err)
	}
	return cpu, nil
}
