package model

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func memoryAt(sec int64, of ...[2]uint64) *Snapshot {
	s := &Snapshot{MonoNsec: sec * 1e9}
	for d, v := range of {
		m := MemorySample{Domain: int32(d), MonoNsec: s.MonoNsec}
		m.C[CountMemTotal], m.C[CountMemLocal], m.C[CountMemLatency] = Read(v[0]), Read(v[1]), Read(130)
		s.Memory = append(s.Memory, m)
	}
	return s
}

// Rates go by the readings' own times; each memory delivers what its own CPUs and those of the other socket ask it for.
func TestMemoryRates(t *testing.T) {
	got := observeMemory(memoryAt(10, [2]uint64{100, 100}, [2]uint64{50, 50}), memoryAt(12, [2]uint64{120, 110}, [2]uint64{90, 86}), nil)
	if len(got) != 2 || got[0].Total != Known(10) || got[0].Local != Known(5) || got[0].Node != Known(7) || got[1].Node != Known(23) ||
		got[0].Latency != Known(130) || got[0].FromNsec != 10e9 || got[0].ToNsec != 12e9 || got[0].BE != Missing(Unavailable) {
		t.Errorf("%+v", got)
	}
}

// What could not be read is no zero.
func TestMemoryThatCannotBeRead(t *testing.T) {
	before, now := memoryAt(10, [2]uint64{100, 100}), memoryAt(12, [2]uint64{120, 110})
	for name, tt := range map[string]struct {
		change func()
		want   Value
	}{
		"the first":     {func() { before.Memory = nil }, Missing(Fresh)},
		"unavailable":   {func() { now.Memory[0].C[CountMemTotal] = Counter{} }, Missing(Unavailable)},
		"and then":      {func() { before.Memory[0].C[CountMemTotal] = Counter{} }, Missing(Fresh)},
		"backwards":     {func() { now.Memory[0].C[CountMemTotal] = Read(1) }, Missing(GoneBackwards)},
		"the same once": {func() { now.Memory[0].MonoNsec = 10e9 }, Missing(Fresh)},
	} {
		before, now = memoryAt(10, [2]uint64{100, 100}), memoryAt(12, [2]uint64{120, 110})
		tt.change()
		if got := observeMemory(before, now, nil); len(got) != 1 || got[0].Total != tt.want || got[0].Node != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := observeMemory(memoryAt(12, [2]uint64{1, 1}), memoryAt(10, [2]uint64{2, 2}), nil); len(got) != 0 {
		t.Errorf("time that went back: %+v", got)
	}
}

func TestMemorySampleByName(t *testing.T) {
	want := memoryAt(10, [2]uint64{100, 90}).Memory[0]
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got MemorySample
	if err := json.Unmarshal(b, &got); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%s: %+v, %v", b, got, err)
	}
}
