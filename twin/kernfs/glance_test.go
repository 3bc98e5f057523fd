package kernfs_test

import (
	"fmt"
	"testing"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// Beside batch work that fills its CPUs a look at what services used at most ends most pulses, on either
// layout; and services whose load jumps have more CPUs as soon as without looks. Services are in one
// group here, and batch work inside of that group is subtracted.
func TestGlancesEndPulses(t *testing.T) {
	for _, layout := range []cgroup.Layout{cgroup.LayoutV2, cgroup.LayoutHybrid} {
		t.Run(layout.String(), func(t *testing.T) {
			k, err := kernfs.New(rigMachine(t, 1), kernfs.Options{Layout: layout})
			must(t, err)
			calm := service()
			calm.Requests.PerSecond = 40
			for i := range 5 {
				started(t, k, fmt.Sprint("/pods/a-web-", i), calm)
			}
			busy := antagonist()
			busy.Work = &machine.Work{}
			started(t, k, "/pods/low/c-stream", busy)
			l := loopOver(t, k)
			defer l.Close()
			play := func(seconds int64) (turns, glances int) {
				for end := k.MonoNsec() + seconds*1e9; l.Due() < end; {
					if wait := l.Due() - k.MonoNsec(); wait > 0 {
						k.Advance(wait)
					}
					if l.Next() == nil {
						glances++
					} else {
						turns++
					}
				}
				return turns, glances
			}
			play(20)
			p := &l.Engine.State.CPU.CPUSet
			if p.BE <= p.FloorCores {
				t.Fatalf("batch work has %d cores, its floor is %d: the test tests nothing", p.BE, p.FloorCores)
			}
			had := p.BE
			if turns, glances := play(10); glances < 100 || turns > 100 {
				t.Errorf("%d turns and %d glances in 10 s", turns, glances)
			}
			surge := service()
			surge.Requests.PerSecond, surge.Threads = 40_000, 16 // more than all CPUs serve
			started(t, k, "/pods/a-web-1", surge)
			if play(1); p.BE >= had {
				t.Errorf("a second after the load has jumped batch work still has %d cores of %d", p.BE, had)
			}
		})
	}
}

// loopOver is an agent's loop over a kernel, with services and batch work on CPUs of their own.
func loopOver(t *testing.T, k *kernfs.Kernel) *agent.Loop {
	t.Helper()
	cfg, _ := config.Defaults(config.ProfileSingleNode)
	cfg.Policies.CPU.CPUSetMode = model.ModeEnforce
	cfg.Tasks = []config.Task{{Match: "/pods/a-*", Job: "web", Class: "LC"}, {Match: "/pods/low/*", Job: "c", Class: "BE", Importance: "batch"}}
	core, err := agent.Assemble(&cfg, agent.Deps{
		FS: k, Journal: t.TempDir() + "/journal", Disk: journal.RealDisk(), Clock: k, Platform: "twin", Delay: k.Taskstats(), Opener: k.Counters(),
	})
	must(t, err)
	return agent.NewLoop(core)
}
