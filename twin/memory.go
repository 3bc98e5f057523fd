package twin

import (
	"math"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin/machine"
)

// Meter has the host say what the CPUs of each domain move to and from memory, as the kernel's files would: a
// domain a last-level cache, BE's part as the RMIDs of its classes count it, and each reading in the snapshot of the next window's
// edge, as what each task has of the caches and moves. It says of each snapshot how much memory the tasks and the machine use, and what tasks do on the disk. Ages of pages
// it reads three times in the shortest age that is asked for.
func (h *Host) Meter(r node.Readings) {
	h.meters, h.inUse, h.io, h.counts, h.metered, h.had, h.homes, h.agesEvery = r.Moved, r.InUse, r.IO, r.Domains, nil, nil, r.Homes, r.Ages.ShortestNsec/3
}

// countTasks reads what each task has of the caches and moved, of the tasks that the agent knows: as a machine does that has a number for each of them.
func (h *Host) countTasks() (list []model.DomainSample) {
	for i := range h.tasks {
		e := &h.tasks[i]
		if e.gone || e.hidden || !e.known {
			continue
		}
		if e.countedNsec == 0 {
			e.countedNsec = max(1, h.m.NowNsec())
			continue // its group is made now, and read at the next edge
		}
		for s := range h.caches() {
			d := model.DomainSample{Num: e.task.Num, Domain: int32(s), SinceNsec: e.countedNsec, MonoNsec: h.m.NowNsec()}
			occupancy, err := h.m.Occupancy(e.num, s)
			total, local := h.m.Traffic(e.num, s)
			if err != nil {
				panic("a task that lives has lines: " + err.Error())
			}
			for k, bytes := range [...]float64{model.CountOccupancy: occupancy, model.CountMovedTotal: total, model.CountMovedLocal: local} {
				d.C[k] = model.Read(uint64(bytes) / machine.MonitorBytes * machine.MonitorBytes)
			}
			list = append(list, d)
		}
	}
	return list
}

// readAges reads the ages of the tasks of which it is time, to the page: as a kernel would that looks at each all the time.
func (h *Host) readAges(dst []model.PageAges) []model.PageAges {
	for i := range h.tasks {
		e := &h.tasks[i]
		if h.agesEvery == 0 || e.gone || e.hidden || e.agedAt != 0 && h.m.NowNsec()-e.agedAt < h.agesEvery {
			continue
		}
		e.agedAt = max(1, h.m.NowNsec())
		a := model.PageAges{Num: e.task.Num, MonoNsec: e.agedAt, Source: "twin"}
		for k, edge := range model.AgeEdges {
			if anon, file, err := h.m.MemoryOlder(e.num, edge); err == nil {
				a.Anon[k], a.File[k] = uint64(anon)&^4095, uint64(file)&^4095
			}
		}
		dst = append(dst, a)
	}
	return dst
}

// readHomes is where the pages of LC tasks lie, as memory.numa_stat has it.
func (h *Host) readHomes() (list []model.PageHomes) {
	for i := range h.tasks {
		e := &h.tasks[i]
		if !h.homes || h.m.Config().Sockets < 2 || !e.known || e.gone || e.hidden || e.task.Class != model.LC {
			continue
		}
		pages, err := h.m.Pages(e.num)
		if err != nil {
			continue
		}
		bytes := float64(unsized)
		if u, err := h.m.MemoryUse(e.num); err == nil && u.Anon > 0 {
			bytes = u.Anon
		}
		at := model.PageHomes{Num: e.task.Num, Bytes: make([]uint64, len(pages))}
		for node, share := range pages {
			at.Bytes[node] = uint64(math.Round(share * bytes))
		}
		list = append(list, at)
	}
	return list
}

// unsized is the memory of a task whose size is not simulated, of which shares are told: 1 GiB.
const unsized = 1 << 30

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

// Look implements node.Looking.
func (h *Host) Look(l *model.Look) {
	*l = model.Look{MonoNsec: h.m.NowNsec(), Tasks: l.Tasks[:0]}
	h.observeRoom(&l.Node)
	for i := range h.tasks {
		if e := &h.tasks[i]; e.known && !e.gone && !e.hidden && e.task.Class == model.BE {
			s := model.TaskSample{}
			if h.observeInUse(e, &s); s.C[model.CountMemory].Outcome == model.OK {
				l.Tasks = append(l.Tasks, model.TaskMemory{Num: e.task.Num, Bytes: s.C[model.CountMemory].Value})
			}
		}
	}
}

// Watch implements node.Looking, by the machine's own physics.
func (h *Host) Watch(some, full float64) error {
	h.stalls = h.m.WatchStalls(some, full)
	return nil
}

// Stalls implements node.Looking.
func (h *Host) Stalls() <-chan struct{} {
	if h.stalls == nil {
		return nil
	}
	return h.stalls.Stalls()
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
	s.C[model.CountMemory], s.C[model.CountMemoryAnon], s.C[model.CountMemoryFile] = model.Read(anon.Value+file.Value+pages(u.Zswap).Value), anon, file
	s.C[model.CountRefaults] = model.Read(u.FaultPages)
	if _, old, err := h.m.MemoryOlder(e.num, machine.ActiveNsec); err == nil {
		s.C[model.CountMemoryInactive] = pages(old)
	}
	if stall, err := h.m.Pressure(e.num); err == nil {
		s.C[model.CountMemoryStall] = model.Read(stall.MemorySome / 1000 * 1000)
	}
}

// pages is an amount of memory in whole pages, as the kernel counts it, in bytes.
func pages(bytes float64) model.Counter { return model.Read(uint64(bytes) &^ 4095) }

// meter reads all domains.
func (h *Host) meter() (list []model.MemorySample) {
	read := func(v float64) model.Counter { return model.Read(uint64(v)) }
	c := h.m.Config()
	for s := range c.Caches() {
		m := model.MemorySample{Domain: int32(s), MonoNsec: h.m.NowNsec()}
		total, local := h.m.RMIDTraffic(0, s)
		be, beLocal, stands := 0.0, 0.0, false
		for rmid := 1; rmid < len(h.made); rmid++ {
			all, own := h.m.RMIDTraffic(rmid, s)
			if model.OfServices(h.made[rmid].class) {
				total, local = total+all, local+own
				continue
			}
			be, beLocal = be+all, beLocal+own
			stands = stands || h.classStands(h.made[rmid].class)
		}
		m.C[model.CountMemTotal], m.C[model.CountMemLocal] = read(total+be), read(local+beLocal)
		if stands {
			m.C[model.CountMemBE] = read(be)
		}
		m.C[model.CountMemLatency] = model.Read(uint64(math.Round(h.m.Memory(c.Home(s)).LatencyNsec)))
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

// memoryHigh is memory.high of a task's cgroup.
func memoryHigh(m *machine.Machine, num int) (model.Setting, error) {
	high, _, err := m.MemoryLimits(num)
	if high <= 0 {
		return model.HighMemory(model.NoMemoryHigh), err
	}
	return model.HighMemory(int64(high)), err
}

func setMemoryHigh(m *machine.Machine, num int, v model.Setting) error {
	_, limit, err := m.MemoryLimits(num)
	if err != nil {
		return err
	}
	high := 0.0
	if v.Amount != model.NoMemoryHigh {
		high = max(1, float64(v.Amount)) // 0 is none here, and one byte the least
	}
	return m.SetMemoryLimits(num, high, limit)
}
