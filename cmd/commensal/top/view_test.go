package top

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/policy/outlier"
	"github.com/commensal-io/commensal/slo"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

var now = time.Date(2026, 3, 1, 14, 40, 5, 0, time.UTC)

// sample is a node at work: a victim, a capped antagonist, a raised service, a knob that a
// stranger wrote.
func sample() *agent.Status {
	set := func(text string) model.CPUSet {
		s, err := model.ParseCPUSet(text)
		if err != nil {
			panic(err)
		}
		return s
	}
	at := int64(100e9)
	task := func(n int, path string, class model.Class, cpu, delay, throttled, signal, limit float64, verdict outlier.Verdict) agent.TaskStatus {
		return agent.TaskStatus{
			Task: model.Task{Num: model.TaskNum(n), Path: path, Job: "job", Class: class}, CPU: model.Known(cpu), Raw: model.Measures{model.SourceSlowdown: model.Known(delay)},
			Throttled: model.Known(throttled), Source: model.SourceSlowdown, Signal: model.Known(signal), Threshold: limit, Verdict: verdict,
		}
	}
	st := &agent.Status{
		Version: "1.2.0", Profile: "single-node", Mode: "enforce", ModeNow: "enforce", StartedAt: now.Add(-3*time.Hour - 12*time.Minute),
		Node: agent.NodeStatus{
			CPUs: 8, Busy: model.Known(5.21), Steal: model.Known(0.12), LC: 1.42, BE: 3.44, Other: model.Known(0.35),
			Pool: agent.PoolStatus{Utilisation: model.Known(0.41), Limit: 0.45, CPUs: set("0-3")},
		},
		Policies: []agent.PolicyStatus{
			{Name: "hard_cap", Mode: model.ModeEnforce, Now: model.ModeEnforce}, {Name: "cpuset", Mode: model.ModeEnforce, Now: model.ModeEnforce, Note: "LC 0-3, BE 4-7"},
			{Name: "cpu_pool", Mode: model.ModeEnforce, Now: model.ModeEnforce}, {Name: "burst", Mode: model.ModeObserve, Now: model.ModeObserve},
		},
		SLO: []agent.SLOStatus{{Job: "web", State: slo.StateOK, P99: 0.00213}},
		Tasks: []agent.TaskStatus{
			task(1, "/services/web", model.LC, 0.92, 2.61, 0, 2.43, 1.31, outlier.Outlier),
			task(2, "/services/api", model.LC, 0.5, 1.08, 0.12, 1.02, 1.2, outlier.OwnThrottling),
			task(3, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3fd5cf60_8c0a_4e0f_9c3a.slice/cri-containerd-77d1e2.scope", model.BE, 2.4, 1.01, 0.004, 1.01, 0, outlier.NoSpec),
			task(4, "/batch/räuber-日本語", model.BE, 0.1, 8.02, 0.93, 7.7, 0, outlier.OwnThrottling),
			task(5, "/batch/evil\x1b[2J\x07", model.BE, 0.94, 1, 0, 1, 1.5, outlier.Good),
			task(6, "/system.slice/cron.service", model.System, 0, 1, 0, 1, 0, outlier.BelowFloor),
		},
		Incidents: []*model.Incident{
			{ID: "t1-1", VictimPath: "/services/api", Source: model.SourceSlowdown, Signal: 1.9, Threshold: 1.2, State: model.CannotFix, Evidence: "nobody correlates"},
			{ID: "t1-2", VictimPath: "/services/web", Source: model.SourceSlowdown, Signal: 2.43, Threshold: 1.31, State: model.Verifying,
				Rounds: []model.Round{{ChosenPath: "/batch/räuber-日本語"}}},
		},
	}
	st.Tasks[3].Importance = model.BestEffort
	st.Tasks[2].Throttled = model.Missing(model.Unavailable)
	st.Tasks[5].Signal, st.Tasks[5].CPU = model.Missing(model.Absent), model.Missing(model.Fresh)
	st.Tasks[0].Source, st.Tasks[0].Exclusive = model.SourceCPI, true
	st.Held = []agent.HeldStatus{
		{Path: "/batch/räuber-日本語", State: engine.KnobHeld, Cap: 0.1, NowNsec: at, Found: model.Bandwidth(model.CPUMax{QuotaUsec: 200000, PeriodUsec: 100000}),
			Claims: []model.Claim{{Cap: 0.1, ExpiresNsec: at + 42e9, Reason: "correlation 0.46 with /services/web", Incident: "t1-2", Policy: model.PolicyHardcap, Owner: model.OwnerPolicy}}},
		{Path: "/services/api", State: engine.KnobHeld, NowNsec: at, Found: model.Bandwidth(model.CPUMax{QuotaUsec: 200000, PeriodUsec: 100000}),
			Claims: []model.Claim{{Kind: model.ClaimRaise, Policy: "cpu_pool", ExpiresNsec: at + 12e9, Reason: "throttled in 12 % of its periods", Owner: model.OwnerPolicy, Value: model.Bandwidth(model.CPUMax{QuotaUsec: 240000, BurstUsec: 240000})}}},
		{Path: "/services/api", Knob: model.CPUPlace, State: engine.KnobHeld, NowNsec: at, Written: model.Place(set("0-3")),
			Claims: []model.Claim{{Kind: model.ClaimPlace, Policy: "cpuset", Owner: model.OwnerPolicy}}},
		{Path: "/batch/evil\x1b[2J\x07", State: engine.KnobVoid, Why: "found no quota where we had written quota 10000 us"},
	}
	return st
}

// many is a node with 150 tasks.
func many() *agent.Status {
	st := sample()
	st.Tasks, st.Held, st.Incidents = nil, nil, nil
	for i := range 150 {
		st.Tasks = append(st.Tasks, agent.TaskStatus{
			Task: model.Task{Num: model.TaskNum(i), Path: fmt.Sprintf("/batch/job-%03d", i), Class: model.BE}, CPU: model.Known(float64(i%7) / 10),
			Raw: model.Measures{model.SourceSlowdown: model.Known(1)}, Throttled: model.Known(0), Source: model.SourceSlowdown, Signal: model.Known(1 + float64(i%10)/10), Verdict: outlier.NoSpec,
		})
	}
	return st
}

// aged is sample where ages of some tasks' pages were read: of a service, of one whose use was not known then, and of batch work.
func aged() *agent.Status {
	st := sample()
	st.Policies = append(st.Policies, agent.PolicyStatus{Name: model.PolicyColdPages, Mode: model.ModeObserve, Now: model.ModeObserve})
	const mib = 1 << 20
	for _, c := range []struct {
		task       int
		inUse      float64
		anon, file uint64 // of the youngest edge; the older ones have a twelfth less each
		most       int    // the first edge that nothing reaches
	}{{0, 8192, 6000, 1200, model.NumAgeEdges}, {1, 0, 120, 240, 9}, {2, 40960, 96, 30000, 8}} {
		i := &coldpages.Idle{InUse: c.inUse * mib, Anon: int64(c.anon/3) * mib, File: int64(c.file/2) * mib}
		for k := range c.most {
			left := uint64(model.NumAgeEdges-k) * mib / uint64(model.NumAgeEdges)
			i.Ages.Anon[k], i.Ages.File[k] = c.anon*left, c.file*left
		}
		st.Tasks[c.task].Idle = i
	}
	return st
}

// untold is aged where no ages are told.
func untold(why string) *agent.Status {
	st := aged()
	for i := range st.Tasks {
		st.Tasks[i].Idle = nil
	}
	st.Node.NoAges = why
	return st
}

func golden(t *testing.T, name string, f Frame) {
	t.Helper()
	var b strings.Builder
	for _, l := range f.Lines {
		b.WriteString(l.String() + "\n")
	}
	path := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got; -rewrite writes it anew):\n%s", name, diff)
	}
}

