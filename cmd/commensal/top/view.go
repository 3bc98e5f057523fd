// Package top is the live view of `commensal top`: the agent's status as a screen full of
// text, once a second. Render is pure: a status and a size in, lines out; Run gives it a
// terminal, keys and an agent.
package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/model"
)

// View is everything that a screen depends on.
type View struct {
	Status *agent.Status // nil: none came yet
	Now    time.Time     // shown, in its own zone
	// Lost says why the last status is not of now; "" when it is. LostSince is when the agent
	// was last heard of.
	Lost      string
	LostSince time.Time
	Columns   int
	Rows      int
	Sort      Sort
	Offset    int  // tasks that are scrolled over
	Ages      bool // how long memory lay idle, instead of signals and holds
	UTF8      bool // the terminal takes UTF-8
	// Batch: everything, as wide as it is; Columns, Rows and Offset do not count.
	Batch bool
}

// Frame is a rendered screen.
type Frame struct {
	Lines  []Line // at most View.Rows, none wider than View.Columns
	Offset int    // as it can be: View.Offset, brought within bounds
	Shown  int    // tasks on the screen, for paging
}

// Screens with fewer rows go without what is of less use than tasks.
const (
	rowsOfPolicies  = 10
	rowsOfIncidents = 18
	rowsOfFooter    = 6
)

// Render draws a screen.
func Render(v *View) Frame {
	if v.Batch {
		return v.batch()
	}
	if v.Columns < 1 || v.Rows < 1 {
		return Frame{}
	}
	var f Frame
	if v.Status == nil {
		f.Lines = v.waiting()
	} else {
		f = v.body()
	}
	f.Lines = f.Lines[:min(len(f.Lines), v.Rows)]
	for i := range f.Lines {
		f.Lines[i] = f.Lines[i].fit(v.Columns)
	}
	return f
}

// unbounded is more than any screen has.
const unbounded = 1 << 20

// batch draws a copy of the view that is as large as it needs.
func (v *View) batch() Frame {
	c := *v
	c.Offset, c.Rows, c.Columns = 0, unbounded, unbounded
	path := len("TASK")
	for i := range c.Status.Tasks {
		path = max(path, width(cli.Clean(c.Status.Tasks[i].Path, c.UTF8)))
	}
	_, left := c.visible(unbounded)
	lines := c.head()
	c.Columns += path - left
	lines = append(lines, c.header())
	_, shown, tasks := c.tasks(c.list(), unbounded)
	lines = append(lines, tasks...)
	return Frame{Lines: append(lines, c.incidents(unbounded)...), Shown: shown}
}

func (v *View) waiting() []Line {
	lines := []Line{{{"commensal top  ", Bold}, {v.Now.Format(time.TimeOnly), Plain}}}
	if v.Lost != "" {
		lines = append(lines, Line{{"NO AGENT: " + cli.Clean(v.Lost, v.UTF8), Bad}}, Line{{"it is tried again; q quits", Plain}})
	}
	return lines
}

// body puts head, tasks, incidents and footer together; tasks get what the others leave.
func (v *View) body() Frame {
	head := v.head()
	var tail []Line
	if v.Rows >= rowsOfIncidents {
		tail = v.incidents((v.Rows - rowsOfIncidents + 6) / 4)
	}
	footer := 0
	if v.Rows >= rowsOfFooter {
		footer = 1
	}
	list := v.list()
	room := max(v.Rows-len(head)-len(tail)-footer-1, 0) // 1: the table's header
	f := Frame{Lines: append(head, v.header())}
	first, shown, lines := v.tasks(list, room)
	f.Offset, f.Shown = first, shown
	f.Lines = append(f.Lines, lines...)
	for len(f.Lines) < v.Rows-len(tail)-footer {
		f.Lines = append(f.Lines, Line{})
	}
	f.Lines = append(f.Lines, tail...)
	if footer > 0 {
		f.Lines = append(f.Lines, v.footer(first, shown, len(list)))
	}
	return f
}

// head is the node: who is asked, what is wrong, load, and how far policies may go.
func (v *View) head() []Line {
	st := v.Status
	lines := []Line{{
		{"commensal ", Bold},
		{fmt.Sprintf("%s %s  %s  up %s", cli.Clean(st.Version, v.UTF8), st.Profile, v.Now.Format(time.TimeOnly), uptime(v.Now.Sub(st.StartedAt))), Plain},
	}}
	lines = append(lines, v.alerts()...)
	lines = append(lines, v.load())
	if v.Rows >= rowsOfPolicies {
		lines = append(lines, v.policies()...)
		if v.Ages && told(st) {
			lines = append(lines, v.legend()...)
		}
	}
	return lines
}

// uptime prints a duration in two units.
func uptime(d time.Duration) string {
	m := int(max(d, 0) / time.Minute)
	switch {
	case m < 1:
		return fmt.Sprintf("%ds", int(max(d, 0)/time.Second))
	case m < 60:
		return fmt.Sprintf("%dm", m)
	case m < 24*60:
		return fmt.Sprintf("%dh%02dm", m/60, m%60)
	}
	return fmt.Sprintf("%dd%02dh", m/(24*60), m/60%24)
}

