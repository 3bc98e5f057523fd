package record

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// A tick frame is, in order, all integers as varints:
//
//	seq, mono_nsec, wall_nsec (signed), flags
//	if flags&hasRare: length and JSON of rare
//	if flags&hasSnapshot: mark, snapshot mono and wall, node: cpus, its counters
//	  number of tasks, and for each: number, its counters as differences
//	if flags&hasDomains: as domains.go has it
//	if flags&hasPulse: mono, 2 counters, number of tasks, and for each: number, 3 counters
//
// Which counters a node and a task have, and in which order, is in the header (columns.go).
//
// flags&hasOutput says that an output frame follows, so that a record which ends between
// the two is known to be torn.
//
// A group of counters is one word of outcomes, three bits each, then one signed
// difference for each counter that is OK.

const (
	hasRare     = 1
	hasSnapshot = 2
	hasOutput   = 4
	hasPulse    = 8  // since version 2
	hasDomains  = 16 // since version 6
)

// rare is the part of an input that is seldom there.
type rare struct {
	Results    []model.Result      `json:"results,omitempty"`
	Knobs      []model.KnobReading `json:"knobs,omitempty"`
	Commands   []model.Command     `json:"commands,omitempty"`
	KillSwitch bool                `json:"kill_switch,omitempty"`
	Restored   *engine.Restored    `json:"restored,omitempty"`
	Added      []model.Task        `json:"added,omitempty"`
	Removed    []model.TaskNum     `json:"removed,omitempty"`
	Topology   *model.Topology     `json:"topology,omitempty"`
	Settings   []model.KnobReading `json:"settings,omitempty"`
	Shields    []model.Shield      `json:"shields,omitempty"`
	Params     *engine.Params      `json:"params,omitempty"`
	Specs      []model.Spec        `json:"specs,omitempty"`
	Priors     []model.Priors      `json:"priors,omitempty"`
	SLO        []model.Latency     `json:"slo,omitempty"`
	Waiting    []model.Waiting     `json:"waiting,omitempty"`
	Passed     []int64             `json:"passed,omitempty"` // of the pulse (pulse.go)

	Memory []model.MemorySample `json:"memory,omitempty"`
	Look   *model.Look          `json:"look,omitempty"`
	Ages   []model.PageAges     `json:"ages,omitempty"`
	IO     []model.IOSample     `json:"io,omitempty"`
	Homes  []model.PageHomes    `json:"homes,omitempty"`
	GPUs   *model.GPUReading    `json:"gpus,omitempty"`
}

func (r *rare) empty() bool {
	return len(r.Results) == 0 && len(r.Knobs) == 0 && len(r.Commands) == 0 && !r.KillSwitch && len(r.Added) == 0 && len(r.Removed) == 0 &&
		r.Topology == nil && len(r.Settings) == 0 && r.Params == nil && len(r.Specs) == 0 && len(r.Priors) == 0 && len(r.SLO) == 0 && r.Restored == nil && len(r.Passed) == 0 && len(r.Waiting) == 0 && len(r.Shields) == 0 && len(r.Memory) == 0 && r.Look == nil && len(r.Ages) == 0 && len(r.IO) == 0 && len(r.Homes) == 0 && r.GPUs == nil
}

// coder holds what differences are taken against. Writer and reader keep one each and
// move through the segment in step.
type coder struct {
	node   model.NodeSample
	tasks  []model.TaskSample // of the last snapshot, ordered by Num
	pulse  model.Pulse        // the last one; its tasks are those of the last with detail
	passed []int64            // scratch

	domains []model.DomainSample // of the last snapshot that had any

	// Of a reader: which counter each column is. A writer has one for each, in order.
	nodeAt, taskAt, domainAt []int
	// Of a reader: how many counters a pulse has.
	pulsed int
}

