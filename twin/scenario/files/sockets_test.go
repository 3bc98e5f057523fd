package files_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/scenarios"
	"github.com/commensal-io/commensal/twin/scenario"
	"github.com/commensal-io/commensal/twin/scenario/files"
)

// On four sockets, on the second of which the scene of balm-pages is, who fills the memory has less of it until its pages are on the others, and the target holds, through both seams. The CPUs of the
// last socket are offline at first, and for a while later: no level is asked for there and no page goes there meanwhile.
func TestFourSockets(t *testing.T) {
	b, ok := scenarios.Find("balm-pages")
	if !ok {
		t.Fatal("no scenario balm-pages in the library")
	}
	text := string(b)
	for _, r := range [][2]string{
		{"sockets: 2", "sockets: 4"}, {"pages: [1, 0]", "pages: [0, 1]"}, {"cpus: 0-3", "cpus: 24-27"}, {"cpus: 4-15", "cpus: 28-39"}, {"cpus: 16-17", "cpus: 40-41"}, {"cpus: 18-20", "cpus: 42-44"}, {"cpus: 21-23", "cpus: 45-47"},
	} {
		if !strings.Contains(text, r[0]) {
			t.Fatalf("balm-pages has no %q any more", r[0])
		}
		text = strings.ReplaceAll(text, r[0], r[1])
	}
	text = strings.Replace(text, "timeline:\n", "timeline:\n  - {at: 5s, offline: 72-95}\n  - {at: 8m, online: 72-95}\n", 1)
	f := parse(t, "four-sockets", text)
	want := play(t, f.Plans[0], scenario.Typed)
	for _, c := range want.Checks {
		if !c.Passed {
			t.Errorf("%s: got %s", c.What, c.Got)
		}
	}
	moved := 0
	for _, d := range want.Decisions {
		if d.Kind != model.DecidePages {
			continue
		}
		if moved++; !strings.Contains(d.Reason, "memory of nodes 1,") {
			t.Errorf("pages leave another memory: %s", d.Reason)
		}
	}
	if moved == 0 {
		t.Error("no pages moved")
	}
	for _, w := range want.writes {
		if w.result == model.Refused {
			t.Errorf("refused: %+v", w)
		}
	}
	compareRuns(t, want, play(t, f.Plans[0], files.Bed(files.Options{Layout: cgroup.LayoutV2})))
}
