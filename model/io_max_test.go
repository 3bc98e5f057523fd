package model

import (
	"encoding/json"
	"testing"
)

func TestIOMax(t *testing.T) {
	a := IOMaxOf([]IOLimit{{Device: DeviceOf(259, 1), ReadBPS: 5, WriteIOPS: 9}, {Device: DeviceOf(8, 0), WriteBPS: 7}, {Device: DeviceOf(8, 16)}})
	if a != "8:0 wbps=7;259:1 rbps=5 wiops=9" {
		t.Errorf("%q", a)
	}
	list, err := a.Limits()
	if err != nil || IOMaxOf(list) != a {
		t.Errorf("read back %+v, %v", list, err)
	}
	b := IOMaxOf([]IOLimit{{Device: DeviceOf(8, 0), WriteBPS: 20, ReadIOPS: 3}})
	both := a.Tighter(b)
	if both != "8:0 wbps=7 riops=3;259:1 rbps=5 wiops=9" || b.Tighter(a) != both {
		t.Errorf("tighter: %q, %q", both, b.Tighter(a))
	}
	if !ioMaxSpec.Within(LimitIO(both), LimitIO(b)) || ioMaxSpec.Within(LimitIO(a), LimitIO(b)) || !ioMaxSpec.Within(LimitIO(a), LimitIO("")) {
		t.Error("within")
	}
	// We found b, wrote both, and another program then wrote 8:0 wbps.
	now := IOMax("8:0 wbps=99 riops=3;259:1 rbps=5 wiops=9")
	if got := now.Without(both, b); got != "8:0 wbps=99 riops=3" {
		t.Errorf("without ours: %q", got)
	}
	half := LimitIO("8:0 wbps=7 riops=3") // of the two devices one was written
	if !ioMaxSpec.Between(half, LimitIO(b), LimitIO(both)) || ioMaxSpec.Between(LimitIO(now), LimitIO(b), LimitIO(both)) {
		t.Error("between")
	}
}

func TestIOMaxJSON(t *testing.T) {
	s := LimitIO("8:0 rbps=5")
	text, err := json.Marshal(s)
	var back Setting
	if err != nil || json.Unmarshal(text, &back) != nil || back != s {
		t.Errorf("%s: %+v, %v", text, back, err)
	}
	for _, bad := range []string{`"x rbps=1"`, `"8:0 speed=1"`, `"8:0 rbps=-1"`, `7`} {
		if err := json.Unmarshal([]byte(`{"knob":"io.max","value":`+bad+`}`), &back); err == nil {
			t.Errorf("%s is %+v", bad, back)
		}
	}
}

// A device that a task had not used before begins at zero, if its devices were read; what was not, or went back, gives nothing.
func TestObserveIO(t *testing.T) {
	read := func(num TaskNum, outcome Outcome) TaskSample {
		s := TaskSample{Num: num}
		s.C[CountIOBytes].Outcome = outcome
		return s
	}
	a, b := DeviceOf(8, 0), DeviceOf(8, 16)
	prev := Snapshot{MonoNsec: 1e9, Tasks: []TaskSample{read(1, OK), read(2, Unavailable)}, IO: []IOSample{{Num: 1, Device: a, Read: 100, Reads: 1}}}
	cur := Snapshot{MonoNsec: 3e9, Tasks: []TaskSample{read(1, OK), read(2, OK)}, IO: []IOSample{
		{Num: 1, Device: a, Read: 300, Reads: 3}, {Num: 1, Device: b, Wrote: 50, Writes: 2}, {Num: 2, Device: a, Read: 9},
	}}
	var out Observation
	Observe(&prev, &cur, &out)
	if len(out.IO) != 2 || out.IO[0] != (IOObservation{Num: 1, Device: a, Read: 100, Reads: 1}) || out.IO[1] != (IOObservation{Num: 1, Device: b, Wrote: 25, Writes: 1}) {
		t.Errorf("%+v", out.IO)
	}
	prev.IO[0].Read = 400
	if Observe(&prev, &cur, &out); len(out.IO) != 1 {
		t.Errorf("after it went back: %+v", out.IO)
	}
}
