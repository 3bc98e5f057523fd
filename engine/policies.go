package engine

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/balm"
	"github.com/commensal-io/commensal/policy/bandwidth"
	"github.com/commensal-io/commensal/policy/beside"
	"github.com/commensal-io/commensal/policy/blockio"
	"github.com/commensal-io/commensal/policy/burst"
	"github.com/commensal-io/commensal/policy/cache"
	"github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/policy/cpupool"
	"github.com/commensal-io/commensal/policy/cpuset"
	"github.com/commensal-io/commensal/policy/demote"
	"github.com/commensal-io/commensal/policy/headroom"
	"github.com/commensal-io/commensal/policy/memory"
	"github.com/commensal-io/commensal/policy/pressure"
	"github.com/commensal-io/commensal/policy/remedy"
)

// CPUParams are what the configuration says to the policies of the CPU and its caches.
type CPUParams struct {
	CPUSetMode  model.Mode     `json:"cpuset_mode"`
	CPUSet      cpuset.Params  `json:"cpuset"`
	CPUPoolMode model.Mode     `json:"cpu_pool_mode"`
	CPUPool     cpupool.Params `json:"cpu_pool"`
	BurstMode   model.Mode     `json:"burst_mode"`
	Burst       burst.Params   `json:"burst"`
	DemoteMode  model.Mode     `json:"demote_mode"`
	Demote      demote.Params  `json:"demote"`
	CacheMode   model.Mode     `json:"cache_mode"`
	Cache       cache.Params   `json:"cache"`

	BandwidthMode model.Mode       `json:"bandwidth_mode"`
	Bandwidth     bandwidth.Params `json:"bandwidth"`
	BalmMode      model.Mode       `json:"balm_mode"`
	Balm          balm.Params      `json:"balm"`
	RemedyMode    model.Mode       `json:"remedy_mode"`
	Remedy        remedy.Params    `json:"remedy"`
	PressureMode  model.Mode       `json:"pressure_mode"`
	Pressure      pressure.Params  `json:"pressure"`
	ColdPagesMode model.Mode       `json:"coldpages_mode"`
	ColdPages     coldpages.Params `json:"coldpages"`
	HeadroomMode  model.Mode       `json:"headroom_mode"`
	Headroom      headroom.Params  `json:"headroom"`
	IOMode        model.Mode       `json:"io_mode"`
	IO            blockio.Params   `json:"io"`
	MemoryMode    model.Mode       `json:"memory_mode"`
	Memory        memory.Params    `json:"memory"`
}

// UnmarshalJSON reads parameters. Those of a record that is older than a policy do not name it: it did not run.
func (p *CPUParams) UnmarshalJSON(b []byte) error {
	type plain CPUParams
	in := plain{DemoteMode: model.ModeOff, CacheMode: model.ModeOff, BandwidthMode: model.ModeOff, BalmMode: model.ModeOff, RemedyMode: model.ModeOff, PressureMode: model.ModeOff, ColdPagesMode: model.ModeOff, HeadroomMode: model.ModeOff, IOMode: model.ModeOff, MemoryMode: model.ModeOff}
	err := json.Unmarshal(b, &in)
	*p = CPUParams(in)
	return err
}

// CPUState is what the engine remembers for the policies of the CPU and its caches.
type CPUState struct {
	Topology *model.Topology `json:"topology,omitempty"`
	// Homes is where the pages of LC tasks lie, as was last told.
	Homes   []model.PageHomes `json:"homes,omitempty"`
	CPUSet  cpuset.State      `json:"cpuset"`
	CPUPool cpupool.State     `json:"cpu_pool"`
	Burst   burst.State       `json:"burst"`
	Demote  demote.State      `json:"demote,omitzero"`
	Cache   cache.State       `json:"cache,omitzero"`
	// Bandwidth is that of memory.
	Bandwidth bandwidth.State `json:"bandwidth,omitzero"`
	Balm      balm.State      `json:"balm,omitzero"`
	Remedy    remedy.State    `json:"remedy,omitzero"`
	Pressure  pressure.State  `json:"pressure,omitzero"`
	ColdPages coldpages.State `json:"coldpages,omitzero"`
	Headroom  headroom.State  `json:"headroom,omitzero"`
	IO        blockio.State   `json:"io,omitzero"`
	Memory    memory.State    `json:"memory,omitzero"`
	// Changed: something that the policies see is new since the last pulse.
	Changed bool `json:"changed"`
}