// alerts are what an operator must not miss, a line each.
func (v *View) alerts() []Line {
	st := v.Status
	var list []string
	if v.Lost != "" {
		list = append(list, fmt.Sprintf("NO AGENT for %.0f s: %s; what follows is old", v.Now.Sub(v.LostSince).Seconds(), v.Lost))
	}
	if st.KillSwitch {
		list = append(list, "KILL SWITCH: everything is released, nothing is held")
	}
	protect := func(off []string, where string) {
		jobs := strings.Join(off, ", ")
		if slices.Contains(off, "") {
			jobs = "all jobs"
		}
		if len(off) > 0 {
			list = append(list, "PROTECTION OFF"+where+" for "+jobs)
		}
	}
	protect(st.ProtectOff, "")
	if st.Fleet != nil {
		var off []string
		for i := range st.Fleet.ProtectOff {
			off = append(off, st.Fleet.ProtectOff[i].Job)
		}
		protect(off, " IN THE WHOLE FLEET")
	}
	if n := len(st.Warnings); n == 1 {
		list = append(list, "WARNING: "+st.Warnings[0])
	} else if n > 1 {
		list = append(list, fmt.Sprintf("%d WARNINGS (commensal status): %s", n, st.Warnings[n-1]))
	}
	lines := make([]Line, len(list))
	for i, text := range list {
		lines[i] = Line{{cli.Clean(text, v.UTF8), Bad}}
	}
	return lines
}

// load is who uses the CPUs.
func (v *View) load() Line {
	n := &v.Status.Node
	if n.CPUs == 0 {
		return Line{{"no sampling window was closed yet", Plain}}
	}
	busy := "busy -"
	if n.Busy.Outcome == model.OK {
		busy = fmt.Sprintf("busy %.2f (%.0f%%)", n.Busy.V, 100*n.Busy.V/float64(n.CPUs))
	}
	line := Line{{fmt.Sprintf("%d CPUs ", n.CPUs), Plain}, {busy, Bold}, {fmt.Sprintf("  LC %.2f  BE %.2f", n.LC, n.BE), Plain}}
	if n.Other.Outcome == model.OK {
		line = append(line, Span{fmt.Sprintf("  other %.2f", n.Other.V), Plain})
	}
	if n.Steal.Outcome == model.OK && n.Steal.V >= 0.005 {
		line = append(line, Span{fmt.Sprintf("  steal %.2f", n.Steal.V), Bad})
	}
	return line
}

// memoryText is how a memory domain fares.
func memoryText(m *agent.MemoryStatus) string {
	text := fmt.Sprintf("memory %d: U not known", m.Domain)
	if m.Utilisation.Outcome == model.OK {
		text = fmt.Sprintf("memory %d: U %.0f%% of %.0f GB/s", m.Domain, 100*m.Utilisation.V, m.Peak/1e9)
	}
	if m.BE.Outcome == model.OK {
		text += fmt.Sprintf(", BE %.0f", m.BE.V/1e9)
	}
	if m.Latency.Outcome == model.OK {
		text += fmt.Sprintf(", %.0f ns", m.Latency.V)
	}
	if m.Limited {
		text += fmt.Sprintf(", BE at level %d", m.Level)
	}
	return text
}

// policies says each policy's mode, and what it would be without kill switch and the like.
func (v *View) policies() []Line {
	var parts, notes []string
	for _, p := range v.Status.Policies {
		text := p.Name + " " + p.Now.String()
		if p.Now != p.Mode {
			text += " (set: " + p.Mode.String() + ")"
		}
		parts = append(parts, text)
		if p.Note != "" {
			notes = append(notes, p.Name+": "+p.Note)
		}
	}
	if pool := v.Status.Node.Pool; pool.Utilisation.Outcome == model.OK {
		text := fmt.Sprintf("pool: U %.0f%% of %.0f%%", 100*pool.Utilisation.V, 100*pool.Limit)
		if pool.Utilisation.V > pool.Limit {
			text += " HIGH"
		}
		if !pool.CPUs.Empty() {
			text += " on CPUs " + pool.CPUs.String()
		}
		notes = append(notes, text)
	}
	for i := range v.Status.Node.Memory {
		notes = append(notes, memoryText(&v.Status.Node.Memory[i]))
	}
	for _, s := range v.Status.SLO {
		if s.Text != "" {
			notes = append(notes, s.Job+" "+s.Text)
			continue
		}
		notes = append(notes, fmt.Sprintf("%s p99 %.3g ms (%s)", s.Job, s.P99*1e3, s.State))
	}
	lines := []Line{{{strings.Join(parts, "  "), Plain}}}
	if len(notes) > 0 {
		lines = append(lines, Line{{cli.Clean(strings.Join(notes, "  "), v.UTF8), Plain}})
	}
	return lines
}

// list is what the table has: in the view of ages nothing where nobody tells any.
func (v *View) list() []row {
	if v.Ages && !told(v.Status) {
		return nil
	}
	return rows(v.Status, v.Sort)
}

