package cpuset_test

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cpuset"
)

func TestExclusive(t *testing.T) {
	narrow := narrowed(t, exclusive(1, 2, 0), "0-1,16-17")
	half := narrowed(t, exclusive(1, 1, 0), "0-15") // no core whole
	llc := map[int]int{}
	for _, c := range cpuset.Machine(2, 2, 4, 2).CPUs {
		llc[c.Core] = c.LLC
	}
	for _, c := range []struct {
		name      string
		tasks     []*enginetest.Task
		want      []int // cores by exclusive task that has some
		llcs      int   // caches that the first one's cores are of
		uncounted int
		said      int
	}{
		{"by rule", []*enginetest.Task{exclusive(1, 3, 0)}, []int{3}, 1, 0, 0},
		{"by quota", []*enginetest.Task{exclusive(1, 0, 4.5)}, []int{3}, 1, 0, 0},
		{"by quota that fits", []*enginetest.Task{exclusive(1, 0, 4)}, []int{2}, 1, 0, 0},
		{"a whole cache", []*enginetest.Task{exclusive(1, 4, 0)}, []int{4}, 1, 0, 0},
		{"a whole socket", []*enginetest.Task{exclusive(1, 8, 0)}, []int{8}, 2, 0, 0},
		{"more than a socket", []*enginetest.Task{exclusive(1, 10, 0)}, []int{10}, 3, 0, 0},
		{"no quota, no rule", []*enginetest.Task{exclusive(1, 0, 0)}, nil, 0, 1, 1},
		{"too many", []*enginetest.Task{exclusive(1, 15, 0)}, nil, 0, 15, 1},
		{"the second finds too few", []*enginetest.Task{exclusive(1, 8, 0), exclusive(2, 8, 0)}, []int{8}, 2, 8, 1},
		{"within what was found", []*enginetest.Task{narrow}, []int{2}, 1, 0, 0},
		{"no whole core in what was found", []*enginetest.Task{half}, nil, 0, 1, 1},
		{"a stranger's", []*enginetest.Task{exclusive(1, 2, 0)}, nil, 0, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, cpuset.Machine(2, 2, 4, 2), append(slices.Clone(c.tasks), task(8, model.BE), task(9, model.LC))...)
			r.step(50*msec, 1)
			if c.name == "a stranger's" {
				r.Stranger(1, model.Place(cpuset.CPUs(t, "0-31")))
				r.step(50*msec, 1)
			}
			var got []int
			for _, o := range r.s.Exclusive {
				got = append(got, len(o.Cores))
			}
			if !slices.Equal(got, c.want) || r.s.UncountedCores != c.uncounted {
				t.Errorf("exclusive cores %v, uncounted %d, expected %v and %d", got, r.s.UncountedCores, c.want, c.uncounted)
			}
			if c.llcs > 0 {
				llcs := map[int]bool{}
				for _, id := range r.s.Exclusive[0].Cores {
					llcs[llc[id]] = true
				}
				if len(llcs) != c.llcs {
					t.Errorf("cores %v are of %d caches, expected %d", r.s.Exclusive[0].Cores, len(llcs), c.llcs)
				}
			}
			if got := r.Count(model.DecideLimit); got != c.said {
				t.Errorf("%d limits were said, expected %d: %+v", got, c.said, r.Said)
			}
			r.run(30*sec, 1)
			r.List(8)
			n := len(r.Said)
			r.run(sec, 1)
			if len(r.Said) != n {
				t.Errorf("said again: %+v", r.Said[n:])
			}
		})
	}
}

// An exclusive task's cores do not move while others come and go; a core that goes offline
// is replaced by a near one.
func TestExclusiveStays(t *testing.T) {
	r := newRig(t, cpuset.Machine(2, 2, 4, 2), exclusive(1, 2, 0), exclusive(2, 3, 0), task(8, model.BE), task(9, model.LC))
	r.run(30*sec, 1)
	first, second := slices.Clone(r.s.Exclusive[0].Cores), slices.Clone(r.s.Exclusive[1].Cores)
	r.Add(exclusive(10, 2, 0))
	r.Add(task(11, model.BE))
	r.run(5*sec, 20)
	r.Remove(1)
	r.run(5*sec, 1)
	if len(r.s.Exclusive) != 2 || !slices.Equal(r.s.Exclusive[0].Cores, second) {
		t.Fatalf("task 2 had %v, the exclusive cores are %+v", second, r.s.Exclusive)
	}
	if slices.Contains(r.s.Order, second[0]) || !slices.Contains(r.s.Order, first[0]) {
		t.Errorf("the free cores are %v", r.s.Order)
	}
	full := r.Topology
	near := full.CPUs[second[0]].Socket // the first CPU of a core has its number
	r.Plug(cpuset.Without(full, second[0], second[0]+16))
	r.step(50*msec, 1)
	now := r.s.Exclusive[0].Cores
	if len(now) != 3 || slices.Contains(now, second[0]) || !slices.Contains(now, second[1]) || !slices.Contains(now, second[2]) {
		t.Fatalf("the cores went from %v to %v", second, now)
	}
	for _, id := range now {
		if full.CPUs[id].Socket != near {
			t.Errorf("core %d is of another socket", id)
		}
	}
}
