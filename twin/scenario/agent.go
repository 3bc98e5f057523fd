package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/twin"
)

// shell is the agent as a scenario needs it: the turns of its loop, without a process, a
// disk or a socket.
type shell struct {
	plan     *Plan
	bed      Bed
	params   engine.Params
	mode     model.Mode // as configured; before the warm-up is over it is off
	engine   *engine.Engine
	schedule cadence.Schedule
	origin   int64 // when it started
	starts   int

	in      engine.Input
	snap    model.Snapshot
	pulse   model.Pulse
	results []model.Result
	pending []model.Command
	kill    bool
}

func newShell(p *Plan, bed Bed, mode model.Mode) *shell {
	c := &p.config
	s := &shell{
		plan: p, bed: bed, params: c.Params(p.Scenario.Machine.Platform), mode: mode,
		schedule: cadence.New(c.Pace()),
	}
	s.start(0)
	return s
}

// start is the agent's start: it remembers nothing of an earlier one but what a fleet
// tells it anew.
func (s *shell) start(now int64) {
	s.starts++
	if s.starts > 1 {
		s.params.Hardcap.IDPrefix = fmt.Sprintf("r%d", s.starts-1)
	}
	s.engine = engine.New(s.params)
	for i := range s.plan.Scenario.Specs {
		teach(s.engine.State, s.params.Platform, &s.plan.Scenario.Specs[i], now)
	}
	s.origin, s.results, s.pending = now, nil, nil
}

// teach stores a fleet's spec as if it had been learned here: local samples are weighed
// against all of its own.
func teach(st *engine.State, platform string, sp *Spec, now int64) {
	var src model.Source
	_ = src.UnmarshalText([]byte(sp.Source)) // checked
	e := localspec.Entry{
		Key:     localspec.Key{Job: sp.Job, Source: src},
		History: localspec.Moments{N: float64(sp.Samples), Mean: sp.Mean, M2: sp.StdDev * sp.StdDev * float64(sp.Samples)},
		Spec: &model.Spec{
			Job: sp.Job, Platform: platform, Source: src, NumSamples: sp.Samples, Mean: sp.Mean, StdDev: sp.StdDev, MonoNsec: now,
		},
	}
	i, _ := slices.BinarySearchFunc(st.Specs.Entries, e.Key, func(a localspec.Entry, k localspec.Key) int {
		if c := strings.Compare(a.Key.Job, k.Job); c != 0 {
			return c
		}
		return int(a.Key.Source) - int(k.Source)
	})
	st.Specs.Entries = slices.Insert(st.Specs.Entries, i, e)
}

// next returns when the agent takes its next turn after a time.
func (s *shell) next(now int64) (at int64, t cadence.Turn) {
	at, t = s.schedule.Next(now - s.origin)
	return at + s.origin, t
}

// tick takes one turn: observe, step, apply. What was applied stands in s.results.
func (s *shell) tick(t cadence.Turn) (*engine.Output, error) {
	now := s.bed.Machine().NowNsec()
	s.in.Seq++
	s.in.Snapshot, s.in.Pulse, s.in.MonoNsec, s.in.WallNsec = nil, nil, now, twin.EpochNsec+now
	if t.Mark != 0 {
		if err := s.bed.Observe(t.Mark, &s.snap); err != nil {
			return nil, fmt.Errorf("observe: %w", err)
		}
		s.in.Snapshot = &s.snap
		s.in.MonoNsec = s.snap.MonoNsec
	}
	if t.Pulse {
		s.bed.Pulse(s.engine.NeedsDetail(now), &s.pulse)
		s.in.Pulse = &s.pulse
	}
	s.in.Knobs = s.in.Knobs[:0]
	if t.Compare {
		s.in.Knobs = s.bed.Knobs(s.in.Knobs)
	}
	s.in.Results, s.results = s.results, s.in.Results[:0]
	s.in.Commands, s.pending = s.pending, s.in.Commands[:0]
	s.in.KillSwitch = s.kill
	s.engine.Params.Mode = s.mode
	if now < int64(s.plan.warmUp()) {
		s.engine.Params.Mode = model.ModeOff
	}
	out := s.engine.Step(&s.in)
	s.results = s.bed.Apply(out.Changes, s.results[:0])
	return out, nil
}

// command hands an operator's word in, which is heard at the next turn, or returns why the
// agent does not take it: the rules of its API.
func (s *shell) command(o *Operator, path string) (refused string) {
	c := model.Command{Kind: o.Do, Job: o.Job, By: "operator"}
	if path != "" {
		t := s.engine.State.Tasks.ByPath(path)
		switch {
		case t == nil:
			return "the agent does not know it" // yet, or any more
		case o.Do == model.CommandCap && s.engine.State.Killed:
			return "the kill switch is there"
		case o.Do == model.CommandCap && t.Class != model.BE:
			return fmt.Sprintf("it is %s, and never held", t.Class)
		}
		c.Task, c.Cap, c.DurationNsec = t.Num, o.CPUs, int64(o.For)
	}
	s.pending = append(s.pending, c)
	return ""
}

// thresholds returns the outlier threshold of each job that has a spec.
func (s *shell) thresholds() map[string]float64 {
	out := map[string]float64{}
	entries := s.engine.State.Specs.Entries
	for i := range entries {
		if e := &entries[i]; e.Spec != nil {
			// Entries are ordered by job, the preferred source first.
			if _, ok := out[e.Key.Job]; !ok {
				if v := s.params.Outlier.Threshold(e.Spec); !math.IsNaN(v) {
					out[e.Key.Job] = v
				}
			}
		}
	}
	return out
}
