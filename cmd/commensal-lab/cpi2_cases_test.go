package main

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/scenarios"
)

// A case is told as it came out; that each case does what it should is tested with the
// library.
func TestCaseStudy(t *testing.T) {
	for name, want := range map[string]string{"case-2": "batch named with 0.", "quiet": "nobody accused; 2 of 2 expectations met"} {
		c, err := caseStudy(name, "the paper's")
		if err != nil || !c.Agrees || c.Name != name || !strings.Contains(c.Ours, want) {
			t.Errorf("%+v, %v", c, err)
		}
	}
	for _, c := range seedCases {
		if _, ok := scenarios.Find(c.name); !ok {
			t.Errorf("the library has no %s", c.name)
		}
	}
	if _, err := caseStudy("case-7", ""); err == nil {
		t.Error("a seventh case")
	}
}
