package throttle

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/commensal-io/commensal/lab/report"
)

// Options of a run.
type Options struct {
	Seed  uint64
	Quick bool
	// Host and Twin say which parts are played.
	Host, Twin bool
	Agent      string    // path of the agent's binary, for Host
	Log        io.Writer // a line for each part

	Workers int // of the twin; 0: one a CPU. The results do not depend on it

	host     hostTimes // of tests
	twin     twinTimes
	twinLoad *Workload
}

// Result is a whole run.
type Result struct {
	Seed  uint64        `json:"seed"`
	Quick bool          `json:"quick"`
	Host  *Host         `json:"host,omitempty"`
	Twin  *Twin         `json:"twin,omitempty"`
	Goals []report.Goal `json:"goals"`
}

// Host is what was measured on this machine.
type Host struct {
	CPUs      int       `json:"cpus"`
	Layout    string    `json:"cgroup_layout"`
	Load      Workload  `json:"workload"`
	Burstiest []int     `json:"burstiest"` // indexes of instances
	Blocks    []Block   `json:"blocks"`
	Columns   []Summary `json:"columns"`
	Jitter    []Jitter  `json:"figure_12"`
	Buckets   []Bucket  `json:"figure_13"`
}

// Run plays what the options ask for.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	r := &Result{Seed: o.Seed, Quick: o.Quick}
	var err error
	if o.Host {
		began := time.Now()
		if r.Host, err = playHost(ctx, &o); err != nil {
			return nil, fmt.Errorf("throttle: on this host: %w", err)
		}
		fmt.Fprintf(o.Log, "on this host: %.0f s\n", time.Since(began).Seconds())
	}
	if o.Twin {
		began := time.Now()
		if r.Twin, err = playTwin(ctx, &o); err != nil {
			return nil, fmt.Errorf("throttle: %w", err)
		}
		fmt.Fprintf(o.Log, "the twin: %.0f s\n", time.Since(began).Seconds())
	}
	r.judge()
	return r, nil
}
