package linux

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"golang.org/x/sys/unix"
)

func newPulseHost(classes ...model.Task) (*Host, []*fakeKernel) {
	h := &Host{opt: Options{Clock: RealClock{}}}
	var ks []*fakeKernel
	for i, task := range classes {
		k := &fakeKernel{}
		task.Num = model.TaskNum(i)
		h.tasks = append(h.tasks, &watched{group: k, task: task})
		ks = append(ks, k)
	}
	return h, ks
}

// Who comes adds from its first reading on, who goes leaves what it added, and a counter
// that begins anew takes nothing away. Exclusive tasks and system ones are none of it.
func TestPulseSums(t *testing.T) {
	lc, be := model.Task{Class: model.LC}, model.Task{Class: model.BE}
	h, ks := newPulseHost(lc, lc, model.Task{Class: model.LC, Exclusive: true}, be, model.Task{})
	var p model.Pulse
	expect := func(when string, detail bool, lcUsage uint64) {
		t.Helper()
		h.Pulse(detail, &p)
		if p.LCUsage != model.Read(lcUsage) || p.MonoNsec == 0 || (p.Tasks != nil) != detail {
			t.Errorf("%s: %+v, want LC %d", when, p, lcUsage)
		}
	}
	for i, k := range ks {
		k.usage = uint64(1000 * (i + 1))
	}
	expect("first", true, 0)
	add := func(n uint64) {
		for _, k := range ks {
			k.usage += n
		}
	}
	add(10)
	expect("grown", false, 20)
	add(10)
	expect("grown", true, 40)
	if len(p.Tasks) != 2 || p.Tasks[0].Num != 0 || p.Tasks[1].Num != 1 || p.Tasks[1].Usage != model.Read(2020) || p.Tasks[0].Periods.Outcome == model.OK {
		t.Errorf("%+v", p.Tasks)
	}
	ks[0].usage = 3
	expect("one began anew", false, 40)
	add(5)
	expect("and grew", false, 50)
	ks[0].refusedUsage = errDisk
	add(5)
	h.Pulse(true, &p)
	if p.LCUsage.Outcome != model.Unavailable || p.Tasks[0].Usage.Outcome != model.Unavailable || len(p.Tasks) != 2 {
		t.Errorf("one cannot be read: %+v", p)
	}
	ks[0].refusedUsage = nil
	expect("and can again", false, 60)
	ks[1].refusedUsage = cgroup.ErrVanished
	add(5)
	expect("one is gone", true, 65)
	if len(p.Tasks) != 1 || !h.tasks[1].gone {
		t.Errorf("%+v", p.Tasks)
	}
}

// On the running kernel: the sum grows as the tasks work, periods and throttling are told,
// and no reading allocates.
func TestPulseOnTheKernel(t *testing.T) {
	b := newBed(t, "pulse")
	one, two, own, be := b.mkdir("victim1"), b.mkdir("victim2"), b.mkdir("own"), b.mkdir("be-1")
	b.setLimit(one, limit(10_000, 100_000, 0))
	b.open(false)
	b.observe(0)
	for _, path := range []string{one, two, own, be} {
		b.spin(path)
	}
	var p model.Pulse
	b.until("the LC tasks work and one is throttled", func() bool {
		h := b.h
		h.Pulse(true, &p)
		i := slices.IndexFunc(p.Tasks, func(s model.TaskPulse) bool { return s.Num == b.tasks[one].Num })
		if len(p.Tasks) != 2 || i < 0 || p.LCUsage.Outcome != model.OK || p.NodeUsage.Value < p.LCUsage.Value {
			t.Fatalf("%+v", p)
		}
		s := p.Tasks[i]
		return p.LCUsage.Value > uint64(100*time.Millisecond) && s.Throttled.Value > 1 && s.Periods.Value >= s.Throttled.Value
	})
	was := p.LCUsage.Value
	b.h.Pulse(false, &p)
	if p.LCUsage.Outcome != model.OK || p.LCUsage.Value < was || p.Tasks != nil || p.NodeUsage.Outcome == model.OK {
		t.Errorf("without detail: %+v after %d", p, was)
	}
	b.h.Pulse(true, &p)
	for _, detail := range []bool{true, false} {
		if n := testing.AllocsPerRun(100, func() { b.h.Pulse(detail, &p); b.h.Pulse(true, &p) }); n != 0 {
			t.Errorf("detail %v: %v allocations", detail, n)
		}
	}
}

