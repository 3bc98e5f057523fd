package cpus

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestSetText(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "0": "0", "0-3,8": "0-3,8", "3,2,1,0": "0-3", "63-64": "63-64", "62,64": "62,64", "1023": "1023", "0-1023": "0-1023", "\n": "", "7,0-1": "0-1,7", "1,1,0-2": "0-2", "5-5": "5",
	} {
		s, err := Parse(text)
		if err != nil || s.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, s, err, want)
		}
	}
	if s, err := Parse(" 5\n"); err != nil || s.String() != "5" {
		t.Errorf("a line of the kernel's: %q, %v", s, err)
	}
	for _, bad := range []string{"1024", "-1", "3-1", "a", "1,,2", "0-", "9999999999999999999", ",", "1,", "1-2-3", "0x1", "1 2", "+1", "0-4294967295", "0-31:2/4", strings.Repeat("1", 1<<19)} {
		if s, err := Parse(bad); !errors.Is(err, ErrMalformed) || !s.Empty() || len(err.Error()) > 200 {
			t.Errorf("%.20q: %q, %v", bad, s, err)
		}
	}
	if s := Of(5, 3, 2, 1, 0, 1); s.String() != "0-3,5" || !slices.Equal(s.Members(), []int{0, 1, 2, 3, 5}) || s.Without(Full(3)) != Of(3, 5) {
		t.Errorf("%s", s)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0-3,5\n", "", "7,0-1", "0-1023", "1,,2", "3-1", "0-99999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(s.String()); err != nil || again != s {
			t.Errorf("%q: %s, again %s, %v", text, s, again, err)
		}
	})
}

// What is written reads back, and the operations agree with counting one by one.
func TestSetProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	draw := func() Set {
		var s Set
		top := 1 + rng.IntN(Max)
		for range rng.IntN(200) {
			s.Add(rng.IntN(top))
		}
		return s
	}
	for round := range 300 {
		a, b := draw(), draw()
		text, err := json.Marshal(a)
		var back Set
		if err != nil || json.Unmarshal(text, &back) != nil || back != a {
			t.Fatalf("round %d: %s, %v", round, text, err)
		}
		both, either, only := a.And(b), a.Or(b), a.Without(b)
		n := 0
		for i := range Max {
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
