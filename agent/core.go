package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
)

// Core is the agent without its process: one turn observes, steps, applies and records.
// Assemble makes one. It is not safe for concurrent use.
type Core struct {
	Host     node.Host
	Engine   *engine.Engine
	Clock    linux.Clock
	Warnings []string // what people should be told of the start

	cfg        *config.Config
	log        *slog.Logger
	record     Recorder // nil: nothing is recorded
	killSwitch func() bool
	protection func() *wire.Protection // of the fleet; nil: this node is of none
	closing    func() error
	decided    func(d *model.Decision) // is told of each; nil: nobody
	became     func(r *model.Result)   // likewise
	gather     *uplink.Gather          // of what goes up to the fleet's hub; nil: nothing

	counts   counts
	snap     model.Snapshot
	pulse    model.Pulse
	glance   glance
	looking  node.Looking // nil: the host reads memory with windows alone
	look     model.Look
	in       engine.Input
	results  []model.Result // that the next turn hands in
	commands []model.Command
	attrs    []slog.Attr // of a line of the log
	outages  []outage
	recent   []*model.Incident
	told     told
	protects *wire.Protection // what the engine was told of; nil: nothing
}

// Last returns the input of the last turn, and what became of the changes that it led to,
// which is part of the next one's. Both are good until then.
func (c *Core) Last() (in *engine.Input, results []model.Result) { return &c.in, c.results }

// GoOnWith hands what an earlier run had learned to the next turn.
func (c *Core) GoOnWith(r *engine.Restored) { c.in.Restored = r }

// Turn takes one turn: observe, step, apply, record, report. The output is good until the
// next.
func (c *Core) Turn(t cadence.Turn) *engine.Output {
	begin := c.Clock.MonoNsec()
	c.in.Seq++
	c.in.Snapshot, c.in.Pulse, c.in.Look = nil, nil, nil
	c.in.WallNsec = c.Clock.WallNsec()
	if t.Mark != 0 {
		if err := c.Host.Observe(t.Mark, &c.snap); err != nil {
			c.fail(failObserve, err)
		} else {
			c.well(failObserve)
			c.in.Snapshot = &c.snap
		}
	}
	if t.Pulse {
		c.takePulse()
	}
	if t.Look {
		c.looking.Look(&c.look)
		c.in.Look = &c.look
		c.counts.looks++
	}
	c.in.MonoNsec = c.Clock.MonoNsec()
	c.in.Knobs = c.in.Knobs[:0]
	if t.Compare {
		c.in.Knobs = c.Host.Knobs(c.in.Knobs)
	}
	c.in.Results, c.results = c.results, c.in.Results[:0]
	c.in.Results = c.Host.Results(c.in.Results) // what came since
	c.fleetProtects()
	c.in.Commands, c.commands = c.commands, c.in.Commands[:0]
	c.hear(t)
	c.in.KillSwitch = c.killSwitch != nil && c.killSwitch()
	if c.in.Seq == 1 {
		c.beginRecord()
	}
	out := c.Engine.Step(&c.in)
	c.Host.Apply(out.Changes) // first of all: somebody may wait for a CPU
	if t.Pulse {
		c.Engine.Watch(c.glance.busy)
	}
	c.recordTurn(out)
	c.in.Restored = nil // taken up
	c.results = c.Host.Results(c.results[:0])
	c.report(out)
	c.goesUp(out)
	c.counts.cycle(time.Duration(c.Clock.MonoNsec()-begin), t.Mark)
	return out
}

// LookDue returns when memory is to be read between windows, by the core's clock; math.MaxInt64: it is not.
func (c *Core) LookDue() int64 {
	if c.looking == nil {
		return math.MaxInt64
	}
	return c.Engine.LookDue()
}

// maxRecent bounds the incidents that are kept for `status`; the record has them all.
const maxRecent = 50

// report logs what was decided and keeps the latest incidents.
func (c *Core) report(out *engine.Output) {
	for i := range c.in.Results {
		if c.became != nil {
			c.became(&c.in.Results[i])
		}
	}
	for i := range out.Decisions {
		d := &out.Decisions[i]
		c.counts.decision(d)
		if c.decided != nil {
			c.decided(d)
		}
		level := slog.LevelInfo
		if d.Kind.Routine() {
			level = slog.LevelDebug
		}
		c.attrs = append(c.attrs[:0], slog.String("policy", d.By()))
		for _, a := range [...]slog.Attr{slog.String("task", d.Path), slog.String("incident", d.Incident)} {
			if a.Value.String() != "" {
				c.attrs = append(c.attrs, a)
			}
		}
		for _, f := range d.Facts {
			c.attrs = append(c.attrs, slog.Float64(f.Name, f.Value))
		}
		c.attrs = append(c.attrs, slog.String("reason", d.Reason))
		c.log.LogAttrs(context.Background(), level, d.Kind.String(), c.attrs...)
	}
	for _, inc := range out.Incidents {
		c.keep(inc)
	}
}

func (c *Core) keep(inc *model.Incident) {
	for i := range c.recent {
		if c.recent[i].ID == inc.ID {
			c.recent[i] = inc
			return
		}
	}
	if len(c.recent) >= maxRecent {
		c.recent = append(c.recent[:0], c.recent[1:]...)
	}
	c.recent = append(c.recent, inc)
}