// row is one policy: all that the engine, and whoever configures it, knows of it.
type row struct {
	name string   // of the policy and of its section in the configuration
	does string   // in a few words, with the paper that it is from
	uses []string // the remedies that it is, as the probe of the machine names them
	// needs is what the host is to tell it, beside what it tells of every machine.
	needs Needs
	ages  func(*Params) model.AskedAges // of pages, that it goes by; nil: none
	// always: it takes a step at every tick, in every mode, since what it began goes on. The
	// others take one when a pulse came, unless they are off.
	always bool
	mode   func(*Params) *model.Mode
	step   func(*Params, *State, *policy.View, *policy.Wishes)

	// derive works out what follows from other keys of the configuration, and from how far apart
	// pulses are. nil: nothing does.
	derive func(p *Params, pulseNsec int64)
	// keeps is what of its memory outlives a restart of the agent. nil: nothing does.
	keeps *keeps

	pace  func(*Params) model.Pace              // at which it looks when it enforces; nil: at windows
	rows  func(*Params) []model.Param           // its parameters
	check func(*Params) (key, why string)       // finds parameters that do not fit each other; nil: all do
	note  func(s *State, now model.Mode) string // where it stands, in a few words; nil: nothing to say
	// tells reports whether an outside hook is told of whom the policy freezes, lets go on and ends. nil: it is not.
	tells func(*Params) bool
	// steady: it follows the load all the time, so that what it changes is no disturbance of what others have on trial.
	steady bool
	// under reports whether another policy that enforces does its work, so that it observes. nil: none does.
	under func(*Params) bool
	// takesBack is how soon CPU comes back from BE while it enforces. nil: it takes none back, or from who is found guilty alone.
	takesBack func(*Params) int64
	// takesMemory is how soon memory comes back from BE while it enforces; 0 or nil: it takes none back for sure.
	takesMemory func(*Params) int64
	// detail says whether a pulse at a time should tell of each LC task. nil: never.
	detail func(p *Params, s *State, nowNsec int64) bool
	// rests says that the policy has nothing to do soon but what pulses with detail are for, so
	// that the others may come slower. nil: never.
	rests func(p *Params, s *State) bool
	// passes says that nothing could come of a pulse at a time, at which the bound of what LC uses has
	// grown so far. nil: a policy that does not rest needs each.
	passes func(e *Engine, nowNsec int64, busy model.Counter) bool
}

