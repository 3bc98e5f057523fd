package uplink

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
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

// A sheet of specs that is of a newer version, too long or of somebody else is left aside and named, whatever it has besides, and what was heard before
// stands; so are a layout and a roll-out of a newer version.
func TestSheetsAreChecked(t *testing.T) {
	var heard [][]model.Spec
	var log strings.Builder
	u := &Uplink{node: Node{Platform: "cpu"}, hooks: Hooks{Log: slog.New(slog.NewTextHandler(&log, nil)), Specs: func(s []model.Spec) { heard = append(heard, s) }}}
	u.sheets.jobs = map[sheetKey]*sheet{{job: "web"}: {}}
	u.parts.Store(1)
	sheetOf := func(version int, job, platform, specs string) string {
		return fmt.Sprintf(`{"version": %d, "job": %q, "platform": %q, "revision": 3, "wall_nsec": 100, "specs": %s}`, version, job, platform, specs)
	}
	u.takeSheet(sheetKey{job: "web"}, []byte(sheetOf(wire.SheetVersion, "web", "cpu", `[{"mean": 1.5}]`)))
	if len(heard) != 1 || len(heard[0]) != 1 || heard[0][0].Mean != 1.5 || heard[0][0].Sheet != 3 || heard[0][0].Job != "web" {
		t.Fatalf("%+v %s", heard, log.String())
	}
	newer := fmt.Sprintf("newer version of the format: %d, known here: %d", wire.SheetVersion+1, wire.SheetVersion)
	for doc, want := range map[string]string{
		sheetOf(wire.SheetVersion+1, "web", "cpu", "[]"):                                  newer,
		sheetOf(wire.SheetVersion+1, "web", "cpu", `"in some other form"`):                newer,
		sheetOf(wire.SheetVersion, "web", "cpu", `"in some other form"`):                  "cannot unmarshal",
		sheetOf(wire.SheetVersion, "mail", "cpu", "[]"):                                   "it is of job",
		sheetOf(wire.SheetVersion, "web", "other", "[]"):                                  "on platform",
		sheetOf(wire.SheetVersion, "web", "cpu", "[]") + strings.Repeat(" ", maxSheet):    "bytes",
		strings.Replace(sheetOf(wire.SheetVersion, "web", "cpu", "[]"), "100", "1e99", 1): "cannot unmarshal",
	} {
		log.Reset()
		u.takeSheet(sheetKey{job: "web"}, []byte(doc))
		if len(heard) != 1 || !strings.Contains(log.String(), want) {
			t.Errorf("%.200s: heard %d, %s; want %q", doc, len(heard), log.String(), want)
		}
	}
	log.Reset()
	u.takeLayout(fmt.Appendf(nil, `{"version": %d, "partitions": "by colour"}`, wire.LayoutVersion+1))
	u.takeRollout(fmt.Appendf(nil, `{"version": %d, "percent": "all"}`, wire.RolloutVersion+1))
	if n := strings.Count(log.String(), "newer version"); n != 2 || u.parts.Load() != 1 {
		t.Errorf("%d parts; %s", u.parts.Load(), log.String())
	}
}

// A sheet that the hub still has is told again once in a while, so that the node knows that it stands; not each time that it is seen, and
// not when it is gone.
func TestASheetThatStandsIsToldAgain(t *testing.T) {
	var told []model.Spec
	u := &Uplink{node: Node{Platform: "cpu"}, sheets: sheets{jobs: map[sheetKey]*sheet{{job: "web"}: {}}}, hooks: Hooks{
		Log: slog.New(slog.DiscardHandler), Specs: func(s []model.Spec) { told = append(told, s...) },
	}}
	of := func(revision, wall int) []byte {
		return fmt.Appendf(nil, `{"version": 1, "job": "web", "platform": "cpu", "revision": %d, "wall_nsec": %d, "specs": [{"source": "cpi", "num_samples": 500, "mean": 2, "tail": 3}]}`, revision, wall)
	}
	later := func() {
		u.sheets.jobs[sheetKey{job: "web"}].told = u.sheets.jobs[sheetKey{job: "web"}].told.Add(-retellEvery)
	}
	for i, step := range []struct {
		data []byte
		wait bool
		want int
	}{
		{of(4, 10), false, 1}, {of(4, 10), false, 1}, {of(4, 10), true, 2}, {of(4, 10), false, 2}, {nil, true, 2}, {of(3, 9), true, 2}, {of(4, 10), false, 3}, {of(5, 11), false, 4},
	} {
		if step.wait {
			later()
		}
		if u.takeSheet(sheetKey{job: "web"}, step.data); len(told) != step.want {
			t.Fatalf("step %d: told %d times, expected %d", i, len(told), step.want)
		}
	}
	if sp := told[1]; sp != told[0] || sp.Sheet != 4 || sp.Tail != 3 || told[3].Sheet != 5 {
		t.Errorf("%+v", told)
	}
}
