package agent_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// The tests of levels of memory bandwidth are the last of those that take RMIDs in their order: how many classes the last of them makes is not certain.

// mbLevels follows what the kernel says of the levels of a class, and how the service fares meanwhile.
type mbLevels struct {
	*cpiScene
	seen  []int     // of the domain where all of it runs, one after the other
	since time.Time // there is a limit, or none
	// The service's CPI while there was a limit, and while there was none.
	limited, free []float64
}

// settledFor is how long there is a limit, or none, before what is said of the service's last window is of it.
const settledFor = 2 * time.Second

// look reads the schemata of a class, and returns the level of the domain where all of it runs; that of the other domain never changes.
func (l *mbLevels) look(class string) (level int) {
	l.t.Helper()
	near, far := mb(l.t, class)
	if far != 100 {
		l.t.Fatalf("level %d where nobody asks for much", far)
	}
	was := 0
	if n := len(l.seen); n > 0 {
		was = l.seen[n-1]
	}
	if was != near {
		l.seen = append(l.seen, near)
	}
	if was == 0 || (was < 100) != (near < 100) {
		l.since = time.Now()
	}
	task := l.task(l.victim)
	switch {
	case time.Since(l.since) < settledFor || task.Signal.Outcome != model.OK:
	case near < 100:
		l.limited = append(l.limited, task.Signal.V)
	default:
		l.free = append(l.free, task.Signal.V)
	}
	return near
}

// mb is what a class has of the two domains; one that has just gone limits nobody.
func mb(t *testing.T, class string) (near, far int) {
	t.Helper()
	levels := schemata(t, class, "MB")
	if levels == "" {
		return 100, 100
	}
	first, second, _ := strings.Cut(levels, ";")
	var err [2]error
	near, err[0] = strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(first, "0=")))
	far, err[1] = strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(second, "1=")))
	if err := errors.Join(err[:]...); err != nil {
		t.Fatalf("MB of %s: %v", class, err)
	}
	return near, far
}

func meanOf(list []float64) (mean float64) {
	for _, v := range list {
		mean += v / float64(len(list))
	}
	return mean
}

// TestContentionBandwidth: two batch tasks take the bandwidth of the memory that a service waits for. They have a limit together, by levels that the kernel
// writes to the machine, and the service's CPI comes down. The limit is let go to be compared, and kept; it goes up by steps to none when the batch work has
// ended. Another time it outlives kill -9 of agent and guardian, and `commensal restore` takes it back.
func TestContentionBandwidth(t *testing.T) {
	s := beside(t, "bandwidth", 23, "bandwidth: {mode: enforce, peak: 11, utilisation_high: 0.3, threshold_least: 5, windows: 6, patience: 8s, rest: 10m}")
	groups := []string{s.antagonist, s.group("be-1", unlimited)}
	found := s.knobs()
	stream := func() (batch []*testchild.Child) {
		for _, g := range groups {
			batch = append(batch, s.start("stream", g, 1))
		}
		return batch
	}
	p := s.watched()
	oneClass(t)
	class := classes(t)[0]
	eventually(t, "the service has a spec of its CPI", func() bool { return s.task(s.victim).Threshold > 0 })
	if near, far := mb(t, class); near != 100 || far != 100 {
		t.Fatalf("levels %d and %d while no batch task works", near, far)
	}
	batch, l := stream(), &mbLevels{cpiScene: s}
	eventually(t, "they have a limit", func() bool { return l.look(class) < 100 })
	// On a slow machine what memory moves is read too late for some windows, which say nothing then: the trial takes as much longer.
	within(t, 2*patience(), "the limit was compared", func() bool { l.look(class); return p.said("bandwidth", "kept")+p.said("bandwidth", "taken-back") != "" })
	if p.compared(t, "bandwidth", "kept"); p.said("bandwidth", "trial") == "" {
		t.Error("nobody let them go to compare")
	}
	t.Logf("levels %v; CPI %.2f with a limit, %.2f without", l.seen, l.limited, l.free)
	if with, without := meanOf(l.limited), meanOf(l.free); !(with < without) {
		t.Errorf("CPI %.3f with a limit, %.3f without", with, without)
	}
	eventually(t, "they have the limit that was kept", func() bool { return l.look(class) < 100 })
	for _, c := range batch {
		c.End()
	}
	l.seen = nil
	eventually(t, "they have no limit any more", func() bool { return l.look(class) == 100 })
	if t.Log("let go by", l.seen); len(l.seen) < 4 {
		t.Errorf("levels %v once nobody works, and not by steps", l.seen)
	}
	stream()
	eventually(t, "they have a limit again", func() bool { return l.look(class) < 100 })
	s.leftAndRestored(p, found)
}

