package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/model"
)

// beside is a service and batch work of the tenants from an RMID on, which are on CPUs of one socket: the schemata that the agent writes
// go through the kernel to the emulated machine, and what perf reads of the service follows from them.
func beside(t *testing.T, name string, first int, more string) *cpiScene {
	t.Helper()
	rigtest.NeedContention(t)
	s := &cpiScene{bed: newBed(t, name, settings{})}
	s.victim, s.antagonist = s.group("web-0", unlimited), s.group("be-0", unlimited)
	s.monitor(first, s.victim, s.antagonist)
	s.configureCPI(more)
	s.start("web", s.victim, 0)
	s.assign(s.victim)
	return s
}

// hog starts the batch work. The agent takes nobody out of a group that another program put it into. So it stays in the root group, whose
// tasks are counted by the CPU on which they run: from now on, and not while the service is alone, whatever runs there is taken for it.
func (s *cpiScene) hog() *testchild.Child {
	s.t.Helper()
	s.countedByCPU("1")
	return s.start("hog", s.antagonist, 1)
}

// countedByCPU says on which CPUs tasks of the root group are counted as batch work.
func (s *cpiScene) countedByCPU(list string) {
	s.t.Helper()
	if err := os.WriteFile(monitoringGroup(s.antagonist)+"/cpus_list", []byte(list+"\n"), 0); err != nil {
		s.t.Fatal(err)
	}
}

// oneClass waits until best-effort work is in a class of its own.
func oneClass(t *testing.T) {
	t.Helper()
	eventually(t, "best-effort work is in a class of its own", func() bool { return len(classes(t)) == 1 })
	rmidsUsed++ // the class's
}

// divided plays policy cache.
func divided(t *testing.T, name string, first int) (*cpiScene, *proc) {
	t.Helper()
	s := beside(t, name, first, "cache: {mode: enforce, windows: 8, settle: 4s, patience: 90s, rest: 10m}")
	s.hog()
	p := s.watched()
	oneClass(t)
	return s, p
}

