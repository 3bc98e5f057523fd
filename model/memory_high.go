package model

import (
	"encoding/json"
	"fmt"
	"math"
)

// NoMemoryHigh is the value of a group without a limit ("max").
const NoMemoryHigh = math.MaxInt64

// memoryHighSpec is memory.high of cgroup v2, in bytes: above it the kernel takes the group's memory back, and has threads that allocate more
// wait. Nobody is killed for it. cgroup v1 has nothing like it: its memory.soft_limit_in_bytes counts only while the machine itself is short.
var memoryHighSpec = KnobSpec{
	Name:   "memory.high",
	Takes:  [NumClaimKinds][]Class{ClaimCap: {BE}},
	Within: func(a, b Setting) bool { return a.Amount <= b.Amount },
	Show: func(s Setting) string {
		if s.Amount == NoMemoryHigh {
			return "no limit"
		}
		return fmt.Sprintf("%.0f MiB", float64(s.Amount)/(1<<20))
	},
	Encode: func(s Setting) any {
		if s.Amount == NoMemoryHigh {
			return "max"
		}
		return s.Amount
	},
	Decode: func(b []byte) (Setting, error) {
		s := HighMemory(NoMemoryHigh)
		if string(b) == `"max"` {
			return s, nil
		}
		return s, json.Unmarshal(b, &s.Amount)
	},
}

// HighMemory returns the setting of a task's memory.high, in bytes; NoMemoryHigh: none.
func HighMemory(bytes int64) Setting { return Setting{Knob: MemoryHigh, Amount: bytes} }
