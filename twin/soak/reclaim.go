package soak

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/policy/memory"
	"github.com/commensal-io/commensal/policy/pressure"
	"github.com/commensal-io/commensal/twin/fault"
	"github.com/commensal-io/commensal/twin/machine"
)

// Operators have memory taken back from best-effort tasks: an action, of which nothing stands afterwards.

// reclaimName is the file that does it, on cgroup v2 with the memory controller.
const reclaimName = "/memory.reclaim"

// generationsName is the file by which ages of pages are moved on ("+"), and pages of an age taken back ("-").
const generationsName = "/sys/kernel/debug/lru_gen"

// memoryBytes is what a socket's memory has: little enough for policy pressure to see it run short.
const memoryBytes = 3 << 29

// coldMemory is what best-effort tasks have in memory: page cache that is hardly used, and some that they take as they run.
var coldMemory = []machine.Heat{{Bytes: 512 << 20, EveryNsec: 600e9, File: true}, {Bytes: 256 << 20, EveryNsec: 5e9, OverNsec: 120e9}}

// withMemory is what a task is started as.
func withMemory(t *taskPlan, c machine.TaskConfig) machine.TaskConfig {
	if c.Memory = t.memory; c.Memory == nil && t.class == model.BE {
		c.Memory = coldMemory
	}
	return c
}

// reclaimOf is an operator's request to take memory back.
func reclaimOf(r source, task string) agent.Request {
	return agent.Request{Kind: model.CommandReclaim, Task: task, Bytes: pick[int64](r, 1, 4096, 20<<20, 200<<20, 1<<40)}
}

// reclaimed looks whether somebody asked for what an agent takes back of a group.
func (w *world) reclaimed(e *fault.Event) {
	if !e.Took {
		return
	}
	if e.Path == generationsName {
		if !w.mayAge(strings.HasPrefix(e.Data, "-")) {
			w.fail(checkReclaim, fmt.Sprintf("%s wrote %q to %s, and policy coldpages asks for no such thing", e.Who, e.Data, e.Path))
		}
		w.res.Aged++
		return
	}
	_, group, _ := strings.Cut(e.Path, w.witness.mounts[model.CPUBandwidth])
	group = strings.TrimSuffix(group, reclaimName)
	text, _, _ := strings.Cut(e.Data, " ") // behind it may stand which pages
	bytes, err := strconv.ParseInt(text, 10, 64)
	if err == nil && w.gaveWay(group, bytes) {
		w.res.Reclaims++
		return
	}
	if w.reclaims[group] -= bytes; err != nil || w.reclaims[group] < 0 {
		w.fail(checkReclaim, fmt.Sprintf("%s wrote %q to %s: more than was asked for", e.Who, e.Data, e.Path))
		return
	}
	w.res.Reclaims++
}

// mayAge reports whether policy coldpages asks for ages, and, to evict, whether it has asked some task for pages of an age.
func (w *world) mayAge(evict bool) bool {
	if w.life == nil {
		return false
	}
	mode, asked := w.life.Engine.Params.CPU.ColdPagesMode, w.life.Engine.State.CPU.ColdPages.Asked
	return mode != model.ModeOff && (!evict || slices.ContainsFunc(asked, func(a coldpages.Asked) bool { return a.Older > 0 }))
}

// gaveWay reports whether policy pressure, memory or coldpages has asked so much of a group.
func (w *world) gaveWay(group string, bytes int64) bool {
	if w.life == nil {
		return false
	}
	s := w.life.Engine.State
	if slices.ContainsFunc(s.CPU.ColdPages.Asked, func(a coldpages.Asked) bool { return a.Older == 0 && bytes <= a.Bytes && s.Tasks.Name(a.Num) == group }) {
		return true
	}
	if slices.ContainsFunc(s.CPU.Memory.Asked, func(a memory.Asked) bool { return bytes <= a.Bytes && s.Tasks.Name(a.Num) == group }) {
		return true
	}
	if slices.ContainsFunc(s.CPU.Pressure.Asked, func(a pressure.Asked) bool { return bytes <= a.Bytes && s.Tasks.Name(a.Num) == group }) {
		return true
	}
	// A roll-out switched the policy off after the host had been told: such calls wait for one another, and a task that it froze, and none is recalled.
	return s.CPU.Pressure.AtNsec == 0 && slices.ContainsFunc(s.Ledger.Knobs, func(k engine.Knob) bool {
		return k.Kind == model.MemoryReclaim && k.State == engine.KnobAsked && k.AskedBy == model.PolicyPressure && bytes <= k.Wanted.Amount && s.Tasks.Name(k.Task()) == group
	})
}
