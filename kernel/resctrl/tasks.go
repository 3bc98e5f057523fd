package resctrl

// tasks: the threads in a group, one id a line; a write of one id moves that thread.
//
// https://docs.kernel.org/filesystems/resctrl.html ("tasks")
//
//	13136
//	13137
//
// A control group lists the threads of its monitoring groups too. Ids are those of the
// reader's pid namespace, and other threads are not listed. A thread that is moved into a
// control group leaves its monitoring group; into a monitoring group it can only come from
// that group's own control group. New threads and processes start in their parent's group.
// Since 6.7 a write takes a list with commas; single ids serve every kernel.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	tasksFile = "tasks"

	// maxPasses bounds a move: a thread that is started while the threads are listed
	// is found in the next pass, and one that is started by a thread already moved
	// needs none. A process that outruns this many is doing so on purpose.
	maxPasses = 16
)

// Tasks appends to dst[:0] the ids of a group's threads, in the kernel's order.
func (d *Driver) Tasks(n Name, dst []int32) ([]int32, error) {
	path := d.path(n) + "/" + tasksFile
	data, err := d.fs.ReadFile(path, nil)
	if err != nil {
		return dst[:0], fmt.Errorf("read tasks: %w", d.explain(n, err))
	}
	dst, err = parseTasks(dst[:0], data)
	if err != nil {
		return dst, fmt.Errorf("read %s: %w", path, err)
	}
	return dst, nil
}

// parseTasks appends the ids in data to dst.
func parseTasks(dst []int32, data []byte) ([]int32, error) {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		id, err := strconv.ParseInt(string(line), 10, 32)
		if err != nil || id <= 0 {
			return dst, fmt.Errorf("%w: task %q", ErrMalformed, clip(string(line)))
		}
		dst = append(dst, int32(id))
	}
	return dst, nil
}

// Moved counts what a move did with the threads it was given, each once.
type Moved struct {
	Moved   int
	Already int // were there when they were first looked at
	Gone    int // ended meanwhile, or not visible here
	Foreign int // in somebody else's group, and left there
	Passes  int // how often the threads were listed
}

// MoveThreads moves threads into a group: one of ours, or the root group. A thread in
// somebody else's control or monitoring group is left there and counted. Threads that end
// are counted, and no error.
func (d *Driver) MoveThreads(to Identity, tids []int32) (Moved, error) {
	return d.move(to, 1, func(dst []int32) ([]int32, error) { return append(dst, tids...), nil })
}

// MoveProcesses moves all threads of processes into a group, as MoveThreads does. list
// appends thread-group ids to dst (cgroup.Group.Procs, say); it is called again, and the
// threads listed again, until a pass finds none that is not there yet. It is called with
// the lock held, and must not call the driver. A thread whose start is in flight during
// the last pass stays where its parent was: who keeps processes in a group moves them
// again now and then. ErrStillGrowing when it takes more than 16
// passes; what was moved stays moved.
func (d *Driver) MoveProcesses(to Identity, list func(dst []int32) ([]int32, error)) (Moved, error) {
	var pids []int32
	return d.move(to, maxPasses, func(dst []int32) ([]int32, error) {
		var err error
		if pids, err = list(pids[:0]); err != nil {
			return dst, fmt.Errorf("list processes: %w", err)
		}
		for _, pid := range pids {
			if dst, err = d.threads(pid, dst); err != nil {
				return dst, err
			}
		}
		return dst, nil
	})
}

// threads appends the ids of a process's threads; none when it has ended.
func (d *Driver) threads(pid int32, dst []int32) ([]int32, error) {
	entries, err := d.fs.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if gone(err) || errors.Is(err, unix.ESRCH) {
		return dst, nil
	}
	if err != nil {
		return dst, fmt.Errorf("list threads of %d: %w", pid, err)
	}
	for _, e := range entries {
		tid, err := strconv.ParseInt(e.Name, 10, 32)
		if err != nil {
			return dst, fmt.Errorf("list threads of %d: %w: %q", pid, ErrMalformed, clip(e.Name))
		}
		dst = append(dst, int32(tid))
	}
	return dst, nil
}

