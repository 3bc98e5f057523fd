package model

import (
	"encoding/json"
	"fmt"

	"github.com/commensal-io/commensal/cpus"
)

// memoryPagesSpec is on which memory nodes a task's pages lie: those on some nodes are moved to the others until so many
// per mille are left there (BALM §III-D; move_pages(2)). It is an action: the kernel holds nothing
// afterwards, new pages go where they went before, and back is the same with other shares.
var memoryPagesSpec = KnobSpec{
	Name: "move_pages", Action: true, Stops: true,
	Takes: [NumClaimKinds][]Class{ClaimRun: {BE}},
	Show: func(s Setting) string {
		if s.CPUs.Empty() {
			return "its pages where they are"
		}
		return fmt.Sprintf("%g %% of its pages on node %s", float64(s.Amount)/10, s.CPUs)
	},
	Encode: func(s Setting) any { return pagesJSON{s.CPUs, s.Amount} },
	Decode: func(b []byte) (Setting, error) {
		var j pagesJSON
		err := json.Unmarshal(b, &j)
		return Setting{Knob: MemoryPages, CPUs: j.Nodes, Amount: j.PerMille}, err
	},
}

type pagesJSON struct {
	Nodes    CPUSet `json:"nodes"`
	PerMille int64  `json:"per_mille"`
}

// Pages returns the setting of a task with so many per mille of its pages on some memory nodes; as a wish,
// the most that may be there.
func Pages(perMille int64, nodes ...int) Setting {
	return Setting{Knob: MemoryPages, CPUs: cpus.Of(nodes...), Amount: perMille}
}
