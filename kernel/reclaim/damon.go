package reclaim

// /sys/kernel/mm/damon/admin/kdamonds: DAMON, the kernel's sampling monitor of memory
// accesses (sysfs since Linux 5.18, what this package needs since 6.2).
//
// https://docs.kernel.org/admin-guide/mm/damon/usage.html#sysfs-interface
//
//	nr_kdamonds                                   1
//	0/state                                       on
//	0/pid                                         77
//	0/contexts/0/operations                       vaddr
//	0/contexts/0/monitoring_attrs/intervals/sample_us,aggr_us,update_us
//	0/contexts/0/monitoring_attrs/nr_regions/min,max
//	0/contexts/0/targets/0/pid_target             4711
//	0/contexts/0/schemes/0/action                 stat
//	0/contexts/0/schemes/0/access_pattern/{sz,nr_accesses,age}/{min,max}
//	0/contexts/0/schemes/0/tried_regions/0/{start,end,nr_accesses,age}
//
// A kdamond is a kernel thread that watches. Their number is one for the machine: who
// writes nr_kdamonds removes the instances of everybody (those that run: EBUSY, those that
// are set up and off: gone). There is no lock, no owner and no name. So:
//
//   - Only nr_kdamonds = 0 is free. Anything else is somebody's, running or not, and is
//     read and never written.
//   - DAMON's users inside the kernel (damon_reclaim, damon_lru_sort, damon_stat) do not
//     show there. Their parameter "enabled" does.
//   - What we make we mark. A scheme applies to regions up to a size, sz/max; ours asks for
//     regions up to a random number above 2^63, which no region reaches: that number is the
//     Mark. It costs nothing, every kernel has the file, and it stays as long as the
//     instance does. The caller writes the mark to its journal before Start. A leftover is
//     ours if it bears the journal's mark, and Reap removes it. Before each write and on
//     Close the mark is looked at again.
//
// A mark is written within microseconds of the kdamond's making. Who dies in between leaves
// kdamonds that are off and empty; Reap takes those for ours only if there are as many as
// the journal says. DAMON's folders do not survive a boot.
//
// Every file there answers EBUSY while a command is under way, for everybody. What takes a
// command to the kernel waits for the kdamond: up to two aggregation intervals.

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	damonDir   = "/sys/kernel/mm/damon/admin/kdamonds"
	damonCount = damonDir + "/nr_kdamonds"
	// markPrefix begins each Mark: above 2^63, and to be recognised by a human.
	markPrefix = uint64(0xc0a5) << 48
	// busyWait bounds how long EBUSY is waited out beside commands of our own.
	busyWait  = 5 * time.Second
	busySleep = 10 * time.Millisecond
	// maxKdamonds bounds what is looked at and made: one kernel thread each.
	maxKdamonds = 64
)

// Mark tells an instance of ours from everybody else's, and from an earlier one's.
type Mark uint64

// NewMark makes a mark of a random number, of which it takes 48 bits.
func NewMark(random uint64) Mark { return Mark(markPrefix | random&(1<<48-1)) }

// valid says whether m can have been made by NewMark.
func (m Mark) valid() bool { return uint64(m)>>48 == markPrefix>>48 }

// Claim is what is journalled before Start, and what Reap recognises a leftover by.
type Claim struct {
	Mark     Mark
	Kdamonds int // how many Start will make: one a target
}

// Owner says whose DAMON is.
type Owner uint8

// The owners.
const (
	Free    Owner = iota // nobody's: it can be started
	Ours                 // every instance bears the mark that was asked for
	Another              // somebody else's, or of an earlier mark
)

// String returns the owner as a word.
func (o Owner) String() string {
	switch o {
	case Free:
		return "free"
	case Ours:
		return "ours"
	}
	return "another"
}

// DAMONState is who uses DAMON.
type DAMONState struct {
	Owner    Owner
	Kdamonds int    // instances in sysfs
	Running  int    // of these, on
	Why      string // what Owner rests on, in one line
}

// DAMON is the host's DAMON. It keeps nothing open.
type DAMON struct {
	fs hostfs.FS
}

// NewDAMON returns access to DAMON, whether it is there or not.
func NewDAMON(fsys hostfs.FS) *DAMON { return &DAMON{fs: fsys} }

