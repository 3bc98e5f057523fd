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

// step is one reading of one CPU with one event.
type step struct {
	enabled, running, value uint64
	want                    outcome
	estimate                uint64 // after it
}

func TestAdvance(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
	}{
		{"all the time on the counters", []step{{100, 100, 1000, counted, 1000}, {200, 200, 2500, counted, 2500}}},
		{"half the time", []step{{100, 50, 1000, counted, 2000}, {200, 100, 2000, counted, 4000}}},
		{"idle", []step{{0, 0, 0, idle, 0}, {0, 0, 0, idle, 0}}},
		// Scaled totals would fall from 2000·300/200 = 3000 to 2000·400/300 = 2667 at the last reading.
		{"the past is not rewritten", []step{{100, 100, 1000, counted, 1000}, {300, 200, 2000, counted, 3000}, {400, 300, 2000, counted, 3000}}},
		{"starved, then covered by the next", []step{{100, 0, 0, starved, 0}, {200, 50, 1000, counted, 4000}}},
		{"fell, then goes on from there", []step{{100, 100, 1000, counted, 1000}, {50, 50, 10, fell, 1000}, {60, 60, 30, counted, 1020}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := cpuGroup{values: make([]uint64, 1)}
			sums := make([]Count, 1)
			for i, s := range test.steps {
				got := g.advance(s.enabled, s.running, []uint64{s.value}, sums)
				if got != s.want || sums[0].EstimateRaw != s.estimate {
					t.Errorf("reading %d: got outcome %d, estimate %d; want %d, %d", i, got, sums[0].EstimateRaw, s.want, s.estimate)
				}
			}
		})
	}
}

func TestEventsHaveNames(t *testing.T) {
	for e := Cycles; e <= PageFaults; e++ {
		if name, _, _, ok := e.attr(); !ok || name == "" || e.String() != name || e.Hardware() != (e <= LLCMisses) {
			t.Errorf("event %d: %q, hardware %v", e, name, e.Hardware())
		}
	}
	if err := Supported(Event(200)); !errors.Is(err, ErrNotSupported) {
		t.Errorf("unknown event: %v, want ErrNotSupported", err)
	}
}
