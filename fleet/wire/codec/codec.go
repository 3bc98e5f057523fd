// Package codec writes and reads batches as they travel (docs/WIRE.md): a Protocol Buffers message, compressed with zstd. Its few
// fields are written by hand: generated code would bring a compiler, and a slice of structs where columns are wanted.
package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Field numbers of docs/WIRE.md. None is ever used again for something else.
const (
	fieldVersion = 1 + iota
	fieldNode
	fieldSpool
	fieldSeq
	fieldBoot
	fieldPlatform
	fieldProgram
	fieldLost
	fieldTasks
	fieldSamples
	fieldDecisions
	fieldIncidents
	fieldRollout
)

const (
	taskNum = 1 + iota
	taskPath
	taskJob
	taskClass
	taskImportance
	taskProduction
	taskSize
)

const (
	samplesTask = 1 + iota
	samplesWall
	samplesCPU
	samplesFlags
	samplesSignals
)

const (
	signalName = 1 + iota
	signalDefinition
	signalValues
)

// zstd's encoder and decoder may be used by many goroutines at once; these need no Close.
var (
	packer, _   = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<18))
	unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(wire.MaxUnpacked), zstd.WithDecoderConcurrency(0))
)

// Encode returns the batch as it travels.
func Encode(b *wire.Batch) ([]byte, error) {
	m := protowire.AppendTag(nil, fieldVersion, protowire.VarintType)
	m = protowire.AppendVarint(m, wire.Version)
	m = text(m, fieldNode, b.Node)
	m = text(m, fieldSpool, b.Spool)
	m = number(m, fieldSeq, b.Seq)
	m = text(m, fieldBoot, b.Boot)
	m = text(m, fieldPlatform, b.Platform)
	m = text(m, fieldProgram, b.Program)
	m = number(m, fieldLost, b.Lost)
	m = text(m, fieldRollout, b.Rollout)
	for i := range b.Tasks {
		t := &b.Tasks[i]
		var e []byte
		e = number(e, taskNum, uint64(t.Num))
		e = text(e, taskPath, t.Path)
		e = text(e, taskJob, t.Job)
		e = number(e, taskClass, uint64(t.Class))
		e = number(e, taskImportance, uint64(t.Importance))
		e = number(e, taskProduction, protowire.EncodeBool(t.Production))
		e = text(e, taskSize, t.Size)
		m = inner(m, fieldTasks, e)
	}
	if b.Samples.Len() > 0 {
		m = inner(m, fieldSamples, encode(&b.Samples))
	}
	for i := range b.Decisions {
		var err error
		if m, err = document(m, fieldDecisions, &b.Decisions[i]); err != nil {
			return nil, err
		}
	}
	for _, inc := range b.Incidents {
		var err error
		if m, err = document(m, fieldIncidents, inc); err != nil {
			return nil, err
		}
	}
	if len(m) > wire.MaxUnpacked {
		return nil, fmt.Errorf("wire: a batch of %d bytes; at most %d", len(m), wire.MaxUnpacked)
	}
	out := packer.EncodeAll(m, make([]byte, 0, len(m)/3))
	if len(out) > wire.MaxBytes {
		return nil, fmt.Errorf("wire: a batch of %d bytes when packed; at most %d", len(out), wire.MaxBytes)
	}
	return out, nil
}

func encode(s *wire.Samples) []byte {
	var e []byte
	e = packed(e, samplesTask, len(s.Task), func(c []byte, i int) []byte { return protowire.AppendVarint(c, uint64(s.Task[i])) })
	last := int64(0)
	e = packed(e, samplesWall, len(s.WallMsec), func(c []byte, i int) []byte {
		c = protowire.AppendVarint(c, protowire.EncodeZigZag(s.WallMsec[i]-last))
		last = s.WallMsec[i]
		return c
	})
	e = floats(e, samplesCPU, s.CPU)
	e = packed(e, samplesFlags, len(s.Flags), func(c []byte, i int) []byte { return protowire.AppendVarint(c, uint64(s.Flags[i])) })
	for i := range s.Signals {
		var f []byte
		f = text(f, signalName, s.Signals[i].Source.String())
		f = text(f, signalDefinition, s.Signals[i].Definition)
		f = floats(f, signalValues, s.Signals[i].Values)
		e = inner(e, samplesSignals, f)
	}
	return e
}

