package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

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
	w := NewWriter(dir, maxBytes, Header{Program: "test", Boot: "b", Profile: "quick", Params: quick()})
	world, e := newWorld(seed), engine.New(quick())
	for range ticks {
		in := world.input()
		if w.Due(in.MonoNsec) {
			must(t, w.Begin(e.State, in.MonoNsec, in.WallNsec))
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
		bare(&p.NodeUsage)
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
	priors := 0
	for seed := range uint64(3) {
		dir, inputs, outputs := recorded(t, seed, 200, 1<<30)
		priors += strings.Count(strings.Join(outputs, ""), "the fleet saw this pair 9 times on 4 nodes")
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
	if priors == 0 {
		t.Error("no run heard of the fleet's priors")
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

// headAt is how long the head of the frame at a place is, with its kind.
func headAt(at int) int { return headOf(at > len(magic)) + 1 }

// frames returns where each frame of a record of today begins, and the end.
func frames(b []byte) []int { return framesOf(b, true) }

// framesOf does so of any version; long: frames but the first have a checksum of their length.
func framesOf(b []byte, long bool) []int {
	at := []int{len(magic)}
	for last := at[0]; last < len(b); at = append(at, last) {
		last += headOf(long && len(at) > 1) + 1 + int(binary.LittleEndian.Uint32(b[last:]))
	}
	return at
}

// payloadAt returns the payload of the frame at a place.
func payloadAt(b []byte, at int) []byte {
	return b[at+headAt(at):][:binary.LittleEndian.Uint32(b[at:])]
}

func kindAt(b []byte, at int) byte { return b[at+headAt(at)-1] }

// reframe replaces a frame's payload and gives it checksums that verify.
func reframe(b []byte, at int, change func([]byte) []byte) []byte {
	old := payloadAt(b, at)
	out := appendFrame(append([]byte(nil), b[:at]...), kindAt(b, at), change(old))
	return append(out, b[at+headAt(at)+len(old):]...)
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
		if at == len(b) || kindAt(b, at) != frameOutput {
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
		must(t, json.Unmarshal(payloadAt(b, at), &seq))
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
		if n >= at-2 && n < at+headAt(at)+4 {
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

// Every bit of every length, in a record of each version: damage is found, and is never taken for
// a crash that cut the record off. In older versions the last frame's length may say that more
// should follow, and nothing tells that it lies.
func TestDamagedLengths(t *testing.T) {
	_, now := segment(t, 12)
	for _, version := range []string{"1", "2", "3", "4"} {
		b, long := now, version == "4"
		if !long {
			var err error
			b, err = os.ReadFile("testdata/v" + version + "/random" + Suffix)
			must(t, err)
			b = b[:framesOf(b, false)[14]]
		}
		ends := framesOf(b, long)
		for i, at := range ends[:len(ends)-1] {
			for bit := range 32 {
				bad := append([]byte(nil), b...)
				bad[at+bit/8] ^= 1 << (bit % 8)
				ticks, err := collect(t, bad)
				if lastOld := !long && i == len(ends)-2; !errors.Is(err, ErrCorrupt) && !lastOld || err == nil {
					t.Fatalf("version %s, frame %d of %d, bit %d: %d ticks, %v", version, i, len(ends)-1, bit, len(ticks), err)
				}
			}
		}
	}
}

func TestNewerVersionIsRefusedByName(t *testing.T) {
	_, b := segment(t, 1)
	newer := reframe(b, len(magic), func(p []byte) []byte { return bytes.Replace(p, []byte(`"version":6`), []byte(`"version":7`), 1) })
	if _, err := NewReader(bytes.NewReader(newer)); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "version 7, this one reads up to 6") {
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
	w := NewWriter(dir, maxBytes, Header{Params: quick()})
	world, e := newWorld(2), engine.New(quick())
	begun, largest := 0, int64(0)
	for range 1000 {
		in := world.input()
		if w.Due(in.MonoNsec) {
			must(t, w.Begin(e.State, in.MonoNsec, in.WallNsec))
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

func TestQuietTickDoesNotAllocate(t *testing.T) {
	w := NewWriter(t.TempDir(), 1<<30, Header{Params: quick()})
	must(t, w.Begin(engine.New(quick()).State, 1, 1))
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
	frame := func(kind byte, p string) string { return string(appendFrame(nil, kind, []byte(p))) }
	good := magic + frame(frameHeader, `{"version":4}`) + frame(frameCheckpoint, `{}`)
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
	f.Add([]byte("\x01\x02\x02\x12\x03\x02\x04\x08\x00\x00\x02\x01\x00\x06\x05\x00\x01\x01\x02\x05\x00"))
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
		h := Header{Version: Version, TaskCounters: columnsOf(model.TaskCounters()), NodeCounters: columnsOf(model.NodeCounters()), DomainCounters: columnsOf(model.DomainCounters())}
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

// What memory domains moved is read back by the counters' names, with what could not be read, and what tasks did on block devices.
func TestMemoryReadsBack(t *testing.T) {
	m := model.MemorySample{Domain: 1, MonoNsec: 5e9}
	m.C[model.CountMemTotal], m.C[model.CountMemLocal] = model.Read(1<<40), model.Counter{Outcome: model.GoneBackwards}
	io := []model.IOSample{{Num: 3, Device: model.DeviceOf(254, 1), Read: 1 << 50, Wrote: 2, Reads: 3, Writes: 4}}
	one := model.DomainSample{Num: 3, Domain: 0, SinceNsec: 4e9, MonoNsec: 5e9}
	one.C[model.CountOccupancy], one.C[model.CountMovedTotal] = model.Read(5<<20), model.Counter{Outcome: model.Absent}
	two := model.DomainSample{Num: 3, Domain: 1, SinceNsec: 4e9, MonoNsec: 5e9 + 1}
	two.C[model.CountMovedTotal], two.C[model.CountMovedLocal] = model.Read(1<<40), model.Read(7)
	domains := []model.DomainSample{one, two}
	in := &engine.Input{Seq: 1, Snapshot: &model.Snapshot{MonoNsec: 6e9, Mark: model.WindowEnd, Memory: []model.MemorySample{m}, IO: io, Homes: []model.PageHomes{{Num: 1, Bytes: []uint64{5, 0, 7}}}, Domains: domains}}
	in.Snapshot.GPUs = &model.GPUReading{MonoNsec: 5e9, Why: "not read: x", GPUs: []model.GPU{{UUID: "GPU-a", Busy: model.Missing(model.Unavailable), Total: model.Known(1 << 36), Free: model.Known(1 << 20), MIG: true, Tasks: []model.GPUTask{{Num: 1, Bytes: 1 << 60}}, Untold: 2}}}
	var c coder
	b, err := c.encode(nil, in, false)
	must(t, err)
	again := domains[1]
	again.MonoNsec, again.C[model.CountMovedTotal], again.C[model.CountMovedLocal] = 9e9, model.Read(1<<40+5), model.Read(6)
	next := &engine.Input{Seq: 2, Snapshot: &model.Snapshot{MonoNsec: 10e9, Mark: model.WindowEnd, Domains: []model.DomainSample{again}}}
	b2, err := c.encode(nil, next, false)
	must(t, err)
	c, err = newDecoder(&Header{Version: Version, NodeCounters: columnsOf(model.NodeCounters()), TaskCounters: columnsOf(model.TaskCounters()), DomainCounters: columnsOf(model.DomainCounters())})
	must(t, err)
	var got engine.Input
	_, err = c.decode(b, &got, &model.Snapshot{}, &model.Pulse{})
	must(t, err)
	if d := cmp.Diff(in.Snapshot.Memory, got.Snapshot.Memory); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(io, got.Snapshot.IO); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(in.Snapshot.Homes, got.Snapshot.Homes); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(in.Snapshot.GPUs, got.Snapshot.GPUs); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(domains, got.Snapshot.Domains); d != "" {
		t.Error(d)
	}
	if _, err = c.decode(b2, &got, &model.Snapshot{}, &model.Pulse{}); err != nil || !cmp.Equal(next.Snapshot.Domains, got.Snapshot.Domains) {
		t.Errorf("%v, %+v", err, got.Snapshot.Domains)
	}
}
