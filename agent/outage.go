package agent

import (
	"fmt"
	"strings"
	"time"
)

// An outage that lasts is told of again after toldAgain; one that comes and goes is told of once
// in toldAtMost.
const (
	toldAgain  = 10 * time.Minute
	toldAtMost = time.Minute
)

// What may fail in a turn while the loop goes on.
const (
	failObserve = "the machine cannot be observed"
	failRecord  = "the record cannot be written"
)

// outage is what failed in a turn, from its first failure until it works again. A full disk must
// fill neither the log nor the list of warnings, and the next outage must be told of like the first.
type outage struct {
	what      string
	err       string // the last error; "": it works
	turns     int    // that failed since it worked last
	sinceNsec int64
	toldNsec  int64
	told      bool // of this outage
}

// outages has one entry for each thing that has failed since the start.
func (c *Core) outage(what string) *outage {
	for i := range c.outages {
		if c.outages[i].what == what {
			return &c.outages[i]
		}
	}
	return nil
}

// fail notes that something failed in this turn.
func (c *Core) fail(what string, err error) {
	c.counts.failures++
	now := c.Clock.MonoNsec()
	o := c.outage(what)
	if o == nil {
		c.outages = append(c.outages, outage{what: what, toldNsec: now - toldAtMost.Nanoseconds()})
		o = &c.outages[len(c.outages)-1]
	}
	if o.err == "" {
		o.turns, o.sinceNsec = 0, now
	}
	o.err = err.Error()
	o.turns++
	wait := toldAtMost
	if o.told {
		wait = toldAgain
	}
	if now-o.toldNsec < wait.Nanoseconds() {
		return
	}
	o.told, o.toldNsec = true, now
	c.log.Error(what, "error", err, "turns", o.turns)
}

// well notes that something works that may have failed before.
func (c *Core) well(what string) {
	o := c.outage(what)
	if o == nil || o.err == "" {
		return
	}
	if o.told {
		c.log.Info("works again", "failure", what, "lasted", time.Duration(c.Clock.MonoNsec()-o.sinceNsec).Round(time.Second), "turns", o.turns)
	}
	o.err, o.told = "", false
}

// Failing returns what fails at present, "" when nothing does.
func (c *Core) Failing() string { return strings.Join(c.failing(), "; ") }

func (c *Core) failing() (list []string) {
	for i := range c.outages {
		if o := &c.outages[i]; o.err != "" {
			list = append(list, fmt.Sprintf("%s: %s", o.what, o.err))
		}
	}
	return list
}
