package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary itself plays the tasks: it needs no other program, and moves itself
// into its cgroup before its first piece of work.
//
// workerMode is the environment variable that makes it a worker:
// "ROLE GROUP CPU", CPU -1 for any. The roles:
//
//	service  2 ms of work every 10 ms, as a service does that answers requests
//	burst    two threads that spin for 700 ms and rest for 600 ms
//	steady   20 ms of work every 100 ms
//	web      6 ms of work every 10 ms: more than the CPU that CPI2 asks of a victim
//	hog      spins for 3 s and rests for 3 s
const workerMode = "COMMENSAL_TEST_WORKER"

// start starts a worker in a group, on one CPU; it ends with the test run.
func (b *bed) start(role, group string, cpu int) {
	b.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", workerMode, role, group, cpu), "GOMAXPROCS=2")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go cmd.Wait() // it is killed; its cgroup says when it is gone
	eventually(b.t, "the worker is in its group", func() bool {
		pids, err := b.cg.Procs(group)
		for _, pid := range pids {
			if int(pid) == cmd.Process.Pid {
				return true
			}
		}
		return err != nil
	})
}

// work is a worker's whole life.
func work(mode string) int {
	part := strings.Fields(mode)
	role, group := part[0], part[1]
	cpu, _ := strconv.Atoi(part[2])
	cg, err := openCgroups()
	if err == nil {
		err = cg.MovePID(group, os.Getpid())
	}
	if err == nil {
		// After the move, in which kernels before 6.2 forget what CPUs were asked for.
		err = pin(cpu)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	threads := 1
	if role == "burst" {
		threads = 2
	}
	for range threads {
		go play(role)
	}
	select {}
}

// pin binds the process to one CPU, -1 for any. The runtime has threads already, which
// would run anywhere: the process becomes itself anew, whose threads inherit this one's.
func pin(cpu int) error {
	const pinned = "COMMENSAL_TEST_PINNED"
	if cpu < 0 || os.Getenv(pinned) != "" {
		return nil
	}
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), pinned+"=1"))
}

// play works on a thread of its own.
func play(role string) {
	runtime.LockOSThread()
	for {
		switch role {
		case "service":
			spin(2 * time.Millisecond)
			time.Sleep(8 * time.Millisecond)
		case "steady":
			spin(20 * time.Millisecond)
			time.Sleep(80 * time.Millisecond)
		case "web":
			spin(6 * time.Millisecond)
			time.Sleep(4 * time.Millisecond)
		case "hog":
			spin(3 * time.Second)
			time.Sleep(3 * time.Second)
		case "burst":
			// By the wall, so that all threads rest at once.
			for time.Now().UnixMilli()%1300 < 700 {
				spin(time.Millisecond)
			}
			time.Sleep(time.Duration(1300-time.Now().UnixMilli()%1300) * time.Millisecond)
		default:
			fmt.Fprintf(os.Stderr, "worker: no role %q\n", role)
			os.Exit(1)
		}
	}
}

// spin uses so much CPU time of this thread, however long that takes.
func spin(d time.Duration) {
	var ts unix.Timespec
	now := func() int64 {
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
			panic(err)
		}
		return ts.Nano()
	}
	for end := now() + d.Nanoseconds(); now() < end; {
		for x := range 2000 {
			_ = x * x
		}
	}
}
