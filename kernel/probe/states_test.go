package probe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
)

// The machine is put into states, and the probes must follow.

// now probes the running machine.
func now() []Finding { return Run(Options{FS: hostfs.NewRoot("/"), Live: true}) }

// want checks an answer and words of its evidence.
func want(t *testing.T, when string, findings []Finding, name string, a Answer, words ...string) {
	t.Helper()
	f := Find(findings, name)
	if f.Answer != a {
		t.Errorf("%s: %s: %s (%s), want %s", when, name, f.Answer, f.Why, a)
	}
	for _, word := range words {
		if !strings.Contains(f.Why+f.Needs, word) {
			t.Errorf("%s: %s: %q, needs %q: want %q", when, name, f.Why, f.Needs, word)
		}
	}
}

// wantRemedy checks a remedy.
func wantRemedy(t *testing.T, when string, findings []Finding, name string, available bool) {
	t.Helper()
	for _, a := range Remedies(findings) {
		if a.Name == name && a.Available != available {
			t.Errorf("%s: %s: %v (%s), want %v", when, name, a.Available, a.Because, available)
		}
	}
}

// mountResctrl mounts it until the test's end.
func mountResctrl(t *testing.T, o resctrl.MountOptions) {
	t.Helper()
	must(t, resctrl.Mount(resctrl.DefaultPoint, o))
	t.Cleanup(func() {
		if err := resctrl.Unmount(resctrl.DefaultPoint); err != nil {
			t.Error(err)
		}
	})
}

// makeGroup makes a group that goes with the mount.
func makeGroup(t *testing.T, name string) {
	t.Helper()
	// RMIDs of groups that were removed a moment ago rest.
	must(t, eventually(func() error { return os.Mkdir(resctrl.DefaultPoint+"/"+name, 0o755) }))
}

func TestResctrlStates(t *testing.T) {
	rigtest.Only(t, "resctrl is mounted")
	findings := now()
	if Find(findings, ResctrlCAT).Answer != Yes {
		want(t, "without RDT", findings, Resctrl, No)
		want(t, "without RDT", findings, ResctrlRoom, No)
		wantRemedy(t, "without RDT", findings, RemedyWays, false)
		if err := resctrl.Mount(resctrl.DefaultPoint, resctrl.MountOptions{}); err == nil {
			t.Errorf("no resctrl, and it can be mounted: %v", resctrl.Unmount(resctrl.DefaultPoint))
		}
		return
	}
	t.Run("not mounted", func(t *testing.T) {
		want(t, "before", findings, Resctrl, No, "not mounted", "mount -t resctrl")
		want(t, "before", findings, ResctrlMBA, Yes, "/proc/cpuinfo")
		wantRemedy(t, "before", findings, RemedyWays, false)
		wantRemedy(t, "before", findings, RemedyBandwidth, false)
	})
	t.Run("mounted", testMounted)
	t.Run("code and data apart", func(t *testing.T) {
		mountResctrl(t, resctrl.MountOptions{CDP: true})
		findings := now()
		want(t, "cdp", findings, Resctrl, Yes, "mounted with cdp")
		want(t, "cdp", findings, ResctrlCAT, Yes, "L3CODE")
		want(t, "cdp", findings, ResctrlRoom, Yes, "CLOSIDs: 3 of 4 free")
		wantRemedy(t, "cdp", findings, RemedyWays, true)
		makeGroup(t, "commensal-x")
		must(t, write(resctrl.DefaultPoint+"/commensal-x/schemata", "L3CODE:0=3\n"))
	})
	t.Run("bandwidth in MiB", func(t *testing.T) {
		mountResctrl(t, resctrl.MountOptions{MBps: true})
		findings := now()
		want(t, "mba_MBps", findings, ResctrlMBA, Yes, "MiB/s")
		wantRemedy(t, "mba_MBps", findings, RemedyBandwidth, true)
		makeGroup(t, "commensal-x")
		must(t, write(resctrl.DefaultPoint+"/commensal-x/schemata", "MB:0=300\n"))
	})
	t.Run("mounted elsewhere", func(t *testing.T) {
		p := begin(testchild.StartWith(t, "resctrl", testchild.Options{Attr: syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}}))
		want(t, "elsewhere", now(), Resctrl, No, "not in this mount namespace")
		if err := resctrl.Mount(resctrl.DefaultPoint, resctrl.MountOptions{}); !errors.Is(err, unix.EBUSY) {
			t.Errorf("mounted a second time: %v, want EBUSY", err)
		}
		p.End()
		// The namespace goes a moment after its last process.
		must(t, eventually(func() error {
			if f := Find(now(), Resctrl); !strings.Contains(f.Why, "supported, not mounted") {
				return errors.New(f.Why)
			}
			return nil
		}))
	})
}

