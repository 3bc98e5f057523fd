package hardcap

import (
	"cmp"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Who took the room. A thread waits for two reasons: somebody has its CPU, which the scheduler's
// events tell, and no other CPU is free, which they do not. At equal weights the second is most of
// the harm: whoever keeps all CPUs busy leaves its own as soon as the victim wants it, while a batch
// task that was just woken keeps the victim waiting for tens of milliseconds, as it did before, but
// now there is no CPU left to go to. So where all CPUs are in use a half of the blame goes by what tasks
// use in bad windows beyond what they use in good ones, the victim included.
//
// How often a waiting thread finds no other CPU free is taken for what it would be if CPUs were
// busy by chance: the share of time in use, once for each other CPU. On a machine with many CPUs it
// is nothing until nearly all of them are full. A steady neighbour took the room before: then nobody
// uses more than before, and blame goes by who ran alone.

// leastTaken is the rise of what all use, as a share of all CPUs, from which on it tells who took the room.
const leastTaken = 0.05

// roomTaken returns the share of each but the victim of what all use in the bad windows beyond the good ones on CPUs on
// which the victim may run, and what weight that has: at most a half, 0 where it says nothing.
func roomTaken(in *policy.View, victim model.TaskNum, bad, good []int64) (list []Charged, weight float64) {
	worse, better := in.History.Slots(bad), in.History.Slots(good)
	if in.Topology == nil || len(worse) == 0 || len(better) == 0 {
		return nil, 0
	}
	online := in.Topology.Online()
	room := runsOn(in, victim, online)
	cpus := float64(room.Len())
	used, rise := 0.0, 0.0
	for i := range in.History.Rows {
		row := &in.History.Rows[i]
		on := runsOn(in, row.Num, online)
		both := on.And(room)
		if both.Empty() {
			continue
		}
		part := float64(both.Len()) / float64(on.Len())
		now := part * row.Mean(worse)
		used += now
		if more := now - part*row.Mean(better); more > 0 {
			if rise += more; row.Num == victim {
				continue // nobody's fault
			}
			list = append(list, Charged{row.Num, more})
		}
	}
	if cpus < 1 || rise < leastTaken*cpus {
		return nil, 0
	}
	for i := range list {
		list[i].Nsec /= rise
	}
	return list, math.Pow(min(1, used/cpus), cpus-1) / 2
}

// runsOn returns on which CPUs one may run; none where it may not run on all, and it is not known on which.
func runsOn(in *policy.View, num model.TaskNum, online model.CPUSet) model.CPUSet {
	task := in.Table.Get(num)
	if task == nil {
		return online // what no rule covers
	}
	i, ok := slices.BinarySearchFunc(in.Tasks, num, func(t policy.TaskView, n model.TaskNum) int { return cmp.Compare(t.Task.Num, n) })
	if ok {
		if k := &in.Tasks[i].Knobs[model.CPUPlace]; k.Known && !k.Now.CPUs.Empty() {
			return k.Now.CPUs.And(online)
		}
	}
	if task.CPUs > 0 && task.CPUs < online.Len() {
		return model.CPUSet{}
	}
	return online
}
