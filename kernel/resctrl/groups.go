package resctrl

// The groups: every directory of the root but info, mon_data and mon_groups is a control
// group, and every directory of a control group's mon_groups is a monitoring group.
//
// https://docs.kernel.org/filesystems/resctrl.html ("Resource alloc and monitor groups")
//
// With the mount option debug, ctrl_hw_id and mon_hw_id show the CLOSID and RMID.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Group is a control or monitoring group as it was when it was listed.
type Group struct {
	Identity
	Ours     bool     // its name has the driver's prefix
	Tool     string   // who may have made it, a guess from the name; "" for ours and unknown
	Mode     Mode     // of a control group; "" for a monitoring group, and where nothing is controlled
	Schemata Schemata // of a control group; nil for a monitoring group, and where nothing is controlled
	CPUs     []int    // that run it when their task is in the root group
	Tasks    int      // threads that this process's pid namespace shows; -1 when not asked for
	// CtrlID and MonID are CLOSID and RMID; -1 without the mount option debug.
	CtrlID, MonID int
}

// ListOptions say what to read of each group beyond the cheap.
type ListOptions struct {
	// Tasks counts the threads. The kernel walks all threads of the machine for each
	// group.
	Tasks bool
}

// Groups lists all groups: the root group first, each control group followed by its
// monitoring groups, by name. Groups that vanish meanwhile are left out.
func (d *Driver) Groups(o ListOptions) ([]Group, error) {
	var groups []Group
	err := d.locked(toRead, func() error {
		ids, err := d.identities()
		if err != nil {
			return err
		}
		for _, id := range ids {
			g, err := d.group(id, o)
			if errors.Is(err, ErrVanished) {
				continue
			}
			if err != nil {
				return err
			}
			groups = append(groups, g)
		}
		return nil
	})
	return groups, err
}

// Strangers lists the groups that somebody else made. Not empty means that another tool
// manages this machine's resctrl, or did; Group.Tool guesses which.
func (d *Driver) Strangers() ([]Group, error) {
	groups, err := d.Groups(ListOptions{})
	return slices.DeleteFunc(groups, func(g Group) bool { return g.Ours || g.Name.IsRoot() }), err
}

// MonGroups lists our monitoring groups, wherever they are, without waiting for the lock.
func (d *Driver) MonGroups() ([]Identity, error) {
	all, err := d.identities()
	return slices.DeleteFunc(all, func(id Identity) bool { return !id.Name.IsMon() || !d.ours(id.Name) }), err
}

// identities lists all groups: the root group, then each control group with its
// monitoring groups.
func (d *Driver) identities() ([]Identity, error) {
	list, err := d.Names()
	if err != nil {
		return nil, err
	}
	all := make([]Identity, 0, len(list))
	for _, n := range list {
		inode, err := d.fs.Inode(d.path(n))
		if gone(err) && !n.IsRoot() {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list resctrl groups: %w", d.explainRoot(err))
		}
		all = append(all, Identity{n, inode})
	}
	return all, nil
}

// listTries is how often a directory is listed that comes short.
const listTries = 3

// list lists a directory. One that has more directories by its links than were listed (kernfs counts them) was listed short, as while groups come and go; what is
// missing would count as gone, and be left behind.
func (d *Driver) list(dir string) (entries []hostfs.DirEntry, err error) {
	listed, links := 0, uint64(0)
	for range listTries {
		if entries, err = d.fs.ReadDir(dir); err != nil {
			return nil, err
		}
		listed = 0
		for i := range entries {
			if entries[i].IsDir {
				listed++
			}
		}
		c, counts := d.fs.(hostfs.LinkCounter)
		if !counts {
			return entries, nil
		}
		if links, err = c.Links(dir); err != nil || uint64(listed)+2 >= links {
			return entries, nil //nolint:nilerr // then nobody knows of more
		}
	}
	return nil, fmt.Errorf("%s: %w: %d directories were listed of %d", dir, ErrMalformed, listed, links-2)
}

// Names lists the names of all groups in the order of identities, the root group first, each control group before its monitoring groups, without waiting
// for the lock: who reads something of one hears whether it is still there.
func (d *Driver) Names() ([]Name, error) {
	entries, err := d.list(d.at.Point)
	if err != nil {
		return nil, fmt.Errorf("list resctrl groups: %w", d.explainRoot(err))
	}
	all, err := d.appendMonGroups([]Name{{}}, Name{})
	for _, e := range entries {
		if err == nil && e.IsDir && !reserved(e.Name) {
			n := Name{Ctrl: e.Name}
			all, err = d.appendMonGroups(append(all, n), n)
		}
	}
	if err == nil && len(all) > maxGroups {
		err = fmt.Errorf("list resctrl groups: %w: more than %d", ErrMalformed, maxGroups)
	}
	return all, err
}

// appendMonGroups appends the monitoring groups of a control group.
func (d *Driver) appendMonGroups(all []Name, parent Name) ([]Name, error) {
	entries, err := d.list(d.path(parent) + "/" + monGroupsDir)
	if gone(err) {
		return all, nil // nothing can be monitored, or the group has vanished
	}
	if err != nil {
		return nil, fmt.Errorf("list resctrl groups: %w", err)
	}
	for _, e := range entries {
		if e.IsDir {
			all = append(all, Name{Ctrl: parent.Ctrl, Mon: e.Name})
		}
	}
	return all, nil
}

// group reads one group.
func (d *Driver) group(id Identity, o ListOptions) (Group, error) {
	g := Group{Identity: id, Ours: d.ours(id.Name), Tasks: -1, CtrlID: -1, MonID: -1}
	var err error
	if !g.Ours && !id.Name.IsRoot() {
		g.Tool = tool(id.Name)
	}
	if !id.Name.IsMon() {
		// Where nothing can be controlled the root group has neither.
		if g.Mode, err = d.ReadMode(id.Name); err != nil && !errors.Is(err, ErrUnsupported) {
			return g, err
		}
		if g.Schemata, err = d.ReadSchemata(id.Name); err != nil && !errors.Is(err, ErrUnsupported) {
			return g, err
		}
	}
	if g.CPUs, err = d.CPUs(id.Name); err != nil {
		return g, err
	}
	if o.Tasks {
		tasks, err := d.Tasks(id.Name, nil)
		if err != nil {
			return g, err
		}
		g.Tasks = len(tasks)
	}
	if d.at.Options.Debug {
		if g.CtrlID, err = d.hardwareID(id.Name.Parent(), "ctrl_hw_id"); err != nil {
			return g, err
		}
		g.MonID, err = d.hardwareID(id.Name, "mon_hw_id")
	}
	return g, err
}

// hardwareID reads a CLOSID or RMID; -1 when the group has no such file.
func (d *Driver) hardwareID(n Name, file string) (int, error) {
	path := d.path(n) + "/" + file
	data, err := d.fs.ReadFile(path, nil)
	if err != nil {
		if err = d.explain(n, err); errors.Is(err, ErrUnsupported) {
			return -1, nil
		}
		return -1, fmt.Errorf("read hardware id: %w", err)
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 31)
	if err != nil {
		return -1, fmt.Errorf("read %s: %w: %q", path, ErrMalformed, clip(string(data)))
	}
	return int(v), nil
}
