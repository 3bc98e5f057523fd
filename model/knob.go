package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Scope says of what there is one knob of a kind.
type Scope uint8

// The scopes.
const (
	ScopeTask Scope = iota // a task's cgroup, with those below it
	ScopeCLOS              // a class of service: a control group of resctrl
	ScopeNUMANode
	ScopeNode // the whole machine
)

var scopeNames = [...]string{"task", "clos", "numa_node", "node"}

func (s Scope) String() string { return nameOf(scopeNames[:], uint8(s)) }

// MarshalText writes the scope's name.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a scope's name.
func (s *Scope) UnmarshalText(b []byte) error {
	return parseName(scopeNames[:], string(b), "scope", (*uint8)(s))
}

// Target is what a knob belongs to. Num counts within the scope: a task's number, a class
// of service, a NUMA node; 0 of ScopeNode.
type Target struct {
	Scope Scope   `json:"scope,omitempty"` // absent: a task
	Num   TaskNum `json:"task"`            // named after the scope that records knew first
	// Domain is, of ScopeCLOS, the cache or memory controller that the knob is for, by the
	// kernel's number: a class of service has a value for each. EveryDomain: one for all that there are.
	Domain int32 `json:"domain,omitempty"`
}

// OfTask is the target of a task's knob.
func OfTask(n TaskNum) Target { return Target{Num: n} }

// OfClass is the target of a class of service's knob in a domain.
func OfClass(class TaskNum, domain int32) Target {
	return Target{Scope: ScopeCLOS, Num: class, Domain: domain}
}

// EveryDomain is the domain of a knob that has one value for all domains of its kind.
const EveryDomain int32 = -1

// DomainName says which domain of a class of service is meant.
func (t Target) DomainName() string {
	if t.Domain == EveryDomain {
		return "every domain"
	}
	return fmt.Sprintf("domain %d", t.Domain)
}

// Task returns the task's number, 0 where the target is none.
func (t Target) Task() TaskNum {
	if t.Scope != ScopeTask {
		return 0
	}
	return t.Num
}

// Before orders targets: by scope, then by number, then by domain.
func (t Target) Before(o Target) bool {
	if t.Scope != o.Scope || t.Num != o.Num {
		return t.Scope < o.Scope || t.Scope == o.Scope && t.Num < o.Num
	}
	return t.Domain < o.Domain
}

// Name says what a target that is no task is; "" of a task, whose name its cgroup is.
func (t Target) Name() string {
	switch t.Scope {
	case ScopeTask:
		return ""
	case ScopeCLOS:
		return "class " + ClassName(t.Num) + ", " + t.DomainName()
	}
	return fmt.Sprintf("%s %d", t.Scope, t.Num)
}

// KnobKind names one kernel control. A knob is a target and a kind. What a kind is stands
// in its row of Knobs: nobody else asks which kind it is, but for the driver that writes it
// (node/linux), the simulated machine (twin) and the policy that it is for.
type KnobKind uint8

// The kinds of knob.
const (
	CPUBandwidth    KnobKind = iota // cpu_max.go
	CPUPlace                        // cpuset_cpus.go
	MemoryReclaim                   // memory_reclaim.go
	CPUWeight                       // cpu_weight.go
	ServiceClass                    // resctrl_tasks.go
	CacheWays                       // resctrl_schemata.go
	MemoryBandwidth                 // resctrl_schemata.go
	MemoryPages                     // memory_pages.go
	GroupFreeze                     // cgroup_freeze.go
	GroupKill                       // cgroup_kill.go
	IOMaxKnob                       // io_max.go
	MemoryHigh                      // memory_high.go
	L2Ways                          // resctrl_schemata.go
	NumKnobs
)

// Knobs is the one list of knobs, by kind.
var Knobs = [NumKnobs]KnobSpec{
	CPUBandwidth:  cpuMaxSpec,
	CPUPlace:      cpusetSpec,
	MemoryReclaim: memoryReclaimSpec,
	CPUWeight:     cpuWeightSpec,

	ServiceClass:    serviceClassSpec,
	CacheWays:       cacheWaysSpec,
	MemoryBandwidth: memoryBandwidthSpec,

	MemoryPages: memoryPagesSpec,
	GroupFreeze: freezingSpec,
	GroupKill:   groupKillSpec,
	IOMaxKnob:   ioMaxSpec,
	MemoryHigh:  memoryHighSpec,

	L2Ways: l2WaysSpec,
}

