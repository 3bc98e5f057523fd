package agent_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// TestKillSwitch: while the file is there nothing is held and nothing can be; without it
// everything works again.
func TestKillSwitch(t *testing.T) {
	t.Parallel()
	b := newBed(t, "switch", settings{})
	tasks := b.tree()
	found := b.knobs()
	p := b.agent()
	file := b.dir + "/off"
	for range 2 {
		for _, task := range tasks {
			b.hold(task, "0.03", "10m")
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		eventually(t, "everything is released", func() bool {
			st := b.status()
			return st.KillSwitch && st.ModeNow == model.ModeObserve.String() && len(st.Held) == 0
		})
		b.same("kill switch", found)
		if r := b.must(2, "cap", tasks[0], "--cpus", "0.1"); !strings.Contains(r.err, file) {
			t.Errorf("cap says %q, and not what stands in its way", r.err)
		}
		if r := b.must(0, "status"); !strings.Contains(r.out, "KILL SWITCH") {
			t.Errorf("status says:\n%s", r.out)
		}
		time.Sleep(500 * time.Millisecond)
		b.same("kill switch, later", found)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the kill switch is noticed to be gone", func() bool {
			st := b.status()
			return !st.KillSwitch && st.ModeNow == model.ModeEnforce.String()
		})
	}
	b.hold(tasks[0], "0.03", "10m")
	p.stop(unix.SIGTERM)
	b.same("at the end", found)
}

// TestOperatorsCaps: caps are set, changed, expire and are taken back.
func TestOperatorsCaps(t *testing.T) {
	t.Parallel()
	b := newBed(t, "caps", settings{mode: "observe"}) // an operator's word stands in observe, too
	tasks := b.tree()
	found := b.knobs()
	p := b.agent()
	b.hold(tasks[0], "0.5", "10m")
	if got := b.read(tasks[0]).Ratio(); got != 0.5 {
		t.Errorf("capped to %g, expected 0.5", got)
	}
	for _, cpus := range []string{"0.02", "0.2"} { // tighter, and wider again
		b.must(0, "cap", tasks[0], "--cpus", cpus, "--for", "10m")
		eventually(t, "the cap is "+cpus, func() bool {
			return b.read(tasks[0]) == map[string]cgroup.CPUMax{
				"0.02": {QuotaUsec: 5_000, PeriodUsec: 250_000}, "0.2": {QuotaUsec: 50_000, PeriodUsec: 250_000},
			}[cpus]
		})
	}
	b.must(0, "uncap", tasks[0])
	eventually(t, "the cap is off", func() bool { return len(b.status().Held) == 0 })
	b.same("after uncap", found)
	// So short a cap may be over before anybody could look: the log has both.
	b.must(0, "cap", tasks[0], "--cpus", "0.02", "--for", "800ms")
	eventually(t, "the cap expires", func() bool {
		return strings.Contains(p.text(), "the cap's time is over") && len(b.status().Held) == 0
	})
	if n := strings.Count(p.text(), "msg="+model.DecideOperator.String()); n < 4 {
		t.Errorf("%d decisions of operators in the log, expected the three before and this one:\n%s", n, p.text())
	}
	b.same("after the cap's time", found)
	// A cap above what was found changes nothing: caps settle at the smaller of the two.
	b.must(0, "cap", tasks[1], "--cpus", "1.9", "--for", "10m")
	eventually(t, "the cap is taken note of", func() bool { h := b.held(tasks[1]); return h != nil && h.State == engine.KnobHeld })
	b.same("a cap above the limit", found)
	p.stop(unix.SIGTERM)
	b.same("at the end", found)
}

