package linux

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

// What the CPUs of each domain move to and from memory (model.MemorySample), from mon_data of all control groups. Reading
// takes three files a group and domain, and a kernel that may ask another socket's CPU for each, so it is done beside
// the loop: begun at a window's edge, and in the snapshot of the next. Nothing is kept open in between, since that
// would keep others from unmounting resctrl.
//
// Groups come and go, so what each of them grew by is summed up here. A group's count begins at zero when it is made;
// what it counted after the last reading before it was removed is lost.

// MemoryLatency says how long a domain's memory took to answer since it was asked last, in nanoseconds; see OpenLatency.
type MemoryLatency func(domain int32) model.Counter

// meter is the worker's sums.
type meter struct {
	begun   bool
	now     func() int64
	latency MemoryLatency
	seen    map[meterKey]resctrl.Monitored
	marks   map[meterKey]resctrl.Monitored // what counts were that fell, until they are reached again
	parts   map[partKey]*summand
	fresh   map[resctrl.Name]reading // of monitoring groups, by the batch that is under way
	sums    map[int32]*model.MemorySample
}

// meterKey is one group in one domain.
type meterKey struct {
	group  resctrl.Identity
	domain int
}

// summed is what a domain's sums are good for at one reading.
type summed struct {
	model.MemorySample
	unknownBE bool // a group of BE has no number
}

// startMeter has the worker read, before all else that waits, unless it is to already.
func (c *classes) startMeter() {
	if !slices.ContainsFunc(c.queue, func(op classOp) bool { return op.meter }) {
		c.queue = slices.Insert(c.queue, 0, classOp{meter: true})
	}
}

// takeMemory returns the last reading, once.
func (c *classes) takeMemory() (list []model.MemorySample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, c.memory = c.memory, nil
	return list
}

// readMemory reads all groups and returns the sums by domain. Where a group has no number, its domains have none.
func (w *classWorker) readMemory() []model.MemorySample {
	d, err := w.driver()
	if err != nil {
		return nil
	}
	names, err := d.Names()
	if err != nil {
		w.forgetGone(err)
		return nil
	}
	k := &w.meter
	if k.sums == nil {
		k.sums = map[int32]*model.MemorySample{}
	}
	if k.marks == nil {
		k.marks = map[meterKey]resctrl.Monitored{}
	}
	turns := k.partsLost(d, names)
	var order []meterKey
	seen, of := map[meterKey]resctrl.Monitored{}, map[resctrl.Name]resctrl.Identity{}
	for _, name := range names {
		if name.IsMon() {
			continue
		}
		list, id, err := monitored(d, name)
		if errors.Is(err, resctrl.ErrVanished) && !name.IsRoot() {
			continue
		}
		if err != nil {
			w.forgetGone(err)
			return nil
		}
		of[name] = id
		for i := range list {
			key := meterKey{id, list[i].Domain}
			seen[key], order = list[i], append(order, key)
		}
	}
	for _, t := range append(turns, k.partsBack(d)...) {
		if key := (meterKey{of[t.control], t.by.Domain}); t.by.Total.State == resctrl.Counted || t.by.Local.State == resctrl.Counted {
			k.shifted(key, &t.by, t.comes)
		}
	}
	now := map[int32]*summed{}
	for _, key := range order {
		m := seen[key]
		k.add(key, &m, w.isBEs(key.group.Name), now)
	}
	maps.DeleteFunc(k.marks, func(key meterKey, _ resctrl.Monitored) bool { _, there := seen[key]; return !there })
	k.seen, k.begun = seen, true
	return k.samples(now)
}

// isBEs reports whether a group is of one of our classes in which there is BE alone.
func (w *classWorker) isBEs(name resctrl.Name) bool {
	if w.own == "" || !strings.HasPrefix(name.Ctrl, resctrl.DefaultPrefix) || !strings.HasSuffix(name.Ctrl, w.own) {
		return false
	}
	for class := range model.ServicesDown {
		if name.Ctrl == resctrl.DefaultPrefix+groupOf(class, w.own) {
			return false
		}
	}
	return true
}

