package blkio

// Limits of a group on a device, in bytes and operations a second.
//
// io.max (v2): a line a device that has one. It is written by one device at a time; "max" takes a limit away.
//
//	254:0 rbps=2097152 wbps=max riops=max wiops=120
//
// blkio.throttle.read_bps_device and the three like it (v1): a line a device that has one; 0 takes it away.
//
//	254:0 2097152

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// Limit is what a group may do on a device a second. 0 is no limit.
type Limit struct {
	Device
	ReadBPS, WriteBPS, ReadIOPS, WriteIOPS uint64
}

func (l *Limit) numbers() [4]*uint64 {
	return [4]*uint64{&l.ReadBPS, &l.WriteBPS, &l.ReadIOPS, &l.WriteIOPS}
}

var (
	v2Keys  = [4]string{"rbps", "wbps", "riops", "wiops"}
	v1Files = [4]string{
		"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
		"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
	}
)

// ReadLimits returns a group's limits, by device; none where it has none.
func (c *Controller) ReadLimits(path string) ([]Limit, error) {
	if err := cgroup.CheckPath(path); err != nil {
		return nil, err
	}
	var list []Limit
	for i, name := range c.limitFiles() {
		data, err := c.fs.ReadFile(c.mount+path+"/"+name, nil)
		if err != nil {
			return nil, c.wrap("read", path, name, err)
		}
		for line := range bytes.SplitSeq(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
			if len(line) == 0 {
				continue
			}
			d, rest, err := device(line)
			if err != nil {
				return nil, fmt.Errorf("read %s of cgroup %s: %w", name, path, err)
			}
			at := slices.IndexFunc(list, func(l Limit) bool { return l.Device == d })
			if at < 0 {
				at, list = len(list), append(list, Limit{Device: d})
			}
			if c.v2 {
				err = list[at].parse(rest)
			} else {
				*list[at].numbers()[i], err = number(rest, 64)
			}
			if err != nil {
				return nil, fmt.Errorf("read %s of cgroup %s: %w: %q", name, path, cgroup.ErrMalformed, clip(line))
			}
		}
	}
	slices.SortFunc(list, func(a, b Limit) int { return a.compare(b.Device) })
	return slices.DeleteFunc(list, func(l Limit) bool { return l == Limit{Device: l.Device} }), nil
}

func (c *Controller) limitFiles() []string {
	if c.v2 {
		return []string{"io.max"}
	}
	return v1Files[:]
}

// parse reads what follows the device in a line of io.max.
func (l *Limit) parse(rest []byte) (err error) {
	for field := range bytes.FieldsSeq(rest) {
		key, text, _ := bytes.Cut(field, []byte("="))
		at := slices.Index(v2Keys[:], string(key))
		if at < 0 || string(text) == "max" {
			continue
		}
		if *l.numbers()[at], err = number(text, 64); err != nil {
			return err
		}
	}
	return nil
}

// WriteLimit sets a group's limit on one device, all four numbers of it. On v1 these are four writes, of which those that would change
// nothing are left out, and a group with others inside is ErrGroupsBelow unless limits are only taken away.
func (c *Controller) WriteLimit(path string, l Limit) error {
	if err := cgroup.CheckPath(path); err != nil {
		return err
	}
	if c.v2 {
		text := l.String()
		for i, n := range l.numbers() {
			if *n == 0 {
				text += " " + v2Keys[i] + "=max"
			} else {
				text += fmt.Sprintf(" %s=%d", v2Keys[i], *n)
			}
		}
		if err := c.fs.WriteFile(c.mount+path+"/io.max", []byte(text)); err != nil {
			return c.wrap("write", path, "io.max", err)
		}
		return nil
	}
	found, err := c.ReadLimits(path)
	if err != nil {
		return err
	}
	was := Limit{Device: l.Device}
	if i := slices.IndexFunc(found, func(x Limit) bool { return x.Device == l.Device }); i >= 0 {
		was = found[i]
	}
	for i, n := range l.numbers() {
		if *n == *was.numbers()[i] {
			continue
		}
		if err := c.writeV1(path, v1Files[i], l.Device, *n); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) writeV1(path, name string, d Device, n uint64) error {
	if n > 0 {
		names, err := c.fs.ReadDir(c.mount + path)
		if err != nil {
			return c.wrap("list", path, "", err)
		}
		for _, e := range names {
			if e.IsDir {
				return fmt.Errorf("write %s of cgroup %s: %w", name, path, ErrGroupsBelow)
			}
		}
	}
	if err := c.fs.WriteFile(c.mount+path+"/"+name, fmt.Appendf(nil, "%s %d", d, n)); err != nil {
		return c.wrap("write", path, name, err)
	}
	return nil
}
