package bpfcounters

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/perf"
)

// Task is one cgroup's counts, its descendants' among them. Not for concurrent use with its Source or other tasks of it.
type Task struct {
	s      *Source
	dir    int // the cgroup's directory, to notice its removal
	id     uint64
	slot   uint32
	tally  *perf.Tally
	record []uint64 // as the kernel gives it: words a possible CPU
}

// Add begins to count the cgroup whose directory cgroupDirFD is open on; the descriptor stays the caller's. Errors
// wrap perf.ErrNotCgroup2, perf.ErrGone, perf.ErrTooManyFiles or ErrFull where they apply.
func (s *Source) Add(cgroupDirFD int) (*Task, error) {
	id, err := cgroupID(cgroupDirFD)
	if err != nil {
		return nil, fmt.Errorf("bpfcounters: cgroup descriptor %d: %w", cgroupDirFD, err)
	}
	if perf.Removed(cgroupDirFD) {
		return nil, fmt.Errorf("bpfcounters: cgroup %d: %w", id, perf.ErrGone)
	}
	if len(s.free) == 0 {
		return nil, fmt.Errorf("bpfcounters: %d cgroups are counted: %w", len(s.tasks), ErrFull)
	}
	dir, err := unix.FcntlInt(uintptr(cgroupDirFD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("bpfcounters: duplicate cgroup descriptor: %w", sorted(err))
	}
	t := &Task{
		s: s, dir: dir, id: id, slot: s.free[len(s.free)-1],
		tally:  perf.NewTally(s.possible, len(s.events)),
		record: make([]uint64, s.possible*words(len(s.events))),
	}
	// The slot has what its last owner counted: the new one begins there.
	err = t.each(t.tally.Rebase)
	if err == nil {
		err = s.maps.slots.Put(id, t.slot)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bpfcounters: add cgroup %d: %w", id, err), unix.Close(dir))
	}
	s.free = s.free[:len(s.free)-1]
	s.tasks[t] = struct{}{}
	return t, nil
}

// Read fills out[i] with the i-th of the source's events, in two system calls; it does not allocate unless it
// fails. What perf.Counters.Read says of the numbers holds here too.
func (t *Task) Read(out []perf.Count) error {
	if len(out) < len(t.s.events) {
		return fmt.Errorf("bpfcounters: read: %d results for %d events: %w", len(out), len(t.s.events), unix.EINVAL)
	}
	out = out[:len(t.s.events)]
	if perf.Removed(t.dir) {
		for i := range out {
			out[i] = perf.Count{Status: perf.Gone}
		}
		return nil
	}
	if err := t.each(t.tally.Add); err != nil {
		return fmt.Errorf("bpfcounters: read cgroup %d: %w", t.id, err)
	}
	t.tally.Finish(out, t.s.link == nil)
	return nil
}

// each reads the record and gives it to f CPU by CPU.
func (t *Task) each(f func(cpu int, enabled, running uint64, values []uint64)) error {
	if err := lookup(t.s.maps.counts.FD(), &t.slot, t.record); err != nil {
		return err
	}
	n := words(len(t.s.events))
	for cpu := range t.s.possible {
		r := t.record[cpu*n : (cpu+1)*n]
		f(cpu, r[0], r[1], r[2:])
	}
	return nil
}

// Close stops counting the cgroup. The source goes on. Closing again does nothing.
func (t *Task) Close() error {
	if t.dir < 0 {
		return nil
	}
	err := t.s.maps.slots.Delete(t.id)
	err = errors.Join(err, unix.Close(t.dir))
	t.dir = -1
	t.s.free = append(t.s.free, t.slot)
	delete(t.s.tasks, t)
	if err != nil {
		return fmt.Errorf("bpfcounters: close cgroup %d: %w", t.id, err)
	}
	return nil
}

// cgroupID is the kernel's id of a cgroup of the v2 hierarchy: the inode number of its directory
// (Documentation/admin-guide/cgroup-v2.rst does not say so; kernfs has made the two one on 64 bits since Linux 5.5).
func cgroupID(dirFD int) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(dirFD, &fs); err != nil {
		return 0, fmt.Errorf("%w: %w", perf.ErrNotCgroup2, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("file system %#x: %w", fs.Type, perf.ErrNotCgroup2)
	}
	var st unix.Stat_t
	if err := unix.Fstat(dirFD, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// The bpf(2) calls of a window, bare: the library's allocate at each call.
const (
	commandLookup  = 1  // BPF_MAP_LOOKUP_ELEM
	commandUpdate  = 2  // BPF_MAP_UPDATE_ELEM
	commandTestRun = 10 // BPF_PROG_TEST_RUN
	runOnCPU       = 1  // BPF_F_TEST_RUN_ON_CPU
)

// elementAttr is the part of union bpf_attr for BPF_MAP_*_ELEM commands.
type elementAttr struct {
	mapFD uint32
	_     uint32
	key   unsafe.Pointer
	value unsafe.Pointer
	flags uint64
}

// lookup copies a per-CPU map's value: all CPUs in one call.
func lookup(mapFD int, key *uint32, value []uint64) error {
	attr := elementAttr{mapFD: uint32(mapFD), key: unsafe.Pointer(key), value: unsafe.Pointer(&value[0])}
	return call(commandLookup, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
}

// update writes a per-CPU map's value on all CPUs.
func update(mapFD int, key *uint32, value []uint64) error {
	attr := elementAttr{mapFD: uint32(mapFD), key: unsafe.Pointer(key), value: unsafe.Pointer(&value[0])}
	return call(commandUpdate, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
}

// testRunAttr is the part of union bpf_attr for BPF_PROG_TEST_RUN.
type testRunAttr struct {
	progFD, retval          uint32
	dataSizeIn, dataSizeOut uint32
	dataIn, dataOut         uint64
	repeat, duration        uint32
	ctxSizeIn, ctxSizeOut   uint32
	ctxIn, ctxOut           uint64
	flags, cpu              uint32
	batchSize, _            uint32
}

// runOn runs a raw_tracepoint program on a CPU.
func runOn(progFD, cpu int) error {
	attr := testRunAttr{progFD: uint32(progFD), flags: runOnCPU, cpu: uint32(cpu)}
	return call(commandTestRun, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
}

func call(command uintptr, attr unsafe.Pointer, size uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return errno
	}
	return nil
}
