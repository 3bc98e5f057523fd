package rigtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The guest's disk for swap.
const (
	SwapDevice = "/dev/vdb"
	SwapBytes  = 256 << 20
)

// SwapOn makes a device of so many bytes a swap area until the test ends.
func SwapOn(t testing.TB, device string, bytes uint64) {
	t.Helper()
	page := os.Getpagesize()
	head := make([]byte, page)
	binary.NativeEndian.PutUint32(head[1024:], 1)                            // version
	binary.NativeEndian.PutUint32(head[1028:], uint32(bytes/uint64(page)-1)) // last page
	copy(head[page-10:], "SWAPSPACE2")
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(head)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	name := append([]byte(device), 0)
	if _, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(&name[0])), 0, 0); errno != 0 {
		t.Fatalf("swapon %s: %v", device, errno)
	}
	t.Cleanup(func() {
		if _, _, errno := unix.Syscall(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(&name[0])), 0, 0); errno != 0 {
			t.Errorf("swapoff %s: %v", device, errno)
		}
	})
}

// SlowDisk mounts the guest's slow disk (docs/RIG.md, "The machine") until the test ends, and returns where.
func SlowDisk(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("/dev/vdc", dir, "ext4", unix.MS_NOATIME, ""); err != nil {
		t.Fatal("mount the slow disk: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error("unmount the slow disk: ", err)
		}
	})
	return dir
}

// Unread writes a file of zeroes none of whose pages is in memory: what is written is charged to who wrote it, and who reads it next is to be.
func Unread(t testing.TB, path string, size int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(make([]byte, size))
	if err := errors.Join(err, f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// PagesLine begins what Pages prints.
const PagesLine = "rig: pages of RMID "

// Pages tells the host where the pages of the task behind an RMID are: bytes on node 0 and 1. Emulated caches and memory see no addresses; in stage
// contention, what a task's instructions take depends on it.
func Pages(rmid int, node0, node1 uint64) {
	fmt.Printf("%s%d %d %d\n", PagesLine, rmid, node0, node1)
}

// Set writes a file of the machine until the test ends.
func Set(t testing.TB, path, value string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, before, 0); err != nil {
			t.Error(err)
		}
	})
}
