package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/guest"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	guestWithin = time.Second
	// mostGuests bounds how many are asked: doctor is for a person who waits.
	mostGuests = 8
)

// guestsHere asks the guests of tasks on this host, some of them where there are many, whether their agents answer; "": no task has one.
func guestsHere(ctx context.Context, c *config.Config) string {
	m := &matching{}
	paths, err := m.list()
	if err != nil || m.fill(c, paths) != nil {
		return ""
	}
	asked, answered, first := 0, 0, ""
	for i := range m.Tasks {
		t := &m.Tasks[i]
		address := c.Tasks[t.Rule].Guest
		if address == "" || asked == mostGuests {
			continue
		}
		asked++
		if err := askGuest(ctx, m.driver, address, t.Path); err == nil {
			answered++
		} else if first == "" {
			first = fmt.Sprintf("; of %q: %v", t.Path, err)
		}
	}
	if asked == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d that were asked answer%s", answered, asked, first)
}

// askGuest asks one the question that costs nothing.
func askGuest(ctx context.Context, cg cgroup.Driver, address, path string) error {
	a, err := guest.ParseAddress(address)
	if err != nil {
		return err
	}
	group, err := cg.Open(path)
	if err != nil {
		return err
	}
	defer group.Close() //nolint:errcheck // it was only read
	pids, err := group.Procs(nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, guestWithin)
	defer cancel()
	_, err = a.Ask(ctx, hostfs.NewRoot("/"), pids, guest.Request{Do: guest.DoStat})
	return err
}

// guestWarning is what a running agent says of guests.
func guestWarning(warnings []string) string {
	for _, w := range warnings {
		if why, ok := strings.CutPrefix(w, "guests of tasks "); ok {
			return why
		}
	}
	return "nothing is wrong with them"
}
