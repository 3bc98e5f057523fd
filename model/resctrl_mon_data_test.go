package model

import (
	"encoding/json"
	"testing"
)

// What two readings say of a task in a domain: nothing where it was counted by another number before, nothing of what is absent or went back, and no zero.
func TestObserveDomains(t *testing.T) {
	at := func(mono, since int64, occupancy, total, local Counter) *Snapshot {
		d := DomainSample{Num: 3, Domain: 1, SinceNsec: since, MonoNsec: mono, C: [NumDomainCounters]Counter{occupancy, total, local}}
		return &Snapshot{MonoNsec: mono, Domains: []DomainSample{{Num: 2, SinceNsec: 1, MonoNsec: mono}, d}}
	}
	later := func(s *Snapshot) *Snapshot { s.MonoNsec++; return s }
	one := at(1e9, 5, Read(9), Read(1000), Read(500))
	absent := Counter{Outcome: Absent}
	for name, tt := range map[string]struct {
		prev, cur *Snapshot
		want      DomainObservation
	}{
		"a window":                {one, at(3e9, 5, Read(7), Read(5000), Read(1500)), DomainObservation{Occupancy: Known(7), Total: Known(2000), Local: Known(500)}},
		"another number":          {one, at(3e9, 6, Read(7), Read(5000), Read(1500)), DomainObservation{Occupancy: Missing(Fresh), Total: Missing(Fresh), Local: Missing(Fresh)}},
		"no value at present":     {one, at(3e9, 5, absent, absent, Read(1500)), DomainObservation{Occupancy: Missing(Absent), Total: Missing(Absent), Local: Known(500)}},
		"it went back":            {one, at(3e9, 5, Read(7), Read(10), Read(1500)), DomainObservation{Occupancy: Known(7), Total: Missing(GoneBackwards), Local: Known(500)}},
		"not read since":          {one, later(at(1e9, 5, Read(9), Read(1000), Read(500))), DomainObservation{Occupancy: Missing(Fresh), Total: Missing(Fresh), Local: Missing(Fresh)}},
		"nothing was read before": {&Snapshot{MonoNsec: 0.5e9}, one, DomainObservation{Occupancy: Missing(Fresh), Total: Missing(Fresh), Local: Missing(Fresh)}},
	} {
		var out Observation
		Observe(tt.prev, tt.cur, &out)
		tt.want.Num, tt.want.Domain = 3, 1
		if got := out.In(3); len(got) != 1 || got[0] != tt.want || len(out.In(2)) != 1 || len(out.In(4)) != 0 {
			t.Errorf("%s: %+v, expected %+v", name, out.Domains, tt.want)
		}
	}
	b, err := json.Marshal(one.Domains[1])
	var back DomainSample
	if err != nil || json.Unmarshal(b, &back) != nil || back != one.Domains[1] {
		t.Errorf("%v: %s, %+v", err, b, back)
	}
	if o, total := SumDomains([]DomainObservation{{Occupancy: Known(1), Total: Known(2)}, {Occupancy: Known(3), Total: Missing(Absent)}}); o != Known(4) || total != Missing(Absent) {
		t.Errorf("%+v, %+v", o, total)
	}
}
