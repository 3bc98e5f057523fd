package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// publisher is a hub that has what publishing takes, and does nothing by itself.
func publisher(t *testing.T) *Hub {
	h, err := New(testConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if h.t, err = openTransport(t.Context(), &h.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.t.close)
	if h.store, err = store.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	h.learner = spec.New()
	return h
}

// Sheets go down each once, and none is left behind, also where a hub ends in between; one that an operator has gone back behind meanwhile does not go
// down at all.
func TestSheetsGoDownOnce(t *testing.T) {
	h := publisher(t)
	const jobs = 300
	var old wire.SpecSheet
	for i := range jobs {
		sh := wire.SpecSheet{Version: wire.SheetVersion, Job: fmt.Sprint("job-", i), Platform: "cpu", Revision: 1, Specs: []model.Spec{{Mean: 1, StdDev: 0.1, NumSamples: 10}}}
		h.learner.Adopt(sh)
		h.unsent = append(h.unsent, unsent{spec.KeyOf(&sh), 1, time.Now().UnixNano()})
		old = sh
	}
	if _, err := h.learner.Pin(spec.Key{Job: old.Job, Platform: "cpu"}, old, time.Now().UnixNano()); err != nil {
		t.Fatal(err)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if h.publish(over); len(h.unsent) != jobs || h.published.sheets != 0 {
		t.Errorf("when it was over %d sheets went, %d are left of %d", h.published.sheets, len(h.unsent), jobs)
	}
	h.publish(t.Context())
	if len(h.unsent) > 0 || h.published.sheets != jobs-1 || h.published.publishing <= 0 {
		t.Errorf("%+v, %d left", h.published, len(h.unsent))
	}
	for i := range jobs {
		e, err := h.t.specs.Get(t.Context(), wire.SpecKey("cpu", fmt.Sprint("job-", i)))
		if i == jobs-1 {
			if err == nil {
				t.Error("what was gone back behind is published")
			}
			continue
		}
		var sh wire.SpecSheet
		if err != nil || json.Unmarshal(e.Value(), &sh) != nil || sh.Revision != 1 {
			t.Fatalf("job %d: %v, %+v", i, err, sh)
		}
	}
}

// While sheets wait to be sent other jobs are calculated, and what came of them is not kept any longer; a job whose own sheet waits is not, and is again once that went.
func TestOtherJobsAreCalculatedWhileSheetsWait(t *testing.T) {
	h := publisher(t)
	h.cfg.Spec.MinTasks, h.cfg.Spec.MinSamplesPerTask, h.cfg.Spec.PeriodNsec = 1, 1, 1
	learn := func(job string) {
		h.learner.Add(&h.cfg.Spec, &wire.Batch{Node: "n", Platform: "cpu", Tasks: []wire.Task{{Path: "/a", Job: job}}, Samples: wire.Samples{
			Task: []uint32{0, 0}, CPU: []float32{1, 1}, Flags: []uint32{wire.Usable, wire.Usable}, WallMsec: []int64{1, 2}, Signals: []wire.Signal{{Source: model.SourceCPI, Definition: "d", Values: []float32{1, 2}}},
		}})
	}
	for _, step := range []struct {
		jobs    []string
		publish bool
		waiting int
		kept    map[string]int // nodes of which what came is kept
	}{
		{[]string{"a"}, false, 1, map[string]int{"a": 0}},
		{[]string{"a", "b"}, false, 2, map[string]int{"a": 1, "b": 0}},
		{nil, false, 2, map[string]int{"a": 1, "b": 0}},
		{nil, true, 1, map[string]int{"a": 0, "b": 0}},
		{nil, true, 0, map[string]int{"a": 0, "b": 0}},
	} {
		if step.publish {
			h.publish(t.Context())
		}
		for _, job := range step.jobs {
			learn(job)
		}
		if h.calculate(); len(h.unsent) != step.waiting {
			t.Fatalf("%+v: %d sheets wait", step, len(h.unsent))
		}
		for job, n := range step.kept {
			if j := h.learner.Jobs[spec.Key{Job: job, Platform: "cpu"}]; len(j.Since) != n {
				t.Errorf("%+v: of job %s what %d nodes sent is kept", step, job, len(j.Since))
			}
		}
	}
	h.unsent, h.cfg.Spec.PeriodNsec, h.calculated = make([]unsent, 1), 100e9, time.Unix(1000, 0)
	for after, want := range map[int64]bool{99: false, 100: true} { // beside what waits
		h.calculated = time.Unix(1000, 0)
		if h.calculateOnce(time.Unix(1000+after, 0)); h.calculated.Equal(time.Unix(1000+after, 0)) != want {
			t.Errorf("after %d s of a period of 100: calculated at %v", after, h.calculated)
		}
	}
	h.unsent, h.calculated = nil, time.Unix(1000, 0)
	if h.calculateOnce(time.Unix(1010, 0)); !h.calculated.Equal(time.Unix(1010, 0)) {
		t.Error("nothing waits, and nothing is calculated after a tenth of a period")
	}
	if h.published.sheets != 3 {
		t.Errorf("%d sheets were sent, want two of a and one of b", h.published.sheets)
	}
}
