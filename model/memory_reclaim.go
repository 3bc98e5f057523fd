package model

import "fmt"

// memoryReclaimSpec is memory.reclaim: bytes of a task's memory that the kernel is asked to
// give up. It is an action: the pages come back when the task touches them, and nothing is to
// be undone. Reclaim may write to a disk and wait for it.
var memoryReclaimSpec = func() KnobSpec {
	s := KnobSpec{
		Name: "memory.reclaim", Action: true,
		Takes: [NumClaimKinds][]Class{ClaimRun: {BE}},
		Show:  func(s Setting) string { return fmt.Sprintf("%d bytes", s.Amount) },
	}
	s.Encode, s.Decode = oneNumber(MemoryReclaim)
	return s
}()

// Reclaim returns the setting that asks for bytes of a task's memory, or says how many came.
func Reclaim(bytes int64) Setting { return Setting{Knob: MemoryReclaim, Amount: bytes} }
