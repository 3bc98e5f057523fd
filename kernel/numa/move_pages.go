package numa

// move_pages(2): where single pages are, and moving them, in batches.
//
// https://man7.org/linux/man-pages/man2/move_pages.2.html
//
// What the manual does not say, from mm/migrate.c:
//
//   - A positive result (Linux 4.17) counts the pages that were left. The call ends at the
//     first group of pages of which one failed, and a group ends at any page that cannot be
//     looked up: pages behind it were not tried. Their status is not written, nor that of
//     the failed group, though other pages of the group did move.
//   - One page of a huge page moves all of it. Further pages of it get EBUSY, because it is
//     on its way already. When the target has no huge page free, it is split and moved
//     in small ones.
//   - So the status says little. Truth is another call that only asks.
//   - Each call that moves makes every CPU of the machine give up its lists of new pages
//     (lru_cache_disable), latency-critical ones with it. So: few calls, each with many
//     pages.
//   - The target's page comes from that node and no other, by reclaim if need be.
//   - A page mapped by several processes is refused (EACCES) unless MPOL_MF_MOVE_ALL, which
//     this package does not use: it would move others' memory, and shared libraries.
//     Merged pages (KSM) and pages shared since a fork are of that kind.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Outcome is what became of a page that was to be moved, or was asked about.
type Outcome uint8

// The outcomes. Moved and Present are successes, of moving and of asking.
const (
	// NotTried: the call ended before it came to the page, also when tried again.
	NotTried Outcome = iota
	// Moved: the page is on the node that was asked for.
	Moved
	// Present: the page is in memory; its node is known.
	Present
	// NotPresent: never touched, freed, or swapped out since (ENOENT).
	NotPresent
	// Unmapped: no mapping at this address, the zero page, or one that cannot move
	// (EFAULT). Linux 6.1 says so of a page that was never touched, too.
	Unmapped
	// Shared: several processes have it mapped (EACCES).
	Shared
	// Busy: on no list that it could be taken from: being moved, reclaimed or merged by
	// somebody else at that moment (EBUSY).
	Busy
	// Stayed: the kernel tried some ten times and gave up: pinned for direct I/O, being
	// written back, or otherwise referenced.
	Stayed
	// CameBack: the kernel says that it moved, and it is elsewhere again: automatic NUMA
	// balancing, or another tool.
	CameBack
	// NoMemory: the target node had no memory for it (ENOMEM).
	NoMemory
	// Unmovable: the page's owner cannot move it (EINVAL), or could not write it back (EIO).
	Unmovable
	// OtherError: an errno that this package has no name for.
	OtherError

	numOutcomes
)

var outcomeNames = [numOutcomes]string{
	"not tried", "moved", "present", "not present", "unmapped", "shared", "busy", "stayed", "came back",
	"no memory", "unmovable", "other error",
}

// String returns the outcome as it is printed in reports.
func (o Outcome) String() string {
	if o < numOutcomes {
		return outcomeNames[o]
	}
	return "unknown outcome"
}

// Outcomes counts pages by outcome: index it with an Outcome.
type Outcomes [numOutcomes]uint64

// Failed returns how many pages were to move and did not.
func (o *Outcomes) Failed() uint64 {
	var n uint64
	for i, c := range o {
		if Outcome(i) != Moved && Outcome(i) != Present {
			n += c
		}
	}
	return n
}

// notTried stands in a status that the kernel did not write: no errno, and no node.
const notTried = -4096

// outcomeOf names the kernel's status of a page.
func outcomeOf(status int32) Outcome {
	if status >= 0 {
		return Present
	}
	if status == notTried {
		return NotTried
	}
	switch unix.Errno(-status) {
	case unix.ENOENT:
		return NotPresent
	case unix.EFAULT:
		return Unmapped
	case unix.EACCES:
		return Shared
	case unix.EBUSY:
		return Busy
	case unix.EAGAIN:
		return Stayed
	case unix.ENOMEM:
		return NoMemory
	case unix.EINVAL, unix.EIO:
		return Unmovable
	}
	return OtherError
}

// MaxBatch is how many pages one call gets at most. 4,096 pages take the kernel some ten
// milliseconds, for which it keeps its per-CPU lists off; that cost is per call, so
// much smaller batches would disturb more.
const MaxBatch = 4096

// maxCalls bounds the calls for one batch. Each gets past one page that could not be
// looked up and stood behind one that could not be moved: few batches take more than two.
const maxCalls = 16

// Batch is a list of pages of one process for one call, with buffers that are used again.
// It is not safe for concurrent use.
type Batch struct {
	calls   Calls
	pages   []uintptr
	nodes   []int32 // wanted
	status  []int32 // what the kernel said of moving them; at the end, where they are
	outcome []Outcome
	rest    rest
}

// rest is the pages of a batch that are in one call.
type rest struct {
	index  []int32 // into the batch
	pages  []uintptr
	nodes  []int32
	status []int32
}

// NewBatch returns an empty batch for up to size pages, at most MaxBatch.
func NewBatch(calls Calls, size int) *Batch {
	size = min(max(size, 1), MaxBatch)
	return &Batch{
		calls: calls,
		pages: make([]uintptr, 0, size), nodes: make([]int32, 0, size),
		status: make([]int32, size), outcome: make([]Outcome, size),
		rest: rest{
			index: make([]int32, 0, size), pages: make([]uintptr, 0, size),
			nodes: make([]int32, 0, size), status: make([]int32, 0, size),
		},
	}
}

// Reset empties the batch.
func (b *Batch) Reset() { b.pages, b.nodes = b.pages[:0], b.nodes[:0] }

// Len returns the number of pages in the batch.
func (b *Batch) Len() int { return len(b.pages) }

