package engine

import (
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/balm"
	"github.com/commensal-io/commensal/policy/bandwidth"
	"github.com/commensal-io/commensal/policy/blockio"
	"github.com/commensal-io/commensal/policy/burst"
	"github.com/commensal-io/commensal/policy/cache"
	"github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/policy/cpupool"
	"github.com/commensal-io/commensal/policy/cpuset"
	"github.com/commensal-io/commensal/policy/demote"
	"github.com/commensal-io/commensal/policy/hardcap"
	"github.com/commensal-io/commensal/policy/headroom"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/memory"
	"github.com/commensal-io/commensal/policy/outlier"
	"github.com/commensal-io/commensal/policy/pressure"
	"github.com/commensal-io/commensal/policy/remedy"
)

// Defaults returns what the policies take where nobody says otherwise. Each only observes; demote is off.
func Defaults() Params {
	return Params{
		CapPeriodNsec: 250e6, EndRuns: true, Outlier: outlier.Defaults(), Spec: localspec.Defaults(), Hardcap: hardcap.Defaults(),
		Limits: Limits{MaxHeldTasks: 4, MaxBETaken: 0.8},
		CPU: CPUParams{
			CPUSet: cpuset.Defaults(), CPUPool: cpupool.Defaults(), Burst: burst.Defaults(),
			DemoteMode: model.ModeOff, Demote: demote.Defaults(), CacheMode: model.ModeOff, Cache: cache.Defaults(),
			BandwidthMode: model.ModeOff, Bandwidth: bandwidth.Defaults(),
			BalmMode: model.ModeOff, Balm: balm.Defaults(),
			RemedyMode: model.ModeOff, Remedy: remedy.Defaults(),
			PressureMode: model.ModeOff, Pressure: pressure.Defaults(), ColdPagesMode: model.ModeOff, ColdPages: coldpages.Defaults(), Headroom: headroom.Defaults(),
			IOMode: model.ModeOff, IO: blockio.Defaults(), MemoryMode: model.ModeOff, Memory: memory.Defaults(),
		},
	}
}

// Section is what a configuration says to one policy.
type Section struct {
	Name string // of the policy and of its section
	Does string // in a few words, with the paper that it is from
	Mode *model.Mode
	Pace model.Pace // at which it looks when it enforces
	Rows []model.Param
	// Check finds parameters that do not fit each other: the first one's key within the
	// section, and why. "" when all do.
	Check func() (key, why string)
}

// Sections lists the policies with their parameters, in the order in which they run.
func (p *Params) Sections() []Section {
	list := make([]Section, len(policyRows))
	for i := range policyRows {
		r := &policyRows[i]
		list[i] = Section{Name: r.name, Does: r.does, Mode: r.mode(p), Pace: r.paceOf(p), Rows: r.rows(p), Check: func() (key, why string) { return "", "" }}
		if r.check != nil {
			list[i].Check = func() (key, why string) { return r.check(p) }
		}
	}
	return list
}

// paceOf is how often a policy that enforces has to look.
func (r *row) paceOf(p *Params) model.Pace {
	if r.pace == nil {
		return model.PaceWindow
	}
	return r.pace(p)
}

// Pace is how often the policies have to look at the machine: as often as the most hurried.
func (p *Params) Pace() model.Pace {
	pace := model.PaceWindow
	for i := range policyRows {
		pace = max(pace, policyRows[i].mode(p).Pace(policyRows[i].paceOf(p)))
	}
	return pace
}

// SetModes puts every policy into a mode.
func (p *Params) SetModes(m model.Mode) {
	for i := range policyRows {
		*policyRows[i].mode(p) = m
	}
}

// hardcapRows are the parameters of detection, specs, correlation and caps together: one
// policy to whoever configures it.
func (p *Params) hardcapRows() []model.Param {
	period := []model.Param{{
		Key: "hard_capping_period", At: model.Nsec(&p.CapPeriodNsec), Least: 1e6, Most: 1e9, Unit: "the kernel's bounds",
		Why: "CPI² §5: 25 ms in each 250 ms",
	}}
	rows := model.Below("cpi2", p.Spec.Rows(), p.Outlier.Rows(), p.Hardcap.Rows(), period)
	for src := range model.NumSources {
		rows = append(rows, model.Below(src.Row().Section, p.signalRows(src))...)
	}
	h := &p.Hardcap
	return slices.Concat(rows, model.Below("groups", h.Groups.Rows()), model.Below("feedback", h.Feedback.Rows()), model.Below("confirm", h.Confirm.Rows()), model.Below("blame", h.Blame.Rows()), model.Below("demote", h.Demote.Rows()), model.Below("repeat", h.Repeat.Rows()), model.Below("coded", h.Coded.Rows()), model.Below("relief_first", h.First.Rows()))
}

// signalRows are the parameters that a signal has of its own.
func (p *Params) signalRows(src model.Source) []model.Param {
	a, row := &p.Hardcap.Antagonist[src], src.Row()
	rows := a.Rows(row.Calibrated)
	switch {
	case row.Waits, row.Beside:
		rows = slices.Concat(p.Outlier.RowsOf(src), rows, a.BoundRows())
	case row.Targeted:
		rows = slices.Concat(rows, a.BoundRows())
	}
	return rows
}

func (p *Params) checkHardcap() (key, why string) {
	for src := range model.NumSources {
		if key, why := p.Hardcap.Antagonist[src].Check(); why != "" {
			return src.Row().Section + "." + key, why
		}
	}
	return p.Hardcap.Check()
}

// Rows describes the limits on all holds together.
func (l *Limits) Rows() []model.Param {
	return []model.Param{
		{Key: "max_held_tasks", At: &l.MaxHeldTasks, Least: 1, Most: model.Unbounded, Soak: [2]float64{1, 5}, Unit: "tasks; mode: observe holds nobody", Why: "tasks held at once; the first may always be held"},
		{Key: "max_be_cpu_taken", At: &l.MaxBETaken, Most: 1, Soak: [2]float64{0.3, 1}, Unit: "a share", Why: "share of the node's BE CPU held back at once, beyond the first task"},
	}
}
