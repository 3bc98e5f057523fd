package scene

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/lab/stage"
)

// The baseline that throttles by pressure, as daemons do that watch PSI: while threads wait for a CPU for more than
// a share of the time, every BE task's quota is halved; else it grows slowly. It knows who suffers where the kernel
// keeps the account of a group (cgroup v2), and on v1 only that somebody does, BE among them. It never knows by whom.
const (
	pressed      = 0.2 // share of the time
	pressureTurn = 250 * time.Millisecond
	leastQuota   = 0.02 // CPU of a task
	quotaGrows   = 1.05
)

// ThrottleByPressure begins it and returns what ends it and lifts the quotas.
func (s *Scene) ThrottleByPressure(ctx context.Context) (undo func() error, err error) {
	none := func() error { return nil }
	fs, cg := hostfs.NewRoot("/"), s.Stage.Cgroups()
	mounts, err := cgroup.Discover(fs)
	if err != nil {
		return none, fmt.Errorf("scene: %w", err)
	}
	path := psi.CPU.Path()
	if mounts.Layout == cgroup.LayoutV2 {
		path = psi.OfGroup(fs, mounts.Unified+s.Victim).Path(psi.CPU)
	}
	file, err := psi.Open(fs, path)
	if err != nil {
		return none, fmt.Errorf("scene: %w", err)
	}
	all := func(v cgroup.CPUMax) error {
		var errs []error
		for _, p := range s.BE {
			errs = append(errs, cg.WriteCPUMax(p, v))
		}
		return errors.Join(errs...)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- turns(ctx, file, float64(runtime.NumCPU()), all) }()
	return func() error {
		stop()
		return errors.Join(<-ended, all(cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: quotaPeriod}), file.Close())
	}, nil
}

const quotaPeriod = 100_000 // us

// turns throttles until the context ends.
func turns(ctx context.Context, file *psi.Reader, most float64, all func(cgroup.CPUMax) error) error {
	before, err := file.Totals()
	if err != nil {
		return err
	}
	for quota, at := most, time.Now(); ; {
		if stage.Sleep(ctx, pressureTurn) != nil {
			return nil // whoever began it ends it
		}
		now, err := file.Totals()
		if err != nil {
			return err
		}
		waited := float64(now.SomeUsec-before.SomeUsec) / float64(time.Since(at).Microseconds())
		before, at = now, time.Now()
		if waited > pressed {
			quota = max(leastQuota, quota/2)
		} else {
			quota = min(most, quota*quotaGrows)
		}
		if err := all(cgroup.CPUMax{QuotaUsec: int64(quota * quotaPeriod), PeriodUsec: quotaPeriod}); err != nil {
			return err
		}
	}
}