// leftAndRestored kills agent and guardian, whom a limit outlives, and has the program put back what was found.
func (s *cpiScene) leftAndRestored(p *proc, found map[string]cgroup.CPUMax) {
	t := s.t
	t.Helper()
	p.killBoth()
	limited := false
	for _, c := range classes(t) {
		near, _ := mb(t, c)
		limited = limited || near < 100
	}
	if !limited {
		t.Error("no limit outlived agent and guardian: nothing is left to put back")
	}
	if r := s.must(0, "restore"); !strings.Contains(r.out, "class as found") {
		t.Errorf("restore says: %s", r.out)
	}
	if left := classes(t); len(left) != 0 {
		t.Errorf("after restore: %v", left)
	}
	s.same("after restore", found)
	if r := s.must(0, "restore"); r.out != "nothing to restore\n" {
		t.Errorf("a second restore says: %s", r.out)
	}
	s.replays()
}

// TestContentionBalm: a service that waits for memory has a target, and is red while a batch task takes the memory's bandwidth. The task has the lowest
// level at once, in a class of its own and on both sockets, and climbs by steps; a step that brings trouble is taken back, and a part of its pages moves to
// the other socket's memory. While it rests it gets everything back. Another time what it has outlives kill -9 of agent and guardian, and
// `commensal restore` takes it back.
func TestContentionBalm(t *testing.T) {
	const mib = 64
	rigtest.NeedContention(t)
	rigtest.Set(t, "/proc/sys/kernel/numa_balancing", "0")
	s := beside(t, "balm", 26, "balm: {mode: enforce}")
	s.near()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A request takes 5 ms a cycle an instruction: some 10 ms while it is well.
	s.configureCPI(fmt.Sprintf(`balm: {mode: enforce, until: grey, settle: 2s, retry: 2s}
slo: [{job: web, kind: program, command: [%q, clients, %q], target: 12ms, quantile: 0.75, green: 0.1, yellow: 0.03, window: 1s}]`, self, s.victim))
	found, p := s.knobs(), s.watched()
	eventually(t, "the service is well", func() bool { return strings.HasPrefix(s.note(model.PolicyBalm), model.LatencyGreen) })
	s.countedByCPU("1")
	hog, l := s.start(fmt.Sprintf("stream %d", mib), s.antagonist, 1), &ownClass{cpiScene: s}
	var far, told uint64
	within(t, 2*patience(), "a step brought trouble and was taken back, and pages have moved", func() bool {
		l.look()
		near, other := s.nodes(s.antagonist)
		if far = other; near/mega != told {
			l.moved(near, other)
		}
		told = near / mega
		return far >= mib*mega/20 && wentBack(l.seen)
	})
	t.Logf("levels %v; %d MiB of %d are on the other memory", l.seen, far/mega, mib)
	if err := unix.Kill(hog.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l.seen = nil
	within(t, 2*patience(), "it has everything back", func() bool {
		l.look()
		return !l.has && p.line("msg=release ", "policy=balm", "task="+s.antagonist+" ", "services are well") != ""
	})
	if t.Log("given back by", l.seen); len(l.seen) < 4 {
		t.Errorf("the kernel said %v", l.seen)
	}
	if err := unix.Kill(hog.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.seen = nil
	if eventually(t, "it has less again", func() bool { return l.look() < 100 }); l.seen[len(l.seen)-1] != 10 {
		t.Errorf("levels %v, and not the lowest at once", l.seen)
	}
	s.leftAndRestored(p, found)
}

// note is where a policy stands, as status says it.
func (s *cpiScene) note(policy string) string {
	s.t.Helper()
	for _, p := range s.status().Policies {
		if p.Name == policy {
			return p.Note
		}
	}
	return ""
}

// wentBack says whether a level came down again that had gone up before.
func wentBack(levels []int) bool {
	for i := 1; i < len(levels); i++ {
		if levels[i] < levels[i-1] && levels[i-1] < 100 {
			return true
		}
	}
	return false
}

// ownClass follows the class that a batch task has for itself, while there is one.
type ownClass struct {
	*cpiScene
	seen []int // levels, one after the other
	made int   // classes
	has  bool
}

// look returns the level, which is the same in both domains; 100: there is no class.
func (o *ownClass) look() (level int) {
	o.t.Helper()
	list := classes(o.t)
	if has := len(list) > 0; has != o.has {
		o.has = has
		if o.countedByCPU(map[bool]string{true: "", false: "1"}[has]); has { // in the root group the task is counted by its CPU
			o.made++
			rmidsUsed++
		}
	}
	level = 100
	for _, c := range list {
		near, far := mb(o.t, c)
		if level = near; near != far && len(o.seen) > 0 { // between two writes
			return o.seen[len(o.seen)-1]
		}
	}
	if n := len(o.seen); n == 0 || o.seen[n-1] != level {
		o.seen = append(o.seen, level)
	}
	return level
}

// moved tells the host where the task's pages are, by the RMID of its class.
func (o *ownClass) moved(near, far uint64) { rigtest.Pages(27+o.made, near, far) }

// TestContentionRemedyLevel: the batch task that takes the memory's bandwidth has the lowest level of it, in a class of its own: named, held, and kept as the
// service's CPI came down. When it rests it gets everything back by steps. Another time the level outlives kill -9 of agent and guardian, and the next
// start takes it back. It is the last test of the file: how many classes, and RMIDs, it takes is not certain.
func TestContentionRemedyLevel(t *testing.T) {
	s := beside(t, "level", 31, "remedy: {mode: enforce, ways: 64, settle: 1s, quiet: 5s}") // it has no more ways: levels come first
	p := s.well()
	hog, counted := s.hog(), "1"
	var levels []string // of the domain where they run, as the kernel said one after the other
	look := func() {
		now := "1" // in the root group it is counted by its CPU
		for _, c := range classes(t) {
			now = ""
			level, _, _ := strings.Cut(strings.TrimPrefix(schemata(t, c, "MB"), "0="), ";")
			if level = strings.TrimSpace(level); level != "" && (len(levels) == 0 || levels[len(levels)-1] != level) {
				levels = append(levels, level)
			}
		}
		if now != counted {
			counted = now
			s.countedByCPU(now)
		}
	}
	kept := []string{"msg=kept ", "policy=remedy", "task=" + s.antagonist, "level 10 of memory bandwidth, had 100"}
	eventually(t, "the lowest level has helped", func() bool { look(); return p.line(kept...) != "" })
	t.Log(p.line(kept...))
	if !slices.Contains(levels, "10") {
		t.Errorf("the kernel said %v, and never the lowest level", levels)
	}
	if err := unix.Kill(hog.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	levels = nil
	within(t, 2*patience(), "everything is given back", func() bool { look(); return len(classes(t)) == 0 })
	t.Log("given back by", levels)
	if len(levels) < 4 || p.line("msg=release ", "policy=remedy", "task="+s.antagonist+" ", "services are well") == "" {
		t.Errorf("the kernel said %v; the agent:\n%s", levels, p.text())
	}
	if err := unix.Kill(hog.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	levels = nil
	eventually(t, "it has the lowest level again", func() bool { look(); return slices.Contains(levels, "10") })
	s.leftAndTakenBack(p)
}
