package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// Subjects, streams and buckets of the transport. NODE is a node's name.
const (
	Stream   = "commensal-batches" // takes what nodes publish
	UpPrefix = "commensal.v1.up."  // + NODE, or NODE.PART (Up): batches
	AllUp    = UpPrefix + "*"
	AllParts = UpPrefix + "*.*"

	CommandPrefix = "commensal.v1.command." // + NODE: a Command, answered by an Answer

	SpecBucket    = "commensal-specs"   // key: SpecKey or SizedKey; value: a SpecSheet
	ControlBucket = "commensal-control" // keys: KeyOff, KeyRollout, KeyLayout; values: an Off, a Rollout, a Layout; and leases of hubs, below KeyLease
	MarksBucket   = "commensal-marks"   // of objects: what a hub leaves to the next one of its partitions

	// KeyOff is the fleet's kill switch: while Off says so everything is released on every node.
	KeyOff = "off"
	// KeyRollout is what a part of the fleet has otherwise than its files say. Below it (two words, which nodes cannot read) hubs keep what they count of it.
	KeyRollout = "rollout"
	// KeyLayout says into how many parts batches are divided.
	KeyLayout = "layout"
	// KeyLease + "." + PART says which hub has a part. A key of two words is nothing that nodes can read.
	KeyLease = "lease"
)

// KV is the subject on which a change of a bucket's key is published.
func KV(bucket, key string) string { return "$KV." + bucket + "." + key }

// KVGet is the subject that answers with the last value of a bucket's key.
func KVGet(bucket, key string) string {
	return "$JS.API.DIRECT.GET.KV_" + bucket + "." + KV(bucket, key)
}

// InboxPrefix is where a node's answers come in: nobody else may listen there.
func InboxPrefix(node string) string { return "_INBOX_" + node }

// SpecKey is the key of a job's sheet on a platform. Names may hold anything, keys may not.
func SpecKey(platform, job string) string { return short(platform) + "." + short(job) }

// SizedKey is the key of the sheet of a job's tasks of one size; "": of all of them, which is SpecKey. No name has a zero byte.
func SizedKey(platform, job, size string) string {
	if size == "" {
		return SpecKey(platform, job)
	}
	return SpecKey(platform, job+"\x00"+size)
}

func short(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// NodeName says what is wrong with a node's name; nil: nothing. It is part of subjects and of file names.
func NodeName(name string) error {
	ok := name != "" && len(name) <= 63
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' && i > 0)
	}
	if !ok {
		return fmt.Errorf("node %.70q; expected 1 to 63 of a-z, 0-9 and -, the first no -", name)
	}
	return nil
}

// SpecSheet is what the fleet knows of a job on a platform.
type SpecSheet struct {
	Version  int          `json:"version"` // of this document: 1; 2 where it has a size, so that who knows none does not take it for the job's
	Job      string       `json:"job"`
	Size     string       `json:"size,omitempty"` // of the tasks that it is of; "": of all
	Platform string       `json:"platform"`
	Revision uint64       `json:"revision"` // counts the sheets of this job and platform
	WallNsec int64        `json:"wall_nsec"`
	Nodes    int          `json:"nodes"`            // that the samples are from
	Pinned   bool         `json:"pinned,omitempty"` // an operator chose this revision
	Specs    []model.Spec `json:"specs"`            // one a signal and definition
}

// SheetVersion is the newest of SpecSheet.
const SheetVersion = 2

// Off is the kill switch.
type Off struct {
	Off      bool   `json:"off"`
	By       string `json:"by"`
	Why      string `json:"why,omitempty"`
	WallNsec int64  `json:"wall_nsec"`
}

// Rollout is a change of parameters that a part of the fleet tries before all have it.
type Rollout struct {
	Version int    `json:"version"` // of this document: 1
	ID      string `json:"id"`      // of the change; more of the fleet is the same change. "": there is none
	Percent int    `json:"percent"` // of the nodes
	// Overlay is what they have otherwise, as in the configuration's file; sections of policies and limits only.
	Overlay  string `json:"overlay"`
	By       string `json:"by"`
	Why      string `json:"why,omitempty"`
	WallNsec int64  `json:"wall_nsec"`
	// Observed is on how many per cent of the nodes it has only observed for long enough to enforce there; of no interest to nodes.
	Observed int `json:"observed_percent,omitempty"`
	// Halted says why the hub ended it; "": it did not.
	Halted string `json:"halted,omitempty"`
}

// RolloutVersion is of Rollout.
const RolloutVersion = 1

// Takes reports whether a node is of the part that has it. Who has it at ten per cent has it at twenty.
func (r *Rollout) Takes(node string) bool {
	sum := sha256.Sum256([]byte(r.ID + "\x00" + node))
	return r.ID != "" && r.Halted == "" && int(binary.LittleEndian.Uint32(sum[:])%100) < r.Percent
}

// Command is what an operator asks of one node.
type Command struct {
	ID       string `json:"id"` // drawn by the hub; a node does each once
	WallNsec int64  `json:"wall_nsec"`
	By       string `json:"by"`
	Why      string `json:"why,omitempty"`
	// Request is as on the agent's own socket (agent.Request).
	Kind     string  `json:"kind"`
	Task     string  `json:"task,omitempty"`
	Job      string  `json:"job,omitempty"`
	Cap      float64 `json:"cap,omitempty"`
	Duration float64 `json:"duration_seconds,omitempty"`
}

// Answer is a node's answer.
type Answer struct {
	Done  string `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}
