package perf

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"testing"
)

func reading(words ...uint64) []byte {
	var b []byte
	for _, w := range words {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

func TestParseGroup(t *testing.T) {
	values := make([]uint64, 2)
	enabled, running, err := parseGroup(reading(2, 500_227_386, 500_000_000, 500_228_478, 131), values)
	if err != nil || enabled != 500_227_386 || running != 500_000_000 || values[0] != 500_228_478 || values[1] != 131 {
		t.Errorf("got %d, %d, %v, %v", enabled, running, values, err)
	}
	for _, bad := range [][]byte{nil, reading(2, 1, 1), reading(1, 1, 1, 1, 1), reading(3, 1, 1, 1, 1),
		reading(2, 1, 1, 1, 1)[:39], reading(2, 1, 1, 1, 1, 1)} {
		if _, _, err := parseGroup(bad, values); !errors.Is(err, errReading) {
			t.Errorf("% x: got %v, want errReading", bad, err)
		}
	}
}

func FuzzParseGroup(f *testing.F) {
	f.Add(reading(2, 500_227_386, 500_000_000, 500_228_478, 131), uint8(2))
	f.Add(reading(0, 0, 0), uint8(0))
	f.Add(reading(math.MaxUint64, 0, 0), uint8(1))
	f.Add([]byte{1, 2, 3}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, events uint8) {
		values := make([]uint64, events)
		enabled, running, err := parseGroup(b, values)
		if err != nil {
			return
		}
		if again := reading(append([]uint64{uint64(events), enabled, running}, values...)...); string(again) != string(b) {
			t.Errorf("read % x, written again % x", b, again)
		}
	})
}

func FuzzScale(f *testing.F) {
	f.Add(uint64(1000), uint64(10), uint64(5))
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64), uint64(1))
	f.Add(uint64(7), uint64(3), uint64(4))
	f.Fuzz(func(t *testing.T, value, enabled, running uint64) {
		if running == 0 {
			return
		}
		got := scale(value, enabled, running)
		want := new(big.Int).SetUint64(max(enabled, running))
		want.Mul(want, new(big.Int).SetUint64(value)).Div(want, new(big.Int).SetUint64(running))
		if !want.IsUint64() {
			want.SetUint64(math.MaxUint64)
		}
		if got != want.Uint64() {
			t.Errorf("scale(%d, %d, %d) = %d, want %v", value, enabled, running, got, want)
		}
	})
}

// step is one reading of one CPU with one event, and what the estimate and the status are after it.
type step struct {
	enabled, running, value uint64
	estimate                uint64
	status                  Status
	ended                   bool
}

func TestTally(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
	}{
		{"all the time on the counters", []step{{100, 100, 1000, 1000, OK, false}, {200, 200, 2500, 2500, OK, false}}},
		{"half the time", []step{{100, 50, 1000, 2000, OK, false}, {200, 100, 2000, 4000, OK, false}}},
		{"idle", []step{{0, 0, 0, 0, OK, false}, {0, 0, 0, 0, OK, true}}},
		// Scaled totals would fall from 2000·300/200 = 3000 to 2000·400/300 = 2667 at the last reading.
		{"the past is not rewritten", []step{{100, 100, 1000, 1000, OK, false}, {300, 200, 2000, 3000, OK, false}, {400, 300, 2000, 3000, OK, false}}},
		{"a while without a number is not made up for", []step{{100, 0, 0, 0, Unavailable, false}, {200, 50, 1000, 2000, OK, false}}},
		{"nor is it after a window", []step{{100, 0, 0, 0, Unavailable, true}, {100, 0, 0, 0, OK, true}, {200, 100, 1000, 1000, OK, true}}},
		{"fell, then goes on from there", []step{{100, 100, 1000, 1000, OK, false}, {50, 50, 10, 1000, Backwards, false}, {60, 60, 30, 1020, OK, false}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tally, out := NewTally(1, 1), make([]Count, 1)
			for i, s := range test.steps {
				tally.Add(0, s.enabled, s.running, []uint64{s.value})
				tally.Finish(out, s.ended)
				if out[0].EstimateRaw != s.estimate || out[0].Status != s.status {
					t.Errorf("reading %d: %+v; want estimate %d, %v", i, out[0], s.estimate, s.status)
				}
			}
		})
	}
}

// Two CPUs: one counts, one waits, is covered by the next reading of the same window, and not by another window's.
func TestTallyKeepsThePlaceOfACPUThatWaits(t *testing.T) {
	for _, ended := range []bool{false, true} {
		tally, out := NewTally(2, 1), make([]Count, 1)
		read := func(a, b [3]uint64, ended bool) Count {
			tally.Add(0, a[0], a[1], a[2:])
			tally.Add(1, b[0], b[1], b[2:])
			tally.Finish(out, ended)
			return out[0]
		}
		if got := read([3]uint64{100, 100, 1000}, [3]uint64{100, 0, 0}, ended); got != (Count{1000, 200, 100, 1000, OK}) {
			t.Errorf("ended %v: first %+v", ended, got)
		}
		want := Count{2500, 400, 250, 1000 + 1000 + 500*200/50, OK}
		if ended {
			want.EstimateRaw = 1000 + 1000 + 500*100/50
		}
		if got := read([3]uint64{200, 200, 2000}, [3]uint64{200, 50, 500}, false); got != want {
			t.Errorf("ended %v: second %+v, want %+v", ended, got, want)
		}
	}
}

// A group that was opened anew starts at zero and takes nothing away.
func TestTallyRebase(t *testing.T) {
	tally, out := NewTally(1, 1), make([]Count, 1)
	tally.Add(0, 100, 100, []uint64{1000})
	tally.Rebase(0, 0, 0, []uint64{0})
	tally.Add(0, 10, 10, []uint64{50})
	tally.Finish(out, false)
	if want := (Count{1050, 110, 110, 1050, OK}); out[0] != want {
		t.Errorf("got %+v, want %+v", out[0], want)
	}
	tally.Starved(0)
	if tally.Finish(out, false); out[0].Status != Unavailable {
		t.Errorf("in error: %+v, want Unavailable", out[0])
	}
}

func TestEventsHaveNames(t *testing.T) {
	for e := Cycles; e <= PageFaults; e++ {
		if name := events[e].name; name == "" || e.String() != name || e.Hardware() != (e <= LLCMisses) {
			t.Errorf("event %d: %q, hardware %v", e, name, e.Hardware())
		}
	}
	if err := Supported(Event(200)); !errors.Is(err, ErrNotSupported) {
		t.Errorf("unknown event: %v, want ErrNotSupported", err)
	}
}
