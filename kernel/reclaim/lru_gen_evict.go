package reclaim

// The eviction command of /sys/kernel/debug/lru_gen: reclaim from generations no younger
// than one.
//
// https://docs.kernel.org/admin-guide/mm/multigen_lru.html#proactive-reclaim
//
//	- 3 0 4 0 4096        memcg id, node, youngest generation to take [swappiness [pages]]
//
// Where memory.reclaim takes the coldest memory, however warm that is, this takes none that
// was seen in use in the last walks: what a policy with a limit of age wants. Swappiness 0
// takes file pages and 200 anonymous ones, on 6.1 too, whose memory.reclaim leaves the
// choice to the kernel. Pages whose accessed bit is set after all are spared and become young. The
// two youngest generations are never taken. The kernel does not say what it did; the group
// is measured before and after.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/procstat"
)

// EvictAsk is one bounded request for idle memory.
type EvictAsk struct {
	Bytes uint64 // 1 to MaxAskBytes
	// StepBytes is at most this in one write; 0 is DefaultStepBytes.
	StepBytes uint64
	// Idle is how long the memory was not used, as of the last Age; more than 0. For
	// file memory that is not mapped it says less: see lru_gen_age.go.
	Idle time.Duration
	// Kind is FileOnly or FavourAnon.
	Kind Swappiness
}

// Evict takes back memory of the group and its descendants that has been idle for
// ask.Idle, at most ask.Bytes, in steps. Less is no error: there may be no more. It
// blocks, and ends early with the context. With the LRU off or absent: ErrNoMGLRU.
//
// Commands name groups by the kernel's id. A descendant that is removed while this runs can
// pass its id on to a new group, which then may lose memory that was as idle; the group
// itself is looked at before each step.
func (r *Reclaimer) Evict(ctx context.Context, g *LRUGen, ask EvictAsk) (Outcome, error) {
	if err := r.checkEvict(g, &ask); err != nil {
		return Outcome{}, fmt.Errorf("evict from cgroup %s: %w", r.dir.path, err)
	}
	group, err := g.group(r.dir.path)
	if err != nil {
		return Outcome{}, err
	}
	uptime, err := procstat.ReadUptime(g.fs)
	if err == nil {
		err = group.believe(uptime)
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("evict from cgroup %s: %w", r.dir.path, err)
	}
	// The ids were found by path: they are this group's only if it is still there.
	if err := r.dir.same(); err != nil {
		return Outcome{}, err
	}
	return r.measured(func(_ reading, out *Outcome) error {
		left := ask.Bytes
		for i := range group.members {
			if err := r.evictMember(ctx, g, &group.members[i], &ask, &left, out); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Reclaimer) checkEvict(g *LRUGen, ask *EvictAsk) error {
	bounds := Ask{Bytes: ask.Bytes, StepBytes: ask.StepBytes, Swappiness: ask.Kind}
	if err := bounds.check(); err != nil {
		return err
	}
	ask.StepBytes = bounds.StepBytes
	if ask.Idle <= 0 || ask.Kind == KernelsChoice {
		return fmt.Errorf("%w: idle for %v, kind %d", ErrBadAsk, ask.Idle, int(ask.Kind))
	}
	if _, err := g.on(); err != nil {
		return err
	}
	return r.roomFor(ask.Kind)
}

// evictMember takes from one group on one node, and takes what left its memory off left,
// compressed or not. It ends when a step got nothing.
func (r *Reclaimer) evictMember(ctx context.Context, g *LRUGen, m *lruMember, ask *EvictAsk, left *uint64, out *Outcome) error {
	seq, pages := m.idle(ask)
	for pages > 0 && *left >= pageSize() {
		n := min(pages, min(*left, ask.StepBytes)/pageSize())
		if n == 0 {
			return nil
		}
		before, err := r.read()
		if err != nil {
			return err
		}
		out.Steps++
		swappiness := 0
		if ask.Kind == FavourAnon {
			swappiness = 200
		}
		_, err = g.command(ctx, fmt.Sprintf("- %d %d %d %d %d", m.memcg, m.node, seq, swappiness, n))
		switch {
		case errors.Is(err, unix.EINTR): // a signal that was not ours: go on as after a step
		case errors.Is(err, unix.EINVAL):
			return r.dir.same() // the member is gone, or the group
		case err != nil:
			return fmt.Errorf("evict from cgroup %s on node %d: %w", m.path, m.node, err)
		}
		after, err := r.read()
		if err != nil {
			return err
		}
		got := after.taken(&before)
		if got == 0 {
			return nil
		}
		*left -= min(*left, got)
		pages -= n
	}
	return nil
}

// idle returns the youngest generation whose pages have been idle for long enough, and how
// many of the kind there are up to it; 0 pages when there is no such generation.
func (m *lruMember) idle(ask *EvictAsk) (seq, pages uint64) {
	for i, gen := range m.gens {
		if msec(m.idleMsec(i)) < ask.Idle {
			break
		}
		seq = gen.Seq
		if ask.Kind == FileOnly {
			pages += gen.FilePages
		} else {
			pages += gen.AnonPages
		}
	}
	return seq, pages
}
