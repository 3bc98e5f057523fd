package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/oracle"
)

func oracleExperiment() experiment {
	sockets := 1
	return experiment{
		name: "oracle", short: "How much batch work each policy lets be done beside services with targets, of what the best fixed division gives",
		listed: "policies and other systems' rules beside the best fixed division of cache, bandwidth and CPU, found by search (a quarter of an hour)",
		long: "Play drawn mixes of services with targets and batch work on a simulated socket, under policies, as Heracles and PARTIES would have it, and\n" +
			"under the best fixed division that misses no target.",
		quick: "one catalogue of two mixes instead of ten of three", seed: "of the first catalogue; those below 100 are for development", html: true, twin: true,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&sockets, "sockets", 1, "1, or 2: then the search asks for the best placement, too")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			if sockets < 1 || sockets > 2 {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--sockets %d: expected 1 or 2", sockets))
			}
			return oracle.Run(ctx, oracle.Options{Seed: o.Seed, Quick: o.Quick, Sockets: sockets})
		},
	}
}
