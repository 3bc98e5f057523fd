package partition

// Arm is a way of sharing the machine.
type Arm string

// The arms, as the issue that asked for this lab letters them.
const (
	ArmAlone  Arm = "(a) no BE"
	ArmNone   Arm = "(b) no control"
	ArmIdle   Arm = "(c) cpu.idle"
	ArmShares Arm = "(d) cpu.shares 2"
	ArmOurs   Arm = "(e) partition"
	// Two more on the twin, to judge (e) by: the partition with less patience, and one that
	// knows what no agent can know.
	ArmSwift  Arm = "(e) swift"
	ArmOracle Arm = "oracle"
)

// arms is all of them in the order of the tables.
func arms() []Arm { return []Arm{ArmAlone, ArmNone, ArmIdle, ArmShares, ArmOurs} }

// leastShares is what (d) gives batch work, the least that cgroup v1 takes.
const leastShares = 2

// byAgent says whether the agent runs in an arm.
func (a Arm) byAgent() bool { return a == ArmOurs || a == ArmSwift }
