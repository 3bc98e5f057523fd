package reclaim

// /sys/kernel/debug/lru_gen: the generations of each group on each NUMA node.
//
// https://docs.kernel.org/admin-guide/mm/multigen_lru.html#working-set-estimation
//
//	memcg     3 /batch/job-7
//	 node     0
//	          4      42310       1204        880
//	          5      31200          0          0
//	          6      21100         12          4
//	          7      11000       6200       2051
//	 node     1
//	          ...
//
// Under a group: for each node, from the oldest generation to the youngest, its number,
// its age in milliseconds, and its pages, anonymous and file. A group's pages are its own,
// without its descendants'. There are two to four generations (MAX_NR_GENS).
//
// The group's number is the kernel's memory cgroup id, which commands take; the path is
// the full one below the hierarchy's root, and cannot contain a newline. A removed group
// stays as long as pages are charged to it, with the path that it had, and the id 0 (unless
// it has pages in swap): so a path can stand there twice, for the dead group and for a new
// one in its place. Groups with id 0 are dead.
//
// The kernel hands the file out in pieces of some 4 KiB and walks its groups anew for
// each: some ms for hundreds of groups, and a group may be missing or doubled when others
// come and go meanwhile. Not for a hot path, and read for many groups at once (AgeAll).
//
// Each line's age is worked out when that line is printed, and nothing is locked. Generations
// that were made at the same time, as all of a new group are, have ages that grow from line to
// line where the clock ticks between them. And a generation that ends meanwhile leaves its
// place to a new one, in whose age and pages it then appears. An age is 32 bits of
// milliseconds: one of 49.7 days and more is printed without them.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

const (
	// maxGenerations is twice the kernel's MAX_NR_GENS, which has been 4 from the start.
	maxGenerations = 8
	// keepBytes is the largest buffer that is kept from one reading to the next: the list of some 4,000 groups.
	keepBytes = 1 << 20
	// driftMsec is how much later a line may be printed than the one before: a reader waits for a CPU in between.
	driftMsec = 1000
)

// Generation is the pages of a group on a node that were last seen in use at about the
// same time.
type Generation struct {
	Seq       uint64 // its number; the youngest has the highest
	AgeMsec   uint64 // since it was made
	AnonPages uint64
	FilePages uint64
}

// LRUNode is the generations of one group on one node.
type LRUNode struct {
	Memcg uint64 // the kernel's id; 0 is a dead group (or none, with the controller off)
	Path  []byte // valid until the next one is handed out
	Node  int
	gens  [maxGenerations]Generation
	n     int
	torn  bool // some generation seems younger than the next one
}

// Generations returns the generations, the oldest first.
func (l *LRUNode) Generations() []Generation { return l.gens[:l.n] }

// Scan hands each group's generations on each node to visit, in the file's order, until
// visit returns an error. The LRUNode is used again for the next. It does not allocate,
// but for growing its buffer at first.
func (g *LRUGen) Scan(visit func(*LRUNode) error) error { return g.scan(nil, visit) }

// scan is Scan of the groups whose path is wanted; nil: of all.
func (g *LRUGen) scan(wanted func(path []byte) bool, visit func(*LRUNode) error) error {
	var err error
	if g.buf, err = g.fs.ReadFile(lruGenDebug, g.buf); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: no such file: debugfs is not mounted, or CONFIG_LRU_GEN is off: %w", ErrNoMGLRU, err)
		}
		return fmt.Errorf("read generations: %w", err)
	}
	err = g.node.scan(g.buf, wanted, visit)
	if cap(g.buf) > keepBytes {
		g.buf = nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", lruGenDebug, err)
	}
	return nil
}