// KnobSpec describes a kind of knob. What is nil or zero the kind does not have.
type KnobSpec struct {
	Name  string // of the kernel's file on cgroup v2
	Scope Scope
	// Takes lists, by kind of claim, the classes of task on which policies may have one.
	Takes [NumClaimKinds][]Class
	// Suits says whether a value is for tasks of a class. nil: each is for all that Takes has.
	Suits func(Setting, Class) bool

	// Cap turns an amount, in CPU-sec/sec or in the knob's own unit, into what a cap writes.
	// Within asks whether a value leaves no more than another: caps are only ever written
	// where they leave less than what was found. Without Cap a cap writes its claim's own Value. Tighter is what leaves no more than
	// either of two values, where neither need be within the other.
	Cap     func(amount float64, periodNsec int64) Setting
	Within  func(a, b Setting) bool
	Tighter func(a, b Setting) Setting
	// CPUs is what a value lets a target use, in CPU-sec/sec, +Inf when it is no limit. nil: the
	// amount of a cap is in another unit, and takes a target no CPU that can be counted.
	CPUs func(Setting) float64
	// Raise puts the claims that let a task have more over what was found; ok is false where
	// there is no limit to be raised.
	Raise func(found Setting, claims []Claim) (v Setting, ok bool)
	// Class is the class of service that a target with a value is in. nil: the knob says nothing of classes.
	Class func(Setting) TaskNum
	// ShrinkFirst: of several changes those that only take go first, so that nobody gets
	// what another still has. A value that is not known takes, too.
	ShrinkFirst bool

	// Action: nothing stands there afterwards. A change happens once, and its result says how
	// much of it did. What cannot be undone is not journalled.
	Action bool
	// Stops: an action that may take so long that it is ended when nobody asks for it any more.
	Stops bool
	// Beside: the kernel may take seconds for it, so it is done beside the loop, and no pulse
	// waits for it. Actions are always.
	Beside bool

	// Between says whether a value can be what a crash in the midst of the writes from one
	// value to another leaves behind. nil: only the two values themselves.
	Between func(now, from, to Setting) bool
	// Show describes a value to the letter, Brief as people speak of it; nil: as Show does.
	Show, Brief func(Setting) string
	// Raised describes what a raise asks for beside what was found.
	Raised func(found, claimed Setting) string
	// Encode and Decode are the value as JSON: what stands behind "value" in a record and in
	// the journal.
	Encode func(Setting) any
	Decode func([]byte) (Setting, error)
}

// OfCgroups ranges over the kinds of knob that have a value which stands in files of a task's cgroup.
func OfCgroups(yield func(KnobKind) bool) {
	for kind := range NumKnobs {
		if !Knobs[kind].Action && !Knobs[kind].Beside && !yield(kind) {
			return
		}
	}
}

// OfTasks ranges over the kinds of knob of a task that have a value which stands.
func OfTasks(yield func(KnobKind) bool) {
	for kind := range NumKnobs {
		if Knobs[kind].Scope == ScopeTask && !Knobs[kind].Action && !yield(kind) {
			return
		}
	}
}

// Listed reports whether policies ask what the knob says of tasks of a class while nobody
// holds it: to raise it, or to have it for their own.
func (s *KnobSpec) Listed(c Class) bool {
	return !s.Beside && (slices.Contains(s.Takes[ClaimRaise], c) || slices.Contains(s.Takes[ClaimPlace], c))
}

// Owned reports whether one policy sets the knob of many tasks alike.
func (s *KnobSpec) Owned() bool { return len(s.Takes[ClaimPlace]) > 0 }

// Spec returns the kind's row. A kind that there is none of is a broken invariant of ours.
func (k KnobKind) Spec() *KnobSpec { return &Knobs[k] }

