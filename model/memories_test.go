package model_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

func domains(from, to int32) (list []int32) {
	for d := from; d < to; d++ {
		list = append(list, d)
	}
	return list
}

// A memory is what its nodes are, whichever caches are near it: one of one socket's caches, a node of a socket that has several, all nodes behind one cache.
func TestMemories(t *testing.T) {
	memory := func(from, to int32, nodes ...int) model.Memory {
		return model.Memory{Domains: domains(from, to), Nodes: cpus.Of(nodes...)}
	}
	nps4 := make([]model.Memory, 8)
	for n := range nps4 {
		nps4[n] = memory(int32(2*n), int32(2*n+2), n)
	}
	for name, c := range map[string]struct {
		machine *model.Topology
		want    []model.Memory
	}{
		"two sockets":            {enginetest.Divided(2, 1, 1, 4), []model.Memory{memory(0, 1, 0), memory(1, 2, 1)}},
		"four sockets":           {enginetest.Divided(4, 1, 1, 4), []model.Memory{memory(0, 1, 0), memory(1, 2, 1), memory(2, 3, 2), memory(3, 4, 3)}},
		"EPYC, one node":         {enginetest.Divided(1, 1, 8, 16), []model.Memory{memory(0, 8, 0)}},
		"EPYC, two sockets":      {enginetest.Divided(2, 1, 8, 16), []model.Memory{memory(0, 8, 0), memory(8, 16, 1)}},
		"EPYC, NPS4":             {enginetest.Divided(2, 4, 8, 16), nps4},
		"SNC2":                   {enginetest.Divided(2, 2, 1, 4), []model.Memory{memory(0, 1, 0, 1), memory(1, 2, 2, 3)}},
		"a node near two caches": {enginetest.Divided(1, 3, 2, 6), []model.Memory{memory(0, 2, 0, 1, 2)}}, // the middle one is near both caches
	} {
		if d := cmp.Diff(c.want, c.machine.Memories(c.machine.Classes)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	// One whose CPUs are not known is one by itself.
	if d := cmp.Diff([]model.Memory{memory(0, 1), memory(3, 4)}, enginetest.Flat(2).Memories(&model.Classes{Memory: []int32{3, 0}})); d != "" {
		t.Error(d)
	}
}

// What is offline is no memory, and no domain.
func TestMemoriesOffline(t *testing.T) {
	machine := enginetest.Divided(2, 1, 8, 16)
	found := machine.Classes
	machine.CPUs = machine.CPUs[4:16] // two caches of the first socket, and the second socket
	want := []model.Memory{{Domains: domains(2, 8), Nodes: cpus.Of(0)}}
	if d := cmp.Diff(want, machine.Memories(found)); d != "" {
		t.Error(d)
	}
	now := found.Online(machine.Online())
	if d := cmp.Diff([][]int32{domains(2, 8), domains(2, 8)}, [][]int32{now.Memory, now.Caches}); d != "" || len(now.Domains) != 6 || len(found.Memory) != 16 || now.IDs != 8 {
		t.Errorf("%s; %+v", d, now)
	}
	if machine = enginetest.Divided(2, 1, 8, 16); machine.Classes.Online(machine.Online()) != machine.Classes {
		t.Error("with all online there is something else")
	}
}

// observed is what domains say that move so much, of which a part goes to their own memory. 0: missing.
func observed(of ...[2]float64) (list []model.MemoryObservation) {
	for d, v := range of {
		o := model.MemoryObservation{Domain: int32(d), FromNsec: 10 + int64(d), ToNsec: 20 + int64(d), Total: model.Missing(model.Unavailable), Local: model.Missing(model.Unavailable)}
		if v[0] > 0 {
			o.Total, o.Local, o.BE, o.Latency = model.Known(v[0]), model.Known(v[1]), model.Known(v[0]/2), model.Known(100+v[0])
		}
		o.Node = o.Total
		list = append(list, o)
	}
	return list
}

// A memory delivers what all caches near it ask for, and a part of what those of others do. Where one of its caches says nothing it is not known.
func TestObserveMemories(t *testing.T) {
	eight := [][2]float64{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}, {7, 7}, {8, 4}}
	epyc := enginetest.Divided(1, 1, 8, 16)
	got := model.ObserveMemories(epyc.Memories(epyc.Classes), observed(eight...), nil)
	want := []model.MemoryObservation{{FromNsec: 10, ToNsec: 27, Total: model.Known(36), Local: model.Known(32), BE: model.Known(18), Node: model.Known(36), Latency: model.Known(108)}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("one memory: %s", d)
	}
	eight[3] = [2]float64{}
	for name, of := range map[string][]model.MemoryObservation{"one says nothing": observed(eight...), "one is not there": observed(eight[:7]...)} {
		if got := model.ObserveMemories(epyc.Memories(epyc.Classes), of, got); len(got) != 1 || got[0].Total.Outcome != model.Unavailable || got[0].Node.Outcome != model.Unavailable || got[0].BE.Outcome == model.OK {
			t.Errorf("%s: %+v", name, got)
		}
	}
	four := enginetest.Divided(4, 1, 1, 2)
	for name, c := range map[string]struct {
		of   [][2]float64
		want []model.Value
	}{
		"all at home":         {[][2]float64{{10, 10}, {20, 20}, {30, 30}, {40, 40}}, []model.Value{model.Known(10), model.Known(20), model.Known(30), model.Known(40)}},
		"one goes to others":  {[][2]float64{{10, 10}, {20, 20}, {30, 30}, {90, 0}}, []model.Value{model.Known(40), model.Known(50), model.Known(60), model.Known(0)}},
		"one is not counted":  {[][2]float64{{10, 10}, {20, 20}, {30, 30}, {}}, []model.Value{model.Known(10), model.Known(20), model.Known(30), model.Missing(model.Unavailable)}},
		"as much as all have": {[][2]float64{{9, 0}, {9, 0}, {9, 0}, {9, 0}}, []model.Value{model.Known(9), model.Known(9), model.Known(9), model.Known(9)}},
	} {
		var nodes []model.Value
		for _, o := range model.ObserveMemories(four.Memories(four.Classes), observed(c.of...), nil) {
			nodes = append(nodes, o.Node)
		}
		if d := cmp.Diff(c.want, nodes); d != "" {
			t.Errorf("four sockets, %s: %s", name, d)
		}
	}
	// Of two domains it is as they say it, of what is not there nothing.
	two := enginetest.Divided(2, 1, 1, 2)
	as := observed([2]float64{10, 10}, [2]float64{20, 20})
	as[0].Node = model.Known(12)
	if d := cmp.Diff(as, model.ObserveMemories(two.Memories(two.Classes), as, nil)); d != "" {
		t.Error(d)
	}
	if got := model.ObserveMemories(two.Memories(two.Classes), nil, nil); len(got) != 2 || got[0].Node.Outcome == model.OK || got[0].ToNsec != 0 {
		t.Errorf("%+v", got)
	}
}