// testMounted has others come and go.
func testMounted(t *testing.T) {
	mountResctrl(t, resctrl.MountOptions{})
	const top = resctrl.DefaultPoint
	findings := now()
	want(t, "mounted", findings, Resctrl, Yes, "no control groups but ours")
	want(t, "mounted", findings, ResctrlCAT, Yes, "11 ways")
	want(t, "mounted", findings, ResctrlMBA, Yes, "% from 10 in steps of 10")
	want(t, "mounted", findings, ResctrlMonitor, Yes, "llc_occupancy mbm_total_bytes mbm_local_bytes")
	want(t, "mounted", findings, ResctrlRoom, Yes, "CLOSIDs: 7 of 8 free", "RMIDs: 63 of 64 free")
	wantRemedy(t, "mounted", findings, RemedyWays, true)
	wantRemedy(t, "mounted", findings, RemedyBandwidth, true)

	makeGroup(t, "commensal-x")
	must(t, write(top+"/commensal-x/schemata", "L3:0=3\nMB:0=50\n"))
	want(t, "with a group of ours", now(), Resctrl, Yes)
	must(t, os.Remove(top+"/commensal-x"))

	makeGroup(t, "guaranteed")
	findings = now()
	want(t, "with another's group", findings, Resctrl, Owned, "guaranteed")
	wantRemedy(t, "with another's group", findings, RemedyWays, false)
	must(t, os.Remove(top+"/guaranteed"))

	makeGroup(t, "mon_groups/cadvisor-0")
	want(t, "with one monitoring group", now(), Resctrl, Yes, "monitoring groups of others: 1")
	made, stuck := takeRMIDs(t, 1)
	findings = now()
	if stuck {
		// What rests in limbo counts as free: the kernel does not tell, and the finding says so.
		want(t, "free RMIDs in limbo", findings, ResctrlRoom, Find(findings, ResctrlRoom).Answer, "limbo")
	} else {
		want(t, "without RMIDs", findings, ResctrlRoom, No, "left to others", "to be removed")
		wantRemedy(t, "without RMIDs", findings, RemedyWays, false)
	}
	if err := os.Mkdir(top+"/commensal-x", 0o755); err == nil {
		t.Errorf("%d monitoring groups hold all RMIDs, and there was one more", made)
	}

	lock, err := os.Open(top)
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	want(t, "locked", now(), Resctrl, CouldNotTell, "whoever holds the lock")
}

// takeRMIDs makes monitoring groups of others to the last RMID. stuck: some RMIDs are in limbo, and stay there: a
// package before this one gave them back with cache lines that the emulator never takes from them.
func takeRMIDs(t *testing.T, made int) (all int, stuck bool) {
	t.Helper()
	for ; ; made++ {
		dir := fmt.Sprintf("%s/mon_groups/cadvisor-%d", resctrl.DefaultPoint, made)
		err := os.Mkdir(dir, 0o755)
		for range 30 { // the kernel looks once a second
			if !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(100 * time.Millisecond)
			err = os.Mkdir(dir, 0o755)
		}
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOSPC) {
			return made, errors.Is(err, unix.EBUSY)
		}
		must(t, err)
	}
}

