package linux

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
)

// inUse is how much memory a task has, and what of it came back after it was reclaimed.
type inUse struct {
	h      *Host
	root   string // of the groups' limits
	file   string
	memory *reclaim.Memory
	meter  *reclaim.Meter
	stat   reclaim.Stat
	path   string
	limit  model.Counter
	groups string      // where groups with pressure files are; "": nowhere
	stall  *psi.Reader // nil: not read
}

// inUses finds out whether the memory of tasks can be told here. Nobody looks while no policy asks.
func inUses(h *Host, m *cgroup.Mounts) func() taskReader {
	if !h.opt.InUse && !h.opt.Sizes {
		return nil
	}
	memory, err := reclaim.Open(h.opt.FS, m)
	if err != nil {
		h.lacks("memory of each task", err)
		return nil
	}
	root, file := m.Unified, "memory.max"
	if v1 := m.V1[cgroup.Memory]; v1 != "" {
		root, file = v1, "memory.limit_in_bytes"
	}
	groups := ""
	if _, err := psi.Read(h.opt.FS, psi.Memory.Path()); err == nil && h.opt.InUse && m.Layout == cgroup.LayoutV2 {
		groups = m.Unified
	}
	return func() taskReader { return &inUse{h: h, root: root, file: file, memory: memory, groups: groups} }
}

// sizesEvery is how often memory is read where nobody asks for each window, a little less than a minute: windows are seldom late.
const sizesEvery = 55 * time.Second

// memoryDue says whether memory is read in a snapshot.
func (h *Host) memoryDue(mark model.WindowMark, nowNsec int64) bool {
	if h.opt.InUse {
		return true
	}
	if !h.opt.Sizes || mark&model.WindowEnd == 0 || h.sized != 0 && nowNsec-h.sized < sizesEvery.Nanoseconds() {
		return false
	}
	h.sized = nowNsec
	return true
}

func (u *inUse) open(path string) {
	if u.path = path; u.h.opt.InUse {
		u.limit = u.bound(path)
	}
	if u.stall == nil && u.groups != "" {
		if f, err := psi.OfGroup(u.h.opt.FS, u.groups+path).Open(psi.Memory); err == nil {
			u.stall = f
		}
	}
	if u.meter != nil {
		return
	}
	if meter, err := u.memory.OpenMeter(path); err == nil {
		u.meter = meter
	}
}

// bound is the least limit of a group and those above it; what nobody could ever have is none.
func (u *inUse) bound(path string) (least model.Counter) {
	const none = 1 << 60
	for ; path != "" && path != "/"; path = path[:strings.LastIndexByte(path, '/')] {
		data, err := u.h.opt.FS.ReadFile(u.root+path+"/"+u.file, nil)
		if err != nil {
			continue // a group without the controller has no limit
		}
		v, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
		if err == nil && v < none && (least.Outcome != model.OK || v < least.Value) {
			least = model.Read(v)
		}
	}
	return least
}

// observe reads the task's memory. Files that fail are opened anew at the next discovery.
func (u *inUse) observe(s *model.TaskSample) {
	if u.meter == nil || !u.h.inUseNow {
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
	if !u.h.opt.InUse { // memory is read less often than tasks are discovered
		u.limit = u.bound(u.path)
	}
	s.C[model.CountMemory] = model.Read(now)
	s.C[model.CountMemoryAnon], s.C[model.CountMemoryFile] = model.Read(u.stat.Anon.Bytes), model.Read(u.stat.File.Bytes)
	s.C[model.CountMemoryLimit] = u.limit
	if u.stat.InactiveFile.OK {
		s.C[model.CountMemoryInactive] = model.Read(u.stat.InactiveFile.Bytes)
	}
	if u.stat.RefaultFile.OK { // without a line of its own anonymous memory counts in it, or not at all
		s.C[model.CountRefaults] = model.Read(u.stat.RefaultAnon.N + u.stat.RefaultFile.N)
	}
	if u.stall != nil {
		if t, err := u.stall.Totals(); err == nil {
			s.C[model.CountMemoryStall] = model.Read(t.SomeUsec * 1000)
		}
	}
	u.h.guests.told(u.path, s)
}

func (u *inUse) close() {
	if u.meter != nil {
		_ = u.meter.Close() // it was only read
		u.meter = nil
	}
	if u.stall != nil {
		_ = u.stall.Close()
		u.stall = nil
	}
}

// room is the machine's own memory: /proc/meminfo and /proc/pressure/memory.
type room struct {
	memory   *procstat.MeminfoReader // nil: not read
	pressure *psi.Reader             // nil: not read
}

func (r *room) open(h *Host) {
	if !h.opt.InUse && !h.opt.Sizes {
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
