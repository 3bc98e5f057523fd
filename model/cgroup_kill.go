package model

import "fmt"

// groupKillSpec is the end of all processes of a task: cgroup.kill of cgroup v2, SIGKILL to each where the kernel has no such
// file. It is an action, and the only one that nothing takes back: nobody asks for it of a task that the configuration does not
// give up by its importance. What comes of it is how many processes there are then.
var groupKillSpec = func() KnobSpec {
	s := KnobSpec{
		Name: "cgroup.kill", Action: true,
		Takes: [NumClaimKinds][]Class{ClaimRun: {BE}},
		Show:  func(s Setting) string { return fmt.Sprintf("%d processes", s.Amount) },
	}
	s.Encode, s.Decode = oneNumber(GroupKill)
	return s
}()

// End returns the setting of a task of which so many processes are left.
func End(left int64) Setting { return Setting{Knob: GroupKill, Amount: left} }
