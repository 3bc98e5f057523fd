package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/hardcap"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/outlier"
)

// quick are parameters under which something happens within a few dozen ticks.
func quick() engine.Params {
	return engine.Params{
		Platform: "cpu", Mode: model.ModeEnforce, Sources: [model.NumSources]bool{true, true}, HistoryWindows: 20, CapPeriodNsec: 250e6,
		Outlier: outlier.Params{RequiredCPUUsage: 0.02, Sigmas: 2, Violations: 2, WindowNsec: 10e9},
		Spec:    localspec.Params{RecalculateNsec: 30e9, AgeWeight: 0.9, MinTasks: 1, MinSamplesPerTask: 5},
		Hardcap: hardcap.Params{Quota: 0.1, QuotaBestEffort: 0.01, DurationNsec: 8e9, RecoveredWindows: 2, VerifyWindows: 3, SearchWindows: 2, MaxRounds: 2, RetryAfterNsec: 5e9, AnalysisEveryNsec: 1e9,
			Antagonist: [model.NumSources]antagonist.Params{{Threshold: 0.05}, {Threshold: 0.05, Offset: 1, Bound: 2}}},
		Limits: engine.Limits{MaxHeldTasks: 4, MaxBETaken: 1},
	}
}

// world makes random inputs, and answers changes at random.
type world struct {
	rng   *rand.Rand
	seq   uint64
	mono  int64
	next  model.TaskNum
	tasks []model.TaskSample
	node  model.NodeSample
	pulse model.Pulse
	res   []model.Result
}

func newWorld(seed uint64) *world { return &world{rng: rand.New(rand.NewPCG(seed, 1)), mono: 1e12} }

func (w *world) counter(c model.Counter, by float64) model.Counter {
	switch w.rng.IntN(60) {
	case 0: // a value without a reading must do no harm
		return model.Counter{Value: w.rng.Uint64(), Outcome: model.Outcome(w.rng.IntN(2) * 2)}
	case 1:
		return model.Read(c.Value / 2)
	}
	if c.Outcome != model.OK {
		c.Value = 0
	}
	return model.Read(c.Value + uint64(by))
}

func (w *world) snapshot() *model.Snapshot {
	s := &model.Snapshot{MonoNsec: w.mono, WallNsec: w.mono + 5e17, Mark: model.WindowStart | model.WindowEnd}
	if w.rng.IntN(20) == 0 {
		s.Mark = model.WindowMark(w.rng.IntN(4))
	}
	if n := len(w.tasks); n > 4 && w.rng.IntN(15) == 0 {
		i := w.rng.IntN(n)
		s.Removed = append(s.Removed, w.tasks[i].Num)
		w.tasks = append(w.tasks[:i:i], w.tasks[i+1:]...)
	}
	for len(w.tasks) < 6 || w.rng.IntN(25) == 0 {
		w.next++
		s.Added = append(s.Added, model.Task{Num: w.next, Path: fmt.Sprintf("/j%d/%d", w.next%3, w.next), Job: fmt.Sprintf("j%d", w.next%3),
			Class: model.Class(w.next % 3), Importance: model.Importance(w.rng.IntN(3)), Eligible: w.rng.IntN(9) == 0, CPUs: w.rng.IntN(4)})
		w.tasks = append(w.tasks, model.TaskSample{Num: w.next})
	}
	hot := w.mono/1e9%12 < 5
	w.tasks = append([]model.TaskSample(nil), w.tasks...)
	for i := range w.tasks {
		t := &w.tasks[i]
		used, cpi := 1e9*(0.5+w.rng.Float64()/10), 1+w.rng.Float64()/20
		if hot {
			cpi *= 3
		} else if model.Class(t.Num%3) == model.BE {
			used /= 20
		}
		for k, by := range [...]float64{
			model.CountUsage: used, model.CountRun: used, model.CountDelay: used * cpi / 3, model.CountThrottled: 0,
			model.CountCycles: used * 2, model.CountInstructions: used * 2 / cpi, model.CountRefCycles: used, model.CountLLCMisses: used / 1e3,
		} {
			t.C[k] = w.counter(t.C[k], by)
		}
	}
	w.node.CPUs = 8
	w.node.C[model.CountBusy], w.node.C[model.CountSteal] = w.counter(w.node.C[model.CountBusy], 5e9), w.counter(w.node.C[model.CountSteal], 1e7)
	s.Node, s.Tasks = w.node, w.tasks
	return s
}

