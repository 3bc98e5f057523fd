package probe

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
)

const (
	// patience bounds every wait; a healthy kernel needs a small part of it.
	patience = 30 * time.Second
	// nobody is a user who is not us, and need not be known to the machine.
	nobody = 65534
)

func TestMain(m *testing.M) {
	testchild.Main(m, map[string]testchild.Role{
		"idle":     onceTold(func([]string) error { return nil }),
		"contend":  onceTold(contend),
		"file":     onceTold(leaveFile),
		"remedies": onceTold(tellRemedies),
		"nobody":   onceTold(func([]string) error { return syscall.Setresuid(nobody, nobody, nobody) }),
		// In a mount namespace of its own.
		"resctrl": onceTold(func([]string) error { return resctrl.Mount(resctrl.DefaultPoint, resctrl.MountOptions{}) }),
	})
}

// onceTold is the role of a process that waits for a line, does a task, says "done", and
// stays.
func onceTold(do func(args []string) error) testchild.Role {
	return func(p *testchild.Parent, args []string) error {
		p.Line()
		if err := do(args); err != nil {
			return err
		}
		p.Say("done")
		p.Line()
		return nil
	}
}

// begin lets a process do its task, and waits until that is done or, of one that spins,
// under way.
func begin(c *testchild.Child) *testchild.Child {
	c.Say("go")
	return c.Await("done")
}

// contend spins on two threads on one CPU: each waits while the other runs.
func contend([]string) error {
	for range 2 {
		go func() {
			runtime.LockOSThread()
			var one unix.CPUSet
			one.Set(firstCPU())
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				panic(err)
			}
			for n := 0; ; n++ {
			}
		}()
	}
	return nil
}

// leaveFile leaves 8 MiB of clean page cache to its group.
func leaveFile(args []string) error {
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 8<<20))
	return errors.Join(err, f.Sync())
}

// tellRemedies says, in JSON, what another user finds.
func tellRemedies([]string) error {
	if err := syscall.Setresuid(nobody, nobody, nobody); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(Remedies(Run(Options{FS: hostfs.NewRoot("/"), Live: true})))
}

// firstCPU is the first CPU that this process may use.
func firstCPU() int {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		panic(err)
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	return cpu
}

// eventually tries until there is no error, or returns the last one.
func eventually(try func() error) error {
	err := try()
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); err = try() {
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
