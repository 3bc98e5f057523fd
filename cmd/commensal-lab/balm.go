package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/balm"
)

func balmExperiment() experiment {
	repetitions, only := 0, ""
	parts := []string{balm.PartLoads, balm.PartShares, balm.PartMoves}
	return experiment{
		name: "balm", short: "Memory bandwidth and pages for batch work beside a service with a target: BALM's figure 3",
		listed: "BALM's figures 1 to 3, and what services feel while pages move: limits on memory bandwidth, pages moved, both and neither, by the service's load, on one socket and on opposite ones (half an hour)",
		long: "Play a key-value store at rising load and a search service with batch work that is heavy on memory beside either of them, on two simulated sockets: as it is found, with\n" +
			"its pages spread, at an MBA level of 10 %, and under the policy balm with and without moving pages, and under remedy. Then pages across sockets without any limit, and what\nservices' percentiles do while pages move.",
		quick: "two programs at two loads, once instead of five times", seed: "of the first repetition; those below 100 are for development", html: true, twin: true,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&repetitions, "repetitions", 5, "how often each cell is played, with seeds from --seed on")
			cmd.Flags().StringVar(&only, "only", "", "the part to play: "+strings.Join(parts, ", ")+" (default: all)")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			if repetitions < 1 || repetitions > 100 {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--repetitions %d: expected 1 to 100", repetitions))
			}
			if only != "" && !slices.Contains(parts, only) {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--only %s: expected one of %s", only, strings.Join(parts, ", ")))
			}
			return balm.Run(ctx, balm.Options{Seed: o.Seed, Quick: o.Quick, Repetitions: repetitions, Only: only})
		},
	}
}