// classes are the control groups besides the root group.
func classes(t *testing.T) (list []string) {
	t.Helper()
	found, err := filepath.Glob(resctrlRoot + "/commensal-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// said is the line of the log in which a policy says a word; "" while it has not.
func (p *proc) said(policy, word string) string {
	for line := range strings.Lines(p.text()) {
		if strings.Contains(line, "msg="+word+" ") && strings.Contains(line, "policy="+policy) {
			return line
		}
	}
	return ""
}

// compared waits until a policy has compared a step with what was before, and fails where that did not come out as word.
func (p *proc) compared(t *testing.T, policy, word string) {
	t.Helper()
	var kept, back string
	eventually(t, "the policy has compared", func() bool {
		kept, back = p.said(policy, "kept"), p.said(policy, "taken-back")
		return kept+back != ""
	})
	said := p.said(policy, word)
	if said == "" {
		t.Fatalf("want %s: %s%s", word, kept, back)
	}
	t.Log(said)
}

// TestContentionCache: batch work that scans is kept to two ways, the service beside it gets its lines back, and the
// division is kept. It outlives kill -9 of agent and guardian, and the next start takes it back.
func TestContentionCache(t *testing.T) {
	s, p := divided(t, "cache", 5)
	p.compared(t, "cache", "kept")
	twoWays(t)
	s.leftAndTakenBack(p)
}

// twoWays checks the class of best-effort work.
func twoWays(t *testing.T) {
	t.Helper()
	group := classes(t)[0]
	for _, domain := range strings.Split(l3(t, group), ";") {
		if _, mask, _ := strings.Cut(domain, "="); strings.TrimLeft(mask, "0") != "3" {
			t.Errorf("domain %s, want two ways from the low side", domain)
		}
	}
	if tasks, err := os.ReadFile(group + "/tasks"); err != nil || len(strings.Fields(string(tasks))) == 0 {
		t.Errorf("tasks of %s: %q, %v", group, tasks, err)
	}
}

// leftAndTakenBack kills agent and guardian, whom the class outlives, and starts the agent again, which takes it back.
func (s *cpiScene) leftAndTakenBack(p *proc) {
	t := s.t
	t.Helper()
	p.killBoth()
	if len(classes(t)) != 1 {
		t.Error("the class did not outlive agent and guardian: nothing is left to put back")
	}
	p = s.agent()
	if left := classes(t); len(left) != 0 {
		t.Errorf("after the restart: %v", left)
	}
	p.stop(unix.SIGTERM)
	s.replays()
}

// TestContentionCacheWorse: batch work that lived in the cache takes the memory from the service when it has two ways. So
// it gets everything back.
func TestContentionCacheWorse(t *testing.T) {
	s, p := divided(t, "worse", 8)
	p.compared(t, "cache", "taken-back")
	eventually(t, "nothing is left of the class", func() bool { return len(classes(t)) == 0 })
	p.stop(unix.SIGTERM)
	s.replays()
}

// TestContentionRemedy: the ladder of remedies for a service whose CPI is an anomaly by its own spec. The batch task that scans has
// a class of its own with two ways, the service is better off, and the step is kept.
func TestContentionRemedy(t *testing.T) {
	s := beside(t, "remedy", 11, "remedy: {mode: enforce, settle: 1s, quiet: 10m}")
	p := s.well()
	s.hog()
	oneClass(t)
	s.countedByCPU("") // the agent, too, runs there now and then
	p.compared(t, "remedy", "kept")
	twoWays(t)
	s.leftAndTakenBack(p)
}

// well starts the agent and waits until it knows how the service is when it is well.
func (s *cpiScene) well() *proc {
	s.t.Helper()
	p := s.watched()
	eventually(s.t, "the service has a spec of its CPI", func() bool { task := s.task(s.victim); return task.Threshold > 0 && task.Source == model.SourceCPI })
	if n := len(classes(s.t)); n != 0 {
		s.t.Fatalf("%d classes while the service is well", n)
	}
	return p
}

// line is the first line of the log with all these words; "": there is none yet.
func (p *proc) line(words ...string) string {
	for line := range strings.Lines(p.text()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return line
		}
	}
	return ""
}

// TestContentionRemedyPages: other programs have all classes of service, so that the pages of who takes the memory's bandwidth go to the other socket's
// memory, by halves: the kernel says where they are, and the service's CPI follows. They stay there when agent and guardian are killed, and nothing is held.
func TestContentionRemedyPages(t *testing.T) {
	const mib = 64
	rigtest.NeedContention(t)
	rigtest.Set(t, "/proc/sys/kernel/numa_balancing", "0")
	s := beside(t, "pages", 14, "remedy: {mode: enforce, settle: 1s, quiet: 10m}")
	s.near()
	for i := range 7 {
		if err := os.Mkdir(fmt.Sprintf("%s/another-%d", resctrlRoot, i), 0o755); err != nil {
			t.Fatal(err)
		}
		rmidsUsed++
	}
	p, found := s.well(), s.knobs()
	s.start(fmt.Sprintf("hog %d", mib), s.antagonist, 1)
	s.assign(s.antagonist)
	var far, told uint64
	eventually(t, "pages have moved, and that helped", func() bool {
		near, other := s.nodes(s.antagonist)
		if near/mega != told {
			rigtest.Pages(15, near, other)
		}
		far, told = max(far, other), near/mega
		return p.line("msg=kept ", "policy=remedy", "task="+s.antagonist, "of its pages on the service's memory") != ""
	})
	t.Log(p.line("msg=kept ", "policy=remedy"))
	if far < mib*mega*3/8 || p.line("no class of service is left") == "" {
		t.Errorf("%d MiB of %d are on the other memory", far/mega, mib)
	}
	p.killBoth()
	p = s.agent()
	if near, other := s.nodes(s.antagonist); other < near/2 || len(classes(t)) != 0 {
		t.Errorf("after the restart %d MiB are on the service's memory, %d elsewhere; classes %v", near/mega, other/mega, classes(t))
	}
	s.same("after the restart", found)
	p.stop(unix.SIGTERM)
	s.replays()
}

// near keeps the service on one socket and its memory: there is memory where it does not run, and none of its own is there. It began on any CPU, and
// pages stay where they were first touched.
func (s *cpiScene) near() {
	s.t.Helper()
	for file, list := range map[string]string{"cpuset.cpus": "0-1", "cpuset.mems": "0"} {
		if err := os.WriteFile("/sys/fs/cgroup"+s.victim+"/"+file, []byte(list), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
}

// nodes is how much anonymous memory a group has on each node, in bytes.
func (s *cpiScene) nodes(group string) (node0, node1 uint64) {
	s.t.Helper()
	text, err := os.ReadFile("/sys/fs/cgroup" + group + "/memory.numa_stat")
	if err == nil {
		_, after, _ := strings.Cut("\n"+string(text), "\nanon ")
		_, err = fmt.Sscanf(after, "N0=%d N1=%d", &node0, &node1)
	}
	if err != nil {
		s.t.Fatalf("memory.numa_stat of %s: %v", group, err)
	}
	return node0, node1
}

// l3 is a group's schemata of the last-level caches.
func l3(t *testing.T, group string) string {
	t.Helper()
	domains := schemata(t, group, "L3")
	if domains == "" {
		t.Fatalf("no L3 in %s", group)
	}
	return domains
}

// schemata is what a group has of a resource; "": the group is gone, or has nothing of it.
func schemata(t *testing.T, group, resource string) string {
	t.Helper()
	text, err := os.ReadFile(group + "/schemata")
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if what, domains, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && what == resource {
			return domains
		}
	}
	return ""
}
