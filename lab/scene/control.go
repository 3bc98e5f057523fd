package scene

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/stage"
)

// The simple remedies, as an operator would have them without an agent, for those that compare. Each returns what takes it back, which
// is to be called also when it failed.

// LeastWeight gives every BE task the least weight that there is.
func (s *Scene) LeastWeight() (undo func() error, err error) {
	return s.onAll(func(cg cgroup.Driver, p string) error { return cg.WriteShares(p, 2) }, s.backShares)
}

// Idle has every BE task give way to everybody.
func (s *Scene) Idle() (undo func() error, err error) {
	return s.onAll(func(cg cgroup.Driver, p string) error { return cg.WriteIdle(p, true) },
		func(cg cgroup.Driver, p string) error {
			// Leaving cpu.idle sets the weight to the kernel's default.
			return errors.Join(cg.WriteIdle(p, false), s.backShares(cg, p))
		})
}

func (s *Scene) backShares(cg cgroup.Driver, path string) error {
	return cg.WriteShares(path, s.Shares(path))
}

// onAll writes a knob of every BE task.
func (s *Scene) onAll(do, undo func(cg cgroup.Driver, path string) error) (func() error, error) {
	cg := s.Stage.Cgroups()
	back := func() error {
		var errs []error
		for _, p := range s.BE {
			errs = append(errs, undo(cg, p))
		}
		return errors.Join(errs...)
	}
	for _, p := range s.BE {
		if err := do(cg, p); err != nil {
			return back, err
		}
	}
	return back, nil
}

// LargestWindow is how long CapLargest watches.
const LargestWindow = 5 * time.Second

// CapLargest watches for a while which BE task uses most CPU, and caps it as hard as the agent would.
func (s *Scene) CapLargest(ctx context.Context) (undo func() error, err error) {
	none := func() error { return nil }
	before, err := s.Usage()
	if err != nil {
		return none, err
	}
	if err := stage.Sleep(ctx, LargestWindow); err != nil {
		return none, err
	}
	after, err := s.Usage()
	if err != nil {
		return none, err
	}
	largest := 0
	for i := range after {
		if after[i]-before[i] > after[largest]-before[largest] {
			largest = i
		}
	}
	cg, path := s.Stage.Cgroups(), s.BE[largest]
	found, err := cg.ReadCPUMax(path)
	if err != nil {
		return none, err
	}
	return func() error { return cg.WriteCPUMax(path, found) }, cg.WriteCPUMax(path, cgroup.CPUMax{QuotaUsec: 2_500, PeriodUsec: 250_000})
}

// Usage returns the CPU-seconds of each BE task so far.
func (s *Scene) Usage() ([]float64, error) {
	out := make([]float64, len(s.BE))
	for i, p := range s.BE {
		n, err := s.Stage.UsageNsec(p)
		if err != nil {
			return nil, fmt.Errorf("scene: %w", err)
		}
		out[i] = float64(n) / 1e9
	}
	return out, nil
}
