package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// action is what an event does, with its key.
type action struct {
	key     string
	written bool
	check   func(key string, e *Event) error
}

// actions lists what an event can do.
func (p *Plan) actions(e *Event) []action {
	return []action{
		{"start", e.Start != nil, p.checkStart}, {"stop", e.Stop != nil, p.checkStop},
		{"rate", e.Rate != nil, p.checkRate}, {"diurnal", e.Diurnal != nil, p.checkDiurnal},
		{"become", e.Become != nil, p.checkBecome}, {"ways", e.Ways != nil, p.checkWays}, {"mba", e.MBA != nil, p.checkMBA},
		{"move", e.Move != nil, p.checkMove}, {"cpu_max", e.CPUMax != nil, p.checkCPUMax},
		{"shares", e.Shares != nil, p.checkSharesWrite}, {"idle", e.Idle != nil, p.checkIdle},
		{"cpus", e.CPUs != nil, p.checkCPUs}, {"pages", e.Pages != nil, p.checkPagesWrite},
		{"offline", e.Offline != "", p.checkOffline}, {"online", e.Online != "", p.checkOnline},
		{"disk", e.Disk != nil, p.checkDisk},
		{"softirq", e.SoftIRQ != nil, func(key string, e *Event) error { return p.checkTaken(key, e.SoftIRQ) }},
		{"steal", e.Steal != nil, func(key string, e *Event) error { return p.checkTaken(key, e.Steal) }},
		{"lose_counters", e.Lose != nil, p.checkLose}, {"refuse_writes", e.Refuse != nil, p.checkRefuse},
		{"restart_agent", e.Restart != nil, p.checkRestart},
		{"kill_switch", e.Kill != nil, func(string, *Event) error { return nil }},
		{"operator", e.Operator != nil, p.checkOperator},
	}
}

