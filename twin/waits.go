package twin

import (
	"cmp"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// maxShares is what node/linux keeps of a task.
const maxShares = 8

// waited is how the LC tasks waited in the window that ends, as node/linux tells it: only within
// windows, under the numbers of tasks, with the largest shares. The programs that measure it on
// Linux have no cost here, so that no window is left out.
type waited struct {
	on    bool // in a window
	taken machine.Waits
	owner []model.TaskNum // by number of the machine; 0: not the agent's
}

// switchWaits has the waits of LC tasks measured from now on, or not any more.
func (h *Host) switchWaits(on bool) {
	h.waits.on = on
	for i := range h.tasks {
		e := &h.tasks[i]
		if e.gone || e.hidden || e.task.Class != model.LC {
			continue
		}
		if err := h.m.Watch(e.num, on); err != nil {
			panic("a task that lives can be watched: " + err.Error())
		}
	}
}

// observeWaits adds to a sample how its task waited.
func (h *Host) observeWaits(e *entry, s *model.TaskSample) (model.Waiting, bool) {
	if !h.waits.on || e.task.Class != model.LC {
		return model.Waiting{}, false
	}
	t := &h.waits.taken
	clear(t.Charged)
	*t = machine.Waits{Charged: t.Charged}
	if err := h.m.TakeWaits(e.num, t); err != nil {
		panic("a task that lives can be watched: " + err.Error())
	}
	w := model.Waiting{Num: e.task.Num, P99Nsec: t.Quantile(0.99), LongestNsec: int64(t.LongestNsec), Waits: t.Wakeups + int64(t.Preempted)}
	for num, nsec := range t.Charged {
		share := model.WaitShare{Party: model.WaitUnmanaged, Nsec: int64(math.Round(nsec))}
		switch task := h.waits.ownerOf(num); {
		case share.Nsec == 0:
			continue
		case task != 0:
			share.Party, share.Task = model.WaitTask, task
		default:
			share.Process = h.m.Name(num)
		}
		w.Shares = append(w.Shares, share)
	}
	if held := int64(math.Round(t.ThrottledNsec)); held > 0 {
		w.Shares = append(w.Shares, model.WaitShare{Party: model.WaitThrottled, Nsec: held})
	}
	for i := range w.Shares {
		w.Nsec += w.Shares[i].Nsec
	}
	e.waited += uint64(w.Nsec)
	e.waitedForeign += uint64(w.Foreign())
	s.C[model.CountWaited], s.C[model.CountWaitedForeign] = model.Read(e.waited), model.Read(e.waitedForeign)
	s.C[model.CountWaitP99] = model.Read(uint64(w.P99Nsec))
	slices.SortFunc(w.Shares, func(a, b model.WaitShare) int {
		if a.Nsec != b.Nsec {
			return cmp.Compare(b.Nsec, a.Nsec)
		}
		return cmp.Or(cmp.Compare(b.Party, a.Party), cmp.Compare(a.Task, b.Task))
	})
	w.Shares = w.Shares[:min(len(w.Shares), maxShares)]
	return w, w.Nsec > 0
}

func (w *waited) ownerOf(num int) model.TaskNum {
	if num >= len(w.owner) {
		return 0
	}
	return w.owner[num]
}

func (w *waited) own(num int, task model.TaskNum) {
	for len(w.owner) <= num {
		w.owner = append(w.owner, 0)
	}
	w.owner[num] = task
}
