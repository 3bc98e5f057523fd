package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// ErrNoTask: the record does not hold the task.
var ErrNoTask = errors.New("no such task")

// TaskStory is what a record says was done to one task, and why.
type TaskStory struct {
	Reading
	Task model.Task `json:"task"` // as it was last
	// FromNsec and UntilNsec are the wall times that the story covers.
	FromNsec  int64 `json:"from_wall_nsec"`
	UntilNsec int64 `json:"until_wall_nsec"`
	Ended     bool  `json:"ended,omitempty"` // the task was gone before the record's end
	// Domains is what it had of the last-level caches and moved to and from memory when that was counted last; none: it never was.
	Domains []model.DomainObservation `json:"domains,omitempty"`
	// Policies are all policies in the order in which they run, then what was decided by none.
	Policies  []PolicyStory `json:"policies"`
	Writes    []Write       `json:"writes"`    // what the kernel was told, the latest
	Incidents []TaskPart    `json:"incidents"` // oldest first
}

// Write is a knob that was written, of the task or of the class of service that it is in.
type Write struct {
	WallNsec int64         `json:"wall_nsec"`
	Of       string        `json:"of,omitempty"` // the class and the domain; "": the task
	Found    model.Setting `json:"found"`        // what stood there before our first write
	Now      model.Setting `json:"now"`          // as read back
}

// PolicyStory is what one policy did to the task.
type PolicyStory struct {
	Policy string `json:"policy"` // "operators", "detection" and "kernel" are none
	Mode   string `json:"mode,omitempty"`
	// Decisions are about the task; Node are the latest about the node as a whole, which the task
	// felt too.
	Decisions []model.Decision `json:"decisions"`
	Node      []model.Decision `json:"node,omitempty"`
	Earlier   int              `json:"earlier,omitempty"` // decisions left out, before these
}

// TaskPart is the task's part in an incident.
type TaskPart struct {
	Incident string              `json:"incident"`
	WallNsec int64               `json:"opened_wall_nsec"`
	State    model.IncidentState `json:"state"`
	Victim   string              `json:"victim"`
	Part     string              `json:"part"`            // victim, held or suspect
	Score    float64             `json:"score,omitempty"` // of a suspect, the last time
	Verdict  string              `json:"verdict,omitempty"`
}

const (
	maxTold     = 2000 // decisions about one task that are kept, by policy: hours of a busy one
	maxToldNode = 3
	maxWrites   = 500
)

// FindTask collects what a record, a folder or one segment says of a task. Only the last part
// of the record counts, which ends with its last tick; 0 stands for all of it.
func FindTask(path, task string, since time.Duration) (*TaskStory, error) {
	c := &taskCollector{path: task, by: map[string]*PolicyStory{}, parts: map[string]*TaskPart{}}
	var err error
	if c.st.Reading, err = Read(path, c.begin, c.visit); err != nil {
		return nil, err
	}
	if !c.seen {
		return nil, fmt.Errorf("%w: %q is not in %s; `commensal status` lists the tasks%s", ErrNoTask, task, path, c.st.lacks())
	}
	return c.story(since), nil
}

// taskCollector goes through a record once.
type taskCollector struct {
	path  string
	st    TaskStory
	seen  bool
	modes []engine.PolicyMode
	nums  []model.TaskNum // that the task had: its cgroup may have been made anew
	class classCollector
	by    map[string]*PolicyStory
	parts map[string]*TaskPart

	counted model.Snapshot // the last that says what tasks had of the caches; of it time and domains
	window  model.Observation
}

func (c *taskCollector) begin(_ string, r *Reader) error {
	c.nums = c.nums[:0] // another agent's, perhaps
	c.modes = engine.New(r.Header.Params).Modes()
	c.st.Ended = true
	num := model.TaskNum(0)
	if t := r.Checkpoint.Tasks.ByPath(c.path); t != nil {
		c.meet(t)
		num = t.Num
	}
	c.class.begin(&r.Checkpoint.Ledger, num)
	return nil
}

// count takes in what a reading says of what tasks have of the caches.
func (c *taskCollector) count(s *model.Snapshot) {
	model.Observe(&c.counted, &model.Snapshot{MonoNsec: s.MonoNsec, Domains: s.Domains}, &c.window)
	if list := c.window.In(c.st.Task.Num); !c.st.Ended && slices.ContainsFunc(list, func(d model.DomainObservation) bool {
		return d.Occupancy.Outcome == model.OK || d.Total.Outcome == model.OK
	}) {
		c.st.Domains = append(c.st.Domains[:0], list...)
	}
	c.counted.MonoNsec, c.counted.Domains = s.MonoNsec, append(c.counted.Domains[:0], s.Domains...)
}

func (c *taskCollector) meet(t *model.Task) {
	c.st.Task, c.seen, c.st.Ended = *t, true, false
	if !slices.Contains(c.nums, t.Num) {
		c.nums = append(c.nums, t.Num)
	}
}

