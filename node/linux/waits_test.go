package linux

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/schedwait"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// fakeWaits measures what a test says.
type fakeWaits struct {
	groups []schedwait.Group
	tasks  []schedwait.Waits
	lost   schedwait.Lost
	unfit  schedwait.Unfit
	err    error
	starts int
	stops  int
	rate   int64 // switches a reading
}

func (f *fakeWaits) SetGroups(groups []schedwait.Group) error {
	f.groups = slices.Clone(groups)
	return nil
}
func (f *fakeWaits) Start() error { f.starts++; return nil }
func (f *fakeWaits) Stop() error  { f.stops++; return nil }
func (f *fakeWaits) Close() error { return nil }
func (f *fakeWaits) Read(r *schedwait.Reading, _ int64) error {
	r.Tasks, r.Lost, r.Switches, r.Unfit = f.tasks, f.lost, f.rate, f.unfit
	return f.err
}

// What is measured reaches the snapshot under the tasks' numbers; a source that fails costs the snapshot nothing else,
// and is told once.
func TestWaitsReachTheSnapshot(t *testing.T) {
	b := newBed(t, "waits")
	f := &fakeWaits{}
	b.waits = f
	b.mkdir("lc")
	b.mkdir("be")
	b.openRules(false, []match.Rule{{Glob: b.root + "/lc", Job: "lc", Class: model.LC}, {Glob: b.root + "/be", Job: "be", Class: model.BE}})
	b.observe(model.WindowStart)
	lc, be := b.tasks[b.root+"/lc"].Num, b.tasks[b.root+"/be"].Num
	if len(f.groups) != 2 || f.starts != 1 {
		t.Fatalf("groups %+v, started %d times", f.groups, f.starts)
	}
	for _, g := range f.groups {
		inode, err := b.cg.Inode(map[int]string{int(lc): b.root + "/lc", int(be): b.root + "/be"}[g.Task])
		if err != nil || g.Cgroup != inode || g.Watched != (g.Task == int(lc)) {
			t.Errorf("%+v, the group's inode is %d, %v", g, inode, err)
		}
	}
	w := schedwait.Waits{Task: int(lc), Count: [2]int64{3, 1}, Nsec: [2]int64{30e6, 10e6}, LongestNsec: 9e6}
	w.Shares = []schedwait.Share{{Party: schedwait.TaskParty(int(be)), Nsec: 25e6}, {Party: schedwait.Throttled, Nsec: 10e6}, {Party: schedwait.Kernel, Nsec: 5e6, PID: 1}}
	f.tasks = []schedwait.Waits{w}
	b.observe(model.WindowEnd | model.WindowStart)
	got := b.snap.Waiting
	if len(got) != 1 || got[0].Num != lc || got[0].Nsec != 40e6 || got[0].Waits != 4 || got[0].Foreign() != 30e6 {
		t.Fatalf("%+v", got)
	}
	if got[0].Lost != (model.WaitLoss{}) {
		t.Errorf("lost %+v", got[0].Lost)
	}
	if s := got[0].Shares; s[0] != (model.WaitShare{Party: model.WaitTask, Task: be, Nsec: 25e6}) || s[1].Party != model.WaitThrottled || s[2].Process == "" {
		t.Errorf("%+v", s)
	}
	if c := b.sample(b.root + "/lc").C; c[model.CountWaited] != model.Read(40e6) || c[model.CountWaitedForeign] != model.Read(30e6) {
		t.Errorf("counters %+v", c)
	}
	b.observe(model.WindowEnd | model.WindowStart)
	if c := b.sample(b.root + "/lc").C; c[model.CountWaited] != model.Read(80e6) {
		t.Errorf("after another reading: %+v", c)
	}
	f.err = errors.New("map is gone")
	for range 3 {
		b.observe(model.WindowEnd | model.WindowStart)
		if len(b.snap.Waiting) != 0 || len(b.snap.Tasks) != 2 {
			t.Errorf("with an error: %+v", b.snap)
		}
	}
	if n := strings.Count(b.logs.String(), "map is gone"); n != 1 {
		t.Errorf("told %d times", n)
	}
	f.err, f.lost = nil, schedwait.Lost{Waits: 3}
	b.observe(model.WindowEnd | model.WindowStart)
	if len(b.snap.Waiting) != 0 || f.starts != f.stops+1 {
		t.Errorf("the first reading after an error, of windows that nobody read: %+v, %d starts, %d stops", b.snap.Waiting, f.starts, f.stops)
	}
	b.observe(model.WindowEnd | model.WindowStart)
	if text := b.logs.String(); !strings.Contains(text, "this is over") || !strings.Contains(text, "not all waits") {
		t.Error(fmt.Sprintln("neither the end of the outage nor what was lost is told:", text))
	}
}