// encode appends a tick's payload; output says whether an output frame follows.
func (c *coder) encode(b []byte, in *engine.Input, output bool) ([]byte, error) {
	b = binary.AppendUvarint(b, in.Seq)
	b = binary.AppendVarint(b, in.MonoNsec)
	b = binary.AppendVarint(b, in.WallNsec)
	r := rare{
		Results: in.Results, Knobs: in.Knobs, Commands: in.Commands, KillSwitch: in.KillSwitch,
		Params: in.Params, Specs: in.Specs, Priors: in.Priors, SLO: in.SLO, Restored: in.Restored, Look: in.Look,
	}
	flags := byte(0)
	if output {
		flags |= hasOutput
	}
	if in.Snapshot != nil {
		flags |= hasSnapshot
		r.Added, r.Removed = in.Snapshot.Added, in.Snapshot.Removed
		r.Topology, r.Settings, r.Waiting = in.Snapshot.Topology, in.Snapshot.Settings, in.Snapshot.Waiting
		if len(in.Snapshot.Domains) > 0 {
			flags |= hasDomains
		}
		r.Shields, r.Memory, r.Ages, r.IO, r.Homes, r.GPUs = in.Snapshot.Shields, in.Snapshot.Memory, in.Snapshot.Ages, in.Snapshot.IO, in.Snapshot.Homes, in.Snapshot.GPUs
	}
	if in.Pulse != nil {
		flags |= hasPulse
		r.Passed = c.encodePassed(in.Pulse)
	}
	if !r.empty() {
		flags |= hasRare
	}
	b = append(b, flags)
	if flags&hasRare != 0 {
		j, err := json.Marshal(r) // by value: a pointer would put r on the heap every tick
		if err != nil {
			return b, fmt.Errorf("record: %w", err)
		}
		b = binary.AppendUvarint(b, uint64(len(j)))
		b = append(b, j...)
	}
	if in.Snapshot != nil {
		b = c.encodeSnapshot(b, in.Snapshot)
	}
	if flags&hasDomains != 0 {
		b = c.encodeDomains(b, in.Snapshot)
	}
	if in.Pulse != nil {
		b = c.encodePulse(b, in.Pulse)
	}
	return b, nil
}

func (c *coder) encodeSnapshot(b []byte, s *model.Snapshot) []byte {
	b = append(b, byte(s.Mark))
	b = binary.AppendVarint(b, s.MonoNsec)
	b = binary.AppendVarint(b, s.WallNsec)
	b = binary.AppendUvarint(b, uint64(s.Node.CPUs))
	b = appendCounters(b, s.Node.C[:], c.node.C[:])
	b = binary.AppendUvarint(b, uint64(len(s.Tasks)))
	j := 0
	zero := model.TaskSample{}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		prev := &zero
		for j < len(c.tasks) && c.tasks[j].Num < t.Num {
			j++
		}
		if j < len(c.tasks) && c.tasks[j].Num == t.Num {
			prev = &c.tasks[j]
		}
		b = binary.AppendUvarint(b, uint64(t.Num))
		b = appendCounters(b, t.C[:], prev.C[:])
	}
	c.node = s.Node
	c.tasks = append(c.tasks[:0], s.Tasks...)
	return b
}

func appendCounters(b []byte, now, before []model.Counter) []byte {
	var outcomes uint64
	for i := range now {
		outcomes |= uint64(now[i].Outcome) << (3 * i)
	}
	b = binary.AppendUvarint(b, outcomes)
	for i := range now {
		if now[i].Outcome == model.OK {
			b = binary.AppendVarint(b, int64(now[i].Value-base(&before[i])))
		}
	}
	return b
}

// base is what a difference is taken against. A counter that was not read has no value in
// the record, whatever the sample held.
func base(c *model.Counter) uint64 {
	if c.Outcome != model.OK {
		return 0
	}
	return c.Value
}

// cursor reads varints and remembers the first failure.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	return c.took(v, n)
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	return int64(c.took(uint64(v), n))
}

func (c *cursor) took(v uint64, n int) uint64 {
	if n <= 0 {
		c.fail("a number is cut off")
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail("a part is cut off")
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) byte() byte {
	if p := c.bytes(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) fail(why string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrCorrupt, why)
	}
	c.b = nil
}

