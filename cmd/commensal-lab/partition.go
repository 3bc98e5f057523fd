package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/lab/partition"
)

func partitionExperiment() experiment {
	var defaults bool
	return experiment{
		name: "partition", short: "The cpuset partition under a load that swings tenfold, on this host and on the twin",
		listed: "an LC service whose load swings tenfold, BE taking what is free: hand-back of cores on this host, tail and utilisation on the twin (half an hour, --quick 5 minutes)",
		long: "An LC service whose load steps up tenfold beside BE that takes what it can get: no BE, no control, cpu.idle,\n" +
			"cpu.shares 2 and ours. On this host the time from a step to the core's hand-back is judged, with the real agent;\n" +
			"on a 64-core twin the tail against (a) and the utilisation against (b). Exit 0 when every goal is met, 1 when one\n" +
			"is not, 3 when the host was too noisy, or the run too short, to tell. In full about half an hour, --quick 5 minutes.",
		host: true, twin: true, quick: "fewer rounds and a shorter day", seed: "of loads, orders and machines", html: true,
		keep: "folder to keep the agents' records and logs in", svg: "also write the picture of the partition at work here",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&defaults, "agent-defaults", false, "on this host: the agent's default parameters, and 30 steps in every arm")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			return partition.Run(ctx, partition.Options{
				Seed: o.Seed, Quick: o.Quick, HostOnly: o.HostOnly, TwinOnly: o.TwinOnly, Agent: o.Agent, Keep: o.Keep, Log: os.Stderr, Defaults: defaults,
			})
		},
	}
}
