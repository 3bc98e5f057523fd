package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/oracle"
)

func oracleExperiment() experiment {
	return experiment{
		name: "oracle", short: "How much batch work each policy lets be done beside services with targets, of what the best fixed division gives",
		listed: "policies and other systems' rules beside the best fixed division of cache, bandwidth and CPU, found by search (a quarter of an hour)",
		long: "Play drawn mixes of services with targets and batch work on a simulated socket, under policies, as Heracles and PARTIES would have it, and\n" +
			"under the best fixed division that misses no target.",
		quick: "one catalogue of two mixes instead of ten of three", seed: "of the first catalogue; those below 100 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return oracle.Run(ctx, oracle.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
