package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/rdt"
)

func rdtExperiment() experiment {
	return experiment{
		name: "rdt", short: "How a service's tail latency fluctuates alone, beside batch work, and beside batch work in two ways of the cache",
		listed: "ByteDance's figures 6 and 7: how p99 over a thousand instances fluctuates, with and without two ways for batch work (a quarter of an hour)",
		long: "Play 22 hours of three services, alone, beside batch work that comes and goes, and beside batch work that may fill two ways of the\n" +
			"cache, on more than a thousand simulated machines.",
		quick: "four hours of a tenth of the instances", seed: "of all draws; those below 100 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return rdt.Run(ctx, rdt.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
