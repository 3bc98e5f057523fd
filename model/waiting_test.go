package model

import (
	"encoding/json"
	"testing"
)

func TestLostShare(t *testing.T) {
	for _, c := range []struct {
		w      Waiting
		want   float64
		judged bool
	}{
		{Waiting{}, 0, true},
		{Waiting{Nsec: 100, Lost: WaitLoss{Skipped: 9}}, 0, true},
		{Waiting{Nsec: 100, Lost: WaitLoss{UnknownNsec: 50}}, 0.5, true},
		{Waiting{Nsec: 100, Lost: WaitLoss{UnknownNsec: 51}}, 0.51, false},
		{Waiting{Lost: WaitLoss{NotTaken: 1}}, 1, false},
		{Waiting{Nsec: 100, Lost: WaitLoss{NotTaken: 0.5, Events: 0.25, UnknownNsec: 50}}, 1, false},
	} {
		if got := c.w.LostShare(); got != c.want || c.w.Judged() != c.judged {
			t.Errorf("%+v: lost %g, judged %t", c.w, got, c.w.Judged())
		}
	}
}

// A record says of a window what it lost; where nothing was, and in older ones, nothing stands there.
func TestLostInRecords(t *testing.T) {
	for _, w := range []Waiting{{Num: 1, Nsec: 5}, {Num: 1, Nsec: 5, Lost: WaitLoss{NotTaken: 0.25, Events: 0.5, UnknownNsec: 3, Skipped: 2}}} {
		b, err := json.Marshal(w)
		var back Waiting
		if err2 := json.Unmarshal(b, &back); err != nil || err2 != nil || back.Lost != w.Lost {
			t.Errorf("%s: %+v, %v, %v", b, back, err, err2)
		}
	}
	const old = `{"num":1,"p99_ns":7,"longest_ns":9,"waits":2,"ns":5,"shares":null}`
	if b, _ := json.Marshal(Waiting{Num: 1, P99Nsec: 7, LongestNsec: 9, Waits: 2, Nsec: 5}); string(b) != old {
		t.Errorf("%s, older records have %s", b, old)
	}
}

// Of a window that lost too much, the signals that are measured of waits are not known; the others are.
func TestSignalsOfAWindowThatLost(t *testing.T) {
	sample := func(at uint64) TaskSample {
		s := TaskSample{Num: 1}
		for k := range s.C {
			s.C[k] = Read(at * 1000)
		}
		return s
	}
	for lost, known := range map[float64]bool{0.2: true, 0.8: false} {
		prev := &Snapshot{MonoNsec: 1e9, Tasks: []TaskSample{sample(1)}}
		cur := &Snapshot{MonoNsec: 2e9, Tasks: []TaskSample{sample(2)}, Waiting: []Waiting{{Num: 1, Nsec: 1, Lost: WaitLoss{Events: lost}}, {Num: 2, Lost: WaitLoss{Events: 1}}}}
		var out Observation
		Observe(prev, cur, &out)
		for src := range signals {
			want := known || !signals[src].Charged
			if got := out.Tasks[0].Raw[src].Outcome == OK; signals[src].Waits && got != want {
				t.Errorf("%g lost: %s is known: %t, want %t", lost, Source(src), got, want)
			}
		}
	}
}
