// Package wire is what agents and the hub say to each other: batches of samples and events going up, specs
// coming down, operators' commands, and under which subjects each travels. docs/WIRE.md is the schema, which
// is written so that other programs can read and write it.
//
// Nothing that arrives is trusted: package codec bounds what a message may hold before it is held, and Check says what is
// wrong with one that can be read.
package wire

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/commensal-io/commensal/model"
)

// Version of the batch. A reader refuses a newer one by name, and skips fields that it does not know.
const Version = 1

// What one batch may hold. The transport's own limit of a message is a megabyte; a node of a hundred tasks
// with a window a second sends about fifty kilobytes a minute.
const (
	MaxBytes    = 1 << 20  // as it travels
	MaxUnpacked = 16 << 20 // as it is read
	MaxTasks    = 16384
	MaxSamples  = 1 << 18
	MaxEvents   = 4096
	MaxEvent    = 256 << 10 // bytes of a decision or an incident: sixteen rounds of the longest, with paths of 300 bytes
	MaxEntries  = 1 << 16   // facts of all decisions; rounds, suspects, members and what was tried of all incidents
	maxText     = 4096      // of a path
	maxSentence = 16 << 10  // for people
)

// Batch is what a node says at once. Node, Spool and Seq name it: what comes twice under the same name is the
// same, and is stored once.
type Batch struct {
	Node string
	// Spool is drawn when a node's file of batches is made, and Seq counts within it from one. So a node that lost its
	// file, or its disk, begins anew instead of repeating numbers, also within one boot.
	Spool string
	Seq   uint64
	// Part is which part of the node's jobs it is about (Split). The subject says it, not the message.
	Part int
	// Boot, Platform (CPU type) and Program (the agent's version) are the node's.
	Boot, Platform, Program string
	// Lost is how many batches the node dropped since the one before, because nobody took them for too long.
	Lost uint64
	// Rollout is the change that the node has in force, "" none; one that it refuses begins with "!", and says why.
	Rollout string
	Tasks   []Task
	Samples Samples
	// Decisions and Incidents are as the record has them (docs/RECORD.md). An incident comes again, in a later batch, whenever it changed.
	Decisions []model.Decision
	Incidents []*model.Incident
	// Sheets are what a hub published, one spec in each, on their way into its store. They are never in a message.
	Sheets []SpecSheet
	// Acts are lines of a hub's audit on the same way.
	Acts []Act
	// Bytes is about how much memory a batch takes that was read: a reader keeps many for a moment.
	Bytes int
}

// Act is a line of a hub's audit: what somebody did, or, on a second line of the same ID, what came of it.
type Act struct {
	Time   time.Time       `json:"time"`
	ID     string          `json:"id"` // of the command
	By     string          `json:"who"`
	Role   string          `json:"role"`
	What   string          `json:"what"`
	Node   string          `json:"node,omitempty"` // "": of no single one
	Detail json.RawMessage `json:"detail,omitempty"`
	Why    string          `json:"why,omitempty"`
	Result string          `json:"result,omitempty"`
}

// Task is a task of the node. Its number is that of the agent's run.
type Task struct {
	Num        uint32
	Path, Job  string
	Class      model.Class
	Importance model.Importance
	Production bool
	Size       string // of the job's (model.Task.Size); "": not told
}

// Flags of a sample.
const (
	// Usable: the task ran enough for the window to be evidence of what is normal.
	Usable = 1 << iota
	// Outlier: its signal was above the threshold of the spec that the node had.
	Outlier
	// Stopped: a quota of its own stopped it, or nobody knows whether one did: that it waited is no evidence then.
	Stopped
)

// Evidence reports whether a sample with these flags is evidence of what is normal of a signal.
func Evidence(flags uint32, src model.Source) bool {
	return flags&Usable != 0 && (flags&Stopped == 0 || !src.Row().Waits)
}

// Samples are windows of tasks, by column: the i-th entries of all columns are one sample.
type Samples struct {
	Task     []uint32  // index into Tasks
	WallMsec []int64   // end of the window, ms since 1970
	CPU      []float32 // CPU-sec/sec
	Flags    []uint32
	Signals  []Signal
}

// Signal is one signal of all samples; NaN where a task had none. Definition says how it is calculated: values of two
// definitions are never put together.
type Signal struct {
	Source     model.Source
	Definition string
	Values     []float32
}

// Len is how many samples there are.
func (s *Samples) Len() int { return len(s.Task) }

// ErrNewer is of a batch that a later version has written.
var ErrNewer = errors.New("is of a newer version of the format")

// Bounds of a plausible time, around the reader's own clock.
const (
	oldestMsec = 31 * 24 * 3600 * 1000  // what a spool may hold
	eldestMsec = 366 * 24 * 3600 * 1000 // an incident that comes again whenever it changed
	futureMsec = 10 * 60 * 1000         // clocks that disagree
)

