package policy_test

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
)

// of is a task that may run on some CPUs.
func of(num model.TaskNum, class model.Class, on model.CPUSet) policy.TaskView {
	t := policy.TaskView{Task: model.Task{Num: num, Class: class}}
	t.Knobs[model.CPUPlace].Now.CPUs = on
	return t
}

// Which memories a service is served by, and which nodes its neighbours' pages are to leave for its sake: those of the memories on which its pages lie, all nodes behind its cache, and none
// where there is no other memory that CPUs are near.
func TestMemoriesOfAService(t *testing.T) {
	for name, c := range map[string]struct {
		machine *model.Topology
		cpus    model.CPUSet
		homes   []uint64
		served  []int32 // memories
		off     model.CPUSet
	}{
		"EPYC, one node":                     {enginetest.Divided(1, 1, 8, 16), cpus.Of(0, 1), nil, []int32{0}, cpus.Of()},
		"EPYC, the last cache":               {enginetest.Divided(2, 1, 8, 16), cpus.Of(14, 15), nil, []int32{0}, cpus.Of(0)},
		"EPYC, NPS4":                         {enginetest.Divided(2, 4, 8, 16), cpus.Of(6), nil, []int32{2}, cpus.Of(1)},
		"NPS4, pages on two nodes":           {enginetest.Divided(2, 4, 8, 16), cpus.Of(6), []uint64{0, 50, 0, 0, 50}, []int32{2, 8}, cpus.Of(1, 4)},
		"SNC2":                               {enginetest.Divided(2, 2, 1, 4), cpus.Of(0), []uint64{0, 100, 0, 0}, []int32{0}, cpus.Of(0, 1)},
		"SNC2, one socket":                   {enginetest.Divided(1, 2, 1, 4), cpus.Of(0), []uint64{100, 0}, []int32{0}, cpus.Of()},
		"four sockets":                       {enginetest.Divided(4, 1, 1, 2), cpus.Of(4), nil, []int32{2}, cpus.Of(2)},
		"four sockets, pages on the last":    {enginetest.Divided(4, 1, 1, 2), cpus.Of(4), []uint64{5, 0, 5, 90}, []int32{3}, cpus.Of(3)},
		"a part on a node without CPUs":      {enginetest.Divided(2, 1, 1, 2), cpus.Of(0), []uint64{12, 1, 87}, []int32{0}, cpus.Of(0)},
		"all on a node without CPUs":         {enginetest.Divided(2, 1, 1, 2), cpus.Of(0), []uint64{0, 0, 100}, []int32{0}, cpus.Of(0)},
		"one socket, and one without CPUs":   {enginetest.Divided(1, 1, 1, 2), cpus.Of(0), []uint64{90, 10}, []int32{0}, cpus.Of()},
		"on all memories there are":          {enginetest.Divided(2, 1, 8, 16), cpus.Of(), nil, []int32{0, 8}, cpus.Of()},
		"pages of a node that is far beyond": {enginetest.Divided(2, 1, 1, 2), cpus.Of(0), append(make([]uint64, 2000), 1), []int32{0}, cpus.Of(0)},
	} {
		v := &policy.View{Topology: c.machine, Tasks: []policy.TaskView{of(1, model.LC, c.cpus)}}
		if c.homes != nil {
			v.Homes = []model.PageHomes{{Num: 1, Bytes: c.homes}}
		}
		at := func(m *model.Memory) bool { return v.ServedBy(c.machine.Classes, &v.Tasks[0], m) }
		var served []int32
		for _, m := range v.Memories(c.machine.Classes) {
			if at(&m) {
				served = append(served, m.ID())
			}
		}
		if off := v.MemoryAt(c.machine.Classes, at); !slices.Equal(served, c.served) || off != c.off {
			t.Errorf("%s: served by %v, pages leave %v", name, served, off)
		}
	}
}

// The load of a memory is that of all caches near it, and what services draw too; levels that count bytes go by what one of the caches was seen to move.
func TestLoadsOfManyCaches(t *testing.T) {
	machine := enginetest.Divided(2, 1, 8, 16)
	v := &policy.View{Topology: machine, History: &antagonist.History{}, Tasks: []policy.TaskView{of(1, model.LC, cpus.Of(0, 1, 2)), of(2, model.BE, cpus.Of(8))}}
	o := &model.Observation{}
	for d := range 16 {
		total := model.Known(5e9)
		o.Memory = append(o.Memory, model.MemoryObservation{Domain: int32(d), ToNsec: 1, Total: total, Local: total, Node: total})
	}
	o.Memory[1].Total, o.Memory[1].Local = model.Known(9e9), model.Known(9e9)
	o.Domains = []model.DomainObservation{{Num: 1, Domain: 0, Total: model.Known(4e9)}, {Num: 1, Domain: 1, Total: model.Known(8e9)}, {Num: 1, Domain: 9, Total: model.Known(1e9)}}
	v.Window = policy.Window{Closed: true, Observation: o}
	list := v.Loads(machine.Classes, nil)
	if want := (policy.Load{Own: 12e9, All: 44e9, Most: 44e9, Domain: 9e9}); len(list) != 2 || list[0] != want || list[1].All != 40e9 || list[1].Own != 0 {
		t.Errorf("%+v", list)
	}
	if p := policy.Peak(list); p != 9e9 {
		t.Errorf("a cache is taken to move %g at the most", p)
	}
	// A cache whose CPUs are offline is left out, at once and without harm.
	now := *machine
	now.CPUs = now.CPUs[2:]
	v.Topology = &now
	o.Memory = o.Memory[1:]
	if list = v.Loads(machine.Classes, list); len(list) != 2 || list[0].All != 39e9 || list[0].Own != 8e9 {
		t.Errorf("with one cache offline: %+v", list)
	}
}
