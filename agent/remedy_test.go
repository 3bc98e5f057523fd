package agent_test

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// newLadder is a service, a hog of eight times its weight and a bystander, and an agent whose ladder enforces with what extra says.
func newLadder(t *testing.T, name, extra string) *scene {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs: who is not on the service's is on the second")
	}
	b := newBed(t, name, settings{judge: true, mildly: true})
	f, err := os.OpenFile(b.config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("remedy: {mode: enforce, " + extra + "settle: 500ms, quiet: 10m, rest: 10m}\n")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	s := &scene{bed: b, victim: b.group("victim", unlimited), antagonist: b.group("be-antagonist", unlimited), bystander: b.group("be-bystander", unlimited)}
	for path, shares := range map[string]uint64{b.root: 262_144, s.antagonist: 8192} {
		if err := b.cg.WriteShares(path, shares); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestLadderDemotes: the ladder of remedies on a machine that has neither resctrl nor counters. A service without a target waits for the CPU that
// a hog has. The hog gives way, which is verified on the service and kept; the hard cap, which enforces beside it, caps and demotes nobody. The weight outlives
// kill -9 of agent and guardian, and the next start gives back what was found.
func TestLadderDemotes(t *testing.T) {
	s := newLadder(t, "ladder", "")
	b := s.bed
	b.needsIdle(s.antagonist)
	found, err := b.cg.ReadShares(s.antagonist)
	if err != nil {
		t.Fatal(err)
	}
	limits := b.knobs()
	s.start("service", s.victim, 0)
	s.start("steady", s.bystander, 1)
	p := s.learned()
	s.start("hog", s.antagonist, 0)
	defer s.quiet()
	kept := []string{"msg=kept ", "policy=remedy", "task=" + s.antagonist}
	eventually(t, "the hog gives way, and that has helped", func() bool {
		if b.idle(s.victim) || b.idle(s.bystander) {
			t.Fatal("not the hog alone is demoted")
		}
		b.same("while the ladder is at work", limits)
		return p.line(kept...) != ""
	})
	t.Log(p.line("msg=demote ", "policy=remedy", "task="+s.antagonist))
	t.Log(p.line(kept...))
	if !b.idle(s.antagonist) || p.line("msg=demote ", "policy=hard_cap") != "" || p.line("msg=cap ") != "" {
		t.Errorf("idle: %t", b.idle(s.antagonist))
	}
	p.killBoth()
	if !b.idle(s.antagonist) {
		t.Error("the weight did not outlive agent and guardian: nothing is left to put back")
	}
	s.quiet()
	p = s.agent()
	if now, err := b.cg.ReadShares(s.antagonist); err != nil || now != found || b.idle(s.antagonist) {
		t.Errorf("after the restart a weight of %d, idle %t, %v; found was %d", now, b.idle(s.antagonist), err, found)
	}
	p.stop(unix.SIGTERM)
	s.replays()
}

// TestLadderMoves: the same where weights are not to be touched, and the service has a CPU of its own that the hog may run on, too: the hog goes to the other one. The
// list of CPUs outlives kill -9 of agent and guardian, and the next start gives back what was found.
func TestLadderMoves(t *testing.T) {
	s := newLadder(t, "moves", "demote: false, ")
	b := s.bed
	for path, list := range map[string]string{s.victim: "0", s.antagonist: "0-1", s.bystander: "0-1"} {
		if err := b.cg.WriteCPUs(path, list); err != nil {
			t.Fatal(err)
		}
	}
	list := func(path string) string {
		t.Helper()
		text, err := b.cg.ReadCPUs(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	s.start("service", s.victim, 0)
	s.start("steady", s.bystander, 1)
	p := s.learned()
	s.start("hog", s.antagonist, 0)
	defer s.quiet()
	kept := []string{"msg=kept ", "policy=remedy", "task=" + s.antagonist}
	eventually(t, "the hog goes to the other CPU, and that has helped", func() bool {
		if list(s.victim) != "0" || list(s.bystander) != "0-1" {
			t.Fatal("not the hog alone is moved")
		}
		return p.line(kept...) != ""
	})
	t.Log(p.line("msg=pool ", "policy=remedy", "task="+s.antagonist))
	t.Log(p.line(kept...))
	if got := list(s.antagonist); got != "1" || p.line("msg=demote ") != "" {
		t.Errorf("the hog may run on CPUs %s", got)
	}
	p.killBoth()
	if got := list(s.antagonist); got != "1" {
		t.Errorf("CPUs %s: the list did not outlive agent and guardian: nothing is left to put back", got)
	}
	s.quiet()
	p = s.agent()
	if got := list(s.antagonist); got != "0-1" {
		t.Errorf("after the restart the hog may run on CPUs %s", got)
	}
	p.stop(unix.SIGTERM)
	s.replays()
}
