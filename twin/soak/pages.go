package soak

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/remedy"
	"github.com/commensal-io/commensal/twin/machine"
)

// Operators and policies have a best-effort task's pages moved off a memory node: an action through kernel calls.

// drawFar leaves policy remedy little but pages, on a machine of two sockets, and little patience: else five minutes hardly ever come to them, and never to their
// way home.
func (p *plan) drawFar(r source) {
	c := &p.config.Policies.CPU
	c.CPUSetMode, c.BalmMode, c.RemedyMode = model.ModeOff, model.ModeOff, model.ModeEnforce
	c.Remedy.Demote, c.Remedy.Pool, c.Remedy.Power, c.Remedy.Home = r.chance(0.1), r.chance(0.1), r.chance(0.1), r.chance(0.9)
	c.Remedy.Windows, c.Remedy.SettleNsec = 2, r.seconds(0, 1)
	c.Remedy.QuietNsec, c.Remedy.RetryNsec, c.Remedy.RestNsec = r.seconds(1, 3), r.seconds(5, 20), r.seconds(5, 20)
	if r.chance(0.7) {
		p.rdt, c.CacheMode = false, model.ModeOff
	}
}

// drawLarge gives best-effort tasks memory that takes long to move, and has the kill switch appear more often: what is on its way then is to end.
func (p *plan) drawLarge(r source, end int64) {
	for i := range p.tasks {
		if t := &p.tasks[i]; t.class == model.BE && t.memory == nil {
			t.memory = append([]machine.Heat{{Bytes: r.between(0.2, 3) * (1 << 30), EveryNsec: 1e9}}, coldMemory...)
		}
	}
	for range r.count(1, 4) {
		at := r.seconds(0, float64(end)/1e9)
		p.events = append(p.events, event{at: at, do: switchOn}, event{at: at + r.seconds(1, 20), do: switchOff})
	}
	sortEvents(p.events)
}

// movesOf is an operator's request to move pages; not every machine has that node, or another.
func movesOf(r source, task string) agent.Request {
	return agent.Request{Kind: model.CommandMovePages, Task: task, Node: pick(r, 0, 0, 1, 7), Keep: pick(r, 0, 0.1, 0.5, 1, 2)}
}

// pageCalls looks at what is moved.
type pageCalls struct {
	numa.Calls
	w *world
}

func (c pageCalls) MovePages(pid int32, pages []uintptr, nodes, status []int32, flags int) (int, error) {
	if nodes != nil {
		c.w.movesPages(pid, nodes)
	}
	return c.Calls.MovePages(pid, pages, nodes, status, flags)
}

// movesPages looks whether somebody asked for a process's pages to be moved so.
func (w *world) movesPages(pid int32, nodes []int32) {
	g := w.groupWith(pid)
	if g == nil {
		return // it has ended, or its group has: the kernel says so
	}
	if off, home, asked := w.policyMoves(g.task); asked && g.class == model.BE && !slices.ContainsFunc(nodes, func(n int32) bool { return off.Has(int(n)) }) {
		w.res.Moves++
		w.res.Homeward += bit(home)
		return
	}
	off, asked := w.moves[g.task]
	if from, ok := w.witness.from[g.task]; ok && !asked {
		off, asked = w.moves[from]
	}
	if !asked || g.class != model.BE || slices.ContainsFunc(nodes, func(n int32) bool { return slices.Contains(off, int(n)) && len(off) == 1 }) {
		w.fail(checkPages, fmt.Sprintf("pages of %s are moved to nodes %v; asked for: off %v", g.path, slices.Compact(slices.Sorted(slices.Values(nodes))), off))
		return
	}
	w.res.Moves++
}

// policyMoves says off which memory nodes policy balm or remedy has a task's pages moved, and whether that is their way home.
func (w *world) policyMoves(task string) (off model.CPUSet, home, asked bool) {
	if w.life == nil {
		return off, false, false
	}
	s := w.life.Engine.State
	for i := range s.CPU.Balm.Rungs {
		r := &s.CPU.Balm.Rungs[i]
		if r.Pages.Moving && s.Tasks.Name(r.Tasks[0]) == task {
			return r.Pages.Off, false, true
		}
	}
	for i := range s.CPU.Remedy.Holds {
		if h := &s.CPU.Remedy.Holds[i]; h.Means == remedy.Pages && h.Moved == "" && s.Tasks.Name(h.Task) == task {
			return h.Off, h.Home, true
		}
	}
	for i := range s.Ledger.Knobs { // an operator freed the task meanwhile: what was handed on goes to its end
		k := &s.Ledger.Knobs[i]
		if k.Kind == model.MemoryPages && k.State == engine.KnobAsked && (k.AskedBy == model.PolicyBalm || k.AskedBy == model.PolicyRemedy) && s.Tasks.Name(k.Task()) == task {
			return k.Wanted.CPUs, false, true
		}
	}
	return off, false, false
}
