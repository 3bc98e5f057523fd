package resctrl

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKernelBudget fills the machine up: first control groups until no CLOSID is left,
// then monitoring groups until no RMID is, counted beforehand each time. With every RMID
// in a group it reads what the rig's table says of some; then comes limbo.
//
// It must be the first in a boot to need many RMIDs. One for which the table holds
// "Unavailable" or an occupancy never leaves limbo again: the kernel asks the hardware,
// and takes no answer for a no.
func TestKernelBudget(t *testing.T) {
	d := mounted(t, MountOptions{Debug: newest()})
	b := must[Budget](t)(d.Budget())
	first := b.Bound
	var ctrl []Made
	for i := range first.CtrlGroups {
		ctrl = append(ctrl, ctrlGroup(t, d, fmt.Sprint("c", i)))
	}
	_, err := d.CreateGroup("toomany", 0)
	wantError(t, "no CLOSID by budget", err, "CLOSIDs", ErrExhausted)
	if errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v: the kernel was asked", err)
	}
	err = d.rawMkdir(Name{Ctrl: "commensal-toomany"})
	wantError(t, "no CLOSID by the kernel", err, "Out of CLOSIDs", ErrExhausted, unix.ENOSPC)
	wantError(t, "no CLOSID by the kernel, its words", err, `kernel says "Out of CLOSIDs"`)

	groups := slices.Clone(ctrl)
	for i := range first.MonGroups - first.CtrlGroups {
		groups = append(groups, monGroup(t, d, Name{}, fmt.Sprint("m", i)))
	}
	b = must[Budget](t)(d.Budget())
	if b.CLOSIDs.Free() != 0 || b.RMIDs.Free() != 0 || b.Bound != (Bound{}) {
		t.Errorf("budget when full: CLOSIDs %s; RMIDs %s; %+v", b.CLOSIDs, b.RMIDs, b.Bound)
	}
	_, err = d.CreateMonGroup(Name{}, "toomany", 0)
	wantError(t, "no RMID by budget", err, "RMIDs", ErrExhausted)
	err = d.rawMkdir(Name{Mon: "commensal-toomany"})
	wantError(t, "no RMID by the kernel", err, "Out of RMIDs", ErrExhausted, unix.ENOSPC)
	_, err = d.CreateMonGroup(Name{}, "m0", 0)
	wantError(t, "full, and there already", err, "RMIDs", ErrExhausted)

	t.Run("injected", func(t *testing.T) { testInjected(t, d, groups) })

	// With one left that others shall have.
	if r := must[Removal](t)(d.Remove(ctrl[0].Identity, false)); r.Outcome != Removed {
		t.Fatalf("remove: %+v", r)
	}
	shy := openLive(t)
	shy.opt.ReserveCLOSIDs, shy.opt.ReserveRMIDs = 1, 1
	_, err = shy.CreateGroup("c", 0)
	wantError(t, "the reserve", err, "1 kept for others", ErrExhausted)
	testLimbo(t, d, ctrl[1])
}

// testLimbo: an RMID that was used lately does not come back at once.
func testLimbo(t *testing.T, d *Driver, g Made) {
	t.Helper()
	// The first group's RMID may be free already: take it, so that none is.
	last := ctrlGroup(t, d, "last")
	pid := spinner(t, 1)
	list := func(dst []int32) ([]int32, error) { return append(dst, pid), nil }
	must[Moved](t)(d.MoveProcesses(g.Identity, list))
	mon := must[*Monitor](t)(d.OpenMonitor(g.Name))
	defer mon.Close()
	// What counts as clean decides how long it takes: next to nothing at first, then all.
	threshold := d.at.Point + "/info/L3_MON/max_threshold_occupancy"
	normal := get(t, threshold)
	defer put(t, threshold, normal)
	put(t, threshold, "65536\n")
	eventually(t, "the spinner's lines in the cache", func() bool {
		for _, v := range must[[]Monitored](t)(mon.Read(nil)) {
			if v.Occupancy.Bytes >= 4<<20 {
				return true
			}
		}
		return false
	})
	if r := must[Removal](t)(d.Remove(g.Identity, false)); r.Outcome != Removed {
		t.Fatalf("remove: %+v", r)
	}
	if b := must[Budget](t)(d.Budget()); b.RMIDs.Free() != 1 {
		t.Errorf("RMIDs: %s", b.RMIDs)
	}
	_, err := d.CreateGroup("limbo", 0)
	put(t, threshold, "16777216\n")
	wantError(t, "limbo", err, `kernel says "Out of RMIDs"`, ErrLimbo, unix.EBUSY)
	if errors.Is(err, ErrExhausted) {
		t.Errorf("%v: exhausted and in limbo are different", err)
	}
	made, err := d.CreateGroup("limbo", patience)
	if err != nil {
		t.Fatalf("after waiting: %v", err)
	}
	for _, id := range []Identity{made.Identity, last.Identity} {
		if r := must[Removal](t)(d.Remove(id, false)); r.Outcome != Removed {
			t.Errorf("remove: %+v", r)
		}
	}
	if r := must[Removal](t)(d.Remove(made.Identity, false)); r.Outcome != WasGone {
		t.Errorf("second remove: %+v", r)
	}
	_, err = mon.Read(nil)
	wantError(t, "monitor of a removed group", err, "", ErrVanished)
}

