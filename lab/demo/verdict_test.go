package demo

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/trace"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/outlier"
)

// world is a run that was measured: p99s in milliseconds, waits in milliseconds a second.
type world struct {
	quiet, none, ours, again float64
	late                     float64 // the load generator's lateness, in every row
	holds                    []HoldRow
	stolen                   float64
	outside                  [4]float64 // of quiet, none, ours, again
	batch                    [4]float64
	who                      []string
	blind                    bool    // nobody can tell who delays whom
	cpu                      float64 // of programs outside
	nobody                   string
}

func (w *world) outcome() *Outcome {
	o := &Outcome{Antagonist: "/x/batch-3", Holds: w.holds, Nobody: w.nobody}
	for i, r := range []Row{{Way: wayQuiet, P99: w.quiet}, {Way: wayNone, P99: w.none}, {Way: wayOurs, P99: w.ours}, {Way: wayAgain, P99: w.again}} {
		r.Lateness = w.late
		r.Waits = Waits{Seconds: 14, Foreign: w.outside[i] + w.batch[i] + 20, Outside: w.outside[i], SoftIRQ: 20, Tasks: map[model.TaskNum]float64{3: w.batch[i]}, CPU: w.cpu, Who: w.who}
		if w.blind {
			r.Waits = Waits{CPU: w.cpu}
		}
		o.Rows = append(o.Rows, r)
	}
	o.decide(w.stolen, 2)
	return o
}

var (
	right = HoldRow{Task: "/x/batch-3", Antagonist: true}
	wrong = HoldRow{Task: "/x/batch-1"}
)

// calm is a quiet host on which all went well.
func calm() world {
	return world{
		quiet: 0.2, none: 30, ours: 0.3, again: 0.2, late: 0.1, holds: []HoldRow{right},
		outside: [4]float64{10, 12, 11, 10}, batch: [4]float64{40, 600, 50, 40},
	}
}

// TestVerdict goes through every branch of the verdict, and what comes before what.
func TestVerdict(t *testing.T) {
	loud := [4]float64{700, 900, 800, 700}
	for name, c := range map[string]struct {
		change func(w *world)
		code   int
		says   string
	}{
		"passes":                                        {func(*world) {}, 0, "p99 fell from 30.0 to 0.3 ms"},
		"passes, and the client was late":               {func(w *world) { w.late = 0.5 }, 0, ""},
		"passes where nobody can tell":                  {func(w *world) { w.blind = true }, 0, ""},
		"passes beside a compiler that does not change": {func(w *world) { w.outside = loud }, 0, ""},

		"a bystander as well":                       {func(w *world) { w.holds = append(w.holds, wrong) }, 1, "a bystander was held: /x/batch-1"},
		"a bystander, whatever the host did":        {func(w *world) { w.holds, w.outside, w.stolen = []HoldRow{wrong}, loud, 0.5 }, 1, "batch-1"},
		"a bystander, and no harm":                  {func(w *world) { w.holds, w.none = []HoldRow{wrong}, 0.2 }, 1, "batch-1"},
		"nothing was measured":                      {func(w *world) { w.quiet, w.none, w.ours, w.again = 0, 0, 0, 0 }, 1, "no latency"},
		"not held, on a quiet host":                 {func(w *world) { w.holds, w.nobody = nil, "wait was never above 2" }, 1, "was not held; wait was never above 2"},
		"not held, though p99 fell":                 {func(w *world) { w.holds = nil }, 1, "was not held"},
		"held, and no help":                         {func(w *world) { w.ours = 20 }, 1, "is 20.0 ms, not below half of 30.0 ms"},
		"just not half":                             {func(w *world) { w.ours = 15 }, 1, "not below half"},
		"not held, nobody can tell, host not busy":  {func(w *world) { w.holds, w.blind, w.cpu = nil, true, 0.1 }, 1, "was not held"},
		"not held, and less than half from outside": {func(w *world) { w.holds, w.outside = nil, [4]float64{30, 500, 30, 30} }, 1, "was not held"},

		"no interference":                     {func(w *world) { w.none = 0.39 }, 3, "too little harm"},
		"no interference, and none held":      {func(w *world) { w.none, w.holds = 0.3, nil }, 3, "too little harm"},
		"as loud before":                      {func(w *world) { w.quiet = 20 }, 3, "20.0 and 0.2 ms without the antagonist"},
		"as loud after":                       {func(w *world) { w.again = 16 }, 3, "0.2 and 16.0 ms"},
		"late client":                         {func(w *world) { w.late = 9 }, 3, "late by 9.0 ms"},
		"client late beside ours, no help":    {func(w *world) { w.ours, w.late = 20, 6 }, 3, "late by 6.0 ms"},
		"stolen CPU":                          {func(w *world) { w.stolen = 0.3 }, 3, "the hypervisor took 30 %"},
		"luck: the compiler ended":            {func(w *world) { w.outside = [4]float64{10, 900, 100, 10} }, 3, "less meanwhile"},
		"not held, for a compiler ran":        {func(w *world) { w.holds, w.outside, w.who = nil, loud, []string{"cc1", "go"} }, 3, "(cc1, go) had"},
		"not held, learned beside a compiler": {func(w *world) { w.holds, w.outside[0] = nil, 700 }, 3, `in "quiet (bystanders only)"`},
		"held, no help, for a compiler ran":   {func(w *world) { w.ours, w.outside[2] = 25, 900 }, 3, `in "commensal"`},
		"not held, nobody can tell, busy":     {func(w *world) { w.holds, w.blind, w.cpu = nil, true, 0.9 }, 3, "0.9 of 2 CPUs"},
		"not held, and the room was taken":    {func(w *world) { w.holds, w.cpu = nil, 0.6 }, 3, "0.6 of 2 CPUs"},
		"held, and as quiet as the host is":   {func(w *world) { w.quiet, w.none, w.ours = 10, 25, 14 }, 3, "as low as without it"},
	} {
		w := calm()
		c.change(&w)
		if o := w.outcome(); o.Code != c.code || o.Why == "" || !strings.Contains(o.Why, c.says) {
			t.Errorf("%s: exit %d (%s: %s), want %d", name, o.Code, o.Verdict, o.Why, c.code)
		}
	}
}

