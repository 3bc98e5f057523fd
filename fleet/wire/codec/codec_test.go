package codec

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

const nowMsec = 1_790_000_000_000

// drawn is a batch such as a node would send.
func drawn(seed uint64) *wire.Batch {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := &wire.Batch{Node: "web-1", Spool: "0123456789abcdef", Seq: 1 + rng.Uint64N(1e6), Boot: "b", Platform: "Xeon 作", Program: "v1", Rollout: "abc", Lost: rng.Uint64N(3)}
	for i := range 1 + rng.IntN(30) {
		b.Tasks = append(b.Tasks, wire.Task{Num: uint32(i + 1), Path: "/a/" + strings.Repeat("x", i), Job: "job", Class: model.Class(rng.IntN(3)), Importance: model.Importance(rng.IntN(3)), Production: rng.IntN(2) == 0, Size: []string{"", "large", "cpu-0.5"}[i%3]})
	}
	n := rng.IntN(2000)
	for _, src := range []model.Source{model.SourceCPI, model.SourceSlowdown} {
		b.Samples.Signals = append(b.Samples.Signals, wire.Signal{Source: src, Definition: src.Definition(false)})
	}
	for i := range n {
		s := &b.Samples
		s.Task = append(s.Task, uint32(rng.IntN(len(b.Tasks))))
		s.WallMsec = append(s.WallMsec, nowMsec-int64(rng.IntN(1e6)))
		s.CPU = append(s.CPU, rng.Float32())
		s.Flags = append(s.Flags, uint32(rng.IntN(4)))
		for k := range s.Signals {
			v := 1 + rng.Float32()
			if i%7 == 0 {
				v = float32(math.NaN())
			}
			s.Signals[k].Values = append(s.Signals[k].Values, v)
		}
	}
	if n == 0 {
		b.Samples = wire.Samples{}
	}
	b.Decisions = []model.Decision{{Kind: model.DecideCap, WallNsec: nowMsec * 1e6, Path: "/be", Reason: "it does", Facts: []model.Fact{model.FactCap.Is(0.1)}}}
	b.Incidents = []*model.Incident{{ID: "i1", OpenedWall: nowMsec * 1e6, VictimJob: "job", Rounds: []model.Round{{Cap: 0.1}}}}
	return b
}

