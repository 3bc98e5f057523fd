package linux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
)

// movingPages moves a task's pages off memory nodes (BALM §III-D), each process's by itself, since each works on
// its own memory. A process that has no more there than is asked for is left as it is; of others the rest
// goes to the other nodes in equal parts, on top of what they have.
type movingPages struct {
	fs    hostfs.FS
	cg    cgroup.Driver
	calls numa.Calls
	// pause is made between two steps, each of which copies 64 MiB at most and took so long: half of the
	// time nothing is copied, so that who is short of the memory's bandwidth gets some of it.
	pause func(ctx context.Context, took time.Duration)
}

// sparePages stay free on the nodes that pages go to, beside what the kernel wants free: 64 MiB.
const sparePages = 16384

func (m *movingPages) run(ctx context.Context, t model.Task, ask model.Setting) (now model.Setting, did bool, err error) {
	now = model.Ask(model.MemoryPages)
	nodes, err := numa.ReadTopology(m.fs)
	if err != nil {
		return now, false, err
	}
	var onto []int
	for _, n := range nodes.MemoryNodes() {
		if !ask.CPUs.Has(n) {
			onto = append(onto, n)
		}
	}
	if len(onto) == 0 {
		return now, false, errors.New("there is no other memory node")
	}
	pids, err := m.processes(&t)
	if err != nil {
		return now, false, err
	}
	mover := numa.NewMover(m.fs, m.calls, numa.MoverConfig{ReservePages: sparePages})
	defer mover.Close() //nolint:errcheck // it has read files and written none
	all, even := make([]numa.Target, len(pids)), make([]numa.Share, len(onto))
	for i, n := range onto {
		even[i] = numa.Share{Node: n, Parts: 1}
	}
	for i, pid := range pids {
		all[i] = numa.Target{PID: pid, Shares: even} // until it is known what it has
	}
	if err := mover.Start(all); err != nil {
		return now, false, err
	}
	if err := m.survey(ctx, mover); err != nil {
		return now, false, err
	}
	for i, t := range mover.Targets() {
		if err := mover.Aim(i, wanted(t.Before, ask, onto)); err != nil {
			return now, false, err
		}
	}
	moved, err := m.move(ctx, mover)
	now, why := after(mover.Targets(), ask)
	return now, moved > 0, cmp.Or(err, why)
}

// processes returns the task's processes, unless its group was made anew.
func (m *movingPages) processes(t *model.Task) ([]int32, error) {
	group, err := openTask(m.cg.Open, t)
	if err != nil {
		return nil, err
	}
	defer group.Close() //nolint:errcheck // reading is over
	return group.Procs(nil)
}

func (m *movingPages) survey(ctx context.Context, mover *numa.Mover) error {
	for {
		began := time.Now()
		if r, err := mover.Step(ctx); err != nil || r.Stop == numa.StopSurveyed {
			return err
		}
		m.pause(ctx, time.Since(began))
	}
}

// move goes on until nothing is left to move, or the other nodes are full.
func (m *movingPages) move(ctx context.Context, mover *numa.Mover) (pages uint64, err error) {
	for {
		began := time.Now()
		r, err := mover.Step(ctx)
		pages += r.MovedPages()
		switch {
		case err != nil:
			return pages, err
		case r.Stop == numa.StopDone:
			return pages, nil
		case r.Stop == numa.StopRoom:
			return pages, fmt.Errorf("no room on nodes %v", r.FullNodes)
		}
		m.pause(ctx, time.Since(began))
	}
}

// wanted returns where a process's pages are to be that has more on the nodes than is asked for; none for another.
func wanted(found numa.Counts, ask model.Setting, onto []int) (shares []numa.Share) {
	there, sum := onNodes(found, ask.CPUs)
	keep := sum * uint64(ask.Amount) / 1000
	if there <= keep {
		return nil
	}
	for k, n := range onto {
		has, _ := found.Get(n)
		shares = append(shares, numa.Share{Node: n, Parts: has + part(there-keep, k, len(onto))})
	}
	for _, c := range found {
		if ask.CPUs.Has(c.Node) {
			shares = append(shares, numa.Share{Node: c.Node, Parts: keep * c.Count / there})
		}
	}
	return shares
}

// part is the kth of n parts of a number, which add up to it.
func part(of uint64, k, n int) uint64 {
	return of*uint64(k+1)/uint64(n) - of*uint64(k)/uint64(n)
}

// onNodes returns how many of the pages are on the nodes, and how many there are.
func onNodes(pages numa.Counts, nodes model.CPUSet) (there, sum uint64) {
	for _, c := range pages {
		if sum += c.Count; nodes.Has(c.Node) {
			there += c.Count
		}
	}
	return there, sum
}

// after says how many per mille of the task's pages are on the nodes now, and what kept some there.
func after(list []numa.TargetState, ask model.Setting) (now model.Setting, why error) {
	var there, sum, short, seen uint64
	var said []string
	for i := range list {
		t := &list[i]
		if short += t.ShortPages; t.Err != nil && len(said) < 3 {
			said = append(said, t.Err.Error())
		}
		if t.Status != numa.Gone {
			on, of := onNodes(t.After, ask.CPUs)
			there, sum, seen = there+on, sum+of, seen+1
		}
	}
	now = ask
	if now.Amount = 0; sum > 0 {
		now.Amount = int64((there*1000 + sum - 1) / sum)
	}
	switch {
	case len(said) > 0:
		return now, errors.New(strings.Join(said, "; "))
	case seen == 0:
		return now, errors.New("it has no processes")
	case short > 0:
		return now, fmt.Errorf("%d pages would not move", short)
	}
	return now, nil
}

// rest is a pause as long as the step before it.
func rest(ctx context.Context, took time.Duration) {
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
}
