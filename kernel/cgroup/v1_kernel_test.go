package cgroup

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What only v1 does.

// TestKernelV1CPUSetNeedsCPUs: a new group starts with its parent's lists, and without
// any it takes no process.
func TestKernelV1CPUSetNeedsCPUs(t *testing.T) {
	d := liveV1(t)
	if d.mounts[CPUSet] == "" {
		t.Skip("no v1 cpuset hierarchy here")
	}
	top := ownGroup(t, d, "empty")
	all, err := d.ReadCPUs("/")
	must(t, err)
	if got, err := d.ReadCPUs(top); err != nil || got != all || all == "" {
		t.Errorf("a new group's CPUs = %q, %v; want the parent's %q", got, err, all)
	}
	if err := d.WriteCPUs(top, "4000"); err == nil {
		t.Error("a CPU that is not there was taken")
	}
	must(t, d.WriteCPUs(top, ""))
	if got, err := d.ReadCPUs(top); err != nil || got != "" {
		t.Errorf("CPUs = %q, %v; want none", got, err)
	}
	pid, _ := startTask(t, "sleep")
	if err := d.MovePID(top, pid); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a group without CPUs took a process: %v", err)
	}
}

func TestKernelV1MkdirIsWholeOrNothing(t *testing.T) {
	d := liveV1(t)
	top := ownGroup(t, d, "mkdir")
	for _, dir := range d.hierarchies() {
		if _, err := os.Stat(dir + top); err != nil {
			t.Error(err)
		}
	}
	// One hierarchy, the last in order, holds the name already.
	dirs := d.hierarchies()
	foreign := dirs[len(dirs)-1] + top + "/x"
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(foreign) })
	if err := d.Mkdir(top + "/x"); !errors.Is(err, unix.EEXIST) {
		t.Errorf("Mkdir beside a directory of that name: %v", err)
	}
	for _, dir := range dirs[:len(dirs)-1] {
		if _, err := os.Stat(dir + top + "/x"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was left behind: %v", dir+top+"/x", err)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("the directory that was there is gone: %v", err)
	}
	if err := d.Rmdir(top); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Rmdir with a child: %v", err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	if err := d.Rmdir(top); err != nil && !errors.Is(err, ErrVanished) {
		t.Error(err)
	}
	if err := d.Rmdir(top); !errors.Is(err, ErrVanished) {
		t.Errorf("second Rmdir: %v", err)
	}
}