// Look says who uses DAMON; it only reads. Without DAMON's sysfs: ErrNoDAMON.
func (d *DAMON) Look(c Claim) (DAMONState, error) {
	n, err := d.number(damonCount)
	if errors.Is(err, fs.ErrNotExist) {
		return DAMONState{}, fmt.Errorf("look at DAMON: %w: the kernel is built without CONFIG_DAMON_SYSFS: %w", ErrNoDAMON, err)
	}
	if err != nil {
		return DAMONState{}, fmt.Errorf("look at DAMON: %w", err)
	}
	if n > maxKdamonds {
		return DAMONState{Owner: Another, Kdamonds: int(min(n, 1<<31-1)), Why: fmt.Sprintf("%s: %d", damonCount, n)}, nil
	}
	s := DAMONState{Kdamonds: int(n)}
	if n == 0 {
		return d.lookInside(s)
	}
	ours, blank := 0, 0
	for i := range s.Kdamonds {
		k, err := d.lookAt(i, c.Mark)
		if errors.Is(err, unix.EBUSY) {
			// Nobody but a user of it keeps it busy for so long.
			s.Owner, s.Why = Another, fmt.Sprintf("%s: %d, busy", damonCount, n)
			return s, nil
		}
		if err != nil {
			return DAMONState{}, fmt.Errorf("look at DAMON: %w", err)
		}
		if k.running {
			s.Running++
		}
		if k.marked {
			ours++
		}
		if k.blank {
			blank++
		}
	}
	// Blank ones are ours beside marked ones, or when there are as many as were to be.
	if c.Mark.valid() && s.Kdamonds == c.Kdamonds && ours+blank == s.Kdamonds {
		s.Owner, s.Why = Ours, fmt.Sprintf("%s: %d, with our mark: %d, empty: %d", damonCount, n, ours, blank)
		return s, nil
	}
	s.Owner = Another
	s.Why = fmt.Sprintf("%s: %d, on: %d, with our mark: %d", damonCount, n, s.Running, ours)
	return s, nil
}

// lookInside asks DAMON's users inside the kernel.
func (d *DAMON) lookInside(s DAMONState) (DAMONState, error) {
	for _, module := range []string{"damon_reclaim", "damon_lru_sort", "damon_stat"} {
		path := "/sys/module/" + module + "/parameters/enabled"
		text, err := readText(d.fs, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return DAMONState{}, fmt.Errorf("look at DAMON: %w", err)
		}
		if text == "Y" {
			s.Owner, s.Why = Another, path+": Y"
			return s, nil
		}
	}
	s.Why = damonCount + ": 0"
	return s, nil
}

// kdamond is what one instance looks like.
type kdamond struct {
	running bool
	marked  bool // with the mark asked for
	blank   bool // off, without contexts
}

func (d *DAMON) lookAt(i int, m Mark) (kdamond, error) {
	var k kdamond
	state, err := d.text(instance(i) + "/state")
	if err != nil {
		return k, err
	}
	k.running = state == "on"
	contexts, err := d.number(instance(i) + "/contexts/nr_contexts")
	if err != nil {
		return k, err
	}
	if contexts == 0 {
		k.blank = !k.running
		return k, nil
	}
	size, err := d.number(scheme(i) + "/access_pattern/sz/max")
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil // no scheme
	}
	k.marked = err == nil && m.valid() && size == uint64(m)
	return k, err
}

// instance returns the folder of a kdamond.
func instance(i int) string { return damonDir + "/" + strconv.Itoa(i) }

// scheme returns the folder of its only scheme.
func scheme(i int) string { return instance(i) + "/contexts/0/schemes/0" }

// text reads a file of one line, and waits while the kernel says EBUSY.
func (d *DAMON) text(path string) (string, error) {
	var text string
	err := patient(busyWait, func() (err error) {
		text, err = readText(d.fs, path)
		return err
	})
	return text, err
}

func (d *DAMON) number(path string) (uint64, error) {
	var n uint64
	err := patient(busyWait, func() (err error) {
		n, err = readNumber(d.fs, path)
		return err
	})
	return n, err
}

// patient repeats what answers EBUSY.
func patient(most time.Duration, try func() error) error {
	for end := time.Now().Add(most); ; time.Sleep(busySleep) {
		if err := try(); !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}
