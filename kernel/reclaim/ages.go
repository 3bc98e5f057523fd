package reclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/commensal-io/commensal/kernel/procstat"
)

// Idle is how much memory has been idle for some duration or longer: certainly AtLeast,
// and at most AtMost. A source that can say nothing gives 0 and all there is.
type Idle struct {
	AtLeastBytes uint64
	AtMostBytes  uint64
}

// Ages says how long the memory of a group and its descendants has been idle.
type Ages struct {
	// Source is the source's name.
	Source string
	// Anon and File have one figure for each duration that was asked for, in that
	// order. Shared memory is where the source puts it: the multi-generational LRU
	// counts it as anonymous, DAMON's answer as file memory.
	Anon, File []Idle
	// FileSorted are the bytes of file memory that the kernel has sorted as that old or older, which is what Evict takes, but for what was
	// read meanwhile. Of memory that is read with read(2) it is no bound (lru_gen_age.go). nil: the source sorts nothing.
	FileSorted []uint64
	// AsOf is how long ago anybody last looked. The durations were counted until
	// then; what was used since is not known.
	AsOf time.Duration
	// Horizon is the longest idleness that the source can tell now: for longer
	// durations AtLeast is 0.
	Horizon time.Duration
	// Sampled says that the figures come from samples, and are estimates even where
	// AtLeast equals AtMost.
	Sampled bool
	// Note is what the figures leave out, in one line; "" if nothing.
	Note string
}

// Source tells how long the memory of groups has been idle.
type Source interface {
	// Name is a word: "mglru", "damon".
	Name() string
	// Ages answers for a group and its descendants; durations are positive. It may
	// block. Errors that mean that this source cannot answer here: ErrNoMGLRU,
	// ErrNotListed, ErrAmbiguous, ErrImpossible, ErrNoDAMON, ErrOwned, ErrNotWatching.
	Ages(ctx context.Context, group string, durations []time.Duration) (Ages, error)
}

// FirstAges asks the sources in order and returns the first answer. Without one the error
// is ErrNoSource and carries each source's reason. A context that ends is not a reason to
// ask the next.
func FirstAges(ctx context.Context, sources []Source, group string, durations []time.Duration) (Ages, error) {
	if err := checkDurations(durations); err != nil {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, err)
	}
	if len(sources) == 0 {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, ErrNoSource)
	}
	refused := make([]error, 0, len(sources))
	for _, s := range sources {
		a, err := s.Ages(ctx, group, durations)
		if err == nil {
			return a, nil
		}
		if ctxErr := ctx.Err(); ctxErr != nil {
			return Ages{}, err
		}
		refused = append(refused, fmt.Errorf("%s: %w", s.Name(), err))
	}
	return Ages{}, &noSourceError{group: group, refused: refused}
}

// maxDurations bounds a question; a policy asks for two.
const maxDurations = 64

func checkDurations(durations []time.Duration) error {
	if len(durations) == 0 || len(durations) > maxDurations {
		return fmt.Errorf("%w: %d durations, want 1 to %d", ErrBadAsk, len(durations), maxDurations)
	}
	for _, d := range durations {
		if d <= 0 {
			return fmt.Errorf("%w: idle for %v", ErrBadAsk, d)
		}
	}
	return nil
}

// noSourceError is ErrNoSource with every reason, in one line.
type noSourceError struct {
	group   string
	refused []error
}

// Error lists the reasons.
func (e *noSourceError) Error() string {
	reasons := make([]string, len(e.refused))
	for i, err := range e.refused {
		reasons[i] = err.Error()
	}
	return fmt.Sprintf("ages of cgroup %s: %v: %s", e.group, ErrNoSource, strings.Join(reasons, "; "))
}

// Unwrap gives errors.Is ErrNoSource and the reasons.
func (e *noSourceError) Unwrap() []error { return append([]error{ErrNoSource}, e.refused...) }

var _ Source = (*LRUGen)(nil)

// Name implements Source.
func (g *LRUGen) Name() string { return "mglru" }

