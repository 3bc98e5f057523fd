package twin

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// Classes of service: the machine gets one of ours when it is first needed. It may have others, of whoever made the world.

// classKnob is what is kept of one knob of a class.
type classKnob struct {
	target model.Target
	kind   model.KnobKind
	knob
}

// offers is what a machine has of classes of service, a domain a socket.
func (h *Host) offers() *model.Classes {
	c := h.m.Config()
	have := &model.Classes{Ways: c.LLCWays, Least: 1, LeastLevel: leastLevel, MostLevel: mostLevel, LevelStep: levelStep, LevelUnit: model.LevelPercent}
	online := h.m.Online()
	for s := range c.Sockets {
		d := model.Domain{ID: int32(s)}
		for cpu := range c.CPUs() {
			if c.SocketOf(cpu) == s && online.Has(cpu) {
				d.CPUs.Add(cpu)
			}
		}
		have.Caches, have.Memory, have.Domains = append(have.Caches, d.ID), append(have.Memory, d.ID), append(have.Domains, d)
	}
	return have
}

// The levels of memory bandwidth, in per cent. The kernel rounds up to a step (resctrl.rst, "bandwidth_gran").
const leastLevel, mostLevel, levelStep = 10, 100, 10

// classPoint returns a knob of a class on a socket.
func (h *Host) classPoint(of model.Target, kind model.KnobKind) (p point, ok bool) {
	socket := int(of.Domain)
	c := h.m.Config()
	if kind != model.CacheWays && kind != model.MemoryBandwidth || socket < 0 || socket >= c.Sockets {
		return p, false
	}
	var kept *classKnob
	for _, k := range h.classes {
		if k.target == of && k.kind == kind {
			kept = k
		}
	}
	if kept == nil {
		kept = &classKnob{target: of, kind: kind}
		h.classes = append(h.classes, kept)
	}
	class := h.clos(of.Num)
	get := func() model.Setting {
		mask, level, _ := h.m.Class(class, socket) // there is one: see above
		if kind == model.MemoryBandwidth {
			return model.Level(int64(level))
		}
		return model.Ways(int64(bits.OnesCount32(mask)))
	}
	set := func(v model.Setting) error {
		if kind == model.MemoryBandwidth {
			return h.m.SetMBA(class, socket, (int(v.Amount)+levelStep-1)/levelStep*levelStep)
		}
		return h.m.SetWays(class, socket, uint32(1)<<v.Amount-1)
	}
	return point{of, of.Name(), &kept.knob, get, set}, true
}

// clos is the machine's number of a class of ours.
func (h *Host) clos(class model.TaskNum) int {
	for len(h.made) <= int(class) {
		if len(h.made) == 0 {
			h.made = append(h.made, 0) // where everybody begins
			continue
		}
		h.made = append(h.made, h.m.AddCLOS())
	}
	return h.made[class]
}

// classOf is the class that a task is in.
func (h *Host) classOf(e *entry) model.Setting {
	num, err := h.m.CLOS(e.num)
	if err != nil {
		panic("a task that lives has a class: " + err.Error())
	}
	return model.InClass(model.TaskNum(max(slices.Index(h.made, num), 0)))
}

// classify puts a task into a class. One that somebody else put into a class of his stays there.
func (h *Host) classify(e *entry, class model.TaskNum) error {
	to := h.clos(class)
	if num, err := h.m.CLOS(e.num); err != nil || !slices.Contains(h.made, num) {
		return cmp.Or(err, errors.New("it is in a group that another program made"))
	}
	return errors.Join(h.m.SetCLOS(e.num, to), h.m.SetRMID(e.num, int(class)))
}
