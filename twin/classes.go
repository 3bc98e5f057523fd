package twin

import (
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

// offers is what a machine has of classes of service, a domain a last-level cache.
func (h *Host) offers() *model.Classes {
	c := h.m.Config()
	taken := h.m.Classes() - max(0, len(h.made)-1) // of whoever made the world, and the one in which everybody begins
	have := &model.Classes{IDs: classIDs, Taken: taken, Ways: c.LLCWays, Least: 1, LeastLevel: leastLevel, MostLevel: mostLevel, LevelStep: levelStep, LevelUnit: model.LevelPercent}
	online := h.m.Online()
	for s := range c.Caches() {
		d := model.Domain{ID: int32(s)}
		for cpu := range c.CPUs() {
			if c.CacheOf(cpu) == s && online.Has(cpu) {
				d.CPUs.Add(cpu)
			}
		}
		have.Caches, have.Memory, have.Domains = append(have.Caches, d.ID), append(have.Memory, d.ID), append(have.Domains, d)
	}
	return have.Online(online)
}

// classIDs is how many classes the simulated machine has (kernfs.Options.CLOSIDs).
const classIDs = 8

// The levels of memory bandwidth, in per cent. The kernel rounds up to a step (resctrl.rst, "bandwidth_gran").
const leastLevel, mostLevel, levelStep = 10, 100, 10

// classPoint returns a knob of a class in a domain.
func (h *Host) classPoint(of model.Target, kind model.KnobKind) (p point, ok bool) {
	cache := int(of.Domain)
	c := h.m.Config()
	if kind != model.CacheWays && kind != model.MemoryBandwidth || cache < 0 || cache >= c.Caches() {
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
	class, ok := h.clos(of.Num)
	if !ok {
		return p, false
	}
	get := func() model.Setting {
		mask, level, _ := h.m.Class(class, cache) // there is one: see above
		if kind == model.MemoryBandwidth {
			return model.Level(int64(level))
		}
		return model.Ways(int64(bits.OnesCount32(mask)))
	}
	set := func(v model.Setting) error {
		if kind == model.MemoryBandwidth {
			return h.m.SetMBA(class, cache, (int(v.Amount)+levelStep-1)/levelStep*levelStep)
		}
		if model.OfServices(of.Num) {
			return h.setServices(of.Num, class, cache, int(v.Amount))
		}
		return h.m.SetWays(class, cache, uint32(1)<<v.Amount-1)
	}
	return point{of, of.Name(), &kept.knob, get, set}, true
}

// setServices gives a class of services ways from the other side than everybody else, in the order of node/linux; all: they are none of its own.
func (h *Host) setServices(class model.TaskNum, clos, cache, n int) error {
	at, top := servicesAt{class, cache}, h.m.Config().LLCWays
	if h.services == nil {
		h.services = map[servicesAt]int{}
	}
	if h.services[at] = n; n >= top {
		delete(h.services, at)
		if err := h.m.SetWays(clos, cache, uint32(1)<<top-1); err != nil {
			return err
		}
	}
	for class := range model.ServicesDown {
		n, own := h.services[servicesAt{class, cache}]
		made := slices.IndexFunc(h.made, func(k made) bool { return k.class == class })
		if !own || made < 0 {
			continue
		}
		top = max(0, top-n)
		if err := h.m.SetWays(h.made[made].clos, cache, (uint32(1)<<n-1)<<top); err != nil {
			return err
		}
	}
	return nil
}

// servicesAt is a class of services in a cache.
type servicesAt struct {
	class model.TaskNum
	cache int
}

// caches is the number of the machine's last-level caches, which are its domains.
func (h *Host) caches() int {
	c := h.m.Config()
	return c.Caches()
}

// made is a class of ours: the machine's number of it. Its place in the list is its RMID.
type made struct {
	class model.TaskNum
	clos  int
}

// clos is the machine's number of a class of ours. Who needs one gets that of a task, or of a part of services, that has none any more, or a new
// one; false: there is none left.
func (h *Host) clos(class model.TaskNum) (num int, ok bool) {
	if len(h.made) == 0 {
		h.made = append(h.made, made{model.ClassFound, 0}) // where everybody begins
	}
	at := slices.IndexFunc(h.made, func(k made) bool { return k.class == class })
	if at < 0 {
		at = slices.IndexFunc(h.made, func(k made) bool { return k.class > model.ClassLC && !h.classStands(k.class) })
		switch {
		case at >= 0:
			h.made[at].class = class // what a stranger left in it goes with the group
			for s := range h.caches() {
				if errors.Join(h.m.SetWays(h.made[at].clos, s, 1<<h.m.Config().LLCWays-1), h.m.SetMBA(h.made[at].clos, s, mostLevel)) != nil {
					panic("a class that there is takes all ways and the highest level")
				}
			}
		case h.m.Classes() >= classIDs:
			return 0, false
		default:
			at = len(h.made)
			h.made = append(h.made, made{class, h.m.AddCLOS()})
		}
	}
	return h.made[at].clos, true
}

// classOf is the class that a task is in.
func (h *Host) classOf(e *entry) model.Setting {
	if at := h.madeOf(e); at >= 0 {
		return model.InClass(h.made[at].class)
	}
	return model.InClass(model.ClassFound)
}

// madeOf is the place of a task's class in the list of ours, -1 where it is none.
func (h *Host) madeOf(e *entry) int {
	num, err := h.m.CLOS(e.num)
	if err != nil {
		panic("a task that lives has a class: " + err.Error())
	}
	return slices.IndexFunc(h.made, func(k made) bool { return k.clos == num })
}

// classify puts a task into a class. One that somebody else put into a class of his stays there.
func (h *Host) classify(e *entry, class model.TaskNum) error {
	to, ok := h.clos(class)
	if !ok {
		return errors.New("no class is left")
	}
	if h.madeOf(e) < 0 {
		return errors.New("it is in a group that another program made")
	}
	rmid := slices.IndexFunc(h.made, func(k made) bool { return k.clos == to })
	return errors.Join(h.m.SetCLOS(e.num, to), h.m.SetRMID(e.num, rmid))
}
