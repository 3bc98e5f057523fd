package model

import (
	"encoding/json"
	"fmt"
)

// Weights, on the scale of cgroup v1's cpu.shares, in which v2's cpu.weight 100 is 1024.
const (
	// WeightIdle is no weight but a policy of its own (cpu.idle, since Linux 5.15): the group
	// gets a CPU when nobody else wants it, and whoever is woken takes it away at once. It
	// is below every weight that the kernel takes.
	WeightIdle    = 1
	WeightLeast   = 2 // of cpu.shares; v2's least comes to 10
	WeightDefault = 1024
)

// cpuWeightSpec is a task's weight against its siblings: cpu.weight and cpu.idle of cgroup v2,
// cpu.shares and cpu.idle of v1. The two files are one knob, since cpu.idle = 1 makes the kernel
// forget the weight and refuse others, and cpu.idle = 0 sets it to the default.
var cpuWeightSpec = KnobSpec{
	Name:    "cpu.weight",
	Takes:   [NumClaimKinds][]Class{ClaimCap: {BE}},
	Cap:     func(weight float64, _ int64) Setting { return Weight(int64(max(weight, WeightIdle))) },
	Within:  func(a, b Setting) bool { return a.Amount <= b.Amount },
	Between: betweenCPUWeight,
	Show: func(s Setting) string {
		if s.Amount == WeightIdle {
			return "cpu.idle"
		}
		return fmt.Sprintf("weight %d (default %d)", s.Amount, WeightDefault)
	},
	Encode: func(s Setting) any {
		if s.Amount == WeightIdle {
			return "idle"
		}
		return s.Amount
	},
	Decode: func(b []byte) (Setting, error) {
		s := Ask(CPUWeight)
		if string(b) == `"idle"` {
			s.Amount = WeightIdle
			return s, nil
		}
		return s, json.Unmarshal(b, &s.Amount)
	},
}

// betweenCPUWeight: a group that was idle has the default weight before it gets another.
func betweenCPUWeight(now, from, to Setting) bool {
	return now == from || now == to || from.Amount == WeightIdle && now.Amount == WeightDefault
}

// Weight returns the setting of a task's weight, or WeightIdle.
func Weight(v int64) Setting { return Setting{Knob: CPUWeight, Amount: v} }
