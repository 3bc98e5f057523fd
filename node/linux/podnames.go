package linux

import (
	"fmt"
	"log/slog"

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
		why = err.Error()
	}
	if why != h.nameless {
		h.nameless = why
		if why != "" {
			h.opt.Log.Warn("the names of pods cannot be read: until they can, rules that name pods match no new cgroups", slog.String("why", fmt.Sprintf("list %s: %s", source.PodLogs, why)))
		} else {
			h.opt.Log.Info("the names of pods can be read again")
		}
	}
	entries := make([]string, 0, len(list))
	for _, e := range list {
		entries = append(entries, e.Name)
	}
	return source.ParsePodLogs(entries)
}
