package main

import (
	"context"
	"os"

	"github.com/commensal-io/commensal/lab/bench"
)

func benchExperiment() experiment {
	return experiment{
		name: "bench", short: "What the agent costs on this host, against a floor",
		long: "Run the agent's cycle and the agent itself against up to 150 cgroups with a real process each, by turns with\nthe bare system calls, and print times, memory and calls beside their goals. Two and a half minutes; --quick: one.",
		host: true, quick: "shorter, and only the smallest and the largest size",
		play: func(ctx context.Context, o *options) (result, error) {
			return bench.Run(ctx, bench.Options{Agent: o.Agent, Quick: o.Quick, Log: os.Stderr})
		},
	}
}