func (c *taskCollector) visit(t *Tick) bool {
	c.st.FromNsec = cmp.Or(c.st.FromNsec, t.Input.WallNsec)
	c.st.UntilNsec = t.Input.WallNsec
	if s := t.Input.Snapshot; s != nil {
		for i := range s.Added {
			if s.Added[i].Path == c.path {
				c.meet(&s.Added[i])
			}
		}
		if len(s.Domains) > 0 {
			c.count(s)
		}
		if !c.st.Ended && slices.Contains(s.Removed, c.st.Task.Num) {
			c.st.Ended = true
		}
	}
	for i := range t.Input.Results {
		c.result(&t.Input.Results[i], t.Input.WallNsec)
	}
	for i := range t.Output.Decisions {
		c.take(&t.Output.Decisions[i])
	}
	for _, inc := range t.Output.Incidents {
		c.part(inc)
	}
	return true
}

// result keeps what was written to the task, and what it feels of a write to its class of service.
func (c *taskCollector) result(r *model.Result, wallNsec int64) {
	if r.Kind != model.Applied {
		return
	}
	mine := slices.Contains(c.nums, r.Task())
	if mine {
		c.st.Writes = append(c.st.Writes, Write{WallNsec: wallNsec, Found: r.Found, Now: r.Now})
	}
	c.st.Writes = append(c.st.Writes, c.class.take(r, mine, wallNsec)...)
	c.st.Writes = c.st.Writes[max(0, len(c.st.Writes)-maxWrites):]
}

// take keeps a decision that is about the task, or that it felt.
func (c *taskCollector) take(d *model.Decision) {
	mine := d.Path == c.path
	job := d.Task == 0 && c.st.Task.Job != "" && d.Path == c.st.Task.Job
	node := d.Task == 0 && !job && (d.Path == "" || d.Path[0] == '(')
	if !mine && !job && !node {
		return
	}
	name := d.By()
	p := c.by[name]
	if p == nil {
		p = &PolicyStory{Policy: name}
		c.by[name] = p
	}
	if node {
		p.Node = append(p.Node[max(0, len(p.Node)-maxToldNode+1):], *d)
		return
	}
	if len(p.Decisions) >= maxTold {
		p.Earlier += len(p.Decisions) / 2
		p.Decisions = append(p.Decisions[:0], p.Decisions[len(p.Decisions)/2:]...)
	}
	p.Decisions = append(p.Decisions, *d)
}

// part notes the task's part in an incident, as it stands now.
func (c *taskCollector) part(inc *model.Incident) {
	p := TaskPart{Incident: inc.ID, WallNsec: inc.OpenedWall, State: inc.State, Victim: inc.VictimPath}
	if inc.VictimPath == c.path {
		p.Part, p.Verdict = "victim", inc.Evidence
	}
	for i := range inc.Rounds {
		r := &inc.Rounds[i]
		for j := range r.Suspects {
			if s := &r.Suspects[j]; s.Path == c.path {
				p.Score, p.Verdict = s.Score, s.Verdict
				p.Part = cmp.Or(p.Part, "suspect")
			}
		}
		held := r.ChosenPath == c.path
		for j := range r.Members {
			held = held || r.Members[j].Path == c.path
		}
		if held {
			p.Part, p.Verdict = "held", cmp.Or(r.Verdict, p.Verdict)
		}
	}
	if p.Part != "" {
		c.parts[inc.ID] = &p
	}
}

// story puts together what was collected, of the last part of the record.
func (c *taskCollector) story(since time.Duration) *TaskStory {
	st := &c.st
	if since > 0 {
		st.FromNsec = max(st.FromNsec, st.UntilNsec-since.Nanoseconds())
	}
	st.Policies = []PolicyStory{}
	add := func(name, mode string) {
		p := c.by[name]
		if p == nil {
			p = &PolicyStory{Policy: name}
		}
		old := func(d model.Decision) bool { return d.WallNsec < st.FromNsec }
		n := len(p.Decisions)
		p.Decisions = slices.DeleteFunc(p.Decisions, old)
		if p.Decisions == nil {
			p.Decisions = []model.Decision{}
		}
		if len(p.Decisions) < n {
			p.Earlier = 0 // what was left out is older than that
		}
		p.Mode = mode
		st.Policies = append(st.Policies, *p)
	}
	for i := range c.modes {
		add(c.modes[i].Policy, c.modes[i].Configured.String())
	}
	for _, name := range []string{model.ByDetection, model.ByOperators, model.ByKernel} {
		if c.by[name] != nil {
			add(name, "")
		}
	}
	byTime(st.Writes)
	st.Writes = slices.DeleteFunc(st.Writes, func(w Write) bool { return w.WallNsec < st.FromNsec })
	if st.Writes == nil {
		st.Writes = []Write{}
	}
	st.Incidents = []TaskPart{}
	for _, p := range c.parts {
		if p.WallNsec >= st.FromNsec {
			st.Incidents = append(st.Incidents, *p)
		}
	}
	slices.SortFunc(st.Incidents, func(a, b TaskPart) int {
		return cmp.Or(cmp.Compare(a.WallNsec, b.WallNsec), cmp.Compare(a.Incident, b.Incident))
	})
	return st
}