// mover is one move.
type mover struct {
	d    *Driver
	to   Name
	seen map[int32]bool // threads that were counted
	buf  []byte
	Moved
}

// move runs passes until one finds nothing to do. A single pass needs no second look.
func (d *Driver) move(to Identity, passes int, list func(dst []int32) ([]int32, error)) (Moved, error) {
	m := mover{d: d, to: to.Name, seen: map[int32]bool{}}
	err := d.locked(toChange, func() error {
		if err := d.verifyTarget(to); err != nil {
			return fmt.Errorf("move threads: %w", err)
		}
		var tids []int32
		for {
			var err error
			if tids, err = list(tids[:0]); err != nil {
				return fmt.Errorf("move threads to %s: %w", to.Name, err)
			}
			m.Passes++
			fresh, err := m.pass(tids)
			switch {
			case err != nil:
				return err
			case !fresh || passes == 1:
				return nil
			case m.Passes == passes:
				return fmt.Errorf("move threads to %s: %w: %d passes", to.Name, ErrStillGrowing, passes)
			}
		}
	})
	return m.Moved, err
}

// verifyTarget checks that threads may be moved into a group: into one of ours, and back
// into the root group.
func (d *Driver) verifyTarget(to Identity) error {
	if to.Name.IsRoot() {
		return d.verify(to)
	}
	return d.verifyOurs(to)
}

// pass moves what is not there yet, and says whether there was any.
func (m *mover) pass(tids []int32) (fresh bool, err error) {
	for _, tid := range tids {
		moved, err := m.one(tid)
		if err != nil {
			return fresh, err
		}
		fresh = fresh || moved
	}
	return fresh, nil
}

// one moves a thread, and says whether it had to be.
func (m *mover) one(tid int32) (bool, error) {
	count, err := m.judge(tid)
	if err == nil && count == &m.Moved.Moved {
		err = m.write(m.to, tid)
		if m.to.IsMon() && errors.Is(err, unix.EINVAL) {
			// From another control group it has to go through the right one.
			if err = m.write(m.to.Parent(), tid); err == nil {
				err = m.write(m.to, tid)
			}
		}
	}
	if errors.Is(err, unix.ESRCH) {
		count, err = &m.Gone, nil
	}
	if err != nil {
		return false, err
	}
	if !m.seen[tid] {
		m.seen[tid] = true
		*count++
	}
	return count == &m.Moved.Moved, nil
}

// judge returns what a thread counts as.
func (m *mover) judge(tid int32) (*int, error) {
	if tid <= 0 {
		// Listings show 0 for what another pid namespace hides; written to tasks it
		// would mean the writer itself.
		return &m.Gone, nil
	}
	var at Name
	var err error
	at, m.buf, err = m.d.groupOf(tid, m.buf)
	switch {
	case errors.Is(err, errOrphan) && m.mayTake(Name{}):
		return &m.Moved.Moved, nil // nobody's: as if it were in the root group
	case errors.Is(err, errOrphan):
		return &m.Foreign, nil
	case err != nil:
		return nil, err
	case at == m.to, at.Ctrl == m.to.Ctrl && !m.to.IsMon():
		// There, or in a monitoring group below, whoever made that one.
		return &m.Already, nil
	case !m.mayTake(at):
		return &m.Foreign, nil
	}
	return &m.Moved.Moved, nil
}

// mayTake says whether a thread may be taken out of a group: not where somebody else
// monitors it, and between control groups only if both are ours or the root group.
func (m *mover) mayTake(at Name) bool {
	from, to := at.Parent(), m.to.Parent()
	free := from == to || (from.IsRoot() || m.d.ours(from)) && (to.IsRoot() || m.d.ours(to))
	return free && (!at.IsMon() || m.d.ours(at))
}

func (m *mover) write(to Name, tid int32) error {
	path := m.d.path(to) + "/" + tasksFile
	text := strconv.Itoa(int(tid)) + "\n"
	return m.d.change(clears, "write", path, text, func() error {
		return m.d.fs.WriteFile(path, []byte(text))
	})
}
