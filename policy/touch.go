package policy

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// Touch is the last time that somebody changed a knob of a task, as it was read back.
type Touch struct {
	Task   model.TaskNum    `json:"task,omitempty"` // 0: of whatever there is
	By     string           `json:"by"`             // a policy, or who else does such things, in words
	Knob   model.KnobKind   `json:"knob,omitempty"`
	Did    model.ChangeKind `json:"did"`
	AtNsec int64            `json:"at_nsec"` // monotonic
}

// Disturbed says why nothing can be concluded for some tasks, of which one is a service, from what was seen since a time: somebody other than
// the policy that asks changed something of them (OthersDid), or has one of them frozen; "": nothing speaks against it.
func (v *View) Disturbed(me string, sinceNsec int64, tasks ...model.TaskNum) (why string, stays bool) {
	why, stays = v.OthersDid(me, sinceNsec, tasks...)
	for _, num := range tasks {
		if v.Frozen(num) {
			return cmp.Or(why, v.Table.Name(num)+" is frozen"), true
		}
	}
	return why, stays
}

// OthersDid says what somebody other than the policy that asks changed of some tasks since a time; "": nothing. Who freezes anybody, or ends it,
// does it for the whole machine. It stays where it was no action: then what was before is not to be compared with what comes.
func (v *View) OthersDid(me string, sinceNsec int64, tasks ...model.TaskNum) (what string, stays bool) {
	for i := range v.Touched {
		t := &v.Touched[i]
		all := t.Task == 0 || t.Knob == model.GroupFreeze || t.Knob == model.GroupKill
		if t.By != me && t.AtNsec > sinceNsec && (all || slices.Contains(tasks, t.Task)) {
			if what == "" || !stays && t.Did != model.Run {
				what, stays = t.By+" "+t.text(v), t.Did != model.Run
			}
		}
	}
	return what, stays
}

// Frozen reports whether somebody has a task frozen.
func (v *View) Frozen(num model.TaskNum) bool {
	t := v.Task(num)
	return t != nil && t.Knobs[model.GroupFreeze].Ours && t.Knobs[model.GroupFreeze].Now == model.Freeze(true)
}

// text says what was done.
func (t *Touch) text(v *View) string {
	name := v.Table.Name(t.Task)
	switch {
	case t.Task == 0:
		return "came"
	case t.Knob == model.GroupFreeze && t.Did == model.Release:
		return "let " + name + " go on"
	case t.Knob == model.GroupFreeze:
		return "froze " + name
	case t.Knob == model.GroupKill:
		return "ended " + name
	case t.Knob == model.MemoryReclaim:
		return "took memory of " + name + " back"
	case t.Knob == model.MemoryPages:
		return "moved pages of " + name
	}
	return "changed " + t.Knob.String() + " of " + name
}
