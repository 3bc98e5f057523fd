// Package labtest is what tests ask of every lab.
package labtest

import (
	"encoding/json"
	"errors"
	"testing"
)

// Twice plays a lab two times at once and returns one result: the same seed has to come out the same.
func Twice[R any](t *testing.T, play func() (R, error)) R {
	t.Helper()
	type played struct {
		result R
		text   string
		err    error
	}
	plays := make(chan played, 2)
	for range cap(plays) {
		go func() {
			r, err := play()
			text, bad := json.Marshal(r)
			plays <- played{r, string(text), errors.Join(err, bad)}
		}()
	}
	a, b := <-plays, <-plays
	if err := errors.Join(a.err, b.err); err != nil {
		t.Fatal(err)
	}
	if a.text != b.text {
		t.Error("the same seed came out otherwise")
	}
	return a.result
}
