package soak

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/policy/hardcap"
)

// brokenHost is a host that does one thing otherwise than it should.
type brokenHost struct {
	node.Host
	w *world

	observe func(snap *model.Snapshot)
	apply   func(changes []model.Change) []model.Change // what is really done
	result  func(r *model.Result)
	restore func() (node.Report, error)
	knobs   func(dst []model.KnobReading) []model.KnobReading
	step    func() // at the end of each turn
}

func (b *brokenHost) Observe(mark model.WindowMark, snap *model.Snapshot) error {
	err := b.Host.Observe(mark, snap)
	if b.observe != nil && err == nil {
		b.observe(snap)
	}
	return err
}

func (b *brokenHost) Knobs(dst []model.KnobReading) []model.KnobReading {
	dst = b.Host.Knobs(dst)
	if b.knobs != nil {
		dst = b.knobs(dst)
	}
	return dst
}

func (b *brokenHost) Apply(changes []model.Change) {
	if b.apply != nil {
		changes = b.apply(changes)
	}
	b.Host.Apply(changes)
	if b.step != nil {
		b.step()
	}
}

func (b *brokenHost) Results(dst []model.Result) []model.Result {
	dst = b.Host.Results(dst)
	for i := range dst {
		if b.result != nil {
			b.result(&dst[i])
		}
	}
	return dst
}

func (b *brokenHost) Restore() (node.Report, error) {
	if b.restore != nil {
		return b.restore()
	}
	return b.Host.Restore()
}

// spoilt is a disk on which a byte of some writes is not what was written.
type spoilt struct {
	journal.Disk
	when func(b []byte) bool
}

type spoiltFile struct {
	journal.File
	when func(b []byte) bool
}

func (d spoilt) Create(path string) (journal.File, error) {
	f, err := d.Disk.Create(path)
	return spoiltFile{f, d.when}, err
}

func (f spoiltFile) WriteAt(b []byte, off int64) (int, error) {
	if f.when(b) {
		b = slices.Clone(b)
		b[0] ^= 1 // of the checksum
	}
	return f.File.WriteAt(b, off)
}

