package cgroup

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func itoa(v int32) string { return strconv.Itoa(int(v)) }

// plainMkdir makes a group without enabling anything.
func plainMkdir(t *testing.T, d *V2, path string) {
	t.Helper()
	must(t, os.Mkdir(d.top+path, groupPerm))
	t.Cleanup(func() { removeGroup(t, d, path) })
}

// TestKernelV2HalfEnabled: a group whose parent keeps a controller has CPU time and
// processes and no limit, and the error names controller and parent.
func TestKernelV2HalfEnabled(t *testing.T) {
	d := liveV2(t, CPU, CPUSet, Memory)
	top := ownGroup(t, d, "half")
	mid, leaf := top+"/mid", top+"/mid/leaf"
	plainMkdir(t, d, mid)
	plainMkdir(t, d, leaf)
	must(t, d.Enable(top, Memory, CPUSet))
	must(t, d.WriteCPUs(mid, "0"))
	for _, c := range []struct {
		path    string
		stopsAt string
		ctl     Controller
		do      func(path string) error
	}{
		{mid, top, CPU, func(p string) error { return second(d.ReadCPUMax(p)) }},
		{leaf, top, CPU, func(p string) error { return d.WriteCPUMax(p, CPUMax{20000, 100000, 0}) }},
		{leaf, top, CPU, func(p string) error { return second(d.ReadShares(p)) }},
		{leaf, top, CPU, func(p string) error { return d.WriteShares(p, 512) }},
		{leaf, top, CPU, func(p string) error { return d.WriteIdle(p, true) }},
		{leaf, mid, CPUSet, func(p string) error { return second(d.ReadCPUs(p)) }},
		{leaf, mid, CPUSet, func(p string) error { return d.WriteMems(p, "0") }},
		{leaf, mid, Memory, func(p string) error { return second(d.ReadMemoryCurrent(p)) }},
		{leaf, mid, Memory, func(p string) error { return d.WriteMemoryBound(p, MemoryHigh, 1<<20) }},
		{leaf, top, CPU, func(p string) error { return d.Enable(p, CPU) }},
	} {
		err := c.do(c.path)
		var absent *AbsentControllerError
		if !errors.As(err, &absent) || !errors.Is(err, ErrNoController) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrVanished) {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		if *absent != (AbsentControllerError{Path: c.path, Controller: c.ctl, StopsAt: c.stopsAt}) || !strings.Contains(err.Error(), c.stopsAt+" lacks "+string(c.ctl)) {
			t.Errorf("%s: %+v: %v", c.path, *absent, err)
		}
	}
	// Where the group may run is known all the same.
	if got, err := d.ReadEffectiveCPUs(leaf); err != nil || got != "0" {
		t.Errorf("effective CPUs = %q, %v; want those of %s", got, err, mid)
	}
	if got, err := d.ReadEffectiveMems(leaf); err != nil || got == "" {
		t.Errorf("effective nodes = %q, %v", got, err)
	}
	start(t, d, leaf, "spin")
	g := open(t, d, leaf)
	eventually(t, "usage without the cpu controller grows", func() bool { return usage(t, g) > 1e6 })
	if th, err := g.Throttling(); err != nil || th != (Throttling{}) {
		t.Errorf("throttling without the cpu controller = %+v, %v; want zero and HasQuota false", th, err)
	}
}