// policyRows is the one list of policies, in the order in which they run: the later ones of the
// CPU go by the place that the partition gives the pool.
var policyRows = [...]row{
	{
		name: model.PolicyHardcap, does: "CPI²: holds antagonists back", uses: []string{"hard cap"}, always: true,
		mode: func(p *Params) *model.Mode { return &p.Mode },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) {
			v.Taking, v.Remedying = s.CPU.Balm.Taking(), s.CPU.Remedy.Working()
			v.ForCPU = s.CPU.Remedy.ForCPU()
			s.onTrial(v)
			s.Hardcap.Step(&p.Hardcap, v, w)
			v.Judging, v.Holding = s.Hardcap.Judging(), s.Hardcap.Holding()
		},
		rows:  (*Params).hardcapRows,
		check: (*Params).checkHardcap,
	},
	{
		name: model.PolicyCPUSet, does: "ByteDance: LC and BE cores apart", uses: []string{"cpuset"}, needs: Needs{Places: true}, steady: true,
		mode:  func(p *Params) *model.Mode { return &p.CPU.CPUSetMode },
		step:  func(p *Params, s *State, v *policy.View, w *policy.Wishes) { s.CPU.CPUSet.Step(&p.CPU.CPUSet, v, w) },
		pace:  func(p *Params) model.Pace { return p.CPU.CPUSet.Pace() },
		rows:  func(p *Params) []model.Param { return p.CPU.CPUSet.Rows() },
		check: func(p *Params) (key, why string) { return p.CPU.CPUSet.Check() },
		note:  func(s *State, now model.Mode) string { return s.CPU.CPUSet.Note(now) },
		rests: func(_ *Params, s *State) bool { return s.CPU.CPUSet.Rests() },

		takesBack: func(*Params) int64 { return 1e9 }, // a border that moves by pulses, the slowest of which come each second
		passes: func(e *Engine, nowNsec int64, busy model.Counter) bool {
			return e.scratch.watch.Stays(&e.Params.CPU.CPUSet, &e.State.CPU.CPUSet, nowNsec, busy, len(e.State.CPU.Topology.CPUs))
		},
	},
	{
		name: model.PolicyCPUPool, does: "Alibaba §4.1: raises quotas while the pool has room", uses: []string{"cpu pool"}, steady: true,
		mode: func(p *Params) *model.Mode { return &p.CPU.CPUPoolMode },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) { s.CPU.CPUPool.Step(&p.CPU.CPUPool, v, w) },
		pace: func(p *Params) model.Pace { return p.CPU.CPUPool.Pace() },
		rows: func(p *Params) []model.Param { return p.CPU.CPUPool.Rows() },

		derive: func(p *Params, _ int64) { p.CPU.CPUPool.Derive() },
		detail: func(p *Params, s *State, nowNsec int64) bool {
			return s.CPU.CPUPool.Detail(&p.CPU.CPUPool, nowNsec)
		},
		rests: func(p *Params, _ *State) bool { return p.CPU.CPUPool.EarlyUtilisation == 0 },
	},
	{
		name: model.PolicyBurst, does: "Alibaba §4.1: lets LC save up quota", uses: []string{"burst"}, steady: true,
		mode:   func(p *Params) *model.Mode { return &p.CPU.BurstMode },
		step:   func(p *Params, s *State, v *policy.View, w *policy.Wishes) { s.CPU.Burst.Step(&p.CPU.Burst, v, w) },
		pace:   func(p *Params) model.Pace { return p.CPU.Burst.Pace() },
		rows:   func(p *Params) []model.Param { return p.CPU.Burst.Rows() },
		check:  func(p *Params) (key, why string) { return p.CPU.Burst.Check() },
		detail: func(p *Params, s *State, nowNsec int64) bool { return s.CPU.Burst.Detail(&p.CPU.Burst, nowNsec) },
		rests:  func(*Params, *State) bool { return true },
		derive: func(p *Params, pulseNsec int64) { p.CPU.Burst.Derive(pulseNsec) },
		keeps: &keeps{
			keep: func(p *Params, s *State, r *Restored) { r.BurstBound = s.CPU.Burst.Bound.Keep(&p.CPU.Burst) },
			mark: func(s *State) float64 { return s.CPU.Burst.Bound.Mark() },
			restore: func(p *Params, s *State, r *Restored) (model.Decision, bool) {
				return s.CPU.Burst.Bound.Restore(r.BurstBound, &p.CPU.Burst)
			},
		},
	},
	{
		name: model.PolicyDemote, does: "BE gives way to everybody, from the start", uses: []string{"demote"},
		mode:  func(p *Params) *model.Mode { return &p.CPU.DemoteMode },
		step:  func(p *Params, s *State, v *policy.View, w *policy.Wishes) { s.CPU.Demote.Step(&p.CPU.Demote, v, w) },
		pace:  func(*Params) model.Pace { return model.PaceTick },
		rows:  func(p *Params) []model.Param { return p.CPU.Demote.Rows() },
		note:  func(s *State, now model.Mode) string { return s.CPU.Demote.Note(now) },
		rests: func(*Params, *State) bool { return true },

		takesBack: func(*Params) int64 { return 1e9 }, // the scheduler does it at once; a task that came is demoted within a tick
	},
	{
		name: model.PolicyCache, does: "ByteDance: BE fills a few ways of the cache", uses: []string{"llc ways"}, needs: Needs{Classes: true}, always: true,
		mode:  func(p *Params) *model.Mode { return &p.CPU.CacheMode },
		step:  func(p *Params, s *State, v *policy.View, w *policy.Wishes) { s.CPU.Cache.Step(&p.CPU.Cache, v, w) },
		rows:  func(p *Params) []model.Param { return p.CPU.Cache.Rows() },
		check: func(p *Params) (key, why string) { return p.CPU.Cache.Check() },
		note:  func(s *State, now model.Mode) string { return s.CPU.Cache.Note(now) },
	},
	{
		name: model.PolicyBandwidth, does: "Alibaba §4.2: BE has a part of the memory bandwidth while memory is slow", uses: []string{"memory bandwidth"}, needs: Needs{Classes: true, Memory: true}, always: true,
		mode: func(p *Params) *model.Mode { return &p.CPU.BandwidthMode },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) {
			v.Comparing = s.CPU.Cache.Comparing()
			s.CPU.Bandwidth.Step(&p.CPU.Bandwidth, v, w)
		},
		rows:  func(p *Params) []model.Param { return p.CPU.Bandwidth.Rows() },
		check: func(p *Params) (key, why string) { return p.CPU.Bandwidth.Check() },
		note:  func(s *State, now model.Mode) string { return s.CPU.Bandwidth.Note(now) },
	},
	{
		name: model.PolicyBalm, does: "BALM: who draws most has least memory bandwidth while a target is missed", uses: []string{"memory bandwidth", "page migration"}, needs: Needs{Classes: true, Memory: true, Homes: true, SLO: true}, always: true,
		mode: func(p *Params) *model.Mode { return &p.CPU.BalmMode },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) {
			s.onTrial(v)
			s.CPU.Balm.Step(&p.CPU.Balm, v, w)
		},
		rows: func(p *Params) []model.Param { return p.CPU.Balm.Rows() },
		note: func(s *State, now model.Mode) string { return s.CPU.Balm.Note(now) },

		under: func(p *Params) bool { return p.CPU.RemedyMode == model.ModeEnforce },
	},
	{
		name: model.PolicyRemedy, does: "for a victim, by what is contended, weight, CPUs, ways, bandwidth, pages, then CPU time of the BE task that takes most, each verified", uses: []string{"demote", "cpuset", "llc ways", "memory bandwidth", "page migration", "evict"}, needs: Needs{Classes: true, Memory: true, Domains: true, Homes: true, SLO: true}, always: true,
		mode: func(p *Params) *model.Mode { return &p.CPU.RemedyMode },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) {
			s.onTrial(v)
			v.Placing, v.EndsRuns = p.CPU.CPUSetMode == model.ModeEnforce, p.EndRuns
			s.CPU.Remedy.Step(&p.CPU.Remedy, v, w)
		},
		rows: func(p *Params) []model.Param { return p.CPU.Remedy.Rows() },
		note: func(s *State, now model.Mode) string { return s.CPU.Remedy.Note(now) },
		keeps: &keeps{
			keep: func(_ *Params, s *State, r *Restored) { r.Remedies = slices.Clone(s.CPU.Remedy.Known) },
			mark: func(s *State) float64 { return s.CPU.Remedy.Mark() },
			restore: func(_ *Params, s *State, r *Restored) (d model.Decision, ok bool) {
				s.CPU.Remedy.Restore(r.Remedies)
				return d, false // it shows when it is tried first
			},
		},
	},
	{
		name: model.PolicyPressure, does: "Alibaba §3.2: BE gives way while the machine runs out of memory", uses: []string{"reclaim", "freeze", "evict"}, needs: Needs{InUse: true}, always: true,
		mode:  func(p *Params) *model.Mode { return &p.CPU.PressureMode },
		tells: func(p *Params) bool { return p.CPU.Pressure.Hook },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) {
			s.CPU.Pressure.Step(&p.CPU.Pressure, v, w)
		},
		rows:  func(p *Params) []model.Param { return p.CPU.Pressure.Rows() },
		check: func(p *Params) (key, why string) { return p.CPU.Pressure.Check() },
		note:  func(s *State, now model.Mode) string { return s.CPU.Pressure.Note(now) },

		takesMemory: func(p *Params) int64 { return p.CPU.Pressure.TakesBackNsec() },
	},
	{
		name: model.PolicyColdPages, does: "Alibaba §3.2: gives memory back that lay idle for hours", uses: []string{"reclaim"}, needs: Needs{InUse: true}, always: true,
		ages: func(p *Params) model.AskedAges { return p.CPU.ColdPages.Ages() },
		mode: func(p *Params) *model.Mode { return &p.CPU.ColdPagesMode },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) {
			s.onTrial(v)
			s.CPU.ColdPages.Step(&p.CPU.ColdPages, v, w)
		},
		rows: func(p *Params) []model.Param { return p.CPU.ColdPages.Rows() },
		note: func(s *State, now model.Mode) string { return s.CPU.ColdPages.Note(now) },
	},
	{
		name: model.PolicyIO, does: "CPI² §9: who makes a service wait for its disk may do less there", uses: []string{"io limits"}, needs: Needs{IO: true}, always: true,
		mode: func(p *Params) *model.Mode { return &p.CPU.IOMode },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) {
			s.onTrial(v)
			s.CPU.IO.Step(&p.CPU.IO, beside.Input{Correlation: &p.Hardcap.Antagonist[model.SourceIO], IDPrefix: p.Hardcap.IDPrefix}, v, w)
		},
		rows:  func(p *Params) []model.Param { return p.CPU.IO.Rows() },
		check: func(p *Params) (key, why string) { return p.CPU.IO.Check() },
		note:  func(s *State, now model.Mode) string { return s.CPU.IO.Note(now) },
	},
	{
		name: model.PolicyMemory, does: "who makes a service wait for memory gives some back, or may have less", uses: []string{"reclaim", "memory limits"}, needs: Needs{InUse: true, Stalls: true}, always: true,
		mode: func(p *Params) *model.Mode { return &p.CPU.MemoryMode },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) {
			s.onTrial(v)
			s.CPU.Memory.Step(&p.CPU.Memory, beside.Input{Correlation: &p.Hardcap.Antagonist[model.SourceMemory], IDPrefix: p.Hardcap.IDPrefix}, v, w)
		},
		rows:  func(p *Params) []model.Param { return p.CPU.Memory.Rows() },
		check: func(p *Params) (key, why string) { return p.CPU.Memory.Check() },
		note:  func(s *State, now model.Mode) string { return s.CPU.Memory.Note(now) },
	},
	{
		name: model.PolicyHeadroom, does: "Alibaba §3.1: forecasts what LC will use, and what BE may; it holds nobody", needs: Needs{Sizes: true, GPUs: true}, always: true,
		mode: func(p *Params) *model.Mode { return &p.CPU.HeadroomMode },
		step: func(p *Params, s *State, v *policy.View, w *policy.Wishes) {
			s.CPU.Headroom.Step(&p.CPU.Headroom, v, w)
		},
		rows:  func(p *Params) []model.Param { return p.CPU.Headroom.Rows() },
		check: func(p *Params) (key, why string) { return p.CPU.Headroom.Check() },
		note:  func(s *State, now model.Mode) string { return s.CPU.Headroom.Note(now) },
		keeps: &keeps{
			keep: func(_ *Params, s *State, r *Restored) { r.Headroom = s.CPU.Headroom.Keep() },
			mark: func(s *State) float64 { return float64(s.CPU.Headroom.Kept) },
			restore: func(_ *Params, s *State, r *Restored) (d model.Decision, ok bool) {
				s.CPU.Headroom.Restore(r.Headroom)
				return d, false // what was learned is no decision; the forecasts show it
			},
		},
	},
}