// decode reads a tick's payload into in; snapshot and pulse are reused. output says whether
// an output frame follows.
func (c *coder) decode(payload []byte, in *engine.Input, snap *model.Snapshot, pulse *model.Pulse) (output bool, err error) {
	cur := &cursor{b: payload}
	*in = engine.Input{Seq: cur.uvarint(), MonoNsec: cur.varint(), WallNsec: cur.varint()}
	flags := cur.byte()
	if flags&^(hasRare|hasSnapshot|hasOutput|hasPulse|hasDomains) != 0 || flags&hasDomains != 0 && flags&hasSnapshot == 0 {
		cur.fail("unknown flags")
	}
	var r rare
	if flags&hasRare != 0 {
		if err := json.Unmarshal(cur.bytes(cur.uvarint()), &r); err != nil && cur.err == nil {
			return false, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	in.Results, in.Knobs, in.Commands, in.KillSwitch, in.Restored = r.Results, r.Knobs, r.Commands, r.KillSwitch, r.Restored
	in.Params, in.Specs, in.Priors, in.SLO, in.Look = r.Params, r.Specs, r.Priors, r.SLO, r.Look
	if flags&hasSnapshot != 0 {
		*snap = model.Snapshot{Added: r.Added, Removed: r.Removed, Topology: r.Topology, Settings: r.Settings, Waiting: r.Waiting, Shields: r.Shields, Memory: r.Memory, Ages: r.Ages, IO: r.IO, Homes: r.Homes, GPUs: r.GPUs, Tasks: snap.Tasks[:0]}
		c.decodeSnapshot(cur, snap)
		in.Snapshot = snap
	}
	if flags&hasDomains != 0 {
		c.decodeDomains(cur, snap)
	}
	if flags&hasPulse != 0 {
		c.decodePulse(cur, pulse)
		pulse.Passed = passedOf(r.Passed, pulse)
		in.Pulse = pulse
	}
	if cur.err == nil && len(cur.b) > 0 {
		cur.fail("bytes are left over")
	}
	return flags&hasOutput != 0, cur.err
}

func (c *coder) decodeSnapshot(cur *cursor, s *model.Snapshot) {
	s.Mark = model.WindowMark(cur.byte())
	s.MonoNsec, s.WallNsec = cur.varint(), cur.varint()
	s.Node.CPUs = int(cur.uvarint())
	readCounters(cur, s.Node.C[:], c.node.C[:], c.nodeAt)
	n := cur.uvarint()
	if n > uint64(len(cur.b)) { // a task takes more than a byte
		cur.fail("more tasks than bytes")
		return
	}
	j := 0
	zero := model.TaskSample{}
	for range n {
		t := model.TaskSample{Num: model.TaskNum(cur.uvarint())}
		prev := &zero
		for j < len(c.tasks) && c.tasks[j].Num < t.Num {
			j++
		}
		if j < len(c.tasks) && c.tasks[j].Num == t.Num {
			prev = &c.tasks[j]
		}
		readCounters(cur, t.C[:], prev.C[:], c.taskAt)
		if k := len(s.Tasks); k > 0 && s.Tasks[k-1].Num >= t.Num {
			cur.fail("tasks are not in order")
		}
		if cur.err != nil {
			return
		}
		s.Tasks = append(s.Tasks, t)
	}
	c.node = s.Node
	c.tasks = append(c.tasks[:0], s.Tasks...)
}

// readCounters reads a group of counters; at says which of them each column is, -1 for one
// that is passed over.
func readCounters(cur *cursor, now, before []model.Counter, at []int) {
	outcomes := cur.uvarint()
	for i, place := range at {
		outcome := model.Outcome(outcomes >> (3 * i) & 7)
		if outcome > model.Fresh {
			cur.fail("unknown outcome")
		}
		difference := uint64(0)
		if outcome == model.OK {
			difference = uint64(cur.varint())
		}
		if place < 0 {
			continue
		}
		now[place].Outcome = outcome
		if outcome == model.OK {
			now[place].Value = base(&before[place]) + difference
		}
	}
	if outcomes>>(3*len(at)) != 0 {
		cur.fail("unknown outcomes")
	}
}