// beat is a pulse, with the tasks of the last snapshot every other time.
func (w *world) beat() *model.Pulse {
	w.pulse.MonoNsec = w.mono
	w.pulse.LCUsage, w.pulse.BEUsage = w.counter(w.pulse.LCUsage, 2e9), w.counter(w.pulse.BEUsage, 1e9)
	p := w.pulse
	p.Tasks = nil
	if w.rng.IntN(2) == 0 {
		for i := range w.tasks {
			t := &w.tasks[i]
			p.Tasks = append(p.Tasks, model.TaskPulse{Num: t.Num, Usage: t.C[model.CountUsage], Throttled: t.C[model.CountThrottled], Periods: w.counter(t.C[model.CountThrottled], 9)})
		}
	}
	return &p
}

func (w *world) input() *engine.Input {
	w.seq++
	w.mono += 1e9
	in := &engine.Input{Seq: w.seq, MonoNsec: w.mono, WallNsec: w.mono + 5e17, Results: w.res, KillSwitch: w.rng.IntN(40) == 0}
	w.res = nil
	if w.rng.IntN(10) > 0 {
		in.Snapshot = w.snapshot()
	}
	if w.rng.IntN(3) > 0 {
		in.Pulse = w.beat()
	}
	if w.rng.IntN(30) == 0 {
		kinds := []string{model.CommandCap, model.CommandUncap, model.CommandProtectOff, model.CommandProtectOn, "dance"}
		in.Commands = append(in.Commands, model.Command{Kind: kinds[w.rng.IntN(len(kinds))], Task: w.next, Job: "j1", Cap: 0.2, DurationNsec: 4e9, By: "ann"})
	}
	switch w.rng.IntN(60) {
	case 0:
		p := quick()
		p.Outlier.Sigmas, p.HistoryWindows = 1+2*w.rng.Float64(), 5
		in.Params = &p
	case 1:
		in.Specs = []model.Spec{{Job: "j1", Platform: []string{"cpu", "other"}[w.rng.IntN(2)], Source: model.Source(w.rng.IntN(2)), NumSamples: 9, Mean: 1, StdDev: w.rng.Float64()}}
	case 2:
		in.SLO = []model.Latency{{Job: fmt.Sprintf("j%d", w.rng.IntN(3)), P99: model.Known(w.rng.Float64()), Samples: 100}}
	}
	return in
}

