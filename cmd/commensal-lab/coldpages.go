package main

import (
	"context"

	"github.com/commensal-io/commensal/lab/coldpages"
)

func coldPagesExperiment() experiment {
	return experiment{
		name: "coldpages", short: "What giving back memory that lies idle saves, and what it costs services",
		listed: "Alibaba's figures 6 to 9: ages of pages, thresholds against page faults and response time, and TMO's way beside (minutes)",
		long: "Play drawn machines of services and batch work for hours: with nothing done, with policy coldpages by several thresholds, as it comes, without its\n" +
			"stops, and by pressure.",
		quick: "3 machines for 6 hours instead of 24 for 12", seed: "of all machines; those below 1000 are for development", html: true, twin: true,
		play: func(ctx context.Context, o *options) (result, error) {
			return coldpages.Run(ctx, coldpages.Options{Seed: o.Seed, Quick: o.Quick})
		},
	}
}
