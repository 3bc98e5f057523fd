package linux

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
)

// CounterOpener opens hardware counters on cgroups. Errors wrap the sentinels of
// kernel/perf.
type CounterOpener interface {
	// Supported returns nil, or why the machine cannot count an event.
	Supported(e perf.Event) error
	// Fit returns nil, or why the events cannot be counted at once on a CPU.
	Fit(cpu int, events []perf.Event) error
	// OpenCgroup opens one group of events, disabled, on each CPU for the cgroup2 group
	// whose directory dir is; with an inode other than 0, only for the very one.
	OpenCgroup(dir string, inode uint64, cpus []int, events []perf.Event) (CgroupCounters, error)
	// FileLimit returns how many descriptors the process may have.
	FileLimit() (uint64, error)
}

// CgroupCounters are the counters of one cgroup, as *perf.Counters are.
type CgroupCounters interface {
	Enable() error
	Disable() error
	Read(out []perf.Count) error
	Close() error
}

// perfOpener opens the running kernel's.
type perfOpener struct{ fs hostfs.FS }

func (perfOpener) Supported(e perf.Event) error { return perf.Supported(e) }

func (perfOpener) Fit(cpu int, events []perf.Event) error {
	g, err := perf.OpenCPU(cpu, events)
	if err != nil {
		return err
	}
	return g.Close()
}

func (perfOpener) FileLimit() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return limit.Cur, err
}

func (o perfOpener) OpenCgroup(dir string, inode uint64, cpus []int, events []perf.Event) (CgroupCounters, error) {
	fd, done, err := o.fs.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	if err := sameInode(fd, inode, dir); err != nil {
		return nil, errors.Join(err, done())
	}
	c, err := perf.OpenCgroup(fd, cpus, events)
	if closed := done(); err == nil && closed != nil {
		err = errors.Join(closed, c.Close())
	}
	if err != nil {
		return nil, err // and no *perf.Counters that is nil
	}
	return c, nil
}

// sameInode makes sure that the descriptor is of the directory that is meant.
func sameInode(fd int, inode uint64, dir string) error {
	if inode == 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Ino != inode {
		return fmt.Errorf("%s was made anew: %w", dir, cgroup.ErrVanished)
	}
	return nil
}