// checkTimeline checks what happens.
func (p *Plan) checkTimeline() error {
	for i := range p.Scenario.Timeline {
		e := &p.Scenario.Timeline[i]
		at := fmt.Sprintf("timeline[%d]", i)
		if !p.doc.Has(at + ".at") {
			return p.doc.Errorf(at+".at", "is missing; expected when it happens")
		}
		if err := p.checkTimes(at, e); err != nil {
			return err
		}
		var found []action
		for _, a := range p.actions(e) {
			if a.written {
				found = append(found, a)
			}
		}
		switch len(found) {
		case 0:
			return p.doc.Errorf(at, "does nothing; expected one of the actions such as start, rate or ways")
		case 1:
		default:
			return p.doc.Errorf(at, "does %s and %s; expected one action, and a second event for the other", found[0].key, found[1].key)
		}
		if err := found[0].check(at+"."+found[0].key, e); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) checkTimes(at string, e *Event) error {
	if err := p.within(at+".at", e.At); err != nil {
		return err
	}
	if e.Every == 0 {
		if e.Until != 0 {
			return p.doc.Errorf(at+".until", "is of no use without every")
		}
		return nil
	}
	if e.Every < 0 {
		return p.doc.Errorf(at+".every", "is %s; expected a time to the next one", e.Every)
	}
	if err := p.onGrid(at+".every", e.Every); err != nil {
		return err
	}
	if e.Until == 0 {
		e.Until = p.Scenario.Duration
	}
	if err := p.within(at+".until", e.Until); err != nil {
		return err
	}
	if e.Until < e.At {
		return p.doc.Errorf(at+".until", "is %s, before its first time at %s", e.Until, e.At)
	}
	if n := (e.Until - e.At) / e.Every; n > maxRepeats {
		return p.doc.Errorf(at+".every", "makes it happen %d times; expected at most %d", n, maxRepeats)
	}
	return nil
}

func (p *Plan) checkStart(key string, e *Event) error { return p.checkNamesOf(key, e.Start) }
func (p *Plan) checkStop(key string, e *Event) error  { return p.checkNamesOf(key, e.Stop) }

func (p *Plan) checkNamesOf(key string, names Names) error {
	for _, name := range names {
		if _, err := p.targets(key, name); err != nil {
			return err
		}
	}
	return nil
}

// serving checks that a name is of tasks with requests.
func (p *Plan) serving(key, name string) error {
	found, err := p.targets(key, name)
	if err != nil {
		return err
	}
	if p.actors[found[0]].cfg.Requests == nil {
		return p.doc.Errorf(key, "is %q, which has no requests", short(name))
	}
	return nil
}

func (p *Plan) checkRate(key string, e *Event) error {
	r := e.Rate
	if err := p.serving(key+".task", r.Task); err != nil {
		return err
	}
	if !p.doc.Has(key+".to") || !(r.To >= 0 && r.To <= maxRate) {
		return p.doc.Errorf(key+".to", "is %g; expected 0 to %g requests per second", r.To, maxRate)
	}
	if r.Over < 0 || r.Over > p.Scenario.Duration {
		return p.doc.Errorf(key+".over", "is %s; expected 0s to the scenario's duration", r.Over)
	}
	return nil
}

func (p *Plan) checkDiurnal(key string, e *Event) error {
	d := e.Diurnal
	if err := p.serving(key+".task", d.Task); err != nil {
		return err
	}
	switch {
	case !(d.Mean >= 0 && d.Mean <= maxRate/2):
		return p.doc.Errorf(key+".mean", "is %g; expected 0 to %g requests per second", d.Mean, maxRate/2)
	case !(d.Amplitude >= 0 && d.Amplitude <= 1):
		return p.doc.Errorf(key+".amplitude", "is %g; expected a share of the mean from 0 to 1", d.Amplitude)
	case d.Period < time.Second || d.Period > maxDuration:
		return p.doc.Errorf(key+".period", "is %s; expected at least 1s", d.Period)
	case d.Peak < 0 || d.Peak > d.Period:
		return p.doc.Errorf(key+".peak", "is %s; expected 0s to the period, %s", d.Peak, d.Period)
	}
	return nil
}

func (p *Plan) checkBecome(key string, e *Event) error {
	b := e.Become
	b.at = key
	found, err := p.targets(key+".task", b.Task)
	if err != nil {
		return err
	}
	cfg := p.actors[found[0]].cfg
	if b.written() {
		if err := p.behave(key, &b.Behaviour, &cfg); err != nil {
			return err
		}
	}
	if len(b.Phases) > 0 {
		if cfg.Requests != nil {
			return p.doc.Errorf(key+".phases", "%s has requests, not work", b.Task)
		}
		if cfg.Work, err = p.work(key+".phases", b.Phases); err != nil {
			return err
		}
	}
	if !b.written() && len(b.Phases) == 0 {
		return p.doc.Errorf(key, "changes nothing; expected a program, values of one, or phases")
	}
	return p.possible(key, &cfg)
}

func (p *Plan) checkWays(key string, e *Event) error {
	if err := p.group(key+".group", e.Ways.Group); err != nil {
		return err
	}
	if len(e.Ways.Mask) == 0 {
		return p.doc.Errorf(key+".mask", "is missing; expected a mask such as 0x3")
	}
	return p.checkMasks(key+".mask", e.Ways.Mask)
}

func (p *Plan) checkMBA(key string, e *Event) error {
	if err := p.group(key+".group", e.MBA.Group); err != nil {
		return err
	}
	if len(e.MBA.Percent) == 0 {
		return p.doc.Errorf(key+".percent", "is missing; expected 10 to 100")
	}
	return p.checkLevels(key+".percent", e.MBA.Percent)
}

func (p *Plan) checkMove(key string, e *Event) error {
	if _, err := p.targets(key+".task", e.Move.Task); err != nil {
		return err
	}
	return p.group(key+".group", e.Move.Group)
}

func (p *Plan) checkCPUMax(key string, e *Event) error {
	if _, err := p.targets(key+".task", e.CPUMax.Task); err != nil {
		return err
	}
	_, err := p.limit(key, &e.CPUMax.CPUMax)
	return err
}

func (p *Plan) checkSharesWrite(key string, e *Event) error {
	if _, err := p.targets(key+".task", e.Shares.Task); err != nil {
		return err
	}
	return p.checkShares(key+".shares", e.Shares.Shares, 2)
}

func (p *Plan) checkIdle(key string, e *Event) error {
	_, err := p.targets(key+".task", e.Idle.Task)
	return err
}

func (p *Plan) checkCPUs(key string, e *Event) error {
	if _, err := p.targets(key+".task", e.CPUs.Task); err != nil {
		return err
	}
	if e.CPUs.CPUs == "" {
		return p.doc.Errorf(key+".cpus", "is missing; expected a list of CPUs such as 0-3,8")
	}
	_, err := p.cpus(key+".cpus", e.CPUs.CPUs)
	return err
}

func (p *Plan) checkPagesWrite(key string, e *Event) error {
	if _, err := p.targets(key+".task", e.Pages.Task); err != nil {
		return err
	}
	if len(e.Pages.Nodes) == 0 {
		return p.doc.Errorf(key+".nodes", "is missing; expected the share of the pages on each node")
	}
	return p.checkPages(key+".nodes", e.Pages.Nodes)
}

func (p *Plan) checkOffline(key string, e *Event) error {
	set, err := p.cpus(key, e.Offline)
	if err != nil {
		return err
	}
	if set.Has(0) {
		return p.doc.Errorf(key, "is %q; the first CPU stays", short(e.Offline))
	}
	// A task whose CPUs are all gone would have nowhere to run.
	for i := range p.actors {
		left := p.actors[i].cfg.CPUs
		for cpu := range p.machine.CPUs() {
			if set.Has(cpu) {
				left.Remove(cpu)
			}
		}
		if own := p.actors[i].cfg.CPUs; own.Len() > 0 && left.Len() == 0 {
			return p.doc.Errorf(key, "is %q, all CPUs that %s may run on", short(e.Offline), p.actors[i].name)
		}
	}
	return nil
}

func (p *Plan) checkOnline(key string, e *Event) error {
	set, err := p.cpus(key, e.Online)
	if err == nil && set.Has(0) {
		err = p.doc.Errorf(key, "is %q; the first CPU is always there", short(e.Online))
	}
	return err
}

func (p *Plan) checkTaken(key string, k *Taken) error {
	if _, err := p.cpus(key+".cpus", k.CPUs); err != nil {
		return err
	}
	if !p.doc.Has(key+".share") || !(k.Share >= 0 && k.Share <= machine.MaxTaken) {
		return p.doc.Errorf(key+".share", "is %g; expected 0 to %g of the CPUs' time", k.Share, machine.MaxTaken)
	}
	return nil
}

func (p *Plan) checkDisk(key string, e *Event) error {
	switch {
	case p.machine.DiskBytes <= 0:
		return p.doc.Errorf(key, "changes a disk, and the machine has none (machine.disk_bandwidth, disk_ops)")
	case !(e.Disk.Bandwidth > 0 && e.Disk.Bandwidth <= 1e12):
		return p.doc.Errorf(key+".bandwidth", "is %g; expected bytes a second", float64(e.Disk.Bandwidth))
	case !(e.Disk.Ops > 0 && e.Disk.Ops <= 1e8):
		return p.doc.Errorf(key+".ops", "is %g; expected operations a second", e.Disk.Ops)
	}
	return nil
}

func (p *Plan) checkFault(key, task string, lasts time.Duration) error {
	if task != "" {
		if _, err := p.targets(key+".task", task); err != nil {
			return err
		}
	}
	if lasts <= 0 || lasts > p.Scenario.Duration {
		return p.doc.Errorf(key+".for", "is %s; expected how long it lasts", lasts)
	}
	return p.onGrid(key+".for", lasts)
}

func (p *Plan) checkLose(key string, e *Event) error {
	return p.checkFault(key, e.Lose.Task, e.Lose.For)
}

func (p *Plan) checkRefuse(key string, e *Event) error {
	if e.Refuse.Error == "" {
		e.Refuse.Error = "invalid argument"
	}
	return p.checkFault(key, e.Refuse.Task, e.Refuse.For)
}

func (p *Plan) checkRestart(key string, e *Event) error {
	if e.Restart.Down < 0 || e.Restart.Down > p.Scenario.Duration {
		return p.doc.Errorf(key+".down", "is %s; expected 0s to the scenario's duration", e.Restart.Down)
	}
	return p.onGrid(key+".down", e.Restart.Down)
}

func (p *Plan) checkOperator(key string, e *Event) error {
	o := e.Operator
	switch o.Do {
	case model.CommandCap, model.CommandDemote:
		if o.Do == model.CommandCap && !(o.CPUs >= 0.001 && o.CPUs <= maxCPUs) {
			return p.doc.Errorf(key+".cpus", "is %g; expected 0.001 to %d CPU-sec/sec", o.CPUs, maxCPUs)
		}
		if o.For <= 0 || o.For > maxDuration {
			return p.doc.Errorf(key+".for", "is %s; expected how long it stands", o.For)
		}
		fallthrough
	case model.CommandMovePages:
		if o.Node < 0 || o.Node >= p.machine.Sockets {
			return p.doc.Errorf(key+".node", "is %d; expected one of the machine's %d memory nodes", o.Node, p.machine.Sockets)
		}
		if !(o.Keep >= 0 && o.Keep <= 1) {
			return p.doc.Errorf(key+".keep", "is %g; expected a share of its pages, 0 to 1", o.Keep)
		}
		fallthrough
	case model.CommandUncap:
		_, err := p.targets(key+".task", o.Task)
		return err
	case model.CommandProtectOn, model.CommandProtectOff:
		if o.Job != "" && !p.hasJob(o.Job) {
			return p.doc.Errorf(key+".job", "is %q; expected the job of a task, or nothing for all", short(o.Job))
		}
		return nil
	}
	return p.doc.Errorf(key+".do", "is %q; expected %s, %s, %s, %s, %s or %s", short(o.Do),
		model.CommandCap, model.CommandDemote, model.CommandUncap, model.CommandMovePages, model.CommandProtectOn, model.CommandProtectOff)
}

func (p *Plan) hasJob(job string) bool {
	return slices.ContainsFunc(p.Scenario.Tasks, func(t Task) bool { return t.Job == job })
}
