package kernfs

// Where the memory of processes lies, page by page: /proc/PID/{maps,numa_maps,pagemap},
// memory.numa_stat of groups, move_pages(2) and migrate_pages(2). The physics knows the share
// of a process's pages on each node; what is moved here changes that.
//
// A process has two mappings: its program's file, on the node of its first CPU, and anonymous
// memory of small pages, as many as the machine says are resident, at most maxPages; a
// process of which the machine knows no size has defaultPages. Pages that are swapped out are
// those at the end.
//
// Otherwise than in a kernel: the call that moves pages takes no time (the physics copies them afterwards, and charges
// for it), none is pinned or busy, there are no huge pages, and nothing is shared between processes.

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
)

const (
	pageSize = 4096
	// defaultPages is 64 MiB.
	defaultPages = 16384
	// maxPages is 16 GiB, a byte each: more memory than that counts as so much.
	maxPages = 1 << 22

	textStart, textPages = 0x400000, 64
	anonStart            = 0x7f0000000000
)

// addressSpace is a process's anonymous memory.
type addressSpace struct {
	nodes  []uint8   // of each page that is there
	count  []int     // pages by node
	shares []float64 // the machine's, when they were last brought together
}

// space returns a process's memory as it is now.
func (k *Kernel) space(p *process) *addressSpace {
	s := p.space
	if s == nil {
		s = &addressSpace{count: make([]int, k.sockets())}
		p.space = s
	}
	var err error
	if k.shares, err = k.m.AppendPages(p.num, k.shares[:0]); err != nil {
		return s // it has just ended
	}
	pages := defaultPages
	if use, err := k.m.MemoryUse(p.num); err == nil && use.Anon+use.Swap > 0 {
		pages = min(int(use.Anon/pageSize), maxPages)
	}
	if pages == len(s.nodes) && slices.Equal(k.shares, s.shares) {
		return s
	}
	s.resize(pages, k.shares)
	s.shares = append(s.shares[:0], k.shares...)
	return s
}

func (k *Kernel) sockets() int {
	c := k.m.Config()
	return c.Sockets
}

// resize gives the memory a number of pages and brings it to the shares, moving no more than
// that takes.
func (s *addressSpace) resize(pages int, shares []float64) {
	for _, node := range s.nodes[min(pages, len(s.nodes)):] {
		s.count[node]--
	}
	s.nodes = s.nodes[:min(pages, len(s.nodes))]
	want := apportion(pages, shares)
	at := 0 // a node that lacks pages
	lacking := func() int {
		for s.count[at] >= want[at] {
			at++
		}
		return at
	}
	for i, node := range s.nodes {
		if s.count[node] > want[node] {
			s.put(i, lacking())
		}
	}
	s.nodes = slices.Grow(s.nodes, pages-len(s.nodes))
	for len(s.nodes) < pages {
		to := lacking()
		s.nodes = append(s.nodes, uint8(to))
		s.count[to]++
	}
}

// put moves a page.
func (s *addressSpace) put(i, node int) {
	s.count[s.nodes[i]]--
	s.nodes[i] = uint8(node)
	s.count[node]++
}

// apportion divides pages by shares, in sum exactly: what rounding leaves goes to the first
// nodes that have a share.
func apportion(pages int, shares []float64) []int {
	sum, left := 0.0, pages
	for _, v := range shares {
		sum += v
	}
	want := make([]int, len(shares))
	for i, v := range shares {
		want[i] = min(left, int(float64(pages)*v/sum+0.5))
		left -= want[i]
	}
	for i, v := range shares {
		if v > 0 {
			want[i] += left
			break
		}
	}
	return want
}

// tell tells the physics where a process's pages are.
func (k *Kernel) tell(p *process, s *addressSpace) {
	if len(s.nodes) == 0 {
		return
	}
	shares := make([]float64, len(s.count))
	for i, n := range s.count {
		shares[i] = float64(n)
	}
	if k.m.MovePages(p.num, shares) == nil {
		s.shares, _ = k.m.Pages(p.num)
	}
}

// PageCalls are the calls that find and move pages of simulated processes.
type PageCalls struct{ k *Kernel }

var _ numa.Calls = PageCalls{}

// PageCalls returns them.
func (k *Kernel) PageCalls() PageCalls { return PageCalls{k} }

// MovePages implements numa.Calls. A call ends at the first page for which the target has no
// room (ENOMEM), or whose node is not there (ENODEV) or not allowed (EACCES); what came
// before has moved.
func (c PageCalls) MovePages(pid int32, pages []uintptr, nodes, status []int32, flags int) (int, error) {
	if len(status) != len(pages) || nodes != nil && len(nodes) != len(pages) || flags&^(unix.MPOL_MF_MOVE|unix.MPOL_MF_MOVE_ALL) != 0 {
		return 0, unix.EINVAL
	}
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	p := c.k.procs[pid]
	if p == nil {
		return 0, unix.ESRCH
	}
	s := c.k.space(p)
	if nodes == nil {
		for i, at := range pages {
			status[i] = c.k.whereIs(p, s, at)
		}
		return 0, nil
	}
	defer c.k.tell(p, s)
	room := c.k.room()
	for i, at := range pages {
		if err := c.k.mayMoveTo(p, int(nodes[i])); err != nil {
			return 0, err
		}
		page := anonPage(s, at)
		switch {
		case page < 0 && c.k.whereIs(p, s, at) >= 0:
			status[i] = -int32(unix.EACCES) // the program's file
		case page < 0:
			status[i] = -int32(unix.ENOENT)
		case int32(s.nodes[page]) == nodes[i]:
			status[i] = nodes[i]
		case room[nodes[i]] <= 0:
			return 0, unix.ENOMEM
		default:
			room[nodes[i]]--
			room[s.nodes[page]]++
			s.put(page, int(nodes[i]))
			status[i] = nodes[i]
		}
	}
	return 0, nil
}

