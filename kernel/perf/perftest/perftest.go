// Package perftest is what tests of counters need in more than one package.
package perftest

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
)

// Remove removes a cgroup, which may be gone already. A process that was just reaped may still hold it.
func Remove(t testing.TB, dir string) {
	t.Helper()
	for range 100 {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s could not be removed", dir)
}

// Online lists the CPUs that are online.
func Online(t testing.TB) []int {
	t.Helper()
	var cpus []int
	for cpu := range 4096 {
		dir := fmt.Sprintf("/sys/devices/system/cpu/cpu%d", cpu)
		state, err := os.ReadFile(dir + "/online") // CPU 0 has none where it cannot be unplugged
		if _, there := os.Stat(dir); there == nil && (err != nil || state[0] == '1') {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// Hold is the role of a child that takes every counter of every CPU, pinned, until it is ended: what a profiler left
// running does.
func Hold(p *testchild.Parent, _ []string) error {
	held := 0
	for cpu := range 4096 {
		if _, err := os.Stat(fmt.Sprintf("/sys/devices/system/cpu/cpu%d", cpu)); err != nil {
			continue
		}
		for i := range 16 {
			configs := []uint64{unix.PERF_COUNT_HW_INSTRUCTIONS, unix.PERF_COUNT_HW_REF_CPU_CYCLES, unix.PERF_COUNT_HW_CPU_CYCLES}
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES, Bits: unix.PerfBitPinned}
			if i < len(configs) {
				attr.Config = configs[i]
			}
			attr.Size = uint32(unsafe.Sizeof(attr))
			fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if err != nil {
				return fmt.Errorf("cannot hold: %w", err)
			}
			if n, err := unix.Read(fd, make([]byte, 8)); err != nil || n == 0 { // in error: none is left
				_ = unix.Close(fd)
				continue
			}
			held++
		}
	}
	p.Say("held %d", held)
	p.Line()
	return nil
}