// TestCheckersFire: each invariant is broken on purpose, and the checker that is for it
// says so in some seed.
func TestCheckersFire(t *testing.T) {
	// write writes the limit of the first group of a class.
	write := func(w *world, class model.Class) {
		for _, g := range w.witness.list {
			if g.class == class && g.path != "/" && (class == model.System || g.task != "") {
				name := "/cpu.max"
				if w.plan.layout != cgroup.LayoutV2 {
					name = "/cpu.cfs_quota_us"
				}
				_ = w.life.owner.FS(w.k).WriteFile(w.witness.mounts[model.CPUBandwidth]+g.path+name, []byte(w.plan.strangerTexts()[1])) // what the kernel refuses was tried
				return
			}
		}
	}
	for _, tc := range []struct {
		check string
		how   string
		spoil func(w *world, b *brokenHost)
	}{
		{checkKnown, "the host writes a group of no BE task", func(w *world, b *brokenHost) {
			b.step = func() { write(w, model.System) }
		}},
		{checkLC, "the host lowers an LC task's limit", func(w *world, b *brokenHost) {
			b.step = func() { write(w, model.LC) }
		}},
		{checkApart, "BE tasks are placed on all CPUs", func(w *world, b *brokenHost) {
			b.apply = func(cs []model.Change) []model.Change {
				cs = slices.Clone(cs)
				for i := range cs {
					t := w.life.Engine.State.Tasks.Get(cs[i].Task())
					if t != nil && t.Class == model.BE && cs[i].Kind == model.Set && cs[i].Value.Knob == model.CPUPlace {
						cs[i].Value.CPUs = w.witness.possible()
					}
				}
				return cs
			}
		}},
		{checkEmpty, "the host empties cpusets", func(w *world, b *brokenHost) {
			b.step = func() {
				for _, g := range w.witness.list {
					if g.class == model.BE {
						_ = w.life.owner.FS(w.k).WriteFile(w.witness.mounts[model.CPUPlace]+g.path+"/cpuset.cpus", []byte("\n")) // one with processes is refused
					}
				}
			}
		}},
		{checkJournal, "the host writes without the journal", func(w *world, b *brokenHost) {
			b.step = func() { write(w, model.BE) }
		}},
		{checkExpiry, "releases are not done, and reported as done", func(_ *world, b *brokenHost) {
			b.apply = func(cs []model.Change) []model.Change {
				return slices.DeleteFunc(slices.Clone(cs), func(c model.Change) bool { return c.Kind == model.Release })
			}
		}},
		{checkRestored, "the last restore does nothing", func(w *world, b *brokenHost) {
			b.restore = func() (node.Report, error) {
				w.mutate.noGuardian = true
				return node.Report{}, nil
			}
		}},
		{checkRestored, "the last restore fails, and does nothing", func(w *world, b *brokenHost) {
			b.restore = func() (node.Report, error) {
				w.mutate.noGuardian = true
				return node.Report{}, errors.New("no reason")
			}
		}},
		{checkRestored, "guardians do nothing", func(w *world, _ *brokenHost) {
			w.mutate.guard = func() (node.Report, error) { return node.Report{}, nil }
		}},
		{checkStorm, "a claim is written at each turn", func(w *world, b *brokenHost) {
			b.step = func() {
				if held := w.heldGroups(model.CPUBandwidth); len(held) > 0 {
					name := "/cpu.max.burst"
					if w.plan.layout != cgroup.LayoutV2 {
						name = "/cpu.cfs_burst_us"
					}
					_ = w.life.owner.FS(w.k).WriteFile(w.witness.mounts[model.CPUBandwidth]+held[0].path+name, []byte("0"))
				}
			}
		}},
		{checkMadeUp, "readings of held knobs are wrong", func(_ *world, b *brokenHost) {
			b.knobs = func(dst []model.KnobReading) []model.KnobReading {
				for i := range dst {
					dst[i].Value.QuotaUsec = 777_000
				}
				return dst
			}
		}},
		{checkMadeUp, "readings are wrong once a stranger was there: his one write is reported again and again", func(w *world, b *brokenHost) {
			b.knobs = func(dst []model.KnobReading) []model.KnobReading {
				for i := range dst {
					if w.inj.Counts()["foreign"] > 3 {
						dst[i].Value.QuotaUsec = 777_000
					}
				}
				return dst
			}
		}},
		{checkStranger, "a stranger's limit is written over", func(w *world, b *brokenHost) {
			b.step = func() {
				for _, g := range w.witness.list {
					if len(g.knobs[model.CPUBandwidth].wild) > 0 {
						name, text := "/cpu.max", "70000 100000"
						if w.plan.layout != cgroup.LayoutV2 {
							name, text = "/cpu.cfs_quota_us", "70000"
						}
						_ = w.life.owner.FS(w.k).WriteFile(w.witness.mounts[model.CPUBandwidth]+g.path+name, []byte(text))
					}
				}
			}
		}},
		{checkSwitch, "a claim is made in spite of the kill switch", func(w *world, b *brokenHost) {
			b.step = func() {
				s := w.life.Engine.State
				if w.killSwitch && len(s.Tasks.Tasks) > 0 {
					s.Ledger.Claim(model.Claim{Target: model.OfTask(s.Tasks.Tasks[0].Num), Cap: 1, Owner: model.OwnerOperator, ExpiresNsec: math.MaxInt64}, engine.Limits{MaxHeldTasks: 9, MaxBETaken: 1}, 1)
				}
			}
		}},
		{checkSwitch, "the ledger is empty, and the kernel is not", func(w *world, b *brokenHost) {
			b.apply = func(cs []model.Change) []model.Change {
				return slices.DeleteFunc(slices.Clone(cs), func(c model.Change) bool { return w.killSwitch && c.Kind == model.Release })
			}
		}},
		{checkSwitch, "pages go on in spite of the kill switch", func(w *world, b *brokenHost) {
			b.apply = func(cs []model.Change) []model.Change {
				if slices.ContainsFunc(cs, func(c model.Change) bool { return c.Kind == model.Run && c.Value.Knob == model.MemoryPages }) {
					w.killSwitch, w.switched = true, w.now()
				}
				return slices.DeleteFunc(slices.Clone(cs), func(c model.Change) bool { return c.Kind == model.Stop })
			}
		}},
		{checkAgree, "a hold in force is told as one of a task that is gone", func(_ *world, b *brokenHost) {
			b.result = func(r *model.Result) {
				if r.Kind == model.Applied && r.Now.Knob == model.CPUWeight {
					r.Kind = model.Vanished
				}
			}
		}},
		{checkTrials, "a policy begins with whom another has on trial", func(w *world, b *brokenHost) {
			b.step = func() {
				in, _ := w.life.Last()
				for at := range w.trials.since {
					by := model.PolicyMemory
					if at.policy == by {
						by = model.PolicyIO
					}
					w.life.Engine.State.Ledger.Claim(model.Claim{
						Target: model.OfTask(at.task), Cap: 1, Value: model.Ask(model.CPUBandwidth), Owner: model.OwnerPolicy, Policy: by, MadeNsec: in.MonoNsec, ExpiresNsec: math.MaxInt64,
					}, engine.Limits{MaxHeldTasks: 9, MaxBETaken: 1}, 1)
				}
			}
		}},
		{checkTrials, "policies do not know that who is on trial was frozen", func(w *world, b *brokenHost) {
			b.step = func() {
				in, _ := w.life.Last()
				for at := range w.trials.since {
					w.trials.disturbed[at.task] = in.MonoNsec
				}
			}
		}},
		{checkFinite, "the engine remembers NaN", func(w *world, b *brokenHost) {
			b.step = func() { w.life.Engine.State.BECPU = math.NaN() }
		}},
		{checkDoor, "an answer is cut off", func(w *world, _ *brokenHost) {
			w.mutate.answer = func(a *answer) { a.Truncate(a.Len() / 2) }
		}},
		{checkBounded, "victims in peace pile up", func(w *world, b *brokenHost) {
			b.step = func() {
				h := &w.life.Engine.State.Hardcap
				for range 100 {
					h.Peace = append(h.Peace, hardcap.Peace{})
				}
			}
		}},
		{checkFinite, "a decision holds NaN", func(w *world, b *brokenHost) {
			w.mutate.out = func(out *engine.Output) {
				out.Decisions = append(out.Decisions, model.Decision{Kind: model.DecideCap, Facts: []model.Fact{model.FactCorrelation.Is(math.NaN())}})
			}
		}},
		{checkReplay, "the engine's memory changes between two turns", func(w *world, b *brokenHost) {
			b.step = func() { w.life.Engine.State.Ledger.NextChange += 7 }
		}},
		{checkReclaim, "memory is taken back unasked", func(w *world, b *brokenHost) {
			b.step = func() {
				for _, g := range w.witness.list {
					if g.class == model.BE {
						_ = w.life.owner.FS(w.k).WriteFile(w.witness.mounts[model.CPUBandwidth]+g.path+reclaimName, []byte("4096")) // on v1 there is none
					}
				}
			}
		}},
		{checkPages, "pages are moved unasked", func(w *world, b *brokenHost) {
			b.step = func() {
				for _, g := range w.witness.list {
					for _, pid := range w.k.PIDs(g.path) {
						_, _ = pageCalls{w.k.PageCalls(), w}.MovePages(int32(pid), make([]uintptr, 1), make([]int32, 1), make([]int32, 1), 0)
					}
				}
			}
		}},
		{checkMoved, "a task is moved onto CPUs that it does not have", func(w *world, b *brokenHost) {
			b.step = func() {
				in, _ := w.life.Last()
				for _, t := range w.life.Engine.State.Tasks.Tasks {
					w.life.Engine.State.Ledger.Claim(model.Claim{
						Target: model.OfTask(t.Num), Kind: model.ClaimPlace, Value: model.Place(model.FullSet(model.MaxCPUs)), Owner: model.OwnerPolicy, Policy: model.PolicyRemedy, MadeNsec: in.MonoNsec, ExpiresNsec: math.MaxInt64,
					}, engine.Limits{MaxHeldTasks: 9, MaxBETaken: 1}, 1)
				}
			}
		}},
		{checkEnds, "a task is ended unasked", func(w *world, b *brokenHost) {
			b.step = func() {
				for _, g := range w.witness.list {
					for _, pid := range w.k.PIDs(g.path) {
						_ = enderCalls{w.k.Ender(), w}.End(int32(pid), func() bool { return true })
					}
				}
			}
		}},
		{checkPanic, "the host panics", func(w *world, b *brokenHost) {
			b.step = func() {
				if w.now() > 5e9 {
					panic("broken on purpose")
				}
			}
		}},
	} {
		t.Run(tc.check, func(t *testing.T) {
			t.Parallel()
			o := Options{Minutes: 3, Calm: true}
			o.mutate.host = func(w *world, h node.Host) node.Host {
				b := &brokenHost{Host: h, w: w}
				tc.spoil(w, b)
				return b
			}
			expectFailure(t, tc.check, tc.how, o)
		})
	}
	t.Run(checkReadable, func(t *testing.T) {
		t.Parallel()
		o := Options{Minutes: 3, Calm: true}
		n := 0
		o.mutate.disk = func(d journal.Disk) journal.Disk {
			return spoilt{d, func(b []byte) bool {
				n++
				return n%7 == 0 && !strings.Contains(string(b), `"open"`) && !strings.Contains(string(b), `"intent"`)
			}}
		}
		expectFailure(t, checkReadable, "of some additions to the journal, of what was read back, a byte is another", o)
	})
}

// expectFailure plays seeds until a check fails, which must be the one.
func expectFailure(t *testing.T, check, how string, o Options) {
	t.Helper()
	others := map[string]int{}
	for seed := uint64(1); seed <= 40; seed++ {
		r, err := Run(seed, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Failure == nil {
			continue
		}
		if r.Failure.Check == check {
			var text strings.Builder
			if err := r.Print(&text); err != nil || !strings.Contains(text.String(), fmt.Sprintf("--seeds %d..%d", seed, seed)) {
				t.Errorf("the report does not say how to play it again: %v\n%s", err, &text)
			}
			return
		}
		others[r.Failure.Check]++
	}
	t.Errorf("%s: the check %q never fired; others: %v", how, check, others)
}

// Every check says what it looks for and what it does not see, and is tried by a test.
func TestChecksAreDescribed(t *testing.T) {
	err := error(nil)
	for _, c := range Checks() {
		if c.Name == "" || c.What == "" || c.Blind == "" {
			err = errors.Join(err, fmt.Errorf("%+v", c))
		}
	}
	if err != nil {
		t.Error(err)
	}
}
