package cadence

import (
	"testing"
	"time"

	"github.com/commensal-io/commensal/model"
)

// TestScheduleSeed: CPI² §3.1, a 10 second period once a minute, with a tick a
// second in between.
func TestScheduleSeed(t *testing.T) {
	s := New(Pace{Duration: 10 * time.Second, Frequency: time.Minute})
	marks := map[int64]model.WindowMark{}
	ticks := 0
	for at := int64(0); at < int64(3*time.Minute); ticks++ {
		next, turn := s.Next(at)
		mark := turn.Mark
		if next <= at {
			t.Fatalf("after %d comes %d", at, next)
		}
		if mark != 0 {
			marks[next/int64(time.Second)] = mark
		}
		at = next
	}
	want := map[int64]model.WindowMark{
		10: model.WindowEnd, 60: model.WindowStart, 70: model.WindowEnd, 120: model.WindowStart, 130: model.WindowEnd, 180: model.WindowStart,
	}
	if len(marks) != len(want) || ticks != 180 {
		t.Fatalf("%d ticks, marks at %v, want %v", ticks, marks, want)
	}
	for at, m := range want {
		if marks[at] != m {
			t.Errorf("at %d s: mark %d, want %d", at, marks[at], m)
		}
	}
}

// TestScheduleBackToBack: windows without a gap close and open at one tick, also when a
// period is no multiple of a second, and missed ones are not made up.
func TestScheduleBackToBack(t *testing.T) {
	const both = model.WindowStart | model.WindowEnd
	s := New(Pace{Duration: 250 * time.Millisecond, Frequency: 250 * time.Millisecond})
	for k := int64(0); k < 8; k++ {
		at, turn := s.Next(k * 250e6)
		if at != (k+1)*250e6 || turn.Mark != both || turn.Pulse {
			t.Errorf("after window %d: at %d, %+v", k, at, turn)
		}
	}
	if at, turn := s.Next(1_234_567_890); at != 1_250e6 || turn.Mark != both {
		t.Errorf("after a late turn: at %d, %+v", at, turn)
	}
}

// TestAfter: pulses of 111 ms end a little after each second begins when a turn takes some milliseconds. What is due at the
// second is not lost by that.
func TestAfter(t *testing.T) {
	s := New(Pace{Duration: time.Second, Frequency: time.Second, Pulse: 111 * time.Millisecond})
	const took = 5e6
	marks, compares, turns := 0, 0, 0
	for at, turn := int64(0), First(); at < 60e9; turns++ {
		if turn.Mark&model.WindowEnd != 0 {
			marks++
		}
		if turn.Compare {
			compares++
		}
		next, then := s.After(at, at+took)
		if next <= at {
			t.Fatalf("after %d comes %d", at, next)
		}
		at, turn = next, then
	}
	if marks != 59 || compares != 60 || turns > 610 {
		t.Errorf("in a minute %d windows, %d comparisons, %d turns", marks, compares, turns)
	}
	for _, tt := range []struct {
		name      string
		last, now int64
		at        int64
		turn      Turn
	}{
		{"the second began meanwhile", 999e6, 1002e6, 1000e6, Turn{Mark: model.WindowStart | model.WindowEnd, Compare: true}},
		{"so did a pulse", 999e6, 1115e6, 1110e6, Turn{Mark: model.WindowStart | model.WindowEnd, Compare: true, Pulse: true}},
		{"pulses alone are not made up for", 111e6, 400e6, 444e6, Turn{Pulse: true}},
		{"nor what a pause missed", 999e6, 5_500e6, 5_550e6, Turn{Pulse: true}},
	} {
		if at, turn := s.After(tt.last, tt.now); at != tt.at || turn != tt.turn {
			t.Errorf("%s: at %d, %+v; want %d, %+v", tt.name, at, turn, tt.at, tt.turn)
		}
	}
}

// TestSchedulePulses: fast readings between the seconds; knobs are compared once a second all
// the same.
func TestSchedulePulses(t *testing.T) {
	s := New(Pace{Duration: 10 * time.Second, Frequency: time.Minute, Pulse: 50 * time.Millisecond})
	pulses, compares := 0, 0
	for at := int64(0); at < int64(time.Minute); {
		next, turn := s.Next(at)
		if next != at+50e6 || !turn.Pulse {
			t.Fatalf("after %d comes %d with %+v", at, next, turn)
		}
		pulses++
		if turn.Compare {
			compares++
		}
		at = next
	}
	if pulses != 1200 || compares != 60 {
		t.Errorf("%d pulses, %d compares; want 1200, 60", pulses, compares)
	}
	if at, turn := s.Next(5_010e6); at != 5_050e6 || turn.Compare {
		t.Errorf("after a late turn: %d, %+v", at, turn)
	}
}
