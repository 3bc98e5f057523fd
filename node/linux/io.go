package linux

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/commensal-io/commensal/kernel/blkio"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/model"
)

// errDelayOff: nothing says how long threads wait for devices.
var errDelayOff = errors.New("delays are not accounted (sysctl kernel.task_delayacct=1, for processes that start after it)")

// delayAccounted asks for the sysctl of Linux 5.14; before that who has taskstats has delays.
func delayAccounted(files hostfs.FS) bool {
	text, err := files.ReadFile("/proc/sys/kernel/task_delayacct", nil)
	return errors.Is(err, fs.ErrNotExist) || err == nil && len(text) > 0 && text[0] == '1'
}

// taskIO is what a task does on block devices, and how long threads of it wait for them.
type taskIO struct {
	h        *Host
	io       *blkio.Controller // nil: there is none
	groups   string            // where groups with pressure files are; "": the delay of threads stands for it
	stat     *blkio.Reader
	pressure *psi.Reader
}

// taskIOs finds out what can be told of tasks' I/O here. Nobody looks while no policy asks.
func taskIOs(h *Host, m *cgroup.Mounts) func() taskReader {
	if !h.opt.IO {
		return nil
	}
	io, err := blkio.Open(h.opt.FS, m)
	if err != nil {
		io = nil
		h.lacks("I/O of each task", err)
	}
	groups := ""
	if m.Layout == cgroup.LayoutV2 {
		if _, err = psi.Read(h.opt.FS, psi.IO.Path()); err == nil {
			groups = m.Unified
		}
	} else {
		err = errors.New("groups of cgroup v1 have no pressure")
	}
	if groups == "" {
		if h.delayed = delayAccounted(h.opt.FS); !h.delayed {
			h.lacks("time that each task waits for I/O", fmt.Errorf("%w, and %w", err, errDelayOff))
		}
	}
	return func() taskReader { return &taskIO{h: h, io: io, groups: groups} }
}

func (t *taskIO) open(path string) {
	if t.io != nil && t.stat == nil {
		if stat, err := t.io.OpenStat(path); err == nil {
			t.stat = stat
		}
	}
	if t.groups != "" && t.pressure == nil {
		if f, err := psi.OfGroup(t.h.opt.FS, t.groups+path).Open(psi.IO); err == nil {
			t.pressure = f
		}
	}
}

// observe reads the task's I/O. Files that fail are opened anew at the next discovery.
func (t *taskIO) observe(s *model.TaskSample) {
	if t.stat != nil {
		var err error
		if t.h.devices, err = t.stat.Read(t.h.devices[:0]); err != nil {
			_ = t.stat.Close() // it was only read
			t.stat = nil
		} else {
			t.tell(s)
		}
	}
	if t.pressure != nil {
		if total, err := t.pressure.Totals(); err == nil {
			s.C[model.CountIODelay] = model.Read(total.SomeUsec * 1000)
		} else {
			_ = t.pressure.Close()
			t.pressure = nil
		}
	}
}

func (t *taskIO) tell(s *model.TaskSample) {
	bytes := uint64(0)
	for _, d := range t.h.devices {
		bytes += d.ReadBytes + d.WrittenBytes
		t.h.io = append(t.h.io, model.IOSample{
			Num: s.Num, Device: model.DeviceOf(d.Major, d.Minor), Read: d.ReadBytes, Wrote: d.WrittenBytes, Reads: d.Reads, Writes: d.Writes,
		})
	}
	s.C[model.CountIOBytes] = model.Read(bytes)
}

func (t *taskIO) close() {
	if t.stat != nil {
		_ = t.stat.Close() // it was only read
	}
	if t.pressure != nil {
		_ = t.pressure.Close()
	}
	t.stat, t.pressure = nil, nil
}
