package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/pressure"
)

func pressureExperiment() experiment {
	return experiment{
		name: "pressure", short: "Who is killed when batch work takes all the memory there is",
		listed: "a thousand drawn rounds of hogs beside services: whom the OOM killer takes, with limits by hand and under policy pressure (minutes)",
		long: "Play drawn rounds of services, batch work and hogs on simulated machines: by the kernel's own rules, with memory.max of each batch task set\n" +
			"by hand, and under the policy pressure.",
		quick: "24 rounds instead of 1,000", seed: "of all rounds; those below 1000 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return pressure.Run(ctx, pressure.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