// forgetGone lets go of a resctrl that is not there any more.
func (w *classWorker) forgetGone(err error) {
	if errors.Is(err, resctrl.ErrNotMounted) || errors.Is(err, resctrl.ErrRemounted) {
		w.drv, w.meter.begun, w.meter.seen, w.meter.marks, w.meter.parts = nil, false, nil, nil, nil
	}
}

// monitored reads one group.
func monitored(d *resctrl.Driver, name resctrl.Name) ([]resctrl.Monitored, resctrl.Identity, error) {
	m, err := d.OpenMonitor(name)
	if err != nil {
		return nil, resctrl.Identity{}, err
	}
	list, err := m.Read(nil)
	return list, m.Identity(), errors.Join(err, m.Close())
}

// add adds what a group's counters grew by to a domain's sums. now gets what each sum is good for at this reading.
func (k *meter) add(key meterKey, m *resctrl.Monitored, be bool, now map[int32]*summed) {
	domain := int32(key.domain)
	if k.sums[domain] == nil {
		k.sums[domain] = &model.MemorySample{Domain: domain}
	}
	if now[domain] == nil {
		now[domain] = &summed{}
		now[domain].C[model.CountMemTotal], now[domain].C[model.CountMemLocal] = model.Read(0), model.Read(0)
	}
	was, known := k.seen[key]
	if !known && !k.begun {
		was = *m // it was there before us
	}
	total, local := m.Total, m.Local
	if known || !k.begun {
		mark := k.marks[key]
		total, local = grown(m.Total, was.Total, &mark.Total), grown(m.Local, was.Local, &mark.Local)
		k.marks[key] = mark
	}
	count := func(c model.MemoryCounter, grown resctrl.Count) {
		if grown.State == resctrl.Counted {
			k.sums[domain].C[c].Value += grown.Bytes
			if c == model.CountMemBE && !now[domain].unknownBE {
				now[domain].C[c].Outcome = model.OK
			}
			return
		}
		now[domain].unknownBE = now[domain].unknownBE || c == model.CountMemBE
		now[domain].C[c].Outcome = outcomeOf(grown.State)
	}
	count(model.CountMemTotal, total)
	count(model.CountMemLocal, local)
	if be {
		count(model.CountMemBE, total)
	}
}

// shift tells that what a control group counts is to grow, or fall, by what a monitoring group has that comes or goes.
func (k *meter) shift(d *resctrl.Driver, control resctrl.Name, by []resctrl.Monitored, comes bool) {
	m, err := d.OpenMonitor(control)
	if err != nil {
		return
	}
	id := m.Identity()
	_ = m.Close() // it was only asked who it is
	for i := range by {
		k.shifted(meterKey{id, by[i].Domain}, &by[i], comes)
	}
}

// outcomeOf says why a counter has no number.
func outcomeOf(s resctrl.CountState) model.Outcome {
	switch s {
	case resctrl.Backwards:
		return model.GoneBackwards
	case resctrl.Absent:
		return model.Absent
	}
	return model.Unavailable
}

// samples returns the sums of the domains that were read.
func (k *meter) samples(now map[int32]*summed) []model.MemorySample {
	list := make([]model.MemorySample, 0, len(now))
	for _, domain := range slices.SortedFunc(maps.Keys(now), cmp.Compare[int32]) {
		s := *k.sums[domain]
		s.MonoNsec = k.now()
		for c := range s.C {
			if s.C[c].Outcome = now[domain].C[c].Outcome; s.C[c].Outcome != model.OK {
				s.C[c].Value = 0
			}
		}
		if k.latency != nil {
			s.C[model.CountMemLatency] = k.latency(domain)
		}
		list = append(list, s)
	}
	return list
}
