package reclaim

// memory.reclaim (v2, since Linux 5.19): a write makes the kernel reclaim that much from
// the group and its descendants.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
//
//	16777216                   bytes, or with a suffix K, M, G
//	16777216 swappiness=0      since 6.9: 0 takes file memory only, 200 favours anonymous
//
// The kernel takes the coldest memory that it knows of, respects memory.min and
// memory.low, and takes more than was asked for: measured on 6.1, a third more of page
// cache. When it finds too little it
// answers EAGAIN, and what it did reclaim stays reclaimed; it never says how much that
// was. So each request is measured: memory.current, memory.stat, memory.swap.current and
// memory.zswap.current before and after. What was taken and what came free are two figures:
// pages that go to compressed memory (zswap, zram) leave a copy of them behind.
//
// The write returns when the work is done, which can take long: the thread that writes
// walks page tables, compresses pages and waits for disks, on its own CPU time. A signal
// is noticed only between rounds, and on 6.1 one round tries for all that is missing. So a
// request is cut into steps of some megabytes, each in a thread that a cancelled context
// interrupts (blocking_write.go). Nothing of this is for a hot path.
//
// v1 has no such file. What it has is no substitute: memory.force_empty takes all that
// can be taken, hot pages first or last as it comes, until the group is empty, and has no
// amount; lowering memory.limit_in_bytes reclaims, and invites the OOM killer if the group
// grows meanwhile.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Bounds of a request.
const (
	// DefaultStepBytes is what one write asks for unless the caller says otherwise. On
	// the rig's emulated CPUs so much page cache took 45 to 65 ms, three quarters of it
	// to compressed swap 190 to 310 ms.
	DefaultStepBytes = 16 << 20
	// MaxStepBytes bounds one write, and with it how long cancelling can take.
	MaxStepBytes = 256 << 20
	// MaxAskBytes bounds one request. Who wants more asks again, and looks at the
	// group in between.
	MaxAskBytes = 64 << 30
	// maxInterruptions bounds how often one step goes on after a signal that was
	// not ours (a profiler's).
	maxInterruptions = 16
)

// Swappiness chooses between anonymous and file memory. The zero value leaves it to the
// kernel (vm.swappiness) and works everywhere; the others need Linux 6.9.
type Swappiness int

// The choices. What lies between is left out: a policy knows which kind it wants.
const (
	KernelsChoice Swappiness = iota // as vm.swappiness says
	FileOnly                        // swappiness=0
	FavourAnon                      // swappiness=200: anonymous memory, file memory when there is none
)

// text returns the argument for memory.reclaim.
func (s Swappiness) text() string {
	switch s {
	case FileOnly:
		return " swappiness=0"
	case FavourAnon:
		return " swappiness=200"
	}
	return ""
}

// Ask is one bounded request.
type Ask struct {
	Bytes      uint64     // 1 to MaxAskBytes
	StepBytes  uint64     // at most this in one write; 0 is DefaultStepBytes
	Swappiness Swappiness // between anonymous and file memory
}

// check completes a request, or refuses it.
func (a *Ask) check() error {
	a.StepBytes = cmp.Or(a.StepBytes, DefaultStepBytes)
	switch {
	case a.Bytes == 0 || a.Bytes > MaxAskBytes:
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrBadAsk, a.Bytes, uint64(MaxAskBytes))
	case a.StepBytes > MaxStepBytes:
		return fmt.Errorf("%w: steps of %d bytes, at most %d", ErrBadAsk, a.StepBytes, uint64(MaxStepBytes))
	case a.Swappiness < KernelsChoice || a.Swappiness > FavourAnon:
		return fmt.Errorf("%w: swappiness %d", ErrBadAsk, int(a.Swappiness))
	}
	return nil
}

