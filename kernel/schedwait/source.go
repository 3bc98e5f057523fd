package schedwait

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// object is bpf/schedwait.bpf.c as `make bpf` built it.
//
//go:embed schedwait.bpf.o
var object []byte

// Why a source cannot be opened.
var (
	// ErrNotSupported: the kernel has no BPF, no BTF, or not the fields that the programs follow.
	ErrNotSupported = errors.New("not supported by this kernel")
	// ErrPermission: CAP_BPF and CAP_PERFMON are missing, or the kernel is locked down.
	ErrPermission = errors.New("needs CAP_BPF and CAP_PERFMON, and a kernel that is not locked down")
	// ErrRefused: the kernel's verifier does not take the programs, which is a fault of ours or of that kernel.
	ErrRefused = errors.New("the kernel's verifier refuses the programs")
)

// Options are the sizes of a source. Zero values are the defaults.
type Options struct {
	// V2: cgroups are those of the v2 hierarchy, else those of the v1 hierarchy with the cpu controller.
	V2 bool
	// Groups bounds the managed cgroups, 1024.
	Groups int
	// Watched bounds those of them whose waits are measured, 256; 1.6 KiB each.
	Watched int
	// Threads bounds the threads of watched groups, 16384; 80 bytes each.
	Threads int
	// Rows bounds who is blamed by whom, 8192, beside one a watched group for what finds no room.
	Rows int

	trace bool // of the test that holds the accounting to a trace
	// segments bounds how far back a wait is charged, in tests whose waits are to be longer than that; all that a CPU keeps.
	segments uint32
	// alter is of tests of kernels that are not this one.
	alter func(*ebpf.CollectionSpec, *ebpf.CollectionOptions)
}

func (o *Options) setDefaults() {
	for _, d := range [...]struct {
		size  *int
		value int
	}{{&o.Groups, 1024}, {&o.Watched, 256}, {&o.Threads, 16384}, {&o.Rows, 8192}} {
		if *d.size <= 0 {
			*d.size = d.value
		}
	}
}

// Group is a cgroup that is somebody: what lies below it, unless it is a group of its own, counts as it.
type Group struct {
	// Cgroup is the inode number of its directory, in the hierarchy that Options name.
	Cgroup uint64
	// Task is the caller's number of it, from 0; Reading gives it back.
	Task int
	// Watched: its waits are measured.
	Watched bool
}

// Source measures who makes whom wait. Not for concurrent use.
type Source struct {
	opt     Options
	coll    *ebpf.Collection
	links   []link.Link
	epoch   uint64
	gen     uint64
	groups  map[uint64]Group // by cgroup: what the programs' own table has
	stale   bool             // the programs may remember another
	unfit   Unfit
	slots   map[int]uint32 // of watched tasks
	free    []uint32
	maps    tables
	seen    map[rowKey]*seenRow
	last    map[uint32]waits
	tallied tally
	missed  uint64 // events, so far
	buffers buffers
}

// tables are the programs' maps.
type tables struct {
	Groups   *ebpf.Map `ebpf:"groups"`
	Cache    *ebpf.Map `ebpf:"cache"`
	CPUs     *ebpf.Map `ebpf:"cpus"`
	Threads  *ebpf.Map `ebpf:"threads"`
	Rows     *ebpf.Map `ebpf:"rows"`
	Waits    *ebpf.Map `ebpf:"waits"`
	Longest  *ebpf.Map `ebpf:"longest"`
	Controls *ebpf.Map `ebpf:"controls"`
	Tallies  *ebpf.Map `ebpf:"tallies"`
	Trace    *ebpf.Map `ebpf:"trace"`
}

// Supported tries whether a source can be opened, and leaves nothing. The error is Open's.
func Supported() error {
	s, err := Open(Options{Groups: 1, Watched: 1, Threads: 1, Rows: 1})
	if err != nil {
		return err
	}
	return s.Close()
}

