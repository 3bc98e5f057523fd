package probe

// From what the machine has to what can be done with it: each signal and remedy names what it needs, and the first
// need that is not met is the reason why not.

import "strings"

// Signals of a victim's distress.
const (
	SignalCPI      = "cpi"
	SignalMPKI     = "mpki"
	SignalRunDelay = "run-delay slowdown"
	SignalPSI      = "psi stall"
	SignalSLO      = "slo latency"
	SignalIO       = "io stall"
	SignalMemory   = "memory stall"
	SignalWaits    = "scheduler waits" // who makes whom wait for a CPU
)

// Remedies, the ladder from the mildest.
const (
	RemedyDemote     = "demote"
	RemedyWays       = "llc ways"
	RemedyBandwidth  = "memory bandwidth"
	RemedyMigration  = "page migration"
	RemedyPool       = "cpu pool"
	RemedyBurst      = "burst"
	RemedyCap        = "hard cap"
	RemedyCpuset     = "cpuset"
	RemedyReclaim    = "reclaim"
	RemedyIOMax      = "io limits"
	RemedyMemoryHigh = "memory limits"
	RemedyFreeze     = "freeze"
	RemedyEvict      = "evict"
)

// Ability is a signal or a remedy on this machine.
type Ability struct {
	Name      string // one of the constants above
	Available bool
	Because   string // what it rests on, or the need that is not met and what would meet it; one line
	Wants     string // what would make it available; empty when it is
	Limit     string // what to know of it where it is available; may be empty
}

// need is met by any one of several findings that answer yes, the best first.
type need []string

// recipe is what one ability takes: every need.
type recipe struct {
	name  string
	needs []need
	note  func([]Finding) string // a limit worth knowing where it is available; may be nil
}

// always is a note that holds on every machine.
func always(text string) func([]Finding) string { return func([]Finding) string { return text } }

var signalRecipes = []recipe{
	{SignalCPI, []need{{PerfCycles}, {PerfInstructions}, {PerfPerCgroup}}, nil},
	{SignalMPKI, []need{{PerfLLCMisses}, {PerfInstructions}, {PerfPerCgroup}}, nil},
	{SignalRunDelay, []need{{Taskstats, ThreadSchedstat}}, always("no evidence while a task's own quota throttles it")},
	{SignalPSI, []need{{PSIPerCgroup}}, lateWithoutSwap},
	{SignalWaits, []need{{BTF}, {CapBPF}, {CapPerfmon}, {BPFPrograms}}, nil},
	{SignalIO, []need{{PSIPerCgroup, DelayAccounting}}, nil},
	{SignalMemory, []need{{PSIPerCgroup}, {MemoryHigh}}, lateWithoutSwap},
	{SignalSLO, nil, always("told by the service itself")},
}

// Resctrl's files belong to root, and only root moves threads of other users into its groups (the kernel asks for
// the user id and for no capability). Pages of other users' processes take the right to trace them. memory.high is no
// need of reclaim: package reclaim says why it is not used for that.
var remedyRecipes = []recipe{
	{RemedyDemote, []need{{CPUIdle, CPUQuota}, {CgroupWritable}}, leastWeight},
	{RemedyWays, []need{{Resctrl}, {ResctrlCAT}, {ResctrlRoom}, {RootUser}}, nil},
	{RemedyBandwidth, []need{{Resctrl}, {ResctrlMBA}, {ResctrlRoom}, {RootUser}}, nil},
	{RemedyMigration, []need{{NUMA}, {CapSysPtrace}}, nil},
	{RemedyPool, []need{{CPUQuota}, {CgroupWritable}}, nil},
	{RemedyBurst, []need{{CPUBurst}, {CPUQuota}, {CgroupWritable}}, always("at most the quota")},
	{RemedyCap, []need{{CPUQuota}, {CgroupWritable}}, nil},
	{RemedyCpuset, []need{{Cpuset}, {CgroupWritable}}, nil},
	{RemedyReclaim, []need{{MemoryReclaim}, {CgroupWritable}}, fileOnlyWithoutSwap},
	{RemedyIOMax, []need{{IOMax}, {CgroupWritable}}, nil},
	{RemedyMemoryHigh, []need{{MemoryHigh}, {CgroupWritable}}, fileOnlyWithoutSwap},
	{RemedyFreeze, []need{{Freezer}, {CgroupWritable}}, nil},
	{RemedyEvict, []need{{CapKill, CgroupKill}, {CapKill, CgroupWritable}}, nil},
}

