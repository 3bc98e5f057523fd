package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/disk"
)

func diskExperiment() experiment {
	return experiment{
		name: "io", short: "Who makes a service wait for its disk, and a disk that is slow by itself",
		listed: "drawn rounds of an antagonist on a database's disk, with nothing done and under policy io, and of a disk that becomes slow: who is held (minutes)",
		long: "Play drawn rounds of a database beside batch work on a simulated disk: a task that reads or writes as much as it can, with nothing done and under\n" +
			"the policy io, and a disk that becomes slow by itself.",
		quick: "12 rounds instead of 200", seed: "of all rounds; those below 1000 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return disk.Run(ctx, disk.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
