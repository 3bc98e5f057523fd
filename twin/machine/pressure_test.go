package machine

import "testing"

// PSI of a task: nothing on an idle machine, some where it queues, full where its own quota
// holds all of it.
func TestCPUPressure(t *testing.T) {
	c := oneSocket()
	c.CoresPerSocket, c.ThreadsPerCore = 4, 1
	m := newMachine(t, c)
	a := add(t, m, spinner(2))
	m.Advance(1e9)
	if p, err := m.Pressure(a); err != nil || p != (Pressure{}) || m.SystemPressure() != p {
		t.Errorf("two threads on four CPUs: %+v, %v", p, err)
	}
	b := add(t, m, spinner(8))
	m.Advance(1e9)
	if p, err := m.Pressure(b); err != nil || p.CPUSome < 9e8 || p.CPUFull > 1e7 || p.MemorySome != 0 {
		t.Errorf("ten threads on four CPUs: %+v, %v", p, err)
	}
	if p := m.SystemPressure(); p.CPUSome < 9e8 || p.CPUFull != 0 {
		t.Errorf("the machine: %+v", p)
	}
	must(t, m.SetCPUMax(b, CPUMax{QuotaUsec: 10_000, PeriodUsec: 100_000}))
	before, err := m.Pressure(b)
	must(t, err)
	m.Advance(1e9)
	after, err := m.Pressure(b)
	must(t, err)
	if full := after.CPUFull - before.CPUFull; full < 8e8 || full > 1e9 {
		t.Errorf("a tenth of a CPU for eight threads: full %d ns of a second", full)
	}
}
