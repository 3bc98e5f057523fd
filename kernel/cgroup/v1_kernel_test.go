package cgroup

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What only v1 does.

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