func TestGolden(t *testing.T) {
	troubled := sample()
	troubled.KillSwitch, troubled.ProtectOff = true, []string{""}
	troubled.Warnings = []string{"first", "the record cannot be written: no space left on device"}
	troubled.Policies[0].Now = model.ModeObserve
	const why = "no multi-generational LRU: the kernel is built without it (CONFIG_LRU_GEN): open /sys/kernel/mm/lru_gen/enabled: no such file or directory"
	guests := aged()
	guests.Node.NoAges = "the multi-generational LRU is switched off"
	for _, c := range []struct {
		name string
		v    View
	}{
		{"80x24", View{Status: sample(), Columns: 80, Rows: 24, UTF8: true}},
		{"80x24-ascii-by-signal", View{Status: sample(), Columns: 80, Rows: 24, Sort: SortSignal}},
		{"120x40-by-name", View{Status: sample(), Columns: 120, Rows: 40, Sort: SortName, UTF8: true}},
		{"40x10", View{Status: sample(), Columns: 40, Rows: 10, UTF8: true}},
		{"20x5", View{Status: sample(), Columns: 20, Rows: 5, UTF8: true}},
		{"80x24-empty", View{Status: &agent.Status{Version: "1.2.0", Profile: "cpi2", StartedAt: now}, Columns: 80, Rows: 24}},
		{"80x24-many-throttled-offset", View{Status: many(), Columns: 80, Rows: 24, Sort: SortThrottled, Offset: 20}},
		{"80x24-many-end", View{Status: many(), Columns: 80, Rows: 24, Sort: SortName, Offset: 1000}},
		{"80x24-troubled", View{Status: troubled, Columns: 80, Rows: 24, Sort: SortThrottled, Lost: "no agent is listening at /run/commensal/agent.sock: connect: connection refused", LostSince: now.Add(-12 * time.Second)}},
		{"80x24-waiting", View{Columns: 80, Rows: 24, Lost: "no agent is listening"}},
		{"batch", View{Status: sample(), Batch: true, UTF8: true}},
		{"80x24-ages", View{Status: aged(), Columns: 80, Rows: 24, UTF8: true, Ages: true}},
		{"80x24-ages-none", View{Status: untold(why), Columns: 80, Rows: 24, UTF8: true, Ages: true}},
		{"120x40-ages-by-idle", View{Status: guests, Columns: 120, Rows: 40, Sort: SortIdle, UTF8: true, Ages: true}},
		{"40x10-ages", View{Status: aged(), Columns: 40, Rows: 10, UTF8: true, Ages: true, Offset: 1}},
		{"batch-ages", View{Status: aged(), Batch: true, UTF8: true, Ages: true}},
	} {
		c.v.Now = now
		if c.v.Sort == 0 {
			c.v.Sort = SortCPU
		}
		golden(t, c.name, Render(&c.v))
	}
}