// onTrial notes of which tasks it is not known yet what comes of a policy's step, as of now, and of which it was not known as the turn began: who
// concludes a trial may take the next step in that turn, and somebody else's step in the same turn would show in the same windows.
func (s *State) onTrial(v *policy.View) {
	v.OnTrial = append(s.trials(v, v.OnTrial[:0]), v.TriedBefore...)
}

func (s *State) trials(v *policy.View, list []policy.OnTrial) []policy.OnTrial {
	list = s.Hardcap.OnTrial(v, s.CPU.Remedy.OnTrial(list))
	list = s.CPU.IO.OnTrial(v, model.PolicyIO, s.CPU.Balm.OnTrial(list))
	return s.CPU.Memory.OnTrial(v, model.PolicyMemory, list)
}

// Needs is what policies want a host to tell beside what it tells of every machine.
type Needs struct {
	Places  bool            // which tasks cannot be placed on CPUs
	Classes bool            // what there is of classes of service
	Memory  bool            // what memories move
	Domains bool            // what each task has of the last-level caches, and moves to and from memory
	Homes   bool            // on which memory nodes the pages of LC tasks lie
	IO      bool            // what tasks do on block devices, and how long they wait for them
	Stalls  bool            // it goes by how long tasks wait for memory, which InUse has the host tell
	InUse   bool            // how much memory the tasks and the machine use, and how long they wait for it
	Sizes   bool            // how much memory they use, once a minute
	GPUs    bool            // what GPUs do
	SLO     bool            // what latency sources say, each second and not at the edges of windows alone
	Ages    model.AskedAges // how long the tasks' pages lay idle
}

