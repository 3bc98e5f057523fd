package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A program that lost the answer to a command asks again: with an id of its own in the body it gets the answer that there was, and nothing is done twice.

const (
	againFor  = 10 * time.Minute // an answer is kept; a node takes no command that is older
	maxAgain  = 4096             // answers that are kept
	maxOwnID  = 64               // bytes of an id
	ownIDRune = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
)

// again are the commands that were asked for with an id. Its zero value is ready.
type again struct {
	mu   sync.Mutex
	seen map[string]*askedOnce
}

// askedOnce is one of them.
type askedOnce struct {
	body   commandBody
	done   chan struct{} // closed when the answer is there
	at     time.Time     // of the answer; zero: it is being done
	answer any
	err    error
}

// ownID says what is wrong with a person's id; nil: nothing.
func ownID(id string) error {
	if len(id) > maxOwnID || strings.Trim(id, ownIDRune) != "" {
		return fmt.Errorf("id %.70q; expected 1 to %d letters, digits, - and _", id, maxOwnID)
	}
	return nil
}

// nameOf is what nodes know a command by: an id is a person's own, so that two may have the same.
func nameOf(p *person, id string) string {
	sum := sha256.Sum256([]byte(p.Name + "\x00" + id))
	return hex.EncodeToString(sum[:8])
}

// once does what a body asks for, or answers as it was answered within ten minutes. What failed, so that nobody knows whether it was done, is done again when
// it is asked for again: nodes do a command once, by its name. What was refused is refused again.
func (a *again) once(ctx context.Context, name string, q *commandBody, do func() (any, error)) (any, error) {
	a.mu.Lock()
	before, err := a.find(name, time.Now())
	if err != nil {
		a.mu.Unlock()
		return nil, err
	}
	if before == nil {
		mine := &askedOnce{body: *q, done: make(chan struct{})}
		a.seen[name] = mine
		a.mu.Unlock()
		return a.first(name, mine, do)
	}
	a.mu.Unlock()
	if before.body != *q {
		return nil, fmt.Errorf("%w: id %q was of another command within %s", errUnknown, q.ID, againFor)
	}
	select {
	case <-before.done:
		return before.answer, before.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// find returns what was asked under a name, nil: nothing, and forgets what is old.
func (a *again) find(name string, now time.Time) (*askedOnce, error) {
	if a.seen == nil {
		a.seen = map[string]*askedOnce{}
	}
	for n, was := range a.seen {
		if !was.at.IsZero() && now.Sub(was.at) > againFor {
			delete(a.seen, n)
		}
	}
	if before := a.seen[name]; before != nil || len(a.seen) < maxAgain {
		return before, nil
	}
	return nil, fmt.Errorf("%w: %d commands with an id were asked for within %s; ask later, or without one", errUnknown, maxAgain, againFor)
}

func (a *again) first(name string, mine *askedOnce, do func() (any, error)) (any, error) {
	mine.err = errors.New("it ended in the midst") // of a panic
	defer func() {
		a.mu.Lock()
		if mine.at = time.Now(); mine.err != nil && !errors.Is(mine.err, errUnknown) && !errors.Is(mine.err, errBad) {
			delete(a.seen, name)
		}
		a.mu.Unlock()
		close(mine.done)
	}()
	mine.answer, mine.err = do()
	return mine.answer, mine.err
}
