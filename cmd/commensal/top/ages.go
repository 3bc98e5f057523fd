package top

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/model"
)

// The view of ages is figure 6 of Alibaba's paper (§3.2) by task: how much of a task's memory lay idle for how long, a line
// for anonymous pages and one for file pages. Shares are cumulative, as what the kernel tells is a lower bound: the
// difference of two would bound nothing.

// ageNeeds is the width of the screen from which on each of model.AgeEdges has a column: those that pages are taken by first.
var ageNeeds = [model.NumAgeEdges]int{104, 80, 72, 104, 104, 60, 36, 66, 36, 104, 54, 40}

// ageColumns are those of the view of ages.
var ageColumns = func() []column {
	list := []column{{"PAGES", 5, false, 26, pages}, {"MiB", 7, true, 68, inUse}}
	for k, edge := range model.AgeEdges {
		list = append(list, column{ageName(edge / 1e9), 3, true, ageNeeds[k], func(r *row) (string, Style) { return r.older(k) }})
	}
	return append(list, column{"MAY GO", 7, true, 78, mayGo})
}()

// ageName is an age in three letters.
func ageName(seconds int64) string {
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds%3600 != 0:
		return fmt.Sprintf("%dm", seconds/60)
	}
	return fmt.Sprintf("%dh", seconds/3600)
}

func pages(r *row) (string, Style) {
	switch {
	case r.Idle == nil:
		return "-", Dim
	case r.pages == model.FilePages:
		return "file", Plain
	}
	return "anon", Plain
}

// inUse is what a task had when its ages were read, once for both lines.
func inUse(r *row) (string, Style) {
	switch {
	case r.pages == model.FilePages:
		return "", Plain
	case r.Idle == nil || r.Idle.InUse <= 0:
		return "-", Dim
	}
	return strconv.FormatFloat(r.Idle.InUse/(1<<20), 'f', 0, 64), Plain
}

// older is the share of a task's memory that lay idle for as long as an edge, or longer.
func (r *row) older(edge int) (string, Style) {
	if r.Idle == nil || r.Idle.InUse <= 0 {
		return "-", Dim
	}
	switch share := 100 * float64(r.Idle.Ages.Of(r.pages)[edge]) / r.Idle.InUse; {
	case share == 0:
		return "0", Dim
	case share < 1:
		return "<1", Plain
	default:
		return strconv.FormatFloat(min(share, 999), 'f', 0, 64), Plain
	}
}

// mayGo is what could be given back of one kind of pages, by the configured ages.
func mayGo(r *row) (string, Style) {
	switch {
	case r.Idle == nil:
		return "-", Dim
	case r.pages == model.FilePages:
		return strconv.FormatInt(r.Idle.File>>20, 10), Plain
	}
	return strconv.FormatInt(r.Idle.Anon>>20, 10), Plain
}

// told reports whether ages of any task were read.
func told(st *agent.Status) bool {
	return slices.ContainsFunc(st.Tasks, func(t agent.TaskStatus) bool { return t.Idle != nil })
}

// legend says what the figures of the view of ages are.
func (v *View) legend() []Line {
	lines := []Line{{{"% of a task's memory in pages not used for so long, or longer, as last read", Plain}}}
	if why := v.Status.Node.NoAges; why != "" {
		lines = append(lines, Line{{cli.Clean("of guests alone: "+why, v.UTF8), Plain}})
	}
	return lines
}

// nothing says why the table is empty.
func (v *View) nothing() []Line {
	text := "(no cgroup matches a rule under tasks)"
	if st := v.Status; len(st.Tasks) > 0 {
		if text = "(how long pages lay idle was not read of any task yet)"; st.Node.NoAges != "" {
			text = "(nobody tells how long pages lay idle: " + st.Node.NoAges + ")"
		}
	}
	return v.wrap("", "", cli.Clean(text, v.UTF8), Plain)
}
