package cadence

import (
	"testing"
	"time"

	"github.com/commensal-io/commensal/model"
)

// TestScheduleSeed: CPI2 section 3.1, a 10 second period once a minute, with a tick a
// second in between.
func TestScheduleSeed(t *testing.T) {
	s := New(10*time.Second, time.Minute)
	marks := map[int64]model.WindowMark{}
	ticks := 0
	for at := int64(0); at < int64(3*time.Minute); ticks++ {
		next, mark := s.Next(at)
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
	s := New(250*time.Millisecond, 250*time.Millisecond)
	for k := int64(0); k < 8; k++ {
		at, mark := s.Next(k * 250e6)
		if at != (k+1)*250e6 || mark != both {
			t.Errorf("after window %d: at %d, mark %d", k, at, mark)
		}
	}
	if at, mark := s.Next(1_234_567_890); at != 1_250e6 || mark != both {
		t.Errorf("after a late turn: at %d, mark %d", at, mark)
	}
}
