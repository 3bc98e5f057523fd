package linux

import (
	"fmt"

	"github.com/commensal-io/commensal/node/source"
)

// podNames lists the names of this node's pods, where a rule asks for them. Without the
// folder such rules match nothing, which is told when it begins and when it ends: tasks
// that are watched already stay.
func (h *Host) podNames() source.Names {
	if !h.opt.Rules.NeedNames() {
		return nil
	}
	list, err := h.opt.FS.ReadDir(source.PodLogs)
	why := ""
	if err != nil {
		why = fmt.Sprintf("list %s: %v", source.PodLogs, err)
	}
	h.outages.set(h.opt.Log, "the names of pods cannot be read: until they can, rules that name pods match no new cgroups", why)
	entries := make([]string, 0, len(list))
	for _, e := range list {
		entries = append(entries, e.Name)
	}
	return source.ParsePodLogs(entries)
}