// Check says what is wrong with a batch that came from a node, by the reader's clock; nil: nothing.
func (b *Batch) Check(node string, nowMsec int64) error {
	switch {
	case b.Node != node:
		return fmt.Errorf("it says that it is of node %q and came from %q", b.Node, node)
	case NodeName(b.Node) != nil:
		return NodeName(b.Node)
	case len(b.Spool) != 16 || strings.Trim(b.Spool, "0123456789abcdef") != "":
		return fmt.Errorf("spool %q; expected 16 hexadecimal digits", b.Spool)
	case b.Seq == 0 || b.Seq > math.MaxInt64:
		return fmt.Errorf("sequence %d; expected 1 or more", b.Seq)
	}
	for _, text := range []string{b.Boot, b.Platform, b.Program, b.Rollout} {
		if err := plain(text); err != nil {
			return err
		}
	}
	for i := range b.Tasks {
		t := &b.Tasks[i]
		if err := errors.Join(plain(t.Path), plain(t.Job), model.SizeName(t.Size)); err != nil {
			return fmt.Errorf("task %d: %w", i, err)
		}
		if t.Class > model.BE || t.Importance > model.Critical {
			return fmt.Errorf("task %d: class %s, importance %s", i, t.Class, t.Importance)
		}
	}
	return cmp.Or(b.checkSamples(nowMsec), b.checkEvents(nowMsec))
}

// checkEvents bounds what decisions and incidents say, and when they were: each hour is a file in the reader's store.
func (b *Batch) checkEvents(nowMsec int64) error {
	for i := range b.Decisions {
		d := &b.Decisions[i]
		err := cmp.Or(plain(d.Policy), plain(d.Mode), plain(d.Path), plain(d.Incident), sentence(d.Reason))
		for k := range d.Facts {
			err = cmp.Or(err, plain(d.Facts[k].Name), plain(d.Facts[k].Unit))
		}
		if err != nil {
			return fmt.Errorf("decision %d: %w", i, err)
		}
		if at := b.Decisions[i].WallNsec / 1e6; at < nowMsec-oldestMsec || at > nowMsec+futureMsec {
			return fmt.Errorf("decision %d is %d s off the hub's clock", i, (at-nowMsec)/1000)
		}
	}
	seen := make(map[string]bool, len(b.Incidents))
	for i, inc := range b.Incidents {
		if err := checkIncident(inc); err != nil {
			return fmt.Errorf("incident %d: %w", i, err)
		}
		if seen[inc.ID] { // the last state of an incident is that of the last batch
			return fmt.Errorf("incident %d is %q again", i, inc.ID)
		}
		seen[inc.ID] = true
		if at := inc.OpenedWall / 1e6; at < nowMsec-eldestMsec || at > nowMsec+futureMsec {
			return fmt.Errorf("incident %d is %d s off the hub's clock", i, (at-nowMsec)/1000)
		}
	}
	return nil
}

func checkIncident(inc *model.Incident) error {
	err := cmp.Or(plain(inc.ID), plain(inc.VictimPath), plain(inc.VictimJob), plain(inc.Spec.Job), plain(inc.Spec.Platform), plain(inc.Spec.Definition), sentence(inc.Evidence))
	for _, t := range inc.Tried {
		err = cmp.Or(err, sentence(t))
	}
	for i := range inc.Rounds {
		r := &inc.Rounds[i]
		err = cmp.Or(err, plain(r.ChosenPath), sentence(r.Verdict))
		for k := range r.Suspects {
			s := &r.Suspects[k]
			err = cmp.Or(err, plain(s.Path), plain(s.Job), sentence(s.Verdict))
		}
		for k := range r.Members {
			err = cmp.Or(err, plain(r.Members[k].Path), sentence(r.Members[k].Verdict))
		}
	}
	return err
}

func (b *Batch) checkSamples(nowMsec int64) error {
	s := &b.Samples
	n := s.Len()
	if len(s.WallMsec) != n || len(s.CPU) != n || len(s.Flags) != n {
		return fmt.Errorf("columns of %d, %d, %d and %d samples", n, len(s.WallMsec), len(s.CPU), len(s.Flags))
	}
	for i := range n {
		switch {
		case int(s.Task[i]) >= len(b.Tasks):
			return fmt.Errorf("sample %d is of task %d of %d", i, s.Task[i], len(b.Tasks))
		case s.WallMsec[i] < nowMsec-oldestMsec || s.WallMsec[i] > nowMsec+futureMsec:
			return fmt.Errorf("sample %d is %d s off the hub's clock", i, (s.WallMsec[i]-nowMsec)/1000)
		case !(s.CPU[i] >= 0 && s.CPU[i] <= 1<<16):
			return fmt.Errorf("sample %d used %v CPUs", i, s.CPU[i])
		}
	}
	for k := range s.Signals {
		if err := plain(s.Signals[k].Definition); err != nil {
			return fmt.Errorf("%s: %w", s.Signals[k].Source, err)
		}
		if len(s.Signals[k].Values) != n {
			return fmt.Errorf("%d values of %s for %d samples", len(s.Signals[k].Values), s.Signals[k].Source, n)
		}
		for i, v := range s.Signals[k].Values {
			if v == v && !(v >= 0 && v <= 1e9) { // not equal to itself: NaN, which is none
				return fmt.Errorf("sample %d has %s %v", i, s.Signals[k].Source, v)
			}
		}
	}
	return nil
}

// plain refuses texts that no name is: too long, not UTF-8, or with characters that control a terminal.
func plain(text string) error {
	if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }) {
		return fmt.Errorf("a text that is no name: %.40q", text)
	}
	return nil
}

// sentence refuses texts for people that nobody would read.
func sentence(text string) error {
	if len(text) > maxSentence {
		return fmt.Errorf("a sentence of %d bytes: %.40q", len(text), text)
	}
	return nil
}