// Open loads the programs and attaches them, switched off. Errors wrap ErrNotSupported, ErrPermission or ErrRefused
// where they apply; what the verifier says comes with its last line.
func Open(opt Options) (*Source, error) {
	opt.setDefaults()
	s := &Source{opt: opt, groups: map[uint64]Group{}, slots: map[int]uint32{}, seen: map[rowKey]*seenRow{}, last: map[uint32]waits{}}
	for slot := opt.Watched; slot >= 1; slot-- {
		s.free = append(s.free, uint32(slot))
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("schedwait: %w", sorted(err)), s.Close())
	}
	return s, nil
}

func (s *Source) load() error {
	if err := rlimit.RemoveMemlock(); err != nil { // kernels before 5.11 account maps to it; nothing is done on others
		return err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("possible CPUs: %w", err)
	}
	for name, n := range map[string]int{
		"groups": s.opt.Groups, "cache": 16 * s.opt.Groups, "cpus": cpus, "tallies": cpus, "threads": s.opt.Threads,
		"rows": s.opt.Rows + s.opt.Watched, "waits": s.opt.Watched + 1, "longest": s.opt.Watched + 1,
	} {
		spec.Maps[name].MaxEntries = uint32(n)
	}
	set := map[string]uint32{"on_v2": 0, "tracing": 0}
	if s.opt.V2 {
		set["on_v2"] = 1
	}
	if s.opt.trace {
		set["tracing"] = 1
		spec.Maps["trace"].MaxEntries = 64 << 20
	}
	if s.opt.segments > 0 {
		set["segments"] = s.opt.segments
	}
	for name, value := range set {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("variable %s: %w", name, err)
		}
	}
	var how ebpf.CollectionOptions
	if s.opt.alter != nil {
		s.opt.alter(spec, &how)
	}
	if s.coll, err = ebpf.NewCollectionWithOptions(spec, how); err != nil {
		return err
	}
	if err := s.coll.Assign(&s.maps); err != nil {
		return err
	}
	for _, slot := range s.free { // to it is charged what finds no other
		if err := s.maps.Rows.Put(rowKey{Slot: slot, Party: uint32(Unknown)}, row{}); err != nil {
			return fmt.Errorf("rows: %w", err)
		}
	}
	for _, p := range s.coll.Programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("attach: %w", err)
		}
		s.links = append(s.links, l)
	}
	return nil
}

// missingField is what cilium/ebpf says of a program that follows a field which the kernel has not. It has no name for it.
const missingField = "bad CO-RE relocation"

// sourceLine is the last line of the programs that a verifier's log tells of.
func sourceLine(log []string) string {
	for _, line := range slices.Backward(log) {
		if text, ok := strings.CutPrefix(line, "; "); ok && !strings.HasPrefix(text, "instruction poisoned") {
			return text
		}
	}
	return "the verifier does not say where"
}

// sorted gives an error of loading one of this package's names.
func sorted(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier) && strings.Contains(verifier.Cause.Error(), missingField):
		return fmt.Errorf("%w: a field that the programs follow is not there: %s: %w", ErrNotSupported, sourceLine(verifier.Log), err)
	case errors.As(err, &verifier):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: %w", ErrPermission, err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, btf.ErrNotFound), errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}

// Close detaches and frees everything. The kernel does the same when the process ends.
func (s *Source) Close() error {
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	s.links = nil
	if s.coll != nil {
		s.coll.Close()
		s.maps.close()
	}
	return errors.Join(errs...)
}

func (m *tables) close() {
	for _, m := range [...]*ebpf.Map{m.Groups, m.Cache, m.CPUs, m.Threads, m.Rows, m.Waits, m.Longest, m.Controls, m.Tallies, m.Trace} {
		_ = m.Close() // nil is none
	}
}

// SetGroups makes these the managed groups. A cgroup that was one keeps what was counted.
//
// Where there is no room for all, those that come first in the list have it, whoever had it before: who matters most is
// the caller's to say, and one whose list has the older ones first never gives the room of one to a younger one.
// Reading.Unfit counts the others.
//
// Where the kernel refuses, what it took already stands, and the same call may be made again.
func (s *Source) SetGroups(groups []Group) error {
	want, watched := s.fit(groups)
	if maps.Equal(want, s.groups) && !s.stale {
		return nil
	}
	if err := s.release(want, watched); err != nil {
		return fmt.Errorf("schedwait: %w", err)
	}
	for id, g := range want {
		if s.groups[id] == g {
			continue
		}
		value := group{Party: uint32(firstTask + g.Task)}
		if g.Watched {
			value.Slot = s.slotOf(g.Task)
		}
		if err := s.maps.Groups.Put(id, value); err != nil {
			return fmt.Errorf("schedwait: %w", err)
		}
		s.groups[id], s.stale = g, true
	}
	return s.regroup()
}

