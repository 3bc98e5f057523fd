package cgroup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// readBuffer is the first size of a group's buffer. cpu.stat takes up to 300 bytes and
// cgroup.procs 8 bytes a process; the buffer grows to what it meets and stays so.
const readBuffer = 4096

// Bounds of what one group makes us read and keep open. Who may make groups inside of one (a
// container with root in it, systemd in a container, a user's own manager) makes as many
// as he likes.
const (
	// maxFollowed is how many descendants have a descriptor of their cpu.stat. A pod has ten.
	maxFollowed = 64
	// maxInside is how many descendants are asked for their processes, at ten microseconds each.
	maxInside = 1024
	// maxProcs is how many thread groups are listed. Programs of a server have some hundred.
	maxProcs = 4096
)

// group is what the open groups of v1 and v2 have in common: a descriptor of cpu.stat
// for the group itself, each ancestor and, unless it is opened alone, each descendant.
//
// The anchor is what binds it to its directory: files that must be opened by path are
// believed only if the anchor still reads afterwards.
type group struct {
	t     tree
	wrap  func(op, path string, err error) error // the driver's
	parse func(data []byte) (CPUStat, error)     // of this layout's cpu.stat

	id     Identity
	anchor hostfs.File // fails with ENODEV once the directory is gone
	own    member
	below  []member // descendants, sorted by path; none when there are more than maxInside
	alone  bool     // opened by OpenAlone
	inside int      // how many descendants there are
	above  []member // ancestors below the root: they cannot go while the group lives
	// retired is the last nr_throttled of descendants that are gone, and of counts
	// that began anew.
	retired uint64
	buf     []byte
	closed  bool
}

// member is a group whose throttling counts.
type member struct {
	path      string
	procs     string // absolute path of its cgroup.procs
	inode     uint64
	stat      hostfs.File // nil when it is not followed, and on a v1 kernel without CFS bandwidth
	throttled uint64      // nr_throttled as last read
}

// open opens the group itself.
func (g *group) open(path string) error {
	if path == "/" {
		return fmt.Errorf("open cgroup /: %w", ErrRootGroup)
	}
	own, err := g.openMember(path)
	if err != nil {
		return err
	}
	g.own, g.anchor = own, own.stat
	g.id = Identity{Path: path, Inode: own.inode}
	g.buf = make([]byte, 0, readBuffer)
	return nil
}

// openAbove opens the ancestors.
func (g *group) openAbove() error {
	for _, up := range ancestors(g.id.Path) {
		m, err := g.openMember(up)
		if err != nil {
			return err
		}
		g.above = append(g.above, m)
	}
	return nil
}

