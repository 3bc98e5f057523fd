package fault

import (
	"fmt"

	"github.com/commensal-io/commensal/kernel/schedwait"
	"github.com/commensal-io/commensal/node/linux"
)

// Waits is a source of waits with faults.
type Waits struct {
	linux.WaitSource
	o *Owner
}

// Waits opens a source for this life. Fail fails any call, also this one, the path being "waits "
// and the call's name; of a reading Short takes half of what is known of who ran, as when there is no
// room for it, Vanish nine waits of ten, Back half of the events, and Jump makes the switches so many that not every window can be measured.
func (o *Owner) Waits(open func() linux.WaitSource) (*Waits, error) {
	if _, err := o.trace("open"); err != nil {
		return nil, err
	}
	return &Waits{open(), o}, nil
}

// trace draws a fault for a call.
func (o *Owner) trace(call string) (*Rule, error) {
	if o.Killed() {
		return nil, fmt.Errorf("schedwait: %s: %w", call, ErrKilled)
	}
	r := o.i.draw(Trace, "waits "+call)
	if r == nil || r.Kind != Fail {
		return r, nil
	}
	err := fmt.Errorf("schedwait: %s: %w", call, errnoOf(r))
	o.i.notice(&Event{Who: o.name, Op: Trace, Path: "waits " + call, Fault: o.i.hit(r), Err: err})
	return r, err
}

// traced makes a call that is not refused.
func (o *Owner) traced(call string, inner func() error) error {
	if _, err := o.trace(call); err != nil {
		return err
	}
	return inner()
}

// SetGroups implements linux.WaitSource.
func (w *Waits) SetGroups(groups []schedwait.Group) error {
	return w.o.traced("groups", func() error { return w.WaitSource.SetGroups(groups) })
}

// Start implements linux.WaitSource.
func (w *Waits) Start() error { return w.o.traced("start", w.WaitSource.Start) }

// Stop implements linux.WaitSource.
func (w *Waits) Stop() error { return w.o.traced("stop", w.WaitSource.Stop) }

// Read implements linux.WaitSource.
func (w *Waits) Read(r *schedwait.Reading, monoNsec int64) error {
	rule, err := w.o.trace("read")
	if err != nil {
		return err
	}
	if err := w.WaitSource.Read(r, monoNsec); err != nil || rule == nil {
		return err
	}
	switch rule.Kind {
	case Short:
		for i := range r.Tasks {
			forget(&r.Tasks[i], &r.Lost)
		}
	case Vanish:
		for i := range r.Tasks {
			t := &r.Tasks[i]
			t.NotTaken += 1 + 9*(t.Count[0]+t.Count[1])
			r.Lost.Waits += t.NotTaken
		}
	case Back:
		r.Lost.Events += r.Switches
	case Jump:
		r.Switches += manySwitches
	default:
		return nil
	}
	w.o.i.notice(&Event{Who: w.o.name, Op: Trace, Path: "waits read", Fault: w.o.i.hit(rule)})
	return nil
}

// manySwitches in a second cost more than a hundredth of up to twenty CPUs.
const manySwitches = 500_000

// forget leaves the larger half of a task's shares and charges the rest to nobody.
func forget(t *schedwait.Waits, lost *schedwait.Lost) {
	kept := (len(t.Shares) + 1) / 2
	rest := int64(0)
	for _, x := range t.Shares[kept:] {
		rest += x.Nsec
		lost.Rows++
	}
	t.Shares = t.Shares[:kept]
	if rest > 0 {
		t.Shares = append(t.Shares, schedwait.Share{Party: schedwait.Unknown, Nsec: rest})
	}
}
