package cgroup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// readBuffer is the first size of a group's buffer. cpu.stat takes about 100 bytes and
// cgroup.procs 8 bytes a process; the buffer grows to what it meets and stays so.
const readBuffer = 4096

// v1Group is an open group of a v1 host.
//
// The descriptor of its own cpu.stat (or cpu.shares, on a kernel without CFS bandwidth)
// is also what binds it to its directory: files that must be opened by path are believed
// only if that descriptor still reads afterwards.
type v1Group struct {
	d      *V1
	id     Identity
	anchor hostfs.File // fails with ENODEV once the directory is gone
	usage  hostfs.File // cpuacct.usage; nil when there is none
	own    v1Member
	below  []v1Member // descendants, sorted by path
	above  []v1Member // ancestors below the root: they cannot go while the group lives
	// retired is the last nr_throttled of descendants that are gone.
	retired uint64
	buf     []byte
	closed  bool
}

// v1Member is a group whose throttling counts.
type v1Member struct {
	path      string
	procs     string // absolute path of its cgroup.procs
	inode     uint64
	stat      hostfs.File // nil on a kernel without CFS bandwidth
	throttled uint64      // nr_throttled as last read
}

// Open implements Driver.
func (d *V1) Open(path string) (Group, error) {
	if path == "/" {
		return nil, fmt.Errorf("open cgroup /: %w", ErrRootGroup)
	}
	own, err := d.openMember(path)
	if err != nil {
		return nil, err
	}
	g := &v1Group{d: d, id: Identity{Path: path, Inode: own.inode}, own: own, buf: make([]byte, 0, readBuffer)}
	if err := g.openRest(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *v1Group) openRest() error {
	g.anchor = g.own.stat
	if g.anchor == nil {
		name, err := g.d.file(CPU, g.id.Path, "cpu.shares")
		if err != nil {
			return fmt.Errorf("open cgroup %s: %w", g.id.Path, err)
		}
		if g.anchor, err = g.d.fs.Open(name); err != nil {
			return g.d.wrap("open", g.id.Path, err)
		}
	}
	for _, up := range ancestors(g.id.Path) {
		m, err := g.d.openMember(up)
		if err != nil {
			return err
		}
		g.above = append(g.above, m)
	}
	return g.Refresh()
}

// openMember opens a group's cpu.stat and makes sure that it belongs to the inode that
// is recorded with it.
func (d *V1) openMember(path string) (v1Member, error) {
	m := v1Member{path: path}
	var err error
	if m.inode, err = d.Inode(path); err != nil {
		return m, err
	}
	if m.procs, err = d.file(CPU, path, "cgroup.procs"); err != nil {
		return m, fmt.Errorf("open cgroup %s: %w", path, err)
	}
	name, err := d.file(CPU, path, "cpu.stat")
	if err != nil {
		return m, fmt.Errorf("open cgroup %s: %w", path, err)
	}
	if m.stat, err = d.fs.Open(name); err != nil {
		if err = d.wrap("open", path, err); !errors.Is(err, ErrUnsupported) {
			return m, err
		}
		m.stat = nil
	}
	again, err := d.Inode(path)
	if err == nil && again != m.inode {
		err = fmt.Errorf("open cgroup %s: %w: replaced meanwhile", path, ErrVanished)
	}
	if err != nil {
		return m, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *v1Member) close() error {
	if m.stat == nil {
		return nil
	}
	err := m.stat.Close()
	m.stat = nil
	return err
}

// Identity implements Group.
func (g *v1Group) Identity() Identity { return g.id }

// UsageNsec implements Group.
func (g *v1Group) UsageNsec() (uint64, error) {
	if g.usage == nil {
		if err := g.alive(); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("read cpuacct.usage of cgroup %s: %w: no such group in the cpuacct hierarchy", g.id.Path, ErrUnsupported)
	}
	var err error
	if g.buf, err = hostfs.ReadRecord(g.usage, g.buf); err != nil {
		return 0, g.d.wrap("read cpuacct.usage of", g.id.Path, err)
	}
	v, err := parseUint(g.buf)
	if err != nil {
		return 0, fmt.Errorf("read cpuacct.usage of cgroup %s: %w", g.id.Path, err)
	}
	return v, nil
}

// Throttling implements Group.
func (g *v1Group) Throttling() (Throttling, error) {
	if g.own.stat == nil {
		if err := g.alive(); err != nil {
			return Throttling{}, err
		}
		return Throttling{}, fmt.Errorf("read cpu.stat of cgroup %s: %w: no CFS bandwidth", g.id.Path, ErrUnsupported)
	}
	own, err := g.readStat(&g.own)
	if err != nil {
		return Throttling{}, err
	}
	t := Throttling{Own: own, NrThrottledAround: g.retired + own.NrThrottled}
	for _, list := range [...][]v1Member{g.below, g.above} {
		for i := range list {
			_, err := g.readStat(&list[i])
			if err != nil && !errors.Is(err, ErrVanished) {
				return Throttling{}, err
			}
			t.NrThrottledAround += list[i].throttled
		}
	}
	return t, nil
}

// readStat reads a member's cpu.stat and keeps its nr_throttled.
func (g *v1Group) readStat(m *v1Member) (CPUStat, error) {
	if m.stat == nil {
		return CPUStat{}, nil
	}
	var err error
	if g.buf, err = hostfs.ReadRecord(m.stat, g.buf); err != nil {
		return CPUStat{}, g.d.wrap("read cpu.stat of", m.path, err)
	}
	s, err := parseCPUStat(g.buf)
	if err != nil {
		return CPUStat{}, fmt.Errorf("read cpu.stat of cgroup %s: %w", m.path, err)
	}
	m.throttled = s.NrThrottled
	return s, nil
}

// Procs implements Group. Each cgroup.procs is opened anew (cgroup_procs.go says why).
func (g *v1Group) Procs(dst []int32) ([]int32, error) {
	dst, err := g.appendProcs(dst[:0], g.own.procs)
	if err != nil {
		return dst[:0], g.d.wrap("read cgroup.procs of", g.id.Path, err)
	}
	for i := range g.below {
		more, err := g.appendProcs(dst, g.below[i].procs)
		if err != nil {
			if isGone(err) {
				continue
			}
			return dst[:0], g.d.wrap("read cgroup.procs of", g.below[i].path, err)
		}
		dst = more
	}
	if err := g.alive(); err != nil {
		return dst[:0], err
	}
	slices.Sort(dst)
	return slices.Compact(dst), nil
}

func (g *v1Group) appendProcs(dst []int32, file string) ([]int32, error) {
	var err error
	if g.buf, err = g.d.fs.ReadFile(file, g.buf); err != nil {
		return dst, err
	}
	return parseProcs(dst, g.buf)
}

// alive fails with ErrVanished once the group's directory is gone.
func (g *v1Group) alive() error {
	var err error
	if g.buf, err = hostfs.ReadRecord(g.anchor, g.buf); err != nil {
		return g.d.wrap("read", g.id.Path, err)
	}
	return nil
}

// Refresh implements Group. A descendant that cannot be opened is reported and left out;
// the others are refreshed all the same.
func (g *v1Group) Refresh() error {
	if err := g.alive(); err != nil {
		return err
	}
	if err := g.openUsage(); err != nil {
		return err
	}
	paths, err := g.d.Descendants(g.id.Path)
	if err != nil {
		return err
	}
	var failed error
	old, kept := g.below, make([]v1Member, 0, len(paths))
	for _, path := range paths { // both lists are sorted
		for len(old) > 0 && old[0].path < path {
			failed = errors.Join(failed, g.retire(&old[0]))
			old = old[1:]
		}
		if len(old) > 0 && old[0].path == path {
			known := &old[0]
			old = old[1:]
			if inode, err := g.d.Inode(path); err == nil && inode == known.inode {
				kept = append(kept, *known)
				continue
			}
			failed = errors.Join(failed, g.retire(known)) // replaced, or gone by now
		}
		m, err := g.d.openMember(path)
		if err == nil {
			kept = append(kept, m)
		} else if !errors.Is(err, ErrVanished) {
			failed = errors.Join(failed, err)
		}
	}
	for i := range old {
		failed = errors.Join(failed, g.retire(&old[i]))
	}
	g.below = kept
	return failed
}

// retire keeps a gone descendant's last count in the sum and closes it.
func (g *v1Group) retire(m *v1Member) error {
	g.retired += m.throttled
	return m.close()
}

// openUsage opens cpuacct.usage, whose directory is in a hierarchy of its own and may be
// made later than the cpu one, or not at all.
func (g *v1Group) openUsage() error {
	if g.usage != nil {
		return nil
	}
	name, err := g.d.file(CPUAcct, g.id.Path, "cpuacct.usage")
	if err == nil {
		g.usage, err = g.d.fs.Open(name)
		if err != nil {
			g.usage = nil
			err = g.d.wrap("open", g.id.Path, err)
		}
	}
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return err
	}
	// By path it may have been another group's.
	if err := g.alive(); err != nil {
		if g.usage != nil {
			err = errors.Join(err, g.usage.Close())
			g.usage = nil
		}
		return err
	}
	return nil
}

// Close implements Group.
func (g *v1Group) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	var err error
	if g.anchor != nil && g.anchor != g.own.stat {
		err = errors.Join(err, g.anchor.Close())
	}
	if g.usage != nil {
		err = errors.Join(err, g.usage.Close())
	}
	err = errors.Join(err, g.own.close())
	for _, list := range [...][]v1Member{g.below, g.above} {
		for i := range list {
			err = errors.Join(err, list[i].close())
		}
	}
	return err
}
