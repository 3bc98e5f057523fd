package agent_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	b.hold(tasks[0], "0.02", "800ms")
	eventually(t, "the cap expires", func() bool { return len(b.status().Held) == 0 })
	b.same("after the cap's time", found)
	// A cap above what was found changes nothing: caps settle at the smaller of the two.
	b.must(0, "cap", tasks[1], "--cpus", "1.9", "--for", "10m")
	eventually(t, "the cap is taken note of", func() bool { h := b.held(tasks[1]); return h != nil && h.State == "held" })
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
		if b.read(child) == found[child] {
			t.Fatal("the child's limit is above its parent's")
		}
		b.write(task, foreign)
		eventually(t, "the claim is void", func() bool { h := b.held(task); return h != nil && h.State == "void" })
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
	if h := b.held(task); h.Found != model.CPUMax(foreign) {
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