// TestKernelV2ThrottlingCountsOn: nr_throttled begins anew when the controller is
// disabled and enabled, and the sum over the tree does not fall.
func TestKernelV2ThrottlingCountsOn(t *testing.T) {
	d := liveV2(t, CPU)
	top := ownGroup(t, d, "anew")
	leaf := top + "/leaf"
	makeGroup(t, d, leaf)
	start(t, d, leaf, "spin")
	parent, g := open(t, d, top), open(t, d, leaf)
	last := map[Group]uint64{}
	for round := range 3 {
		must(t, d.WriteCPUMax(leaf, CPUMax{1000, 10000, 0}))
		for _, g := range []Group{g, parent} {
			eventually(t, "the quota throttles", func() bool {
				th, err := g.Throttling()
				must(t, err)
				if th.NrThrottledAround < last[g] {
					t.Fatalf("round %d: the sum fell from %d to %d", round, last[g], th.NrThrottledAround)
				}
				return th.NrThrottledAround >= last[g]+2
			})
		}
		must(t, d.Disable(top, CPU))
		for _, g := range []Group{g, parent} {
			th, err := g.Throttling()
			must(t, err)
			if (g != parent && th.Own.HasQuota) || th.NrThrottledAround < 2 {
				t.Errorf("round %d: disabled: %+v", round, th)
			}
			last[g] = th.NrThrottledAround
		}
		if _, err := d.ReadCPUMax(leaf); !errors.Is(err, ErrNoController) {
			t.Errorf("limit while disabled: %v", err)
		}
		must(t, d.Enable(top, CPU))
		if got, err := d.ReadCPUMax(leaf); err != nil || got.QuotaUsec != -1 {
			t.Errorf("limit after that = %s, %v; it is gone with the controller", got, err)
		}
	}
}

// TestKernelV2SubtreeControl: enabling, disabling, and what stands in the way.
func TestKernelV2SubtreeControl(t *testing.T) {
	d := liveV2(t, CPU, CPUSet, Memory, PIDs)
	top := ownGroup(t, d, "subtree")
	mid := top + "/mid"
	plainMkdir(t, d, mid)
	have, err := d.ReadControllers(top)
	if err != nil || !slices.Contains(have, CPU) || !slices.Contains(have, Memory) {
		t.Errorf("controllers = %v, %v", have, err)
	}
	if on, err := d.ReadSubtreeControl(top); err != nil || len(on) != 0 {
		t.Errorf("a new group hands on %v, %v", on, err)
	}
	must(t, d.Enable(top, CPU, Memory))
	if on, err := d.ReadSubtreeControl(top); err != nil || len(on) != 2 {
		t.Errorf("it hands on %v, %v", on, err)
	}
	must(t, d.Enable(mid, CPU))
	if err := d.Disable(top, CPU); !errors.Is(err, ErrInUse) || !errors.Is(err, unix.EBUSY) {
		t.Errorf("disabling what a child hands on: %v", err)
	}
	pid, kill := startTask(t, "sleep")
	if err := d.MovePID(mid, pid); !errors.Is(err, ErrInnerGroup) {
		t.Errorf("a process into an inner group: %v", err)
	}
	// Where a domain controller is handed on, the kernel refuses it itself.
	must(t, d.Enable(mid, Memory))
	if err := d.fs.WriteFile(d.top+mid+"/cgroup.procs", []byte(strconv.Itoa(pid))); !errors.Is(err, unix.EBUSY) {
		t.Errorf("the kernel takes a process in an inner group: %v", err)
	}
	must(t, d.Disable(mid, Memory))
	must(t, d.Disable(mid, CPU))
	must(t, d.MovePID(mid, pid))
	for _, c := range [][]Controller{{CPU}, {Memory}, {CPU, Memory}} {
		if err := d.Enable(mid, c...); !errors.Is(err, ErrHasProcesses) {
			t.Errorf("enabling %v below a group with processes: %v", c, err)
		}
	}
	if got, err := d.ReadType(mid); err != nil || got != Domain {
		t.Errorf("that made it %q, %v", got, err)
	}
	if err := d.Mkdir(mid + "/leaf"); !errors.Is(err, ErrHasProcesses) {
		t.Errorf("Mkdir below a group with processes: %v", err)
	}
	if list, err := d.Descendants(mid); err != nil || len(list) != 0 {
		t.Errorf("Mkdir left %v behind, %v", list, err)
	}
	if err := d.Enable(mid, "nosuch"); !errors.Is(err, ErrNoController) {
		t.Errorf("a controller that does not exist: %v", err)
	}
	kill()
	eventually(t, "the process is gone", func() bool {
		pids, err := d.Procs(mid)
		must(t, err)
		return len(pids) == 0
	})
	makeGroup(t, d, mid+"/leaf")
	for _, path := range []string{top, mid} {
		on, err := d.ReadSubtreeControl(path)
		must(t, err)
		for _, c := range driven() {
			if !slices.Contains(on, c) {
				t.Errorf("Mkdir did not make %s hand on %s", path, c)
			}
		}
	}
}