func (v *View) header() Line {
	list, path := v.visible(v.Columns)
	text := pad("TASK", path, false)
	for _, c := range list {
		text += " " + pad(c.name, c.width, c.right)
	}
	return Line{{pad(text, v.Columns, false), Header}}
}

// tasks draws as many tasks as there is room for, from the offset on. A task of which what is under it does
// not fit any more is drawn as far as it does.
func (v *View) tasks(list []row, room int) (first, shown int, lines []Line) {
	if len(list) == 0 && room > 0 {
		lines = v.nothing()
		return 0, 0, lines[:min(len(lines), room)]
	}
	columns, path := v.visible(v.Columns)
	under := func(r *row) []Line {
		switch {
		case !v.Ages:
			return v.claims(r)
		case r.Idle == nil:
			return nil
		}
		return []Line{v.task(&row{TaskStatus: r.TaskStatus, pages: model.FilePages}, columns, path)}
	}
	height := func(r *row) int { return 1 + len(under(r)) }
	// The last page is full.
	last, used := len(list), 0
	for last > 0 && used+height(&list[last-1]) <= room {
		used += height(&list[last-1])
		last--
	}
	first = max(0, min(v.Offset, last, len(list)-1))
	for i := first; i < len(list) && len(lines) < room; i++ {
		lines = append(lines, v.task(&list[i], columns, path))
		shown++
		lines = append(lines, under(&list[i])...)
	}
	return first, shown, lines[:min(len(lines), room)]
}

// claims are a task's, each in one line or two: the end of the first is the reason.
func (v *View) claims(r *row) []Line {
	var lines []Line
	for _, text := range r.claims() {
		lines = append(lines, v.wrap("  - ", "    ", cli.Clean(text, v.UTF8), Held)...)
	}
	return lines
}

// wrap draws a clean text behind a mark, in two lines where it is long and the screen is not low.
func (v *View) wrap(first, second, text string, style Style) []Line {
	room := v.Columns - len(first)
	if width(text) <= room || v.Rows < rowsOfIncidents {
		return []Line{{{first, Plain}, {text, style}}}
	}
	begin := cut(text, room)
	if i := strings.LastIndexByte(begin, ' '); i > room/2 {
		begin = begin[:i]
	}
	rest := strings.TrimPrefix(text[len(begin):], " ")
	return []Line{{{first, Plain}, {begin, style}}, {{second, Plain}, {rest, style}}}
}

func (v *View) task(r *row, columns []column, path int) Line {
	name := elide(cli.Clean(r.Path, v.UTF8), path)
	if r.pages == model.FilePages { // under the task's first line
		name = ""
	}
	line := Line{{pad(name, path, false), Plain}}
	for _, c := range columns {
		text, style := c.cell(r)
		text = shorten(text, c.width)
		line = append(line, Span{" ", Plain}, Span{pad(text, c.width, c.right), style})
	}
	return line
}

// incidents are the latest ones in a few words, newest first.
func (v *View) incidents(most int) []Line {
	list := v.Status.Incidents
	if len(list) == 0 || most < 2 {
		return nil
	}
	head := "INCIDENTS (commensal explain ID)"
	if !v.Batch {
		head = pad(head, v.Columns, false)
	}
	lines := []Line{{{head, Header}}}
	for i := len(list) - 1; i >= 0 && len(lines) < most; i-- {
		inc := list[i]
		style := Dim
		if inc.State.Open() {
			style = Plain
		}
		lines = append(lines, Line{{cli.Clean(incidentText(inc, v.Columns), v.UTF8), style}})
	}
	return lines
}

// incidentText says when, who suffered, from whom, and what became of it.
func incidentText(inc *model.Incident, columns int) string {
	who := "nobody held"
	if n := len(inc.Rounds); n > 0 {
		r := &inc.Rounds[n-1]
		switch {
		case len(r.Members) > 0:
			who = fmt.Sprintf("%d held together", len(r.Members))
		case r.ChosenPath != "":
			who = "by " + elide(r.ChosenPath, max(12, columns/4))
		}
	}
	text := fmt.Sprintf("%s %s %s %.2f/%.2f %s: %s", inc.ID, elide(inc.VictimPath, max(12, columns/4)), inc.Source, inc.Signal, inc.Threshold, who, inc.State)
	if inc.Evidence != "" {
		text += " (" + inc.Evidence + ")"
	}
	return text
}

// footer says the keys, shorter where there is no room, and what is shown of how many.
func (v *View) footer(first, shown, all int) Line {
	what := fmt.Sprintf("%d-%d of %d by %s", min(first+1, all), first+shown, all, v.Sort)
	keys := "q quit  a ages  c cpu  s signal  t throttled  n name  i idle  arrows PgUp PgDn scroll"
	switch {
	case v.Columns < 50:
		keys = "q a c s t n"
	case v.Ages:
		keys = "q quit  a tasks  sort: i idle c cpu n name"
	case v.Columns < 120:
		keys = "q quit  a ages  sort: c cpu s signal t throt n name"
	}
	return Line{{keys, Dim}, {strings.Repeat(" ", max(2, v.Columns-width(keys)-width(what))), Plain}, {what, Plain}}
}
