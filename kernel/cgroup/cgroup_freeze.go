package cgroup

// cgroup.freeze: stops and resumes all tasks of a v2 group and its descendants; whether
// they have stopped is in cgroup.events (v1: freezer_state.go).
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#core-interface-files
//
//	0                 (1: frozen is asked for; since Linux 5.2)
//
// What is written is the group's own wish; below a group that is frozen every group
// freezes too, whatever its own file says. Frozen tasks can still be killed and moved.

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// ReadFreezer implements Driver.
func (d *V2) ReadFreezer(path string) (FreezerState, error) {
	events, err := d.ReadEvents(path)
	if err != nil {
		return "", err
	}
	if !events.HasFrozen {
		return "", fmt.Errorf("read cgroup.events of %s: %w: no line \"frozen\" (before Linux 5.2)", path, ErrUnsupported)
	}
	if events.Frozen {
		return Frozen, nil
	}
	asked, err := d.freezeAsked(path)
	if err != nil {
		return "", err
	}
	if asked != "" {
		return Freezing, nil
	}
	return Thawed, nil
}

// ReadFreezeAsked implements Driver.
func (d *V2) ReadFreezeAsked(path string) (bool, error) {
	data, err := d.read(path, "cgroup.freeze")
	return parsed(data, err, path, "cgroup.freeze", parseFlag)
}

// WriteFreezeAsked implements Driver.
func (d *V2) WriteFreezeAsked(path string, frozen bool) error {
	value := "0"
	if frozen {
		value = "1"
	}
	return d.write(path, "cgroup.freeze", value)
}

// FreezerInode implements Driver.
func (d *V2) FreezerInode(path string) (uint64, error) { return d.Inode(path) }

// freezeAsked returns the nearest group, from path upwards, whose cgroup.freeze is 1; ""
// for none.
func (d *V2) freezeAsked(path string) (string, error) {
	groups := append([]string{path}, ancestors(path)...)
	if path == "/" {
		groups = nil // the true root has no such file, and a namespace's root is not ours
	}
	for _, at := range groups {
		data, err := d.read(at, "cgroup.freeze")
		if err != nil {
			return "", err
		}
		asked, err := parseFlag(data)
		if err != nil {
			return "", fmt.Errorf("read cgroup.freeze of %s: %w", at, err)
		}
		if asked {
			return at, nil
		}
	}
	return "", nil
}

// parseFlag reads "0" or "1".
func parseFlag(data []byte) (bool, error) {
	switch string(bytes.TrimSuffix(data, []byte("\n"))) {
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, fmt.Errorf("%w: %q is neither 0 nor 1", ErrMalformed, clip(data))
}

// WriteFreezer implements Driver.
func (d *V2) WriteFreezer(path string, want FreezerState, within time.Duration) error {
	value := ""
	switch want {
	case Frozen:
		value = "1"
	case Thawed:
		value = "0"
	default:
		return fmt.Errorf("write cgroup.freeze of cgroup %s: %w: %q is not written", path, ErrUnsupported, want)
	}
	if err := CheckPath(path); err != nil {
		return fmt.Errorf("write cgroup.freeze of cgroup %s: %w", path, err)
	}
	deadline := time.Now().Add(within)
	// First, so that nothing is frozen that cannot be watched.
	watch, err := d.WatchEvents(path)
	if err != nil {
		return err
	}
	if err := d.write(path, "cgroup.freeze", value); err != nil {
		return errors.Join(err, watch.Close())
	}
	err = d.awaitFreezer(watch, want, deadline)
	if errors.Is(err, ErrFreezerTimeout) {
		err = fmt.Errorf("write cgroup.freeze of cgroup %s: %w: not %s within %s%s", path, err, want, within, d.whyFrozen(path, want))
	}
	return errors.Join(err, watch.Close())
}

func (d *V2) awaitFreezer(watch *EventsWatch, want FreezerState, deadline time.Time) error {
	for {
		events, err := watch.Read()
		if err != nil || events.Frozen == (want == Frozen) {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return ErrFreezerTimeout
		}
		if _, err := watch.Wait(left); err != nil {
			return err
		}
	}
}

// whyFrozen names the ancestor that keeps a group frozen.
func (d *V2) whyFrozen(path string, want FreezerState) string {
	at, err := d.freezeAsked(path)
	if want != Thawed || err != nil || at == "" {
		return ""
	}
	return " (an ancestor is frozen: " + at + ")"
}