// keeps is how a part of a policy's memory outlives a restart of the agent.
type keeps struct {
	keep func(p *Params, s *State, r *Restored)
	// mark is another number when keep would keep something else.
	mark func(s *State) float64
	// restore takes up what was kept, and says so; ok is false where there is nothing, or it does
	// not fit the parameters.
	restore func(p *Params, s *State, r *Restored) (d model.Decision, ok bool)
}

// Standing is what the engine remembers of a policy beside the policy's own state.
type Standing struct {
	Policy string     `json:"policy"`
	Mode   model.Mode `json:"mode"` // how far it could go in the step before
	// HoldNsec is the shortest life of its claims that are to be renewed, 0 without one, and
	// RenewNsec when that is due.
	HoldNsec  int64 `json:"hold_nsec,omitempty"`
	RenewNsec int64 `json:"renew_nsec,omitempty"`
	// WishedNsec is when its wishes were last other than "as before".
	WishedNsec int64 `json:"wished_nsec,omitempty"`
}

// scratch is what the engine works out anew, and room that it uses again.
type scratch struct {
	view    policy.View
	wishes  policy.Wishes
	victims []policy.Victim
	beside  []policy.Victim
	fresh   bool   // view.Tasks is as the ledger is
	pulsed  int64  // when the last pulse was, monotonic; 0: not yet
	step    uint64 // counts sets of wishes
	still   bool   // nothing was put to the ledger since it was last gone through ...
	due     int64  // ... and until then nothing in it changes by itself
	watch   cpuset.Watch
	look    policy.Look
}

