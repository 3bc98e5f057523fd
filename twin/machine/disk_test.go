package machine

import (
	"math"
	"testing"
)

// onDisk is a machine with a disk of 500 MB and 10,000 operations a second, and tasks that use it.
func onDisk(t *testing.T, tasks ...DiskIO) *Machine {
	t.Helper()
	cfg := Skylake()
	cfg.DiskBytes, cfg.DiskOps = 500e6, 10_000
	m, err := New(cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tasks {
		c := TaskConfig{Name: "t", Threads: 4, CPI: 1, Overlap: 1, Work: &Work{Phases: []Phase{{Nsec: 1e9, CPUs: 0.1}}}, Curve: MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Disk: &tasks[i]}
		if _, err := m.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *Machine) diskUse(t *testing.T, num int) DiskUse {
	t.Helper()
	u, ok := m.DiskUse(num)
	if !ok {
		t.Fatal("no use of the disk")
	}
	return u
}

// An open loop alone waits as Pollaczek and Khinchine say, and stalls as Poisson does.
func TestDiskOpenLoop(t *testing.T) {
	for _, rate := range []float64{10, 1000, 4000, 8000} {
		m := onDisk(t, DiskIO{OpsPerSecond: rate, Bytes: 4096, WriteShare: 0.25})
		m.Advance(10e9)
		u := m.diskUse(t, 0)
		cost := 1/10_000.0 + 4096/500e6
		busy := rate * cost
		want := cost + busy*cost/(2*(1-busy))
		if got := u.WaitedNsec / 1e9 / (u.Reads + u.Writes); math.Abs(got/want-1) > 1e-3 {
			t.Errorf("%v a second: %v s an operation, want %v", rate, got, want)
		}
		if math.Abs((u.Reads+u.Writes)/(10*rate)-1) > 1e-6 || math.Abs(u.Writes/(u.Reads+u.Writes)-0.25) > 1e-9 || math.Abs(u.ReadBytes/4096/u.Reads-1) > 1e-9 {
			t.Errorf("%v a second: %+v", rate, u)
		}
		p, err := m.Pressure(0)
		if some := 1 - math.Exp(-rate*want); err != nil || math.Abs(float64(p.IOSome)/10e9-some) > 2e-3 || p.IOFull > p.IOSome || m.SystemPressure().IOSome != p.IOSome {
			t.Errorf("%v a second: %+v, want some %v", rate, p, some)
		}
	}
}

// A closed loop takes nearly all of the disk and never more, makes others wait, and does what a limit or the freezer lets it.
func TestDiskClosedLoop(t *testing.T) {
	alone := onDisk(t, DiskIO{OpsPerSecond: 1000, Bytes: 8192})
	alone.Advance(10e9)
	m := onDisk(t, DiskIO{OpsPerSecond: 1000, Bytes: 8192}, DiskIO{Depth: 16, Bytes: 512 << 10})
	m.Advance(10e9)
	a, b, c := alone.diskUse(t, 0), m.diskUse(t, 0), m.diskUse(t, 1)
	busy := (b.Reads*(1e-4+8192/500e6) + c.Reads*(1e-4+float64(512<<10)/500e6)) / 10
	if busy < 0.85 || busy > 1 || b.WaitedNsec < 20*a.WaitedNsec || math.Abs(c.WaitedNsec/160e9-1) > 1e-6 {
		t.Errorf("busy %v, the first waits %v after %v, the second %v", busy, b.WaitedNsec, a.WaitedNsec, c.WaitedNsec)
	}
	if err := m.SetDiskLimit(1, DiskLimit{ReadBPS: 20e6, ReadIOPS: 1000}); err != nil {
		t.Fatal(err)
	}
	m.Advance(10e9)
	held, first := m.diskUse(t, 1).Plus(c, -1), m.diskUse(t, 0).Plus(b, -1)
	if math.Abs(held.ReadBytes/200e6-1) > 1e-6 || first.WaitedNsec > 2*a.WaitedNsec {
		t.Errorf("held to 20 MB a second: %+v; the first waits %v, alone %v", held, first.WaitedNsec, a.WaitedNsec)
	}
	if err := m.SetFrozen(1, true); err != nil {
		t.Fatal(err)
	}
	before := m.diskUse(t, 1)
	m.Advance(1e9)
	if now := m.diskUse(t, 1); now != before {
		t.Errorf("frozen it goes on: %+v", now.Plus(before, -1))
	}
}

// More than the disk can is not done: all get less. What cannot be is refused.
func TestDiskOverload(t *testing.T) {
	m := onDisk(t, DiskIO{OpsPerSecond: 20_000, Bytes: 4096}, DiskIO{OpsPerSecond: 10_000, Bytes: 4096})
	m.Advance(1e9)
	a, b := m.diskUse(t, 0), m.diskUse(t, 1)
	if busy := (a.Reads + b.Reads) * (1e-4 + 4096/500e6); math.Abs(busy-1) > 1e-6 || math.Abs(a.Reads/b.Reads-2) > 1e-6 {
		t.Errorf("busy %v, %v and %v operations", busy, a.Reads, b.Reads)
	}
	none := Skylake()
	for _, d := range []DiskIO{{}, {OpsPerSecond: 1, Depth: 1, Bytes: 4096}, {Depth: 1, Bytes: 1}, {Depth: math.NaN(), Bytes: 4096}, {Depth: 1, Bytes: 4096, WriteShare: 2}} {
		if d.check("t", &m.cfg) == nil {
			t.Errorf("%+v is taken", d)
		}
	}
	if (&DiskIO{Depth: 1, Bytes: 4096}).check("t", &none) == nil || m.SetDisk(0, 1) == nil {
		t.Error("a machine without a disk is used")
	}
}
