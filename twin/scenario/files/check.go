package files

import (
	"fmt"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/scenario"
)

// Check refuses a scenario that cannot be played through files, with the line of what
// stands against it. The typed seam takes all of these.
func (o Options) Check(f *scenario.File) error {
	for _, p := range f.Plans {
		if err := o.check(p); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) check(p *scenario.Plan) error {
	s := p.Scenario
	for i := range s.Tasks {
		if err := o.checkShares(p, fmt.Sprintf("tasks[%d].shares", i), s.Tasks[i].Shares); err != nil {
			return err
		}
	}
	for i := range s.Control {
		if err := o.checkShares(p, fmt.Sprintf("control[%d].shares", i), s.Control[i].Shares); err != nil {
			return err
		}
	}
	for i := range s.Timeline {
		e := &s.Timeline[i]
		at := fmt.Sprintf("timeline[%d]", i)
		if e.Shares != nil {
			if err := o.checkShares(p, at+".shares.shares", e.Shares.Shares); err != nil {
				return err
			}
		}
		if e.Refuse != nil {
			if _, ok := errnoOf(e.Refuse.Error); !ok {
				return p.Errorf(at+".refuse_writes.error", "is %q; through files it has to be an error of the kernel, such as EBUSY or \"device or resource busy\"", e.Refuse.Error)
			}
		}
	}
	return nil
}

// checkShares refuses what cpu.weight does not go up to.
func (o Options) checkShares(p *scenario.Plan, key string, shares int64) error {
	if o.Layout == cgroup.LayoutV2 && shares > maxSharesV2 {
		return p.Errorf(key, "is %d; on cgroup v2 there is no weight above that of %d shares", shares, maxSharesV2)
	}
	return nil
}