// What is written is read, to the bit.
func TestBatchesSurviveTheWay(t *testing.T) {
	for seed := range uint64(50) {
		b := drawn(seed)
		data, err := Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(data)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := got.Check("web-1", nowMsec); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(b, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(wire.Batch{}, "Bytes")); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// A reader of this version reads what a later one adds without a new version, and refuses a new one by name.
func TestLaterVersions(t *testing.T) {
	m := protowire.AppendVarint(protowire.AppendTag(nil, fieldVersion, protowire.VarintType), wire.Version)
	m = text(m, fieldNode, "a")
	m = text(m, 99, "something new")
	if b, err := Decode(packer.EncodeAll(m, nil)); err != nil || b.Node != "a" {
		t.Errorf("%+v, %v", b, err)
	}
	m = protowire.AppendVarint(protowire.AppendTag(nil, fieldVersion, protowire.VarintType), wire.Version+1)
	if _, err := Decode(packer.EncodeAll(m, nil)); !errors.Is(err, wire.ErrNewer) || !strings.Contains(err.Error(), "2, known here: 1") {
		t.Error(err)
	}
	if _, err := Decode(packer.EncodeAll(text(nil, fieldNode, "a"), nil)); err == nil {
		t.Error("taken without a version")
	}
}

// What cannot be is refused, each by what is wrong with it.
func TestCheck(t *testing.T) {
	nan := float32(math.NaN())
	for want, spoil := range map[string]func(b *wire.Batch){
		"came from":             func(b *wire.Batch) { b.Node = "web-2" },
		"16 hexadecimal":        func(b *wire.Batch) { b.Spool = "../../../../etc/" },
		"sequence 0":            func(b *wire.Batch) { b.Seq = 0 },
		"no name":               func(b *wire.Batch) { b.Tasks[0].Job = "a\x1b[2J" },
		"size \"../../etc\"":    func(b *wire.Batch) { b.Tasks[0].Size = "../../etc" },
		"at most 63":            func(b *wire.Batch) { b.Tasks[0].Size = strings.Repeat("a", 64) },
		"size \"a\\x00b\"":      func(b *wire.Batch) { b.Tasks[0].Size = "a\x00b" },
		"class unknown":         func(b *wire.Batch) { b.Tasks[0].Class = 7 },
		"columns of":            func(b *wire.Batch) { b.Samples.CPU = b.Samples.CPU[1:] },
		"is of task":            func(b *wire.Batch) { b.Samples.Task[0] = 999 },
		"off the hub's clock":   func(b *wire.Batch) { b.Samples.WallMsec[0] += 3600e3 },
		"3456000 s off the hub": func(b *wire.Batch) { b.Samples.WallMsec[0] = nowMsec - 40*24*3600e3 },
		"used NaN CPUs":         func(b *wire.Batch) { b.Samples.CPU[0] = nan },
		"used -1 CPUs":          func(b *wire.Batch) { b.Samples.CPU[0] = -1 },
		"has cpi +Inf":          func(b *wire.Batch) { b.Samples.Signals[0].Values[0] = float32(math.Inf(1)) },
		"decision 0 is 86400 s": func(b *wire.Batch) { b.Decisions = []model.Decision{{WallNsec: (nowMsec + 86400e3) * 1e6}} },
		"decision 0 is -":       func(b *wire.Batch) { b.Decisions = []model.Decision{{}} },
		"incident 0 is 660 s":   func(b *wire.Batch) { b.Incidents = []*model.Incident{{OpenedWall: (nowMsec + 660e3) * 1e6}} },
		"incident 0 is -":       func(b *wire.Batch) { b.Incidents = []*model.Incident{{OpenedWall: -1}} },
		"incident 1 is \"a\" again": func(b *wire.Batch) {
			b.Incidents = []*model.Incident{{ID: "a", OpenedWall: nowMsec * 1e6}, {ID: "a", OpenedWall: nowMsec * 1e6}}
		},
		"decision 0: a text that is no name": func(b *wire.Batch) { b.Decisions[0].Path = "/\x1b[2J" },
		"decision 0: a sentence of":          func(b *wire.Batch) { b.Decisions[0].Reason = strings.Repeat("a", 1<<15) },
		"incident 0: a text that is no name": func(b *wire.Batch) { b.Incidents[0].VictimPath = strings.Repeat("a", 4097) },
		"incident 0: a sentence of":          func(b *wire.Batch) { b.Incidents[0].Rounds[0].Verdict = strings.Repeat("a", 1<<15) },
		"\"suspect\\n\"":                     func(b *wire.Batch) { b.Incidents[0].Rounds[0].Suspects = []model.Suspect{{Job: "suspect\n"}} },
		"\"member\\n\"":                      func(b *wire.Batch) { b.Incidents[0].Rounds[0].Members = []model.Member{{Path: "member\n"}} },
		"slowdown: a text that is no name":   func(b *wire.Batch) { b.Samples.Signals[1].Definition = strings.Repeat("a", 4097) },
		"0 values of slowdown for":           func(b *wire.Batch) { b.Samples.Signals[1].Values = nil },
	} {
		b := drawn(3)
		spoil(b)
		if err := b.Check("web-1", nowMsec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, name := range []string{"", "a.b", "a*", ">", "-a", "A", strings.Repeat("a", 64), "a/b"} {
		if wire.NodeName(name) == nil {
			t.Errorf("node %q is taken", name)
		}
	}
}

// What is small on the way and large unpacked is refused before it takes the memory.
func TestBombsAreRefused(t *testing.T) {
	bomb := packer.EncodeAll(make([]byte, wire.MaxUnpacked+1), nil)
	if len(bomb) > 1<<20 {
		t.Fatalf("%d bytes are refused by the transport", len(bomb))
	}
	if b, err := Decode(bomb); err == nil {
		t.Errorf("taken: %d tasks", len(b.Tasks))
	}
	many := &wire.Batch{Node: "a", Tasks: make([]wire.Task, wire.MaxTasks+1)}
	if data, err := Encode(many); err == nil {
		if _, err := Decode(data); err == nil {
			t.Error("more tasks than may be were taken")
		}
	}
	// Events: one that is long, of which 40 once took the hub 1.2 GiB, and many that are nothing but {} as JSON.
	long := &wire.Batch{Incidents: []*model.Incident{{ID: "a", VictimPath: strings.Repeat("a", 12<<20)}}}
	if _, err := Encode(long); err == nil || !strings.Contains(err.Error(), "an event of") {
		t.Errorf("a node would send it: %v", err)
	}
	for name, c := range map[string]struct {
		field    protowire.Number
		document string
		events   int
		want     string
	}{
		"an incident's path":   {fieldIncidents, `{"victim_path":"` + strings.Repeat("a", 12<<20) + `"}`, 1, "an event of 12582"},
		"a decision's reason":  {fieldDecisions, `{"reason":"` + strings.Repeat("a", 12<<20) + `"}`, 1, "an event of 12582"},
		"rounds":               {fieldIncidents, `{"rounds":[` + strings.Repeat("{},", 80_000) + `{}]}`, 60, "more than 65536 entries"},
		"suspects and members": {fieldIncidents, `{"rounds":[{"suspects":[` + strings.Repeat("{},", 9_000) + `{}],"members":[` + strings.Repeat("{},", 9_000) + `{}]}]}`, 60, "more than 65536 entries"},
		"what was tried":       {fieldIncidents, `{"tried":[` + strings.Repeat(`"",`, 80_000) + `""]}`, 60, "more than 65536 entries"},
		"facts":                {fieldDecisions, `{"facts":[` + strings.Repeat("{},", 60_000) + `{}]}`, 60, "more than 65536 entries"},
	} {
		m := protowire.AppendVarint(protowire.AppendTag(nil, fieldVersion, protowire.VarintType), wire.Version)
		for range c.events {
			m = inner(m, c.field, []byte(c.document))
		}
		if _, err := Decode(packer.EncodeAll(m, nil)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a batch takes in memory is not told too small: of lists of nothing, each entry is two bytes on the way.
func TestBytesAreNotTooFew(t *testing.T) {
	for name, m := range map[string][]byte{
		"tasks":     bytes.Repeat(inner(nil, fieldTasks, nil), wire.MaxTasks),
		"decisions": bytes.Repeat(inner(nil, fieldDecisions, []byte("{}")), wire.MaxEvents),
		"incidents": bytes.Repeat(inner(nil, fieldIncidents, []byte("{}")), wire.MaxEvents),
		"rounds":    inner(nil, fieldIncidents, []byte(`{"rounds":[`+strings.Repeat("{},", 60_000)+`{}]}`)),
		"suspects":  inner(nil, fieldIncidents, []byte(`{"rounds":[{"suspects":[`+strings.Repeat("{},", 60_000)+`{}]}]}`)),
		"facts":     inner(nil, fieldDecisions, []byte(`{"facts":[`+strings.Repeat("{},", 60_000)+`{}]}`)),
	} {
		m = append(m, protowire.AppendVarint(protowire.AppendTag(nil, fieldVersion, protowire.VarintType), wire.Version)...)
		data := packer.EncodeAll(m, nil)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		b, err := Decode(data)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > 3*int64(b.Bytes)/2 { // a slice that grew has room to spare
			t.Errorf("%s: said to take %d bytes, and takes %d", name, b.Bytes, took)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for seed := range uint64(4) {
		data, err := Encode(drawn(seed))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	bomb := packer.EncodeAll(make([]byte, wire.MaxUnpacked+1), nil)
	f.Add(bomb)
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Decode(data)
		if err != nil {
			return
		}
		if b.Samples.Len() > wire.MaxSamples || len(b.Tasks) > wire.MaxTasks {
			t.Fatal("not bounded")
		}
		if b.Check(b.Node, nowMsec) != nil {
			return
		}
		again, err := Encode(b)
		if err != nil {
			t.Skip(err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatal(err)
		}
	})
}
