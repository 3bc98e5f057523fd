package linux

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

func tasksAt(class model.Class, paths ...string) (list []*watched) {
	for _, p := range paths {
		list = append(list, &watched{task: model.Task{Path: p, Class: class}})
	}
	return list
}

func inOrder(lists ...[]*watched) []*watched {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b *watched) int { return strings.Compare(a.task.Path, b.task.Path) })
	return all
}

// Where LC's groups are apart from others' a few reads say what LC used at most.
func TestHolders(t *testing.T) {
	pods := inOrder(
		tasksAt(model.LC, "/kubepods/pod1", "/kubepods/pod2", "/kubepods/burstable/pod3", "/kubepods/burstable/pod4", "/kubepods-not/pod"),
		tasksAt(model.BE, "/kubepods/besteffort/pod5", "/kubepods/besteffort/pod6"))
	flat := inOrder(tasksAt(model.LC, "/a/lc1", "/a/lc2", "/a/lc3"), tasksAt(model.BE, "/a/be1", "/a/be2", "/a/be3"))
	for _, c := range []struct {
		what  string
		tasks []*watched
		tight bool
		want  string
	}{
		{"quality classes", pods, true, "[{/kubepods-not/pod false} {/kubepods false} {/kubepods/besteffort true}]"},
		{"with what is inside of them", pods, false, "[{/kubepods-not/pod false} {/kubepods false}]"},
		{"side by side", flat, true, "[{/a/lc1 false} {/a/lc2 false} {/a/lc3 false}]"},
		{"with others' work", flat, false, "[{/a false}]"},
		{"the tasks themselves, no group of strangers", tasksAt(model.LC, "/system/a", "/user/b"), true, "[{/system/a false} {/user/b false}]"},
		{"no LC", tasksAt(model.BE, "/a"), true, "[]"},
	} {
		if got := fmt.Sprint(holdersOf(c.tasks, "", c.tight)); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// On any tree each shared LC task counts once, nobody counts less than never, and where others are
// subtracted they count for nothing.
func TestHoldersCountEachOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var tasks []*watched
		for i := range 1 + rng.IntN(12) {
			path := ""
			for range rng.IntN(3) {
				path += string([]byte{'/', "ab-"[rng.IntN(3)]})
			}
			w := &watched{task: model.Task{Path: fmt.Sprintf("%s/t%d", path, i), Class: []model.Class{model.LC, model.BE, model.System}[rng.IntN(3)]}}
			w.task.Exclusive = w.task.Class == model.LC && rng.IntN(4) == 0
			tasks = append(tasks, w)
		}
		tasks = inOrder(tasks)
		for _, tight := range []bool{true, false} {
			parts := holdersOf(tasks, "", tight)
			pooled := 0
			for _, w := range tasks {
				n := 0
				for _, p := range parts {
					if at := w.task.Path; at == p.path || strings.HasPrefix(at, p.path+"/") {
						if n++; p.less {
							n -= 2
						}
					}
				}
				if w.pooled() {
					pooled++
				}
				if w.pooled() && n != 1 || n < 0 || tight && !w.pooled() && n != 0 {
					t.Fatalf("tight %t: %s, shared LC %t, counts %d times in %v", tight, w.task.Path, w.pooled(), n, parts)
				}
			}
			if len(parts) > pooled {
				t.Fatalf("%d reads for %d tasks: %v", len(parts), pooled, parts)
			}
		}
	}
}