// scan parses the file, one wanted group on one node at a time into l.
func (l *LRUNode) scan(data []byte, wanted func(path []byte) bool, visit func(*LRUNode) error) error {
	group, node := false, false
	flush := func() error {
		if !node {
			return nil
		}
		node = false
		if l.n == 0 {
			return fmt.Errorf("%w: no generation of memcg %d on node %d", cgroup.ErrMalformed, l.Memcg, l.Node)
		}
		l.order()
		return visit(l)
	}
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		var err error
		switch {
		case bytes.HasPrefix(line, []byte("memcg ")):
			if err = flush(); err == nil {
				group, l.Node = true, -1
				err = l.parseGroup(line[len("memcg "):])
			}
			if err == nil && wanted != nil && !wanted(l.Path) {
				data = nextGroup(data)
			}
		case bytes.HasPrefix(line, []byte(" node ")):
			if err = flush(); err == nil {
				node = true
				err = l.parseNode(line[len(" node "):])
			}
			if err == nil && !group {
				err = errOutOfPlace
			}
		case node:
			err = l.parseGeneration(line)
		default:
			err = errOutOfPlace
		}
		if err != nil {
			if errors.Is(err, errLine) {
				err = fmt.Errorf("%w: line %q", err, clip(line))
			}
			return err
		}
	}
	return flush()
}

// nextGroup passes over what is left of a group.
func nextGroup(data []byte) []byte {
	if bytes.HasPrefix(data, []byte("memcg ")) {
		return data
	}
	_, rest, found := bytes.Cut(data, []byte("\nmemcg "))
	if !found {
		return nil
	}
	return data[len(data)-len(rest)-len("memcg "):]
}

// order has no generation younger than the next one, and notes where one seemed so by more than a reader's wait.
func (l *LRUNode) order() {
	l.torn = false
	for i := l.n - 2; i >= 0; i-- {
		if next := l.gens[i+1].AgeMsec; l.gens[i].AgeMsec < next {
			l.torn = l.torn || next-l.gens[i].AgeMsec > driftMsec
			l.gens[i].AgeMsec = next
		}
	}
}

// errLine marks the errors that concern one line.
var (
	errLine       = fmt.Errorf("%w", cgroup.ErrMalformed)
	errOutOfPlace = fmt.Errorf("%w: out of place", errLine)
)

// parseGroup reads "    3 /batch/job-7". The path may hold spaces.
func (l *LRUNode) parseGroup(rest []byte) error {
	id, path, ok := bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
	n, err := strconv.ParseUint(string(id), 10, 64)
	if err != nil || !ok {
		return errLine
	}
	l.Memcg, l.Path = n, path
	return nil
}

func (l *LRUNode) parseNode(rest []byte) error {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 31)
	if err != nil || int(n) <= l.Node {
		return errLine
	}
	l.Node, l.n = int(n), 0
	return nil
}

// parseGeneration reads "          4      42310       1204        880 ".
func (l *LRUNode) parseGeneration(line []byte) error {
	if l.n == maxGenerations {
		return fmt.Errorf("%w: more than %d generations", errLine, maxGenerations)
	}
	g := &l.gens[l.n]
	for _, dst := range [...]*uint64{&g.Seq, &g.AgeMsec, &g.AnonPages, &g.FilePages} {
		var field []byte
		field, line, _ = bytes.Cut(bytes.TrimLeft(line, " "), []byte(" "))
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return errLine
		}
		*dst = n
	}
	if len(bytes.TrimLeft(line, " ")) > 0 || l.n > 0 && g.Seq != l.gens[l.n-1].Seq+1 {
		return errLine
	}
	l.n++
	return nil
}

// lruMember is a living group's generations on a node, kept.
type lruMember struct {
	memcg uint64
	path  string
	node  int
	gens  []Generation // the oldest first
	torn  bool
}

func (m *lruMember) youngest() Generation { return m.gens[len(m.gens)-1] }

// pages returns the pages of all generations.
func (m *lruMember) pages() uint64 {
	var n uint64
	for _, gen := range m.gens {
		n += gen.AnonPages + gen.FilePages
	}
	return n
}

// idleMsec returns how long the pages of generation i had certainly not been used when
// the accessed bits were last looked at (see lru_gen_age.go).
func (m *lruMember) idleMsec(i int) uint64 {
	if i+1 >= len(m.gens) {
		return 0
	}
	// The walk that made the youngest generation was the last look.
	return m.gens[i+1].AgeMsec - m.youngest().AgeMsec
}

