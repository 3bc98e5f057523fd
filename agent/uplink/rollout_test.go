package uplink

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
)

// A roll-out that this node refuses takes the one before it off: nobody wants that any more.
func TestRefusedRolloutEndsTheOneBefore(t *testing.T) {
	var did []string
	u := &Uplink{cfg: Config{Node: "n"}, hooks: Hooks{Log: slog.New(slog.DiscardHandler), Rollout: func(overlay string, on bool) error {
		did = append(did, fmt.Sprint(overlay, on))
		if overlay == "b" {
			return errors.New("it needs a restart")
		}
		return nil
	}}}
	say := func(id, overlay string) {
		data, err := json.Marshal(wire.Rollout{Version: wire.RolloutVersion, ID: id, Overlay: overlay, Percent: 100, By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		u.takeRollout(data)
	}
	say("1", "b")
	say("2", "a")
	say("3", "b")
	if want := []string{"btrue", "atrue", "btrue", "false"}; !slices.Equal(did, want) {
		t.Errorf("%v, expected %v", did, want)
	}
	if !strings.HasPrefix(u.status.Rollout, "!3: ") {
		t.Errorf("told the hub %q", u.status.Rollout)
	}
}
