package uplink

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

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

// A sheet is newer by its revision, where the clock of the hub that sent it is behind or was set back, or by its time, where a hub counts anew. One that is
// older by both is left aside, which the log says.
func TestASheetIsNewerByRevisionOrTime(t *testing.T) {
	var told []uint64
	var log strings.Builder
	u := &Uplink{node: Node{Platform: "cpu"}, sheets: sheets{jobs: map[sheetKey]*sheet{{job: "web"}: {}}}, hooks: Hooks{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Specs: func(s []model.Spec) { told = append(told, s[0].Sheet) },
	}}
	for _, s := range [][2]int{{5, 600}, {6, 300}, {5, 200}, {6, 300}, {1, 400}, {1, 400}, {2, 100}, {2, 90}} { // revision, time in s
		u.takeSheet(sheetKey{job: "web"}, fmt.Appendf(nil, `{"version": 1, "job": "web", "platform": "cpu", "revision": %d, "wall_nsec": %d, "specs": [{"source": "cpi", "mean": 2}]}`, s[0], int64(s[1])*1e9))
	}
	if want := []uint64{5, 6, 1, 2}; !slices.Equal(told, want) || strings.Count(log.String(), "left aside") != 2 {
		t.Errorf("told of revisions %d, expected %d; %s", told, want, log.String())
	}
}

// What is pushed while an answer to an older question is on its way stands, whatever the answer says: the kill switch, a halted roll-out, and a sheet that
// an operator went back to.
func TestAPushOutrunsAnOlderAnswer(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	hub, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	specs := make(chan uint64, 4)
	overlays := make(chan string, 4)
	u := &Uplink{cfg: Config{URL: srv.ClientURL(), Node: "n"}, node: Node{Platform: "cpu"}, in: make(chan *wire.Batch), wake: make(chan struct{}, 1), notes: openNotes(t.TempDir()+"/heard", "", slog.New(slog.DiscardHandler)), hooks: Hooks{
		Log: slog.New(slog.DiscardHandler), Specs: func(s []model.Spec) { specs <- s[0].Sheet },
		Rollout: func(overlay string, on bool) error { overlays <- fmt.Sprint(overlay, on); return nil },
	}}
	defer u.notes.close()
	if err := u.connect(); err != nil {
		t.Fatal(err)
	}
	defer u.nc.Close()
	u.sheets.want(u, &wire.Batch{Tasks: []wire.Task{{Job: "web"}}})
	if err := u.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	sheetOf := func(revision, wall int) string {
		return fmt.Sprintf(`{"version": 1, "job": "web", "platform": "cpu", "revision": %d, "wall_nsec": %d, "specs": [{"source": "cpi", "mean": 2}]}`, revision, wall)
	}
	rollout := func(halted string) string {
		return fmt.Sprintf(`{"version": 1, "id": "x", "percent": 100, "overlay": "o", "by": "ann", "halted": %q}`, halted)
	}
	for _, x := range []struct {
		bucket, key, old, pushed string
		ask                      func()
		done                     func() bool // what was pushed was taken
		stands                   func() bool
	}{
		{wire.ControlBucket, wire.KeyOff, `{"off": false, "by": "bob", "wall_nsec": 1000}`, `{"off": true, "by": "ann", "wall_nsec": 2000}`, u.askControl, u.Off, u.Off},
		{wire.ControlBucket, wire.KeyRollout, rollout(""), rollout("too many incidents"), u.askControl, func() bool { u.rolling.Lock(); defer u.rolling.Unlock(); return u.rollout.Halted != "" }, func() bool { return len(overlays) == 0 }},
		{wire.SpecBucket, wire.SpecKey("cpu", "web"), sheetOf(5, 600), sheetOf(6, 300), u.fetch, func() bool { return len(specs) > 0 }, func() bool { return len(specs) == 1 && <-specs == 6 }},
	} {
		asked, release := make(chan struct{}), make(chan struct{})
		sub, err := hub.Subscribe("$JS.API.DIRECT.GET.>", func(m *nats.Msg) {
			answer := &nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"404"}}}
			if m.Subject == wire.KVGet(x.bucket, x.key) {
				close(asked)
				<-release
				answer = &nats.Msg{Subject: m.Reply, Data: []byte(x.old)}
			}
			_ = hub.PublishMsg(answer)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := hub.Flush(); err != nil {
			t.Fatal(err)
		}
		heard := make(chan struct{})
		go func() { defer close(heard); x.ask() }()
		<-asked
		if err := hub.Publish(wire.KV(x.bucket, x.key), []byte(x.pushed)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(5 * time.Second); !x.done(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: what is pushed is not taken", x.key)
			}
		}
		close(release)
		<-heard
		if !x.stands() {
			t.Errorf("%s: the answer undid what was pushed", x.key)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}
