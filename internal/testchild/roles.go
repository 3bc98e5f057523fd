package testchild

import (
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// common are the roles that many packages need. Each says "ready" first.
//
//	sleep      do nothing
//	spin [N]   burn on N threads, one if it is not said
//	burst D    burn for so much CPU time of each 100 ms, as "20ms"
func common() map[string]Role {
	return map[string]Role{
		"sleep": func(p *Parent, _ []string) error { return p.Stay() },
		"spin":  spin,
		"burst": burst,
	}
}

func spin(p *Parent, args []string) error {
	threads := 1
	if len(args) > 0 {
		var err error
		if threads, err = strconv.Atoi(args[0]); err != nil {
			return err
		}
	}
	runtime.GOMAXPROCS(threads + 1)
	for range threads {
		go func() {
			runtime.LockOSThread()
			for n := 0; ; n++ {
				runtime.KeepAlive(n)
			}
		}()
	}
	return p.Stay()
}

func burst(p *Parent, args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	p.Say("ready")
	for {
		Burn(d)
		time.Sleep(100*time.Millisecond - d)
	}
}

// Burn uses so much CPU time of this thread, which takes longer where others run too.
func Burn(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
			panic(err)
		}
		return ts.Nano()
	}
	for end := now() + int64(d); now() < end; {
	}
}
