package scenario

import (
	"fmt"
	"math"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin/machine"
)

// runner plays one plan once.
type runner struct {
	plan    *Plan
	config  config.Config // of the agent, as this run has it
	bed     Bed
	m       *machine.Machine
	agent   *agent.Loop
	down    bool // the agent is not running
	life    int  // of the agent, from 0
	kill    bool // the kill switch is there
	players []player
	byNum   map[model.TaskNum]int
	asked   map[uint64]model.Change // of changes without a result
	clos    map[string]int          // CLOS of each group
	agenda  agenda
	meters  meters
	story   story
}

// player is an actor as it stands.
type player struct {
	*actor
	cfg   machine.TaskConfig            // as changed by events
	limit model.CPUMax                  // as the world wants it
	found [model.NumKnobs]model.Setting // knobs as the world set them last
	idle  bool
	group string

	alive bool
	num   int // on the machine
	since int64
	lives []int64                 // when each began
	drive func(now int64) float64 // rate of requests; nil: steady

	held   bool
	heldOn model.KnobKind // with which knob, while it is held
	yields int64          // since when it is demoted; -1: it is not
	caps   int
	spell  int     // counts changes that a timer must not undo
	last   float64 // rate that was set by load
}

// noLimit is what a cgroup has before anybody writes it.
var noLimit = model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}

// Play plays the plan.
func (p *Plan) Play(bed NewBed) (*Run, error) { return p.play(bed, p.config) }

// PlayOff plays the plan with all policies off: what the others are compared with.
func (p *Plan) PlayOff(bed NewBed) (*Run, error) {
	c := p.config
	c.Policies.SetModes(model.ModeOff)
	return p.play(bed, c)
}

func (p *Plan) play(newBed NewBed, c config.Config) (*Run, error) {
	bed, err := newBed(p, p.Scenario.Seed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Scenario.Name, err)
	}
	r := &runner{
		plan: p, config: c, bed: bed, m: bed.Machine(), byNum: map[model.TaskNum]int{}, asked: map[uint64]model.Change{}, clos: map[string]int{defaultGroup: 0},
	}
	r.cast()
	r.meters.init(r)
	r.schedule()
	if err := r.startAgent(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Scenario.Name, err)
	}
	defer func() { _ = r.agent.Close() }() // a simulated machine leaves nothing behind
	if err := r.run(int64(p.Scenario.Duration)); err != nil {
		return nil, fmt.Errorf("%s: at %s: %w", p.Scenario.Name, time.Duration(r.m.NowNsec()), err)
	}
	return r.result()
}

// run lets the agenda happen until the end.
func (r *runner) run(end int64) error {
	for {
		it, ok := r.agenda.take()
		if !ok || it.at > end || it.at == end && it.order > orderSample {
			break
		}
		if it.at > r.m.NowNsec() {
			r.m.Advance(it.at - r.m.NowNsec())
		}
		if err := it.do(); err != nil {
			return err
		}
	}
	if end > r.m.NowNsec() {
		r.m.Advance(end - r.m.NowNsec())
	}
	r.beat()
	return r.stopAgent(func() (node.Report, error) { return r.agent.Host.Restore() })
}

// cast makes the players.
func (r *runner) cast() {
	for i := range r.plan.actors {
		a := &r.plan.actors[i]
		t := &r.plan.Scenario.Tasks[a.entry]
		pl := player{actor: a, cfg: a.cfg, limit: noLimit, idle: t.Idle, group: defaultGroup}
		if a.group >= 0 {
			g := &r.plan.Scenario.Control[a.group]
			pl.group = g.Name
			if g.CPUs != "" && t.CPUs == "" {
				pl.cfg.CPUs, _ = model.ParseCPUSet(g.CPUs)
			}
			if g.Shares != 0 && t.Shares == 0 {
				pl.cfg.Shares = g.Shares
			}
			if g.CPUMax != nil {
				pl.limit, _ = r.plan.limit("", g.CPUMax)
			}
		}
		if t.CPUMax != nil {
			pl.limit, _ = r.plan.limit("", t.CPUMax)
		}
		r.players = append(r.players, pl)
	}
}

// schedule puts on the agenda what the file says.
func (r *runner) schedule() {
	s := r.plan.Scenario
	r.agenda.note(0, orderStart, r.openGroups)
	for i := range r.players {
		t := &s.Tasks[r.players[i].entry]
		if r.startsByEvent(i) {
			continue
		}
		order := orderEvent
		if t.Start == 0 {
			order = orderStart
		}
		r.agenda.note(int64(t.Start), order, func() error { return r.start(i) })
		if t.Stop > 0 {
			r.agenda.note(int64(t.Stop), orderEvent, func() error { return r.stop(i) })
		}
	}
	for i := range s.Timeline {
		r.scheduleEvent(i, int64(s.Timeline[i].At))
	}
	r.meters.schedule(r)
}

