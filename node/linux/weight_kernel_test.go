package linux

import (
	"errors"
	"fmt"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// These tests demote real tasks on the running kernel, on cgroup v1 and v2 alike.

// idle is what a demotion asks for.
var idle = model.Weight(model.WeightIdle)

// weigh gives a group a weight, or makes it idle, and returns what reads back.
func (b *bed) weigh(path string, v model.Setting) model.Setting {
	b.t.Helper()
	if err := b.weights().write(path, b.weight(path), v); err != nil {
		b.t.Fatal(err)
	}
	return b.weight(path)
}

func (b *bed) weights() *weight { return &weight{cg: b.cg, flat: b.flat()} }

func (b *bed) weight(path string) model.Setting {
	b.t.Helper()
	v, err := b.weights().read(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// demotable makes a BE task with a group in it, each with a weight of its own.
func (b *bed) demotable() (task, inside string, within model.Setting) {
	b.t.Helper()
	task = b.mkdir("be-1")
	inside = b.mkdir("be-1/a")
	if _, err := b.cg.ReadIdle(task); errors.Is(err, cgroup.ErrUnsupported) {
		b.t.Skip("this kernel has no cpu.idle")
	}
	return task, inside, b.weigh(inside, model.Weight(500))
}

// What the driver rests on: the kernel forgets the weight of a group that is made idle, refuses
// others, and gives it the default afterwards.
func TestKernelForgetsWeights(t *testing.T) {
	b := newBed(t, "forgets")
	task, _, _ := b.demotable()
	b.weigh(task, model.Weight(300))
	if err := b.cg.WriteIdle(task, true); err != nil {
		t.Fatal(err)
	}
	if err := b.cg.WriteShares(task, 300); err == nil {
		t.Error("an idle group took a weight")
	}
	if err := b.cg.WriteIdle(task, false); err != nil {
		t.Fatal(err)
	}
	if now := b.weight(task); now != model.Weight(model.WeightDefault) {
		t.Errorf("after cpu.idle it has %s", now)
	}
}

// Whatever weight is found comes back, whether the agent gives it back or who comes after it.
func TestDemoteOnTheKernel(t *testing.T) {
	for _, found := range []model.Setting{model.Weight(300), model.Weight(model.WeightDefault), model.Weight(100_000), model.Weight(model.WeightLeast), idle} {
		for _, by := range []string{"release", "restart"} {
			t.Run(fmt.Sprintf("%d by %s", found.Amount, by), func(t *testing.T) {
				b := newBed(t, "demote")
				task, inside, within := b.demotable()
				found := b.weigh(task, found)
				b.open(false)
				b.observe(0)
				b.spin(inside)
				if r := b.apply(model.Hold, task, idle, model.Applied); r.Found != found || r.Now != idle || b.weight(task) != idle {
					t.Errorf("demoted: %+v; it reads %s", r, b.weight(task))
				}
				if by == "release" {
					b.apply(model.Release, task, model.Ask(model.CPUWeight), model.Applied)
				} else {
					b.restart()
				}
				if now := b.weight(task); now != found {
					t.Errorf("put back to %s; found was %s", now, found)
				}
				if now := b.weight(inside); now != within {
					t.Errorf("the group inside has %s; it had %s", now, within)
				}
				if o := b.h.knobs.j.Outstanding(); by == "release" && len(o) > 0 {
					t.Errorf("the journal still holds %+v", o)
				}
			})
		}
	}
}

// dying is the kernel's files for an agent that is killed before or after its n-th write.
type dying struct {
	weigher
	n     int
	after bool
}

func (d *dying) write(do func() error) error {
	d.n--
	if d.n == 0 && !d.after {
		panic(crash{})
	}
	err := do()
	if d.n == 0 {
		panic(crash{})
	}
	return err
}

func (d *dying) WriteIdle(path string, idle bool) error {
	return d.write(func() error { return d.weigher.WriteIdle(path, idle) })
}

func (d *dying) WriteShares(path string, shares uint64) error {
	return d.write(func() error { return d.weigher.WriteShares(path, shares) })
}

// dies applies changes until the agent is killed; false when it lives through all.
func (b *bed) dies(d *dying, changes ...func()) (died bool) {
	b.h.knobs.kinds[model.CPUWeight].(*weight).cg = d
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			died = true
		}
	}()
	for _, c := range changes {
		c()
	}
	return false
}

// The agent is killed before and after each write of a demotion and of its end, the two writes of
// which leave the default weight in between; the next start finds everything as it was.
func TestDemoteCrashAnywhere(t *testing.T) {
	for n, more := 1, true; more; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d after %t", n, after), func(t *testing.T) {
				b := newBed(t, "crash")
				task, _, _ := b.demotable()
				found := b.weigh(task, model.Weight(300))
				b.open(false)
				b.observe(0)
				more = b.dies(&dying{b.cg, n, after},
					func() { b.apply(model.Hold, task, idle, model.Applied) },
					func() { b.apply(model.Release, task, model.Ask(model.CPUWeight), model.Applied) })
				between := b.weight(task)
				b.restart()
				if now := b.weight(task); now != found {
					t.Errorf("%s was left, and became %s; found was %s", between, now, found)
				}
				if n == 2 && after && between != model.Weight(model.WeightDefault) {
					t.Errorf("between the two writes there is %s", between)
				}
				if rep := b.restart(); len(rep.Items) != 0 {
					t.Errorf("the journal still holds %+v", rep.Items)
				}
			})
			if t.Failed() || t.Skipped() {
				return
			}
		}
		if n > 6 {
			t.Fatal("a demotion and its end take more than six writes")
		}
	}
}

