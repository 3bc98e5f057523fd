package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/lab/demo"
)

func demoExperiment() experiment {
	var page, record string
	var favour uint64
	return experiment{
		name: "demo", short: "First light on this host: name the noisy neighbour, hold it back, verify, put everything back",
		long: "Run memcached under load beside six bystanders and one bursty antagonist, with the agent's policies off and\non in turn and against simple baselines. Exit 0 when the antagonist, and nobody else, was held and p99 fell\nbelow half; 1 when not; 3 when what else the host does hides it (docs/FIRST-LIGHT.md has the rules).",
		host: true, seed: "chooses rhythms and which task is the antagonist", svg: "also write the picture of the first cap here",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&page, "report", "commensal-demo.html", "where to write the report")
			cmd.Flags().Uint64Var(&favour, "antagonist-weight", 1, "how many times everybody else's weight the antagonist has; 8 was the scene before")
			cmd.Flags().StringVar(&record, "record", "", "folder to keep the agent's record in, for explain and replay")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			return demo.Run(ctx, demo.Options{Seed: o.Seed, Agent: o.Agent, Report: page, Record: record, Favour: favour, Log: os.Stderr})
		},
	}
}
