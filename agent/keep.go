package agent

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/agent/learned"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/node/match"
)

// keeper keeps what the engine learned and operators said, so that it outlives a restart.
type keeper struct {
	core   *Core
	writer *learned.Writer
	mark   uint64   // of what was handed in last ...
	off    []string // ... and the jobs for which protection was off then
	atNsec int64    // when; 0: never
}

// goOn hands what an earlier run had kept to the core's first turn, and starts to keep.
func (a *Agent) goOn(dir string) *keeper {
	kernel, err := procstat.ReadKernelRelease(hostfs.NewRoot("/"))
	if err != nil {
		kernel = "unknown"
	}
	under := learned.Under{
		Platform: a.core.Engine.Params.Platform, Kernel: kernel, Profile: a.cfg.Profile, Signals: learned.Signals(a.core.Engine.Params.Spec.CoreCycles),
		Window: learned.WindowOf(a.cfg.Sampling.Duration, a.cfg.Sampling.Frequency),
	}
	path := learned.Path(dir)
	before, problem, notes := learned.Read(path, under)
	if problem != "" {
		a.log.Warn(problem)
		a.core.Warnings = append(a.core.Warnings, problem)
	}
	if before != nil {
		before.ProtectOff = slices.DeleteFunc(before.ProtectOff, func(job string) bool {
			gone := job != "" && !slices.ContainsFunc(a.cfg.Rules(), func(r match.Rule) bool { return r.Job == job })
			if gone {
				notes = append(notes, fmt.Sprintf("protection was off for %s, which no rule names any more", job))
			}
			return gone
		})
		a.core.GoOnWith(before)
		a.log.Info("goes on with what was known before the restart", "specs", len(before.Specs), "protect_off", before.ProtectOff)
	}
	for _, n := range notes {
		a.log.Warn(n)
	}
	return &keeper{core: a.core, writer: learned.NewWriter(path, a.version, under, a.log), mark: a.core.Engine.KeepMark()}
}

// look hands in what is to be kept when it is another than before: at most once a minute, but at once
// what an operator said.
func (k *keeper) look() {
	now, off := k.core.in.MonoNsec, k.core.Engine.State.ProtectOff
	if k.atNsec != 0 && now-k.atNsec < learned.Every.Nanoseconds() && slices.Equal(off, k.off) {
		return
	}
	if mark := k.core.Engine.KeepMark(); mark != k.mark && k.writer.Offer(k.kept()) {
		k.mark, k.off, k.atNsec = mark, slices.Clone(off), now
	}
}

// close keeps what is known at the end.
func (k *keeper) close() { k.writer.Close(k.kept()) }

func (k *keeper) kept() engine.Restored {
	return k.core.Engine.Keep(k.core.in.MonoNsec, k.core.in.WallNsec)
}
