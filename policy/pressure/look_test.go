package pressure_test

import (
	"math"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// rush is a service of 4000 of 10,000 MiB with batch work of which the smallest may grow.
func rush(t *testing.T, looks bool) *world {
	w := newWorld(model.ModeEnforce)
	if w.looks = looks; !looks {
		w.params().LookNsec = 0
	}
	w.Shadow(t, 50)
	w.start(2, model.BE, model.BestEffort, holds{bytes: 900 * mib})
	w.start(3, model.BE, model.BestEffort, holds{bytes: 800 * mib})
	w.start(4, model.BE, model.Batch, holds{bytes: 100 * mib, most: 9000 * mib})
	w.start(5, model.BE, model.Batch, holds{bytes: 100 * mib, most: 9000 * mib})
	w.run(20)
	return w
}

// Memory that falls from plenty to nothing between two windows is seen in time by looks, and by windows alone it is not. Who grows
// is frozen, although others are less important and larger, and only who grows.
func TestLooks(t *testing.T) {
	for _, looks := range []bool{false, true} {
		w := rush(t, looks)
		if w.looked > 0 || w.Engine.LookDue() != math.MaxInt64 {
			t.Errorf("with enough available it is looked at %d times", w.looked)
		}
		w.mem[4].grows, w.mem[5].grows = 1500*mib, 1500*mib
		w.run(10)
		if looks != (len(w.killed) == 0) {
			t.Errorf("looks %v: killed %v", looks, w.killed)
		}
		if looks && (w.looked == 0 || !w.frozen(4) || !w.frozen(5) || w.frozen(2) || w.frozen(3)) {
			t.Errorf("%d looks; who grows is frozen: %v and %v, others: %v and %v", w.looked, w.frozen(4), w.frozen(5), w.frozen(2), w.frozen(3))
		}
	}
}

// Once who grew has gone and there is enough again, nothing is done more often than windows close.
func TestLooksEnd(t *testing.T) {
	w := rush(t, true)
	w.mem[4].grows = 1000 * mib
	w.run(10)
	w.Remove(4)
	w.run(90)
	if before := w.looked; before == 0 {
		t.Error("no look at all")
	} else if w.run(100); w.looked != before {
		t.Errorf("%d looks with enough available", w.looked-before)
	}
}

// A look at any time is taken in: who is woken by programs that wait need not have known that it would come.
func TestWoken(t *testing.T) {
	w := rush(t, true)
	w.NowNsec += enginetest.Sec / 10
	w.mem[4].bytes += max(0, w.free()-300*mib) // less than the reserve, at once
	w.Look = w.seen()
	w.Beat(0)
	if !w.frozen(4) {
		t.Error("it waits for the window")
	}
	w.run(1)
	if w.frozen(1) || len(w.killed) > 0 {
		t.Errorf("the service is frozen: %v, killed %v", w.frozen(1), w.killed)
	}
}

// While looks cannot read memory what is held stays, it is said once, and it is tried no more often than else.
func TestBlindLooks(t *testing.T) {
	w := rush(t, true)
	w.mem[4].grows = 500 * mib
	w.run(10)
	held, before := w.Writes, w.looked
	w.blind = true
	w.run(20)
	if w.Writes != held || !w.frozen(4) || w.looked-before > 60 {
		t.Errorf("%d writes, %d looks meanwhile, frozen: %v", w.Writes-held, w.looked-before, w.frozen(4))
	}
	if n := w.Count(model.DecideLeftAlone); n != 1 {
		t.Errorf("told %d times", n)
	}
	w.blind = false
	w.Remove(4)
	w.run(60)
	if w.frozen(2) || w.frozen(3) || w.looked-before > 4*90 {
		t.Errorf("after it can be read again %d looks, frozen %v and %v", w.looked-before, w.frozen(2), w.frozen(3))
	}
}
