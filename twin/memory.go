package twin

import (
	"math"

	"github.com/commensal-io/commensal/model"
)

// Meter has the host say what the CPUs of each domain move to and from memory, as the kernel's files would: a
// domain a socket, BE's part as the RMIDs of its classes count it, and each reading in the snapshot of the next window's
// edge. With inUse it says of each snapshot how much memory the tasks and the machine use, too.
func (h *Host) Meter(moved, inUse bool) { h.meters, h.inUse, h.metered = moved, inUse, nil }

// observeRoom is the machine's own memory, as /proc/meminfo and /proc/pressure/memory have it.
func (h *Host) observeRoom(n *model.NodeSample) {
	if !h.inUse {
		return
	}
	room, stall := h.m.MemoryRoom(), h.m.SystemPressure()
	n.C[model.CountMemoryTotal], n.C[model.CountMemoryAvailable] = pages(room.Total), pages(room.Available)
	n.C[model.CountSwapFree] = pages(room.SwapFree)
	n.C[model.CountMemorySome], n.C[model.CountMemoryFull] = model.Read(stall.MemorySome/1000*1000), model.Read(stall.MemoryFull/1000*1000)
}

// observeInUse is a task's memory, as its cgroup's files have it.
func (h *Host) observeInUse(e *entry, s *model.TaskSample) {
	if !h.inUse {
		return
	}
	u, err := h.m.MemoryUse(e.num)
	if err != nil {
		return
	}
	anon, file := pages(u.Anon), pages(u.File)
	s.C[model.CountMemory], s.C[model.CountMemoryAnon], s.C[model.CountMemoryFile] = model.Read(anon.Value+file.Value), anon, file
	s.C[model.CountRefaults] = model.Read(u.FaultPages)
}

// pages is an amount of memory in whole pages, as the kernel counts it, in bytes.
func pages(bytes float64) model.Counter { return model.Read(uint64(bytes) &^ 4095) }

// meter reads all sockets.
func (h *Host) meter() (list []model.MemorySample) {
	read := func(v float64) model.Counter { return model.Read(uint64(v)) }
	for s := range h.m.Config().Sockets {
		m := model.MemorySample{Domain: int32(s), MonoNsec: h.m.NowNsec()}
		total, local := h.m.RMIDTraffic(0, s)
		be, beLocal, stands := 0.0, 0.0, false
		for rmid := 1; rmid < len(h.made); rmid++ {
			all, own := h.m.RMIDTraffic(rmid, s)
			be, beLocal = be+all, beLocal+own
			stands = stands || h.classStands(h.made[rmid].class)
		}
		m.C[model.CountMemTotal], m.C[model.CountMemLocal] = read(total+be), read(local+beLocal)
		if stands {
			m.C[model.CountMemBE] = read(be)
		}
		m.C[model.CountMemLatency] = model.Read(uint64(math.Round(h.m.Memory(s).LatencyNsec)))
		list = append(list, m)
	}
	return list
}

// classStands reports whether there is a class of ours: some task is in it, or one of its knobs is ours.
func (h *Host) classStands(class model.TaskNum) bool {
	for i := range h.tasks {
		if e := &h.tasks[i]; !e.gone && e.knobs[model.ServiceClass].held && h.classOf(e) == model.InClass(class) {
			return true
		}
	}
	for _, k := range h.classes {
		if k.held && k.target.Num == class {
			return true
		}
	}
	return false
}