// Ages implements Source. It reads what the walks until now have found and makes none:
// who wants to know calls Age now and then, the last time just before.
func (g *LRUGen) Ages(ctx context.Context, group string, durations []time.Duration) (Ages, error) {
	if err := errors.Join(checkDurations(durations), ctx.Err()); err != nil {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, err)
	}
	if _, err := g.on(); err != nil {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, err)
	}
	found, err := g.group(group)
	if err != nil {
		return Ages{}, err
	}
	s, err := g.look()
	if err != nil {
		return Ages{}, fmt.Errorf("ages of cgroup %s: %w", group, err)
	}
	return found.tell(durations, s)
}

// sight is what the machine has to do with what generations tell.
type sight struct {
	swap   bool          // the kernel's own walks look at anonymous memory
	blind  bool          // one node's walk hides what was used from the next
	uptime time.Duration // no age is greater
}

// look is asked after the list was read, or what is older than the machine would be believed.
func (g *LRUGen) look() (s sight, err error) {
	bits, err := g.Enabled()
	if err != nil {
		return s, err
	}
	areas, err := ReadSwaps(g.fs)
	s.swap = err == nil && len(areas) > 0
	s.blind = bits&LRUGenNonleafBits != 0 && !g.walksApart()
	s.uptime, err = procstat.ReadUptime(g.fs)
	return s, err
}

// tell is ages of what can be.
func (f *lruGroup) tell(durations []time.Duration, s sight) (Ages, error) {
	if err := f.believe(s.uptime); err != nil {
		return Ages{}, err
	}
	return f.ages(durations, s.swap, s.blind), nil
}

// walksApart says whether the kernel is new enough for walks of several nodes to leave
// each other alone; not when it does not say how new it is.
func (g *LRUGen) walksApart() bool {
	release, err := procstat.ReadKernelRelease(g.fs)
	if err != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 6 || major == 6 && minor >= 12
}

// ages adds the members up. swap says that the kernel's own walks look at anonymous
// memory, blind that one node's walk hides what was used from the next.
func (f *lruGroup) ages(durations []time.Duration, swap, blind bool) Ages {
	a := Ages{Source: "mglru", Anon: make([]Idle, len(durations)), File: make([]Idle, len(durations)), FileSorted: make([]uint64, len(durations))}
	first := true
	for i := range f.members {
		m := &f.members[i]
		if m.pages() == 0 {
			continue // it tells nothing, and takes nothing from what others tell
		}
		a.AsOf = max(a.AsOf, msec(m.youngest().AgeMsec))
		if horizon := msec(m.idleMsec(0)); first || horizon < a.Horizon {
			a.Horizon, first = horizon, false
		}
		for j, d := range durations {
			m.add(&a.Anon[j], &a.File[j], d, swap)
			_, sorted := m.idle(&EvictAsk{Idle: d, Kind: FileOnly})
			a.FileSorted[j] += sorted * pageSize()
		}
	}
	if nodes := f.nodes(); blind && nodes > 1 {
		a.Note = fmt.Sprintf("no lower bound: pages on %d nodes and bit %s of %s", nodes, LRUGenNonleafBits, lruGenEnabled)
		for j := range durations {
			a.Anon[j].AtLeastBytes = 0
		}
	}
	if f.deadAnonPages+f.deadFilePages > 0 {
		a.Note = cmp.Or(a.Note, "removed descendants' memory has no age")
		for j := range durations {
			a.Anon[j].AtMostBytes += f.deadAnonPages * pageSize()
			a.File[j].AtMostBytes += f.deadFilePages * pageSize()
		}
	}
	return a
}

// add adds what has been idle for d or longer.
func (m *lruMember) add(anon, file *Idle, d time.Duration, swap bool) {
	for i, gen := range m.gens {
		anonBytes, fileBytes := gen.AnonPages*pageSize(), gen.FilePages*pageSize()
		if msec(m.idleMsec(i)) >= d {
			anon.AtLeastBytes += anonBytes
		}
		// The oldest generation has taken in older ones.
		old := i == 0 || msec(gen.AgeMsec) >= d
		// Without swap the kernel's own walks make cold anonymous pages look young.
		if old || !swap {
			anon.AtMostBytes += anonBytes
		}
		if old {
			file.AtMostBytes += fileBytes
		}
	}
}