// What somebody else writes while a task is demoted stands: another weight. Who makes the task
// not idle any more, which leaves the default, gets the weight that it would have without us.
func TestForeignWriterOfAWeight(t *testing.T) {
	for name, theirs := range map[string]model.Setting{"another weight": model.Weight(2048), "the default": model.Weight(model.WeightDefault)} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, "foreign")
			task, _, _ := b.demotable()
			want := b.weigh(task, model.Weight(300))
			b.open(false)
			b.observe(0)
			b.apply(model.Hold, task, idle, model.Applied)
			theirs := b.weigh(task, theirs)
			if theirs.Amount != model.WeightDefault {
				want = theirs
			}
			r := b.h.Knobs(nil)
			if len(r) != 1 || r[0].Outcome != model.OK || r[0].Value != theirs {
				t.Errorf("the comparison says %+v, want %s", r, theirs)
			}
			b.apply(model.Hold, task, idle, model.Foreign)
			if rep := b.restart(); len(rep.Items) > 1 || len(rep.Items) == 1 && rep.Items[0].Kind != node.LeftForeign {
				t.Errorf("restored %+v", rep.Items)
			}
			if now := b.weight(task); now != want {
				t.Errorf("it became %s, not %s; somebody else had written %s", now, want, theirs)
			}
		})
	}
}

// older is a kernel without cpu.idle.
type older struct{ weigher }

func (older) ReadIdle(string) (bool, error) { return false, cgroup.ErrUnsupported }

// Before Linux 5.15 a demotion is the least weight.
func TestDemoteWithoutIdle(t *testing.T) {
	b := newBed(t, "older")
	task, _, _ := b.demotable()
	found := b.weigh(task, model.Weight(300))
	b.open(false)
	b.observe(0)
	b.h.knobs.kinds[model.CPUWeight].(*weight).cg = older{b.cg}
	least := int64(model.WeightLeast)
	if b.flat() {
		least = int64(cgroup.RoundShares(model.WeightLeast))
	}
	if r := b.apply(model.Hold, task, idle, model.Applied); r.Now != model.Weight(least) || r.Error == "" || b.weight(task) != r.Now {
		t.Errorf("demoted: %+v; it reads %s", r, b.weight(task))
	}
	b.apply(model.Release, task, model.Ask(model.CPUWeight), model.Applied)
	if now := b.weight(task); now != found {
		t.Errorf("put back to %s; found was %s", now, found)
	}
}
