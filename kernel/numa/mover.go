package numa

// The Mover brings processes to a share of their pages a node, in steps.
//
// Each Step does a bounded amount of work and returns. First all processes are surveyed,
// and nothing is moved: what the survey found is what a ledger writes down to put back.
// Then one process after another is brought to its shares: surveyed anew, its pages passed
// in the order of addresses, the right ones moved (plan.go says which), and surveyed once
// more, since a process that works allocates and frees meanwhile. What is missing then is
// tried again, a few times.
//
// Shares hold for each process by itself, not for the sum of all: each process's threads
// work on its own memory. Within a process, pages move one way only: off nodes that have
// too many, onto nodes that have too few. Stopping half-way leaves the lower addresses at
// the new share and the higher at the old; whoever wants to look in between asks for a
// small change first (BALM: a tenth), and then for the next.
//
// Going back is the same with other shares: SharesOf(before). It restores how many pages
// are on each node; which ones need not be the same.
//
// Memory: a chunk of pagemap, a batch, and the mappings that have movable pages of the one
// process at work, whatever its size. Descriptors: one, two for that process, and two more
// while it is surveyed.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Bounds of a step, where the configuration has none.
const (
	// DefaultMaxPages is 4 MiB of small pages: at the few microseconds that servers take
	// for one, milliseconds of a CPU.
	DefaultMaxPages = 1024
	// DefaultMaxScan is 1 GiB of small pages: at 0.3 microseconds a page, 80 ms of a CPU.
	DefaultMaxScan = 1 << 18
)

// BytesPerSecond is how much the steps of one mover are to copy at most (Report.Rest): every service of both memories feels what is copied, and feels it by as much.
// Below it a p99 rises by next to nothing on the twin (docs/policies/balm.md, "While pages move").
const BytesPerSecond = 128 << 20

// How often a process is gone through for one set of shares: twice more for what it
// allocated meanwhile (one that outruns that is not caught up with), and on up to
// maxPasses while pages fail. With a third of them pinned, each pass of a small process
// leaves a third of the one before; in a large one, later pages make up for it.
const (
	growthPasses = 3
	maxPasses    = 10
)

// hopeless ends a process of which so many pages were tried and fewer than one in eight
// moved: it is pinned as a whole (a virtual machine with a device passed through), and
// each failure costs as much as a success.
const hopeless = 2 * MaxBatch

// MoverConfig are a Mover's bounds. Pages are base pages.
type MoverConfig struct {
	// MaxPages is how many pages a step moves at most; 0 is DefaultMaxPages. It is raised
	// to one transparent huge page, which cannot move in parts.
	MaxPages uint64
	// MaxScan is how many pages a step looks at, about: it ends at the first mapping
	// surveyed or window passed beyond it. 0 is DefaultMaxScan. Surveying one mapping is
	// one call, however large it is.
	MaxScan uint64
	// ReservePages stay free on a target above its watermarks.
	ReservePages uint64
	// MaxProcessPages leaves processes with more anonymous pages alone (ErrTooLarge); 0 is no
	// bound. Surveying reads numa_maps, which locks the process's address space for the
	// time it takes to walk its largest mapping; see numa_maps.go.
	MaxProcessPages uint64
	// MoveBound also moves pages that the process bound to other nodes than the target.
	MoveBound bool
}

// Target is one process and where its pages are to be.
type Target struct {
	PID int32
	// StartTicks names the process for ever, with PID and the boot; 0 is whoever has PID
	// at Start. Another process that has the number by now is left alone.
	StartTicks uint64
	Shares     []Share
}

// TargetStatus is how far a process has come.
type TargetStatus uint8

// The statuses.
const (
	Waiting  TargetStatus = iota // not surveyed yet
	Surveyed                     // its pages were found, none was moved
	Moving                       // its pages are being moved
	Settled                      // it has its shares, or nothing more of it would move (ShortPages)
	Gone                         // it ended; nothing is left to move or to put back
	Refused                      // the kernel refused, or it would not move: see Err
)

