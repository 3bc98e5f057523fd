package linux

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/model"
)

// slowKernel takes its time to answer, by a clock of its own, and may fail.
type slowKernel struct {
	*fakeKernel
	now  int64
	each time.Duration // per thread group
	err  error
	name string
}

func (k *slowKernel) MonoNsec() int64 { k.now += 1000; return k.now }
func (k *slowKernel) WallNsec() int64 { return k.now }
func (k *slowKernel) Name() string    { return k.name }

func (k *slowKernel) Query(ids []int32, out []taskstats.Stats) error {
	k.now += int64(len(ids)) * int64(k.each)
	if k.err != nil {
		return k.err
	}
	return k.fakeKernel.Query(ids, out)
}

// delayBench is a host with an LC task behind a BE task, of so many processes each.
func delayBench(lc, be int) (h *Host, k *slowKernel, log *strings.Builder) {
	k = &slowKernel{fakeKernel: &fakeKernel{run: map[int32]uint64{}, delay: map[int32]uint64{}}, name: "first"}
	log = &strings.Builder{}
	h = &Host{delay: k, opt: Options{Clock: k, FS: hostfs.NewRoot("/"), Log: slog.New(slog.NewTextHandler(log, nil))}}
	for i, n := range []int{be, lc} {
		g := &fakeKernel{}
		for j := range n {
			id := int32(1 + j + i*1_000_000)
			g.members, k.run[id] = append(g.members, id), 1
		}
		t := model.Task{Num: model.TaskNum(i + 1), Path: fmt.Sprintf("/task-%d", i), Class: []model.Class{model.BE, model.LC}[i]}
		h.tasks = append(h.tasks, &watched{task: t, group: g, members: membership{doubt: true}})
	}
	return h, k, log
}

// read takes a reading and says of which of BE and LC the delay is known.
func readDelay(h *Host) (be, lc bool) {
	var snap model.Snapshot
	for _, w := range h.tasks {
		h.observeTask(w, &snap)
	}
	h.observeDelay(&snap)
	known := func(i int) bool { return snap.Tasks[i].C[model.CountDelay].Outcome == model.OK }
	return known(0), known(1)
}

// A BE task with processes without end neither holds the loop up nor takes the LC task its
// signal.
func TestProcessesWithoutEndHoldNothingUp(t *testing.T) {
	h, k, log := delayBench(20, 4000)
	k.each = 50 * time.Microsecond
	for range 3 {
		begin := k.now
		if be, lc := readDelay(h); be || !lc {
			t.Errorf("delay known: BE %v, LC %v", be, lc)
		}
		if took := time.Duration(k.now - begin); took > maxAsking+askAtOnce*k.each+time.Millisecond {
			t.Errorf("a reading took %v", took)
		}
		h.provideDelay()
	}
	if why := h.tasks[0].unread.why; !strings.Contains(why, "20ms a reading") || h.tasks[1].unread.why != "" {
		t.Errorf("BE lacks %q, LC %q", why, h.tasks[1].unread.why)
	}
	if n := strings.Count(log.String(), LackDelay); n != 1 {
		t.Errorf("told %d times:\n%s", n, log)
	}
	// One that has too many is listed once a minute.
	many := h.tasks[0].group.(*fakeKernel)
	many.refused = fmt.Errorf("list: %w: more than 4096", cgroup.ErrTooManyProcs)
	lists := many.lists
	for range 3 {
		h.tasks[0].members.doubt = true // as a discovery does
		if be, lc := readDelay(h); be || !lc {
			t.Errorf("too many: delay known: BE %v, LC %v", be, lc)
		}
	}
	if n := many.lists - lists; n != 1 || h.tasks[0].unread.why != cgroup.ErrTooManyProcs.Error() {
		t.Errorf("listed %d times; lacks %q", n, h.tasks[0].unread.why)
	}
	k.now += listEvery.Nanoseconds()
	if readDelay(h); many.lists-lists != 2 {
		t.Errorf("listed %d times, a minute later", many.lists-lists)
	}
}

