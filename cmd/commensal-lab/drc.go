package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/drc"
)

func drcExperiment() experiment {
	return experiment{
		name: "drc", short: "Memory bandwidth for batch work: a fixed level, utilisation and latency followed, and a search by LC's CPI",
		listed: "Alibaba §4.2: batch work's memory bandwidth, fixed at 10 % or following the memory, on drawn mixes (ten minutes)",
		long: "Play drawn mixes of services and batch work on two simulated sockets: batch work as it is found, at an MBA level of 10 %,\n" +
			"and under the policy bandwidth, by thresholds and adaptive.",
		quick: "2 catalogues of 2 mixes instead of 10 of 6", seed: "of the first catalogue; those below 100 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return drc.Run(ctx, drc.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
