package perf_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/perf"
)

// testLimit gives a child some descriptors more at a time until a source can be opened.
func testLimit(t *testing.T, open Open) {
	dir := Cgroup(t, "limit")
	child := testchild.Start(t, "limit "+dir)
	line := child.Line()
	t.Log(line)
	if strings.Contains(line, perf.ErrPermission.Error()) || strings.Contains(line, perf.ErrNotSupported.Error()) {
		t.Skip("not counted here")
	}
	var needed int
	if _, err := fmt.Sscanf(line, "opened with %d descriptors", &needed); err != nil || needed < 3 {
		t.Errorf("child says %q, want that it could open after some refusals", line)
	}
}

// limit is the child of testLimit: the limit is its own.
func limit(open Open, dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	cpus, err := possible()
	if err != nil {
		fmt.Println(err)
		return
	}
	try := func() error {
		s, err := counting(open, cpus, fd)
		if err != nil {
			return err
		}
		return s.Close()
	}
	if err := try(); err != nil { // what the runtime keeps is open from here on
		fmt.Println("without a limit:", err)
		return
	}
	before := lowest()
	for room := 1; room < 200; room += 4 {
		low := unix.Rlimit{Cur: uint64(before + room), Max: uint64(before + 300)}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
			fmt.Println(err)
			return
		}
		err := try()
		if now := lowest(); now != before {
			fmt.Printf("with room for %d: descriptor %d is open afterwards, %v\n", room, before, err)
			return
		}
		if err == nil {
			fmt.Printf("opened with %d descriptors\n", room)
			return
		}
		if !errors.Is(err, perf.ErrTooManyFiles) {
			fmt.Printf("with room for %d: %v, want ErrTooManyFiles\n", room, err)
			return
		}
	}
	fmt.Println("never opened")
}

// counting opens a source and begins to count the cgroup.
func counting(open Open, cpus []int, fd int) (Source, error) {
	s, err := open(cpus, Software)
	if err != nil {
		return nil, err
	}
	if _, err = s.Add(fd); err == nil {
		err = s.Start()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// testKilled kills a child that counts: the kernel takes all of it away, and a cgroup that was counted can be removed,
// which Cgroup does at the end.
func testKilled(t *testing.T, open Open) {
	child := testchild.Start(t, "count "+Cgroup(t, "killed"))
	line := child.Line()
	if strings.Contains(line, perf.ErrPermission.Error()) || strings.Contains(line, perf.ErrNotSupported.Error()) {
		t.Skip(line)
	}
	if line != "counts" {
		t.Fatalf("child says %q", line)
	}
	child.End()
}

// count is the child of testKilled.
func count(open Open, dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = counting(open, []int{0}, fd)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("counts")
}

// lowest is the descriptor that the next open would get.
func lowest() int {
	fd, err := unix.Dup(0)
	if err != nil {
		return -1
	}
	_ = unix.Close(fd)
	return fd
}

// possible lists the CPUs there are.
func possible() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var cpus []int
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