// Where there is no time for all, each has its turn, also behind one that has too many for any reading.
func TestEachTaskHasItsTurn(t *testing.T) {
	h, k, _ := delayBench(20, 4000)
	for i := range 30 {
		g := &fakeKernel{}
		for j := range 100 {
			id := int32(1 + j + (i+2)*1_000_000)
			g.members, k.run[id] = append(g.members, id), 1
		}
		path := fmt.Sprintf("/more-%d", i)
		h.tasks = append(h.tasks, &watched{task: model.Task{Num: model.TaskNum(i + 3), Path: path, Class: model.BE}, group: g, members: membership{doubt: true}})
	}
	k.each = 50 * time.Microsecond
	read := make([]int, len(h.tasks))
	for range 60 {
		var snap model.Snapshot
		for _, w := range h.tasks {
			w.members.doubt = true
			h.observeTask(w, &snap)
		}
		h.observeDelay(&snap)
		for i := range snap.Tasks {
			if snap.Tasks[i].C[model.CountDelay].Outcome == model.OK {
				read[i]++
			}
		}
	}
	if read[0] != 0 || read[1] != 60 {
		t.Errorf("one of 4000 processes read %d times, the LC task %d of 60", read[0], read[1])
	}
	if least, most := slices.Min(read[2:]), slices.Max(read[2:]); least < 3 || most > 4*least {
		t.Errorf("the others were read %v times", read[2:])
	}
}

// On a machine that gives the agent little CPU a few processes take long: their delay is what is wanted there.
func TestFewProcessesAreAskedAnyway(t *testing.T) {
	h, k, _ := delayBench(20, 60)
	k.each = time.Millisecond
	if be, lc := readDelay(h); !be || !lc {
		t.Errorf("delay known: BE %v, LC %v", be, lc)
	}
}

// A source that fails is opened anew; where that fails too, another one serves, people are
// told, and the first is tried again.
func TestASourceOfDelaysIsReplaced(t *testing.T) {
	h, k, log := delayBench(1, 1)
	dials, refused := 0, errors.New("no socket")
	h.delays.dial = func() (taskstats.Source, error) {
		dials++
		return &slowKernel{fakeKernel: k.fakeKernel, name: "anew"}, refused
	}
	warned := func(want string) {
		t.Helper()
		if w := strings.Join(h.Warnings(nil), "; "); !strings.Contains(w, want) || want == "" && w != "" {
			t.Errorf("warnings %q, want %q", w, want)
		}
	}
	k.err = errors.New("broken")
	for range redialAfter - 1 {
		readDelay(h)
	}
	warned("no task's slowdown is known: broken")
	if dials != 0 || h.DelayFailures() != redialAfter-1 {
		t.Errorf("%d dials, %d failures", dials, h.DelayFailures())
	}
	k.err = nil // a moment's trouble
	if be, lc := readDelay(h); !be || !lc || dials != 0 {
		t.Errorf("delay known: BE %v, LC %v; %d dials", be, lc, dials)
	}
	warned("")
	k.err = errors.New("broken")
	for range redialAfter {
		readDelay(h)
	}
	if h.delay.Name() != "schedstat" || dials != 1 {
		t.Errorf("%s serves after %d dials", h.delay.Name(), dials)
	}
	readDelay(h)
	warned("thread schedstat is used")
	refused = nil
	k.now += redialEvery.Nanoseconds()
	readDelay(h)
	if h.delay.Name() != "anew" || dials != 2 {
		t.Errorf("%s serves after %d dials", h.delay.Name(), dials)
	}
	warned("")
	if n := strings.Count(log.String(), "level=WARN"); n != 3 { // two outages, and what was done about the second
		t.Errorf("%d warnings:\n%s", n, log)
	}
}

// Of many tasks the lists of processes are doubted by turns; of few all at each discovery.
func TestManyListsAreDoubtedByTurns(t *testing.T) {
	for tasks, turns := range map[int]int{3: 1, doubtAtOnce: 1, doubtAtOnce + 1: 2, 1000: 4} {
		h, _, _ := delayBench(1, 1)
		h.tasks = h.tasks[:0]
		for i := range tasks {
			h.tasks = append(h.tasks, &watched{task: model.Task{Num: model.TaskNum(i + 1)}, group: &fakeKernel{}})
		}
		for turn := range turns {
			before := doubted(h)
			h.doubt()
			if n := doubted(h) - before; n > doubtAtOnce || n < tasks/turns {
				t.Errorf("%d tasks: discovery %d doubts %d", tasks, turn, n)
			}
		}
		if n := doubted(h); n != tasks {
			t.Errorf("%d tasks: %d are doubted after %d discoveries", tasks, n, turns)
		}
	}
}

func doubted(h *Host) (n int) {
	for _, w := range h.tasks {
		if w.members.doubt {
			n++
		}
	}
	return n
}
