package record

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// testdata/v1 and v2 were written by the last builds that wrote those versions: random is
// newWorld(7) for 120 ticks; caps and places are of simulated nodes (soak seeds 11 and 3; of version 3 for a minute and a half). What was read stays what it was, and the decisions come out
// again.
func TestOlderVersionsReplay(t *testing.T) {
	for _, tt := range []struct {
		file                            string
		version, ticks, windows, decide int
		inputs                          string // of a sha256 of all samples by name, as the builds that wrote them read them
	}{
		{"v1/random", 1, 120, 101, 59, "7096688c98feec9e"},
		{"v2/random", 2, 120, 104, 32, "46f2c0f013269392"},
		{"v2/caps", 2, 310, 60, 47, "b26970142cb966ad"},
		{"v2/places", 2, 550, 53, 26, "d92e87ecd26b4d08"},
		{"v3/random", 3, 120, 96, 30, "63533bb1b0f719da"},
		{"v3/places", 3, 435, 59, 13, "17dba8c9e851667e"},
	} {
		name := "testdata/" + tt.file + Suffix
		res, err := Run(name)
		if tt.file == "v2/caps" {
			// An operator freed a task that had a burst. Since version 3 the engine keeps what
			// policies want, and asks again as soon as the task may be had; version 2 asked with the
			// policy's next renewal, and what follows is another story.
			if err != nil || res.First == nil || res.First.Seq != 117 || res.First.What != "changes" {
				t.Fatalf("%s: %v %+v", tt.file, err, res)
			}
			continue
		}
		if err != nil || res.First != nil {
			t.Fatalf("%s: %v %+v", tt.file, err, res)
		}
		if res.Ticks != tt.ticks || res.Windows != tt.windows || res.Decisions != tt.decide || len(res.Torn) > 0 {
			t.Errorf("%s: %+v", tt.file, res)
		}
		sum := sha256.New()
		_, err = ReadSegment(name, func(r *Reader) error {
			if r.Header.Version != tt.version {
				t.Errorf("%s is of version %d", tt.file, r.Header.Version)
			}
			return nil
		}, func(tick *Tick) bool {
			if s := tick.Input.Snapshot; s != nil {
				for i := range s.Tasks {
					fmt.Fprintln(sum, s.MonoNsec, asText(t, &s.Tasks[i]), asText(t, &s.Node))
				}
			}
			return true
		})
		must(t, err)
		if got := fmt.Sprintf("%x", sum.Sum(nil))[:16]; got != tt.inputs {
			t.Errorf("%s: samples %s, expected %s", tt.file, got, tt.inputs)
		}
	}
}

// shuffled writes a tick as a version would that has its counters in another order, one that
// we do not know, and lacks one that we have.
func TestReaderGoesByName(t *testing.T) {
	names := []Column{{"llc_misses", "misses"}, {"rf_noise", "dB"}, {"usage", "ns"}, {"delay", "ns"}}
	head := Header{Version: Version, Params: quick(), TaskCounters: names, NodeCounters: []Column{{"steal", "ns"}, {"busy", "ns"}}}
	snap := []byte{byte(model.WindowStart)}
	var b []byte
	frame := func(kind byte, p string) { b = appendFrame(b, kind, []byte(p)) }
	b = append(b, magic...)
	frame(frameHeader, asText(t, head))
	frame(frameCheckpoint, asText(t, engine.New(quick()).State))
	group := func(values ...uint64) {
		was := make([]model.Counter, len(values))
		now := make([]model.Counter, len(values))
		for i, v := range values {
			now[i] = model.Read(v)
		}
		snap = appendCounters(snap, now, was)
	}
	snap = append(snap, 2, 4, 8) // times and CPUs
	group(7, 100)
	snap = append(snap, 1, 5) // one task, of number 5
	group(11, 99, 12, 13)
	frame(frameTick, string(append([]byte{1, 2, 2, hasSnapshot}, snap...)))

	r, err := NewReader(bytes.NewReader(b))
	must(t, err)
	var tick Tick
	must(t, r.Next(&tick))
	s := tick.Input.Snapshot
	if s.Node.C[model.CountBusy] != model.Read(100) || s.Node.C[model.CountSteal] != model.Read(7) || len(s.Tasks) != 1 {
		t.Fatalf("%+v", s)
	}
	want := model.TaskSample{Num: 5}
	want.C[model.CountUsage], want.C[model.CountDelay], want.C[model.CountLLCMisses] = model.Read(12), model.Read(13), model.Read(11)
	if s.Tasks[0] != want {
		t.Errorf("%+v\n%+v", s.Tasks[0], want)
	}
	head.TaskCounters = slices.Repeat(names, 6)
	if _, err := newDecoder(&head); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "24 counters") {
		t.Error(err)
	}
}

func TestOlderRecordsMaySayLess(t *testing.T) {
	for _, tt := range []struct {
		then, now string
		want      bool
	}{
		{`{"kind":"cap","value":0.1}`, `{"kind":"cap","value":0.1,"facts":[{"name":"cap"}]}`, true},
		{`{"kind":"cap","value":0.1}`, `{"kind":"cap","value":0.2}`, false},
		{`{"kind":"cap","value":0.1}`, `{"kind":"cap"}`, false},
		{`{"rounds":[{"cap":1}]}`, `{"rounds":[{"cap":1,"new":true}]}`, true},
		{`{"rounds":[{"cap":1}]}`, `{"rounds":[{"cap":1},{"cap":2}]}`, false},
		{`{"rounds":null}`, `{"rounds":[]}`, true},
		{`{}`, ``, false},
		{``, `{}`, false},
		{``, ``, true},
	} {
		if got := saysNoOther([]byte(tt.then), []byte(tt.now)); got != tt.want {
			t.Errorf("%s and %s: %v", tt.then, tt.now, got)
		}
	}
}

// Who reads a record without this code has only the document.
func TestDocumentNamesTheCounters(t *testing.T) {
	doc, err := os.ReadFile("../docs/RECORD.md")
	must(t, err)
	for _, row := range slices.Concat(model.TaskCounters(), model.NodeCounters()) {
		if row.Name == "" || row.Unit == "" || row.From == "" || !bytes.Contains(doc, []byte("`"+row.Name+"`")) {
			t.Errorf("docs/RECORD.md says nothing of %+v", row)
		}
	}
}