// lruGroup is a group and its descendants.
type lruGroup struct {
	path    string
	self    uint64 // its own id
	err     error  // why there is none
	members []lruMember
	// deadAnonPages and deadFilePages are of removed descendants, still charged to
	// the group. Nobody ages them.
	deadAnonPages, deadFilePages uint64
}

// group finds a group and its living descendants on all nodes.
func (g *LRUGen) group(path string) (lruGroup, error) {
	found, err := g.groups([]string{path})
	if err != nil {
		return lruGroup{}, err
	}
	return found[0], found[0].err
}

// groups is group of several, with one reading. What concerns one of them alone is its err.
func (g *LRUGen) groups(paths []string) ([]lruGroup, error) {
	found := make([]lruGroup, len(paths))
	for i, path := range paths {
		found[i].path, found[i].err = path, cgroup.CheckPath(path)
	}
	wanted := func(path []byte) bool {
		return slices.ContainsFunc(paths, func(group string) bool { return within(path, group) })
	}
	if err := g.scan(wanted, func(l *LRUNode) error {
		for i := range found {
			if f := &found[i]; f.err == nil && within(l.Path, f.path) {
				f.add(l)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i := range found {
		if f := &found[i]; f.err == nil && f.self == 0 {
			f.err = fmt.Errorf("find cgroup %s in %s: %w", f.path, lruGenDebug, ErrNotListed)
		}
	}
	return found, nil
}

// add adds the group itself, or a descendant, on a node.
func (f *lruGroup) add(l *LRUNode) {
	if l.Memcg == 0 {
		// A dead group of this very path was not this group, and its pages
		// are its parent's.
		if len(l.Path) > len(f.path) {
			for _, gen := range l.Generations() {
				f.deadAnonPages += gen.AnonPages
				f.deadFilePages += gen.FilePages
			}
		}
		return
	}
	if len(l.Path) == len(f.path) {
		if f.self != 0 && f.self != l.Memcg {
			f.err = fmt.Errorf("cgroup %s: %w: memcg %d and %d", f.path, ErrAmbiguous, f.self, l.Memcg)
			return
		}
		f.self = l.Memcg
	}
	if f.find(l.Memcg, l.Node) != nil {
		return // handed out twice, because others came or went
	}
	f.members = append(f.members, lruMember{memcg: l.Memcg, path: string(l.Path), node: l.Node,
		gens: append([]Generation(nil), l.Generations()...), torn: l.torn})
}

// believe fails where the ages are none: read while the generations went on, or older than the machine.
func (f *lruGroup) believe(uptime time.Duration) error {
	const slack = 10 * time.Second // a thousandth beside: the kernel counts ticks, and the clock is corrected
	for i := range f.members {
		m := &f.members[i]
		oldest := msec(m.gens[0].AgeMsec)
		switch {
		case m.pages() == 0:
		case m.torn:
			return fmt.Errorf("cgroup %s on node %d: %w: a generation seems younger than the next one: it ended while it was read, or is older than 49 days", m.path, m.node, ErrImpossible)
		case oldest > uptime+uptime/1000+slack:
			return fmt.Errorf("cgroup %s on node %d: %w: a generation seems %v old, and the machine has run for %v", m.path, m.node, ErrImpossible, oldest, uptime)
		}
	}
	return nil
}

// find returns a member, nil if it is not there.
func (f *lruGroup) find(memcg uint64, node int) *lruMember {
	for i := range f.members {
		if f.members[i].memcg == memcg && f.members[i].node == node {
			return &f.members[i]
		}
	}
	return nil
}

// nodes counts the nodes on which the members have pages.
func (f *lruGroup) nodes() int {
	seen := make(map[int]bool)
	for i := range f.members {
		if f.members[i].pages() > 0 {
			seen[f.members[i].node] = true
		}
	}
	return len(seen)
}
