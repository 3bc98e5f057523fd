package model

import (
	"math"
	"strings"
	"testing"
)

// A limit has the size of the least power of two above it, within bounds, and each is a name that is taken.
func TestSizesOfLimits(t *testing.T) {
	for cpus, want := range map[float64]string{
		0.001: "cpu-0.125", 0.1: "cpu-0.125", 0.2: "cpu-0.25", 0.5: "cpu-0.5", 0.6: "cpu-1", 1: "cpu-1", 1.01: "cpu-2", 3: "cpu-4", 16: "cpu-16", 17: "cpu-32", 1e9: "cpu-1024", math.Inf(1): "cpu-unlimited", 0: "cpu-0.125",
	} {
		if got := SizeOfLimit(cpus); got != want || SizeName(got) != nil {
			t.Errorf("%g: %s, want %s", cpus, got, want)
		}
	}
	for _, name := range []string{"Large", "a/b", "a b", "../x", ".x", "-x", "a\x00b", "a\nb", "größe", "a*", ">", strings.Repeat("a", 64)} {
		if SizeName(name) == nil {
			t.Errorf("%q is taken", name)
		}
	}
	for _, name := range []string{"", "large", "2xl", strings.Repeat("a", 63)} {
		if err := SizeName(name); err != nil {
			t.Error(err)
		}
	}
}
