package kernfs_test

import (
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup/cgrouptest"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// simulated is a simulated kernel as a bed of the conformance tests.
type simulated struct{ *kernfs.Kernel }

func (s simulated) FS() hostfs.FS { return s.Kernel }

// Sleep advances the machine, at least a step.
func (s simulated) Sleep(d time.Duration) {
	c := s.Machine().Config()
	s.Advance(max(d.Nanoseconds(), c.StepNsec))
}

func (s simulated) Start(t testing.TB, task string) (pid int, kill func()) {
	t.Helper()
	cfg := machine.TaskConfig{
		Name: task, Threads: 1, CPI: 1, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Work: &machine.Work{},
	}
	if task == "sleep" {
		cfg.Work.Phases = []machine.Phase{{Nsec: 1e15}}
	}
	pid, err := s.Spawn(cfg)
	if err != nil {
		t.Fatal(err)
	}
	kill = func() {
		if _, alive := s.Task(pid); alive {
			if err := s.Kill(pid); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(kill)
	return pid, kill
}

func (s simulated) Allowed(t testing.TB, pid int) []int {
	t.Helper()
	set, err := s.AllowedCPUs(pid)
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	c := s.Machine().Config()
	for cpu := range c.CPUs() {
		if set.Has(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}

// TestConforms: the drivers' tests of real kernels pass on the simulated one.
func TestConforms(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			cgrouptest.Conform(t, simulated{newKernel(t, newMachine(t, 1), layout)})
		})
	}
}
