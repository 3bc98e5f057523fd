package kernfs_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// What tasks of the scene are like: a job of services, an antagonist that streams through
// memory in bursts, and a bystander that computes in registers.
func service() machine.TaskConfig {
	return machine.TaskConfig{
		Threads: 4, CPI: 1, APKI: 12, Overlap: 2, WriteShare: 0.2, Spread: 0.04, SpreadNsec: 1e9,
		Curve:    machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{6, 3, 2, 1.5, 1.2, 1}},
		Requests: &machine.Requests{PerSecond: 2000, Instructions: 500e3, Variation: 1},
	}
}

func bystander() machine.TaskConfig {
	return machine.TaskConfig{
		Threads: 2, CPI: 0.8, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Work: &machine.Work{},
	}
}

func antagonist() machine.TaskConfig {
	return machine.TaskConfig{
		Name: "stream", Threads: 12, CPI: 0.6, APKI: 40, Overlap: 10, WriteShare: 0.3,
		Curve: machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{40, 39, 38}},
		Work:  &machine.Work{Phases: []machine.Phase{{Nsec: 8e9, Jitter: 0.2, CPUs: 12}, {Nsec: 4e9, Jitter: 0.2, CPUs: 0.1}}},
	}
}

// rules says what the tasks of the scene are. Their paths sort as they start.
var rules = []match.Rule{
	{Glob: "/a-web-*", Job: "web", Class: model.LC, Production: true},
	{Glob: "/b-registers", Job: "registers", Class: model.BE, Importance: model.BestEffort},
	{Glob: "/c-stream", Job: "stream", Class: model.BE, Importance: model.BestEffort},
}

const noisy = "/c-stream"

// decision is a change that the engine wanted, as it can be compared between two hosts.
type decision struct {
	Second int
	Kind   model.ChangeKind
	Path   string
	Value  model.Setting
	Result model.ResultKind
}

// stage is a machine that an engine watches through a host.
type stage struct {
	host      node.Host
	advance   func(nsec int64)
	start     func(path string, cfg machine.TaskConfig)
	paths     map[model.TaskNum]string
	decisions []decision
	incidents map[string]*model.Incident
	second    int
	results   []model.Result
}