// Between windows nothing is measured; where it would cost more than it may, only some windows are, and that is told.
func TestWaitsWithinTheirBudget(t *testing.T) {
	b := newBed(t, "budget")
	f := &fakeWaits{}
	b.waits = f
	b.mkdir("lc")
	b.openRules(false, []match.Rule{{Glob: b.root + "/lc", Job: "lc", Class: model.LC}})
	b.observe(model.WindowStart)
	f.tasks = []schedwait.Waits{{Task: int(b.tasks[b.root+"/lc"].Num), Nsec: [2]int64{1e6, 0}}}
	for range 3 {
		b.observe(model.WindowEnd)
		if len(b.snap.Waiting) != 1 || f.starts != f.stops {
			t.Fatalf("at a window's end: %+v, %d starts, %d stops", b.snap.Waiting, f.starts, f.stops)
		}
		b.observe(model.WindowStart)
		if len(b.snap.Waiting) != 0 || f.starts != f.stops+1 {
			t.Fatalf("at a window's start: %+v, %d starts, %d stops", b.snap.Waiting, f.starts, f.stops)
		}
	}
	b.h.waits.since = b.h.opt.Clock.MonoNsec() - 1e9
	f.rate = int64(2.5 * waitsBudget / nsecPerSwitch * 1e9 * float64(b.h.online)) // a second of it takes two and a half times what it may
	var measured []bool
	for range 7 {
		b.observe(model.WindowEnd | model.WindowStart)
		measured = append(measured, len(b.snap.Waiting) == 1)
		b.h.waits.since = b.h.opt.Clock.MonoNsec() - 1e9
	}
	if want := []bool{true, false, false, true, false, false, true}; !slices.Equal(measured, want) {
		t.Errorf("measured windows: %v, want %v", measured, want)
	}
	f.rate = 10
	for range 4 {
		b.observe(model.WindowEnd | model.WindowStart)
		b.h.waits.since = b.h.opt.Clock.MonoNsec() - 1e9
	}
	if text := b.logs.String(); len(b.snap.Waiting) != 1 || strings.Count(text, "in some windows only") != 2 || !strings.Contains(text, "this is over: who makes services wait for a CPU is measured in some windows only") {
		t.Error(text)
	}
}

// Services come first where there is no room for all, then those that can be held, of each the oldest; what has no room is
// told once, and told when it is over.
func TestMoreTasksThanSlots(t *testing.T) {
	b := newBed(t, "slots")
	f := &fakeWaits{}
	b.waits = f
	var rules []match.Rule
	for _, name := range []string{"be-1", "system", "lc-1"} {
		b.mkdir(name)
	}
	for _, c := range []struct {
		glob  string
		class model.Class
	}{{"be-*", model.BE}, {"lc-*", model.LC}, {"system", model.System}} {
		rules = append(rules, match.Rule{Glob: b.root + "/" + c.glob, Job: c.class.String(), Class: c.class})
	}
	b.openRules(false, rules)
	b.observe(model.WindowStart)
	for _, name := range []string{"be-0", "lc-0"} {
		b.mkdir(name)
		b.observe(model.WindowEnd | model.WindowStart)
	}
	f.unfit = schedwait.Unfit{Watched: 1, Groups: 2}
	for range 3 {
		b.observe(model.WindowEnd | model.WindowStart)
	}
	var got []string
	for _, g := range f.groups {
		for path, task := range b.tasks {
			if int(task.Num) == g.Task {
				got = append(got, strings.TrimPrefix(path, b.root+"/"))
			}
		}
	}
	if want := []string{"lc-1", "lc-0", "be-1", "be-0", "system"}; !slices.Equal(got, want) {
		t.Errorf("in this order: %v, want %v", got, want)
	}
	const told = "there is no room for 1 services, the youngest"
	if n := strings.Count(b.logs.String(), told); n != 1 {
		t.Errorf("told %d times: %s", n, &b.logs)
	}
	if w := strings.Join(b.h.Warnings(nil), "\n"); !strings.Contains(w, told) || !strings.Contains(w, "no room for 2 tasks") {
		t.Error("the status has", w)
	}
	f.unfit = schedwait.Unfit{}
	b.observe(model.WindowEnd)
	if w := b.h.Warnings(nil); len(w) != 0 || !strings.Contains(b.logs.String(), "this is over: not all tasks have") {
		t.Errorf("there is room again: %v, %s", w, &b.logs)
	}
}

