package cgroup

// cgroup.kill: kills every process in a v2 group and below.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#core-interface-files
//
//	1                 (written; it cannot be read; since Linux 5.14)
//
// The kernel sends SIGKILL to each, forks in flight included, and does not wait. Frozen
// processes die too. A threaded group is refused (EOPNOTSUPP); the root group has no
// such file.

import (
	"errors"
	"fmt"
	"time"
)

// ErrKillTimeout means that the group was told to die and still has a process.
var ErrKillTimeout = errors.New("processes of the cgroup did not end in time")

// Kill kills every process in the group and below (the caller too, if it is there) and
// waits until none is left, at most within. A process that its parent has not waited for
// still counts until then, and one that the kernel holds may take for ever.
func (d *V2) Kill(path string, within time.Duration) error {
	deadline := time.Now().Add(within)
	if err := CheckPath(path); err != nil {
		return fmt.Errorf("kill cgroup %s: %w", path, err)
	}
	watch, err := d.WatchEvents(path)
	if err != nil {
		return err
	}
	if err = d.WriteKill(path); err == nil {
		err = awaitEmpty(watch, deadline)
	}
	if errors.Is(err, ErrKillTimeout) {
		err = fmt.Errorf("kill cgroup %s: %w: still populated after %s", path, err, within)
	}
	return errors.Join(err, watch.Close())
}

// WriteKill kills every process in the group and below, and waits for none of them.
func (d *V2) WriteKill(path string) error { return d.write(path, "cgroup.kill", "1") }

func awaitEmpty(watch *EventsWatch, deadline time.Time) error {
	for {
		events, err := watch.Read()
		// Once it is empty another may remove it.
		if errors.Is(err, ErrVanished) || (err == nil && !events.Populated) {
			return nil
		}
		if err != nil {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return ErrKillTimeout
		}
		if _, err := watch.Wait(left); err != nil {
			return err
		}
	}
}
