package pressure_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// between is a crowd of which one has grown so fast that it was frozen for it, and with it the growth is over: more than low stays available,
// and less than enough.
func between(end string, text *strings.Builder) *world {
	w := crowd(model.ModeEnforce)
	w.params().End, w.params().ReclaimBytes = end, 0
	w.mem[2].grows = 0
	w.Log = text
	w.Chapter("quiet")
	w.run(20)
	w.Chapter("/t2 grows by 1 % a second, and is frozen with 12 % available")
	w.mem[2].bytes += w.free() - 1400*mib
	w.mem[2].grows = 100 * mib
	w.run(20)
	w.mem[2].grows = 0
	return w
}

// TestStaysStory: where more than low and less than enough stays available it is said who is frozen, and after a long time he is let in; longer where
// that was too soon.
func TestStaysStory(t *testing.T) {
	var text strings.Builder
	w := between(policy.EndBatch, &text)
	if share := w.free() / (10_000 * mib); !w.frozen(2) || share < w.params().Low || share > w.params().Enough {
		t.Fatalf("frozen %v with %.3f available", w.frozen(2), share)
	}
	w.run(300)
	if n := w.Count(model.DecideCannotFix); n != 1 || !w.frozen(2) {
		t.Errorf("after five minutes cannot-fix is said %d times, frozen %v", n, w.frozen(2))
	}
	w.run(200)
	if w.frozen(2) {
		t.Error("after eight minutes it is still frozen")
	}
	w.Chapter("it grows again, and stops as it is frozen")
	w.mem[1].bytes -= 200 * mib
	w.mem[2].grows = 100 * mib
	w.run(20)
	w.mem[2].grows = 0
	w.run(500)
	if !w.frozen(2) {
		t.Error("let in too soon, it waits no longer than before")
	}
	w.run(500)
	if w.frozen(2) || len(w.ended) > 0 {
		t.Errorf("after 16 minutes: frozen %v, ended %v", w.frozen(2), w.ended)
	}
	story := enginetest.Story{
		About: "/t1 is a service of 4000 MiB, /t2 best-effort, /t3 batch, /t4 critical, of 10,000 MiB; pressure.end: batch; times since the agent began",
		Want:  []string{"/t2 grows", "freeze      /t2", "cannot-fix  /t2", "may go on", "-> release cgroup.freeze of /t2", "grows again", "freeze      /t2", "-> release cgroup.freeze of /t2"},
		Never: []string{"end         /t", "of /t1:", "freeze      /t4"},
	}
	story.Check(t, "stays", text.String(), *rewrite)
}

// Who is frozen while programs go on waiting for memory, or less than low stays available after the level fell, is told of.
func TestFrozenAndTold(t *testing.T) {
	for name, then := range map[string]func(w *world){
		"programs wait for memory": func(w *world) { w.some = 0.3 },
		"less than low is left": func(w *world) { // one is let in while there is enough, and then there is not
			w.mem[1].bytes = 2000 * mib
			w.run(45)
			w.mem[1].bytes += w.free() - 900*mib
		},
	} {
		w := between(policy.EndNobody, &strings.Builder{})
		w.mem[3].grows, w.mem[3].most = 100*mib, 9000*mib
		w.run(20)
		w.mem[3].grows = 0
		then(w)
		before := w.Count(model.DecideCannotFix)
		w.run(1500)
		if frozen := w.frozen(2) || w.frozen(3); !frozen || w.Count(model.DecideCannotFix) == before {
			t.Errorf("%s: frozen %v, cannot-fix is said %d times", name, frozen, w.Count(model.DecideCannotFix))
		}
	}
}

// told reports whether it was said that a task stays frozen, or that memory stays short.
func (w *world) told() bool {
	return slices.ContainsFunc(w.Said, func(d model.Decision) bool { return d.Kind == model.DecideCannotFix })
}