// TestBlameTable: every BE task is there with its share and score, held or not, and what nobody may hold.
func TestBlameTable(t *testing.T) {
	w := calm()
	o := w.outcome()
	o.Blame = []BlameRow{
		{Task: "/x/batch-3", Antagonist: true, None: 0.9, Ours: 0.4, Weighed: true, Score: 0.18, Asked: 0.2, Verdict: "below the threshold"},
		{Task: "/x/batch-1", None: 0.02, Verdict: "never a suspect"},
	}
	o.find(wayNone).Waits.Who = []string{"cc1"}
	var b bytes.Buffer
	if err := report.WriteTables(&b, o.blameTable()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"batch-3", "0.18", "0.20", "below the threshold", "batch-1", "never a suspect", "cc1", "steal", "load", "90"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not there:\n%s", want, b.String())
		}
	}
	w.blind = true
	b.Reset()
	if err := report.WriteTables(&b, w.outcome().blameTable()); err != nil || !strings.Contains(b.String(), "does not say who delays whom") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestWaits: what is the client's and the agent's, by their CPU time, is not the host's.
func TestWaits(t *testing.T) {
	const victim = model.TaskNum(1)
	window := func(unmanaged float64) trace.Window {
		return trace.Window{Length: 1, Unmanaged: model.Known(unmanaged), Waiting: []model.Waiting{{Num: victim, Shares: []model.WaitShare{
			{Party: model.WaitTask, Task: 2, Nsec: 500e6}, {Party: model.WaitTask, Task: victim, Nsec: 70e6}, {Party: model.WaitUnmanaged, Process: "cc1", Nsec: 200e6},
			{Party: model.WaitUnmanaged, Process: "client", Nsec: 100e6}, {Party: model.WaitSteal, Nsec: 40e6}, {Party: model.WaitKernel, Nsec: 10e6}, {Party: model.WaitSoftIRQ, Nsec: 50e6},
		}}}}
	}
	w := waits(&trace.Trace{Windows: []trace.Window{window(0.4), window(0.4), window(5)}}, victim, 0.1, []string{"client"}, func(w *trace.Window) bool { return w.Unmanaged.V < 1 })
	if w.Seconds != 2 || w.Foreign != 900 || w.Tasks[2] != 500 || w.Outside != 0.75*300+50 || w.Own != 0.25*300 || w.Steal != 40 || w.SoftIRQ != 50 || len(w.Who) != 1 || w.Who[0] != "cc1" {
		t.Errorf("%+v", w)
	}
	if own := waits(&trace.Trace{Windows: []trace.Window{window(0.05)}}, victim, 0.1, nil, func(*trace.Window) bool { return true }); own.Outside != 50 || own.CPU != 0 {
		t.Errorf("a host with nothing but ours: %+v", own)
	}
	if none := waits(&trace.Trace{Windows: []trace.Window{{Length: 1, Unmanaged: model.Known(1.1)}}}, victim, 0.1, nil, func(*trace.Window) bool { return true }); none.Seconds != 0 || none.CPU != 1 || none.OutsideShare() != 0 {
		t.Errorf("where it cannot be measured: %+v", none)
	}
}

