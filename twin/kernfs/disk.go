package kernfs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/machine"
)

// The io controller of v2, on a machine that has a disk: io.stat and io.max. v1's blkio is not there.

// diskName is the one disk, as twin.Disk.
const diskName = "254:0"

// diskKeys are the numbers of io.max.
var diskKeys = [...]string{"rbps", "wbps", "riops", "wiops"}

func diskNumbers(l *machine.DiskLimit) [4]*uint64 {
	return [...]*uint64{&l.ReadBPS, &l.WriteBPS, &l.ReadIOPS, &l.WriteIOPS}
}

// v2ControllersOf adds the io controller where there is a disk, in the kernel's order.
func v2ControllersOf(m *machine.Machine) []cgroup.Controller {
	if m.Config().DiskBytes <= 0 {
		return v2Controllers
	}
	return slices.Insert(slices.Clone(v2Controllers), 2, cgroup.IO)
}

func (k *Kernel) addIO(g *group) {
	k.addFile(g.dir, "io.stat", always(func(buf []byte) []byte {
		u := k.sum(g).disk
		if u == (machine.DiskUse{}) {
			return buf
		}
		return fmt.Appendf(buf, diskName+" rbytes=%d wbytes=%d rios=%d wios=%d dbytes=0 dios=0\n", uint64(u.ReadBytes), uint64(u.WrittenBytes), uint64(u.Reads), uint64(u.Writes))
	}), nil)
	if g.up == nil {
		return
	}
	k.addFile(g.dir, "io.max", always(func(buf []byte) []byte {
		if g.io == (machine.DiskLimit{}) {
			return buf
		}
		buf = append(buf, diskName...)
		for i, n := range diskNumbers(&g.io) {
			buf = append(append(append(buf, ' '), diskKeys[i]...), '=')
			if *n == 0 {
				buf = append(buf, "max"...)
			} else {
				buf = strconv.AppendUint(buf, *n, 10)
			}
		}
		return append(buf, '\n')
	}), func(data []byte) error { return k.writeIOMax(g, trim(data)) })
}

// writeIOMax is a write of io.max: numbers that are not named stay.
func (k *Kernel) writeIOMax(g *group, text string) error {
	fields := strings.Fields(text)
	switch {
	case len(fields) == 0:
		return unix.EINVAL
	case fields[0] != diskName:
		return unix.ENODEV
	}
	to := g.io
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		at := slices.Index(diskKeys[:], key)
		if at < 0 {
			return unix.EINVAL
		}
		n := diskNumbers(&to)[at]
		if *n = 0; value == "max" {
			continue
		}
		v, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil:
			return unix.EINVAL
		case v == 0:
			return unix.ERANGE
		}
		*n = v
	}
	g.io = to
	k.settle()
	return nil
}

// settleDisks tells the machine what each process may do: the tightest limits of its groups, which the processes below a group that do
// anything on the disk share evenly, where the kernel has them compete.
func (k *Kernel) settleDisks() {
	if k.m.Config().DiskBytes <= 0 {
		return
	}
	for _, pid := range k.pids {
		p := k.procs[pid]
		var may machine.DiskLimit
		for _, g := range p.in {
			for ; g != nil; g = g.up {
				if g.io == (machine.DiskLimit{}) {
					continue
				}
				among := k.diskUsers(g)
				for i, n := range diskNumbers(&may) {
					if l := *diskNumbers(&g.io)[i]; l > 0 && (*n == 0 || l/among < *n) {
						*n = max(1, l/among)
					}
				}
			}
		}
		if may != p.io && k.m.SetDiskLimit(p.num, may) == nil {
			p.io = may
		}
	}
}

// diskUsers counts the processes in a group and below that use the disk, at least 1.
func (k *Kernel) diskUsers(g *group) (n uint64) {
	g.each(func(g *group) {
		for i := range g.members {
			if _, ok := k.m.DiskUse(g.members[i].p.num); ok {
				n++
			}
		}
	})
	return max(1, n)
}
