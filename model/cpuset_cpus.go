package model

import "encoding/json"

// cpusetSpec is the CPUs on which a task may run, as they were written: none, on cgroup v2,
// is what the group above has.
var cpusetSpec = KnobSpec{
	Name:        "cpuset.cpus",
	Takes:       [NumClaimKinds][]Class{ClaimPlace: {LC, BE}},
	ShrinkFirst: true,
	Within: func(a, b Setting) bool {
		return b.CPUs.Empty() || a.CPUs.Within(b.CPUs)
	},
	// Groups below may keep the old CPUs for a moment, and the one above both then.
	Between: func(now, from, to Setting) bool {
		return now == from || now == to || now.CPUs == from.CPUs.Or(to.CPUs)
	},
	Show: func(s Setting) string {
		if s.CPUs.Empty() {
			return "CPUs of the group above"
		}
		return "CPUs " + s.CPUs.String()
	},
	Encode: func(s Setting) any { return s.CPUs },
	Decode: func(b []byte) (Setting, error) {
		s := Ask(CPUPlace)
		return s, json.Unmarshal(b, &s.CPUs)
	},
}

// Place returns the setting of a task's CPUs.
func Place(cpus CPUSet) Setting { return Setting{Knob: CPUPlace, CPUs: cpus} }
