package linux

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/model"
)

// plug takes a CPU offline, or back, for the length of the test.
func (b *bed) plug(cpu string, on bool) {
	b.t.Helper()
	text := "0\n"
	if on {
		text = "1\n"
	}
	path := fmt.Sprintf("/sys/devices/system/cpu/cpu%s/online", cpu)
	now, err := os.ReadFile(path)
	if err == nil && string(now) != text {
		err = os.WriteFile(path, []byte(text), 0)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// A CPU that goes offline under a task that is placed on it makes no stranger, no empty
// cpuset and no task that stands still; it is not written any more, and comes back.
func TestKernelUnplugUnderAPlace(t *testing.T) {
	rigtest.Only(t, "takes CPUs offline")
	b := newBed(t, "unplug")
	one, two, both := b.twoCPUs()
	task, found := b.placedTask()
	b.open(false)
	if b.observe(0); b.snap.Topology == nil {
		t.Fatal("the first snapshot has no topology")
	}
	pid := b.spin(task + "/b").PID()
	t.Cleanup(func() { b.plug(two, true) })

	b.apply(model.Set, task, b.on(both), model.Applied)
	b.plug(two, false)
	b.h.discovered = 0 // do not wait for the next discovery
	cpu := b.on(two).CPUs
	if b.observe(0); b.snap.Topology == nil || b.snap.Topology.Online() != b.snap.Topology.Possible.Without(cpu) {
		t.Errorf("topology after CPU %s went: %+v", two, b.snap.Topology)
	}
	if k := b.h.Knobs(nil); len(k) != 1 || k[0].Outcome != model.OK || k[0].Value != b.on(both) {
		t.Errorf("knobs read %+v: a CPU that went is no stranger", k)
	}
	if r := b.apply(model.Set, task, b.on(two), model.Refused); !strings.Contains(r.Error, "offline") {
		t.Errorf("a place that is offline: %+v", r)
	}
	if r := b.apply(model.Set, task, b.on(both), model.Applied); r.Now.CPUs.Empty() || b.allowed(pid) != one {
		t.Errorf("both, one of them offline: %+v, the process may use %s", r, b.allowed(pid))
	}
	b.until("the task goes on", b.used(1e6, task))

	b.plug(two, true)
	b.h.discovered = 0
	if b.observe(0); b.snap.Topology == nil || !cpu.Within(b.snap.Topology.Online()) {
		t.Errorf("topology after CPU %s came back: %+v", two, b.snap.Topology)
	}
	b.apply(model.Set, task, b.on(two), model.Applied)
	b.until("the process runs on the CPU that came back", func() bool { return b.allowed(pid) == two })
	// Everything that it may use goes away: the kernel lets it run elsewhere.
	b.plug(two, false)
	b.until("the task goes on without its CPU", b.used(1e6, task))
	b.plug(two, true)
	b.apply(model.Release, task, releasePlace, model.Applied)
	if b.flat() {
		b.putBack("released", task, found)
	}
}

// What a class has in a domain whose CPUs were all offline between two looks, which the kernel forgets, is written again, and is no stranger's doing.
func TestDomainBackBetweenLooksOnTheKernel(t *testing.T) {
	b := newClassBed(t, "domain")
	t.Cleanup(func() { b.plug("2", true); b.plug("3", true) })
	limit := limitOf(model.Hold, model.Ways(2))
	limit.Domain = 1
	b.ask(model.Applied, b.into(b.first), limit)
	group := b.at(b.first)
	divided := b.says(group)
	for _, on := range []bool{false, true} {
		b.plug("2", on)
		b.plug("3", on)
	}
	if now := b.says(group); now == divided {
		t.Fatalf("the kernel forgot nothing: %q", now)
	}
	b.until("it is written again", func() bool {
		b.h.discovered = 0
		b.observe(0)
		b.h.Results(nil)
		if told := b.h.Knobs(nil); slices.ContainsFunc(told, func(r model.KnobReading) bool { return r.Target == limit.Target }) {
			t.Fatalf("told as another program's: %+v", told)
		}
		return b.says(group) == divided
	})
}