// PoliciesOf returns the policies that a remedy is of, in their order and with commas between them; "" when none of this
// version is.
func PoliciesOf(remedy string) string {
	var names []string
	for i := range policyRows {
		if slices.Contains(policyRows[i].uses, remedy) {
			names = append(names, policyRows[i].name)
		}
	}
	return strings.Join(names, ", ")
}

// NeedsPulse reports whether any policy goes by pulses.
func (p *Params) NeedsPulse() bool {
	return slices.ContainsFunc(policyRows[:], func(r row) bool { return !r.always && *r.mode(p) != model.ModeOff })
}

// Needs returns what the policies that are not off want of a host.
func (p *Params) Needs() (all Needs) {
	for i := range policyRows {
		if r := &policyRows[i]; *r.mode(p) != model.ModeOff {
			all.Places, all.Classes = all.Places || r.needs.Places, all.Classes || r.needs.Classes
			all.Memory, all.SLO = all.Memory || r.needs.Memory, all.SLO || r.needs.SLO
			all.Domains, all.Homes = all.Domains || r.needs.Domains, all.Homes || r.needs.Homes
			all.InUse, all.Sizes, all.IO = all.InUse || r.needs.InUse, all.Sizes || r.needs.Sizes, all.IO || r.needs.IO
			all.Stalls, all.GPUs = all.Stalls || r.needs.Stalls, all.GPUs || r.needs.GPUs
			if r.ages != nil {
				all.Ages = r.ages(p)
			}
		}
	}
	if p.Mode != model.ModeOff && p.Hardcap.Confirm.ByLack {
		all.Classes, all.Domains = true, true // the first says which CPUs a domain has
	}
	return all
}

