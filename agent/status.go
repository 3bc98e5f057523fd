package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// Status is what the agent says of itself and of the node.
type Status struct {
	Version    string            `json:"version"`
	Profile    string            `json:"profile"`
	Mode       string            `json:"mode"`        // as configured
	ModeNow    string            `json:"mode_now"`    // after kill switch and protection
	KillSwitch bool              `json:"kill_switch"` // the file is there
	ProtectOff []string          `json:"protect_off"` // jobs; "" stands for all
	StartedAt  time.Time         `json:"started_at"`
	Windows    uint64            `json:"windows"`
	Warnings   []string          `json:"warnings"`
	Tasks      []TaskStatus      `json:"tasks"`
	Specs      []*model.Spec     `json:"specs"`
	Held       []HeldStatus      `json:"held"`
	Incidents  []*model.Incident `json:"incidents"` // the latest, oldest first
	SLO        []SLOStatus       `json:"slo"`
}

// TaskStatus is one task in its last window.
type TaskStatus struct {
	model.Task
	CPU       model.Value  `json:"cpu"` // CPU-sec/sec
	Source    model.Source `json:"source"`
	Signal    model.Value  `json:"signal"`
	Threshold float64      `json:"threshold"` // 0: no spec yet
	Verdict   string       `json:"verdict"`
	// Lacks says what the task does without, and why: "hardware counters: ...".
	Lacks []string `json:"lacks,omitempty"`
}

// HeldStatus is one knob with claims, or with something of ours in it.
type HeldStatus struct {
	Path    string         `json:"path"`
	Knob    model.KnobKind `json:"knob"`
	State   string         `json:"state"`
	Cap     float64        `json:"cap"` // CPU-sec/sec; 0: none in force
	Found   model.Setting  `json:"found"`
	Written model.Setting  `json:"written"`
	Claims  []model.Claim  `json:"claims"`
	Seconds float64        `json:"seconds_left"`
	Why     string         `json:"why,omitempty"`
}

// status is called in the loop.
func (a *Agent) status() *Status {
	s := a.core.Engine.State
	st := &Status{
		Version: a.version, Profile: a.cfg.Profile, Mode: a.cfg.Mode, ModeNow: s.LastMode.String(), KillSwitch: s.Killed,
		ProtectOff: append([]string{}, s.ProtectOff...), StartedAt: a.started, Windows: a.core.counts.windows,
		Warnings: append([]string{}, a.warnings...), Incidents: append([]*model.Incident{}, a.core.recent...),
		Tasks: []TaskStatus{}, Specs: []*model.Spec{}, Held: []HeldStatus{}, SLO: a.slo.status(),
	}
	if a.core.failing != "" {
		st.Warnings = append(st.Warnings, a.core.failing)
	}
	for i := range s.Tracks {
		t := &s.Tracks[i]
		st.Tasks = append(st.Tasks, TaskStatus{
			Task: s.Tasks.Tasks[i], CPU: t.CPU, Source: t.Source, Signal: t.Signal, Threshold: t.Limit, Verdict: t.Verdict.String(),
		})
	}
	a.lacking(st)
	for i := range s.Specs.Entries {
		if sp := s.Specs.Entries[i].Spec; sp != nil {
			st.Specs = append(st.Specs, sp)
		}
	}
	for i := range s.Ledger.Knobs {
		st.Held = append(st.Held, a.held(&s.Ledger.Knobs[i]))
	}
	return st
}

// maxNames bounds the names in a warning; each task says itself what it lacks.
const maxNames = 8

// lacking says of each task what it does without, and warns once a reason.
func (a *Agent) lacking(st *Status) {
	if a.lacks == nil {
		return
	}
	names := map[string][]string{}
	var order []string
	for _, l := range a.lacks(nil) {
		i, ok := slices.BinarySearchFunc(st.Tasks, l.Task, func(t TaskStatus, n model.TaskNum) int { return cmp.Compare(t.Num, n) })
		if !ok {
			continue // the engine has not heard of it yet
		}
		text := l.What + ": " + l.Why
		st.Tasks[i].Lacks = append(st.Tasks[i].Lacks, text)
		if names[text] == nil {
			order = append(order, text)
		}
		names[text] = append(names[text], l.Path)
	}
	for _, text := range order {
		list := names[text]
		who := strings.Join(list[:min(len(list), maxNames)], ", ")
		if n := len(list) - maxNames; n > 0 {
			who += fmt.Sprintf(" and %d more", n)
		}
		st.Warnings = append(st.Warnings, who+": no "+text)
	}
}

func (a *Agent) held(k *engine.Knob) HeldStatus {
	h := HeldStatus{
		Knob: k.Kind, Path: a.core.Engine.State.Tasks.Name(k.Task), State: k.State.String(), Found: k.Found, Written: k.Written,
		Claims: append([]model.Claim{}, k.Claims...), Why: k.Why,
	}
	if k.Ours && k.Kind == model.CPUBandwidth {
		h.Cap = k.Written.Ratio()
		if k.Written.QuotaUsec < 0 {
			h.Cap = 0 // what was found is no limit, and was lower than the cap: not ours to change
		}
	}
	for _, c := range k.Claims {
		h.Seconds = max(h.Seconds, float64(c.ExpiresNsec-a.core.in.MonoNsec)/1e9)
	}
	return h
}