// startsByEvent: a task whose first event is a start is not there before.
func (r *runner) startsByEvent(i int) bool {
	s := r.plan.Scenario
	pl := &r.players[i]
	if r.plan.doc.Has(fmt.Sprintf("tasks[%d].start", pl.entry)) {
		return false
	}
	first, starts := time.Duration(math.MaxInt64), false
	for k := range s.Timeline {
		e := &s.Timeline[k]
		if e.At >= first {
			continue
		}
		if r.names(e.Start, i) {
			first, starts = e.At, true
		} else if r.names(e.Stop, i) {
			first, starts = e.At, false
		}
	}
	return starts
}

// names says whether a list names a player.
func (r *runner) names(list Names, i int) bool {
	for _, name := range list {
		for _, k := range r.plan.find(name) {
			if k == i {
				return true
			}
		}
	}
	return false
}

func (r *runner) scheduleEvent(i int, at int64) {
	e := &r.plan.Scenario.Timeline[i]
	r.agenda.note(at, orderEvent, func() error {
		if next := at + int64(e.Every); e.Every > 0 && next <= int64(e.Until) {
			r.scheduleEvent(i, next)
		}
		if err := r.do(e); err != nil {
			return fmt.Errorf("line %d: timeline[%d]: %w", r.plan.doc.Line(fmt.Sprintf("timeline[%d]", i)), i, err)
		}
		return nil
	})
}

// openGroups makes the groups' classes of service.
func (r *runner) openGroups() error {
	for i := range r.plan.Scenario.Control {
		g := &r.plan.Scenario.Control[i]
		if g.Name != defaultGroup {
			r.clos[g.Name] = r.m.AddCLOS()
		}
		if err := r.setWays(g.Name, g.Ways); err != nil {
			return err
		}
		if err := r.setMBA(g.Name, g.MBA); err != nil {
			return err
		}
	}
	return nil
}

// setWays writes a group's masks; none leaves them.
func (r *runner) setWays(group string, masks Masks) error {
	for s := range r.plan.machine.Caches() {
		if len(masks) == 0 {
			break
		}
		if err := r.m.SetWays(r.clos[group], s, masks[min(s, len(masks)-1)]); err != nil {
			return err
		}
	}
	return nil
}

// setMBA writes a group's levels; none leaves them.
func (r *runner) setMBA(group string, levels Levels) error {
	for s := range r.plan.machine.Caches() {
		if len(levels) == 0 {
			break
		}
		if err := r.m.SetMBA(r.clos[group], s, levels[min(s, len(levels)-1)]); err != nil {
			return err
		}
	}
	return nil
}

// start starts a player as it is set up now.
func (r *runner) start(i int) error {
	pl := &r.players[i]
	if pl.alive {
		return nil
	}
	r.beat()
	cfg := pl.cfg
	if pl.drive != nil {
		rate := *cfg.Requests
		rate.PerSecond = pl.drive(r.m.NowNsec())
		cfg.Requests = &rate
	}
	num, err := r.bed.Start(pl.task, cfg)
	if err != nil {
		return err
	}
	pl.alive, pl.num, pl.since, pl.held, pl.yields = true, num, r.m.NowNsec(), false, -1
	pl.lives = append(pl.lives, pl.since)
	if pl.limit != noLimit {
		if err := r.bed.Stranger(pl.task.Path, pl.limit); err != nil {
			return err
		}
	}
	if pl.idle {
		if err := r.bed.SetIdle(pl.task.Path, true); err != nil {
			return err
		}
	}
	if err := r.m.SetCLOS(num, r.clos[pl.group]); err != nil {
		return err
	}
	for kind := range model.OfTasks {
		if err := r.find(i, kind); err != nil {
			return err
		}
	}
	return nil
}

// find reads a knob as the world has just set it.
func (r *runner) find(i int, kind model.KnobKind) (err error) {
	pl := &r.players[i]
	pl.found[kind], err = r.bed.Setting(pl.task.Path, kind)
	return err
}

// stop ends a player.
func (r *runner) stop(i int) error {
	pl := &r.players[i]
	if !pl.alive {
		return nil
	}
	r.beat()
	r.meters.bury(r, i)
	r.release(i)
	pl.alive = false
	return r.bed.Stop(pl.task.Path)
}

// meet learns by which number the agent knows a player.
func (r *runner) meet(t *model.Task) {
	for i := range r.players {
		if r.players[i].task.Path == t.Path {
			r.byNum[t.Num] = i
		}
	}
}
