package uplink

import (
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
)

// A command is done once, and only when it is of now, by the clocks of both.
func TestCommandsAreDoneOnce(t *testing.T) {
	var c commands
	now := time.Unix(1_790_000_000, 0)
	cmd := func(id string, age time.Duration) *wire.Command {
		return &wire.Command{ID: id, By: "ann", WallNsec: now.Add(-age).UnixNano()}
	}
	for _, x := range []struct {
		cmd  *wire.Command
		want string
	}{
		{cmd("a", 0), ""}, {cmd("a", 0), "done already"}, {cmd("b", 9*time.Minute), ""}, {cmd("c", 11*time.Minute), "old"}, {cmd("d", -11*time.Minute), "old"},
		{cmd("", 0), "without a name"}, {cmd("e", -5*time.Minute), ""}, {cmd("e", 0), "done already"},
	} {
		if why := c.admit(x.cmd, now); (why == "") != (x.want == "") || !strings.Contains(why, x.want) {
			t.Errorf("%+v: %q, want %q", x.cmd, why, x.want)
		}
	}
	now = now.Add(time.Hour)
	if why := c.admit(cmd("f", 0), now); why != "" || len(c.ids) != 1 {
		t.Errorf("%q; %d are remembered", why, len(c.ids))
	}
}
