package kernfs_test

import (
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/kernel/resctrl/resctrltest"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// rigMachine is what the rig's guest has: docs/RIG.md.
func rigMachine(t testing.TB, seed uint64) *machine.Machine {
	t.Helper()
	c := machine.Skylake()
	c.CoresPerSocket, c.ThreadsPerCore, c.LLCBytes, c.MemBytes = 2, 1, 16<<20, 1<<30
	m, err := machine.New(c, seed)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// resctrlBed is the rig's machine simulated.
type resctrlBed struct{ k *kernfs.Kernel }

func newResctrlBed(t testing.TB, seed uint64) *resctrlBed {
	t.Helper()
	return newResctrlBedOf(t, seed, kernfs.ResctrlOptions{CLOSIDs: 8, RMIDs: 64})
}

func newResctrlBedOf(t testing.TB, seed uint64, o kernfs.ResctrlOptions) *resctrlBed {
	t.Helper()
	k, err := kernfs.New(rigMachine(t, seed), kernfs.Options{Layout: cgroup.LayoutV2, RDT: true, Resctrl: o})
	if err != nil {
		t.Fatal(err)
	}
	return &resctrlBed{k}
}

func (b *resctrlBed) FS() hostfs.FS                      { return b.k }
func (b *resctrlBed) Mount(o resctrl.MountOptions) error { return b.k.MountResctrl(o) }
func (b *resctrlBed) Unmount() error                     { return b.k.UnmountResctrl() }
func (b *resctrlBed) Clock() resctrl.Clock               { return b.k }
func (b *resctrlBed) Newest() bool                       { return true }
func (b *resctrlBed) Stuck() bool                        { return false }

func (b *resctrlBed) Spin(t testing.TB, cpu int) int32 {
	c := antagonist()
	c.Threads, c.Work = 1, &machine.Work{}
	c.CPUs.Add(cpu)
	return b.start(t, c)
}

func (b *resctrlBed) Idle(t testing.TB, threads int) int32 {
	c := bystander()
	c.Threads = threads
	c.Work = &machine.Work{Phases: []machine.Phase{{Nsec: 1e9}}}
	return b.start(t, c)
}

func (b *resctrlBed) start(t testing.TB, c machine.TaskConfig) int32 {
	t.Helper()
	pid, err := b.k.Spawn(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.k.Kill(pid); err != nil {
			t.Error(err)
		}
	})
	return int32(pid)
}

func (b *resctrlBed) Online(t testing.TB, cpu int, on bool) {
	t.Helper()
	if err := b.k.SetOnline(cpu, on); err != nil {
		t.Fatal(err)
	}
}

// The suite that a kernel's resctrl passes in the rig.
func TestResctrlConforms(t *testing.T) { resctrltest.Conform(t, newResctrlBed(t, 1)) }
