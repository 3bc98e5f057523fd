package record

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/model"
)

// TestFindTask: of a record of an earlier version too, every policy says what it did to a
// task, whoever else decided is told apart, and the end of the record can be had alone.
func TestFindTask(t *testing.T) {
	const caps, places = "testdata/v2/caps.crec", "testdata/v2/places.crec"
	of := func(file, task string, since time.Duration) *TaskStory {
		t.Helper()
		st, err := FindTask(file, task, since)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	by := func(st *TaskStory, name string) *PolicyStory {
		t.Helper()
		for i := range st.Policies {
			if st.Policies[i].Policy == name {
				return &st.Policies[i]
			}
		}
		t.Fatalf("nothing of %s: %+v", name, st.Policies)
		return nil
	}
	web := of(caps, "/lc/web0-0", 0)
	if web.Task.Job != "web0" || web.Task.Class != model.LC || web.FromNsec == 0 || web.UntilNsec-web.FromNsec < 60e9 {
		t.Errorf("%+v", web)
	}
	for i, name := range []string{"hard_cap", "cpuset", "cpu_pool", "burst"} {
		if web.Policies[i].Policy != name || web.Policies[i].Mode == "" {
			t.Errorf("policy %d: %+v, expected %s", i, web.Policies[i], name)
		}
	}
	if p := by(web, "cpuset"); p.Mode != "off" || len(p.Decisions) != 0 {
		t.Errorf("%+v", p)
	}
	if p := by(web, "burst"); len(p.Decisions) != 3 || p.Decisions[1].Kind != model.DecideRaise {
		t.Errorf("%+v", p)
	}
	if p := by(web, "operators"); len(p.Decisions) != 1 || len(p.Node) == 0 {
		t.Errorf("%+v", p)
	}
	if len(web.Incidents) != 4 || web.Incidents[0].Part != "victim" || web.Incidents[0].WallNsec > web.Incidents[3].WallNsec {
		t.Errorf("%+v", web.Incidents)
	}
	suspect := of(caps, "/be/scrap-1", 0)
	if len(suspect.Incidents) != 3 || suspect.Incidents[0].Part != "suspect" || suspect.Incidents[0].Score < 0.4 {
		t.Errorf("%+v", suspect.Incidents)
	}
	if p := by(suspect, "kernel"); len(p.Decisions) == 0 || p.Decisions[0].Kind != model.DecideRefused {
		t.Errorf("%+v", p)
	}
	if late := of(caps, "/lc/web0-0", 10*time.Second); len(late.Incidents) != 1 || len(by(late, "detection").Decisions) != 1 || late.UntilNsec-late.FromNsec != 10e9 {
		t.Errorf("the last ten seconds: %+v", late)
	}
	placed := of(places, "/be/scrap-1", 0)
	if len(placed.Writes) == 0 || placed.Writes[0].Now.Knob != model.CPUPlace {
		t.Errorf("writes: %+v", placed.Writes)
	}
	if p := by(placed, "cpuset"); len(p.Node) == 0 || !strings.Contains(p.Node[0].Reason, "divided") {
		t.Errorf("%+v", p)
	}
	if !of(places, "/lc/web0-0", 0).Ended {
		t.Error("a task that went is not said to be gone")
	}
	if _, err := FindTask(caps, "/no/such", 0); !errors.Is(err, ErrNoTask) {
		t.Errorf("an unknown task: %v", err)
	}
}
