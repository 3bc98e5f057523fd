package record

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/commensal-io/commensal/engine"
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
	Segments  int         `json:"segments"`
	Ticks     int         `json:"ticks"`
	Windows   int         `json:"windows"`
	Decisions int         `json:"decisions"`
	Changes   int         `json:"changes"`
	First     *Difference `json:"first_difference,omitempty"`
	// Torn names segments whose last frame was cut off.
	Torn []string `json:"torn,omitempty"`
}

// Run recomputes every decision of a record, a folder or one segment, and stops at the
// first difference.
func Run(path string) (*Replay, error) {
	files, err := Segments(path)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("record: %s holds no segments (*%s)", path, Suffix)
	}
	res := &Replay{}
	for _, f := range files {
		if err := res.segment(f); err != nil {
			return res, fmt.Errorf("%s: %w", f, err)
		}
		res.Segments++
		if res.First != nil {
			break
		}
	}
	return res, nil
}

func (res *Replay) segment(name string) error {
	var e *engine.Engine
	torn, err := ReadSegment(name, func(r *Reader) (err error) {
		if e, err = engine.Resume(r.Header.Params, r.Checkpoint); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return nil
	}, func(t *Tick) bool {
		out := e.Step(&t.Input)
		res.Ticks++
		res.Decisions += len(out.Decisions)
		res.Changes += len(out.Changes)
		if out.Observed {
			res.Windows++
		}
		if d := compare(&t.Output, out); d != nil {
			d.Segment, d.Seq, d.WallNsec = name, t.Input.Seq, t.Input.WallNsec
			res.First = d
		}
		return res.First == nil
	})
	if torn {
		res.Torn = append(res.Torn, name)
	}
	return err
}

// compare returns the first difference between two outputs.
func compare(want, got *engine.Output) *Difference {
	if d := compareList("changes", want.Changes, got.Changes); d != nil {
		return d
	}
	if d := compareList("decisions", want.Decisions, got.Decisions); d != nil {
		return d
	}
	return compareList("incidents", want.Incidents, got.Incidents)
}

func compareList[T any](what string, want, got []T) *Difference {
	for i := range max(len(want), len(got)) {
		var w, g []byte
		if i < len(want) {
			w, _ = json.Marshal(want[i]) // plain structs: cannot fail
		}
		if i < len(got) {
			g, _ = json.Marshal(got[i])
		}
		if !bytes.Equal(w, g) {
			return &Difference{What: what, Index: i, Recorded: string(w), Replayed: string(g)}
		}
	}
	return nil
}
