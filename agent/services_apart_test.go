package agent_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
)

// TestServicesApart: a service has the ways that batch work has not, in a class of its own. When the agent is killed its guardian gives all
// of it back, and where both are killed whoever comes then does. What another program has put into a group of its own stays there.
func TestServicesApart(t *testing.T) {
	rigtest.Only(t, "resctrl is mounted")
	rigtest.NeedRDT(t)
	s := &cpiScene{bed: newBed(t, "apart", settings{})}
	s.victim, s.antagonist = s.group("web-0", unlimited), s.group("be-0", unlimited)
	s.mountResctrl()
	s.configureCPI("cache: {mode: enforce, share: exclusive, patience: 1s}") // it is divided after a second, and nobody looks whether that was good
	service := s.start("web", s.victim, 0).PID()
	batch := s.start("steady", s.antagonist, 1).PID()
	his, hers := resctrlRoot+"/another", testchild.Start(t, "sleep").Await("ready").PID()
	if err := errors.Join(os.Mkdir(his, 0o755), os.WriteFile(his+"/schemata", []byte("L3:0=f0\n"), 0), os.WriteFile(his+"/tasks", []byte(strconv.Itoa(hers)), 0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(his); err != nil {
			t.Error(err)
		}
	})
	found := l3(t, his)

	two := []part{{"be", "003", batch}, {"lc", "7fc", service}}
	p := s.watched()
	s.apart(two...)
	eventually(t, "status says so", func() bool { return strings.Contains(s.must(0, "status", "--json").out, "services have the other 9") })
	p.kill()
	eventually(t, "the guardian has given all back", func() bool { return len(classes(t)) == 0 })
	s.alone()

	p = s.watched()
	s.apart(two...)
	p.killBoth()
	if n := len(classes(t)); n != 2 {
		t.Errorf("%d classes outlived agent and guardian: nothing is left to put back", n)
	}
	s.must(0, "restore")
	root := tasksOf(t, resctrlRoot)
	if left := classes(t); len(left) > 0 || !slices.Contains(root, strconv.Itoa(service)) || !slices.Contains(root, strconv.Itoa(batch)) {
		t.Errorf("after the restore: %v; the service is in the root group: %t", left, slices.Contains(root, strconv.Itoa(service)))
	}

	p = s.watched()
	s.apart(two...)
	p.stop(unix.SIGTERM)
	if left := classes(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if now := l3(t, his); now != found || !slices.Contains(tasksOf(t, his), strconv.Itoa(hers)) {
		t.Errorf("another program's group has %s, not %s, and the tasks %v", now, found, tasksOf(t, his))
	}
	s.decidesAgain()
}

// TestServicesInParts: a service that the configuration names has ways for itself, the other service the rest of what batch work has not. They
// outlive kill -9 of agent and guardian, and the next start has them again. When the service ends, the other one has its ways.
func TestServicesInParts(t *testing.T) {
	rigtest.Only(t, "resctrl is mounted")
	rigtest.NeedRDT(t)
	s := &cpiScene{bed: newBed(t, "parts", settings{})}
	s.victim, s.far, s.antagonist = s.group("web-0", unlimited), s.group("kafka-0", unlimited), s.group("be-0", unlimited)
	s.mountResctrl()
	s.configureCPI(`cache: {mode: enforce, share: exclusive, parts: "k?fka=2", patience: 1s}`)
	service, named, batch := s.start("web", s.victim, 0).PID(), s.start("web", s.far, 2), s.start("steady", s.antagonist, 1).PID()
	three := []part{{"be", "003", batch}, {"lc1", "600", named.PID()}, {"lc", "1fc", service}}

	p := s.watched()
	s.apart(three...)
	p.killBoth()
	if n := len(classes(t)); n != 3 {
		t.Errorf("%d classes outlived agent and guardian", n)
	}
	p = s.watched()
	s.apart(three...)
	named.End()
	eventually(t, "the group of a service that ended is removed", func() bool { return s.cg.Rmdir(s.far) == nil })
	s.apart(part{"be", "003", batch}, part{"lc", "7fc", service})
	eventually(t, "the part without a service is gone", func() bool { return len(classes(t)) == 2 })
	p.stop(unix.SIGTERM)
	if left := classes(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	s.decidesAgain()
}

// decidesAgain looks whether the record, which may be of few windows, replays exactly.
func (s *cpiScene) decidesAgain() {
	s.t.Helper()
	if r := s.run("replay", agent.RecordPath(s.dir+"/state")); r.code != 0 { // 1: it decides otherwise
		s.t.Errorf("replay: exit %d\n%s%s", r.code, r.out, r.err)
	}
}

// part is a class of service with what it is to have of each cache, and a process that is in it.
type part struct {
	class, mask string
	pid         int
}

// apart waits until all parts are there.
func (s *cpiScene) apart(parts ...part) {
	s.t.Helper()
	in := func(p part) bool {
		return slices.ContainsFunc(classes(s.t), func(g string) bool {
			tasks, err := os.ReadFile(g + "/tasks")
			if errors.Is(err, os.ErrNotExist) {
				return false // it was removed since
			}
			return err == nil && strings.HasPrefix(g, resctrlRoot+"/commensal-"+p.class+"-") && strings.Count(schemata(s.t, g, "L3"), "="+p.mask) == 2 &&
				slices.Contains(strings.Fields(string(tasks)), strconv.Itoa(p.pid))
		})
	}
	eventually(s.t, fmt.Sprint("there are the parts ", parts), func() bool { return !slices.ContainsFunc(parts, func(p part) bool { return !in(p) }) })
}