// TestForeignWriter: another program's limit is reported, left, and taken for the base
// once an operator takes the knob back.
func TestForeignWriter(t *testing.T) {
	t.Parallel()
	b := newBed(t, "foreign", settings{})
	tasks := b.tree()
	task, child := tasks[0], tasks[0]+"/a"
	found := b.knobs()
	foreign := cgroup.CPUMax{QuotaUsec: 77_000, PeriodUsec: 100_000, BurstUsec: 7_000}
	disturb := func() {
		t.Helper()
		b.hold(task, "0.05", "10m")
		b.below(child, b.knobs(), found)
		b.write(task, foreign)
		eventually(t, "the claim is void", func() bool { h := b.held(task); return h != nil && h.State == engine.KnobVoid })
		h := b.held(task)
		if !strings.Contains(h.Why, "quota 77000 us") || len(h.Claims) > 0 || h.Cap != 0 {
			t.Errorf("status says %+v", h)
		}
		if r := b.must(0, "status"); !strings.Contains(r.out, task+": void (found quota 77000 us") {
			t.Errorf("status prints:\n%s", r.out)
		}
		time.Sleep(500 * time.Millisecond)
		want := found
		want[task] = foreign
		b.same("after the foreign write", want) // the child is put back: nobody wrote it but us
	}
	p := b.agent()
	disturb()
	p.stop(unix.SIGTERM)
	b.same("after the agent's end", found)

	p = b.agent()
	b.write(task, unlimited)
	disturb()
	b.hold(task, "0.05", "10m") // an operator takes it back
	if h := b.held(task); h.Found != model.Bandwidth(model.CPUMax(foreign)) {
		t.Errorf("the base is %+v, expected the foreign value", h.Found)
	}
	b.must(0, "uncap", task)
	eventually(t, "it is released", func() bool { return b.held(task) == nil })
	b.same("after uncap", found)
	b.hold(task, "0.05", "10m")
	p.kill()
	b.alone()
	b.same("after a crash", found)
}

// TestNoController: on cgroup v2 a task without the cpu controller is named in the status,
// cannot be capped, and can be as soon as its owner enables it. The agent never does.
func TestNoController(t *testing.T) {
	t.Parallel()
	b := newBed(t, "nocpu", settings{})
	d, ok := b.cg.(*cgroup.V2)
	if !ok {
		t.Skip("a group of cgroup v1 always has the controllers of its hierarchy")
	}
	task, victim := b.group("be-0", unlimited), b.group("victim", unlimited)
	if err := d.Disable(b.root, cgroup.CPU); err != nil {
		t.Fatal(err)
	}
	p := b.agent()
	why := "no CPU limit: cgroup.subtree_control of " + b.root + " lacks cpu"
	if st := b.status(); !slices.Equal(st.Warnings, []string{task + ": " + why}) {
		t.Errorf("warnings %q", st.Warnings)
	}
	for _, ts := range b.status().Tasks {
		if lacks := len(ts.Lacks) > 0; lacks != (ts.Path == task) {
			t.Errorf("%s lacks %q; the victim %s is never held", ts.Path, ts.Lacks, victim)
		}
	}
	if r := b.must(0, "status"); !strings.Contains(r.out, "WARNING: "+task+": "+why) {
		t.Errorf("status prints:\n%s", r.out)
	}
	b.must(0, "cap", task, "--cpus", "0.1", "--for", "10m")
	eventually(t, "the cap is refused", func() bool {
		h := b.held(task)
		return h != nil && h.Cap == 0 && strings.Contains(h.Why, "cpu")
	})
	if on, err := d.ReadSubtreeControl(b.root); err != nil || slices.Contains(on, cgroup.CPU) {
		t.Fatalf("the agent enabled a controller: %v (%v)", on, err)
	}
	if err := d.Enable(b.root, cgroup.CPU); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the warning is gone", func() bool { return len(b.status().Warnings) == 0 })
	b.must(0, "uncap", task)
	b.hold(task, "0.1", "10m")
	p.stop(unix.SIGTERM)
	b.same("at the end", map[string]cgroup.CPUMax{task: unlimited, victim: unlimited})
}
