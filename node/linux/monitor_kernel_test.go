package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// under is the group that a process is counted in, as the kernel says it.
func (b *classBed) under(pid int) string {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cpu_resctrl_groups", pid))
	if err != nil {
		b.t.Fatal(err)
	}
	_, mon, _ := strings.Cut(string(text), "mon:")
	return strings.TrimSpace(mon)
}

// monitors are the monitoring groups that the kernel has, below all control groups.
func (b *classBed) monitors() (names []string) {
	b.t.Helper()
	for _, at := range []string{"/mon_groups/*", "/*/mon_groups/*"} {
		found, err := filepath.Glob(resctrl.DefaultPoint + at)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, path := range found {
			names = append(names, strings.TrimPrefix(path, resctrl.DefaultPoint+"/"))
		}
	}
	return names
}

// has are a task's samples, once a reading has them.
func (b *classBed) has(path string) (list []model.DomainSample) {
	b.t.Helper()
	b.until("it is counted", func() bool {
		b.h.discovered = 0
		b.observe(model.WindowStart | model.WindowEnd)
		b.h.Results(nil)
		list = slices.DeleteFunc(slices.Clone(b.snap.Domains), func(d model.DomainSample) bool { return d.Num != b.tasks[path].Num })
		return len(list) > 0
	})
	return list
}

// again is has, once a process of the task is in a group again.
func (b *classBed) again(path string, pid int) []model.DomainSample {
	b.t.Helper()
	b.until("it is counted again", func() bool { b.has(path); return b.under(pid) != "" })
	return b.has(path)
}

// TestTasksAreCountedOnTheKernel: each task has a monitoring group, whose counts are read; it goes along into a class and home again with
// its number; and whoever comes after a crash removes them, and leaves what others made.
func TestTasksAreCountedOnTheKernel(t *testing.T) {
	b := newCountedBed(t, "counted", true)
	his := filepath.Join(resctrl.DefaultPoint, "mon_groups", "pqos-1-0")
	if err := os.Mkdir(his, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(his) }) // with the mount, at the latest
	first := b.has(b.first)
	for _, d := range first {
		if d.C[model.CountOccupancy].Outcome != model.OK || d.C[model.CountMovedTotal].Outcome != model.OK || d.SinceNsec == 0 {
			t.Errorf("%+v", d)
		}
	}
	if b.under(b.pids[b.first]) == "" || b.under(b.pids[b.victim]) == "" || b.under(b.pids[b.first]) == b.under(b.pids[b.second]) || len(b.monitors()) != 4 {
		t.Errorf("counted under %q and %q; groups %v", b.under(b.pids[b.first]), b.under(b.pids[b.second]), b.monitors())
	}
	newcomer := b.spin(b.first).PID()
	b.until("a newcomer is counted", func() bool { b.has(b.first); return b.under(newcomer) == b.under(b.pids[b.first]) })
	group := b.under(newcomer)
	b.ask(model.Applied, b.into(b.first), limitOf(model.Hold, model.Ways(2)))
	in := b.again(b.first, newcomer)
	along := func(d model.DomainSample) bool { return d.SinceNsec == first[0].SinceNsec }
	if rigtest.Kernel() == "6.1" { // which renames no group: it is made anew, and so are the counts
		along = func(d model.DomainSample) bool { return d.SinceNsec > first[0].SinceNsec }
	} else if in[0].C[model.CountMovedTotal].Value < first[0].C[model.CountMovedTotal].Value {
		t.Errorf("in a class: %+v, was %+v", in, first)
	}
	if b.under(newcomer) != group || b.at(b.first) == "" || !along(in[0]) {
		t.Errorf("in a class: under %q, was %q; %+v, was %+v", b.under(newcomer), group, in, first)
	}
	b.ask(model.Applied, b.outOf(b.first), limitOf(model.Release, model.Ask(model.CacheWays)))
	if home := b.again(b.first, newcomer); b.under(newcomer) != group || b.at(b.first) != "" || !along(home[0]) || len(b.groupsOf()) > 0 {
		t.Errorf("home: under %q in %q, was %q; classes %v; %+v", b.under(newcomer), b.at(b.first), group, b.groupsOf(), home)
	}
	b.ask(model.Applied, b.into(b.first))
	if rep := b.restart(); !rep.Complete() || rep.Count(node.Restored) != 2 {
		t.Errorf("%+v", rep)
	}
	if left := b.monitors(); !slices.Equal(left, []string{"mon_groups/pqos-1-0"}) || b.under(newcomer) != "" || b.at(b.first) != "" {
		t.Errorf("after a crash: %v; under %q in %q", left, b.under(newcomer), b.at(b.first))
	}
	if lacks := b.h.Lacks(nil); slices.ContainsFunc(lacks, func(l Lack) bool { return l.What == LackMonitor }) {
		t.Errorf("%+v", lacks)
	}
}
