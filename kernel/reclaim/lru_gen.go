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
// come and go meanwhile. Not for a hot path.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// maxGenerations is twice the kernel's MAX_NR_GENS, which has been 4 from the start.
const maxGenerations = 8

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
}

// Generations returns the generations, the oldest first.
func (l *LRUNode) Generations() []Generation { return l.gens[:l.n] }

// Scan hands each group's generations on each node to visit, in the file's order, until
// visit returns an error. The LRUNode is used again for the next. It does not allocate,
// but for growing its buffer at first.
func (g *LRUGen) Scan(visit func(*LRUNode) error) error {
	var err error
	if g.buf, err = g.fs.ReadFile(lruGenDebug, g.buf); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: no such file: debugfs is not mounted, or CONFIG_LRU_GEN is off: %w", ErrNoMGLRU, err)
		}
		return fmt.Errorf("read generations: %w", err)
	}
	if err := g.node.scan(g.buf, visit); err != nil {
		return fmt.Errorf("read %s: %w", lruGenDebug, err)
	}
	return nil
}

// scan parses the file, one group on one node at a time into l.
func (l *LRUNode) scan(data []byte, visit func(*LRUNode) error) error {
	group, node := false, false
	flush := func() error {
		if !node {
			return nil
		}
		node = false
		if l.n == 0 {
			return fmt.Errorf("%w: no generation of memcg %d on node %d", cgroup.ErrMalformed, l.Memcg, l.Node)
		}
		l.unwrap()
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

// unwrap adds the 49.7 days that the kernel's 32 bits of milliseconds lose to generations
// that seem younger than the next one.
func (l *LRUNode) unwrap() {
	for i := l.n - 2; i >= 0; i-- {
		if behind := l.gens[i+1].AgeMsec; l.gens[i].AgeMsec < behind {
			lost := (behind - l.gens[i].AgeMsec + 1<<32 - 1) >> 32 << 32
			l.gens[i].AgeMsec += lost
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
	members []lruMember
	// deadAnonPages and deadFilePages are of removed descendants, still charged to
	// the group. Nobody ages them.
	deadAnonPages, deadFilePages uint64
}

// group finds a group and its living descendants on all nodes.
func (g *LRUGen) group(path string) (lruGroup, error) {
	if err := cgroup.CheckPath(path); err != nil {
		return lruGroup{}, err
	}
	var found lruGroup
	var self uint64 // the group's own id
	err := g.Scan(func(l *LRUNode) error {
		if !bytes.HasPrefix(l.Path, []byte(path)) || !within(string(l.Path), path) {
			return nil
		}
		if l.Memcg == 0 {
			// A dead group of this very path was not this group, and its pages
			// are its parent's.
			if len(l.Path) > len(path) {
				for _, gen := range l.Generations() {
					found.deadAnonPages += gen.AnonPages
					found.deadFilePages += gen.FilePages
				}
			}
			return nil
		}
		if len(l.Path) == len(path) {
			if self != 0 && self != l.Memcg {
				return fmt.Errorf("cgroup %s: %w: memcg %d and %d", path, ErrAmbiguous, self, l.Memcg)
			}
			self = l.Memcg
		}
		if found.find(l.Memcg, l.Node) != nil {
			return nil // handed out twice, because others came or went
		}
		found.members = append(found.members, lruMember{memcg: l.Memcg, path: string(l.Path),
			node: l.Node, gens: append([]Generation(nil), l.Generations()...)})
		return nil
	})
	if err != nil {
		return lruGroup{}, err
	}
	if self == 0 {
		return lruGroup{}, fmt.Errorf("find cgroup %s in %s: %w", path, lruGenDebug, ErrNotListed)
	}
	return found, nil
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