// leastWeight: what has quotas has weights, too.
func leastWeight(findings []Finding) string {
	if Find(findings, CPUIdle).Answer == Yes {
		return ""
	}
	return "by the least weight: there is no cpu.idle"
}

// lateWithoutSwap: pressure by anonymous memory shows when pages come back from swap, and not where there is none.
func lateWithoutSwap(findings []Finding) string {
	if Find(findings, Swap).Answer == Yes {
		return ""
	}
	return "comes late for anonymous memory: there is no swap"
}

func fileOnlyWithoutSwap(findings []Finding) string {
	if Find(findings, Swap).Answer == Yes {
		return "file and anonymous memory"
	}
	return "file memory only: there is no swap for anonymous memory"
}

// Signals says which signals of distress this machine can give, in a fixed order.
func Signals(findings []Finding) []Ability { return abilities(findings, signalRecipes) }

// Remedies says which remedies this machine has, from the mildest to the hardest.
func Remedies(findings []Finding) []Ability { return abilities(findings, remedyRecipes) }

func abilities(findings []Finding, recipes []recipe) []Ability {
	list := make([]Ability, 0, len(recipes))
	for _, r := range recipes {
		list = append(list, r.judge(findings))
	}
	return list
}

// judge is available when every need is met; the reasons are those it rests on, or the first that is missing, with
// its evidence, and the names of the others.
func (r recipe) judge(findings []Finding) Ability {
	var met, unmet, limits []string
	var wants string
	for _, n := range r.needs {
		if f, ok := n.met(findings); ok {
			met = append(met, f.Name+": "+f.Why)
			if f.Only != "" {
				limits = append(limits, "for "+f.Only)
			}
			continue
		}
		if len(unmet) == 0 {
			wants = n.wants(findings)
			unmet = append(unmet, n.missing(findings))
			continue
		}
		unmet = append(unmet, strings.Join(n, " or "))
	}
	if len(unmet) > 0 {
		return Ability{Name: r.name, Because: "needs " + strings.Join(unmet, "; also "), Wants: wants}
	}
	if r.note != nil {
		if note := r.note(findings); note != "" {
			limits = append(limits, note)
		}
	}
	a := Ability{Name: r.name, Available: true, Limit: strings.Join(limits, "; ")}
	a.Because = strings.Join(append(met, limits...), "; ")
	return a
}

// met returns the first finding that answers yes.
func (n need) met(findings []Finding) (Finding, bool) {
	for _, name := range n {
		if f := Find(findings, name); f.Answer == Yes {
			return f, true
		}
	}
	return Finding{}, false
}

// missing says what each alternative answered, and what would change the first one's mind.
func (n need) missing(findings []Finding) string {
	var parts []string
	for _, name := range n {
		f := Find(findings, name)
		parts = append(parts, f.Name+" ("+string(f.Answer)+": "+f.Why+")")
	}
	text := strings.Join(parts, " or ")
	if wants := Find(findings, n[0]).Needs; wants != "" {
		text += ", that is: " + wants
	}
	return text
}

// wants says what would meet the need by its first alternative.
func (n need) wants(findings []Finding) string {
	f := Find(findings, n[0])
	if f.Needs != "" {
		return f.Needs
	}
	return f.Name + ": " + string(f.Answer)
}
