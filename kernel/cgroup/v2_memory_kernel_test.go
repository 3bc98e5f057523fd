package cgroup

import (
	"testing"
)

const mib = 1 << 20

func TestKernelV2Memory(t *testing.T) {
	d := liveV2(t, Memory)
	top := ownGroup(t, d, "memory")
	child := top + "/child"
	makeGroup(t, d, child)
	pid, _ := startTask(t, "sleep")
	must(t, d.MovePID(child, pid))
	before, err := d.ReadMemoryCurrent(top)
	must(t, err)
	if before > 8*mib {
		t.Errorf("a sleeping process holds %d bytes", before)
	}
	// A process is charged where it runs when it touches a page: it is moved first.
	runInGroup(t, d, child, "touch 32")
	eventually(t, "32 MiB are charged", func() bool {
		now, err := d.ReadMemoryCurrent(top)
		must(t, err)
		return now >= 32*mib
	})
	var s *MemoryStat
	eventually(t, "memory.stat shows them", func() bool { // the kernel adds it up every two seconds
		var err error
		s, err = d.ReadMemoryStat(top)
		must(t, err)
		return s.AnonBytes >= 32*mib
	})
	if s.AnonBytes > 64*mib || s.PageFaults == 0 {
		t.Errorf("memory.stat: %d bytes anonymous, %d faults", s.AnonBytes, s.PageFaults)
	}
	if v, ok := s.Figure("anon"); !ok || v != s.AnonBytes {
		t.Errorf("anon = %d, %v", v, ok)
	}
	if _, ok := s.Figure("workingset_refault_file"); !ok {
		t.Error("no figure workingset_refault_file (since Linux 5.9)")
	}
	if _, ok := s.Figure("nosuch"); ok {
		t.Error("a figure that no kernel has")
	}
	if swap, err := d.ReadSwapCurrent(top); err != nil || swap != 0 {
		t.Errorf("swap = %d, %v", swap, err)
	}
	if e, err := d.ReadMemoryEvents(top); err != nil || e.Max != 0 || e.OOMKill != 0 {
		t.Errorf("events = %+v, %v", e, err)
	}
}

// TestKernelV2MemoryEvents passes memory.high, and then memory.max with nothing to
// reclaim: the descendant's events show in its own files, and above only in the sum.
func TestKernelV2MemoryEvents(t *testing.T) {
	d := liveV2(t, Memory)
	top := ownGroup(t, d, "events-memory")
	child := top + "/child"
	makeGroup(t, d, child)
	must(t, d.WriteMemoryBound(child, SwapMax, 0))
	must(t, d.WriteMemoryBound(child, MemoryHigh, 16*mib))
	runInGroup(t, d, child, "touch 17")
	eventually(t, "memory.high is passed", func() bool {
		e, err := d.ReadMemoryEvents(child)
		must(t, err)
		return e.High > 0
	})
	must(t, d.WriteMemoryBound(child, MemoryHigh, NoBound))
	must(t, d.WriteMemoryBound(child, MemoryMax, 24*mib))
	runInGroup(t, d, child, "touch 64")
	eventually(t, "memory.max kills", func() bool {
		e, err := d.ReadMemoryEvents(child)
		must(t, err)
		return e.OOMKill > 0 && e.OOM > 0 && e.Max > 0
	})
	sum, err := d.ReadMemoryEvents(top)
	must(t, err)
	local, err := d.ReadMemoryEventsLocal(top)
	must(t, err)
	if sum.OOMKill == 0 || sum.High == 0 || local.OOMKill != 0 || local.High != 0 {
		t.Errorf("above: %+v in all, %+v its own", sum, local)
	}
}
