package kernfs_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// bubble is the time of a synctest bubble, which the loop, the drivers and the test share.
type bubble struct{ began time.Time }

func (b bubble) MonoNsec() int64     { return int64(time.Since(b.began)) + 1e9 }
func (bubble) WallNsec() int64       { return time.Now().UnixNano() }
func (bubble) Now() time.Time        { return time.Now() }
func (bubble) Sleep(d time.Duration) { time.Sleep(d) }

// slowly is a kernel that takes its time for writes to resctrl.
type slowly struct {
	*kernfs.Kernel
	takes time.Duration
}

func (s slowly) WriteFile(path string, data []byte) error {
	if strings.HasPrefix(path, "/sys/fs/resctrl/") {
		time.Sleep(s.takes)
	}
	return s.Kernel.WriteFile(path, data)
}

// agentIn assembles an agent over a kernel that keeps LC and BE on CPUs of their own, which takes pulses of 50 ms, and
// puts BE into a class of service.
func agentIn(t *testing.T, k *kernfs.Kernel, takes time.Duration, beside func(work func())) *agent.Loop {
	t.Helper()
	cfg, _ := config.Defaults(config.ProfileSingleNode)
	cfg.Policies.CPU.CPUSetMode, cfg.Policies.CPU.CacheMode = model.ModeEnforce, model.ModeEnforce
	cfg.Policies.CPU.Cache.PatienceNsec = 0
	cfg.Sampling.Duration, cfg.Sampling.Frequency = time.Second, time.Second
	cfg.Tasks = []config.Task{{Match: "/a-*", Job: "web", Class: "LC"}, {Match: "/c-*", Job: "c", Class: "BE", Importance: "batch"}}
	core, err := agent.Assemble(&cfg, agent.Deps{
		FS: slowly{k, takes}, Journal: t.TempDir() + "/journal", Disk: journal.RealDisk(), Clock: bubble{time.Now()}, Platform: "twin",
		Delay: k.Taskstats(), Opener: k.Counters(), Beside: beside,
	})
	must(t, err)
	return agent.NewLoop(core)
}

// turns lets the loop run for a time, each turn when it is due, as the agent does. It returns how many pulses were
// taken, and how long after it was due the slowest turn was over.
func turns(k *kernfs.Kernel, l *agent.Loop, lasts time.Duration) (pulses int, late time.Duration) {
	for end := l.Clock.MonoNsec() + lasts.Nanoseconds(); l.Due() < end; {
		if wait := l.Due() - l.Clock.MonoNsec(); wait > 0 {
			time.Sleep(time.Duration(wait))
		}
		synctest.Wait() // what the drivers do at this moment is done
		if behind := l.Clock.MonoNsec() - k.MonoNsec(); behind > 0 {
			k.Advance(behind)
		}
		due := l.Due()
		l.Next()
		late = max(late, time.Duration(l.Clock.MonoNsec()-due)) // time stands still while a turn waits for nothing
		if in, _ := l.Last(); in.Pulse != nil {
			pulses++
		}
	}
	return pulses, late
}

// allClassed reports whether all best-effort tasks are in their class, as the ledger has it.
func allClassed(l *agent.Loop) bool {
	n := 0
	for i := range l.Engine.State.Ledger.Knobs {
		if k := &l.Engine.State.Ledger.Knobs[i]; k.Kind == model.ServiceClass && k.Ours {
			n++
		}
	}
	return n == 1
}

// TestNoPulseIsLate: while the kernel takes two seconds for each write of a knob, and while another program holds
// the lock of resctrl for as long, the loop takes every turn to its time; and the knobs are written in the end. Were they
// written in the loop, it would show here.
func TestNoPulseIsLate(t *testing.T) {
	for name, c := range map[string]struct {
		takes  time.Duration // of a write to resctrl
		locked bool          // another program has the lock for the first two seconds
		beside func(work func())
		late   bool
	}{
		"a knob blocks":                  {takes: 2 * time.Second},
		"resctrl is locked":              {locked: true},
		"a knob blocks in the loop":      {takes: 2 * time.Second, beside: func(work func()) { work() }, late: true},
		"resctrl is locked, in the loop": {locked: true, beside: func(work func()) { work() }, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newResctrlBed(t, 1).k
				must(t, k.MountResctrl(resctrl.MountOptions{}))
				started(t, k, "/a-web-0", service())
				started(t, k, "/c-stream", antagonist())
				l := agentIn(t, k, c.takes, c.beside)
				defer l.Close()
				synctest.Wait() // it knows what there is of classes
				if c.locked {
					dir, err := k.OpenFolder("/sys/fs/resctrl")
					must(t, err)
					must(t, dir.Flock(unix.LOCK_EX))
					time.AfterFunc(2*time.Second, func() { _ = dir.Close() })
				}
				pulses, late := turns(k, l, 2*time.Second)
				_, later := turns(k, l, 28*time.Second)
				if late = max(late, later); (late > 0) != c.late {
					t.Errorf("the slowest turn was over %s after it was due", late)
				}
				if !c.late && pulses < 35 {
					t.Errorf("%d pulses in the first two seconds: nothing could be late", pulses)
				}
				if !allClassed(l) {
					t.Errorf("best-effort work is not in its class after 30 s: %+v", l.Engine.State.Ledger.Knobs)
				}
			})
		})
	}
}
