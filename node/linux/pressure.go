package linux

import (
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/model"
)

// pressure is how long threads of a task waited for a CPU (PSI, "some"), by the kernel's own
// account of its group, which it keeps on cgroup v2 alone. On v1 and hybrid hosts, whose tasks
// live in v1, no task has it; nor has one whose group switched the account off.
type pressure struct {
	fs     hostfs.FS
	groups string // where groups with pressure files are
	file   *psi.Reader
}

// pressures finds out whether tasks have pressure files here.
func pressures(h *Host, m *cgroup.Mounts) func() taskReader {
	if m.Layout != cgroup.LayoutV2 {
		return nil // doctor says of which tasks there is pressure
	}
	if _, err := psi.Read(h.opt.FS, psi.CPU.Path()); err != nil {
		h.lacks("pressure (PSI) of each task", err)
		return nil
	}
	return func() taskReader { return &pressure{fs: h.opt.FS, groups: m.Unified} }
}

func (p *pressure) open(path string) {
	if p.file != nil {
		return
	}
	if f, err := psi.OfGroup(p.fs, p.groups+path).Open(psi.CPU); err == nil {
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
