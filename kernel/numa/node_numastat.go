package numa

// /sys/devices/system/node/nodeN/numastat: where allocations went, in pages since boot.
//
// https://docs.kernel.org/admin-guide/numastat.html
//
//	numa_hit 147656083      allocated here, as intended
//	numa_miss 0             allocated here, though another node was preferred
//	numa_foreign 0          intended for here, allocated elsewhere
//	interleave_hit 1125     interleaved here, as intended
//	local_node 147656083    allocated here by a task that ran here
//	other_node 0            allocated here by a task that ran elsewhere
//
// A huge page counts once. Pages that are moved are counted as allocations too.

import (
	"bytes"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// NodeNumastat is a node's allocation counters. They only grow.
type NodeNumastat struct {
	Hit, Miss, Foreign, InterleaveHit, LocalNode, OtherNode uint64
}

// ReadNodeNumastat reads a node's counters. A node that is not there is ErrNoNode.
func ReadNodeNumastat(root hostfs.FS, node int) (NodeNumastat, error) {
	path := nodePath(node) + "/numastat"
	data, err := root.ReadFile(path, nil)
	if err != nil {
		return NodeNumastat{}, wrapFile("read node numastat", err, ErrNoNode)
	}
	s, err := parseNodeNumastat(data)
	if err != nil {
		return NodeNumastat{}, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

func parseNodeNumastat(data []byte) (NodeNumastat, error) {
	var s NodeNumastat
	counters := map[string]*uint64{
		"numa_hit": &s.Hit, "numa_miss": &s.Miss, "numa_foreign": &s.Foreign,
		"interleave_hit": &s.InterleaveHit, "local_node": &s.LocalNode, "other_node": &s.OtherNode,
	}
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		dst := counters[string(key)]
		if dst == nil {
			continue
		}
		v, ok := parseUint(value)
		if !ok {
			return NodeNumastat{}, fmt.Errorf("%w numastat: line %q", ErrMalformed, clip(line))
		}
		*dst = v
		delete(counters, string(key))
	}
	if len(counters) != 0 {
		return NodeNumastat{}, fmt.Errorf("%w numastat: %d counters are missing", ErrMalformed, len(counters))
	}
	return s, nil
}
