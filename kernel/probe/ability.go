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
)

// Remedies, the ladder from the mildest.
const (
	RemedyWays      = "llc ways"
	RemedyBandwidth = "memory bandwidth"
	RemedyMigration = "page migration"
	RemedyPool      = "cpu pool"
	RemedyBurst     = "burst"
	RemedyCap       = "hard cap"
	RemedyCpuset    = "cpuset"
	RemedyReclaim   = "reclaim"
	RemedyFreeze    = "freeze"
	RemedyEvict     = "evict"
)

// Ability is a signal or a remedy on this machine.
type Ability struct {
	Name      string // one of the constants above
	Available bool
	Because   string // what it rests on, or the need that is not met and what would meet it; one line
}

// need is met by any one of several findings that answer yes, the best first.
type need []string

// recipe is what one ability takes: every need.
type recipe struct {
	name  string
	needs []need
	note  string // a limit worth knowing where it is available
}

var signalRecipes = []recipe{
	{SignalCPI, []need{{PerfCycles}, {PerfInstructions}, {PerfPerCgroup}}, ""},
	{SignalMPKI, []need{{PerfLLCMisses}, {PerfInstructions}, {PerfPerCgroup}}, ""},
	{SignalRunDelay, []need{{Taskstats, ThreadSchedstat}}, "no evidence while a task's own quota throttles it"},
	{SignalPSI, []need{{PSIPerCgroup}}, "comes late for anonymous memory where there is no swap"},
	{SignalSLO, nil, "told by the service itself; asks nothing of the kernel"},
}

var remedyRecipes = []recipe{
	{RemedyWays, []need{{Resctrl}, {ResctrlCAT}, {CapSysAdmin, RootUser}}, ""},
	{RemedyBandwidth, []need{{Resctrl}, {ResctrlMBA}, {CapSysAdmin, RootUser}}, ""},
	{RemedyMigration, []need{{NUMA}, {CapSysNice}}, ""},
	{RemedyPool, []need{{CPUQuota}, {CgroupWritable}}, ""},
	{RemedyBurst, []need{{CPUBurst}, {CPUQuota}, {CgroupWritable}}, "at most the quota"},
	{RemedyCap, []need{{CPUQuota}, {CgroupWritable}}, ""},
	{RemedyCpuset, []need{{Cpuset}, {CgroupWritable}}, ""},
	{RemedyReclaim, []need{{MemoryReclaim, MemoryHigh}, {CgroupWritable}}, "anonymous memory only with swap"},
	{RemedyFreeze, []need{{Freezer}, {CgroupWritable}}, ""},
	{RemedyEvict, []need{{CapKill, RootUser, CgroupKill}}, ""},
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
	var met, unmet []string
	for _, n := range r.needs {
		if f, ok := n.met(findings); ok {
			met = append(met, f.Name+": "+f.Why)
		} else {
			if len(unmet) == 0 {
				unmet = append(unmet, n.missing(findings))
				continue
			}
			unmet = append(unmet, strings.Join(n, " or "))
		}
	}
	if len(unmet) > 0 {
		return Ability{Name: r.name, Because: "needs " + strings.Join(unmet, "; also ")}
	}
	if r.note != "" {
		met = append(met, r.note)
	}
	return Ability{Name: r.name, Available: true, Because: strings.Join(met, "; ")}
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