// BenchmarkPulse reads as many idle LC tasks of the running kernel as a large node has.
func BenchmarkPulse(b *testing.B) {
	for _, detail := range []bool{false, true} {
		b.Run(fmt.Sprintf("detail=%v", detail), func(b *testing.B) {
			const tasks = 100
			bed := newBed(b, fmt.Sprintf("bench-%v", detail))
			for i := range tasks {
				bed.mkdir(fmt.Sprintf("victim%d", i))
			}
			bed.open(false)
			bed.observe(0)
			var p model.Pulse
			b.ReportAllocs()
			for b.Loop() {
				bed.h.Pulse(detail, &p)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tasks, "ns/task")
		})
	}
}

// BenchmarkHandBack takes a core from BE tasks and gives it to LC tasks, as one batch on the
// running kernel: 50 and 50. It is what stands between the decision and the freed core.
func BenchmarkHandBack(b *testing.B) {
	const each = 50
	bed := newBed(b, "handback")
	one, _, both := bed.twoCPUs()
	var paths []string
	for i := range each {
		paths = append(paths, bed.mkdir(fmt.Sprintf("be-%d", i)))
	}
	for i := range each {
		paths = append(paths, bed.mkdir(fmt.Sprintf("victim%d", i)))
	}
	bed.open(false)
	bed.observe(0)
	var changes []model.Change
	for i := range paths {
		changes = append(changes, model.Change{Seq: uint64(i), Target: model.OfTask(bed.tasks[paths[i]].Num), Kind: model.Set})
	}
	var res []model.Result
	var freed, all, cpu time.Duration
	n := 0
	for b.Loop() {
		n++
		for i := range changes {
			changes[i].Value = bed.on([]string{one, both}[(n+i/each)%2])
		}
		at, ran := MonotonicNsec(), cpuTime(b)
		res = node.Do(bed.h, changes...)
		for i := range res {
			if res[i].Kind != model.Applied {
				b.Fatalf("%+v", res[i])
			}
		}
		cpu += cpuTime(b) - ran
		freed += time.Duration(res[each-1].MonoNsec - at)
		all += time.Duration(res[len(res)-1].MonoNsec - at)
	}
	b.ReportMetric(float64(cpu.Microseconds())/float64(n), "µs-of-CPU")
	b.ReportMetric(float64(freed.Microseconds())/float64(n), "µs-to-last-BE")
	b.ReportMetric(float64(all.Microseconds())/float64(n), "µs-to-last-LC")
}

// BenchmarkRaise moves the quotas of held LC tasks, as a token bucket does at each tick.
func BenchmarkRaise(b *testing.B) {
	const tasks = 20
	bed := newBed(b, "ticks")
	for i := range tasks {
		bed.setLimit(bed.mkdir(fmt.Sprintf("victim%d", i)), limit(20_000, 100_000, 0))
	}
	bed.open(false)
	bed.observe(0)
	var changes []model.Change
	for _, task := range bed.tasks {
		changes = append(changes, model.Change{Target: model.OfTask(task.Num), Kind: model.Set})
	}
	var res []model.Result
	var cpu time.Duration
	n := 0
	for b.Loop() {
		n++
		for i := range changes {
			changes[i].Value = setting(limit(int64(30_000+1000*(n%10)), 100_000, 0))
		}
		ran := cpuTime(b)
		res = node.Do(bed.h, changes...)
		cpu += cpuTime(b) - ran
		for i := range res {
			if res[i].Kind != model.Applied {
				b.Fatalf("%+v", res[i])
			}
		}
	}
	b.ReportMetric(float64(cpu.Microseconds())/float64(n)/tasks, "µs-of-CPU/task")
}

// cpuTime returns what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
