package machine

import (
	"fmt"
	"math"
)

// The disk. An operation takes it for a time that is linear in its bytes, as in the kernel's io.cost model (block/blk-iocost.c,
// calc_vtime_cost_builtin): one part for the operation, one for what it moves. Operations of all tasks wait in one queue, in
// the order of their coming, and the mean wait is that of an M/G/1 queue (Pollaczek and Khinchine; Kleinrock, Queueing Systems I,
// section 5.6):
//
//	W = sum(rate x cost²) / (2 (1 - sum(rate x cost)))
//
// A task in an open loop sends operations at its rate whatever comes back; one in a closed loop has as many under way at all times, so
// that its rate is depth / (cost + W). Both are held to what the task's limit lets through (io.max); operations wait for that before the
// queue, and not in it. What a wait does to the CPU time of a task is left out, as are merging, seeks and caches.

// DiskIO is what a task does on the disk while it runs.
type DiskIO struct {
	OpsPerSecond float64 // open loop
	Depth        float64 // closed loop; exactly one of the two
	Bytes        float64 // of an operation
	WriteShare   float64 // of the operations
}

func (d *DiskIO) check(task string, m *Config) error {
	switch {
	case m.DiskBytes <= 0:
		return fmt.Errorf("machine: task %s: uses the disk, and the machine has none", task)
	case (d.OpsPerSecond > 0) == (d.Depth > 0) || !(d.OpsPerSecond >= 0 && d.OpsPerSecond <= 1e7) || !(d.Depth >= 0 && d.Depth <= 1024):
		return fmt.Errorf("machine: task %s: %v operations a second and %v at all times; expected one of the two, up to 1e7 or 1024", task, d.OpsPerSecond, d.Depth)
	case !(d.Bytes >= 512 && d.Bytes <= 1<<30) || !(d.WriteShare >= 0 && d.WriteShare <= 1):
		return fmt.Errorf("machine: task %s: operations of %v bytes, %v of them writes", task, d.Bytes, d.WriteShare)
	}
	return nil
}

// DiskLimit is what a task may do on the disk a second; 0: no limit.
type DiskLimit struct{ ReadBPS, WriteBPS, ReadIOPS, WriteIOPS uint64 }

// DiskUse is what a task has done on the disk, and for how long its operations were under way, over all of them.
type DiskUse struct {
	ReadBytes, WrittenBytes, Reads, Writes float64
	WaitedNsec                             float64
}

// Plus returns the sum of two, the other times a factor.
func (u DiskUse) Plus(o DiskUse, times float64) DiskUse {
	return DiskUse{
		u.ReadBytes + times*o.ReadBytes, u.WrittenBytes + times*o.WrittenBytes, u.Reads + times*o.Reads, u.Writes + times*o.Writes,
		u.WaitedNsec + times*o.WaitedNsec,
	}
}

// disk is what a task does there now.
type disk struct {
	limit DiskLimit
	use   DiskUse
	cost  float64 // of an operation, s
	rate  float64 // operations a second
	under float64 // operations under way, in the mean
}

// most is how many operations a second a limit lets through.
func (l *DiskLimit) most(d *DiskIO) float64 {
	rate := math.Inf(1)
	for _, b := range [...]struct {
		limit uint64
		per   float64 // of an operation
	}{
		{l.ReadBPS, d.Bytes * (1 - d.WriteShare)}, {l.WriteBPS, d.Bytes * d.WriteShare}, {l.ReadIOPS, 1 - d.WriteShare}, {l.WriteIOPS, d.WriteShare},
	} {
		if b.limit > 0 && b.per > 0 {
			rate = min(rate, float64(b.limit)/b.per)
		}
	}
	return rate
}

// longestWait bounds the queue: from there on whoever sends is kept from it (nr_requests).
const longestWait = 2 // s

// ask sets the rates at which tasks send operations while one waits so long, and returns what part of its time that takes of the
// disk, and the sum that the wait follows from.
func (m *Machine) ask(wait float64) (busy, square float64) {
	for _, t := range m.live {
		io, d := t.cfg.Disk, &t.disk
		if io == nil {
			continue
		}
		d.cost = 1/m.cfg.DiskOps + io.Bytes/m.cfg.DiskBytes
		d.rate = io.OpsPerSecond * t.spread // as its work differs from one piece to the next
		if io.Depth > 0 {
			d.rate = io.Depth / (d.cost + wait)
		}
		if d.rate = min(d.rate, d.limit.most(io)); t.frozen {
			d.rate = 0
		}
		busy += d.rate * d.cost
		square += d.rate * d.cost * d.cost
	}
	return busy, square
}