// TestWhyNobody: the agent's own last word while policies were on, or that there was no distress.
func TestWhyNobody(t *testing.T) {
	r := &run{blocks: []Block{{Way: wayNone, StartNsec: 1, EndNsec: 100e9}, {Way: wayOurs, StartNsec: 100e9, EndNsec: 200e9}}}
	window := func(at int64, v float64) trace.Window {
		o := model.TaskObservation{Num: 1}
		o.Signals[model.SourceWait] = model.Known(v)
		return trace.Window{MonoNsec: at, Tasks: []model.TaskObservation{o}}
	}
	spec := model.Decision{Kind: model.DecideSpec, Path: "memcached", Facts: []model.Fact{model.FactThreshold.Is(2)}, Reason: "wait of memcached: 1 +- 0.2"}
	tr := &trace.Trace{Windows: []trace.Window{window(50e9, 9), window(150e9, 9), window(160e9, 1)}}
	if got := r.nobody(tr, 1); !strings.Contains(got, "no spec") {
		t.Error(got)
	}
	tr.Specs = []model.Decision{spec}
	if got := r.nobody(tr, 1); !strings.Contains(got, "wait was above its threshold of 2 in 1 of 2 windows") {
		t.Error(got)
	}
	tr.Decisions = []model.Decision{{Kind: model.DecideSearch, MonoNsec: 50e9, Reason: "while off"}, {Kind: model.DecideSearch, MonoNsec: 150e9, Reason: "nobody stands out"}}
	if got := r.nobody(tr, 1); got != "nobody stands out" {
		t.Error(got)
	}
}

// TestRoundOf: a round that demoted a task and capped it then explains both holds, and a later round neither.
func TestRoundOf(t *testing.T) {
	task := model.TaskNum(3)
	tr := &trace.Trace{Incidents: []*model.Incident{{Rounds: []model.Round{
		{Chosen: &task, AppliedNsec: 90, Threshold: 1}, {Chosen: &task, AppliedNsec: 20, Threshold: 2}, {AppliedNsec: 15},
	}}}}
	for from, want := range map[int64]float64{10: 2, 20: 2, 21: 1} {
		if rd := roundOf(tr, &trace.Hold{Task: task, FromNsec: from}); rd == nil || rd.Threshold != want {
			t.Errorf("hold at %d: %+v", from, rd)
		}
	}
	if rd := roundOf(tr, &trace.Hold{Task: task, FromNsec: 91}); rd != nil {
		t.Errorf("%+v", rd)
	}
}

// TestLearning: while it learns the demo says what it waits for.
func TestLearning(t *testing.T) {
	st := &agent.Status{}
	says := func(want string, known bool) {
		t.Helper()
		if got, ok := learning(st, "/x/memcached"); ok != known || !strings.Contains(got, want) {
			t.Errorf("%q, %v, want %q", got, ok, want)
		}
	}
	says("has not found memcached", false)
	st.Tasks = []agent.TaskStatus{{Task: model.Task{Path: "/x/memcached", Job: "memcached"}, Source: model.SourceWait, Verdict: outlier.BelowFloor}}
	says("below the CPU floor", false)
	st.Tasks[0].Verdict = outlier.NoSpec
	says("more windows of memcached's wait", false)
	st.Specs = []*model.Spec{{Job: "memcached", Source: model.SourceSlowdown}}
	says("more windows of memcached's wait", false)
	st.Specs[0].Source, st.Specs[0].LeftOut, st.Tasks[0].Threshold = model.SourceWait, 3, 2
	says("3 more were noise; above 2 it suffers", true)
}

// TestLength: what is promised is what is played.
func TestLength(t *testing.T) {
	for _, l := range []cgroup.Layout{cgroup.LayoutV2, cgroup.LayoutNone} {
		full, brief := order(l, false), order(l, true)
		if len(full) != 8 || !slices.Equal(brief[:4], full[:4]) || len(brief) != 5 || brief[4] != wayIdle {
			t.Errorf("%v: %q; brief: %q: the verdict's blocks are to be the same, and first", l, full, brief)
		}
	}
	if full, brief := Length(false).Seconds(), Length(true).Seconds(); full < 220 || full > 260 || full-brief != 3*blockTime.Seconds() {
		t.Errorf("%v and %v s", full, brief)
	}
}
