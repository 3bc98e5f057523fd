package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/balm"
)

func balmExperiment() experiment {
	return experiment{
		name: "balm", short: "Memory bandwidth and pages for batch work beside a service with a target: BALM's figure 3",
		listed: "BALM's figures 2 and 3: limits on memory bandwidth, pages moved, both and neither, by the service's load (ten minutes)",
		long: "Play a key-value store at rising load beside batch work that is heavy on memory, on two simulated sockets: as it is found, with\n" +
			"its pages spread, at an MBA level of 10 %, and under the policy balm with and without moving pages, and under remedy.",
		quick: "two programs at two loads, once instead of five times", seed: "of the first repetition; those below 100 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return balm.Run(ctx, balm.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