// whereIs returns a page's node, or a negative errno.
func (k *Kernel) whereIs(p *process, s *addressSpace, at uintptr) int32 {
	if page := anonPage(s, at); page >= 0 {
		return int32(s.nodes[page])
	}
	if at >= textStart && at < textStart+textPages*pageSize {
		return int32(k.textNode(p))
	}
	return -int32(unix.ENOENT)
}

// anonPage returns the number of the page at an address, -1 for none.
func anonPage(s *addressSpace, at uintptr) int {
	if at < anonStart || (at-anonStart)/pageSize >= uintptr(len(s.nodes)) {
		return -1
	}
	return int((at - anonStart) / pageSize)
}

// textNode is where a process's program is: who was first to read it was on its first CPU.
func (k *Kernel) textNode(p *process) int {
	c := k.m.Config()
	for cpu := range c.CPUs() {
		if p.own.Has(cpu) {
			return c.SocketOf(cpu)
		}
	}
	return 0
}

// mayMoveTo refuses nodes that are not there, or not allowed to a process.
func (k *Kernel) mayMoveTo(p *process, node int) error {
	if node < 0 || node >= k.sockets() {
		return unix.ENODEV
	}
	h := k.with(cgroup.CPUSet)
	if h == nil {
		return nil
	}
	if mems := k.effectiveMems(p.in[h.i]); !mems.Has(node) {
		return unix.EACCES
	}
	return nil
}

// MigratePages implements numa.Calls: the nth node of from goes to the nth of to, and to the
// first again when to has fewer.
func (c PageCalls) MigratePages(pid int32, from, to *model.CPUSet) (int, error) {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	p := c.k.procs[pid]
	if p == nil {
		return 0, unix.ESRCH
	}
	var targets []int
	for _, node := range to.Members() {
		if c.k.mayMoveTo(p, node) == nil {
			targets = append(targets, node)
		}
	}
	if len(targets) == 0 {
		return 0, unix.EINVAL
	}
	s, room, left := c.k.space(p), c.k.room(), 0
	onto := map[uint8]int{}
	for i, node := range from.Members() {
		if node < len(s.count) {
			onto[uint8(node)] = targets[i%len(targets)]
		}
	}
	for i, node := range s.nodes {
		target, ok := onto[node]
		switch {
		case !ok || target == int(node):
		case room[target] <= 0:
			left++
		default:
			room[target]--
			s.put(i, target)
		}
	}
	c.k.tell(p, s)
	return left, nil
}

// usedPages returns how many pages processes have on each node.
func (k *Kernel) usedPages() (anon, file []int) {
	anon, file = make([]int, k.sockets()), make([]int, k.sockets())
	k.eachProcess(func(p *process) {
		for node, n := range k.space(p).count {
			anon[node] += n
		}
		for node, n := range k.filePages(p) {
			file[node] += n
		}
	})
	return anon, file
}

// filePages returns a process's pages of files by node: its program, and page cache of its
// own, which lies as its other pages do.
func (k *Kernel) filePages(p *process) []int {
	pages := make([]int, k.sockets())
	if use, err := k.m.MemoryUse(p.num); err == nil && use.File > 0 {
		if shares, err := k.m.Pages(p.num); err == nil {
			pages = apportion(int(use.File/pageSize), shares)
		}
	}
	pages[k.textNode(p)] += textPages
	return pages
}

// room returns how many pages each node can yet take.
func (k *Kernel) room() []int {
	anon, file := k.usedPages()
	c := k.m.Config()
	room := make([]int, len(anon))
	for node := range room {
		room[node] = int(c.MemBytes/pageSize) - k.reservedPages() - anon[node] - file[node]
	}
	return room
}

// reservedPages is what the kernel has of each node for itself.
func (k *Kernel) reservedPages() int {
	c := k.m.Config()
	return int(c.MemBytes/pageSize) / 64
}

// followMems moves the pages of a group's processes onto the nodes that they may use, in
// turn, as a change of cpuset.mems does on v2.
func (k *Kernel) followMems(g *group) {
	g.each(func(g *group) {
		mems := k.effectiveMems(g)
		for _, m := range g.members {
			s, to := k.space(m.p), 0
			for i, node := range s.nodes {
				if mems.Has(int(node)) {
					continue
				}
				for to = (to + 1) % len(s.count); !mems.Has(to); to = (to + 1) % len(s.count) {
				}
				s.put(i, to)
			}
			k.tell(m.p, s)
		}
	})
}
