package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// A command that is asked for twice under one id is done once, and answered twice alike; under another person's, or none, it is another. What a node refused
// is refused again without asking it; what did not reach it is tried again. An id of another command is refused.
func TestACommandThatComesAgainIsDoneOnce(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	nodes := startNodes(t, b, 1)
	ann, bob := b.token("ann", Operator), b.token("bob", Operator)
	asked := func(want int) {
		t.Helper()
		if n := len(nodes[0].commands); n != want {
			t.Errorf("the node was asked %d times, want %d", n, want)
		}
	}
	say := func(token, id, task, node string) string {
		code, m := b.call(token, "POST", "/v1/command", fmt.Sprintf(`{"id": %q, "node": %q, "kind": "cap", "task": %q, "cap": 0.1, "duration_seconds": 60, "why": "a test"}`, id, node, task))
		return fmt.Sprint(code, m)
	}
	const done = "200 map[done:cap]"
	for _, c := range []struct {
		token, id, task, node, want string
		asked                       int
	}{
		{ann, "a-1", "/be", "node-0", done, 1},
		{ann, "a-1", "/be", "node-0", done, 1},
		{bob, "a-1", "/be", "node-0", done, 2},
		{ann, "a-2", "/be", "node-0", done, 3},
		{ann, "", "/be", "node-0", done, 4},
		{ann, "", "/be", "node-0", done, 5},
		{ann, "a-1", "/other", "node-0", "of another command", 5},
		{ann, "a-3", "/gone", "node-0", "no task", 6},
		{ann, "a-3", "/gone", "node-0", "no task", 6},
		{ann, "a 4", "/be", "node-0", "expected 1 to 64", 6},
		{ann, "a-5", "/be", "nobody", "502", 6},
		{ann, "a-5", "/be", "nobody", "502", 6},
	} {
		if got := say(c.token, c.id, c.task, c.node); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.id, got, c.want)
		}
		asked(c.asked)
	}
	tried := 0
	for _, act := range b.audit.list() {
		if act.Node == "nobody" && act.Result == "" {
			tried++
		}
	}
	if tried != 2 {
		t.Errorf("what did not reach a node was tried %d times", tried)
	}
	// A hub that forgot: the node itself does it once.
	b.again.mu.Lock()
	b.again.seen = nil
	b.again.mu.Unlock()
	if got := say(ann, "a-1", "/be", "node-0"); !strings.Contains(got, "done already") {
		t.Error(got)
	}
	asked(6)
}

// While one is being done, who asks again waits for its answer, as long as they want to; ten minutes later it is another command; there are not endlessly many.
func TestAnswersAreKeptForTenMinutes(t *testing.T) {
	var a again
	var did int
	begun, end := make(chan struct{}), make(chan struct{})
	slow := func() (any, error) { did++; close(begun); <-end; return did, nil }
	q := &commandBody{Node: "n"}
	var both sync.WaitGroup
	both.Go(func() {
		if v, err := a.once(t.Context(), "x", q, slow); v != 1 || err != nil {
			t.Errorf("%v, %v", v, err)
		}
	})
	<-begun
	hasty, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.once(hasty, "x", q, slow); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	both.Go(func() {
		if v, err := a.once(t.Context(), "x", q, slow); v != 1 || err != nil {
			t.Errorf("again: %v, %v", v, err)
		}
	})
	close(end)
	both.Wait()
	next := func() (any, error) { did++; return did, nil }
	for age, want := range map[time.Duration]int{againFor - time.Minute: 1, againFor + time.Minute: 2} {
		did = 1
		a.seen["x"] = &askedOnce{body: *q, done: make(chan struct{}), at: time.Now().Add(-age), answer: 1}
		close(a.seen["x"].done)
		if v, err := a.once(t.Context(), "x", q, next); v != want || err != nil {
			t.Errorf("after %s: %v, %v; want %d", age, v, err, want)
		}
	}
	for i := range maxAgain + 10 {
		_, err := a.once(t.Context(), fmt.Sprint(i), q, next)
		if full := i >= maxAgain-1; full != errors.Is(err, errUnknown) { // x is one
			t.Fatalf("%d: %v", i, err)
		}
	}
}
