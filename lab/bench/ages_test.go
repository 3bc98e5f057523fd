package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

func agesText(t *testing.T, a *Ages) string {
	t.Helper()
	var text strings.Builder
	r := &Result{Ages: a}
	r.Goals = goals(r)
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// Where nothing tells ages it is said, and neither a figure nor a goal that is met comes of it.
func TestAgesWithoutSource(t *testing.T) {
	a, err := measureAges(t.Context(), hostfs.NewRoot(t.TempDir()), nil, &Options{})
	if err != nil || a.Source != "" || a.Tasks != goalTasks || a.MiB != idleMiB || !strings.Contains(a.Why, "built without it") {
		t.Fatalf("%+v, %v", a, err)
	}
	if text := agesText(t, a); !strings.Contains(text, "NOT MEASURED") || !strings.Contains(text, "NOTHING TELLS AGES") || strings.Contains(text, "ages of 150 tasks") {
		t.Error(text)
	}
}

// On simulated generations each pass walks every group and hears of what lies idle; the share is by the policy's own interval.
func TestAgesPasses(t *testing.T) {
	const gib = 1 << 30
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore, c.SwapBytes, c.StepNsec = 1, 4, 1, 16*gib, 100e6
	m, err := machine.New(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kernfs.New(m, kernfs.Options{Layout: cgroup.LayoutV2})
	if err != nil {
		t.Fatal(err)
	}
	groups := []string{"/a", "/b"}
	for _, g := range groups {
		if _, err := k.Start(g, machine.TaskConfig{
			Name: g, Threads: 1, CPI: 0.8, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Work: &machine.Work{}, AgedNsec: 3600e9,
			Memory: []machine.Heat{{Bytes: gib, EveryNsec: 3600e9}, {Bytes: gib}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	k.Advance(60e9)
	a, pauses := &Ages{Tasks: len(groups)}, 0
	err = a.passes(t.Context(), k, reclaim.NewLRUGen(k), groups, func() error { return nil }, func() error { pauses++; k.Advance(2e9); return nil })
	if err != nil || pauses != agesPasses || a.Source != "mglru" || a.IdleMiB < 2000 || a.IdleMiB > 2100 {
		t.Fatalf("%d pauses, %+v, %v; two GiB lie idle", pauses, a, err)
	}
	if a.IntervalSec != 3*3600 || !(a.PassMsec.Median > 0) || !(a.CorePercent > 0) {
		t.Errorf("%+v; with swap a walk each three hours in the mean", a)
	}
	a.CorePercent = 0.6
	if text := agesText(t, a); strings.Contains(text, "ages of 2 tasks") {
		t.Errorf("a bound for 150 tasks is judged by 2:\n%s", text)
	}
	a.Tasks = goalTasks
	if text := agesText(t, a); !strings.Contains(text, "mglru") || !strings.Contains(text, "ages of 150 tasks") || strings.Contains(text, "NOT MEASURED") || !strings.Contains(text, "not met") {
		t.Error(text)
	}
	p := coldpages.Defaults()
	for swap, want := range map[bool]time.Duration{true: 3 * time.Hour, false: 90 * time.Minute} {
		if got := agesInterval(p.Ages(), swap); got != want {
			t.Errorf("with swap %t: %v", swap, got)
		}
	}
	if got := agesInterval(model.AskedAges{ShortestNsec: 5e9, LongestNsec: 5e9}, true); got != 5*time.Second {
		t.Errorf("one age alone: %v", got)
	}
}

// The tasks of the measurement are real: each group has a process with as much memory as is said.
func TestIdleTasksOnTheKernel(t *testing.T) {
	st := openStage(t)
	groups, pids, err := startIdle(st, 3, idleMiB)
	if err != nil || len(groups) != 3 || len(pids) != 3 {
		t.Fatalf("%d groups, %d processes, %v", len(groups), len(pids), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := filled(ctx, pids, idleMiB); err != nil {
		t.Fatal(err)
	}
	for i, pid := range pids {
		if rss, _, err := stage.Memory(pid); err != nil || rss > 3*idleMiB {
			t.Errorf("%s has %.0f MiB, %v", groups[i], rss, err)
		}
		if in, err := st.Cgroups().Procs(groups[i]); err != nil || len(in) != 1 || int(in[0]) != pid {
			t.Errorf("in %s are %d, %v; want %d", groups[i], in, err, pid)
		}
	}
}
