package linux

import (
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/model"
)

// pressure is how long threads of a task waited for a CPU (PSI, "some"), by the kernel's own
// account of its group, which it keeps on cgroup v2 alone. On v1 and hybrid hosts, whose tasks
// live in v1, no task has it; nor has one whose group switched the account off.
type pressure struct{ file *psi.Reader }

// openPressure finds out whether tasks have pressure files here.
func (h *Host) openPressure(m *cgroup.Mounts) {
	if m.Layout != cgroup.LayoutV2 {
		return // doctor says of which tasks there is pressure
	}
	if _, err := psi.Read(h.opt.FS, psi.CPU.Path()); err != nil {
		h.lacks("pressure (PSI) of each task", err)
		return
	}
	h.groups = m.Unified
}

// open opens the task's file, where there is none open.
func (p *pressure) open(h *Host, path string) {
	if h.groups == "" || p.file != nil {
		return
	}
	if f, err := psi.OfGroup(h.opt.FS, h.groups+path).Open(psi.CPU); err == nil {
		p.file = f
	}
}

// observe reads the task's pressure. A file that fails is opened anew at the next discovery.
func (p *pressure) observe(s *model.TaskSample) {
	if p.file == nil {
		return
	}
	if t, err := p.file.Totals(); err == nil {
		s.C[model.CountCPUStall] = model.Read(t.SomeUsec * 1000)
	} else {
		p.close()
	}
}

func (p *pressure) close() {
	if p.file != nil {
		_ = p.file.Close() // it was only read
		p.file = nil
	}
}
