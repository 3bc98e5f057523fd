package kernfs

import (
	"github.com/commensal-io/commensal/model"
	seam "github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin"
)

// Late has a host's moves of pages answer when the pages are there (twin.Late). Of anything but a linux.Host it returns that.
func (k *Kernel) Late(h seam.Host) seam.Host {
	if l, ok := h.(*linux.Host); ok {
		return &lateHost{Host: l, k: k, paths: map[model.TaskNum]string{}}
	}
	return h
}

type lateHost struct {
	*linux.Host
	k     *Kernel
	late  twin.Late
	paths map[model.TaskNum]string
}

// Observe implements seam.Host.
func (h *lateHost) Observe(mark model.WindowMark, snap *model.Snapshot) error {
	err := h.Host.Observe(mark, snap)
	for i := range snap.Added {
		h.paths[snap.Added[i].Num] = snap.Added[i].Path
	}
	for _, num := range snap.Removed {
		delete(h.paths, num)
	}
	return err
}

// Apply implements seam.Host.
func (h *lateHost) Apply(changes []model.Change) {
	h.Host.Apply(changes)
	for i := range changes {
		if c := &changes[i]; c.Kind == model.Stop {
			h.late.End(h.k.m, c.Target, h.k.tasks(h.paths[c.Task()])...)
		}
	}
}

// Results implements seam.Host.
func (h *lateHost) Results(dst []model.Result) []model.Result {
	from := len(dst)
	return h.late.Pass(h.k.m, h.Host.Results(dst), from)
}

// tasks returns the numbers by which the machine knows the processes of a group and below.
func (k *Kernel) tasks(path string) (list []int) {
	for _, pid := range k.PIDs(path) {
		if num, ok := k.Task(pid); ok {
			list = append(list, num)
		}
	}
	return list
}
