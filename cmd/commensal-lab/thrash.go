package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/thrash"
)

func thrashExperiment() experiment {
	return experiment{
		name: "memory", short: "Who makes a service wait for memory, and services that took it themselves",
		listed: "drawn rounds of a task that takes a service's pages, with nothing done and under policy memory, also after the service is started again, and of services that grow themselves: who is held (a quarter of an hour)",
		long: "Play drawn rounds of a service beside batch work on a simulated machine whose memory runs short: a batch task takes it, with nothing done and\n" +
			"under the policy memory, another service does, and the service itself; and a batch task does beside a service that is started again, with nothing done and under the policy.",
		quick: "30 rounds instead of 200", seed: "of all rounds; those below 1000 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return thrash.Run(ctx, thrash.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