// No size, offset or value makes a line wider or a screen taller than it is, and nothing
// that a terminal would obey comes through.
func TestRenderFits(t *testing.T) {
	odd := sample()
	for i, x := range []float64{math.NaN(), math.Inf(1), -1, 1e300, 0, math.Inf(-1)} {
		odd.Tasks[i].CPU, odd.Tasks[i].Throttled, odd.Tasks[i].Signal, odd.Tasks[i].Raw[model.SourceSlowdown] = model.Known(x), model.Known(x), model.Known(x), model.Known(x)
		odd.Tasks[i].Threshold = x
	}
	odd.Incidents[0].Signal = math.Inf(1)
	odd.Tasks[0].Idle = &coldpages.Idle{InUse: 1, Anon: math.MaxInt64, File: math.MinInt64}
	odd.Tasks[0].Idle.Ages.Anon[0] = math.MaxUint64
	for _, st := range []*agent.Status{nil, {}, sample(), odd, many(), aged(), untold("why\x1b")} {
		for columns := range 170 {
			for _, rows := range []int{0, 1, 2, 3, 5, 8, 11, 17, 19, 24, 60, 200} {
				for _, by := range Sorts {
					v := View{Status: st, Now: now, Columns: columns, Rows: rows, Sort: by, Offset: columns*7 - 20, UTF8: columns%2 == 0, Ages: (columns+rows)%3 == 0 || by == SortIdle, Lost: "lost\x1b"}
					f := Render(&v)
					if len(f.Lines) > rows {
						t.Fatalf("%dx%d: %d lines", columns, rows, len(f.Lines))
					}
					if f.Offset < 0 || f.Shown < 0 {
						t.Fatalf("%dx%d: %+v", columns, rows, f)
					}
					for _, l := range f.Lines {
						if w := width(l.String()); w > columns {
							t.Fatalf("%dx%d: %d columns: %q", columns, rows, w, l)
						}
						if strings.ContainsFunc(l.String(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
							t.Fatalf("%dx%d: a control character: %q", columns, rows, l)
						}
					}
				}
			}
		}
	}
}

func TestElide(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"/a/b", 10, "/a/b"}, {"/services/web/very-long-name-1", 14, "/ser..g-name-1"}, {"/batch/日本語日本語", 10, "/b..日本語"},
		{"/abcdef", 4, "/abc"}, {"/abcdef", 0, ""}, {"/abcdef", -1, ""}, {"日本", 1, ""},
	} {
		if got := elide(c.in, c.n); got != c.want || width(got) > max(c.n, 0) {
			t.Errorf("elide(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("/batch/räuber-日本語\x1b[2J", 12)
	f.Add("e\u0301\u202e\xff", 1)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n %= 300
		for _, utf8 := range []bool{true, false} {
			c := cli.Clean(s, utf8)
			for _, got := range []string{elide(c, n), shorten(c, n), cut(c, max(n, 0)), cutFront(c, max(n, 0))} {
				if width(got) > max(n, 0) {
					t.Errorf("%q is wider than %d", got, n)
				}
			}
			for _, r := range c {
				if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || (!utf8 && r > '~') {
					t.Errorf("%q has %q", c, r)
				}
			}
		}
	})
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte("q\x1b[A\x1b[5~\x1bOB\x1b"))
	f.Add([]byte("\x1b[1;5C\x1b\x1b[\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, rest := parseKeys(data)
		if len(rest) > maxSequence+1 {
			t.Errorf("%d bytes are left", len(rest))
		}
		// In two pieces it is the same.
		for i := range data {
			a, left := parseKeys(data[:i])
			b, _ := parseKeys(append(append([]byte{}, left...), data[i:]...))
			if diff := cmp.Diff(all, append(a, b...)); diff != "" && len(all)+len(a)+len(b) > 0 {
				t.Errorf("cut at %d: %s", i, diff)
			}
		}
	})
}

