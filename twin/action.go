package twin

import (
	"math"

	"github.com/commensal-io/commensal/model"
)

// run does an action at once, as the simulated kernel does; what copying pages takes the machine charges afterwards.
func (h *Host) run(e *entry, ask model.Setting, res *model.Result) {
	switch ask.Knob {
	case model.MemoryPages:
		h.movePages(e, ask, res)
	case model.MemoryReclaim:
		kept := -h.zswapped(e)
		got, err := h.m.Reclaim(e.num, float64(max(0, ask.Amount)), ask.OlderNsec, ask.Pages != model.FilePages, ask.Pages != model.AnonPages)
		if res.Now = model.ReclaimCold(int64(got), ask.Pages, ask.OlderNsec); err != nil || got < 1 && ask.OlderNsec == 0 {
			res.Kind, res.Error = model.Refused, "less was reclaimed than asked for"
		}
		res.Now.Kept = int64(kept + h.zswapped(e))
	case model.GroupKill:
		if err := h.Stop(e.task.Num); err != nil {
			res.Kind, res.Error = model.Vanished, err.Error()
		}
		res.Now = model.End(0)
	default:
		res.Kind, res.Error = model.Refused, "the simulated machine has no "+ask.Knob.String()
	}
}

// zswapped is what compressed copies of a task's pages take of memory, in bytes.
func (h *Host) zswapped(e *entry) float64 {
	u, _ := h.m.MemoryUse(e.num) // of one that is gone nothing
	return u.Zswap
}

// movePages takes pages of a task off memory nodes, in equal parts to the others: those with CPUs that are online, where there are any (node/linux).
func (h *Host) movePages(e *entry, ask model.Setting, res *model.Result) {
	pages, err := h.m.Pages(e.num)
	if err != nil {
		res.Kind, res.Error = model.Vanished, err.Error()
		return
	}
	there, onto, online := 0.0, model.FullSet(len(pages)).Without(ask.CPUs), model.CPUSet{}
	for node, share := range pages {
		if ask.CPUs.Has(node) {
			there += share
		}
	}
	c := h.m.Config()
	for _, cpu := range h.m.Online().Members() {
		online.Add(c.SocketOf(cpu))
	}
	if near := onto.And(online); !near.Empty() {
		onto = near
	}
	if onto.Empty() {
		res.Kind, res.Error = model.Refused, "there is no other memory node"
		return
	}
	keep := min(there, float64(ask.Amount)/1000)
	for node := range pages {
		switch {
		case onto.Has(node):
			pages[node] += (there - keep) / float64(onto.Len())
		case ask.CPUs.Has(node) && there > 0:
			pages[node] *= keep / there
		}
	}
	if err := h.m.MovePages(e.num, pages); err != nil {
		res.Kind, res.Error = model.Refused, err.Error()
		return
	}
	res.Now = ask
	res.Now.Amount = perMille(keep)
}

// perMille is a share of pages as an answer has it.
func perMille(share float64) int64 { return int64(math.Ceil(1000*share - 1e-6)) }
