package kernfs

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/resctrl"
)

var _ resctrl.Clock = (*Kernel)(nil)

// MountResctrl mounts resctrl at /sys/fs/resctrl, as mount(2) does; see resctrl.Mount for
// what errnos mean. ENODEV: the machine has none (Options.RDT).
func (k *Kernel) MountResctrl(o resctrl.MountOptions) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := error(unix.ENODEV)
	if k.resctrl != nil {
		err = k.resctrl.doMount(o)
	}
	if err != nil {
		return fmt.Errorf("kernfs: mount resctrl: %w", err)
	}
	return nil
}

// UnmountResctrl unmounts it, as umount(2) does. EINVAL: it is not mounted. EBUSY: something in
// it is open.
func (k *Kernel) UnmountResctrl() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := error(unix.EINVAL)
	if k.resctrl != nil {
		err = k.resctrl.doUnmount()
	}
	if err != nil {
		return fmt.Errorf("kernfs: unmount resctrl: %w", err)
	}
	return nil
}

// SetMonitorAnswer lets mon_data of the group that has an RMID say a word instead of numbers, as
// hardware does that cannot count: "Unavailable" or "Error". "" is numbers again.
func (k *Kernel) SetMonitorAnswer(rmid int, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.resctrl != nil {
		k.resctrl.setAnswer(rmid, text)
	}
}

// has says whether a node is of the file system.
func (r *resctrlFS) has(n *node) bool {
	for ; n != nil; n = n.parent {
		if r.mounted && n == r.root.dir {
			return true
		}
	}
	return false
}

// addResources adds what is about caches, bandwidth and memory nodes.
func (k *Kernel) addResources() error {
	k.addNodes()
	proc := k.dir("/proc")
	proc.other = func(name string) *node {
		tid, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return nil
		}
		p := k.threadOf(int32(tid))
		if p == nil {
			return nil
		}
		return p.dir.children["task"].children[name]
	}
	k.addFile(proc, "filesystems", func(buf []byte) ([]byte, error) {
		buf = append(buf, "nodev\tsysfs\nnodev\tproc\nnodev\tcgroup\nnodev\tcgroup2\n"...)
		if k.resctrl != nil {
			buf = append(buf, "nodev\tresctrl\n"...)
		}
		return append(buf, "\text4\n"...), nil
	}, nil)
	k.addFile(proc, "locks", func(buf []byte) ([]byte, error) { return k.showLocks(buf), nil }, nil)
	if !k.opt.RDT {
		return nil
	}
	k.dir(resctrlPoint)
	var err error
	k.resctrl, err = newResctrl(k, k.m, k.opt.Resctrl)
	return err
}

// showLocks is /proc/locks. Who opens directories here is a process outside the machine, the
// agent: it has a number below those of the machine's.
func (k *Kernel) showLocks(buf []byte) []byte {
	for i, l := range k.locks {
		how := "READ "
		if l.exclusive {
			how = "WRITE"
		}
		buf = fmt.Appendf(buf, "%d: FLOCK  ADVISORY  %s %d 00:21:%d 0 EOF\n", i+1, how, firstPID-1, l.holder.n.ino)
	}
	return buf
}

// Now implements resctrl.Clock: the wall clock.
func (k *Kernel) Now() time.Time { return time.Unix(0, k.WallNsec()) }

// Sleep implements resctrl.Clock: it lets the time pass on the machine, a step at least.
func (k *Kernel) Sleep(d time.Duration) {
	c := k.m.Config()
	k.Advance(max(1, (int64(d)+c.StepNsec-1)/c.StepNsec) * c.StepNsec)
}

// opened counts what is open in a file system that can be unmounted.
func (k *Kernel) opened(n *node, by int) {
	if k.resctrl != nil && k.resctrl.has(n) {
		k.resctrl.open = max(0, k.resctrl.open+by)
	}
}

// LetGo is what happens when the process ends that opened files and directories here: its
// locks are given back, and nothing of its keeps resctrl mounted.
func (k *Kernel) LetGo() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.locks {
		l.holder.closed = true
	}
	k.locks = nil
	if k.resctrl != nil {
		k.resctrl.open = 0
	}
}
