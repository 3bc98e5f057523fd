package twin

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Disk is the number of the simulated machine's one disk.
var Disk = model.DeviceOf(254, 0)

// observeIO is what a task does on the disk, as io.stat and io.pressure of its cgroup have it.
func (h *Host) observeIO(e *entry, s *model.TaskSample) {
	if !h.io || h.m.Config().DiskBytes <= 0 {
		return
	}
	u, ok := h.m.DiskUse(e.num)
	read := model.IOSample{Num: s.Num, Device: Disk, Read: uint64(u.ReadBytes), Wrote: uint64(u.WrittenBytes), Reads: uint64(u.Reads), Writes: uint64(u.Writes)}
	if ok {
		h.ios = append(h.ios, read)
	}
	s.C[model.CountIOBytes] = model.Read(read.Read + read.Wrote)
	if stalls, err := h.m.Pressure(e.num); err == nil {
		s.C[model.CountIODelay] = model.Read(stalls.IOSome / 1000 * 1000)
	}
}

func diskLimit(m *machine.Machine, num int) (model.Setting, error) {
	l, err := m.DiskLimit(num)
	return model.LimitIO(model.IOMaxOf([]model.IOLimit{{Device: Disk, ReadBPS: l.ReadBPS, WriteBPS: l.WriteBPS, ReadIOPS: l.ReadIOPS, WriteIOPS: l.WriteIOPS}})), err
}

// setDiskLimit refuses limits on a device that there is not, as the kernel does.
func setDiskLimit(m *machine.Machine, num int, v model.Setting) error {
	limits, err := v.IO.Limits()
	if err != nil {
		return err
	}
	var to machine.DiskLimit
	for _, l := range limits {
		if l.Device != Disk {
			return fmt.Errorf("io.max: no such device %s", l.Device)
		}
		to = machine.DiskLimit{ReadBPS: l.ReadBPS, WriteBPS: l.WriteBPS, ReadIOPS: l.ReadIOPS, WriteIOPS: l.WriteIOPS}
	}
	return m.SetDiskLimit(num, to)
}
