package linux

import (
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/blkio"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// ioMax is what a task's group may do on block devices: io.max of cgroup v2, blkio.throttle of v1, in a hierarchy of its own. Limits of v2
// hold all groups inside together; on v1 they do not reach them, so a task with groups inside cannot be held (blkio.ErrGroupsBelow).
type ioMax struct {
	ownGroup
	cg identifier
	io *blkio.Controller
	no error // why there is no controller
}

func newIOMax(cg cgroup.Driver, fs hostfs.FS) *ioMax {
	k := &ioMax{cg: cg}
	m, err := cgroup.Discover(fs)
	if err == nil {
		k.io, err = blkio.Open(fs, m)
	}
	k.no = err
	return k
}

// inode: a task that is not in the controller's hierarchy is not gone.
func (k *ioMax) inode(path string) (uint64, error) {
	if k.no != nil {
		return 0, k.no
	}
	inode, err := k.io.Inode(path)
	if errors.Is(err, cgroup.ErrVanished) {
		if _, there := k.cg.Inode(path); there == nil {
			err = fmt.Errorf("cgroup %s is not in the hierarchy of blkio: %w", path, cgroup.ErrUnsupported)
		}
	}
	return inode, err
}

func (k *ioMax) groups() ([]string, error) {
	if k.no != nil || k.io.V2() {
		return nil, nil
	}
	return k.io.Groups()
}

func (k *ioMax) read(path string) (model.Setting, error) {
	if k.no != nil {
		return model.Ask(model.IOMaxKnob), k.no
	}
	return IOMaxOf(k.io, path)
}

// IOMaxOf reads a group's limits.
func IOMaxOf(io *blkio.Controller, path string) (model.Setting, error) {
	list, err := io.ReadLimits(path)
	if err != nil {
		return model.Ask(model.IOMaxKnob), err
	}
	limits := make([]model.IOLimit, len(list))
	for i, l := range list {
		limits[i] = model.IOLimit{Device: model.DeviceOf(l.Major, l.Minor), ReadBPS: l.ReadBPS, WriteBPS: l.WriteBPS, ReadIOPS: l.ReadIOPS, WriteIOPS: l.WriteIOPS}
	}
	return model.LimitIO(model.IOMaxOf(limits)), nil
}

// write sets device after device what is to be other. A device that is not there any more has no limit to be taken back.
func (k *ioMax) write(path string, from, to model.Setting) error {
	if k.no != nil {
		return k.no
	}
	was, err := from.IO.Limits()
	if err != nil {
		return err
	}
	now, err := to.IO.Limits()
	if err != nil {
		return err
	}
	for _, l := range was {
		if !slices.ContainsFunc(now, func(x model.IOLimit) bool { return x.Device == l.Device }) {
			now = append(now, model.IOLimit{Device: l.Device})
		}
	}
	for _, l := range now {
		if slices.Contains(was, l) {
			continue
		}
		major, minor := l.Device.Numbers()
		if err := k.io.WriteLimit(path, blkio.Limit{
			Device: blkio.Device{Major: major, Minor: minor}, ReadBPS: l.ReadBPS, WriteBPS: l.WriteBPS, ReadIOPS: l.ReadIOPS, WriteIOPS: l.WriteIOPS,
		}); err != nil {
			return err
		}
	}
	return nil
}

// want never lets a task have more than was found, number by number.
func (k *ioMax) want(_ string, c *model.Change, found model.Setting) (model.Setting, string, error) {
	if c.Kind == model.Hold {
		return found.Tightest(c.Value), "", nil
	}
	return c.Value, "", nil
}

// others: numbers that another program wrote stand, and those that are ours are as they were found.
func (k *ioMax) others(l *journal.Limit, now model.Setting) model.Setting {
	return model.LimitIO(now.IO.Without(l.Intended.IO, l.Found.IO))
}
