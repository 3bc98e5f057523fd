package scenario

import (
	"fmt"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin/machine"
)

// What the agent's holds do to the players, and what they do about them.

// watch takes in what became of the agent's writes. A cap is what a Hold writes, and ends with
// what comes next on the same knob.
func (r *runner) watch(changes []model.Change, results []model.Result) error {
	for _, c := range changes {
		r.asked[c.Seq] = c
		if i, ok := r.byNum[c.Task()]; ok && c.Kind == model.Disown {
			if r.players[i].heldOn == c.Value.Knob {
				r.release(i)
			}
			if givesWay(c.Value.Knob) {
				r.demote(i, false)
			}
		}
	}
	for k := range results {
		res := &results[k]
		c, ok := r.asked[res.Seq]
		if !ok {
			return fmt.Errorf("%+v answers nothing that was asked", *res)
		}
		delete(r.asked, res.Seq)
		i, ok := r.byNum[res.Task()]
		if !ok {
			continue
		}
		r.story.wrote(res)
		same := r.players[i].heldOn == c.Value.Knob
		if res.Kind == model.Vanished || givesWay(c.Value.Knob) && (res.Kind == model.Applied || res.Kind == model.Foreign) {
			r.demote(i, res.Kind == model.Applied && c.Kind == model.Hold)
		}
		switch {
		case res.Kind == model.Vanished, res.Kind == model.Foreign && same:
			r.release(i)
		case res.Kind != model.Applied:
		case c.Kind == model.Hold && c.Value.Knob.Spec().CPUs == nil: // demoted: it is no cap
		case c.Kind == model.Hold:
			r.hold(i, c.Value.Knob)
		case same:
			if err := r.afterCap(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// hold begins a cap.
func (r *runner) hold(i int, knob model.KnobKind) {
	pl := &r.players[i]
	if pl.held || !pl.alive {
		return
	}
	r.beat()
	pl.held, pl.heldOn = true, knob
	pl.caps++
	r.meters.holdFrom(i, r.m.NowNsec())
	o := r.plan.Scenario.Tasks[pl.entry].OnCap
	if o == nil || o.Do != doQuit || pl.caps < o.After {
		return
	}
	nth := pl.caps
	r.agenda.note(r.m.NowNsec()+int64(o.Wait), orderEvent, func() error {
		if !pl.held || pl.caps != nth {
			return nil
		}
		r.story.say(r, fmt.Sprintf("%s quits under its cap", pl.name))
		return r.stop(i)
	})
}

// givesWay reports whether a hold on a kind of knob is no cap on CPU but a place behind others.
func givesWay(kind model.KnobKind) bool {
	spec := kind.Spec()
	return spec.CPUs == nil && len(spec.Takes[model.ClaimCap]) > 0
}

// demote notes that a task gives way to everybody from now on, or does no more.
func (r *runner) demote(i int, on bool) {
	pl, now := &r.players[i], r.m.NowNsec()
	switch {
	case on && pl.yields < 0 && pl.alive:
		pl.yields = now
	case !on && pl.yields >= 0:
		r.meters.series.demoted(i, pl.yields, now)
		pl.yields = -1
	}
}

// release notes the end of a cap.
func (r *runner) release(i int) {
	pl := &r.players[i]
	if !pl.held {
		return
	}
	r.beat()
	pl.held = false
	r.meters.holdTo(i, r.m.NowNsec())
}

// afterCap is release for a task that is free again: it may need time to recover.
func (r *runner) afterCap(i int) error {
	pl := &r.players[i]
	held := pl.held
	r.release(i)
	o := r.plan.Scenario.Tasks[pl.entry].OnCap
	if !held || !pl.alive || o == nil || o.Do != doLameDuck || pl.caps < o.After {
		return nil
	}
	duck := pl.cfg
	duck.Work = &machine.Work{Phases: []machine.Phase{{Nsec: int64(maxDuration), CPUs: o.CPUs}}}
	if err := r.m.Become(pl.num, duck); err != nil {
		return err
	}
	r.story.say(r, fmt.Sprintf("%s is a lame duck for %s", pl.name, o.For))
	pl.spell++
	spell, num := pl.spell, pl.num
	r.agenda.note(r.m.NowNsec()+int64(o.For), orderEvent, func() error {
		if pl.spell != spell || !pl.alive || pl.num != num {
			return nil
		}
		return r.m.Become(pl.num, pl.cfg)
	})
	return nil
}

// restart kills the agent: its guardian puts back what it held, and after a while a new
// one starts.
func (r *runner) restart(down time.Duration) error {
	if err := r.agent.Close(); err != nil { // what a dead agent had open is the kernel's to close
		return err
	}
	if err := r.stopAgent(r.bed.Guard); err != nil {
		return err
	}
	r.story.say(r, "the agent is killed")
	r.down = true
	r.agenda.note(r.m.NowNsec()+int64(down), orderEvent, func() error {
		r.byNum, r.asked = map[model.TaskNum]int{}, map[uint64]model.Change{}
		r.life++
		r.story.say(r, "the agent starts")
		return r.startAgent()
	})
	return nil
}

// stopAgent ends the agent in one of two ways, of which both put back everything that is
// still its own.
func (r *runner) stopAgent(how func() (node.Report, error)) error {
	if r.down {
		return nil
	}
	rep, err := how()
	if err != nil {
		return err
	}
	for k := range rep.Items {
		if rep.Items[k].Kind == node.NotRestored {
			r.story.say(r, fmt.Sprintf("%s could not be restored: %s", rep.Items[k].Path, rep.Items[k].Error))
		}
	}
	for i := range r.players {
		r.release(i)
		r.demote(i, false)
	}
	return nil
}

// asFound says whether every knob is as the world set it, and whose is not.
func (r *runner) asFound() (ok bool, who string) {
	for i := range r.players {
		pl := &r.players[i]
		for kind := range model.OfTasks {
			if !pl.alive {
				continue
			}
			v, err := r.bed.Setting(pl.task.Path, kind)
			want := pl.found[kind]
			if v.CPUs, want.CPUs = r.online(v.CPUs), r.online(want.CPUs); err != nil || v != want {
				return false, pl.name + " in " + kind.String()
			}
		}
	}
	return true, ""
}

// online are the CPUs on which a task runs that is restricted to some, or to none. Lists that
// lost CPUs that went offline, as on cgroup v1, come to the same.
func (r *runner) online(cpus model.CPUSet) model.CPUSet {
	if there := cpus.And(r.m.Online()); !there.Empty() {
		return there
	}
	return r.m.Online()
}