// A window says what it lost of each task, also where nothing is left of it, and how many before it were not measured. What
// is one task's loss leaves the other's window whole; events that were not heard of are everybody's.
func TestWindowsSayWhatTheyLost(t *testing.T) {
	b := newBed(t, "lost")
	f := &fakeWaits{}
	b.waits = f
	b.mkdir("lc")
	b.mkdir("other")
	b.openRules(false, []match.Rule{{Glob: b.root + "/lc", Job: "lc", Class: model.LC}, {Glob: b.root + "/other", Job: "other", Class: model.LC}})
	b.observe(model.WindowStart)
	lc := int(b.tasks[b.root+"/lc"].Num)
	whole := func(notTaken, strays int64) schedwait.Waits {
		return schedwait.Waits{
			Task: lc, Count: [2]int64{30, 10}, Nsec: [2]int64{30e6, 10e6}, NotTaken: notTaken, Strays: strays,
			Shares: []schedwait.Share{{Party: schedwait.Kernel, Nsec: 30e6}, {Party: schedwait.Unknown, Nsec: 10e6}},
		}
	}
	other := schedwait.Waits{Task: int(b.tasks[b.root+"/other"].Num), Count: [2]int64{5, 0}, Nsec: [2]int64{5e6, 0}, Shares: []schedwait.Share{{Party: schedwait.Kernel, Nsec: 5e6}}}
	for _, c := range []struct {
		name string
		task schedwait.Waits
		lost schedwait.Lost
		rate int64
		want model.WaitLoss
	}{
		{"a row was missing", whole(0, 0), schedwait.Lost{Rows: 3}, 100, model.WaitLoss{UnknownNsec: 10e6}},
		{"a thread was", whole(120, 0), schedwait.Lost{Waits: 120}, 100, model.WaitLoss{NotTaken: 0.75, UnknownNsec: 10e6}},
		{"events were", whole(0, 10), schedwait.Lost{Events: 100, Strays: 10}, 300, model.WaitLoss{Events: 0.5, UnknownNsec: 10e6}},
		{"all threads were", schedwait.Waits{Task: lc, NotTaken: 9}, schedwait.Lost{Waits: 9}, 100, model.WaitLoss{NotTaken: 1}},
	} {
		f.tasks, f.lost, f.rate = []schedwait.Waits{c.task, other}, c.lost, c.rate
		b.h.waits.since = b.h.opt.Clock.MonoNsec() - 1e9
		b.observe(model.WindowEnd | model.WindowStart)
		events := float64(c.lost.Events) / float64(c.lost.Events+c.rate)
		if got := b.snap.Waiting; len(got) != 2 || got[0].Lost != c.want || got[1].Lost != (model.WaitLoss{Events: events}) || !got[1].Judged() {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	f.tasks, f.lost = []schedwait.Waits{{Task: lc, Nsec: [2]int64{1e6, 0}}}, schedwait.Lost{}
	f.rate = int64(2.5 * waitsBudget / nsecPerSwitch * 1e9 * float64(b.h.online))
	var skipped []int
	for range 7 {
		b.h.waits.since = b.h.opt.Clock.MonoNsec() - 1e9
		b.observe(model.WindowEnd | model.WindowStart)
		for i := range b.snap.Waiting {
			skipped = append(skipped, b.snap.Waiting[i].Lost.Skipped)
		}
	}
	if want := []int{0, 2, 2}; !slices.Equal(skipped, want) {
		t.Errorf("windows left out before those that were measured: %v, want %v", skipped, want)
	}
}

// A clock that was set back between windows costs none of them, and one that nearly stood still no more than a few.
func TestWaitsWhenTheClockSteps(t *testing.T) {
	b := newBed(t, "steps")
	f := &fakeWaits{rate: 1e6}
	b.waits = f
	b.mkdir("lc")
	b.openRules(false, []match.Rule{{Glob: b.root + "/lc", Job: "lc", Class: model.LC}})
	b.observe(model.WindowStart)
	f.tasks = []schedwait.Waits{{Task: int(b.tasks[b.root+"/lc"].Num), Nsec: [2]int64{1e6, 0}}}
	for _, c := range []struct {
		ahead int64 // of the clock, when the last reading was made
		skip  int
	}{{3600e9, 0}, {0, maxSkip}} {
		b.h.waits.since = b.h.opt.Clock.MonoNsec() + c.ahead
		b.observe(model.WindowEnd)
		if len(b.snap.Waiting) != 1 || b.h.waits.skip != c.skip {
			t.Errorf("%d ns ahead: %+v, the next %d windows are left out, want %d", c.ahead, b.snap.Waiting, b.h.waits.skip, c.skip)
		}
		b.observe(model.WindowStart)
	}
	f.rate = 1
	for range maxSkip + 1 {
		b.observe(model.WindowEnd | model.WindowStart)
	}
	b.observe(model.WindowEnd)
	if len(b.snap.Waiting) != 1 {
		t.Error("nothing is measured again")
	}
	b.h.waitsToSkip(1e9) // nothing is the matter any more
}