// Outcome is what a request did, as measured. It holds also beside an error.
type Outcome struct {
	// AckedBytes is what the kernel acknowledged: the sum of the writes that it
	// took in full. What a short or interrupted write reclaimed is not in it. Always
	// 0 for Evict, which the kernel answers with nothing.
	AckedBytes uint64
	// TakenBytes is what left the group's memory, by its size there, compressed or not:
	// what was acknowledged or, where that is more, what memory.current fell by and
	// memory.zswap.current rose by, or what memory.swap.current rose by. The last two
	// are net of what the group allocated and swapped in meanwhile.
	TakenBytes uint64
	// KeptBytes is what compressed copies of that still take of the machine's memory: what
	// came free is TakenBytes less this. Of zswap it is the group's own figure, without
	// what its pool wastes; of zram, whose memory is charged to nobody, what all devices
	// grew by, at most what the group swapped. At most TakenBytes.
	KeptBytes uint64
	// FellBytes is how far memory.current fell: exact, and net of what the group
	// allocated meanwhile and of the compressed copies that zswap keeps. Negative
	// when the group grew by more than was reclaimed.
	FellBytes int64
	// Stolen is the rise of pgsteal, pages that anybody reclaimed from the group
	// meanwhile. It can lag (memory_stat.go). Not OK where the kernel has none.
	Stolen Counter
	// SwappedBytes is how far memory.swap.current rose. Not OK where the kernel does
	// not say, and when it fell.
	SwappedBytes Gauge
	Steps        int // writes
	Took         time.Duration
}

// Reclaimer takes memory back from one group. It keeps a Meter's descriptors and one for
// memory.reclaim, all bound to the group's directory: a later group of the same path is
// never reclaimed from. It is not safe for concurrent use.
type Reclaimer struct {
	*Meter
	hand    func(ctx context.Context, data []byte) error // hands a request to the kernel
	closeFD func() error
}

// OpenReclaimer opens a group for reclaim. Where there is no memory.reclaim the error is
// ErrNoReclaim and cgroup.ErrUnsupported.
func (m *Memory) OpenReclaimer(path string) (*Reclaimer, error) {
	if !m.v2 {
		return nil, fmt.Errorf("open cgroup %s for reclaim: %w (%w): the memory controller is on cgroup v1, whose "+
			"memory.force_empty has no amount and takes everything", path, ErrNoReclaim, cgroup.ErrUnsupported)
	}
	mt, err := m.OpenMeter(path)
	if err != nil {
		return nil, err
	}
	r := &Reclaimer{Meter: mt}
	if err = r.open(m.fs, mt.dir.abs+"/memory.reclaim"); err != nil {
		err = mt.dir.wrap("open", "memory.reclaim", err)
		if errors.Is(err, cgroup.ErrUnsupported) {
			err = fmt.Errorf("%w: %w", ErrNoReclaim, err)
		}
		return nil, errors.Join(err, mt.Close())
	}
	if err := mt.dir.same(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// open finds the way to hand requests in. A simulated kernel has no descriptors; it reclaims at once, so
// that the group of a path is looked at just before each request.
func (r *Reclaimer) open(fsys hostfs.FS, path string) error {
	if opener, ok := fsys.(hostfs.WriteOpener); ok {
		fd, closeFD, err := opener.OpenReadWrite(path)
		r.hand, r.closeFD = func(ctx context.Context, data []byte) error { _, err := writeOnce(ctx, fd, data); return err }, closeFD
		return err
	}
	if _, ok := fsys.(hostfs.FolderOpener); !ok {
		return fmt.Errorf("%w: this file access opens nothing for writing", ErrNoReclaim)
	}
	r.closeFD = func() error { return nil }
	r.hand = func(ctx context.Context, data []byte) error {
		if err := errors.Join(ctx.Err(), r.dir.same()); err != nil {
			return err
		}
		return fsys.WriteFile(path, data)
	}
	_, err := fsys.Inode(path)
	return err
}

// Close lets go of all descriptors.
func (r *Reclaimer) Close() error { return errors.Join(r.closeFD(), r.Meter.Close()) }

// TakesSwappiness says whether this kernel's memory.reclaim takes "swappiness=". It asks
// for 0 bytes, which reclaims nothing.
func (r *Reclaimer) TakesSwappiness(ctx context.Context) (bool, error) {
	err := r.write(ctx, 0, FileOnly)
	if errors.Is(err, ErrNoSwappiness) {
		return false, nil
	}
	return err == nil, err
}

// Reclaim takes ask.Bytes back, in steps, until that is acknowledged or as much was taken
// (Outcome.TakenBytes), the kernel comes up short (ErrShort), the group is gone
// (cgroup.ErrVanished), or the context ends (its error). It blocks.
func (r *Reclaimer) Reclaim(ctx context.Context, ask Ask) (Outcome, error) {
	if err := ask.check(); err != nil {
		return Outcome{}, fmt.Errorf("reclaim from cgroup %s: %w", r.dir.path, err)
	}
	if err := r.roomFor(ask.Swappiness); err != nil {
		return Outcome{}, fmt.Errorf("reclaim from cgroup %s: %w", r.dir.path, err)
	}
	return r.measured(func(before reading, out *Outcome) error {
		for done := uint64(0); done < ask.Bytes; {
			n := min(ask.Bytes-done, ask.StepBytes)
			if err := r.step(ctx, n, ask.Swappiness, out); err != nil {
				return err
			}
			out.AckedBytes += n
			now, err := r.read()
			if err != nil {
				return err
			}
			done = max(out.AckedBytes, now.taken(&before)) // the kernel takes more than it was asked for
		}
		return nil
	})
}

// roomFor refuses what asks for anonymous memory where that has nowhere to go.
func (r *Reclaimer) roomFor(s Swappiness) error {
	if s != FavourAnon {
		return nil
	}
	room, err := r.dir.m.Room(r.dir.path)
	if err != nil {
		return err
	}
	if room.AnonBytes == 0 {
		return fmt.Errorf("%w: %s", ErrNoRoom, room.Why)
	}
	return nil
}

// step asks for n bytes. A signal that was not ours leaves open how much was done, so what
// is measured is taken off the rest.
func (r *Reclaimer) step(ctx context.Context, n uint64, s Swappiness, out *Outcome) error {
	left := n
	for range maxInterruptions {
		before, err := r.read()
		if err != nil {
			return err
		}
		out.Steps++
		err = r.write(ctx, left, s)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
		after, err := r.read()
		if err != nil {
			return err
		}
		if left -= min(left, after.taken(&before)); left == 0 {
			return nil
		}
	}
	return fmt.Errorf("reclaim from cgroup %s: interrupted %d times: %w", r.dir.path, maxInterruptions, unix.EINTR)
}

// write makes one request.
func (r *Reclaimer) write(ctx context.Context, n uint64, s Swappiness) error {
	err := r.hand(ctx, []byte(strconv.FormatUint(n, 10)+s.text()))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN):
		err = fmt.Errorf("%w: %w", ErrShort, err)
	case errors.Is(err, unix.EINVAL) && s != KernelsChoice:
		err = fmt.Errorf("%w: %w", ErrNoSwappiness, err)
	}
	return r.dir.wrap("write", "memory.reclaim", err)
}