func text(m []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return m
	}
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), s)
}

func number(m []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), v)
}

func inner(m []byte, field protowire.Number, e []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), e)
}

func document(m []byte, field protowire.Number, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	if len(b) > wire.MaxEvent {
		return nil, fmt.Errorf("wire: an event of %d bytes; at most %d", len(b), wire.MaxEvent)
	}
	return inner(m, field, b), nil
}

func packed(m []byte, field protowire.Number, n int, add func(c []byte, i int) []byte) []byte {
	var c []byte
	for i := range n {
		c = add(c, i)
	}
	return inner(m, field, c)
}

func floats(m []byte, field protowire.Number, values []float32) []byte {
	c := make([]byte, 0, 4*len(values))
	for _, v := range values {
		c = protowire.AppendFixed32(c, math.Float32bits(v))
	}
	return inner(m, field, c)
}

// Decode reads a batch as it travelled. What it returns is bounded, and not yet checked.
func Decode(data []byte) (*wire.Batch, error) {
	if len(data) > wire.MaxBytes {
		return nil, fmt.Errorf("wire: %d bytes; at most %d", len(data), wire.MaxBytes)
	}
	m, err := unpacker.DecodeAll(data, nil)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	b, version, entries := &wire.Batch{}, uint64(0), 0
	err = fields(m, func(f protowire.Number, v uint64, e []byte) (err error) {
		switch f {
		case fieldVersion:
			if version = v; v > wire.Version {
				return fmt.Errorf("%w: %d, known here: %d", wire.ErrNewer, v, wire.Version)
			}
		case fieldNode:
			b.Node = string(e)
		case fieldSpool:
			b.Spool = string(e)
		case fieldSeq:
			b.Seq = v
		case fieldBoot:
			b.Boot = string(e)
		case fieldPlatform:
			b.Platform = string(e)
		case fieldProgram:
			b.Program = string(e)
		case fieldLost:
			b.Lost = v
		case fieldRollout:
			b.Rollout = string(e)
		case fieldTasks:
			err = task(b, e)
		case fieldSamples:
			err = decode(&b.Samples, e)
		case fieldDecisions:
			var d model.Decision
			if err = event(e, len(b.Decisions), &d); err == nil {
				b.Decisions = append(b.Decisions, d)
				err = bound(&entries, len(d.Facts))
			}
		case fieldIncidents:
			inc := &model.Incident{}
			if err = event(e, len(b.Incidents), inc); err == nil {
				b.Incidents = append(b.Incidents, inc)
				err = bound(&entries, entriesOf(inc))
			}
		}
		return err
	})
	if err == nil && version == 0 {
		err = errors.New("it has no version")
	}
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	b.Bytes = len(m) + taskBytes*len(b.Tasks) + entryBytes*(len(b.Decisions)+len(b.Incidents)+entries)
	return b, nil
}

// What an entry takes that is nothing but {}: a task, and the largest one of an event.
const taskBytes, entryBytes = 128, 512

func event(e []byte, n int, v any) error {
	switch {
	case n >= wire.MaxEvents:
		return fmt.Errorf("more than %d events", wire.MaxEvents)
	case len(e) > wire.MaxEvent:
		return fmt.Errorf("an event of %d bytes; at most %d", len(e), wire.MaxEvent)
	}
	return json.Unmarshal(e, v)
}

// bound counts entries of lists in events: each is two bytes of JSON, and hundreds as it is held.
func bound(entries *int, more int) error {
	if *entries += more; *entries > wire.MaxEntries {
		return fmt.Errorf("more than %d entries in events", wire.MaxEntries)
	}
	return nil
}

func entriesOf(inc *model.Incident) int {
	n := len(inc.Tried) + len(inc.Rounds)
	for i := range inc.Rounds {
		n += len(inc.Rounds[i].Suspects) + len(inc.Rounds[i].Members)
	}
	return n
}

