package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
)

// TestPqos: Debian's pqos sets, shows and takes classes of service (pqos -I) beside an agent that holds batch work in one of its own. Who comes first has
// them: pqos fails where one is the agent's, and the agent is refused where pqos has made all. Neither changes what is the other's. Once pqos's groups are
// removed the agent goes on by itself.
func TestPqos(t *testing.T) {
	rigtest.Only(t, "resctrl is mounted")
	rigtest.NeedRDT(t)
	s := &cpiScene{bed: newBed(t, "pqos", settings{})}
	s.victim, s.antagonist = s.group("web-0", unlimited), s.group("be-0", unlimited)
	s.mountResctrl()
	s.configureCPI("cache: {mode: enforce, patience: 1s}") // it is divided after a second, and nobody looks whether that was good
	s.start("web", s.victim, 0)
	s.start("steady", s.antagonist, 1)
	p := s.watched()
	held := s.dividedInTwo()
	s.pqosFails(held)
	p.stop(unix.SIGTERM)
	if left := classes(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	his := testchild.Start(t, "sleep").Await("ready").PID()
	pqos(t, true, "Allocation configuration altered", "-e", "llc:1=0xf;mba:1=50", "-a", fmt.Sprintf("pid:1=%d", his))
	made, err := os.ReadFile(resctrlRoot + "/COS1/schemata")
	if err != nil || !slices.Contains(tasksOf(t, resctrlRoot+"/COS1"), strconv.Itoa(his)) {
		t.Fatalf("COS1 has the tasks %v, %v", tasksOf(t, resctrlRoot+"/COS1"), err)
	}
	p = s.watched()
	eventually(t, "the agent says that no class is left", func() bool {
		h := s.held(s.antagonist)
		return h != nil && strings.Contains(h.Why, "none left: 0 of 8 free")
	})
	now, err := os.ReadFile(resctrlRoot + "/COS1/schemata")
	if diff := cmp.Diff(string(made), string(now)); diff != "" || err != nil || len(classes(t)) > 0 {
		t.Errorf("classes %v; COS1, -as pqos wrote it +now: %s, %v", classes(t), diff, err)
	}
	s.pqosTakesBack(his)
	if held := s.dividedInTwo(); strings.Contains(held, strconv.Itoa(his)) {
		t.Errorf("a stranger is in it: %s", held)
	}
	p.stop(unix.SIGTERM)
}

// dividedInTwo waits until batch work is in a class of its own with two ways of each cache, and returns what the kernel says of that.
func (s *cpiScene) dividedInTwo() (all string) {
	s.t.Helper()
	eventually(s.t, "batch work is in a class with two ways", func() bool {
		list := classes(s.t)
		if len(list) != 1 {
			return false
		}
		tasks := tasksOf(s.t, list[0])
		all = fmt.Sprint(list, l3(s.t, list[0]), tasks)
		return len(tasks) > 0 && strings.Count(all, "=003") == 2
	})
	return all
}

// pqosFails: beside a class of the agent's pqos can neither show nor set, reset or watch anything. What the agent holds stays; the groups that pqos had
// made before it failed are empty, and are left. Doctor says so.
func (s *cpiScene) pqosFails(held string) {
	t := s.t
	t.Helper()
	for _, args := range [][]string{{"-s"}, {"-R"}, {"-m", "all:0", "-t", "1"}} {
		pqos(t, false, "Failed to create resctrl group", args...)
	}
	if now := s.dividedInTwo(); now != held {
		t.Errorf("it was %s, and is %s", held, now)
	}
	his, err := filepath.Glob(resctrlRoot + "/COS*")
	if err != nil || len(his) != 6 {
		t.Errorf("pqos left %v, %v", his, err)
	}
	for _, g := range his {
		if tasks := tasksOf(t, g); len(tasks) > 0 {
			t.Errorf("%s has the tasks %v", g, tasks)
		}
	}
	t.Setenv("PATH", os.Getenv("PATH")+":"+rigtest.PqosDir)
	said := ""
	eventually(t, "doctor gets the lock on resctrl", func() bool { // as pqos below
		said = s.must(0, "doctor", "--all").out
		return !strings.Contains(said, "resctrl is locked by another process")
	})
	for _, words := range []string{"the first \"COS1\", by its name of pqos (intel-cmt-cat); ours: 1, beside which pqos -I fails", "rmdir " + resctrlRoot + "/COS*", "pqos is installed: pqos -I fails while cache has"} {
		if !strings.Contains(said, words) {
			t.Errorf("doctor does not say %q:\n%s", words, said)
		}
	}
}

// pqosTakesBack: its reset gives tasks and limits back, and leaves its groups; its reset of monitoring removes everybody's monitoring groups.
func (s *cpiScene) pqosTakesBack(his int) {
	t := s.t
	t.Helper()
	pqos(t, true, "Allocation reset successful", "-R")
	if tasks := tasksOf(t, resctrlRoot+"/COS1"); len(tasks) > 0 || !slices.Contains(tasksOf(t, resctrlRoot), strconv.Itoa(his)) {
		t.Errorf("after the reset COS1 has the tasks %v", tasks)
	}
	stranger := resctrlRoot + "/mon_groups/stranger"
	if err := os.Mkdir(stranger, 0o755); err != nil {
		t.Fatal(err)
	}
	pqos(t, true, "CMT/MBM reset successful", "-r", "-t", "1")
	if _, err := os.Stat(stranger); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pqos -r left %s: %v", stranger, err)
	}
	left, err := filepath.Glob(resctrlRoot + "/COS*")
	if err != nil || len(left) != 7 {
		t.Errorf("pqos -R left %v, %v", left, err)
	}
	for _, g := range left {
		if err := os.Remove(g); err != nil {
			t.Error(err)
		}
	}
}

// pqos runs it, and fails unless it ends well, or not, with these words. It waits a tenth of a second for the lock on resctrl, and gives up then in the
// midst of what it does; on an emulated CPU the agent has it for longer now and then.
func pqos(t *testing.T, ok bool, words string, args ...string) {
	t.Helper()
	said, did := "", false
	eventually(t, "pqos gets the lock on resctrl", func() bool {
		said, did = rigtest.Pqos(t, args...)
		return !strings.Contains(said, "Failed to acquire lock")
	})
	if did != ok || !strings.Contains(said, words) {
		t.Errorf("pqos -I %s: %v, want %v and %q:\n%s", strings.Join(args, " "), did, ok, words, said)
	}
}

// tasksOf are the threads in a group of resctrl.
func tasksOf(t *testing.T, group string) []string {
	t.Helper()
	text, err := os.ReadFile(group + "/tasks")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}
