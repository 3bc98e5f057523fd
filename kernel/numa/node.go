package numa

// /sys/devices/system/node: the memory nodes, and one folder for each that is online.
//
// https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-devices-node
// https://docs.kernel.org/mm/numa.html
//
//	online              0-1
//	possible            0-1
//	has_cpu             0-1
//	has_memory          0-1
//	node0/cpulist       0-1
//	node0/distance      10 21       (one number for each online node, in order; 10 is itself)
//
// A node of CPUs without memory, and one of memory without CPUs (CXL, persistent memory)
// are both ordinary. Numbers may have gaps. A node without memory is no target of moves.
// A kernel without CONFIG_NUMA has no such folder.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const nodeDir = "/sys/devices/system/node"

// Topology is the machine's nodes. Lists are ascending.
type Topology struct {
	Possible []int // that this boot could have
	Online   []int // of these, those that are there
	Nodes    []Node
}

// Node is one online node.
type Node struct {
	ID        int
	CPUs      []int // online CPUs; none on a memory-only node
	HasMemory bool  // it can be the target of moves
	// Distances are relative costs of this node's CPUs reaching a node's memory: 10 is
	// local, 20 twice that, by the firmware's word (ACPI SLIT).
	Distances Counts
}

// ReadTopology reads the nodes. It is read at start and when nodes come or go, never on
// a hot path. ErrUnsupported: a kernel without NUMA.
func ReadTopology(root hostfs.FS) (*Topology, error) {
	t := &Topology{}
	var cpus, memory []int
	for _, list := range []struct {
		name string
		dst  *[]int
	}{{"possible", &t.Possible}, {"online", &t.Online}, {"has_cpu", &cpus}, {"has_memory", &memory}} {
		var err error
		if *list.dst, err = readNodeList(root, nodeDir+"/"+list.name); err != nil {
			return nil, fmt.Errorf("read memory nodes: %w", err)
		}
	}
	if len(t.Online) == 0 {
		return nil, fmt.Errorf("read memory nodes: %s/online: %w: no node", nodeDir, ErrMalformed)
	}
	for _, id := range t.Online {
		n, err := readNode(root, id, t.Online)
		if err != nil {
			return nil, fmt.Errorf("read memory node %d: %w", id, err)
		}
		n.HasMemory = slices.Contains(memory, id)
		t.Nodes = append(t.Nodes, n)
	}
	return t, nil
}

// Node returns an online node, or nil.
func (t *Topology) Node(id int) *Node {
	for i := range t.Nodes {
		if t.Nodes[i].ID == id {
			return &t.Nodes[i]
		}
	}
	return nil
}

// MemoryNodes returns the nodes that have memory, ascending: those pages can move to.
func (t *Topology) MemoryNodes() []int {
	var ids []int
	for i := range t.Nodes {
		if t.Nodes[i].HasMemory {
			ids = append(ids, t.Nodes[i].ID)
		}
	}
	return ids
}

// checkMemoryNode returns ErrNoNode with what the node lacks, nil if it has memory.
func (t *Topology) checkMemoryNode(id int) error {
	n := t.Node(id)
	switch {
	case n != nil && n.HasMemory:
		return nil
	case n != nil:
		return fmt.Errorf("%w: node %d has no memory", ErrNoNode, id)
	case slices.Contains(t.Possible, id):
		return fmt.Errorf("%w: node %d is offline", ErrNoNode, id)
	}
	return fmt.Errorf("%w: node %d (online: %s)", ErrNoNode, id, cpus.Of(t.Online...))
}

func readNode(root hostfs.FS, id int, online []int) (Node, error) {
	n := Node{ID: id}
	dir := nodePath(id)
	var err error
	if n.CPUs, err = readNodeList(root, dir+"/cpulist"); err != nil {
		return Node{}, err
	}
	data, err := root.ReadFile(dir+"/distance", nil)
	if err != nil {
		return Node{}, wrapFile("distance", err, ErrVanished)
	}
	if n.Distances, err = parseDistance(string(data), online); err != nil {
		return Node{}, fmt.Errorf("%s/distance: %w", dir, err)
	}
	return n, nil
}

func nodePath(id int) string { return nodeDir + "/node" + strconv.Itoa(id) }

func readNodeList(root hostfs.FS, path string) ([]int, error) {
	data, err := root.ReadFile(path, nil)
	if err != nil {
		return nil, wrapFile("read list", err, ErrUnsupported)
	}
	set, err := cpus.Parse(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrMalformed, err)
	}
	return set.Members(), nil
}

// parseDistance reads one number for each online node. A node that came or went since
// the list was read makes the numbers disagree, and the reading fails.
func parseDistance(s string, online []int) (Counts, error) {
	fields := strings.Fields(s)
	if len(fields) != len(online) {
		return nil, fmt.Errorf("%w: %d distances for %d nodes", ErrMalformed, len(fields), len(online))
	}
	d := make(Counts, 0, len(fields))
	for i, f := range fields {
		v, err := strconv.ParseUint(f, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%w distance %q", ErrMalformed, f[:min(len(f), 64)])
		}
		d = append(d, NodeCount{Node: online[i], Count: v})
	}
	return d, nil
}
