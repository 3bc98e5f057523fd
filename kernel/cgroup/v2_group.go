package cgroup

import (
	"errors"
	"fmt"
)

// v2Group is an open group of a v2 host: one descriptor of cpu.stat gives CPU time and
// throttling.
type v2Group struct{ group }

// Open implements Driver.
func (d *V2) Open(path string) (Group, error) { return d.openGroup(path, false) }

// OpenAlone implements Driver.
func (d *V2) OpenAlone(path string) (Group, error) { return d.openGroup(path, true) }

func (d *V2) openGroup(path string, alone bool) (Group, error) {
	g := &v2Group{group{t: d.tree, wrap: d.wrap, parse: parseThrottling, alone: alone}}
	if err := g.open(path); err != nil {
		return nil, err
	}
	err := g.openAbove()
	if err == nil {
		err = g.refreshFirst()
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// open takes a group without cpu.stat for one that is being removed: every group has the
// file (since Linux 4.15), and the kernel takes the files away before the directory.
func (g *v2Group) open(path string) error {
	err := g.group.open(path)
	if err == nil && g.anchor == nil {
		return fmt.Errorf("open cgroup %s: %w: it has no cpu.stat", path, ErrVanished)
	}
	return err
}

// UsageNsec implements Group.
func (g *v2Group) UsageNsec() (uint64, error) {
	var err error
	if g.buf, err = g.anchor.ReadRecord(g.buf); err != nil {
		return 0, g.wrap("read cpu.stat of", g.id.Path, err)
	}
	t, err := parseCPUTime(g.buf)
	if err != nil {
		return 0, fmt.Errorf("read cpu.stat of cgroup %s: %w", g.id.Path, err)
	}
	return t.UsageNsec, nil
}

// UsageAndStat implements Group.
func (g *v2Group) UsageAndStat() (usageNsec uint64, own CPUStat, err error) {
	if g.buf, err = g.anchor.ReadRecord(g.buf); err != nil {
		return 0, CPUStat{}, g.wrap("read cpu.stat of", g.id.Path, err)
	}
	if own, usageNsec, err = parseUsageAndThrottling(g.buf); err != nil {
		return 0, CPUStat{}, fmt.Errorf("read cpu.stat of cgroup %s: %w", g.id.Path, err)
	}
	return usageNsec, own, nil
}
