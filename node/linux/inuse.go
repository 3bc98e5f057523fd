package linux

import (
	"errors"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
)

// inUse is how much memory a task has, and what of it came back after it was reclaimed.
type inUse struct {
	memory *reclaim.Memory
	meter  *reclaim.Meter
	stat   reclaim.Stat
}

// inUses finds out whether the memory of tasks can be told here. Nobody looks while no policy asks.
func inUses(h *Host, m *cgroup.Mounts) func() taskReader {
	if !h.opt.InUse {
		return nil
	}
	memory, err := reclaim.Open(h.opt.FS, m)
	if err != nil {
		h.lacks("memory of each task", err)
		return nil
	}
	return func() taskReader { return &inUse{memory: memory} }
}

func (u *inUse) open(path string) {
	if u.meter != nil {
		return
	}
	if meter, err := u.memory.OpenMeter(path); err == nil {
		u.meter = meter
	}
}

// observe reads the task's memory. Files that fail are opened anew at the next discovery.
func (u *inUse) observe(s *model.TaskSample) {
	if u.meter == nil {
		return
	}
	now, err := u.meter.Current()
	if err == nil {
		err = u.meter.Stat(&u.stat)
	}
	if err != nil {
		u.close()
		return
	}
	s.C[model.CountMemory] = model.Read(now)
	s.C[model.CountMemoryAnon], s.C[model.CountMemoryFile] = model.Read(u.stat.Anon.Bytes), model.Read(u.stat.File.Bytes)
	if u.stat.RefaultFile.OK { // without a line of its own anonymous memory counts in it, or not at all
		s.C[model.CountRefaults] = model.Read(u.stat.RefaultAnon.N + u.stat.RefaultFile.N)
	}
}

func (u *inUse) close() {
	if u.meter != nil {
		_ = u.meter.Close() // it was only read
		u.meter = nil
	}
}

// room is the machine's own memory: /proc/meminfo and /proc/pressure/memory.
type room struct {
	memory   *procstat.MeminfoReader // nil: not read
	pressure *psi.Reader             // nil: not read
}

func (r *room) open(h *Host) {
	if !h.opt.InUse {
		return
	}
	var err error
	if r.memory, err = procstat.OpenMeminfo(h.opt.FS); err != nil {
		h.lacks("memory of the machine", err)
	}
	if _, err = psi.Read(h.opt.FS, psi.Memory.Path()); err == nil { // with psi=0 the file is there, and cannot be read
		r.pressure, err = psi.Open(h.opt.FS, psi.Memory.Path())
	}
	if err != nil {
		h.lacks("memory pressure (PSI) of the machine", err)
	}
}

func (r *room) observe(n *model.NodeSample) {
	if r.memory != nil {
		if m, err := r.memory.Read(); err == nil {
			n.C[model.CountMemoryTotal], n.C[model.CountMemoryAvailable] = model.Read(m.Total), model.Read(m.Available)
			n.C[model.CountSwapFree] = model.Read(m.SwapFree)
		}
	}
	if r.pressure != nil {
		if t, err := r.pressure.Totals(); err == nil {
			n.C[model.CountMemorySome] = model.Read(t.SomeUsec * 1000)
			if t.HasFull {
				n.C[model.CountMemoryFull] = model.Read(t.FullUsec * 1000)
			}
		}
	}
}

func (r *room) close() error {
	var errs []error
	if r.memory != nil {
		errs = append(errs, r.memory.Close())
	}
	if r.pressure != nil {
		errs = append(errs, r.pressure.Close())
	}
	return errors.Join(errs...)
}
