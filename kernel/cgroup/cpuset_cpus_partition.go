package cgroup

// cpuset.cpus.partition: whether a v2 group keeps its CPUs for itself.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#cpuset-interface-files
//
//	member                                  an ordinary group
//	root                                    the root of a partition: a scheduling domain of its own
//	isolated                                the same without load balancing
//	root invalid (Parent is not a partition root)
//	isolated invalid (cpu list in cpuset.cpus not exclusive)
//
// A partition takes its CPUs away from its parent, whose cpuset.cpus.effective shrinks.
// The kernel takes a write that it cannot fulfil: it remembers the wish as invalid, with
// the reason (since Linux 6.0), and makes it true when that becomes possible. A valid
// partition becomes invalid when its CPUs go offline or its parent changes.

import (
	"fmt"
	"strings"
)

// PartitionKind is what a partition file is written to.
type PartitionKind string

// The kinds.
const (
	Member        PartitionKind = "member"
	PartitionRoot PartitionKind = "root"
	Isolated      PartitionKind = "isolated" // since Linux 6.0
)

// Partition is what cpuset.cpus.partition reads.
type Partition struct {
	Kind    PartitionKind
	Invalid bool   // asked for, and without effect
	Reason  string // why it is invalid, as the kernel says it; "" before Linux 6.0
}

// String returns the partition as the kernel writes it.
func (p Partition) String() string {
	switch {
	case !p.Invalid:
		return string(p.Kind)
	case p.Reason == "":
		return string(p.Kind) + " invalid"
	}
	return string(p.Kind) + " invalid (" + p.Reason + ")"
}

// ReadPartition returns the group's partition.
func (d *V2) ReadPartition(path string) (Partition, error) {
	line, err := d.readLine(path, "cpuset.cpus.partition")
	if err != nil {
		return Partition{}, err
	}
	p, err := parsePartition(line)
	if err != nil {
		return Partition{}, fmt.Errorf("read cpuset.cpus.partition of %s: %w", path, err)
	}
	return p, nil
}

func parsePartition(line string) (Partition, error) {
	kind, rest, more := strings.Cut(line, " ")
	p := Partition{Kind: PartitionKind(kind)}
	known := p.Kind == Member || p.Kind == PartitionRoot || p.Kind == Isolated
	if known && !more {
		return p, nil
	}
	word, reason, hasReason := strings.Cut(rest, " ")
	inner := strings.TrimSuffix(strings.TrimPrefix(reason, "("), ")")
	p.Invalid, p.Reason = true, inner
	if !known || p.Kind == Member || word != "invalid" || (hasReason && (inner == "" || reason != "("+inner+")")) {
		return Partition{}, fmt.Errorf("%w cpuset.cpus.partition %q", ErrMalformed, clip([]byte(line)))
	}
	return p, nil
}
