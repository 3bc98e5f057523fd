package agent_test

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/perf"
)

// clientsWord is the argument with which the test binary is the program of a latency source.
const clientsWord = "clients"

// clients prints how long a service's requests take: 5 ms for each cycle that an instruction takes it, as perf counts them of its cgroup. In the rig nothing
// gets slower by its neighbours but what counters say (docs/RIG.md), so who asked it over a socket would see none of that.
func clients(group string) error {
	fd, err := unix.Open("/sys/fs/cgroup"+group, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var cpus []int
	for cpu := range runtime.NumCPU() {
		cpus = append(cpus, cpu)
	}
	c, err := perf.OpenCgroup(fd, cpus, []perf.Event{perf.Cycles, perf.Instructions})
	if err != nil {
		return err
	}
	if err := c.Enable(); err != nil {
		return err
	}
	was, now := make([]perf.Count, 2), make([]perf.Count, 2)
	for range time.Tick(50 * time.Millisecond) {
		if err := c.Read(now); err != nil {
			return err
		}
		if cycles, instructions := now[0].Raw-was[0].Raw, now[1].Raw-was[1].Raw; instructions > 1e6 {
			fmt.Printf("%.3f\n", 5*float64(cycles)/float64(instructions))
			copy(was, now)
		}
	}
	return nil
}
