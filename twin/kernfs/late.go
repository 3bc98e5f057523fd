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
		return &lateHost{Host: l, k: k}
	}
	return h
}

type lateHost struct {
	*linux.Host
	k    *Kernel
	late twin.Late
}

// Results implements seam.Host.
func (h *lateHost) Results(dst []model.Result) []model.Result {
	from := len(dst)
	return h.late.Pass(h.k.m, h.Host.Results(dst), from)
}
