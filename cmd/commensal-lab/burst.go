package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/burst"
)

func burstExperiment() experiment {
	var trace string
	return experiment{
		name: "burst", short: "Which bucket a burstable CFS quota should have: Alibaba's figure 14",
		listed: "Alibaba, figure 14: which bucket a burstable CFS quota should have, from drawn or recorded bursts (a minute)",
		long: "Play 20 bursty applications that share a CPU pool, with buckets of k times their quota, and print what a bucket\n" +
			"saves in queueing delay and costs in peak utilisation. --trace takes CPU use recorded by the millisecond.",
		seed: "of the requests",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&trace, "trace", "", "CPU use by the millisecond, a number a line")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			params, source := burst.Defaults(), "drawn"
			params.Seed = o.Seed
			if trace != "" {
				t, err := readTrace(trace)
				if err != nil {
					return nil, cli.Fail(cli.CodeBadInput, err)
				}
				params.Source, source = t, trace
			}
			return burst.Run(ctx, params, source)
		},
	}
}

func readTrace(path string) (t burst.Trace, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return burst.ReadTrace(path, f)
}
