package linux

import (
	"errors"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
)

// Homes reads where the pages of cgroups lie (model.PageHomes): memory.numa_stat, for which the kernel sums a group up.
type Homes struct {
	fs   hostfs.FS
	root string // of the groups
	v1   bool
}

// OpenHomes finds out whether that can be told here; nil without an error: there is one memory node.
func OpenHomes(files hostfs.FS, m *cgroup.Mounts) (*Homes, error) {
	nodes, err := numa.ReadTopology(files)
	if err != nil || len(nodes.MemoryNodes()) < 2 {
		return nil, err
	}
	h := &Homes{files, m.Unified, m.V1[cgroup.Memory] != ""}
	if h.v1 {
		h.root = m.V1[cgroup.Memory]
	}
	if h.root == "" {
		return nil, errors.New("there is no memory controller")
	}
	return h, nil
}

// Of reads where the pages of a cgroup lie.
func (h *Homes) Of(path string) (model.PageHomes, error) {
	r := homesReader{homes: h, path: path}
	defer r.close()
	return r.read()
}

// homesReader is of one task: read once a window of an LC task.
type homesReader struct {
	h     *Host
	homes *Homes
	path  string
	v2    *numa.MemoryNumaStatReader
	old   *numa.MemoryNumaStatV1Reader
}

// taskHomes makes such readers while a policy asks.
func taskHomes(h *Host, m *cgroup.Mounts) func() taskReader {
	if !h.opt.Homes {
		return nil
	}
	homes, err := OpenHomes(h.opt.FS, m)
	if err != nil {
		h.lacks("memory nodes of each task's pages", err)
	}
	if homes == nil {
		return nil
	}
	return func() taskReader { return &homesReader{h: h, homes: homes} }
}

func (r *homesReader) open(path string) { r.path = path }

// observe reads where the pages lie. A file that fails is opened anew in the next window.
func (r *homesReader) observe(s *model.TaskSample) {
	if !r.h.homesNow {
		return
	}
	if w := r.h.find(s.Num); w == nil || w.task.Class != model.LC {
		return
	}
	at, err := r.read()
	if err != nil {
		r.close()
		return
	}
	at.Num = s.Num
	r.h.homesOf = append(r.h.homesOf, at)
}

// read opens what is not open. Of cgroup v1 all counts that the group is charged for, since it does not tell what of files is mapped.
func (r *homesReader) read() (at model.PageHomes, err error) {
	dir := r.homes.root + r.path
	if r.homes.v1 {
		if r.old == nil {
			if r.old, err = numa.OpenMemoryNumaStatV1(r.homes.fs, dir); err != nil {
				return at, err
			}
		}
		stat, err := r.old.Read()
		if err != nil {
			return at, err
		}
		return addHomes(at, stat.Hierarchical.TotalPages, pageBytes), nil
	}
	if r.v2 == nil {
		if r.v2, err = numa.OpenMemoryNumaStat(r.homes.fs, dir); err != nil {
			return at, err
		}
	}
	stat, err := r.v2.Read()
	if err != nil {
		return at, err
	}
	return addHomes(addHomes(at, stat.AnonBytes, 1), stat.FileMappedBytes, 1), nil
}

// addHomes adds counts of so many bytes each.
func addHomes(at model.PageHomes, counts numa.Counts, unit uint64) model.PageHomes {
	for _, c := range counts {
		for len(at.Bytes) <= c.Node {
			at.Bytes = append(at.Bytes, 0)
		}
		at.Bytes[c.Node] += c.Count * unit
	}
	return at
}

func (r *homesReader) close() {
	if r.v2 != nil {
		_ = r.v2.Close() // it was only read
		r.v2 = nil
	}
	if r.old != nil {
		_ = r.old.Close()
		r.old = nil
	}
}
