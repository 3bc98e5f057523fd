package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/cache"
)

func cacheExperiment() experiment {
	return experiment{
		name: "cache", short: "Two ways of the cache for batch work: whom it helps, whom it hurts, and what comparing makes of it",
		listed: "ByteDance: batch work in two ways of the cache, on drawn mixes: static, and compared before and after (a minute)",
		long: "Play drawn mixes of services and batch work on a simulated socket: batch work with all ways, with two, at an MBA level of\n" +
			"10 %, and with two ways under the agent's policy, which takes them back where LC is worse off.",
		quick: "8 mixes instead of 60", seed: "of the mixes; those below 1000 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return cache.Run(ctx, cache.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