func TestParseKeys(t *testing.T) {
	for in, want := range map[string][]key{
		"qcstnia": {keyQuit, keyCPU, keySignal, keyThrottled, keyName, keyIdle, keyAges}, "\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[4~": {keyUp, keyDown, keyPageUp, keyPageDown, keyHome, keyEnd},
		"\x03": {keyQuit}, "\x1bq": {keyQuit}, "\x1b[1;5Cq": {keyQuit}, "x\x1b[": nil, "\x1b[999q": nil, "": nil,
	} {
		if got, _ := parseKeys([]byte(in)); !cmp.Equal(got, want) {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

func BenchmarkRender150(b *testing.B) {
	v := View{Status: many(), Now: now, Columns: 80, Rows: 24, Sort: SortCPU}
	for b.Loop() {
		Render(&v)
	}
}

// BenchmarkStatus150 is what each reading costs the agent and the view beside the engine's
// loop: 150 tasks, all placed, with as many incidents as an agent keeps.
func BenchmarkStatus150(b *testing.B) {
	st := many()
	for i := range st.Tasks {
		st.Held = append(st.Held, agent.HeldStatus{Path: st.Tasks[i].Path, Knob: model.CPUPlace, State: engine.KnobHeld, Claims: []model.Claim{{Kind: model.ClaimPlace, Policy: "cpuset", Reason: "BE has the cores 4-7"}}})
		st.Specs = append(st.Specs, &model.Spec{Job: st.Tasks[i].Path})
	}
	for i := range 50 {
		inc := &model.Incident{ID: fmt.Sprint(i), VictimPath: "/services/web", Rounds: make([]model.Round, 3)}
		for j := range inc.Rounds {
			inc.Rounds[j].Suspects = make([]model.Suspect, 10)
		}
		st.Incidents = append(st.Incidents, inc)
	}
	data, err := json.Marshal(st)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := json.Marshal(st); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			var got agent.Status
			if err := json.Unmarshal(data, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What resctrl counts of tasks has its columns where it counts any, with new where that has just begun.
func TestCountedColumns(t *testing.T) {
	st := sample()
	v := View{Status: st, Now: now, Columns: 120, Rows: 40, Sort: SortName, UTF8: true}
	text := func() (all string) {
		for _, l := range Render(&v).Lines {
			all += l.String() + "\n"
		}
		return all
	}
	if strings.Contains(text(), cacheColumn) {
		t.Errorf("nobody is counted:\n%s", text())
	}
	st.Tasks[0].Domains = []model.DomainObservation{
		{Occupancy: model.Known(12 << 20), Total: model.Known(2e9)}, {Domain: 1, Occupancy: model.Known(1 << 19), Total: model.Missing(model.Fresh)},
	}
	if got := text(); !strings.Contains(got, cacheColumn) || !strings.Contains(got, "   12.5      new") {
		t.Errorf("a task has 12.5 MiB:\n%s", got)
	}
}