// String returns the name of the kernel's file on cgroup v2.
func (k KnobKind) String() string {
	if k < NumKnobs {
		return Knobs[k].Name
	}
	return fmt.Sprintf("unknown(%d)", uint8(k))
}

// Tightest is what leaves a target no more than either of two values of one kind.
func (s Setting) Tightest(o Setting) Setting {
	spec := s.Knob.Spec()
	switch {
	case spec.Tighter != nil:
		return spec.Tighter(s, o)
	case spec.Within(s, o):
		return s
	}
	return o
}

// MarshalText writes the kind's name.
func (k KnobKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *KnobKind) UnmarshalText(b []byte) error {
	for kind := range NumKnobs {
		if Knobs[kind].Name == string(b) {
			*k = kind
			return nil
		}
	}
	return fmt.Errorf("unknown knob %q", b)
}

// Setting is what one knob is set to. Knob says which of the others counts; the rest is
// zero, so that settings can be compared with ==.
type Setting struct {
	Knob KnobKind
	CPUMax
	CPUs CPUSet // of MemoryPages memory nodes
	IO   IOMax  // of IOMaxKnob
	// Amount is of knobs that are one number, in the unit of their kernel file.
	Amount int64
	// Pages and OlderNsec are of MemoryReclaim: which pages are meant, and for how long they were not used. Kept is of what came of it: of
	// Amount, the bytes that pages took which are gone, so much did not come free: compressed copies (zswap, zram), what a guest did not hand on.
	Pages     PageKind
	OlderNsec int64
	Kept      int64
}

// Ask is the setting of a knob of which only the kind is known, or asked about.
func Ask(kind KnobKind) Setting { return Setting{Knob: kind} }

// String describes a setting for people.
func (s Setting) String() string {
	if s.Knob < NumKnobs {
		return s.Knob.Spec().Show(s)
	}
	return s.Knob.String()
}

// Brief describes a setting as people speak of it.
func (s Setting) Brief() string {
	if s.Knob < NumKnobs && s.Knob.Spec().Brief != nil {
		return s.Knob.Spec().Brief(s)
	}
	return s.String()
}

// settingJSON is a setting in a record. Records and journals before version 3 have the
// fields of all kinds beside each other.
type settingJSON struct {
	Knob  KnobKind        `json:"knob"`
	Value json.RawMessage `json:"value,omitempty"`
}

// MarshalJSON writes {"knob": name, "value": what the kind's row encodes}.
func (s Setting) MarshalJSON() ([]byte, error) {
	value, err := json.Marshal(s.Knob.Spec().Encode(s))
	if err != nil {
		return nil, err
	}
	return json.Marshal(settingJSON{s.Knob, value})
}

// UnmarshalJSON reads a setting of any version.
func (s *Setting) UnmarshalJSON(b []byte) error {
	in := settingJSON{}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if in.Value != nil {
		v, err := in.Knob.Spec().Decode(in.Value)
		if err == nil {
			*s = v
		}
		return err
	}
	var old struct {
		CPUMax
		CPUs CPUSet `json:"cpus"`
	}
	if err := json.Unmarshal(b, &old); err != nil {
		return err
	}
	*s = Setting{Knob: in.Knob, CPUMax: old.CPUMax, CPUs: old.CPUs}
	return nil
}

// KnobReading is what a knob says now. That of a held knob differs from what we wrote when
// a stranger wrote it. Value.Knob is the kind whatever the outcome. Absent: the task is there, and the knob is
// not any more.
type KnobReading struct {
	Target
	Value   Setting `json:"value"`
	Outcome Outcome `json:"outcome"`
}

// oneNumber encodes and decodes a setting that is one number.
func oneNumber(kind KnobKind) (func(Setting) any, func([]byte) (Setting, error)) {
	decode := func(b []byte) (Setting, error) {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			return Ask(kind), fmt.Errorf("%s: %q is no number", kind, b)
		}
		return Setting{Knob: kind, Amount: n}, nil
	}
	return func(s Setting) any { return s.Amount }, decode
}