// Tells reports whether an outside hook is told of whom a policy freezes, lets go on and ends.
func (p *Params) Tells(of string) bool {
	i := slices.IndexFunc(policyRows[:], func(r row) bool { return r.name == of })
	return i >= 0 && policyRows[i].tells != nil && policyRows[i].tells(p)
}

// Derive works out what follows from several keys of the configuration. pulseNsec is how far
// apart pulses are.
func (p *Params) Derive(pulseNsec int64) {
	for i := range policyRows {
		if derive := policyRows[i].derive; derive != nil {
			derive(p, pulseNsec)
		}
	}
}

// PolicyMode is how far one policy may go.
type PolicyMode struct {
	Policy          string
	Configured, Now model.Mode
	Note            string // where it stands, "" where there is nothing to say
}

// Modes returns how far the policies may go, in the order in which they run.
func (e *Engine) Modes() []PolicyMode {
	list := make([]PolicyMode, len(policyRows))
	for i := range policyRows {
		r := &policyRows[i]
		list[i] = PolicyMode{Policy: r.name, Configured: *r.mode(&e.Params), Now: e.State.Policies[i].Mode}
		if r.note != nil && list[i].Configured != model.ModeOff {
			list[i].Note = r.note(e.State, list[i].Now)
		}
	}
	return list
}

// NeedsDetail reports whether a pulse at a time should tell of each LC task: a period of the
// pool is over, or somebody bursts.
func (e *Engine) NeedsDetail(nowNsec int64) bool {
	for i := range policyRows {
		if r := &policyRows[i]; r.detail != nil && *r.mode(&e.Params) != model.ModeOff && r.detail(&e.Params, e.State, nowNsec) {
			return true
		}
	}
	return false
}

// restNsec is how far apart pulses are at least while all policies rest: a second, as the readings
// are where nothing else is configured, so that one pulse comes with each; also a little early.
const restNsec = 975e6

// PulseDue reports whether a pulse at a time is worth its cost: not while nothing in the ledger is
// due and no policy could do anything with it. Then one a second is enough to see that this is
// over: nobody but BE waits for that, and the mean of LC's load that has to fall first goes over
// seconds.
func (e *Engine) PulseDue(nowNsec int64) bool {
	if e.needsPulse(nowNsec) {
		return true
	}
	for i := range policyRows {
		if e.restless(&policyRows[i]) {
			return true
		}
	}
	return false
}

// needsPulse reports whether a pulse is to be taken however little policies have to do.
func (e *Engine) needsPulse(nowNsec int64) bool {
	return e.State.CPU.Changed || !e.scratch.still || nowNsec >= e.scratch.due ||
		nowNsec-e.scratch.pulsed >= restNsec || e.NeedsDetail(nowNsec)
}

func (e *Engine) restless(r *row) bool {
	return !r.always && *r.mode(&e.Params) != model.ModeOff && (r.rests == nil || !r.rests(&e.Params, e.State))
}

// Watch says up to where the bound of what LC uses had grown at the last pulse: from there on it can be
// seen at a glance whether the next ones are worth their cost.
func (e *Engine) Watch(busy model.Counter) {
	e.scratch.watch.Begin(&e.State.CPU.CPUSet, e.scratch.pulsed, busy)
}

// MayPass reports whether a pulse that is due may be passed over where LC used little.
func (e *Engine) MayPass(nowNsec int64) bool { return e.scratch.fresh && !e.needsPulse(nowNsec) }

// Passes reports whether nothing could come of a pulse that is due and that may be passed over, given up
// to where the bound of what LC uses has grown. It is asked at each such pulse, and changes nothing of
// what a step does.
func (e *Engine) Passes(nowNsec int64, busy model.Counter) bool {
	for i := range policyRows {
		if r := &policyRows[i]; e.restless(r) && (r.passes == nil || !r.passes(e, nowNsec, busy)) {
			return false
		}
	}
	return true
}

