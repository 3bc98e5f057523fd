package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/thrash"
)

func thrashExperiment() experiment {
	return experiment{
		name: "memory", short: "Who makes a service wait for memory, and services that took it themselves",
		listed: "drawn rounds of a task that takes a service's pages, with nothing done and under policy memory, and of services that grow themselves: who is held (minutes)",
		long: "Play drawn rounds of a service beside batch work on a simulated machine whose memory runs short: a batch task takes it, with nothing done and\n" +
			"under the policy memory, another service does, and the service itself.",
		quick: "30 rounds instead of 200", seed: "of all rounds; those below 1000 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return thrash.Run(ctx, thrash.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