func (w *world) answer(out *engine.Output) {
	for _, c := range out.Changes {
		if c.Kind != model.Disown && w.rng.IntN(8) > 0 {
			w.res = append(w.res, model.Result{Seq: c.Seq, Target: c.Target, Kind: model.ResultKind(max(0, w.rng.IntN(8)-4)), Now: c.Value, MonoNsec: w.mono, Error: "no"})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asText is a deep copy that a reused slice cannot change.
func asText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return string(b)
}

// recorded writes a random run and returns its folder and what went in and out.
func recorded(t *testing.T, seed uint64, ticks int, maxBytes int64) (dir string, inputs, outputs []string) {
	t.Helper()
	dir = t.TempDir()
	w, err := NewWriter(dir, maxBytes, Header{Program: "test", Boot: "b", Profile: "quick", Params: quick()})
	must(t, err)
	world, e := newWorld(seed), engine.New(quick())
	for range ticks {
		in := world.input()
		if w.Due() {
			must(t, w.Begin(e.State, in.WallNsec))
		}
		out := e.Step(in)
		must(t, w.Tick(in, out))
		inputs = append(inputs, inputText(t, in))
		outputs = append(outputs, asText(t, []any{out.Changes, out.Decisions, out.Incidents}))
		world.answer(out)
	}
	must(t, w.Close())
	return dir, inputs, outputs
}

// inputText is an input with its snapshot; what was not read has no value.
func inputText(t *testing.T, in *engine.Input) string {
	text := asText(t, in)
	bare := func(c *model.Counter) { c.Value = base(c) }
	if in.Snapshot != nil {
		s := *in.Snapshot
		for k := range s.Node.C {
			bare(&s.Node.C[k])
		}
		s.Tasks = append([]model.TaskSample(nil), s.Tasks...)
		for i := range s.Tasks {
			for k := range s.Tasks[i].C {
				bare(&s.Tasks[i].C[k])
			}
		}
		text += asText(t, &s)
	}
	if in.Pulse != nil {
		p := *in.Pulse
		bare(&p.LCUsage)
		bare(&p.BEUsage)
		p.Tasks = append([]model.TaskPulse(nil), p.Tasks...)
		for i := range p.Tasks {
			bare(&p.Tasks[i].Usage)
			bare(&p.Tasks[i].Periods)
			bare(&p.Tasks[i].Throttled)
		}
		text += asText(t, &p)
	}
	return text
}

func TestReadsBackEqual(t *testing.T) {
	for seed := range uint64(3) {
		dir, inputs, outputs := recorded(t, seed, 200, 1<<30)
		files, err := Segments(dir)
		must(t, err)
		f, err := os.Open(files[0])
		must(t, err)
		defer f.Close() //nolint:errcheck // read only
		r, err := NewReader(f)
		must(t, err)
		if d := cmp.Diff(quick(), r.Header.Params); d != "" || r.Header.Boot != "b" {
			t.Fatal(d)
		}
		var tick Tick
		said := 0
		for i := range inputs {
			must(t, r.Next(&tick))
			if got := inputText(t, &tick.Input); got != inputs[i] {
				t.Fatalf("seed %d tick %d:\n%s\n%s", seed, i, inputs[i], got)
			}
			empty := func(s string) string { return strings.ReplaceAll(s, "[]", "null") }
			if got := asText(t, []any{tick.Output.Changes, tick.Output.Decisions, tick.Output.Incidents}); empty(got) != empty(outputs[i]) {
				t.Fatalf("seed %d tick %d:\n%s\n%s", seed, i, outputs[i], got)
			}
			said += len(tick.Output.Decisions)
		}
		if err := r.Next(&tick); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last tick: %v", err)
		}
		if said < 20 {
			t.Fatalf("seed %d: only %d decisions: the run tests nothing", seed, said)
		}
	}
}

func TestReplayOfARandomRun(t *testing.T) {
	changes := 0
	for seed := range uint64(4) {
		dir, inputs, _ := recorded(t, seed, 300, 400_000)
		res, err := Run(dir)
		must(t, err)
		if res.First != nil {
			t.Fatalf("seed %d: %+v", seed, res.First)
		}
		if res.Segments < 2 || res.Ticks > len(inputs) || res.Decisions == 0 || len(res.Torn) > 0 {
			t.Fatalf("seed %d: %+v", seed, res)
		}
		changes += res.Changes
	}
	if changes < 4 {
		t.Errorf("%d changes: the runs test nothing", changes)
	}
}

const frameHead = 9 // length, checksum, kind

// frames returns where each frame begins, and the end.
func frames(b []byte) []int {
	at := []int{len(magic)}
	for last := at[0]; last < len(b); at = append(at, last) {
		last += frameHead + int(binary.LittleEndian.Uint32(b[last:]))
	}
	return at
}

// reframe replaces a frame's payload and gives it a checksum that verifies.
func reframe(b []byte, at int, change func([]byte) []byte) []byte {
	size := int(binary.LittleEndian.Uint32(b[at:]))
	out, start := openFrame(append([]byte(nil), b[:at]...), b[at+8])
	out = append(out, change(b[at+frameHead:at+frameHead+size])...)
	closeFrame(out, start)
	return append(out, b[at+frameHead+size:]...)
}

func segment(t *testing.T, ticks int) (string, []byte) {
	t.Helper()
	dir, _, _ := recorded(t, 3, ticks, 1<<30)
	files, err := Segments(dir)
	must(t, err)
	b, err := os.ReadFile(files[0])
	must(t, err)
	return files[0], b
}

func TestReplayNamesTheFirstDifference(t *testing.T) {
	name, b := segment(t, 120)
	flipped := 0
	for _, at := range frames(b) {
		if at == len(b) || b[at+8] != frameOutput {
			continue
		}
		changed := reframe(b, at, func(p []byte) []byte { return bytes.Replace(p, []byte(`"reason":"`), []byte(`"reason":"not `), 1) })
		if bytes.Equal(changed, b) {
			continue
		}
		must(t, os.WriteFile(name, changed, 0o600))
		res, err := Run(name)
		must(t, err)
		var seq struct{ Seq uint64 }
		must(t, json.Unmarshal(b[at+frameHead:at+frameHead+int(binary.LittleEndian.Uint32(b[at:]))], &seq))
		if d := res.First; d == nil || d.Seq != seq.Seq || !strings.Contains(d.Recorded, "not ") || d.Recorded == d.Replayed {
			t.Fatalf("flipped in tick %d: %+v", seq.Seq, d)
		}
		flipped++
	}
	if flipped < 5 {
		t.Fatalf("only %d flipped", flipped)
	}
}

// collect reads a segment and returns its ticks and how it ended.
func collect(t *testing.T, b []byte) (ticks []string, err error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	for {
		var tick Tick
		if err := r.Next(&tick); err != nil {
			return ticks, err
		}
		ticks = append(ticks, inputText(t, &tick.Input)+asText(t, &tick.Output))
	}
}

// worthwhile picks the bytes to test: every byte of a frame's head, of its beginning and of
// its end, and a sample of what lies between, which the checksum covers alike.
func worthwhile(ends []int, n int) bool {
	for _, at := range ends {
		if n >= at-2 && n < at+frameHead+4 {
			return true
		}
	}
	return n < len(magic) || n%31 == 0
}

// Cut off anywhere: whole ticks are read, the rest is torn; never a tick without the
// output that it had.
func TestTornAnywhere(t *testing.T) {
	name, b := segment(t, 12)
	want, err := collect(t, b)
	if !errors.Is(err, io.EOF) || len(want) != 12 {
		t.Fatal(err)
	}
	ends := frames(b)
	for n := range len(b) {
		if !worthwhile(ends, n) {
			continue
		}
		got, err := collect(t, b[:n])
		if !errors.Is(err, ErrTorn) && !errors.Is(err, io.EOF) {
			t.Fatalf("at byte %d: %v", n, err)
		}
		if errors.Is(err, io.EOF) && n < ends[2] {
			t.Fatalf("at byte %d: no header, no error", n)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("at byte %d: tick %d differs", n, i)
			}
		}
	}
	for _, n := range []int{0, 5, len(magic), ends[1] + 3, len(b) - 1} {
		must(t, os.WriteFile(name, b[:n], 0o600))
		if res, err := Run(name); err != nil || res.First != nil || len(res.Torn) != 1 {
			t.Errorf("replay of %d bytes: %+v, %v", n, res, err)
		}
		must(t, Walk(name, func(*Tick) {}))
	}
}

