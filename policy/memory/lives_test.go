package memory_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// A service that is started again, with its path or with its job alone, suffers from who took the room meanwhile, or shortly before: it took all that it has from those who were there
// when it came back, and yet they are found. Who has no more than beside its former life is left alone.
func TestStartedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		before int // seconds for which the antagonist is there
	}{"its path": {"/t1", 0}, "its job": {"/other", 0}, "it suffered already": {"/t1", 6}} {
		w := newWorld(model.ModeEnforce, 4096, 512)
		w.params().ReclaimBytes = 0
		w.run(40)
		if c.before > 0 {
			w.mem[3].uses = 8000 * mib
			w.run(c.before)
		}
		w.Remove(1)
		w.mem[3].uses = 8000 * mib
		w.run(10)
		back := enginetest.NewTask(9, model.LC)
		back.Path, back.Job = c.path, "t1"
		w.service = 9
		w.add(back, 0)
		for range 16 {
			w.mem[9].uses += 512 * mib
			w.run(1)
		}
		w.run(30)
		if w.high(3) == 0 || w.high(2) > 0 {
			t.Errorf("%s: limits: /t3 %.0f, /t2 %.0f MiB", name, w.high(3), w.high(2))
		}
	}
}

// Beside a service that comes anew, and takes what others had, who gets back some of what he had is left alone; who takes more than that is not.
func TestOwnComesBack(t *testing.T) {
	for _, c := range []struct {
		again float64
		held  bool
	}{{3500, false}, {5500, true}} {
		w := newWorld(model.ModeEnforce, 4096, 512)
		w.params().ReclaimBytes = 0
		w.run(25)
		w.service = 4
		w.start(4, model.LC, 5000)
		w.mem[2].uses = 2000 * mib
		w.run(30)
		w.mem[2].uses, w.whole = c.again*mib, 0.94*(8192+5000+512+c.again)*mib
		w.run(20)
		if held := w.high(2) > 0; held != c.held {
			t.Errorf("with %.0f MiB again: held %t", c.again, held)
		}
	}
}

// A limit that takes little of much can be raised by steps: it is not given back before any was tried.
func TestMuchAndLittleLacks(t *testing.T) {
	w := newWorld(model.ModeEnforce, 512, 512)
	w.params().ReclaimBytes = 0
	w.run(40)
	w.mem[3].uses = 8400 * mib
	w.run(12)
	if w.high(3) == 0 {
		t.Fatal("it is not held")
	}
	w.run(60)
	if steps, given := w.Count(model.DecideStep), w.Count(model.DecideRelease); steps == 0 || given > 0 && steps < given {
		t.Errorf("%d steps, given back %d times", steps, given)
	}
}