// Full says whether Add would be refused.
func (b *Batch) Full() bool { return len(b.pages) == cap(b.pages) }

// Add adds the page at an address of the process, to go to a node; for a Query the node
// is without meaning. It says whether there was room.
func (b *Batch) Add(address uint64, node int) bool {
	if b.Full() {
		return false
	}
	b.pages = append(b.pages, uintptr(address))
	b.nodes = append(b.nodes, int32(node))
	return true
}

// Address returns the address of page i.
func (b *Batch) Address(i int) uint64 { return uint64(b.pages[i]) }

// Outcome returns what the last Query or Move said of page i.
func (b *Batch) Outcome(i int) Outcome { return b.outcome[i] }

// Node returns the node of page i as of the last Query or Move, and false for a page that
// is not in memory.
func (b *Batch) Node(i int) (int, bool) { return int(b.status[i]), b.status[i] >= 0 }

// Query asks where the pages are. It does not allocate.
func (b *Batch) Query(pid int32) error {
	if err := query(b.calls, pid, b.pages, b.status[:len(b.pages)]); err != nil {
		return err
	}
	for i := range b.pages {
		b.outcome[i] = outcomeOf(b.status[i])
	}
	return nil
}

// query fills status with nodes or negative errnos.
func query(calls Calls, pid int32, pages []uintptr, status []int32) error {
	if len(pages) == 0 {
		return nil
	}
	_, err := calls.MovePages(pid, pages, nil, status, unix.MPOL_MF_MOVE)
	if errors.Is(err, unix.EACCES) { // of a security module: no node is asked for
		return fmt.Errorf("query pages of process %d: %w: %w", pid, ErrPermission, err)
	}
	return wrapCall("query pages of", pid, err)
}

// Move moves the pages that only this process has mapped, calls again for those that the
// kernel did not come to, and asks where each page is then. It returns the numbers by
// outcome. With an error too, what moved has moved and is counted, unless asking failed:
// then nothing is known, and the outcomes are NotTried. It does not allocate.
//
// ErrVanished, ErrPermission, ErrNoNode, ErrNodeNotAllowed and ErrNodeFull are told apart.
func (b *Batch) Move(pid int32) (Outcomes, error) {
	var counts Outcomes
	n := len(b.pages)
	if n == 0 {
		return counts, nil
	}
	moveErr := b.send(pid)
	for i := range n {
		b.outcome[i] = outcomeOf(b.status[i])
	}
	err := query(b.calls, pid, b.pages, b.status[:n])
	if err != nil {
		for i := range n {
			b.outcome[i] = NotTried
		}
		counts[NotTried] = uint64(n)
		return counts, errors.Join(wrapCall("move pages of", pid, moveErr), err)
	}
	for i := range n {
		b.outcome[i] = judge(b.outcome[i], b.status[i], b.nodes[i], moveErr)
		counts[b.outcome[i]]++
	}
	return counts, wrapCall("move pages of", pid, moveErr)
}

// send calls until the kernel came to every page, and leaves in status what it said.
func (b *Batch) send(pid int32) error {
	r := &b.rest
	r.index = r.index[:0]
	for i := range b.pages {
		r.index = append(r.index, int32(i))
		b.status[i] = notTried
	}
	for range maxCalls {
		r.pages, r.nodes, r.status = r.pages[:0], r.nodes[:0], r.status[:0]
		for _, i := range r.index {
			r.pages = append(r.pages, b.pages[i])
			r.nodes = append(r.nodes, b.nodes[i])
			r.status = append(r.status, notTried)
		}
		left, err := b.calls.MovePages(pid, r.pages, r.nodes, r.status, unix.MPOL_MF_MOVE)
		b.sort(err == nil && left > 0)
		if err != nil || left == 0 || len(r.index) == 0 {
			return err
		}
	}
	return nil
}

// sort takes over what a call said and keeps for the next what it did not come to. When it
// ended early, the last page with a status is the one that ended the group that failed:
// pages before it without one were tried, and so were all when there is no such page.
func (b *Batch) sort(early bool) {
	r := &b.rest
	last := len(r.status) - 1
	for last >= 0 && r.status[last] == notTried {
		last--
	}
	kept := r.index[:0]
	for k, i := range r.index {
		switch {
		case r.status[k] != notTried:
			b.status[i] = r.status[k]
		case early && (k < last || last < 0):
			b.status[i] = -int32(unix.EAGAIN)
		default:
			kept = append(kept, i)
		}
	}
	r.index = kept
}

// judge combines what the kernel said of moving a page with where it is now.
func judge(said Outcome, status, wanted int32, moveErr error) Outcome {
	switch {
	case status == wanted:
		return Moved
	case status < 0:
		return outcomeOf(status)
	case errors.Is(moveErr, unix.ENOMEM) && said == NotTried:
		return NoMemory
	case said == Present:
		return CameBack
	}
	return said
}

// wrapCall names what an errno of a call about a whole process means; nil stays nil.
func wrapCall(op string, pid int32, err error) error {
	if err == nil {
		return nil
	}
	var what error
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		what = ErrVanished // EINVAL: it has no memory any more
	case errors.Is(err, unix.EPERM):
		what = ErrPermission
	case errors.Is(err, unix.ENODEV):
		what = ErrNoNode
	case errors.Is(err, unix.EACCES):
		what = ErrNodeNotAllowed
	case errors.Is(err, unix.ENOMEM):
		what = ErrNodeFull
	case errors.Is(err, unix.ENOSYS):
		what = ErrUnsupported
	default:
		return fmt.Errorf("%s process %d: %w", op, pid, err)
	}
	return fmt.Errorf("%s process %d: %w: %w", op, pid, what, err)
}
