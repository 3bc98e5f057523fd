package linux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
)

// movingPages moves a task's pages off memory nodes (BALM §III-D) until as many per mille of all of them are left there as is asked for. Each of its
// processes gives up the same share of what it has there, since each works on its own memory; that goes to the other nodes in equal
// parts, on top of what they have. A task that has no more there than is asked for is left as it is, so that asking again moves nothing.
type movingPages struct {
	fs    hostfs.FS
	cg    cgroup.Driver
	calls numa.Calls
	// pause is made between two steps (numa.Report.Rest): who is short of the memory's bandwidth gets nearly all of it.
	pause func(ctx context.Context, d time.Duration)
}

// sparePages stay free on the nodes that pages go to, beside what the kernel wants free: 64 MiB.
const sparePages = 16384

func (m *movingPages) run(ctx context.Context, t model.Task, ask model.Setting) (now model.Setting, did bool, err error) {
	now = model.Ask(model.MemoryPages)
	nodes, err := numa.ReadTopology(m.fs)
	if err != nil {
		return now, false, err
	}
	onto := pagesTo(nodes, ask.CPUs)
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
	for i, shares := range wanted(mover.Targets(), ask, onto) {
		if err := mover.Aim(i, shares); err != nil {
			return now, false, err
		}
	}
	moved, err := m.move(ctx, mover)
	now, why := after(mover.Targets(), ask)
	return now, moved > 0, cmp.Or(err, why)
}

// pagesTo returns the nodes that pages go to: all others that have memory and CPUs. One without CPUs (CXL, persistent memory) is slower and narrower, and what it costs
// the task nobody has measured: no policy sends pages there. Where there are no others it is what an operator means who asks for them to leave;
// policies do not ask then (View.MemoryAt).
func pagesTo(nodes *numa.Topology, off model.CPUSet) []int {
	var onto, slow []int
	for _, n := range nodes.MemoryNodes() {
		switch {
		case off.Has(n):
		case len(nodes.Node(n).CPUs) > 0:
			onto = append(onto, n)
		default:
			slow = append(slow, n)
		}
	}
	if len(onto) == 0 {
		return slow
	}
	return onto
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
		r, err := mover.Step(ctx)
		if err != nil || r.Stop == numa.StopSurveyed {
			return err
		}
		m.pause(ctx, r.Rest(time.Since(began)))
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
		m.pause(ctx, r.Rest(time.Since(began)))
	}
}

// wanted returns where the pages of each process are to be; none for one that has to give up nothing.
func wanted(list []numa.TargetState, ask model.Setting, onto []int) [][]numa.Share {
	var there, sum uint64
	for i := range list {
		on, of := onNodes(list[i].Before, ask.CPUs)
		there, sum = there+on, sum+of
	}
	keep := times(sum, uint64(ask.Amount), 1000)
	all := make([][]numa.Share, len(list))
	if there <= keep {
		return all
	}
	for i, passed, kept := 0, uint64(0), uint64(0); i < len(list); i++ {
		found := list[i].Before
		on, _ := onNodes(found, ask.CPUs)
		passed += on
		left := times(keep, passed, there) - kept // of this one; over all of them it adds up
		if kept += left; left < on {
			all[i] = sharesOf(found, ask.CPUs, on, left, onto)
		}
	}
	return all
}

// sharesOf returns where the pages of a process are to be that has on pages on some nodes, of which left stay. Those on nodes that none go to stay as well.
func sharesOf(found numa.Counts, off model.CPUSet, on, left uint64, onto []int) (shares []numa.Share) {
	for k, n := range onto {
		has, _ := found.Get(n)
		shares = append(shares, numa.Share{Node: n, Parts: has + part(on-left, k, len(onto))})
	}
	passed, kept := uint64(0), uint64(0)
	for _, c := range found {
		switch {
		case off.Has(c.Node):
			passed += c.Count
			n := times(left, passed, on) - kept
			kept += n
			shares = append(shares, numa.Share{Node: c.Node, Parts: n})
		case !slices.Contains(onto, c.Node):
			shares = append(shares, numa.Share{Node: c.Node, Parts: c.Count})
		}
	}
	return shares
}

// times is a*b/of, of numbers of pages that may be large; b is at most of.
func times(a, b, of uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	n, _ := bits.Div64(hi, lo, of)
	return n
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

// rest is a pause.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