// What the rig's table holds for RMIDs before the guest starts, in every domain.
const (
	injectedRate        = 2e9     // bytes/s of RMID 59; others have 1e9
	injectedOccupancy   = 3 << 20 // of RMID 62
	injectedFast        = 59
	injectedUnavailable = 60
	injectedError       = 61
)

// testInjected reads what the emulator was told to say for certain RMIDs: no value, an
// error, an occupancy and a bandwidth. The groups hold every RMID there is; the values
// tell which is which, and on a kernel that shows RMIDs their numbers must agree.
func testInjected(t *testing.T, d *Driver, groups []Made) {
	n := len(groups)
	if n < injectedError+1 {
		t.Skipf("%d RMIDs; the rig's table is for 64", n+1)
	}
	read := make([][]Monitored, n)
	for i := range groups {
		mon := must[*Monitor](t)(d.OpenMonitor(groups[i].Name))
		read[i] = must[[]Monitored](t)(mon.Read(nil))
		if err := mon.Close(); err != nil {
			t.Error(err)
		}
	}
	found := map[string][]int{}
	for i, domains := range read {
		for _, v := range domains {
			key := fmt.Sprint(v.Occupancy.State, " ", v.Total.State, " ", v.Local.State)
			if v.Occupancy.State == Counted && v.Occupancy.Bytes == injectedOccupancy {
				key = "occupancy"
			}
			found[key] = append(found[key], i)
		}
	}
	if len(found["unavailable unavailable unavailable"])+len(found["failed failed failed"]) == 0 {
		t.Skip("the rig offers no table of injected values")
	}
	which := map[string]int{}
	for _, key := range []string{"unavailable unavailable unavailable", "failed failed failed", "occupancy"} {
		at := found[key]
		if len(at) != 2 || at[0] != at[1] {
			t.Fatalf("%s: groups %v, want one, in both domains", key, at)
		}
		which[key] = at[0]
	}
	if len(found["counted counted counted"]) != 2*(n-3) {
		t.Errorf("%d values are numbers, want %d; %v", len(found["counted counted counted"]), 2*(n-3), found)
	}
	// RMIDs that were never used are handed out in order, so 59 is the group before 60.
	fast := which["unavailable unavailable unavailable"] - 1
	if fast < 0 {
		t.Fatal("RMID 59 was used before in this boot")
	}
	if got := [2]int{which["failed failed failed"], which["occupancy"]}; got != [2]int{fast + 2, fast + 3} {
		t.Fatalf("RMIDs 60, 61 and 62 are groups %v", which)
	}
	if newest() {
		ids := map[Name]int{}
		for _, g := range must[[]Group](t)(d.Groups(ListOptions{})) {
			ids[g.Name] = g.MonID
		}
		for i := range 4 {
			if got := ids[groups[fast+i].Name]; got != injectedFast+i {
				t.Errorf("group %d has RMID %d, want %d", fast+i, got, injectedFast+i)
			}
		}
	}
	// The control group's value is the sum of what could be read.
	mon := must[*Monitor](t)(d.OpenMonitor(Name{}))
	defer mon.Close()
	for _, v := range must[[]Monitored](t)(mon.Read(nil)) {
		if v.Occupancy.State != Counted || v.Occupancy.Bytes < injectedOccupancy {
			t.Errorf("root group: %+v", v)
		}
	}
	testInjectedRate(t, d, groups[fast], groups[fast-1])
}

// testInjectedRate lets a spinner run in two groups by turns: in one it must have twice
// the rate. The guest's clock goes on while its CPUs wait for the host's, so the windows are
// long against such stalls, and the bounds wide.
func testInjectedRate(t *testing.T, d *Driver, fast, usual Made) {
	t.Helper()
	threads := threadsOf(t, d, spinner(t, 0))
	rate := func(g Made) float64 {
		mon := must[*Monitor](t)(d.OpenMonitor(g.Name))
		defer mon.Close()
		must[Moved](t)(d.MoveThreads(g.Identity, threads))
		time.Sleep(150 * time.Millisecond) // an emulated CPU counts for the old group a little longer
		before, from := must[[]Monitored](t)(mon.Read(nil)), time.Now()
		time.Sleep(400 * time.Millisecond)
		after, took := must[[]Monitored](t)(mon.Read(nil)), time.Since(from)
		grown := after[0].Total.Since(before[0].Total)
		if grown.State != Counted {
			t.Fatalf("%s: %+v", g.Name, after)
		}
		return float64(grown.Bytes) / took.Seconds()
	}
	var best, least []float64
	for range 3 {
		best, least = append(best, rate(fast)), append(least, rate(usual))
	}
	slices.Sort(best)
	slices.Sort(least)
	if ratio := best[1] / least[1]; ratio < 1.4 || ratio > 2.8 {
		t.Errorf("%.2f times the usual rate (%.3g of %.3g bytes/s), want 2: %g was asked for",
			ratio, best, least, injectedRate)
	}
}
