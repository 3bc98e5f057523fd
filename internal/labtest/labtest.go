// Package labtest is what tests ask of every lab.
package labtest

import (
	"encoding/json"
	"testing"
)

// Twice plays a lab two times and returns the second result: the same seed has to come out the same.
func Twice[R any](t *testing.T, play func() (R, error)) (r R) {
	t.Helper()
	var texts []string
	for range 2 {
		var err error
		if r, err = play(); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	if texts[0] != texts[1] {
		t.Error("the same seed came out otherwise")
	}
	return r
}
