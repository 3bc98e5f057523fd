package agent_test

import (
	"fmt"
	"runtime"
	"time"

	"github.com/commensal-io/commensal/internal/testchild"
)

// work is the life of a task that this binary plays; it begins when it is told to:
//
//	service  2 ms of work every 10 ms, as a service does that answers requests
//	burst    two threads that spin for 700 ms and rest for 600 ms
//	steady   20 ms of work every 100 ms
//	web      6 ms of work every 10 ms: more than the CPU that CPI2 asks of a victim
//	hog      spins for 3 s and rests for 3 s; with a second word it has so many MiB of memory
func work(p *testchild.Parent, args []string) error {
	p.Line()
	if len(args) > 1 {
		if _, err := anonymous(args[1]); err != nil {
			return err
		}
	}
	threads := 1
	if args[0] == "burst" {
		threads = 2
	}
	for range threads {
		go play(args[0])
	}
	return p.Stay()
}

// start starts a worker in a group, on one CPU, -1 for any; it ends with the test.
func (b *bed) start(role, group string, cpu int) *testchild.Child {
	b.t.Helper()
	c := testchild.Start(b.t, "work "+role)
	if err := b.cg.MovePID(group, c.PID()); err != nil {
		b.t.Fatal(err)
	}
	if cpu >= 0 {
		c.Pin(cpu) // after the move, in which kernels before 6.2 forget what CPUs were asked for
	}
	c.Say("go")
	return c.Await("ready")
}

// play works on a thread of its own.
func play(role string) {
	runtime.LockOSThread()
	for {
		switch role {
		case "service":
			testchild.Burn(2 * time.Millisecond)
			time.Sleep(8 * time.Millisecond)
		case "steady":
			testchild.Burn(20 * time.Millisecond)
			time.Sleep(80 * time.Millisecond)
		case "web":
			testchild.Burn(6 * time.Millisecond)
			time.Sleep(4 * time.Millisecond)
		case "hog":
			testchild.Burn(3 * time.Second)
			time.Sleep(3 * time.Second)
		case "stream":
			testchild.Burn(12 * time.Millisecond)
			time.Sleep(4 * time.Millisecond)
		case "burst":
			// By the wall, so that all threads rest at once.
			for time.Now().UnixMilli()%1300 < 700 {
				testchild.Burn(time.Millisecond)
			}
			time.Sleep(time.Duration(1300-time.Now().UnixMilli()%1300) * time.Millisecond)
		default:
			panic(fmt.Sprintf("no role %q", role))
		}
	}
}

// watched is the agent, whose log is printed if the test fails.
func (b *bed) watched() *proc {
	p := b.agent()
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Log(p.text())
		}
	})
	return p
}
