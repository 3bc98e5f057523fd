package scenario

import (
	"errors"
	"math"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// do lets an event happen. What it changes of a task that is not running holds from its
// start on.
func (r *runner) do(e *Event) error {
	switch {
	case e.Start != nil:
		return r.each(e.Start, r.start)
	case e.Stop != nil:
		return r.each(e.Stop, r.stop)
	case e.Rate != nil, e.Diurnal != nil:
		return r.doLoad(e)
	case e.Become != nil:
		return r.each(Names{e.Become.Task}, func(i int) error { return r.become(i, e.Become) })
	case e.Ways != nil:
		return r.setWays(e.Ways.Group, e.Ways.Mask)
	case e.MBA != nil:
		return r.setMBA(e.MBA.Group, e.MBA.Percent)
	case e.Move != nil:
		return r.each(Names{e.Move.Task}, func(i int) error {
			r.players[i].group = e.Move.Group
			return r.live(i, func(num int) error { return r.m.SetCLOS(num, r.clos[e.Move.Group]) })
		})
	case e.Restart != nil:
		if r.down {
			return nil
		}
		return r.restart(e.Restart.Down)
	case e.Kill != nil:
		r.kill = *e.Kill
		return nil
	case e.Operator != nil:
		return r.operate(e.Operator)
	}
	return r.doKnob(e)
}

// each calls f for every player that a list names.
func (r *runner) each(names Names, f func(i int) error) error {
	for _, name := range names {
		for _, i := range r.plan.find(name) {
			if err := f(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// live calls f with the machine's number of a player that runs.
func (r *runner) live(i int, f func(num int) error) error {
	if !r.players[i].alive {
		return nil
	}
	return f(r.players[i].num)
}

// doKnob writes what an administrator or another program writes, or breaks something.
func (r *runner) doKnob(e *Event) error {
	switch {
	case e.CPUMax != nil:
		v, err := r.plan.limit("cpu_max", &e.CPUMax.CPUMax)
		if err != nil {
			return err
		}
		return r.each(Names{e.CPUMax.Task}, func(i int) error {
			r.players[i].limit = v
			return r.live(i, func(int) error {
				return errors.Join(r.bed.Stranger(r.players[i].task.Path, v), r.find(i, model.CPUBandwidth))
			})
		})
	case e.Shares != nil:
		return r.each(Names{e.Shares.Task}, func(i int) error {
			r.players[i].cfg.Shares = e.Shares.Shares
			return r.live(i, func(int) error {
				return errors.Join(r.bed.SetShares(r.players[i].task.Path, e.Shares.Shares), r.find(i, model.CPUWeight))
			})
		})
	case e.Idle != nil:
		return r.each(Names{e.Idle.Task}, func(i int) error {
			r.players[i].idle = e.Idle.Idle
			return r.live(i, func(int) error {
				return errors.Join(r.bed.SetIdle(r.players[i].task.Path, e.Idle.Idle), r.find(i, model.CPUWeight))
			})
		})
	case e.CPUs != nil:
		set, _ := model.ParseCPUSet(e.CPUs.CPUs) // checked
		return r.each(Names{e.CPUs.Task}, func(i int) error {
			r.players[i].cfg.CPUs = set
			return r.live(i, func(int) error {
				return errors.Join(r.bed.SetCPUs(r.players[i].task.Path, set), r.find(i, model.CPUPlace))
			})
		})
	case e.Pages != nil:
		return r.each(Names{e.Pages.Task}, func(i int) error {
			nodes := make([]float64, r.plan.machine.Sockets)
			copy(nodes, e.Pages.Nodes)
			r.players[i].cfg.Pages = nodes
			return r.live(i, func(num int) error { return r.m.SetPages(num, nodes) })
		})
	case e.Offline != "":
		return r.switchCPUs(e.Offline, false)
	case e.Online != "":
		return r.switchCPUs(e.Online, true)
	case e.Disk != nil:
		return r.m.SetDisk(float64(e.Disk.Bandwidth), e.Disk.Ops)
	case e.SoftIRQ != nil:
		return r.take(machine.SoftIRQ, e.SoftIRQ)
	case e.Steal != nil:
		return r.take(machine.Steal, e.Steal)
	case e.Lose != nil:
		return r.faulty(e.Lose.Task, int64(e.Lose.For), r.bed.LoseCounters)
	case e.Refuse != nil:
		return r.faulty(e.Refuse.Task, int64(e.Refuse.For), func(path string, on bool) error {
			if !on {
				return r.bed.Refuse(path, "")
			}
			return r.bed.Refuse(path, e.Refuse.Error)
		})
	}
	return nil
}

// faulty switches a fault on, and off again after a time.
func (r *runner) faulty(task string, lasts int64, set func(path string, on bool) error) error {
	apply := func(on bool) error {
		for i := range r.players {
			pl := &r.players[i]
			if pl.alive && (task == "" || r.names(Names{task}, i)) {
				if err := set(pl.task.Path, on); err != nil {
					return err
				}
			}
		}
		return nil
	}
	r.agenda.note(r.m.NowNsec()+lasts, orderEvent, func() error { return apply(false) })
	return apply(true)
}

func (r *runner) switchCPUs(list string, online bool) error {
	set, _ := model.ParseCPUSet(list) // checked
	for cpu := range r.plan.machine.CPUs() {
		if set.Has(cpu) {
			if err := r.bed.SetOnline(cpu, online); err != nil {
				return err
			}
		}
	}
	return nil
}

// take has CPUs taken, of all where none are named.
func (r *runner) take(by machine.Taker, k *Taken) error {
	set, _ := model.ParseCPUSet(k.CPUs) // checked
	if set.Empty() {
		set = model.FullSet(r.plan.machine.CPUs())
	}
	return r.m.Take(by, set, k.Share)
}

// become changes what a player's instructions are like.
func (r *runner) become(i int, b *Become) error {
	pl := &r.players[i]
	if b.written() {
		if err := r.plan.behave(b.at, &b.Behaviour, &pl.cfg); err != nil {
			return err
		}
	}
	if len(b.Phases) > 0 {
		w, err := r.plan.work(b.at+".phases", b.Phases)
		if err != nil {
			return err
		}
		pl.cfg.Work = w
	}
	pl.spell++
	return r.live(i, func(num int) error { return r.m.Become(num, pl.cfg) })
}

// driveEvery is how often a rate that changes all the time is set anew.
const driveEvery = int64(1e9)

// doLoad changes how many requests come.
func (r *runner) doLoad(e *Event) error {
	now := r.m.NowNsec()
	if e.Rate != nil {
		return r.each(Names{e.Rate.Task}, func(i int) error {
			from, over := r.rate(i, now), int64(e.Rate.Over)
			return r.load(i, func(at int64) float64 {
				if at-now >= over {
					return e.Rate.To
				}
				return from + (e.Rate.To-from)*float64(at-now)/float64(over)
			})
		})
	}
	d := e.Diurnal
	return r.each(Names{d.Task}, func(i int) error {
		return r.load(i, func(at int64) float64 {
			turn := float64(at-now-int64(d.Peak)) / float64(d.Period)
			return d.Mean * (1 + d.Amplitude*math.Cos(2*math.Pi*turn))
		})
	})
}

// rate returns how many requests a second come to a player.
func (r *runner) rate(i int, at int64) float64 {
	pl := &r.players[i]
	switch {
	case pl.cfg.Requests == nil:
		return 0
	case pl.drive != nil:
		return pl.drive(at)
	}
	return pl.cfg.Requests.PerSecond
}

// load gives a player another rate from now on.
func (r *runner) load(i int, drive func(at int64) float64) error {
	pl := &r.players[i]
	if pl.drive == nil {
		r.agenda.note(r.m.NowNsec()+driveEvery, orderEvent, func() error { return r.steer(i, r.m.NowNsec()) })
	}
	pl.drive = drive
	return r.setRate(i)
}

// steer sets a player's rate every second.
func (r *runner) steer(i int, at int64) error {
	r.agenda.note(at+driveEvery, orderEvent, func() error { return r.steer(i, at+driveEvery) })
	return r.setRate(i)
}

// setRate sets the rate where it is another than before: a new rate draws the next
// arrival anew.
func (r *runner) setRate(i int) error {
	pl := &r.players[i]
	rate := r.rate(i, r.m.NowNsec())
	if rate == pl.last && pl.alive {
		return nil
	}
	pl.last = rate
	return r.live(i, func(num int) error { return r.m.SetRate(num, rate) })
}
