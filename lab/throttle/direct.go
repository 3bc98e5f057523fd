package throttle

import (
	"context"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
)

// agentConfig is the agent's configuration for a block: the instances are shared LC tasks,
// and of the policies only those of the column act.
func agentConfig(match string, c Column) *config.Config {
	mode := func(on bool) model.Mode {
		if on {
			return model.ModeEnforce
		}
		return model.ModeOff
	}
	conf := stage.AgentConfig()
	p := &conf.Policies.CPU
	p.CPUSetMode, p.CPUPoolMode, p.BurstMode = mode(false), mode(c.pool()), mode(c.burst())
	p.Burst.UserSpace = c.userSpace()
	conf.Tasks = []config.Task{{Match: match, Job: "pool", Class: "LC", Production: true}}
	return conf
}

// direct starts the agent of a column, for the groups that a pattern matches, and waits until
// it answers.
func (b *hostLab) direct(ctx context.Context, t *instances, match string, c Column) (*stage.Agent, error) {
	return b.stage.StartAgent(ctx, b.opt.Agent, "agent-"+t.name, agentConfig(b.stage.Root+"/"+match, c))
}

// Response is one request's fate. Times are from the start, in microseconds.
type Response struct {
	AtUsec int64 // when it was to come
	// TookUsec is from then until it was done, or until we stopped waiting for it.
	TookUsec   int64
	CPUUsec    int64 // that it asked for
	Unfinished bool
}

// grace is how long after the last request an instance goes on.
const grace = 2 * time.Second

// order is what an instance is told.
func (in *Instance) order(startNsec int64, length time.Duration) *openloop.Order {
	o := &openloop.Order{Threads: in.Threads, StartNsec: startNsec, EndNsec: startNsec + int64(length+grace)}
	for _, r := range in.Requests(length) {
		o.Requests = append(o.Requests, openloop.Request{At: r.At, CPU: r.CPU})
	}
	return o
}

// responses is what became of an order.
func responses(o *openloop.Order, log *openloop.Log) []Response {
	out := make([]Response, len(log.Answers))
	for i, a := range log.Answers {
		out[i] = Response{
			AtUsec: o.Requests[i].At.Microseconds(), CPUUsec: o.Requests[i].CPU.Microseconds(),
			TookUsec: (a.DoneNsec - a.AtNsec) / 1000, Unfinished: a.GaveUp,
		}
	}
	return out
}
