package linux

import (
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// taskReader reads something of one task on descriptors that it keeps. What every task must have, and what
// is read of all tasks at once, the host reads itself.
type taskReader interface {
	// open opens what is not open. It is called at every discovery, so what fails is tried again then.
	open(path string)
	// observe adds to a sample what can be read, and leaves the rest of it Absent. It does not allocate.
	observe(s *model.TaskSample)
	close()
}

// taskReaders is the one list of them. Each says what makes a task's reader on this machine; nil: it
// has no such thing, which h.lacks told where that is worth telling.
var taskReaders = [...]func(h *Host, m *cgroup.Mounts) func() taskReader{
	pressures, inUses, taskIOs, taskHomes,
}

// openReaders finds out what tasks have here.
func (h *Host) openReaders(m *cgroup.Mounts) {
	for _, find := range taskReaders {
		if reader := find(h, m); reader != nil {
			h.readers = append(h.readers, reader)
		}
	}
}

// readersOf returns the readers of a task that is new.
func (h *Host) readersOf() []taskReader {
	list := make([]taskReader, len(h.readers))
	for i, reader := range h.readers {
		list[i] = reader()
	}
	return list
}