func task(b *wire.Batch, e []byte) error {
	if len(b.Tasks) >= wire.MaxTasks {
		return fmt.Errorf("more than %d tasks", wire.MaxTasks)
	}
	var t wire.Task
	err := fields(e, func(f protowire.Number, v uint64, e []byte) error {
		switch f {
		case taskNum:
			t.Num = uint32(v) //nolint:gosec // a number that does not fit is another one, and no harm
		case taskPath:
			t.Path = string(e)
		case taskJob:
			t.Job = string(e)
		case taskClass:
			t.Class = model.Class(min(v, 255))
		case taskImportance:
			t.Importance = model.Importance(min(v, 255))
		case taskProduction:
			t.Production = v != 0
		case taskSize:
			t.Size = string(e)
		}
		return nil
	})
	b.Tasks = append(b.Tasks, t)
	return err
}

func decode(s *wire.Samples, e []byte) error {
	return fields(e, func(f protowire.Number, _ uint64, e []byte) (err error) {
		switch f {
		case samplesTask:
			s.Task, err = varints(e, func(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) })
		case samplesWall:
			last := int64(0)
			s.WallMsec, err = varints(e, func(v uint64) int64 {
				last += protowire.DecodeZigZag(v)
				return last
			})
		case samplesCPU:
			s.CPU, err = readFloats(e)
		case samplesFlags:
			s.Flags, err = varints(e, func(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) })
		case samplesSignals:
			err = signal(s, e)
		}
		return err
	})
}

// signal reads one column. A signal that this version does not know is left out.
func signal(s *wire.Samples, e []byte) error {
	var x wire.Signal
	name := ""
	err := fields(e, func(f protowire.Number, _ uint64, e []byte) (err error) {
		switch f {
		case signalName:
			name = string(e)
		case signalDefinition:
			x.Definition = string(e)
		case signalValues:
			x.Values, err = readFloats(e)
		}
		return err
	})
	if err != nil || x.Source.UnmarshalText([]byte(name)) != nil {
		return err
	}
	for i := range s.Signals {
		if s.Signals[i].Source == x.Source {
			return fmt.Errorf("%s is there twice", name)
		}
	}
	s.Signals = append(s.Signals, x)
	return nil
}

// errCut: a message ends in the midst of a field.
var errCut = errors.New("a field is cut off, or of a kind that is not used")

// fields calls f for each field of a message: with the number of a varint, with the bytes of everything else.
func fields(m []byte, f func(field protowire.Number, v uint64, e []byte) error) error {
	for len(m) > 0 {
		num, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return errCut
		}
		m = m[n:]
		var v uint64
		var e []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(m)
		case protowire.BytesType:
			e, n = protowire.ConsumeBytes(m)
		default:
			n = protowire.ConsumeFieldValue(num, kind, m)
		}
		if n < 0 {
			return errCut
		}
		m = m[n:]
		if err := f(num, v, e); err != nil {
			return err
		}
	}
	return nil
}

func varints[T any](e []byte, of func(v uint64) T) ([]T, error) {
	out := make([]T, 0, min(len(e), wire.MaxSamples))
	for len(e) > 0 {
		v, n := protowire.ConsumeVarint(e)
		if n < 0 {
			return nil, errCut
		}
		if len(out) == wire.MaxSamples {
			return nil, fmt.Errorf("more than %d samples", wire.MaxSamples)
		}
		out, e = append(out, of(v)), e[n:]
	}
	return out, nil
}

func readFloats(e []byte) ([]float32, error) {
	switch {
	case len(e)%4 != 0:
		return nil, errCut
	case len(e)/4 > wire.MaxSamples:
		return nil, fmt.Errorf("more than %d samples", wire.MaxSamples)
	}
	out := make([]float32, len(e)/4)
	for i := range out {
		v, _ := protowire.ConsumeFixed32(e[4*i:])
		out[i] = math.Float32frombits(v)
	}
	return out, nil
}
