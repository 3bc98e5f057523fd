package cgroup

import (
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// v1Group is an open group of a v1 host. Its CPU time is in a hierarchy of its own. On a
// kernel without CFS bandwidth there is no cpu.stat, and cpu.shares is the anchor.
type v1Group struct {
	group
	d     *V1
	usage hostfs.File // cpuacct.usage; nil when there is none
}

// Open implements Driver.
func (d *V1) Open(path string) (Group, error) { return d.openGroup(path, false) }

// OpenAlone implements Driver.
func (d *V1) OpenAlone(path string) (Group, error) { return d.openGroup(path, true) }

func (d *V1) openGroup(path string, alone bool) (Group, error) {
	g := &v1Group{d: d, group: group{t: d.cpu, wrap: d.wrap, parse: parseCPUStat, alone: alone}}
	if err := g.open(path); err != nil {
		return nil, err
	}
	if err := g.openRest(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *v1Group) openRest() error {
	if g.anchor == nil {
		name, err := g.d.file(CPU, g.id.Path, "cpu.shares")
		if err != nil {
			return fmt.Errorf("open cgroup %s: %w", g.id.Path, err)
		}
		if g.anchor, err = g.t.fs.Open(name); err != nil {
			return g.wrap("open", g.id.Path, err)
		}
	}
	if err := g.openAbove(); err != nil {
		return err
	}
	if err := g.openUsage(); err != nil {
		return err
	}
	return g.refreshFirst()
}

// UsageNsec implements Group.
func (g *v1Group) UsageNsec() (uint64, error) {
	if g.usage == nil {
		if err := g.alive(); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("read cpuacct.usage of cgroup %s: %w: no such group in the cpuacct hierarchy", g.id.Path, ErrUnsupported)
	}
	var err error
	if g.buf, err = g.usage.ReadRecord(g.buf); err != nil {
		return 0, g.wrap("read cpuacct.usage of", g.id.Path, err)
	}
	v, err := parseUint(g.buf)
	if err != nil {
		return 0, fmt.Errorf("read cpuacct.usage of cgroup %s: %w", g.id.Path, err)
	}
	return v, nil
}

// UsageAndStat implements Group.
func (g *v1Group) UsageAndStat() (usageNsec uint64, own CPUStat, err error) {
	if usageNsec, err = g.UsageNsec(); err != nil || g.own.stat == nil {
		return usageNsec, CPUStat{}, err
	}
	if g.buf, err = g.own.stat.ReadRecord(g.buf); err != nil {
		return 0, CPUStat{}, g.wrap("read cpu.stat of", g.id.Path, err)
	}
	if own, err = parseCPUStat(g.buf); err != nil {
		return 0, CPUStat{}, fmt.Errorf("read cpu.stat of cgroup %s: %w", g.id.Path, err)
	}
	return usageNsec, own, nil
}

// Refresh implements Group.
func (g *v1Group) Refresh() error {
	if err := g.openUsage(); err != nil {
		return err
	}
	return g.group.Refresh()
}

// openUsage opens cpuacct.usage, whose directory is in a hierarchy of its own and may be
// made later than the cpu one, or not at all.
func (g *v1Group) openUsage() error {
	if g.usage != nil {
		return nil
	}
	name, err := g.d.file(CPUAcct, g.id.Path, "cpuacct.usage")
	if err == nil {
		g.usage, err = g.t.fs.Open(name)
		if err != nil {
			g.usage = nil
			err = g.wrap("open", g.id.Path, err)
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
	err := g.group.Close()
	if g.usage != nil {
		err = errors.Join(err, g.usage.Close())
	}
	return err
}
