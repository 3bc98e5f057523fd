package kernfs

import (
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/twin/machine"
)

// tids yields the ids of a process's threads; the first is its own.
func (p *process) tids() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for i := range int32(max(1, p.threads)) {
			if !yield(p.pid + i) {
				return
			}
		}
	}
}

// threadOf returns the process that a thread is of, nil when there is no such thread.
func (k *Kernel) threadOf(tid int32) *process {
	i, found := slices.BinarySearch(k.pids, tid)
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	if p := k.procs[k.pids[i]]; tid < p.pid+int32(max(1, p.threads)) {
		return p
	}
	return nil
}

// eachProcess calls f for every process, by its id.
func (k *Kernel) eachProcess(f func(*process)) {
	for _, pid := range k.pids {
		f(k.procs[pid])
	}
}

// Fork starts a process as the child of another: it begins in its parent's groups, those of
// resctrl included.
func (k *Kernel) Fork(parent int, cfg machine.TaskConfig) (pid int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[int32(parent)]
	if p == nil {
		return 0, fmt.Errorf("kernfs: fork of %d: %w", parent, unix.ESRCH)
	}
	child, err := k.spawn(cfg)
	if err != nil {
		return 0, err
	}
	for _, g := range p.in {
		if err := k.attach(child, g); err != nil {
			k.end(child)
			return 0, fmt.Errorf("kernfs: fork of %d: %w", parent, err)
		}
	}
	if k.resctrl != nil {
		k.resctrl.forked(p.pid, child)
	}
	return int(child.pid), nil
}