// busybox runs one of its programs.
func busybox(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// swapOn swaps to zram until the test's end.
func swapOn(t *testing.T) {
	t.Helper()
	const zram = "/sys/block/zram0/"
	must(t, write(zram+"disksize", "32M"))
	t.Cleanup(func() { must(t, write(zram+"reset", "1")) })
	busybox(t, "mkswap", "/dev/zram0")
	want(t, "after mkswap", now(), Swap, No)
	busybox(t, "swapon", "/dev/zram0")
	t.Cleanup(func() { busybox(t, "swapoff", "/dev/zram0") })
}

func TestSwapStates(t *testing.T) {
	rigtest.Only(t, "a swap device is switched on")
	want(t, "zram without swap on it", now(), Swap, No, "zram0 is there", "swapon")
	reclaim := func(when, words string) {
		t.Helper()
		for _, a := range Remedies(now()) {
			if a.Name == RemedyReclaim && !strings.Contains(a.Because, words) {
				t.Errorf("%s: %+v, want %q", when, a, words)
			}
		}
	}
	reclaim("zram without swap on it", "file memory only")
	swapOn(t)
	want(t, "after swapon", now(), Swap, Yes, "areas: 1")
	reclaim("after swapon", "file and anonymous memory")
	if err := trySwap(t, nil); err != nil {
		t.Errorf("swap is on, and trying fails: %v", err)
	}
}

// TestSwitches turns what the machine has switches for, and turns it back.
func TestSwitches(t *testing.T) {
	rigtest.Only(t, "MGLRU, zswap, scheduler statistics and DAMON are switched on and off")
	for _, s := range []struct {
		name, path string
		values     map[string]Answer // by what is written
	}{
		{MGLRU, "/sys/kernel/mm/lru_gen/enabled", map[string]Answer{"0": No, "7": Yes}},
		{Zswap, "/sys/module/zswap/parameters/enabled", map[string]Answer{"Y": Yes, "N": No}},
		{Schedstats, "/proc/sys/kernel/sched_schedstats", map[string]Answer{"1": Yes, "0": No}},
		{DAMON, damonCount, map[string]Answer{"1": Owned, "0": Yes}},
	} {
		t.Run(s.name, func(t *testing.T) {
			old, err := os.ReadFile(s.path)
			if errors.Is(err, os.ErrNotExist) {
				want(t, "not built", now(), s.name, No)
				return
			}
			must(t, err)
			defer func() { must(t, write(s.path, strings.TrimSpace(string(old)))) }()
			for value, answer := range s.values {
				must(t, write(s.path, value))
				findings := now()
				want(t, "with "+value, findings, s.name, answer)
				if s.name == Schedstats {
					if err := trySchedstats(t, nil); (err == nil) != (answer == Yes) {
						t.Errorf("with %s: trying: %v", value, err)
					}
				}
			}
		})
	}
}

// TestPressureSwitchedOff: a group can hide its pressure files, and the finding says by what.
func TestPressureSwitchedOff(t *testing.T) {
	rigtest.Only(t, "no other group may have pressure files")
	const group = "/sys/fs/cgroup/commensal-test-pressure"
	must(t, os.Mkdir(group, 0o755))
	defer func() { must(t, os.Remove(group)) }()
	want(t, "with a group", now(), PSIPerCgroup, Yes, group)
	must(t, write(group+"/cgroup.pressure", "0"))
	want(t, "switched off there", now(), PSIPerCgroup, No, "cgroup.pressure")
	must(t, write(group+"/cgroup.pressure", "1"))
	want(t, "switched on again", now(), PSIPerCgroup, Yes, group)
}

// TestNothingHandedDown: without controllers in cgroup.subtree_control no group can be limited.
func TestNothingHandedDown(t *testing.T) {
	rigtest.Only(t, "the root group hands nothing down")
	const control = "/sys/fs/cgroup/cgroup.subtree_control"
	old, err := os.ReadFile(control)
	must(t, err)
	var off, on []string
	for _, c := range strings.Fields(string(old)) {
		off, on = append(off, "-"+c), append(on, "+"+c)
	}
	must(t, write(control, strings.Join(off, " ")))
	defer func() { must(t, write(control, strings.Join(on, " "))) }()
	const group = "/sys/fs/cgroup/commensal-test-handed"
	must(t, os.Mkdir(group, 0o755))
	defer func() { must(t, os.Remove(group)) }()
	findings := now()
	for name, file := range map[string]string{CPUQuota: "cpu.max", Cpuset: "cpuset.cpus", MemoryReclaim: "memory.reclaim"} {
		want(t, "nothing handed down", findings, name, No, "cgroup.subtree_control")
		if _, err := os.Stat(group + "/" + file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s in a group that was given nothing: %v", file, err)
		}
	}
	wantRemedy(t, "nothing handed down", findings, RemedyCap, false)
	want(t, "nothing handed down", findings, PSIPerCgroup, Yes)
	want(t, "nothing handed down", findings, Freezer, Yes, group)
}
