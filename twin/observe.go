package twin

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Observe implements node.Host.
func (h *Host) Observe(mark model.WindowMark, snap *model.Snapshot) error {
	tasks, settings, waiting, online := snap.Tasks[:0], snap.Settings[:0], snap.Waiting[:0], h.m.Online()
	h.ios = h.ios[:0]
	*snap = model.Snapshot{
		MonoNsec: h.m.NowNsec(), WallNsec: h.WallNsec(), Mark: mark,
		Added: h.added, Removed: h.removed,
	}
	node := &snap.Node
	node.CPUs, node.C[model.CountSteal] = online.Len(), model.Read(h.m.TakenNsec(machine.Steal))
	h.observeRoom(node)
	h.added, h.removed = nil, nil
	if !h.told || h.online != online {
		h.told, h.online = true, online
		snap.Topology = topology(h.m)
		snap.Topology.Classes = h.offers()
	}
	// The sum of what all say leaves nothing over, where the machine's own figure would leave a
	// rounding that passes for unmanaged CPU.
	busy := h.over + h.m.TakenNsec(machine.SoftIRQ)
	for i := range h.tasks {
		e := &h.tasks[i]
		if e.gone {
			continue
		}
		k, err := h.m.Counters(e.num)
		if err != nil {
			return err
		}
		busy += k.UsageNsec
		if e.hidden {
			continue
		}
		if !e.known {
			e.known, e.usage = true, k.UsageNsec
		}
		s := h.sample(e, &k)
		if mark&model.WindowEnd != 0 {
			if w, ok := h.observeWaits(e, &s); ok {
				waiting = append(waiting, w)
			}
		}
		tasks = append(tasks, s)
		settings = h.list(e, settings)
	}
	if mark&model.WindowEnd != 0 {
		snap.Waiting = waiting
	}
	if mark != 0 && h.meters {
		snap.Memory, h.metered = h.metered, h.meter()
	}
	if mark != 0 && h.counts {
		snap.Domains, h.had = h.had, h.countTasks()
	}
	if mark&model.WindowEnd != 0 {
		snap.Ages, snap.Homes = h.readAges(nil), h.readHomes()
	}
	if mark != 0 {
		h.switchWaits(mark&model.WindowStart != 0)
	}
	snap.IO = h.ios
	snap.Tasks, snap.Settings, node.C[model.CountBusy] = tasks, settings, model.Read(busy)
	return nil
}

func (h *Host) sample(e *entry, k *machine.Counters) model.TaskSample {
	s := model.TaskSample{Num: e.task.Num}
	s.C[model.CountUsage], s.C[model.CountThrottled] = model.Read(k.UsageNsec), model.Read(k.Throttled)
	s.C[model.CountRun], s.C[model.CountDelay] = model.Read(k.UsageNsec), model.Read(k.DelayNsec)
	if stalls, err := h.m.Pressure(e.num); err == nil {
		s.C[model.CountCPUStall] = model.Read(stalls.CPUSome)
	}
	h.observeInUse(e, &s)
	h.observeIO(e, &s)
	if h.pmu && !e.lost {
		s.C[model.CountCycles], s.C[model.CountRefCycles] = model.Read(k.Cycles), model.Read(k.RefCycles)
		s.C[model.CountInstructions], s.C[model.CountLLCMisses] = model.Read(k.Instructions), model.Read(k.LLCMisses)
	}
	return s
}

// list appends the knobs of a task that policies ask about, where they say something else
// than a snapshot said last.
func (h *Host) list(e *entry, dst []model.KnobReading) []model.KnobReading {
	for kind := range model.OfCgroups {
		k := &e.knobs[kind]
		if k.held || !kind.Spec().Listed(e.task.Class) {
			continue
		}
		if now := h.setting(e, kind); !k.known || now != k.listed {
			k.known, k.listed = true, now
			dst = append(dst, model.KnobReading{Target: model.OfTask(e.task.Num), Value: now, Outcome: model.OK})
		}
	}
	return dst
}

// topology is that of the CPUs that are online.
func topology(m *machine.Machine) *model.Topology {
	c, online := m.Config(), m.Online()
	t := &model.Topology{Possible: model.FullSet(c.CPUs())}
	for cpu := range c.CPUs() {
		if online.Has(cpu) {
			t.CPUs = append(t.CPUs, model.CPU{ID: cpu, Core: c.CoreOf(cpu), Socket: c.SocketOf(cpu), LLC: c.CacheOf(cpu), Node: c.SocketOf(cpu)})
		}
	}
	return t
}

// Pulse implements node.Host.
func (h *Host) Pulse(detail bool, p *model.Pulse) {
	*p = model.Pulse{MonoNsec: h.m.NowNsec(), Tasks: p.Tasks[:0]}
	busy := h.over + h.m.TakenNsec(machine.SoftIRQ)
	for i := range h.tasks {
		e := &h.tasks[i]
		if e.gone || !detail && (!e.known || !e.pooled()) {
			continue
		}
		k, err := h.m.Counters(e.num)
		if err != nil {
			panic("a task that lives has counters: " + err.Error())
		}
		busy += k.UsageNsec
		if !e.known || !e.pooled() {
			continue
		}
		h.follow(e, k.UsageNsec)
		if detail {
			p.Tasks = append(p.Tasks, model.TaskPulse{
				Num: e.task.Num, Usage: model.Read(k.UsageNsec), Periods: model.Read(k.Periods), Throttled: model.Read(k.Throttled),
			})
		}
	}
	p.LCUsage = model.Read(h.pulsed)
	if detail {
		p.NodeUsage = model.Read(busy)
	}
}

// LCBound implements node.Host: what these CPUs did, whoever it was.
func (h *Host) LCBound(cpus model.CPUSet) model.Counter {
	sum := uint64(0)
	for _, cpu := range cpus.Members() {
		sum += h.m.CPUNsec(cpu)
	}
	return model.Read(sum)
}

// pooled says whether a task is an LC task without CPUs of its own.
func (e *entry) pooled() bool { return e.task.Class == model.LC && !e.task.Exclusive }

// follow adds what a task used since it was last looked at, if it is of those that pulses tell of.
func (h *Host) follow(e *entry, usage uint64) {
	if !e.known {
		return
	}
	if e.pooled() {
		h.pulsed += usage - e.usage
	}
	e.usage = usage
}
