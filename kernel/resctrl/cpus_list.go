package resctrl

// cpus_list: the CPUs that run a group's way when their task is in the root group. Every
// CPU is in exactly one control group, and in at most one monitoring group below it.
//
// https://docs.kernel.org/filesystems/resctrl.html ("cpus_list")
//
//	0-3,8
//
// A CPU that is given to one group is taken from another; one that a group lets go of
// falls to the root group, and so does one that comes online. A write to a control group
// takes the CPUs of all its monitoring groups away.

import (
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/cpus"
)

const cpusListFile = "cpus_list"

// CPUs reads a group's CPUs, ascending.
func (d *Driver) CPUs(n Name) ([]int, error) {
	path := d.path(n) + "/" + cpusListFile
	data, err := d.fs.ReadFile(path, nil)
	if err != nil {
		return nil, fmt.Errorf("read cpus: %w", d.explain(n, err))
	}
	set, err := cpus.Parse(string(data))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", path, ErrMalformed, err)
	}
	return set.Members(), nil
}

// WriteCPUs gives one of our groups exactly these CPUs; none takes all from it. CPUs that
// somebody else's group holds are not taken: ErrForeign. Those of a monitoring group must
// be its control group's.
func (d *Driver) WriteCPUs(id Identity, want cpus.Set) error {
	return d.locked(toChange, func() error {
		if err := d.verifyOurs(id); err != nil {
			return fmt.Errorf("write cpus: %w", err)
		}
		groups, err := d.identities()
		if err != nil {
			return err
		}
		for _, other := range groups {
			if other.Name.IsRoot() || d.ours(other.Name) {
				continue
			}
			held, err := d.CPUs(other.Name)
			if errors.Is(err, ErrVanished) {
				continue
			}
			if err != nil {
				return err
			}
			i := slices.IndexFunc(held, want.Has)
			if i >= 0 && other.Name != id.Name.Parent() {
				return fmt.Errorf("write cpus of %s: %w: CPU %d is %s's", id.Name, ErrForeign, held[i], other.Name)
			}
		}
		path := d.path(id.Name) + "/" + cpusListFile
		text := want.String() + "\n"
		err = d.change(appends, "write", path, text, func() error { return d.fs.WriteFile(path, []byte(text)) })
		if err != nil {
			return err
		}
		return d.checkCPUs(id.Name, want, path, text)
	})
}

// checkCPUs reads the CPUs back.
func (d *Driver) checkCPUs(n Name, want cpus.Set, path, text string) error {
	now, err := d.CPUs(n)
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if cpus.Of(now...) != want {
		return &Error{Op: "write", Path: path, Text: text, Kind: ErrReadBack}
	}
	return nil
}