// PoolCPUs returns the CPUs on which shared LC tasks run, as the policies last saw it: none
// before the first pulse. shared: everybody may.
func (e *Engine) PoolCPUs() (cpus model.CPUSet, shared bool) {
	return e.scratch.view.PoolCPUs, e.scratch.view.PoolShared
}

// lookAtSnapshot takes in what a snapshot says of the CPUs and their knobs.
func (e *Engine) lookAtSnapshot(snap *model.Snapshot) {
	if snap.Topology != nil {
		t := *snap.Topology
		t.CPUs = slices.Clone(t.CPUs)
		e.State.CPU.Topology = &t
	}
	if snap.Mark&model.WindowEnd != 0 {
		e.State.CPU.Homes = snap.Homes
	}
	if snap.Topology != nil || len(snap.Added) > 0 || len(snap.Removed) > 0 || len(snap.Settings) > 0 || len(snap.Shields) > 0 {
		e.moved()
	}
}

// disarmed reports whether no policy may enforce: the kill switch is there, or an operator
// turned protection off for all.
func (e *Engine) disarmed(in *Input) bool {
	return in.KillSwitch || e.State.off("")
}

// moved notes that the policies will see something new.
func (e *Engine) moved() { e.State.CPU.Changed, e.scratch.fresh, e.scratch.still = true, false, false }

// policies lets each policy take its step.
func (e *Engine) policies(in *Input) {
	for i := range policyRows {
		e.mode(in, i)
	}
	e.lookAround()
	v := &e.scratch.view
	v.NowNsec, v.WallNsec, v.Pulse, v.Results = in.MonoNsec, in.WallNsec, in.Pulse, in.Results
	v.Topology, v.Homes, v.Changed = e.State.CPU.Topology, e.State.CPU.Homes, e.State.CPU.Changed
	v.Table, v.History, v.Ledger, v.Window.Victims = &e.State.Tasks, e.State.History, &e.State.Ledger, e.scratch.victims
	v.Window.Beside = e.scratch.beside
	v.Window.Waiting, v.SLO = e.obs.Waiting, e.promises(in, v.SLO[:0])
	v.Touched = e.State.Touched
	v.TakeBackNsec, v.TakeBackBy = e.takeBack(func(r *row) func(*Params) int64 { return r.takesBack })
	v.MemoryBackNsec, v.MemoryBackBy = e.takeBack(func(r *row) func(*Params) int64 { return r.takesMemory })
	v.TriedBefore = e.State.trials(v, v.TriedBefore[:0])
	for i := range policyRows {
		r, mode := &policyRows[i], e.State.Policies[i].Mode
		if r.always || in.Pulse != nil && mode != model.ModeOff {
			e.scratch.wishes.Reset()
			v.Mode = mode
			r.step(&e.Params, e.State, v, &e.scratch.wishes)
			e.grant(in, i)
		}
	}
	if in.Pulse != nil {
		e.State.CPU.Changed, e.scratch.pulsed = false, in.MonoNsec
	}
}

// takeBack returns how soon something comes back from BE, by the fastest policy that enforces that; 0: none does.
func (e *Engine) takeBack(of func(r *row) func(*Params) int64) (nsec int64, by string) {
	for i := range policyRows {
		r := &policyRows[i]
		takes := of(r)
		if takes == nil || e.State.Policies[i].Mode != model.ModeEnforce {
			continue
		}
		if n := takes(&e.Params); n > 0 && (nsec == 0 || n < nsec) {
			nsec, by = n, r.name
		}
	}
	return nsec, by
}

// mode works out how far a policy may go now. One that may no longer enforce gives back what
// it has; one whose mode changed looks at everything anew, and says everything anew.
func (e *Engine) mode(in *Input, i int) {
	r, s := &policyRows[i], &e.State.Policies[i]
	m := *r.mode(&e.Params)
	if m == model.ModeEnforce && (e.disarmed(in) || r.under != nil && r.under(&e.Params)) {
		m = model.ModeObserve
	}
	if m == s.Mode {
		return
	}
	if s.Mode == model.ModeEnforce {
		e.State.Ledger.DropPolicy(s.Policy)
	}
	s.Mode = m
	e.State.Told.forget(func(t *told) bool { return t.Policy == s.Policy })
	e.moved()
}
