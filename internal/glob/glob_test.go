package glob

import (
	"math/rand/v2"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"?", "", false}, {"?", "a", true}, {"a*b", "ab", true},
		{"a*b", "axxbxb", true}, {"a*b", "axxbx", false}, {"**", "abc", true}, {`\x2d`, `\x2d`, true}, {"[ab]", "a", false},
		{"\x01\x01", "0f", true}, {"\x01", "g", false}, {"\x01", "", false},
	} {
		if got := Match(c.pattern, c.s); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

// dumbIntersect tries every string over a small alphabet.
func dumbIntersect(a, b string) bool {
	var try func(s string, left int) bool
	try = func(s string, left int) bool {
		if Match(a, s) && Match(b, s) {
			return true
		}
		if left == 0 {
			return false
		}
		for _, c := range "ag" {
			if try(s+string(c), left-1) {
				return true
			}
		}
		return false
	}
	return try("", 8)
}

func TestIntersectAgainstDumbTwin(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	pattern := func() string {
		b := make([]byte, rng.IntN(5))
		for i := range b {
			b[i] = "ag?*\x01"[rng.IntN(5)]
		}
		return string(b)
	}
	for range 4000 {
		a, b := pattern(), pattern()
		if got, want := Intersect(a, b), dumbIntersect(a, b); got != want {
			t.Fatalf("Intersect(%q, %q) = %v, want %v", a, b, got, want)
		}
	}
}
