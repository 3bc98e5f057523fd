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
	owner []owner // by number of the machine
}

// owner is whose a task of the machine is: the agent's task, or without one the kernel's or nobody's.
type owner struct {
	task   model.TaskNum
	kernel bool
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
	kernel := model.WaitShare{Party: model.WaitKernel} // of all its threads, under the name of the one that ran longest
	threads, most := 0.0, 0.0
	add := func(share model.WaitShare, nsec float64) {
		if share.Nsec = int64(math.Round(nsec)); share.Nsec > 0 {
			w.Shares = append(w.Shares, share)
		}
	}
	for num, nsec := range t.Charged {
		switch of := h.waits.ownerOf(num); {
		case of.task != 0:
			add(model.WaitShare{Party: model.WaitTask, Task: of.task}, nsec)
		case of.kernel:
			if threads += nsec; nsec > most {
				most, kernel.Process = nsec, h.m.Name(num)
			}
		default:
			add(model.WaitShare{Party: model.WaitUnmanaged, Process: h.m.Name(num)}, nsec)
		}
	}
	add(kernel, threads)
	add(model.WaitShare{Party: model.WaitSoftIRQ}, t.TakenNsec[machine.SoftIRQ])
	add(model.WaitShare{Party: model.WaitSteal}, t.TakenNsec[machine.Steal])
	add(model.WaitShare{Party: model.WaitThrottled}, t.ThrottledNsec)
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

func (w *waited) ownerOf(num int) owner {
	if num >= len(w.owner) {
		return owner{}
	}
	return w.owner[num]
}

func (w *waited) own(num int, of owner) {
	for len(w.owner) <= num {
		w.owner = append(w.owner, owner{})
	}
	w.owner[num] = of
}