// reading is what an outcome is measured by.
type reading struct {
	current     uint64
	swap, zswap Gauge
	steal       Counter
}

// taken is what left the group's memory since an earlier reading: what went to zswap is still charged, compressed.
func (now *reading) taken(before *reading) uint64 {
	net := int64(before.current) - int64(now.current)
	if before.zswap.OK && now.zswap.OK {
		net += int64(now.zswap.Bytes) - int64(before.zswap.Bytes)
	}
	return max(uint64(max(0, net)), now.swap.above(before.swap))
}

func (r *Reclaimer) read() (reading, error) {
	var v reading
	var s Stat
	var err error
	if v.current, err = r.Current(); err != nil {
		return v, err
	}
	if v.swap, err = r.Swap(); err != nil {
		return v, err
	}
	if v.zswap, err = r.Zswap(); err != nil {
		return v, err
	}
	if err = r.Stat(&s); err != nil {
		return v, err
	}
	v.steal = s.PgSteal
	return v, nil
}

// measured runs work between two readings. work's error comes first.
func (r *Reclaimer) measured(work func(before reading, out *Outcome) error) (Outcome, error) {
	var out Outcome
	before, err := r.read()
	if err != nil {
		return out, err
	}
	zram := zramUsed(r.dir.m.fs)
	start := time.Now()
	workErr := work(before, &out)
	out.Took = time.Since(start)
	after, err := r.read()
	if err != nil {
		return out, errors.Join(workErr, err)
	}
	out.FellBytes = int64(before.current) - int64(after.current)
	out.TakenBytes = max(out.AckedBytes, after.taken(&before))
	out.KeptBytes = min(out.TakenBytes, after.zswap.above(before.zswap)+min(zramUsed(r.dir.m.fs).above(zram), after.swap.above(before.swap)))
	if n, ok := after.steal.Since(before.steal); ok {
		out.Stolen = Counter{N: n, OK: true}
	}
	if before.swap.OK && after.swap.OK && after.swap.Bytes >= before.swap.Bytes {
		out.SwappedBytes = Gauge{Bytes: after.swap.Bytes - before.swap.Bytes, OK: true}
	}
	return out, workErr
}
