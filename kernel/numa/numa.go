// Package numa reads where memory lies on a machine with several memory nodes, and moves
// pages between them.
//
// Reading: the machine's nodes (node.go and its neighbours), a process's mappings
// (numa_maps.go) and a cgroup's memory (memory_numa_stat.go). Moving: single pages
// (move_pages.go, with the outcome of each), a whole process (migrate_pages.go), and a
// Mover (mover.go), which brings processes to a share of their pages a node, in steps of
// at most so many pages, spread evenly, and tells what a ledger needs to put it back.
//
// Which pages: private anonymous ones that only one process has mapped. What is left
// alone, and why, is listed at Reason. Nothing here pushes a node into reclaim: see
// zoneinfo.go for how much room a node has.
//
// Privileges, for processes of another user: CAP_SYS_PTRACE to read and to move
// (PTRACE_MODE_READ_REALCREDS). CAP_SYS_ADMIN besides shows page frame numbers, by which
// huge pages are recognised before they are moved; without it the Mover finds out by
// measuring, a huge page at a time, in more calls.
//
// https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html
// https://docs.kernel.org/mm/page_migration.html
package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What callers branch on. Each is wrapped with the operation and path, beside the errno.
var (
	// ErrUnsupported: this kernel has no such file or call (CONFIG_NUMA, CONFIG_MIGRATION,
	// an older version), or the file access cannot do what is asked.
	ErrUnsupported = errors.New("not supported by this kernel")
	// ErrMalformed: a file does not read as its documentation says.
	ErrMalformed = errors.New("malformed")
	// ErrPermission: the kernel refused. Other people's processes take CAP_SYS_PTRACE.
	ErrPermission = errors.New("permission denied")
	// ErrVanished: the process or cgroup is gone, or another one has its number by now.
	// So is a process that has no memory: a kernel thread, one that is ending, or one whose
	// main thread has ended before the others.
	ErrVanished = errors.New("gone")
	// ErrNoNode: no such node, or it is offline, or it has no memory.
	ErrNoNode = errors.New("no such memory node")
	// ErrNodeNotAllowed: the node is outside the process's cpuset.mems.
	ErrNodeNotAllowed = errors.New("memory node not allowed by the process's cpuset")
	// ErrNodeFull: the node had no memory for a page, though it had room before.
	ErrNodeFull = errors.New("memory node is full")
	// ErrTooManyMappings: a process has more mappings of interest than maxRanges.
	ErrTooManyMappings = errors.New("too many mappings")
	// ErrTooLarge: a process has more anonymous memory than MoverConfig.MaxProcessPages.
	ErrTooLarge = errors.New("process is too large")
	// ErrBadShares: shares that name a node twice or out of range, or are all zero.
	ErrBadShares = errors.New("shares must name each node once and not all be zero")
)

// MaxNodes is the greatest number of nodes a kernel can be built for (NODES_SHIFT 10).
const MaxNodes = 1024

// NodeCount is a number that belongs to a node: pages, bytes or a weight.
type NodeCount struct {
	Node  int
	Count uint64
}

// Counts are numbers by node, ascending, each node once. A node that is not in it was
// not counted, which is not the same as zero where the source lists zeros. The unit
// stands in the name of the field or method that yields it.
type Counts []NodeCount

// Get returns a node's number, and whether it is listed.
func (c Counts) Get(node int) (uint64, bool) {
	for _, n := range c {
		if n.Node == node {
			return n.Count, true
		}
	}
	return 0, false
}

// Total returns the sum over all nodes.
func (c Counts) Total() uint64 {
	var sum uint64
	for _, n := range c {
		sum += n.Count
	}
	return sum
}

// Add returns c with n added to a node's number, as append does.
func (c Counts) Add(node int, n uint64) Counts {
	i := len(c)
	for i > 0 && c[i-1].Node >= node {
		i--
	}
	if i < len(c) && c[i].Node == node {
		c[i].Count += n
		return c
	}
	return slices.Insert(c, i, NodeCount{Node: node, Count: n})
}

// AddAll returns c with the numbers of other added.
func (c Counts) AddAll(other Counts) Counts {
	for _, n := range other {
		c = c.Add(n.Node, n.Count)
	}
	return c
}

// String writes the numbers as numa_maps does: "N0=12 N1=3".
func (c Counts) String() string {
	var b strings.Builder
	for i, n := range c {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("N" + strconv.Itoa(n.Node) + "=" + strconv.FormatUint(n.Count, 10))
	}
	return b.String()
}

// wrapFile names what an error of a file of the machine means; missing is what its
// absence does.
func wrapFile(op string, err, missing error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w: %w", op, missing, err)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESRCH):
		return fmt.Errorf("%s: %w: %w", op, ErrVanished, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: %w", op, ErrPermission, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func clip(b []byte) []byte { return b[:min(len(b), 64)] }

// parseNodeCount reads the number and value of a field "N12=345".
func parseNodeCount(field []byte) (node int, count uint64, ok bool) {
	if len(field) < 4 || field[0] != 'N' {
		return 0, 0, false
	}
	i := 1
	for ; i < len(field) && field[i] >= '0' && field[i] <= '9'; i++ {
		if node = node*10 + int(field[i]-'0'); node >= MaxNodes {
			return 0, 0, false
		}
	}
	if i == 1 || i == len(field) || field[i] != '=' {
		return 0, 0, false
	}
	count, ok = parseUint(field[i+1:])
	return node, count, ok
}

// parseUint reads a decimal number. strconv.ParseUint of a converted string would do as
// well; this is called for each field of each mapping.
func parseUint(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	var v uint64
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || v > (1<<64-1-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}
