package partition

import "fmt"

// Arm is a way of sharing the machine.
type Arm string

// The arms, as the issue that asked for this lab letters them.
const (
	ArmAlone  Arm = "(a) no BE"
	ArmNone   Arm = "(b) no control"
	ArmIdle   Arm = "(c) cpu.idle"
	ArmShares Arm = "(d) cpu.shares 2"
	ArmOurs   Arm = "(e) partition"
)

// spares are those of the oracles, arms of the twin by which (e) is judged: each knows the mean
// load L of every second before it comes, which no agent can, and gives LC so many roots of L
// beyond it, the deviations of the number of requests at once. Together they are the frontier
// of what cores apart can give.
var spares = [...]float64{1, 1.5, 2, 2.5, 3}

// oracle is the arm of one of them.
func oracle(spare float64) Arm { return Arm(fmt.Sprintf("oracle, %.1f sqrt(L)", spare)) }

// oracles is all of them.
func oracles() []Arm {
	var list []Arm
	for _, spare := range spares {
		list = append(list, oracle(spare))
	}
	return list
}

// spare returns that of an oracle.
func (a Arm) spare() (float64, bool) {
	for _, spare := range spares {
		if a == oracle(spare) {
			return spare, true
		}
	}
	return 0, false
}

// arms is all of them in the order of the tables.
func arms() []Arm { return []Arm{ArmAlone, ArmNone, ArmIdle, ArmShares, ArmOurs} }

// leastShares is what (d) gives batch work, the least that cgroup v1 takes.
const leastShares = 2

// byAgent says whether the agent runs in an arm.
func (a Arm) byAgent() bool { return a == ArmOurs }
