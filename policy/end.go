package policy

import (
	"slices"

	"github.com/commensal-io/commensal/model"
)

// The end of a task's processes, for policies whose last means it is. There is no way back from it.

// Who may be ended: best-effort tasks of that importance, and below. Critical ones never are.
const (
	EndNobody     = "nobody"
	EndBestEffort = "best-effort"
	EndBatch      = "batch"
)

// EndWords are the words of a configuration for who may be ended.
func EndWords() []string { return []string{EndNobody, EndBestEffort, EndBatch} }

// MayEnd reports whether a configuration gives a task up.
func MayEnd(end string, t *model.Task) bool {
	switch end {
	case EndBestEffort:
		return t.Class == model.BE && t.Importance == model.BestEffort
	case EndBatch:
		return t.Class == model.BE && (t.Importance == model.BestEffort || t.Importance == model.Batch)
	}
	return false
}

// Until is a task that is left alone up to a time, monotonic.
type Until struct {
	Num       model.TaskNum `json:"task"`
	UntilNsec int64         `json:"until_nsec"`
}

// Ender is what a policy remembers of tasks that it ends.
type Ender struct {
	EndedNsec int64           `json:"ended_nsec,omitempty"` // when tasks were last told to end; 0: never
	Ending    []model.TaskNum `json:"ending,omitempty"`     // they
	Outlived  []Until         `json:"outlived,omitempty"`   // tasks that were and are there still
}

// Outlive takes in who was told to end and is there all the same, because the kernel refused or for what its processes do there: it is not told
// again until a time, and others are. there says whether a task still has what its end was for.
func (s *Ender) Outlive(v *View, there func(model.TaskNum) bool, untilNsec int64) {
	s.Outlived = slices.DeleteFunc(s.Outlived, func(d Until) bool { return v.NowNsec >= d.UntilNsec })
	s.Ending = slices.DeleteFunc(s.Ending, func(num model.TaskNum) bool {
		if v.Pending(num, model.GroupKill) {
			return false
		}
		if v.Task(num) != nil && there(num) {
			s.Outlived = append(s.Outlived, Until{Num: num, UntilNsec: untilNsec})
		}
		return true
	})
}

// CanEnd reports whether a task can be told to end. What stands against it is said once.
func (s *Ender) CanEnd(t *TaskView, w *Wishes) bool {
	if word, why := t.Closed(model.GroupKill); word != "" {
		w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: t.Task.Num, Path: t.Task.Path, Reason: why})
		return false
	}
	return !t.Knobs[model.GroupKill].Pending && !slices.ContainsFunc(s.Outlived, func(d Until) bool { return d.Num == t.Task.Num })
}

// WishEnds wishes for the ends that were decided on at this step, and for those that are on their way.
func (s *Ender) WishEnds(v *View, w *Wishes, reason string, holdNsec int64) {
	for _, num := range s.Ending {
		if s.EndedNsec == v.NowNsec || v.Pending(num, model.GroupKill) {
			w.Claims = append(w.Claims, model.Claim{Target: model.OfTask(num), Kind: model.ClaimRun, Value: model.End(0), Reason: reason, HoldNsec: holdNsec})
		}
	}
}
