package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// One bad segment hides none of the others: of an incident, of a task and in a replay.
func TestDamagedSegmentIsPassedOver(t *testing.T) {
	dir, _, _ := recorded(t, 1, 600, 600_000)
	files, err := Segments(dir)
	must(t, err)
	whole, err := Run(dir)
	must(t, err)
	if len(files) < 3 || whole.Damaged != nil || whole.Segments != len(files) {
		t.Fatalf("%d segments: %+v", len(files), whole.Reading)
	}
	// An incident of another segment than the one that is damaged.
	var id, task string
	must(t, Walk(files[0], func(tick *Tick) {
		for _, inc := range tick.Output.Incidents {
			id, task = inc.ID, inc.VictimPath
		}
	}))
	bad := files[len(files)-2]
	b, err := os.ReadFile(bad)
	must(t, err)
	for _, at := range []int{5, len(magic) + 2, len(b) / 2} {
		broken := append([]byte(nil), b...)
		broken[at] ^= 0x20
		must(t, os.WriteFile(bad, broken, 0o600))
		res, err := Run(dir)
		must(t, err)
		if res.First != nil || len(res.Damaged) != 1 || res.Damaged[0].Segment != bad || res.Segments != len(files) ||
			res.Ticks >= whole.Ticks || res.Ticks < whole.Ticks/2 {
			t.Fatalf("byte %d: %+v", at, res)
		}
		st, err := Find(dir, id)
		must(t, err)
		ts, err := FindTask(dir, task, 0)
		must(t, err)
		for _, r := range []Reading{st.Reading, ts.Reading} {
			if len(r.Damaged) != 1 || r.Damaged[0].Segment != bad {
				t.Errorf("byte %d: %+v", at, r)
			}
		}
		if _, err := Find(dir, "none"); !errors.Is(err, ErrNoIncident) || !strings.Contains(err.Error(), bad) {
			t.Error(err)
		}
		if err := Walk(dir, func(*Tick) {}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("a lab is not told: %v", err)
		}
	}
}

// hostile is a segment that verifies, of whatever its maker wrote.
func hostile(params, state, rare string) []byte {
	b := append([]byte(nil), magic...)
	b = appendFrame(b, frameHeader, fmt.Appendf(nil, `{"version":4,"params":%s}`, params))
	b = appendFrame(b, frameCheckpoint, []byte(state))
	tick := append([]byte{1, 2, 2, hasRare | hasSnapshot}, byte(len(rare)), byte(len(rare)>>7))
	tick[4] |= 0x80 // the length in two bytes
	tick = append(tick, rare...)
	// mark, times, CPUs, the node's outcomes, no tasks
	return appendFrame(b, frameTick, append(tick, 3, 4, 4, 2, 0, 0))
}

// replayed replays a segment in a file and returns how much was allocated.
func replayed(t *testing.T, b []byte) (*Replay, uint64) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x"+Suffix)
	must(t, os.WriteFile(name, b, 0o600))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res, err := Run(name)
	must(t, err)
	_, err = FindTask(name, "/x", 0)
	if !errors.Is(err, ErrNoTask) {
		t.Log(err)
	}
	runtime.ReadMemStats(&after)
	return res, after.TotalAlloc - before.TotalAlloc
}

// A record of a few hundred bytes makes no reader reserve memory by the gigabyte, and one whose
// state is none makes it say so.
func TestHostileRecord(t *testing.T) {
	params := quick()
	state := asText(t, engine.New(params).State)
	text := func(change func(p *engine.Params)) string {
		p := quick()
		change(&p)
		return asText(t, &p)
	}
	many := func(n int) string {
		var list []model.Task
		for i := range n {
			list = append(list, model.Task{Num: model.TaskNum(i + 1), Path: fmt.Sprint("/", i)})
		}
		return asText(t, map[string]any{"added": list})
	}
	if res, _ := replayed(t, hostile(asText(t, &params), state, many(3))); res.Damaged != nil || res.Ticks != 1 {
		t.Fatalf("the test's own frames are wrong: %+v", res)
	}
	for name, b := range map[string][]byte{
		"windows":  hostile(text(func(p *engine.Params) { p.HistoryWindows = 1 << 40 }), state, many(1)),
		"negative": hostile(text(func(p *engine.Params) { p.HistoryWindows = -1 }), state, many(1)),
		"no state": hostile(asText(t, &params), `{}`, many(1)),
		"orders":   hostile(asText(t, &params), strings.Replace(state, `"tracks":null`, `"tracks":[{"num":5}]`, 1), many(1)),
		"null":     hostile(asText(t, &params), `null`, many(1)),
		"rows":     hostile(asText(t, &params), strings.Replace(state, `"cap":20`, `"cap":2000000000`, 1), many(1)),
	} {
		res, bytes := replayed(t, b)
		if len(res.Damaged) != 1 || bytes > 64<<20 {
			t.Errorf("%s: %d MB allocated, %+v", name, bytes>>20, res)
		}
	}
	// As many tasks as fit in a frame, each with the longest history.
	p := quick()
	p.HistoryWindows = maxWindows
	b := append([]byte(nil), magic...)
	b = appendFrame(b, frameHeader, []byte(asText(t, Header{Version: Version, Params: p})))
	b = appendFrame(b, frameCheckpoint, []byte(asText(t, engine.New(p).State)))
	in := &engine.Input{Seq: 1, Snapshot: &model.Snapshot{}}
	for i := range 20_000 {
		in.Snapshot.Added = append(in.Snapshot.Added, model.Task{Num: model.TaskNum(i + 1), Path: "/x"})
	}
	b, at := openFrame(b, frameTick)
	b, err := (&coder{}).encode(b, in, false)
	must(t, err)
	closeFrame(b, at, frameTick)
	res, bytes := replayed(t, b)
	if len(res.Damaged) != 1 || bytes > 100<<20 || !strings.Contains(res.Damaged[0].Error, "20000 tasks") {
		t.Errorf("%d MB allocated, %+v", bytes>>20, res)
	}
}

// FuzzReplay lets the fuzzer past the checksums, into the engine.
func FuzzReplay(f *testing.F) {
	p := quick()
	params, err := json.Marshal(&p)
	if err != nil {
		f.Fatal(err)
	}
	state, err := json.Marshal(engine.New(p).State)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(params), string(state), `{"added":[{"num":1,"path":"/a","class":"BE"}],"removed":[2]}`)
	f.Add(string(params), strings.Replace(string(state), `"next":0`, `"next":-1`, 1), `{"commands":[{"kind":"cap","task":1,"cap":1e308}]}`)
	f.Add(string(params), "null", `{"specs":[{}],"slo":[{}],"knobs":[{}],"results":[{}]}`)
	f.Add(`{"history_windows":3600}`, string(state), `{"topology":{"cpus":[{"cpu":-1}]},"settings":[{}]}`)
	f.Fuzz(func(t *testing.T, params, state, rare string) {
		if len(rare) >= 1<<14 || !json.Valid([]byte(params)) {
			t.Skip()
		}
		// A Go value is larger than the shortest JSON of it, some hundred times at worst.
		if _, bytes := replayed(t, hostile(params, state, rare)); bytes > 64<<20+300*uint64(len(params)+len(state)+len(rare)) {
			t.Fatalf("%d MB allocated", bytes>>20)
		}
	})
}
