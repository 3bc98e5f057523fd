package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// Difference is the first place at which a replay does not do as the record says.
type Difference struct {
	Segment  string `json:"segment"`
	Seq      uint64 `json:"seq"`
	WallNsec int64  `json:"wall_nsec"`
	What     string `json:"what"` // changes, decisions or incidents
	Index    int    `json:"index"`
	Recorded string `json:"recorded"` // JSON, "" when there is none
	Replayed string `json:"replayed"`
}

// Replay is the outcome of recomputing a record.
type Replay struct {
	Reading
	Ticks     int         `json:"ticks"`
	Windows   int         `json:"windows"`
	Decisions int         `json:"decisions"`
	Changes   int         `json:"changes"`
	First     *Difference `json:"first_difference,omitempty"`

	e       *engine.Engine
	segment string
	same    func(then, now []byte) bool
	older   bool // than version 3
}

// Run recomputes every decision of a record, a folder or one segment, and stops at the
// first difference.
func Run(path string) (*Replay, error) {
	res := &Replay{}
	var err error
	if res.Reading, err = Read(path, res.begin, res.tick); err != nil {
		return nil, err
	}
	if res.Segments == 0 {
		return nil, fmt.Errorf("record: %s holds no segments (*%s)", path, Suffix)
	}
	return res, nil
}

func (res *Replay) begin(name string, r *Reader) (err error) {
	if res.e, err = engine.Resume(r.Header.Params, r.Checkpoint); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	res.segment, res.same, res.older = name, bytes.Equal, false
	if r.Header.Version < 3 {
		res.same, res.older = saysNoOther, true
	}
	return nil
}

func (res *Replay) tick(t *Tick) bool {
	out := res.e.Step(&t.Input)
	res.Ticks++
	res.Decisions += len(out.Decisions)
	res.Changes += len(out.Changes)
	if out.Observed {
		res.Windows++
	}
	then := &t.Output
	if res.older {
		then, out = withoutTold(then), withoutTold(out)
	}
	if res.First = compare(then, out, res.same); res.First != nil {
		res.First.Segment, res.First.Seq, res.First.WallNsec = res.segment, t.Input.Seq, t.Input.WallNsec
	}
	return res.First == nil
}

// compare returns the first difference between two outputs; same says whether what was
// decided then, as JSON, is what is decided now.
func compare(want, got *engine.Output, same func(then, now []byte) bool) *Difference {
	if d := compareList("changes", want.Changes, got.Changes, same); d != nil {
		return d
	}
	if d := compareList("decisions", want.Decisions, got.Decisions, same); d != nil {
		return d
	}
	return compareList("incidents", want.Incidents, got.Incidents, same)
}

func compareList[T any](what string, want, got []T, same func(then, now []byte) bool) *Difference {
	for i := range max(len(want), len(got)) {
		var w, g []byte
		if i < len(want) {
			w, _ = json.Marshal(want[i]) // plain structs: cannot fail
		}
		if i < len(got) {
			g, _ = json.Marshal(got[i])
		}
		if !same(w, g) {
			return &Difference{What: what, Index: i, Recorded: string(w), Replayed: string(g)}
		}
	}
	return nil
}

// withoutTold leaves out the reasons that policies give once for leaving a task alone: when
// they are given again is the engine's memory since version 3, and was the policies' before.
func withoutTold(out *engine.Output) *engine.Output {
	o := *out
	o.Decisions = slices.DeleteFunc(slices.Clone(out.Decisions), func(d model.Decision) bool {
		return d.Incident == "" && (d.Kind == model.DecideLeftAlone || d.Kind == model.DecideLimit || d.Kind == model.DecideRefused)
	})
	return &o
}

// saysNoOther compares what a record of an older version says with what is decided now: it
// may say less, since decisions have learned to say more, but nothing else.
func saysNoOther(then, now []byte) bool {
	var a, b any
	if json.Unmarshal(then, &a) != nil || json.Unmarshal(now, &b) != nil {
		return len(then) == 0 && len(now) == 0
	}
	return within(a, b)
}

// within reports whether b holds all that a says. What a leaves open is a zero.
func within(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range a {
			if !within(v, b[k]) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, within)
	}
	return a == b
}
