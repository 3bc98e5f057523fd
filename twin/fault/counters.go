package fault

import (
	"fmt"

	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/node/linux"
)

// Opener opens hardware counters with faults.
type Opener struct {
	linux.CounterOpener
	o *Owner
}

// Opener wraps an opener of counters for this life.
func (o *Owner) Opener(inner linux.CounterOpener) *Opener { return &Opener{inner, o} }

// refused draws a fault for a call on counters.
func (o *Owner) refused(call, path string) (*Rule, error) {
	if o.Killed() {
		return nil, fmt.Errorf("perf: %s: %w", call, ErrKilled)
	}
	r := o.i.draw(Count, path)
	if r == nil || r.Kind != Fail && r.Kind != Vanish {
		return r, nil
	}
	err := fmt.Errorf("perf: %s %s: %w", call, path, errnoOf(r))
	o.i.notice(&Event{Who: o.name, Op: Count, Path: path, Data: call, Fault: o.i.hit(r), Err: err})
	return r, err
}

// counted makes a call on counters that is not refused.
func (o *Owner) counted(call, path string, inner func() error) error {
	if _, err := o.refused(call, path); err != nil {
		return err
	}
	return inner()
}

// Supported asks about one event; see linux.CounterOpener.
func (p *Opener) Supported(e perf.Event) error {
	return p.o.counted("ask", "", func() error { return p.CounterOpener.Supported(e) })
}

// Fit asks about several events; see linux.CounterOpener.
func (p *Opener) Fit(cpu int, events []perf.Event) error {
	return p.o.counted("ask", "", func() error { return p.CounterOpener.Fit(cpu, events) })
}

// OpenCgroup opens counters; see linux.CounterOpener.
func (p *Opener) OpenCgroup(dir string, inode uint64, cpus []int, events []perf.Event) (linux.CgroupCounters, error) {
	if _, err := p.o.refused("open", dir); err != nil {
		return nil, err
	}
	c, err := p.CounterOpener.OpenCgroup(dir, inode, cpus, events)
	if err != nil {
		return nil, err
	}
	return &counters{c, dir, p.o}, nil
}

// counters are one cgroup's, with faults.
type counters struct {
	linux.CgroupCounters
	path string
	o    *Owner
}

func (c *counters) Enable() error { return c.o.counted("enable", c.path, c.CgroupCounters.Enable) }

func (c *counters) Disable() error { return c.o.counted("disable", c.path, c.CgroupCounters.Disable) }

// Read reads the counts; Back and Jump befall all of them, as when counters are opened
// anew or a virtual machine moves to another host.
func (c *counters) Read(out []perf.Count) error {
	r, err := c.o.refused("read", c.path)
	if err != nil {
		return err
	}
	if err := c.CgroupCounters.Read(out); err != nil || r == nil {
		return err
	}
	for i := range out {
		n := &out[i]
		switch r.Kind {
		case Back:
			n.Raw, n.EstimateRaw = n.Raw/2, n.EstimateRaw/2
		case Jump:
			n.Raw, n.EstimateRaw = n.Raw+jump, n.EstimateRaw+jump
		default:
			return nil
		}
	}
	c.o.i.notice(&Event{Who: c.o.name, Op: Count, Path: c.path, Data: "read", Fault: c.o.i.hit(r)})
	return nil
}
