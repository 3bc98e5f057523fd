package files_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/scenarios"
	"github.com/commensal-io/commensal/twin/scenario"
	"github.com/commensal-io/commensal/twin/scenario/files"
)

func parse(t *testing.T, name, text string) *scenario.File {
	t.Helper()
	f, err := scenario.Parse(name+".yaml", []byte(text), scenario.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func library(t *testing.T, name string) *scenario.File {
	t.Helper()
	b, ok := scenarios.Find(name)
	if !ok {
		t.Fatalf("no scenario %s in the library", name)
	}
	return parse(t, name, string(b))
}

// write is what became of a change that the engine wanted, by the task's path: the two
// seams number tasks otherwise.
type write struct {
	nsec       int64
	path       string
	kind       model.ChangeKind
	value      model.Setting
	result     model.ResultKind
	found, now model.Setting
}

// watchedBed is a bed with a witness at its seam.
type watchedBed struct {
	scenario.Bed
	w *witness
}

func (b watchedBed) Assemble(c config.Config, d agent.Deps) (*agent.Core, error) {
	d.Wrap = func(h node.Host) node.Host {
		b.w.Host = h
		return b.w
	}
	return b.Bed.Assemble(c, d)
}

// witness notes what goes through a bed's seam.
type witness struct {
	node.Host
	now    func() int64
	paths  map[model.TaskNum]string
	writes []write
	at     map[uint64]int // of changes without a result
}

func (w *witness) Observe(mark model.WindowMark, snap *model.Snapshot) error {
	err := w.Host.Observe(mark, snap)
	for i := range snap.Added {
		w.paths[snap.Added[i].Num] = snap.Added[i].Path
	}
	return err
}

func (w *witness) Apply(changes []model.Change) {
	for i := range changes {
		c := &changes[i]
		w.at[c.Seq] = len(w.writes)
		w.writes = append(w.writes, write{nsec: w.now(), path: w.paths[c.Task()], kind: c.Kind, value: unnumbered(c.Value)})
	}
	w.Host.Apply(changes)
}

func (w *witness) Results(dst []model.Result) []model.Result {
	had := len(dst)
	dst = w.Host.Results(dst)
	for _, r := range dst[had:] {
		if i, ok := w.at[r.Seq]; ok {
			n := &w.writes[i]
			if n.result, n.found = r.Kind, unnumbered(r.Found); r.Kind != model.Refused { // after that the drivers do not look what stands
				n.now = unnumbered(r.Now)
			}
			delete(w.at, r.Seq)
		}
	}
	return dst
}

// unnumbered is a setting as both seams have it: they number tasks in different orders.
func unnumbered(v model.Setting) model.Setting {
	if v.Knob == model.ServiceClass && model.Alone(model.TaskNum(v.Amount)) != 0 {
		v.Amount = -1
	}
	return v
}

// played is a run with what went through the seam.
type played struct {
	*scenario.Run
	writes []write
}

func play(t *testing.T, p *scenario.Plan, bed scenario.NewBed) played {
	t.Helper()
	var w *witness
	run, err := p.Play(func(p *scenario.Plan, seed uint64) (scenario.Bed, error) {
		b, err := bed(p, seed)
		if err != nil {
			return nil, err
		}
		w = &witness{now: b.Machine().NowNsec, paths: map[model.TaskNum]string{}, at: map[uint64]int{}}
		return watchedBed{b, w}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// What happens in one turn has no order: tasks are numbered in that of the file on one
	// seam, and as they are found on the other.
	slices.SortStableFunc(run.Decisions, func(a, b model.Decision) int {
		return cmp.Or(cmp.Compare(a.MonoNsec, b.MonoNsec), strings.Compare(a.Path, b.Path))
	})
	slices.SortStableFunc(w.writes, func(a, b write) int {
		return cmp.Or(cmp.Compare(a.nsec, b.nsec), strings.Compare(a.path, b.path))
	})
	return played{run, w.writes}
}

// precision is by what part figures may differ. cpu.stat of cgroup v2 counts microseconds,
// one of which is 1e-4 of what a held task uses in a second; figures are made of several.
const precision = 1e-3

func near(a, b float64) bool {
	return a == b || math.Abs(a-b) <= precision*math.Max(math.Abs(a), math.Abs(b))
}

// nearFact compares a fact. A standard error is of figures that a microsecond in a second makes different: of a hardly noisy one that is more than precision.
func nearFact(a, b model.Fact) bool {
	return a.Name == b.Name && (near(a.Value, b.Value) || a.Name == model.FactNoise.String() && math.Abs(a.Value-b.Value) <= 1e-6)
}

// sameDecision compares all but numbers of tasks. A refusal has the same error of the kernel, of which the drivers say more before it, and
// what the kernel called it after it. Who would be blamed by a score below the threshold may be CPU that no task used on one seam alone.
func sameDecision(a, b *model.Decision) bool {
	if a.Kind == model.DecideRefused {
		what, rest, _ := strings.Cut(a.Reason, ": ")
		if !strings.HasPrefix(b.Reason, what+": ") || !strings.Contains(b.Reason+": ", ": "+rest+": ") {
			return false
		}
	} else if unmanaged := "(unmanaged CPU)"; nobodyBlamed(a) && nobodyBlamed(b) && strings.Contains(a.Reason+b.Reason, unmanaged) {
		// the same, but for who came nearest
	} else if a.Reason != b.Reason {
		return false
	}
	return a.MonoNsec == b.MonoNsec && a.WallNsec == b.WallNsec && a.Kind == b.Kind && a.Mode == b.Mode && a.Path == b.Path &&
		a.Incident == b.Incident && slices.EqualFunc(a.Facts, b.Facts, nearFact)
}

// nobodyBlamed reports whether a search, or its end, only says that no suspect is near the threshold.
func nobodyBlamed(d *model.Decision) bool {
	return (d.Kind == model.DecideSearch || d.Kind == model.DecideCannotFix) && strings.HasPrefix(d.Reason, "nobody may be held: the top suspect ") && strings.HasSuffix(d.Reason, ": below the threshold")
}

// sameFigures compares what was measured of a task. A limit that is written anew as it
// stands begins a period on the typed seam and none in files; and each file of a limit that
// is written hands out a fresh quota, of which the typed seam knows one for all.
func sameFigures(a, b *scenario.TaskFigures) bool {
	p, q := *a, *b
	if !near(float64(p.ThrottledPart), float64(q.ThrottledPart)) && p.ThrottledPart.Known() {
		return false
	}
	p.ThrottledPart, q.ThrottledPart = 0, 0
	x, errX := figures(&p)
	y, errY := figures(&q)
	return errX == nil && errY == nil && alike(x, y)
}

func figures(f *scenario.TaskFigures) (v any, err error) {
	b, err := json.Marshal(f)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	return v, err
}

// alike compares JSON values, numbers by their first digits.
func alike(a, b any) bool {
	switch x := a.(type) {
	case float64:
		y, ok := b.(float64)
		return ok && near(x, y)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && len(x) == len(y) && !slices.ContainsFunc(slices.Collect(maps.Keys(x)), func(k string) bool { return !alike(x[k], y[k]) })
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, alike)
	}
	return a == b
}

// incident is what one comes to, in a line.
func incident(i *model.Incident) string {
	s := fmt.Sprintf("%s %s %s opened %d closed %d %s, %d violations, tried %v", i.ID, i.VictimPath, i.Source, i.OpenedNsec, i.ClosedNsec, i.State, i.Violations, i.Tried)
	for k := range i.Rounds {
		r := &i.Rounds[k]
		s += fmt.Sprintf("; at %d %s: %s", r.MonoNsec, r.ChosenPath, r.Verdict)
		for _, m := range r.Members {
			s += " + " + m.Path
		}
	}
	return s
}

// compare reports the first few differences between two lists.
func compare[T any](t *testing.T, what string, want, got []T, same func(a, b *T) bool) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%d %s through files, %d through the typed seam", len(got), what, len(want))
	}
	told := 0
	for i := range min(len(want), len(got)) {
		if !same(&want[i], &got[i]) && told < 3 {
			told++
			t.Errorf("%s %d differ:\ntyped %+v\nfiles %+v", what, i, want[i], got[i])
		}
	}
}

func compareRuns(t *testing.T, want, got played) {
	t.Helper()
	compare(t, "decisions", want.Decisions, got.Decisions, sameDecision)
	compare(t, "writes", want.writes, got.writes, func(a, b *write) bool { return *a == *b })
	compare(t, "incidents", want.Incidents, got.Incidents, func(a, b **model.Incident) bool { return incident(*a) == incident(*b) })
	compare(t, "events", want.Events, got.Events, func(a, b *scenario.StoryEvent) bool { return *a == *b })
	for i := range want.Windows {
		// The same decisions on the same machine: so all that was measured is the same.
		compare(t, "tasks in "+want.Windows[i].Name, want.Windows[i].Tasks, got.Windows[i].Tasks, sameFigures)
	}
	if want.AsFound != got.AsFound || want.Refused != got.Refused {
		t.Errorf("restored %t and %d refused through files, %t and %d through the typed seam", got.AsFound, got.Refused, want.AsFound, want.Refused)
	}
	for _, c := range got.Checks {
		if !c.Passed {
			t.Errorf("through files: %s: %s", c.What, c.Got)
		}
	}
}

var layouts = []cgroup.Layout{cgroup.LayoutV2, cgroup.LayoutHybrid}

// Scenarios decide the same through both seams: when, what, on whom, with which value and
// for what reason; so do what was written and what came of it, and the incidents.
//
//	balm    a class of service for one task, and what services say each second; balm-pages, and its pages
//	bandwidth  what mon_data counts, and levels that are written
//	cache   ways of a class; cache-worse, and that they are given back; cache-exclusive*, the same with a class of services
//	case-2  caps in CPI²'s windows, verification, 41 tasks in groups of one group
//	case-5  rounds against several, who is taken back
//	faults  a stranger, refusals, lost counters, CPUs that go, restart, kill switch, operator
//	group   sets of antagonists
//	io-*    what a scrubber may do on a disk, and a disk that is slow by itself (cgroup v2)
//	memory  swap and page cache; nothing is decided. memory-thrash: memory.reclaim and memory.high (cgroup v2)
//	no-pmu  run-queue slowdown
//	numa    cpusets and pages
//	pressure  memory that runs out: what is taken back, and who is ended (cgroup v2)
//	remedy  ways and levels of one task, verified on the service; remedy-pages, and its pages; remedy-elsewhere, and pages of who runs on the other socket; remedy-wait, and its weight; remedy-core, and its CPUs; remedy-caches, beside several caches of one memory
//	wait-*  who had the CPU
//
// What may differ is what the two seams cannot say alike: the order within a turn, the
// words around a kernel's error, and figures by their last digits (precision). The agent
// looks for new tasks at each reading here; on a real machine it does so every 5 s.
//
// On cgroup v1 the kernel has neither a cgroup's stalls nor io.max: who makes a task wait for its disk or for memory is not known there,
// which the typed seam, which is of v2, says; those scenarios are not played on it.
//
// Not verified: scenarios that turn on less than a tick. The CPU time that belongs to no
// task is the difference of two counters that the kernel rounds, so that it can be the top
// suspect, with nothing to be held, where nobody explains the victim; who it is then is not compared.
func TestBothSeamsDecideTheSame(t *testing.T) {
	calm := []string{"memory", "io-slow-disk"} // nothing is written
	onlyV2 := []string{"io-scrubber", "io-slow-disk", "memory-thrash", "pressure", "pressure-end"}
	for _, name := range []string{"balm", "balm-pages", "bandwidth", "cache", "cache-exclusive", "cache-exclusive-worse", "cache-worse", "case-2", "case-5", "faults", "group", "io-scrubber", "io-slow-disk", "memory", "memory-thrash", "no-pmu", "numa", "pressure", "pressure-end", "remedy", "remedy-caches", "remedy-core", "remedy-elsewhere", "remedy-pages", "remedy-wait", "wait-equal", "wait-rhythm", "wait-steady"} {
		f := library(t, name)
		want := play(t, f.Plans[0], scenario.Typed)
		if !slices.Contains(calm, name) && (len(want.Decisions) == 0 || len(want.writes) == 0) {
			t.Errorf("%s: nothing to compare", name)
		}
		for _, layout := range layouts {
			if layout != cgroup.LayoutV2 && slices.Contains(onlyV2, name) {
				continue
			}
			t.Run(name+"/"+layout.String(), func(t *testing.T) {
				compareRuns(t, want, play(t, f.Plans[0], files.Bed(files.Options{Layout: layout})))
			})
		}
	}
}
