package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Several hubs share a fleet's jobs. So that all samples of a job meet in one of them, a node divides what it says by job, into as many
// parts as the Layout says; each part is a batch with a number and a subject of its own, and a hub reads the subjects of its parts.

// MaxParts bounds the parts, and so the hubs.
const MaxParts = 64

// Layout says into how many parts nodes divide their batches, and how many hubs share these: hub 2 of 3 has those whose number modulo
// 3 is 1.
type Layout struct {
	Version    int    `json:"version"`    // of this document: 1
	Partitions int    `json:"partitions"` // 1 to MaxParts
	Shards     int    `json:"shards"`     // 1 to Partitions; of no interest to nodes
	By         string `json:"by"`         // the hub that said so
	WallNsec   int64  `json:"wall_nsec"`
}

// LayoutVersion is of Layout.
const LayoutVersion = 1

// PartOf is the part, from 0 on, that a job is in where there are so many of them: the first four bytes of its name's SHA-256, as
// a little-endian number, modulo parts.
func PartOf(job string, parts int) int {
	sum := sha256.Sum256([]byte(job))
	return int(binary.LittleEndian.Uint32(sum[:])) % max(1, parts)
}

// Up is the subject of a node's batches of a part. Part 0 has that of a fleet without parts: what was divided by nobody is part 0.
func Up(node string, part int) string {
	if part == 0 {
		return UpPrefix + node
	}
	return UpPrefix + node + "." + strconv.Itoa(part)
}

// ParseUp is the reverse of Up.
func ParseUp(subject string) (node string, part int, err error) {
	node, text, found := strings.Cut(strings.TrimPrefix(subject, UpPrefix), ".")
	if !found {
		return node, 0, nil
	}
	part, err = strconv.Atoi(text)
	if err != nil || part < 1 || part >= MaxParts || strconv.Itoa(part) != text {
		return node, 0, fmt.Errorf("part %.20q; expected 1 to %d", text, MaxParts-1)
	}
	return node, part, nil
}

// splitter divides one batch.
type splitter struct {
	of    *Batch
	out   []*Batch // by part; nil: it would be empty
	part  []int    // of each task
	index []uint32 // of each task, in its part
}

// Split divides a batch into at most so many: each sample, decision and incident is in exactly one, and what has one order has it still. A
// sample goes with its job, an incident with its victim's, a decision with its task's where the batch has that task, and all else is in part 0.
// What the node lost is told by the first. A batch in one part is the batch itself.
func (b *Batch) Split(parts int) []*Batch {
	if parts <= 1 {
		return []*Batch{b}
	}
	s := splitter{of: b, out: make([]*Batch, parts), part: make([]int, len(b.Tasks)), index: make([]uint32, len(b.Tasks))}
	byPath := make(map[string]int, len(b.Tasks))
	for i := range b.Tasks {
		t := &b.Tasks[i]
		p := s.batch(PartOf(t.Job, parts))
		s.part[i], s.index[i] = p.Part, uint32(len(p.Tasks)) //nolint:gosec // MaxTasks
		p.Tasks = append(p.Tasks, *t)
		if _, ok := byPath[t.Path]; !ok {
			byPath[t.Path] = i
		}
	}
	s.samples()
	for i := range b.Decisions {
		at := 0
		if t, ok := byPath[b.Decisions[i].Path]; ok {
			at = s.part[t]
		}
		p := s.batch(at)
		p.Decisions = append(p.Decisions, b.Decisions[i])
	}
	for _, inc := range b.Incidents {
		at := 0
		if inc.VictimJob != "" {
			at = PartOf(inc.VictimJob, parts)
		}
		p := s.batch(at)
		p.Incidents = append(p.Incidents, inc)
		for i := range inc.Rounds { // whose job is asked for beside the incident
			if t, ok := byPath[inc.Rounds[i].ChosenPath]; ok && s.part[t] != p.Part && len(p.Tasks) < MaxTasks {
				p.Tasks = append(p.Tasks, b.Tasks[t])
			}
		}
	}
	return s.done()
}

// batch returns the batch of a part, which begins when something is in it.
func (s *splitter) batch(part int) *Batch {
	if s.out[part] == nil {
		b := s.of
		p := &Batch{Node: b.Node, Spool: b.Spool, Seq: b.Seq, Boot: b.Boot, Platform: b.Platform, Program: b.Program, Rollout: b.Rollout, Part: part}
		for k := range b.Samples.Signals {
			p.Samples.Signals = append(p.Samples.Signals, Signal{Source: b.Samples.Signals[k].Source, Definition: b.Samples.Signals[k].Definition})
		}
		s.out[part] = p
	}
	return s.out[part]
}

func (s *splitter) samples() {
	from := &s.of.Samples
	for i, t := range from.Task {
		to := &s.out[s.part[t]].Samples
		to.Task = append(to.Task, s.index[t])
		to.WallMsec = append(to.WallMsec, from.WallMsec[i])
		to.CPU = append(to.CPU, from.CPU[i])
		to.Flags = append(to.Flags, from.Flags[i])
		for k := range from.Signals {
			to.Signals[k].Values = append(to.Signals[k].Values, from.Signals[k].Values[i])
		}
	}
}

func (s *splitter) done() (list []*Batch) {
	for _, p := range s.out {
		if p == nil {
			continue
		}
		if p.Samples.Len() == 0 {
			p.Samples = Samples{}
		}
		list = append(list, p)
	}
	if len(list) == 0 {
		list = append(list, s.batch(0))
	}
	list[0].Lost = s.of.Lost
	return list
}
