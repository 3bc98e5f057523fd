package model

import "fmt"

// Class is how a task stands towards others. The zero value is System: a task that
// nobody classified is neither protected nor held back.
type Class uint8

// The classes.
const (
	System Class = iota
	LC           // latency-critical: protected, never held back
	BE           // best-effort: the only class that is ever held back
)

var classNames = [...]string{"system", "LC", "BE"}

func (c Class) String() string { return nameOf(classNames[:], uint8(c)) }

// MarshalText writes the class's name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a class's name.
func (c *Class) UnmarshalText(b []byte) error {
	return parseName(classNames[:], string(b), "class", (*uint8)(c))
}

// Importance orders BE jobs: how hard a cap they take and who is held back first.
type Importance uint8

// The levels. CPI² §5 caps low-importance ("best effort") batch jobs at 0.01
// CPU-sec/sec and other job types at 0.1.
const (
	Batch      Importance = iota // capped at the quota of "other job types"
	BestEffort                   // capped hardest
	Critical                     // held back last
)

var importanceNames = [...]string{"batch", "best-effort", "critical"}

func (i Importance) String() string { return nameOf(importanceNames[:], uint8(i)) }

// MarshalText writes the importance's name.
func (i Importance) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText reads an importance's name.
func (i *Importance) UnmarshalText(b []byte) error {
	return parseName(importanceNames[:], string(b), "importance", (*uint8)(i))
}

// TaskNum numbers the tasks that one agent has seen, in order of discovery. It is
// never reused: the same path made anew is a new task (DESIGN.md, decision 4).
type TaskNum uint32

// Pseudo-suspects: CPU that no task of ours used, and time that the hypervisor took.
// They can be named but never held back.
const (
	NumUnmanaged TaskNum = 0xffff_fffe
	NumSteal     TaskNum = 0xffff_ffff
)

// Task is one cgroup on this node, with what the configuration says of it.
type Task struct {
	Num        TaskNum    `json:"num"`
	Path       string     `json:"path"`  // cgroup path below the hierarchy's root
	Inode      uint64     `json:"inode"` // of its directory in the cpu hierarchy
	Job        string     `json:"job"`
	Class      Class      `json:"class"`
	Importance Importance `json:"importance"`
	Production bool       `json:"production"`
	// Eligible marks a task that is protected although it is not LC (CPI² §5:
	// "explicitly marked as eligible").
	Eligible bool `json:"eligible"`
	// Exclusive marks an LC task that keeps physical cores of its own (Alibaba, section
	// 4.1); all other LC tasks are of the shared pool. Cores is how many, 0: as many as its
	// quota comes to.
	Exclusive bool `json:"exclusive,omitempty"`
	Cores     int  `json:"cores,omitempty"`
	// Size is which of its job's sizes the task has: what it was given, as the configuration says. Tasks of two sizes differ in what is
	// normal of them. "": it is not told.
	Size string `json:"size,omitempty"`
	// CPUs is how many logical CPUs the task may run on; 0 when that is not known.
	CPUs int `json:"cpus"`
	// Guest says where the guest of a task that is a virtual machine is asked for its idle memory; "": it is none.
	Guest string `json:"guest,omitempty"`
}

// Protected reports whether the task may be the victim on whose behalf others are held.
func (t *Task) Protected() bool { return t.Class == LC || t.Eligible }

func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}