// Any byte changed: corrupt or torn, and what was read before is as it was.
func TestCorruptAnywhere(t *testing.T) {
	_, b := segment(t, 12)
	want, _ := collect(t, b)
	ends := frames(b)
	for n := range len(b) {
		if !worthwhile(ends, n) {
			continue
		}
		bad := append([]byte(nil), b...)
		bad[n] ^= 1 << (n % 8)
		got, err := collect(t, bad)
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTorn) {
			t.Fatalf("byte %d: %v", n, err)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("byte %d: tick %d differs silently", n, i)
			}
		}
	}
}

func TestNewerVersionIsRefusedByName(t *testing.T) {
	_, b := segment(t, 1)
	newer := reframe(b, len(magic), func(p []byte) []byte { return bytes.Replace(p, []byte(`"version":3`), []byte(`"version":4`), 1) })
	if _, err := NewReader(bytes.NewReader(newer)); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "version 4, this one reads up to 3") {
		t.Error(err)
	}
}

// A frame that verifies and says what cannot be is corrupt, not a panic.
func TestWellFramedNonsense(t *testing.T) {
	_, b := segment(t, 20)
	rng := rand.New(rand.NewPCG(1, 2))
	ends := frames(b)
	for run := range 500 {
		at := ends[2+rng.IntN(len(ends)-3)]
		bad := reframe(b, at, func(p []byte) []byte {
			p = append([]byte(nil), p...)
			switch rng.IntN(3) {
			case 0:
				return p[:rng.IntN(len(p)+1)]
			case 1:
				return append(p, byte(rng.IntN(256)))
			}
			p[rng.IntN(len(p))] ^= byte(1 + rng.IntN(255))
			return p
		})
		if _, err := collect(t, bad); !errors.Is(err, ErrCorrupt) && !errors.Is(err, io.EOF) {
			t.Fatalf("run %d: %v", run, err)
		}
	}
}

func TestSegmentsRotateAndPrune(t *testing.T) {
	const maxBytes = 400_000
	dir := t.TempDir()
	w, err := NewWriter(dir, maxBytes, Header{Params: quick()})
	must(t, err)
	world, e := newWorld(2), engine.New(quick())
	begun, largest := 0, int64(0)
	for range 1000 {
		in := world.input()
		if w.Due() {
			must(t, w.Begin(e.State, in.WallNsec))
			begun++
		}
		out := e.Step(in)
		must(t, w.Tick(in, out))
		world.answer(out)
		files, err := Segments(dir)
		must(t, err)
		total := int64(0)
		for _, f := range files {
			st, err := os.Stat(f)
			must(t, err)
			total += st.Size()
			largest = max(largest, st.Size())
		}
		if total > maxBytes+largest {
			t.Fatalf("%d bytes in %d segments", total, len(files))
		}
	}
	must(t, w.Close())
	files, err := Segments(dir)
	must(t, err)
	if begun <= len(files) || len(files) < 2 {
		t.Errorf("%d segments begun, %d kept", begun, len(files))
	}
	for _, f := range files {
		if res, err := Run(f); err != nil || res.First != nil {
			t.Errorf("%s alone: %+v %v", filepath.Base(f), res, err)
		}
	}
}

