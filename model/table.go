package model

import (
	"cmp"
	"fmt"
	"slices"
)

// TaskTable holds the tasks present, ordered by number.
type TaskTable struct {
	Tasks []Task `json:"tasks"`
}

// Get returns a task, nil when it is not (or no longer) here. The pointer is good until
// the table changes.
func (t *TaskTable) Get(n TaskNum) *Task {
	i, ok := t.find(n)
	if !ok {
		return nil
	}
	return &t.Tasks[i]
}

func (t *TaskTable) find(n TaskNum) (int, bool) {
	return slices.BinarySearchFunc(t.Tasks, n, func(a Task, n TaskNum) int { return cmp.Compare(a.Num, n) })
}

// ByPath returns the task at a cgroup path, nil when there is none.
func (t *TaskTable) ByPath(path string) *Task {
	for i := range t.Tasks {
		if t.Tasks[i].Path == path {
			return &t.Tasks[i]
		}
	}
	return nil
}

// Add takes a task in; a number that is already there is replaced.
func (t *TaskTable) Add(task Task) {
	i, ok := t.find(task.Num)
	if ok {
		t.Tasks[i] = task
		return
	}
	t.Tasks = slices.Insert(t.Tasks, i, task)
}

// Remove drops a task and reports whether it was there.
func (t *TaskTable) Remove(n TaskNum) bool {
	i, ok := t.find(n)
	if ok {
		t.Tasks = slices.Delete(t.Tasks, i, i+1)
	}
	return ok
}

// NameOf returns what people call a target: a task by its name, and its own class by that.
func (t *TaskTable) NameOf(of Target) string {
	switch task := Alone(of.Num); {
	case of.Scope == ScopeTask:
		return t.Name(of.Num)
	case of.Scope == ScopeCLOS && task != 0:
		return fmt.Sprintf("class of %s, %s", t.Name(task), of.DomainName())
	}
	return of.Name()
}

// Name returns what people call a task or pseudo-suspect.
func (t *TaskTable) Name(n TaskNum) string {
	switch n {
	case NumUnmanaged:
		return "(unmanaged CPU)"
	case NumSteal:
		return "(steal)"
	}
	if task := t.Get(n); task != nil {
		return task.Path
	}
	return fmt.Sprintf("(gone task %d)", n)
}
