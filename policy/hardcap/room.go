package hardcap

import (
	"math"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
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

// mostByRoom bounds what one answers for, as a multiple of how much of it it had the CPU for itself: beside programs that nobody
// may hold all CPUs are full whatever batch tasks do, and of a small rise the one that happened to run more has most.
const mostByRoom = 2

// room is the CPUs on which a victim may run, and who uses how much of them in its good windows. nil: it is not known.
type room struct {
	victim  model.TaskNum
	history *antagonist.History
	cpus    float64
	users   []user
}

// user is one of them: part of its usage falls on these CPUs, and usual is that part in good windows.
type user struct {
	row         *antagonist.Row
	part, usual float64
}

// took is whose share of what all use more than usual.
type took struct {
	num   model.TaskNum
	share float64
}

// roomOf looks who uses the room of a victim in the windows that ended at these times.
func roomOf(in *policy.View, victim model.TaskNum, good []int64) *room {
	slots := in.History.Slots(good)
	if in.Topology == nil || len(slots) == 0 {
		return nil
	}
	online := in.Topology.Online()
	of := runsOn(in, victim, online)
	r := &room{victim: victim, history: in.History, cpus: float64(of.Len())}
	for i := range in.History.Rows {
		row := &in.History.Rows[i]
		on := runsOn(in, row.Num, online)
		both := on.And(of)
		if both.Empty() {
			continue
		}
		part := float64(both.Len()) / float64(on.Len())
		r.users = append(r.users, user{row, part, part * row.Mean(slots)})
	}
	return r
}

// taken returns the share of each but the victim of what all use in bad windows beyond the good ones, and what weight
// that has: at most a half, 0 where it says nothing.
func (r *room) taken(bad []int64) (list []took, weight float64) {
	if r == nil {
		return nil, 0
	}
	slots := r.history.Slots(bad)
	if len(slots) == 0 {
		return nil, 0
	}
	used, rise := 0.0, 0.0
	for _, u := range r.users {
		now := u.part * u.row.Mean(slots)
		used += now
		if more := now - u.usual; more > 0 {
			if rise += more; u.row.Num == r.victim {
				continue // nobody's fault
			}
			list = append(list, took{u.row.Num, more})
		}
	}
	if r.cpus < 1 || rise < leastTaken*r.cpus {
		return nil, 0
	}
	for i := range list {
		list[i].share /= rise
	}
	return list, math.Pow(min(1, used/r.cpus), r.cpus-1) / 2
}

// runsOn returns on which CPUs one may run; none where it may not run on all, and it is not known on which.
func runsOn(in *policy.View, num model.TaskNum, online model.CPUSet) model.CPUSet {
	task := in.Table.Get(num)
	if task == nil {
		return online // what no rule covers
	}
	if t := in.Task(num); t != nil {
		if k := &t.Knobs[model.CPUPlace]; k.Known && !k.Now.CPUs.Empty() {
			return k.Now.CPUs.And(online)
		}
	}
	if task.CPUs > 0 && task.CPUs < online.Len() {
		return model.CPUSet{}
	}
	return online
}