// The bound grows by what the source that grew less says, and never by less than LC used; where nobody
// knows what was used no difference can be taken.
func TestBoundFollowsTheLesser(t *testing.T) {
	var b bound
	now, reads := [2]model.Counter{model.Read(1000), model.Read(50)}, [2]int{}
	next := func() model.Counter {
		return b.next(func(i int) (until, from model.Counter) {
			reads[i]++
			return now[i], now[i]
		})
	}
	if v := next(); v.Outcome == model.OK {
		t.Errorf("the first reading: %+v", v)
	}
	last := next()
	for k, add := range [][2]uint64{{10, 3}, {10, 90}} { // groups are the lesser bound, then CPUs
		for range 2*compareBounds + 2 {
			now[0].Value, now[1].Value = now[0].Value+add[0], now[1].Value+add[1]
			v := next()
			if used, outcome := model.Delta(last, v); outcome != model.OK || used < min(add[0], add[1]) || used > max(add[0], add[1]) {
				t.Fatalf("%d: from %+v to %+v after %v", k, last, v, add)
			}
			last = v
		}
		reads = [2]int{}
		was := last.Value
		for range 4 {
			now[0].Value, now[1].Value = now[0].Value+add[0], now[1].Value+add[1]
			last = next()
		}
		if want := 4 * min(add[0], add[1]); last.Value-was != want || reads[0]+reads[1] > 5 {
			t.Errorf("%d: grew by %d in %v reads, want %d", k, last.Value-was, reads, want)
		}
	}
	now[b.chosen].Outcome = model.Unavailable
	v := next()
	if _, outcome := model.Delta(last, v); outcome == model.OK {
		t.Errorf("what is read has failed, from %+v to %+v", last, v)
	}
	now[1-b.chosen].Value += 7
	if used, outcome := model.Delta(v, next()); outcome != model.OK || used < 7 {
		t.Errorf("the other one grew by 7: %d, %s", used, outcome)
	}
	now[0].Outcome, now[1].Outcome = model.Unavailable, model.Unavailable
	if next(); next().Outcome == model.OK {
		t.Error("nothing can be read")
	}
}

// On the running kernel the bound is not less than what LC used, most of what batch work inside of LC's
// group used is not in it, and no reading allocates.
func TestLCBoundOnTheKernel(t *testing.T) {
	b := newBed(t, "bound")
	b.mkdir("pods")
	b.mkdir("pods/low")
	be := b.mkdir("pods/low/1")
	b.mkdir("pods/low/2")
	for i := range 4 {
		b.mkdir(fmt.Sprintf("pods/victim%d", i))
	}
	b.openRules(false, []match.Rule{
		{Glob: b.root + "/pods/victim*", Job: "victim", Class: model.LC},
		{Glob: b.root + "/pods/low/*", Job: "batch", Class: model.BE, Importance: model.BestEffort},
	})
	b.h.opt.Places = true
	b.observe(0)
	if l := &b.h.holders; len(l.more) != 1 || len(l.less) != 1 || l.broken {
		t.Fatalf("%d groups less %d, broken %t", len(l.more), len(l.less), l.broken)
	}
	b.spin(b.root + "/pods/victim1")
	b.spin(be)
	batch := b.h.tasks[slices.IndexFunc(b.h.tasks, func(w *watched) bool { return w.task.Path == be })]
	usage := func() uint64 {
		v, err := batch.group.UsageNsec()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	b.h.LCBound(model.CPUSet{})
	from := b.h.LCBound(model.CPUSet{})
	var p, now model.Pulse
	b.h.Pulse(false, &p)
	idle, last := usage(), from
	b.until("both work", func() bool {
		b.h.Pulse(false, &now)
		used := now.LCUsage.Value - p.LCUsage.Value
		v := b.h.LCBound(model.CPUSet{})
		most, outcome := model.Delta(from, v)
		// v2 counts whole microseconds, so that each difference of two groups may be one short.
		if outcome != model.OK || most+10_000 < used || v.Value < last.Value {
			t.Fatalf("LC used %d, the bound says %d (%s)", used, most, outcome)
		}
		last = v
		others := usage() - idle
		if enough := uint64(300 * time.Millisecond); used < enough || others < enough {
			return false
		}
		// What others use between the two readings of theirs is in the bound: on an emulated CPU that is most of the time.
		if !rigtest.Inside() && most > used+others/2 {
			t.Errorf("LC used %d and batch %d, the bound says %d", used, others, most)
		}
		return true
	})
	b.mkdir("pods/low/3") // is subtracted with its group, which is opened anew
	b.observe(0)
	if _, outcome := model.Delta(last, b.h.LCBound(model.CPUSet{})); outcome == model.OK {
		t.Error("a difference is taken between other groups")
	}
	if n := testing.AllocsPerRun(100, func() { b.h.LCBound(model.CPUSet{}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
