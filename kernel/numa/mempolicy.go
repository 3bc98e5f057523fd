package numa

// A memory policy as numa_maps writes it (mpol_to_str in mm/mempolicy.c).
//
// https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html
//
//	default
//	local
//	prefer:1                        prefer=static:1
//	prefer (many):0-1               (Linux 5.15)
//	bind:0-1                        bind=relative:0-1
//	interleave:0-1
//	weighted interleave:0-1         (Linux 6.9)
//	bind=balancing:0-1              (MPOL_F_NUMA_BALANCING; older kernels write an empty
//	bind=:0-1                        word instead)
//
// A mapping without a policy of its own shows its process's. Two names have a space in
// them. The kernel writes at most 64 bytes, so a long list of nodes may be cut short: a
// list that fills them to the end is not trusted (Truncated).

import (
	"bytes"
	"fmt"

	"github.com/commensal-io/commensal/cpus"
)

// PolicyMode is what a memory policy does.
type PolicyMode uint8

// The modes. The zero value is a mode that this package does not know.
const (
	PolicyOther              PolicyMode = iota
	PolicyDefault                       // the node of the CPU that touches a page first
	PolicyLocal                         // the same, asked for explicitly
	PolicyPrefer                        // one node, others when it is full
	PolicyPreferMany                    // any of some nodes, others when they are full
	PolicyBind                          // only these nodes
	PolicyInterleave                    // these nodes in turn
	PolicyWeightedInterleave            // these nodes in turn, by the machine's weights
)

// policyNames are the kernel's, longest first where one begins another.
var policyNames = [...]struct {
	name string
	mode PolicyMode
}{
	{"default", PolicyDefault}, {"local", PolicyLocal}, {"prefer (many)", PolicyPreferMany}, {"prefer", PolicyPrefer},
	{"bind", PolicyBind}, {"interleave", PolicyInterleave}, {"weighted interleave", PolicyWeightedInterleave},
}

// String returns the kernel's name, "other" for a mode that is not known.
func (m PolicyMode) String() string {
	for _, p := range policyNames {
		if p.mode == m {
			return p.name
		}
	}
	return "other"
}

// Policy is the memory policy of a mapping.
type Policy struct {
	Mode      PolicyMode
	Nodes     cpus.Set // empty for default, local and what is not known
	Static    bool     // MPOL_F_STATIC_NODES: node numbers are the machine's
	Relative  bool     // MPOL_F_RELATIVE_NODES: node numbers count within the cpuset
	Balancing bool     // MPOL_F_NUMA_BALANCING, where the kernel says so
	Truncated bool     // the kernel's buffer was full: Nodes may lack some
}

// Binds says whether the policy forbids a page to lie on the node. A list that may be
// cut short forbids every node that it does not name.
func (p *Policy) Binds(node int) bool { return p.Mode == PolicyBind && !p.Nodes.Has(node) }

// policyBuffer is the kernel's (char buffer[64] in show_numa_map), its NUL included.
const policyBuffer = 64

// cutPolicy takes the policy off the front of a numa_maps line (after the address) and
// returns the rest, without the space between. It does not allocate unless it fails.
func cutPolicy(line []byte) (p Policy, rest []byte, err error) {
	n := len(line)
	name := -1
	for _, known := range policyNames {
		after, ok := bytes.CutPrefix(line, []byte(known.name))
		if ok && (len(after) == 0 || bytes.IndexByte([]byte(" =:"), after[0]) >= 0) {
			p.Mode, name = known.mode, len(known.name)
			break
		}
	}
	var text []byte
	if name < 0 {
		text, rest, _ = bytes.Cut(line, []byte(" "))
		if len(text) == 0 {
			return Policy{}, nil, fmt.Errorf("%w memory policy: none in %q", ErrMalformed, clip(line))
		}
		return p, rest, nil
	}
	if i := bytes.IndexByte(line[name:], ' '); i >= 0 {
		n = name + i
		rest = line[n+1:]
	}
	text = line[name:n]
	p.Truncated = n >= policyBuffer-1
	if flags, ok := bytes.CutPrefix(text, []byte("=")); ok {
		flags, text = cutBefore(flags, ':')
		p.setFlags(flags)
	}
	if len(text) == 0 {
		return p, rest, nil
	}
	if text[0] != ':' {
		return Policy{}, nil, fmt.Errorf("%w memory policy: %q", ErrMalformed, clip(line))
	}
	if !parseNodes(&p.Nodes, text[1:], p.Truncated) {
		return Policy{}, nil, fmt.Errorf("%w memory policy: nodes in %q", ErrMalformed, clip(line))
	}
	return p, rest, nil
}

// cutBefore splits b before the first sep, which stays with the second part.
func cutBefore(b []byte, sep byte) (before, from []byte) {
	if i := bytes.IndexByte(b, sep); i >= 0 {
		return b[:i], b[i:]
	}
	return b, nil
}

// setFlags reads "static|balancing"; words that it does not know change nothing.
func (p *Policy) setFlags(flags []byte) {
	for more := true; more; {
		var word []byte
		word, flags, more = bytes.Cut(flags, []byte("|"))
		switch string(word) {
		case "static":
			p.Static = true
		case "relative":
			p.Relative = true
		case "balancing":
			p.Balancing = true
		}
	}
}

// parseNodes reads "0-1,4". It is cpus.Parse for text that may be cut off; cut says
// that the end may be missing, and an element that does not read is then left out.
func parseNodes(dst *cpus.Set, list []byte, cut bool) bool {
	for more := true; more; {
		var part []byte
		part, list, more = bytes.Cut(list, []byte(","))
		low, high, isRange := bytes.Cut(part, []byte("-"))
		first, ok := parseUint(low)
		last := first
		if ok && isRange {
			last, ok = parseUint(high)
		}
		if !ok || first > last || last >= MaxNodes {
			return cut && !more
		}
		for n := first; n <= last; n++ {
			dst.Add(int(n))
		}
	}
	return true
}