// typed is the scene through the typed seam.
func typed(t *testing.T, m *machine.Machine) *stage {
	h := twin.NewHost(m, true)
	s := &stage{host: h, advance: m.Advance}
	s.start = func(path string, cfg machine.TaskConfig) {
		t.Helper()
		task := model.Task{Path: path}
		for _, r := range rules {
			if ok, _ := filepath.Match(r.Glob, path); ok {
				task.Job, task.Class, task.Importance, task.Production = r.Job, r.Class, r.Importance, r.Production
			}
		}
		if _, err := h.Start(task, cfg); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// throughFiles is the scene on a kernel.
func throughFiles(t *testing.T, k *kernfs.Kernel) *stage {
	return &stage{host: openNode(t, k, filepath.Join(t.TempDir(), "journal")), advance: k.Advance, start: func(path string, cfg machine.TaskConfig) {
		t.Helper()
		if _, err := k.Start(path, cfg); err != nil {
			t.Fatal(err)
		}
	}}
}

func openNode(t *testing.T, k *kernfs.Kernel, path string, more ...func(o *linux.Options)) *linux.Host {
	t.Helper()
	compiled, err := match.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := procstat.ReadBootID(k)
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Create(path, boot)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	o := linux.Options{
		FS: k, Rules: compiled, Journal: j, Counters: true, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Delay: k.Taskstats(), Opener: k.Counters(), Clock: k, Pages: k.PageCalls(), Ender: k.Ender(), Beside: func(work func()) { work() },
	}
	for _, m := range more {
		m(&o)
	}
	h, err := linux.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if missing := h.Missing(); len(missing) > 0 {
		t.Errorf("missing: %q", missing)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() && log.Len() > 0 {
			t.Log(log.String())
		}
	})
	return h
}

func newMachine(t testing.TB, seed uint64) *machine.Machine {
	t.Helper()
	c := machine.Skylake()
	c.Sockets = 1
	m, err := machine.New(c, seed)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newKernel(t testing.TB, m *machine.Machine, layout cgroup.Layout) *kernfs.Kernel {
	t.Helper()
	k, err := kernfs.New(m, kernfs.Options{Layout: layout, PMU: true})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newEngine(t *testing.T) *engine.Engine {
	t.Helper()
	c, ok := config.Defaults(config.ProfileSingleNode)
	if !ok {
		t.Fatal("no profile single-node")
	}
	c.Policies.Mode = model.ModeEnforce
	return engine.New(c.Params("skylake"))
}

// play runs the agent's policies on the stage, one window a second.
func (s *stage) play(t *testing.T, e *engine.Engine, seconds int) {
	t.Helper()
	if s.paths == nil {
		s.paths, s.incidents = map[model.TaskNum]string{}, map[string]*model.Incident{}
	}
	var snap model.Snapshot
	for range seconds {
		if err := s.host.Observe(model.WindowStart|model.WindowEnd, &snap); err != nil {
			t.Fatal(err)
		}
		for _, task := range snap.Added {
			s.paths[task.Num] = task.Path
		}
		s.second++
		in := engine.Input{
			Seq: uint64(s.second), MonoNsec: snap.MonoNsec, WallNsec: snap.WallNsec, Snapshot: &snap,
			Results: s.results, Knobs: s.host.Knobs(nil),
		}
		out := e.Step(&in)
		s.results = node.Do(s.host, out.Changes...)
		for i, c := range out.Changes {
			d := decision{Second: s.second, Kind: c.Kind, Path: s.paths[c.Task()], Value: c.Value}
			if i < len(s.results) {
				d.Result = s.results[i].Kind
			}
			s.decisions = append(s.decisions, d)
		}
		for _, inc := range out.Incidents {
			s.incidents[inc.ID] = inc
		}
		s.advance(1e9)
	}
}

// scene plays it: peace, in which what is normal is learnt, and then the antagonist.
func (s *stage) scene(t *testing.T) {
	t.Helper()
	for i := range 5 {
		s.start(fmt.Sprintf("/a-web-%d", i), service())
	}
	s.start("/b-registers", bystander())
	e := newEngine(t)
	s.play(t, e, 300)
	if len(s.incidents) > 0 {
		t.Errorf("%d incidents on a quiet machine", len(s.incidents))
	}
	s.start(noisy, antagonist())
	s.play(t, e, 600)
}

var layouts = []cgroup.Layout{cgroup.LayoutHybrid, cgroup.LayoutV2}

// The engine finds and holds the antagonist through the kernel's files, the victim
// recovers, and at the end every limit is as it was found.
func TestEngineThroughFiles(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			k := newKernel(t, newMachine(t, 7), layout)
			s := throughFiles(t, k)
			s.scene(t)
			held, recovered := 0, 0
			for _, d := range s.decisions {
				if d.Kind == model.Hold {
					held++
				}
				if d.Path != noisy || d.Result != model.Applied {
					t.Errorf("%+v", d)
				}
			}
			for _, inc := range s.incidents {
				if inc.State == model.Recovered {
					recovered++
				}
			}
			if held == 0 || recovered == 0 {
				t.Errorf("held %d times, %d incidents, %d recovered", held, len(s.incidents), recovered)
			}
			t.Logf("%d decisions, %d incidents, %d recovered", len(s.decisions), len(s.incidents), recovered)
			rep, err := s.host.Restore()
			if err != nil || !rep.Complete() {
				t.Errorf("restore: %+v, %v", rep, err)
			}
			if v := limitOf(t, k, noisy); v != unlimited {
				t.Errorf("the antagonist is left with %s", v)
			}
		})
	}
}

var unlimited = cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}

func limitOf(t *testing.T, k *kernfs.Kernel, path string) cgroup.CPUMax {
	t.Helper()
	v, err := driver(t, k).ReadCPUMax(path)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func driver(t testing.TB, k *kernfs.Kernel) cgroup.Driver {
	t.Helper()
	m, err := cgroup.Discover(k)
	if err != nil {
		t.Fatal(err)
	}
	if m.Layout != k.Layout() {
		t.Fatalf("layout %s", m.Layout)
	}
	d, err := cgroup.Open(k, m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A scenario decides the same through both seams, when both are given the same machine.
func TestBothSeamsDecideTheSame(t *testing.T) {
	want := typed(t, newMachine(t, 7))
	want.scene(t)
	if len(want.decisions) == 0 {
		t.Fatal("the scene decides nothing")
	}
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			got := throughFiles(t, newKernel(t, newMachine(t, 7), layout))
			got.scene(t)
			for i := range max(len(got.decisions), len(want.decisions)) {
				switch {
				case i >= len(got.decisions):
					t.Errorf("%d is missing: %+v", i, want.decisions[i])
				case i >= len(want.decisions):
					t.Errorf("%d is too much: %+v", i, got.decisions[i])
				case got.decisions[i] != want.decisions[i]:
					t.Errorf("%d: %+v, want %+v", i, got.decisions[i], want.decisions[i])
				}
			}
		})
	}
}
