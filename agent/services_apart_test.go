package agent_test

import (
	"errors"
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
	mountResctrl(t)
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

	p := s.watched()
	s.apart(service, batch)
	eventually(t, "status says so", func() bool { return strings.Contains(s.must(0, "status", "--json").out, "services have the other 9") })
	p.kill()
	eventually(t, "the guardian has given all back", func() bool { return len(classes(t)) == 0 })
	s.alone()

	p = s.watched()
	s.apart(service, batch)
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
	s.apart(service, batch)
	p.stop(unix.SIGTERM)
	if left := classes(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if now := l3(t, his); now != found || !slices.Contains(tasksOf(t, his), strconv.Itoa(hers)) {
		t.Errorf("another program's group has %s, not %s, and the tasks %v", now, found, tasksOf(t, his))
	}
	if r := s.run("replay", agent.RecordPath(s.dir+"/state")); r.code != 0 { // 1: it decides otherwise
		t.Errorf("replay: exit %d\n%s%s", r.code, r.out, r.err)
	}
}

// apart waits until batch work has two ways and the service the others, of each cache.
func (s *cpiScene) apart(service, batch int) {
	s.t.Helper()
	in := func(class, mask string, pid int) bool {
		return slices.ContainsFunc(classes(s.t), func(g string) bool {
			tasks, err := os.ReadFile(g + "/tasks")
			if errors.Is(err, os.ErrNotExist) {
				return false // it was removed since
			}
			return err == nil && strings.HasPrefix(g, resctrlRoot+"/commensal-"+class+"-") && strings.Count(schemata(s.t, g, "L3"), "="+mask) == 2 &&
				slices.Contains(strings.Fields(string(tasks)), strconv.Itoa(pid))
		})
	}
	eventually(s.t, "batch work has two ways and the service the others", func() bool { return in("be", "003", batch) && in("lc", "7fc", service) })
}
