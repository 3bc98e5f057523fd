package pressure_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// stuck is a crowd whose service has come to need all but a few per cent of what there is: freezing gives nothing back.
func stuck(mode model.Mode, end string) *world {
	w := crowd(mode)
	w.params().End, w.params().ReclaimBytes = end, 0
	w.mem[2].grows = 0
	w.run(20)
	w.mem[1].bytes += max(0, w.free()-600*mib)
	return w
}

// TestEndStory: who is given up is ended, one after the other, and the others go on.
func TestEndStory(t *testing.T) {
	var text strings.Builder
	w := crowd(model.ModeEnforce)
	w.params().End, w.params().ReclaimBytes = policy.EndBatch, 0
	w.mem[2].grows = 0
	w.Log = &text
	w.Chapter("quiet")
	w.run(20)
	w.Chapter("the service takes all but 6 %, and keeps it")
	w.mem[1].bytes += max(0, w.free()-600*mib)
	w.some = 0.2
	w.run(150)
	w.Chapter("nobody waits any more")
	w.some = 0
	w.run(200)
	w.Chapter("it takes all but 1 % at once")
	w.mem[1].bytes += max(0, w.free()-100*mib)
	w.run(30)
	if !slices.Equal(w.ended, []model.TaskNum{2, 3}) || w.frozen(4) || w.frozen(1) || len(w.killed) > 0 {
		t.Errorf("ended %v, killed %v", w.ended, w.killed)
	}
	story := enginetest.Story{
		About: "/t1 is a service of 4000 MiB, /t2 best-effort, /t3 batch, /t4 critical, of 10,000 MiB; pressure.end: batch; times since the agent began",
		Want: []string{
			"all but 6 %", "freeze      /t2", "freeze      /t3", "end         /t2", "-> run cgroup.kill of /t2: applied",
			"nobody waits", "release     /t3", "-> release cgroup.freeze of /t3: applied, now runs",
			"all but 1 %", "less than the reserve", "-> run cgroup.kill of /t3: applied",
		},
		Never: []string{"cgroup.kill of /t1", "cgroup.kill of /t4"},
	}
	story.Check(t, "end", text.String(), *rewrite)
}

// Nobody is ended that the configuration does not give up, and nobody where the policy only observes; that one would be is said once.
func TestWhoIsGivenUp(t *testing.T) {
	for end, want := range map[string][]model.TaskNum{policy.EndNobody: nil, policy.EndBestEffort: {2}, policy.EndBatch: {2, 3}} {
		w := stuck(model.ModeEnforce, end)
		for range 12 { // however much comes free, the service takes it
			w.some = 0.5
			w.run(30)
			w.mem[1].bytes += max(0, w.free()-600*mib)
		}
		if !slices.Equal(w.ended, want) {
			t.Errorf("%s: ended %v, want %v", end, w.ended, want)
		}
	}
	w := stuck(model.ModeObserve, policy.EndBatch)
	w.some = 0.5
	w.run(300)
	if n := w.Count(model.DecideEnd); len(w.ended) > 0 || n > w.params().AtOnce {
		t.Errorf("observing, %v are ended; said %d times", w.ended, n)
	}
}

// What the kernel refuses is told once, and the next one is asked.
func TestEndRefused(t *testing.T) {
	w := stuck(model.ModeEnforce, policy.EndBatch)
	w.Task(2).Refuse(model.GroupKill, "not permitted")
	w.some = 0.5
	w.run(300)
	if !slices.Equal(w.ended, []model.TaskNum{3}) {
		t.Errorf("ended %v", w.ended)
	}
}