// String returns the status as it is printed in reports.
func (s TargetStatus) String() string {
	names := [...]string{"waiting", "surveyed", "moving", "settled", "gone", "refused"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown status"
}

// TargetState is how one process stands.
type TargetState struct {
	PID        int32
	StartTicks uint64
	Status     TargetStatus
	// Before is where its movable pages were before the first was moved; nil until then.
	Before Counts
	// After is where they are by the latest survey and the moves since.
	After Counts
	// Left is what was left alone, by the latest survey.
	Left LeftAlone
	// RemainingPages are still to move.
	RemainingPages uint64
	// ShortPages is how many pages a settled process lacks of its shares: they would not
	// move, or it is made of huge pages and the share falls between two.
	ShortPages uint64
	// HiddenPages were met by the latest pass and could not be looked up, so not moved. On
	// Linux 6.1 to 6.5 these are pages that automatic NUMA balancing has marked, until the
	// process touches them again: all of an idle process's, few of a busy one's. On any
	// kernel it is a page that is just being moved. Some time later they can be moved.
	HiddenPages uint64
	// Err says why it was refused.
	Err error
}

// Stop says why a step ended.
type Stop uint8

// The reasons to stop.
const (
	StopDone     Stop = iota // every process is settled, gone or refused
	StopSurveyed             // the survey is complete: write down what it found, then go on
	StopPages                // MaxPages
	StopScan                 // MaxScan
	StopRoom                 // no target node has room left: see Report.FullNodes
	StopContext              // the context ended
	StopError                // see the error beside the report
)

// String returns the reason as it is printed in reports.
func (s Stop) String() string {
	names := [...]string{"done", "surveyed", "pages", "scan", "room", "context", "error"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown reason"
}

// Report is what one step did. Pages are base pages, also of huge ones.
type Report struct {
	Stop           Stop
	Outcomes       Outcomes // of the pages that were tried in this step
	ScannedPages   uint64
	RemainingPages uint64 // still to move, over all processes surveyed so far
	FullNodes      []int  // targets without room
}

// MovedPages returns how many pages moved.
func (r *Report) MovedPages() uint64 { return r.Outcomes[Moved] }

// Rest returns for how long nothing is to be done after a step that took so long: as long again, and until it has copied BytesPerSecond.
func (r *Report) Rest(took time.Duration) time.Duration {
	copied := time.Duration(float64(r.MovedPages()) * float64(os.Getpagesize()) / BytesPerSecond * 1e9)
	return max(took, copied-took)
}

// Mover moves pages of processes. It is not safe for concurrent use.
type Mover struct {
	root   hostfs.FS
	cfg    MoverConfig
	scan   *scanner
	survey surveyor
	batch  *Batch
	room   *RoomReader
	flags  *pageFlags
	// blind: which pages move together is not known beforehand, but measured. It is set
	// without page flags or, later, when page frame numbers turn out to be hidden.
	blind  bool
	before []int32 // nodes of a window's pages before they are moved; blind only

	topology *Topology // at Start

	targets []target
	next    int // the target at work
	planned bool
	work    work
}

// target is a process with its state.
type target struct {
	TargetState
	shares []Share
}

// NewMover returns a Mover without anything to do. Close gives back its descriptor.
func NewMover(root hostfs.FS, calls Calls, cfg MoverConfig) *Mover {
	pageSize := uint64(os.Getpagesize())
	windowPages := hugePages(root, pageSize)
	cfg.MaxPages = cmp.Or(cfg.MaxPages, DefaultMaxPages)
	cfg.MaxScan = cmp.Or(cfg.MaxScan, DefaultMaxScan)
	cfg.MaxPages = max(cfg.MaxPages, uint64(windowPages))
	m := &Mover{
		root: root, cfg: cfg, scan: newScanner(calls, pageSize, windowPages), batch: NewBatch(calls, MaxBatch),
		room: NewRoomReader(root), flags: openPageFlags(root, windowPages),
	}
	m.blind, m.before = m.flags == nil, make([]int32, windowPages)
	m.survey = surveyor{scan: m.scan, bound: cfg.MoveBound, most: cfg.MaxProcessPages}
	return m
}

// hugePages returns how many base pages a transparent huge page has: what moves as one,
// at most. Kernels without them move single pages; the common size serves there.
func hugePages(root hostfs.FS, pageSize uint64) int {
	const common = 512
	data, err := root.ReadFile("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", nil)
	if err != nil {
		return common
	}
	size, ok := parseUint(trimNewline(data))
	if !ok || size < pageSize || size > 1<<30 || size&(size-1) != 0 {
		return common
	}
	return int(size / pageSize)
}

func trimNewline(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		return b[:n-1]
	}
	return b
}

// Start takes new targets, in the order in which they are to be worked on, and lets go of
// those before; no page is touched. ErrBadShares; ErrNoNode: a share with parts names a
// node without memory. A process that is not there is no error: it is Gone.
func (m *Mover) Start(targets []Target) error {
	if err := m.leave(); err != nil {
		return fmt.Errorf("start moving pages: %w", err)
	}
	m.targets, m.next, m.planned = nil, 0, false
	topology, err := ReadTopology(m.root)
	if err != nil {
		return fmt.Errorf("start moving pages: %w", err)
	}
	for _, t := range targets {
		if err := topology.check(t.Shares); err != nil {
			return fmt.Errorf("start moving pages of process %d: %w", t.PID, err)
		}
	}
	m.topology, m.targets = topology, make([]target, len(targets))
	for i, t := range targets {
		m.targets[i] = target{
			TargetState: TargetState{PID: t.PID, StartTicks: t.StartTicks},
			shares:      slices.Clone(t.Shares),
		}
		m.identify(&m.targets[i])
	}
	return nil
}

// Aim gives the ith target other shares than it was started with, after the survey and before its pages are moved: what
// was found may say which. With none its pages are left where they are. A process that is gone or was refused
// stays so. ErrBadShares, ErrNoNode.
func (m *Mover) Aim(i int, shares []Share) error {
	switch t := &m.targets[i]; {
	case t.Status != Surveyed:
	case len(shares) == 0:
		t.Status, t.RemainingPages = Settled, 0
	default:
		if err := m.topology.check(shares); err != nil {
			return fmt.Errorf("aim the pages of process %d: %w", t.PID, err)
		}
		t.shares = slices.Clone(shares)
	}
	return nil
}

// check returns ErrBadShares, or ErrNoNode where a share with parts is of a node without memory.
func (t *Topology) check(shares []Share) error {
	if err := checkShares(shares); err != nil {
		return err
	}
	for _, s := range shares {
		if s.Parts == 0 {
			continue
		}
		if err := t.checkMemoryNode(s.Node); err != nil {
			return err
		}
	}
	return nil
}

// identify notes when the process started, so that its number's next owner is not taken
// for it.
func (m *Mover) identify(t *target) {
	p, err := m.openTarget(t)
	if err != nil {
		t.fail(err)
		return
	}
	t.StartTicks = p.startTicks
	if err := p.Close(); err != nil {
		t.fail(err)
	}
}

// openTarget opens the process if it is still the same.
func (m *Mover) openTarget(t *target) (*Process, error) {
	p, err := OpenProcess(m.root, t.PID)
	if err != nil {
		return nil, err
	}
	if t.StartTicks != 0 && p.startTicks != t.StartTicks {
		err := fmt.Errorf("open process %d: %w: the number is another process's", t.PID, ErrVanished)
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// fail ends work on a process.
func (t *target) fail(err error) {
	t.RemainingPages = 0
	if errors.Is(err, ErrVanished) {
		t.Status, t.Err = Gone, nil
		return
	}
	t.Status, t.Err = Refused, err
}

// Targets returns how each process stands.
func (m *Mover) Targets() []TargetState {
	states := make([]TargetState, len(m.targets))
	for i := range m.targets {
		states[i] = m.targets[i].TargetState
		states[i].Before, states[i].After = slices.Clone(states[i].Before), slices.Clone(states[i].After)
	}
	return states
}

// Step does the next bounded piece of work. Trouble with one process stands in its
// state, and the next one's turn comes; an error is the context's, or about all of them
// (the target nodes' room cannot be read). After an error too the report holds, and the
// next Step goes on from there. Once it returned StopDone, it does nothing more.
func (m *Mover) Step(ctx context.Context) (Report, error) {
	var r Report
	var err error
	if !m.planned {
		err = m.surveyAll(ctx, &r)
	} else {
		err = m.moveAll(ctx, &r)
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		r.Stop = StopContext
	case err != nil:
		r.Stop = StopError
	}
	for i := range m.targets {
		r.RemainingPages += m.targets[i].RemainingPages
	}
	return r, err
}

// Close gives back all descriptors. The Mover is of no use then.
func (m *Mover) Close() error {
	err := m.leave()
	if m.flags != nil {
		err = errors.Join(err, m.flags.close())
		m.flags = nil
	}
	return err
}

// surveyAll finds the pages of all processes, until the step's bound.
func (m *Mover) surveyAll(ctx context.Context, r *Report) error {
	for ; m.next < len(m.targets); m.next++ {
		t := &m.targets[m.next]
		if t.Status != Waiting {
			continue
		}
		if r.ScannedPages >= m.cfg.MaxScan {
			r.Stop = StopScan
			return nil
		}
		if err := m.surveyTarget(ctx, t, r); err != nil {
			return err
		}
	}
	m.next, m.planned = 0, true
	r.Stop = StopSurveyed
	return nil
}

func (m *Mover) surveyTarget(ctx context.Context, t *target, r *Report) error {
	err := m.enter(ctx, t, r)
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), m.leave())
	}
	if err == nil {
		t.Status, t.Before = Surveyed, slices.Clone(t.After)
		err = m.leave()
	}
	if err != nil {
		t.fail(errors.Join(err, m.leave()))
	}
	return nil
}