// serveDisk lets a part of a step pass on the disk. The wait at which the queue brings forth what it is made of is found by
// bisection: the longer it is the less is sent.
func (m *Machine) serveDisk(dt int64) {
	if m.cfg.DiskBytes <= 0 {
		return
	}
	low, high := 0.0, float64(longestWait)
	for range 50 {
		wait := (low + high) / 2
		busy, square := m.ask(wait)
		if busy >= 1 || square/(2*(1-busy)) > wait {
			low = wait
		} else {
			high = wait
		}
	}
	busy, _ := m.ask(high)
	fits := min(1, 1/max(busy, 1e-12)) // more than the disk can: all get less
	seconds := float64(dt) / 1e9
	for _, t := range m.live {
		io, d := t.cfg.Disk, &t.disk
		if io == nil {
			continue
		}
		asked := io.OpsPerSecond * t.spread
		d.rate *= fits
		if d.under = d.rate * (d.cost + high); io.Depth > 0 {
			d.under = io.Depth
		} else if d.rate < asked { // what a limit keeps back piles up before it
			d.under = max(d.under, float64(t.cfg.Threads))
		}
		if t.frozen {
			d.under = 0
		}
		ops := d.rate * seconds
		d.use.Reads += ops * (1 - io.WriteShare)
		d.use.Writes += ops * io.WriteShare
		d.use.ReadBytes += ops * (1 - io.WriteShare) * io.Bytes
		d.use.WrittenBytes += ops * io.WriteShare * io.Bytes
		d.use.WaitedNsec += d.under * float64(dt)
	}
}

// stalls are the shares of the time in which some operation of the task is under way, and in which all its threads wait for one: as many
// are under way as Poisson says, and each waits as if the others were not there.
func (t *Task) stalls() (some, full float64) {
	k := float64(t.cfg.Threads)
	switch io := t.cfg.Disk; {
	case io == nil || t.disk.under <= 0:
		return 0, 0
	case io.Depth > 0:
		return 1, math.Pow(min(1, io.Depth/k), k)
	}
	return 1 - math.Exp(-t.disk.under), math.Pow(1-math.Exp(-t.disk.under/k), k)
}

// pressDisk counts the part's pressure by I/O.
func (m *Machine) pressDisk(dt int64) {
	if m.cfg.DiskBytes <= 0 {
		return
	}
	none, full, any := 1.0, 1.0, false
	for _, t := range m.live {
		if t.cfg.Disk == nil {
			continue
		}
		some, all := t.stalls()
		t.stall.ioSome += some * float64(dt)
		t.stall.ioFull += all * float64(dt)
		none, full, any = none*(1-some), full*all, true
	}
	if any {
		m.stall.ioSome += (1 - none) * float64(dt)
		m.stall.ioFull += full * float64(dt)
	}
}

// DiskUse returns what a task has done on the disk since it started; ok is false where it does nothing there.
func (m *Machine) DiskUse(num int) (use DiskUse, ok bool) {
	t, err := m.task(num)
	if err != nil || t.cfg.Disk == nil {
		return use, false
	}
	return t.disk.use, true
}

// DiskLimit returns what a task may do on the disk.
func (m *Machine) DiskLimit(num int) (DiskLimit, error) {
	t, err := m.task(num)
	if err != nil {
		return DiskLimit{}, err
	}
	return t.disk.limit, nil
}

// SetDiskLimit sets it.
func (m *Machine) SetDiskLimit(num int, l DiskLimit) error {
	t, err := m.task(num)
	if err == nil {
		t.disk.limit = l
	}
	return err
}

// SetDisk makes the disk another: bytes and operations a second.
func (m *Machine) SetDisk(bytes, ops float64) error {
	if !(bytes > 0 && bytes <= 1e12 && ops > 0 && ops <= 1e8) || m.cfg.DiskBytes <= 0 {
		return fmt.Errorf("machine: a disk of %v bytes and %v operations a second, where there were %v", bytes, ops, m.cfg.DiskBytes)
	}
	m.cfg.DiskBytes, m.cfg.DiskOps = bytes, ops
	return nil
}
