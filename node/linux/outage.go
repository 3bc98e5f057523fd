package linux

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxName bounds how much of a path stands in a line.
const maxName = 200

// outage is something of the whole machine that does not work for a while. The log has it
// when it begins and when it ends, whatever the reasons in between; a status has what is the
// case now.
type outage struct {
	what string // begins the line
	why  string // now; "": it works
}

// outages are those that are known of, in the order in which they first began.
type outages []outage

// set says why something does not work now, "" that it does.
func (o *outages) set(log *slog.Logger, what, why string) {
	i := slices.IndexFunc(*o, func(x outage) bool { return x.what == what })
	switch {
	case i < 0 && why == "":
		return
	case i < 0:
		i = len(*o)
		*o = append(*o, outage{what: what})
	}
	was := (*o)[i].why
	(*o)[i].why = why
	switch {
	case was == "" && why != "":
		log.Warn(what, slog.String("why", why))
	case was != "" && why == "":
		log.Info("this is over: " + what)
	}
}

// setAll is set for what is the matter with some cgroups, by the reason. The names stand in
// the reason, as many as fit a line.
func (o *outages) setAll(log *slog.Logger, what string, paths map[string][]string) {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(paths)) {
		parts = append(parts, fmt.Sprintf("%s: %s", names(paths[why]), why))
	}
	o.set(log, what, strings.Join(parts, "; "))
}

// names quotes paths for people, up to a bound: a path may hold anything, and 4 KiB of it.
func names(paths []string) string {
	var list []string
	for _, p := range paths[:min(len(paths), maxNames)] {
		if len(p) > maxName {
			p = p[:maxName] + "..."
		}
		list = append(list, strconv.Quote(p))
	}
	text := strings.Join(list, ", ")
	if n := len(paths) - maxNames; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// Warnings appends what does not work now on the whole machine, for people; what single
// tasks lack is Lacks'.
func (h *Host) Warnings(dst []string) []string {
	for _, o := range h.outages {
		if o.why != "" {
			dst = append(dst, strings.TrimSuffix(o.what, ":")+": "+o.why)
		}
	}
	return dst
}