// fit takes of the groups what there is room for, by cgroup, and the tasks whose waits are measured.
func (s *Source) fit(groups []Group) (want map[uint64]Group, watched map[int]bool) {
	want, watched = make(map[uint64]Group, len(groups)), map[int]bool{}
	blind := map[int]bool{}
	s.unfit = Unfit{}
	for _, g := range groups {
		if _, ok := want[g.Cgroup]; !ok && len(want) == s.opt.Groups {
			s.unfit.Groups++
			continue
		}
		if g.Watched && !watched[g.Task] {
			if len(watched) == s.opt.Watched {
				g.Watched, blind[g.Task] = false, true
			} else {
				watched[g.Task] = true
			}
		}
		want[g.Cgroup] = g
	}
	s.unfit.Watched = len(blind)
	return want, watched
}

// release lets go of the groups that are not wanted as they are, and of the slots of tasks that are not watched any
// more. A slot is free only when nothing is counted in it and what was is forgotten: else its next owner would inherit it.
func (s *Source) release(want map[uint64]Group, watched map[int]bool) error {
	for id, g := range s.groups {
		if now, ok := want[id]; ok && now == g {
			continue
		}
		if err := s.maps.Groups.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		delete(s.groups, id)
		s.stale = true
	}
	idle := map[uint32]int{} // tasks by the slot that they give up
	for task, slot := range s.slots {
		if !watched[task] {
			idle[slot] = task
		}
	}
	if len(idle) == 0 {
		return nil
	}
	if err := s.regroup(); err != nil { // from here on nothing is counted for who had them
		return err
	}
	if err := s.clear(idle); err != nil {
		return err
	}
	for slot, task := range idle {
		delete(s.slots, task)
		s.free = append(s.free, slot)
	}
	return nil
}

// regroup has the programs look up anew whose each cgroup is.
func (s *Source) regroup() error {
	s.gen++
	err := s.control()
	s.stale = err != nil
	return err
}

// slotOf is a watched task's slot; fit leaves none without.
func (s *Source) slotOf(task int) uint32 {
	slot, ok := s.slots[task]
	if !ok {
		slot = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		s.slots[task] = slot
	}
	return slot
}

// clear forgets what was counted in some slots, what nobody has read yet included.
func (s *Source) clear(slots map[uint32]int) error {
	for slot := range slots {
		delete(s.last, slot)
		if err := errors.Join(s.maps.Waits.Put(slot, waits{}), s.maps.Longest.Put(slot, uint64(0))); err != nil {
			return err
		}
	}
	var of []rowKey // no row may go while the table is walked through
	err := each(s.maps.Rows, &s.buffers.keys, &s.buffers.rows, func(k rowKey, _ row) {
		if _, ok := slots[k.Slot]; ok {
			of = append(of, k)
		}
	})
	if err != nil {
		return err
	}
	for _, k := range of {
		delete(s.seen, k)
		if Party(k.Party) == Unknown {
			err = errors.Join(err, s.maps.Rows.Put(k, row{})) // it stays: whoever has the slot next may need it
		} else if e := s.maps.Rows.Delete(k); !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Start begins to measure: nothing from before counts, waits that had begun included.
func (s *Source) Start() error {
	s.epoch++
	return s.control()
}

// Stop ends it. What was counted stays.
func (s *Source) Stop() error {
	at := s.epoch
	s.epoch = 0
	err := s.control()
	s.epoch = at
	return err
}

func (s *Source) control() error {
	if err := s.maps.Controls.Put(uint32(0), control{Epoch: s.epoch, Generation: s.gen}); err != nil {
		return fmt.Errorf("schedwait: %w", err)
	}
	return nil
}