// Take checks an operator's request and queues its command for the next turn.
func (c *Core) Take(req Request, by string) Answer {
	cmd := model.Command{Kind: req.Kind, Job: req.Job, Cap: req.Cap, Bytes: req.Bytes, Node: req.Node, Keep: req.Keep, By: by}
	tasks := &c.Engine.State.Tasks
	switch req.Kind {
	case model.CommandCap, model.CommandDemote, model.CommandUncap, model.CommandReclaim, model.CommandMovePages:
		t := tasks.ByPath(req.Task)
		if t == nil {
			return Answer{Error: fmt.Sprintf("no task %q; `commensal status` lists the tasks", req.Task)}
		}
		if why := c.refuses(&req, t); why != "" {
			return Answer{Error: why}
		}
		cmd.Task = t.Num
		if req.Kind == model.CommandCap || req.Kind == model.CommandDemote {
			cmd.DurationNsec = int64(req.Duration * 1e9)
		}
	case model.CommandProtectOn, model.CommandProtectOff:
		if req.Job != "" && !slices.ContainsFunc(c.cfg.Tasks, func(t config.Task) bool { return t.Job == req.Job }) {
			return Answer{Error: fmt.Sprintf("no rule names a job %q", req.Job)}
		}
		if fleet := c.fleetOff(); req.Kind == model.CommandProtectOn && (slices.Contains(fleet, req.Job) || slices.Contains(fleet, "")) {
			return Answer{Error: "protection is off in the whole fleet, which one node cannot undo; `commensal-hub command '*' protect-on` does"}
		}
	default:
		return Answer{Error: fmt.Sprintf("unknown command %q", req.Kind)}
	}
	c.commands = append(c.commands, cmd)
	return Answer{Done: req.Kind}
}

// actionOf are the knobs of operators' actions. Of other commands it is one without actions.
var actionOf = map[string]model.KnobKind{model.CommandReclaim: model.MemoryReclaim, model.CommandMovePages: model.MemoryPages}

// refuses says why what an operator asks of a task is not done, "" where it is.
func (c *Core) refuses(req *Request, t *model.Task) string {
	shield := c.Engine.State.Ledger.Shielded(t.Num)
	capped := req.Kind == model.CommandCap || req.Kind == model.CommandDemote
	switch {
	case req.Kind == model.CommandUncap:
		return ""
	case c.Engine.State.Killed:
		return fmt.Sprintf("the kill switch %s is there, or the fleet's is on: nothing is held while it is", c.cfg.Agent.KillSwitch)
	case t.Class != model.BE:
		return fmt.Sprintf("%s is %s: it is never held", req.Task, t.Class)
	case shield != "":
		return fmt.Sprintf("%s cannot be held: %s", req.Task, shield)
	case req.Kind == model.CommandReclaim && (req.Bytes < 1 || req.Bytes > reclaim.MaxAskBytes):
		return fmt.Sprintf("%d bytes; expected 1 to %d", req.Bytes, int64(reclaim.MaxAskBytes))
	case req.Kind == model.CommandMovePages && (req.Node < 0 || req.Node >= numa.MaxNodes):
		return fmt.Sprintf("memory node %d; expected 0 to %d", req.Node, numa.MaxNodes-1)
	case req.Kind == model.CommandMovePages && !(req.Keep >= 0 && req.Keep <= 1):
		return fmt.Sprintf("a share of %g of its pages; expected 0 to 1", req.Keep)
	case req.Kind == model.CommandCap && (req.Cap < 0.001 || req.Cap > 1024):
		return fmt.Sprintf("cap %g CPU; expected 0.001 to 1024", req.Cap)
	case slices.ContainsFunc(c.commands, func(o model.Command) bool { return !capped && o.Task == t.Num && o.Kind == req.Kind }):
		return fmt.Sprintf("%s of %s is asked for already: say it again when it was carried out", req.Kind, req.Task)
	case c.Engine.State.Ledger.Busy(t.Num, actionOf[req.Kind]) != "":
		return c.Engine.State.Ledger.Busy(t.Num, actionOf[req.Kind]) + ": say it again when it was carried out"
	case capped && (req.Duration <= 0 || req.Duration > (24*time.Hour).Seconds()):
		return fmt.Sprintf("duration %g s; expected more than 0, at most a day", req.Duration)
	}
	return ""
}

// Restore puts everything back at the end.
func (c *Core) Restore() error {
	rep, err := c.Host.Restore()
	if err != nil {
		return err
	}
	LogReport(c.log, &rep)
	if n := rep.Count(node.NotRestored); n > 0 {
		return fmt.Errorf("agent: %d limits could not be put back; `commensal restore` tries again", n)
	}
	return nil
}

// Recover puts back what an earlier agent left and starts a journal, which goes on with
// what could not be put back. It returns also what people should be warned of. The caller
// holds the journal's lock.
func Recover(r linux.Restoring, log *slog.Logger) (j *journal.Journal, warnings []string, err error) {
	j, rep, err := r.Open()
	if err != nil {
		return nil, nil, err
	}
	LogReport(log, &rep)
	if rep.Unreadable != "" {
		warnings = append(warnings, "an earlier journal could not be read completely: "+rep.Unreadable)
	}
	if n := rep.Count(node.NotRestored); n > 0 {
		warnings = append(warnings, fmt.Sprintf("%d limits of an earlier run could not be put back; see the log", n))
	}
	return j, warnings, nil
}