// openMember opens a group's cpu.stat and makes sure that it belongs to the inode that
// is recorded with it.
func (g *group) openMember(path string) (member, error) {
	m := member{path: path}
	dir, err := g.t.file(path, "")
	if err != nil {
		return m, fmt.Errorf("open cgroup %s: %w", path, err)
	}
	if m.inode, err = g.t.fs.Inode(dir); err != nil {
		return m, g.wrap("identify", path, err)
	}
	m.procs = dir + "/cgroup.procs"
	if m.stat, err = g.t.fs.Open(dir + "/cpu.stat"); err != nil {
		if err = g.wrap("open", path, err); !errors.Is(err, ErrUnsupported) {
			return m, err
		}
		m.stat = nil
	}
	again, err := g.t.fs.Inode(dir)
	if err != nil {
		err = g.wrap("identify", path, err)
	} else if again != m.inode {
		err = fmt.Errorf("open cgroup %s: %w: replaced meanwhile", path, ErrVanished)
	}
	if err != nil {
		return m, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *member) close() error {
	if m.stat == nil {
		return nil
	}
	err := m.stat.Close()
	m.stat = nil
	return err
}

// Identity implements Group.
func (g *group) Identity() Identity { return g.id }

// Throttling implements Group.
func (g *group) Throttling() (Throttling, error) {
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
	t := Throttling{Own: own}
	for _, list := range [...][]member{g.below, g.above} {
		for i := range list {
			if _, err := g.readStat(&list[i]); err != nil && !errors.Is(err, ErrVanished) {
				return Throttling{}, err
			}
			t.NrThrottledAround += list[i].throttled
		}
	}
	t.NrThrottledAround += own.NrThrottled + g.retired
	t.NotFollowed = !g.alone && g.inside > maxFollowed
	return t, nil
}

// readStat reads a member's cpu.stat and keeps its nr_throttled. A count that went back
// began anew (on v2, when the cpu controller was disabled and enabled for the group), so
// what it had counted before is added to what is retired.
func (g *group) readStat(m *member) (CPUStat, error) {
	if m.stat == nil {
		return CPUStat{}, nil
	}
	var err error
	if g.buf, err = m.stat.ReadRecord(g.buf); err != nil {
		return CPUStat{}, g.wrap("read cpu.stat of", m.path, err)
	}
	s, err := g.parse(g.buf)
	if err != nil {
		return CPUStat{}, fmt.Errorf("read cpu.stat of cgroup %s: %w", m.path, err)
	}
	if s.NrThrottled < m.throttled {
		g.retired += m.throttled
	}
	m.throttled = s.NrThrottled
	return s, nil
}

// Procs implements Group. Each cgroup.procs is opened anew (cgroup_procs.go says why).
func (g *group) Procs(dst []int32) ([]int32, error) {
	dst, err := g.appendProcs(dst[:0], g.own.procs)
	if err != nil {
		return dst[:0], g.wrap("read cgroup.procs of", g.id.Path, err)
	}
	if g.inside > maxInside {
		return dst[:0], fmt.Errorf("list the processes of cgroup %s: %w: more than %d in it", g.id.Path, ErrTooManyGroups, maxInside)
	}
	for i := 0; i < len(g.below) && len(dst) <= maxProcs; i++ {
		more, err := g.appendProcs(dst, g.below[i].procs)
		if err != nil {
			if isGone(err) || isThreaded(err) {
				continue // a thread root above it, which is read too, lists its processes
			}
			return dst[:0], g.wrap("read cgroup.procs of", g.below[i].path, err)
		}
		dst = more
	}
	if err := g.alive(); err != nil {
		return dst[:0], err
	}
	if len(dst) > maxProcs {
		g.buf = make([]byte, 0, readBuffer) // it has the size of the whole list
		return nil, fmt.Errorf("list the processes of cgroup %s: %w: more than %d", g.id.Path, ErrTooManyProcs, maxProcs)
	}
	slices.Sort(dst)
	return slices.Compact(dst), nil
}

func (g *group) appendProcs(dst []int32, file string) ([]int32, error) {
	var err error
	if g.buf, err = g.t.fs.ReadFile(file, g.buf); err != nil {
		return dst, err
	}
	return parseProcs(dst, g.buf)
}

// alive fails with ErrVanished once the group's directory is gone.
func (g *group) alive() error {
	var err error
	if g.buf, err = g.anchor.ReadRecord(g.buf); err != nil {
		return g.wrap("read", g.id.Path, err)
	}
	return nil
}

// Refresh implements Group. A descendant that cannot be opened is reported and left out;
// the others are refreshed all the same. Where there are too many, none is followed.
//
// A group that is not at its path any more is gone from it: v1 lets it be renamed, and another one
// be made at the path.
func (g *group) Refresh() error {
	if err := g.alive(); err != nil {
		return err
	}
	inode, err := g.t.inode(g.id.Path)
	switch {
	case err != nil:
		return g.wrap("identify", g.id.Path, err)
	case inode != g.id.Inode:
		return fmt.Errorf("identify cgroup %s: %w: another one is at its path", g.id.Path, ErrVanished)
	}
	paths, _, at, err := g.t.descendants(g.id.Path)
	if err != nil {
		return g.wrap("list", at, err)
	}
	g.inside = len(paths)
	if g.inside > maxInside {
		paths = nil
	}
	follow := !g.alone && g.inside <= maxFollowed
	var failed error
	old, kept := g.below, make([]member, 0, len(paths))
	for _, path := range paths { // both lists are sorted
		for len(old) > 0 && old[0].path < path {
			failed = errors.Join(failed, g.retire(&old[0]))
			old = old[1:]
		}
		var known *member
		if len(old) > 0 && old[0].path == path {
			known, old = &old[0], old[1:]
		}
		m, err := g.renew(path, known, follow)
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

// refreshFirst is the first Refresh. What a descendant refuses is no reason not to open the
// group that it lies in: the next Refresh tries it again.
func (g *group) refreshFirst() error {
	if err := g.Refresh(); errors.Is(err, ErrVanished) {
		return err
	}
	return nil
}

// renew returns the descendant at a path: the one that is known (may be nil) if it is the
// same, followed or not.
func (g *group) renew(path string, known *member, follow bool) (member, error) {
	if known != nil && follow == known.followed() {
		if !follow {
			return *known, nil
		}
		if inode, err := g.t.inode(path); err == nil && inode == known.inode {
			return *known, nil
		}
	}
	var failed error
	if known != nil {
		failed = g.retire(known) // replaced, gone by now, or not to be followed any more
	}
	m := member{path: path, procs: fileBelow(g.t.top, path, "cgroup.procs")}
	if follow {
		var err error
		if m, err = g.openMember(path); err != nil {
			return m, errors.Join(failed, err)
		}
	}
	return m, failed
}

// followed says whether a member was opened.
func (m *member) followed() bool { return m.inode != 0 }

// retire keeps a gone descendant's last count in the sum and closes it.
func (g *group) retire(m *member) error {
	g.retired += m.throttled
	return m.close()
}

// Close implements Group.
func (g *group) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	var err error
	if g.anchor != nil && g.anchor != g.own.stat {
		err = errors.Join(err, g.anchor.Close())
	}
	// Closed files stay in place: a call after Close says fs.ErrClosed.
	if g.own.stat != nil {
		err = errors.Join(err, g.own.stat.Close())
	}
	for _, list := range [...][]member{g.below, g.above} {
		for i := range list {
			err = errors.Join(err, list[i].close())
		}
	}
	return err
}