func TestTickWithoutASegment(t *testing.T) {
	w, err := NewWriter(filepath.Join(t.TempDir(), "new"), 1<<20, Header{})
	must(t, err)
	if !w.Due() {
		t.Error("a new writer wants no segment")
	}
	if err := w.Tick(&engine.Input{}, &engine.Output{}); err == nil {
		t.Error("a tick without a segment was written")
	}
}

func TestFailedWriteBeginsANewSegment(t *testing.T) {
	w, err := NewWriter(t.TempDir(), 1<<20, Header{Params: quick()})
	must(t, err)
	must(t, w.Begin(engine.New(quick()).State, 1))
	must(t, w.file.Close()) // what follows fails
	if err := w.Tick(&engine.Input{}, &engine.Output{}); err == nil || !w.Due() {
		t.Errorf("%v, due %v", err, w.Due())
	}
	must(t, w.Begin(engine.New(quick()).State, 2))
	must(t, w.Tick(&engine.Input{}, &engine.Output{}))
	must(t, w.Close())
}

func TestQuietTickDoesNotAllocate(t *testing.T) {
	w, err := NewWriter(t.TempDir(), 1<<30, Header{Params: quick()})
	must(t, err)
	must(t, w.Begin(engine.New(quick()).State, 1))
	world := newWorld(1)
	in := world.input()
	for in.Snapshot == nil {
		in = world.input()
	}
	in.Snapshot.Added, in.Commands, in.KillSwitch = nil, nil, false
	for len(in.Snapshot.Tasks) < 150 {
		s := in.Snapshot.Tasks[len(in.Snapshot.Tasks)-1]
		s.Num++
		in.Snapshot.Tasks = append(in.Snapshot.Tasks, s)
	}
	out := &engine.Output{}
	must(t, w.Tick(in, out))
	if n := testing.AllocsPerRun(100, func() {
		in.Seq++
		in.MonoNsec += 1e9
		for i := range in.Snapshot.Tasks {
			in.Snapshot.Tasks[i].C[model.CountUsage].Value += 1e7
		}
		if err := w.Tick(in, out); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	must(t, w.Close())
}

func FuzzReader(f *testing.F) {
	frame := func(kind byte, p string) string {
		b, at := openFrame(nil, kind)
		b = append(b, p...)
		closeFrame(b, at)
		return string(b)
	}
	good := magic + frame(frameHeader, `{"version":2}`) + frame(frameCheckpoint, `{}`)
	f.Add([]byte(good + frame(frameTick, "\x01\x02\x02\x00")))
	f.Add([]byte(good + frame(frameTick, "\x01\x02\x02\x02\x03\x00\x00\x04\x00\x00")))
	f.Add([]byte(magic + frame(frameHeader, `{"version":9}`)))
	f.Add([]byte(magic + "\xff\xff\xff\xff0000"))
	f.Add([]byte("nothing"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := collect(t, b); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTorn) && !errors.Is(err, ErrNewer) && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
}

// FuzzTick lets the fuzzer past the checksum.
func FuzzTick(f *testing.F) {
	f.Add([]byte("\x01\x02\x02\x00"))
	f.Add([]byte("\x01\x02\x02\x08\x04\x01\x06\x02\x03\x09\x02\x04\x06\x04\x01\x06"))
	f.Add([]byte("\x01\x02\x02\x03\x02{}\x03\x00\x00\x04\x00\x01\x05\x01\x02"))
	f.Fuzz(func(t *testing.T, p []byte) {
		c, err := newDecoder(&Header{Version: 2})
		must(t, err)
		var in engine.Input
		var snap model.Snapshot
		var pulse model.Pulse
		output, err := c.decode(p, &in, &snap, &pulse)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		// What was read writes and reads back the same.
		w := coder{}
		h := Header{Version: Version, TaskCounters: columnsOf(model.TaskCounters()), NodeCounters: columnsOf(model.NodeCounters())}
		r, err := newDecoder(&h)
		must(t, err)
		b, err := w.encode(nil, &in, output)
		if err != nil {
			t.Fatal(err)
		}
		want := inputText(t, &in)
		var again engine.Input
		var snap2 model.Snapshot
		var pulse2 model.Pulse
		if _, err := r.decode(b, &again, &snap2, &pulse2); err != nil || inputText(t, &again) != want {
			t.Fatalf("%v\n%s\n%s", err, want, inputText(t, &again))
		}
	})
}
