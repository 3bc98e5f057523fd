package model

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
)

func TestCPUSetText(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "0": "0", "0-3,8": "0-3,8", "3,2,1,0": "0-3", "63-64": "63-64", "62,64": "62,64", "1023": "1023", "0-1023": "0-1023",
	} {
		s, err := ParseCPUSet(text)
		if err != nil || s.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, s, err, want)
		}
	}
	if s, err := ParseCPUSet(" 5\n"); err != nil || s.String() != "5" {
		t.Errorf("a line of the kernel's: %q, %v", s, err)
	}
	for _, bad := range []string{"1024", "-1", "3-1", "a", "1,,2", "0-", "9999999999999999999"} {
		if s, err := ParseCPUSet(bad); err == nil {
			t.Errorf("%q is taken for %q", bad, s)
		}
	}
}

// What is written reads back, and the operations agree with counting one by one.
func TestCPUSetProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	draw := func() CPUSet {
		var s CPUSet
		top := 1 + rng.IntN(MaxCPUs)
		for range rng.IntN(200) {
			s.Add(rng.IntN(top))
		}
		return s
	}
	for round := range 300 {
		a, b := draw(), draw()
		text, err := json.Marshal(a)
		var back CPUSet
		if err != nil || json.Unmarshal(text, &back) != nil || back != a {
			t.Fatalf("round %d: %s, %v", round, text, err)
		}
		both, either, only := a.And(b), a.Or(b), a.Without(b)
		n := 0
		for i := range MaxCPUs {
			ina, inb := a.Has(i), b.Has(i)
			if both.Has(i) != (ina && inb) || either.Has(i) != (ina || inb) || only.Has(i) != (ina && !inb) {
				t.Fatalf("round %d: CPU %d of %s and %s", round, i, a, b)
			}
			if ina {
				n++
			}
		}
		if n != a.Len() || n != len(a.Members()) || a.Empty() != (n == 0) || !both.Within(a) || !a.Within(either) {
			t.Fatalf("round %d: %s", round, a)
		}
	}
}
