package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// handClock is a clock that a test moves.
type handClock struct{ nsec int64 }

func (c *handClock) MonoNsec() int64 { return c.nsec }
func (c *handClock) WallNsec() int64 { return c.nsec }

// TestOutage: an outage is told of once, and again while it lasts; what works again is no warning
// any more, and its next outage is told of like the first. One that comes and goes at each turn, or
// whose error is another one each time, fills no log.
func TestOutage(t *testing.T) {
	var log strings.Builder
	clock := &handClock{nsec: 1}
	c := &Core{Clock: clock, log: slog.New(slog.NewTextHandler(&log, nil))}
	const what, other = "the disk is full", "the net is down"
	said := func(level string) (n int) {
		defer log.Reset()
		return strings.Count(log.String(), "level="+level)
	}
	expect := func(when string, errors, infos int, failing ...string) {
		t.Helper()
		text := log.String()
		if e, i := strings.Count(text, "level=ERROR"), strings.Count(text, "level=INFO"); e != errors || i != infos {
			t.Errorf("%s: %d errors and %d infos, expected %d and %d:\n%s", when, e, i, errors, infos, text)
		}
		log.Reset()
		if got := c.failing(); !slices.Equal(got, failing) {
			t.Errorf("%s: fails %q, expected %q", when, got, failing)
		}
	}
	for i := range 1000 { // 50 s
		c.fail(what, fmt.Errorf("file %d", i))
		clock.nsec += (50 * time.Millisecond).Nanoseconds()
	}
	c.fail(other, errors.New("EIO"))
	expect("while it lasts", 2, 0, what+": file 999", other+": EIO")
	clock.nsec += toldAgain.Nanoseconds()
	c.fail(what, errors.New("still"))
	expect("ten minutes later", 1, 0, what+": still", other+": EIO")
	c.well(what)
	c.well(what)
	expect("when it works again", 0, 1, other+": EIO")
	clock.nsec += (7 * 24 * time.Hour).Nanoseconds()
	c.fail(what, errors.New("still"))
	c.well(other)
	expect("a week later, with the same error", 1, 1, what+": still")
	c.well(what)
	for range 1000 { // 50 s
		c.fail(what, errors.New("now and then"))
		c.well(what)
		clock.nsec += (50 * time.Millisecond).Nanoseconds()
	}
	if n := said("ERROR"); n > 1 {
		t.Errorf("%d errors of one that comes and goes", n)
	}
	if c.counts.failures != 1000+1+1+1+1000 {
		t.Errorf("counted %d", c.counts.failures)
	}
}

// TestIncidentPrefix: two runs have no incident's name in common, whatever the clock says.
func TestIncidentPrefix(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	seen := map[string]bool{}
	for _, p := range []string{idPrefix(at, 100), idPrefix(at, 101), idPrefix(at.Add(time.Second), 100)} {
		if seen[p] {
			t.Errorf("%s twice", p)
		}
		seen[p] = true
	}
}
