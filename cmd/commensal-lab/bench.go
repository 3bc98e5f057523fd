package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/bench"
)

func benchExperiment() experiment {
	tasks, mib, only := 0, 0, ""
	return experiment{
		name: "bench", short: "What the agent costs on this host, against a floor",
		long: "Run the agent's cycle and the agent itself against up to 150 cgroups with a real process each, by turns with\nthe bare system calls, and print times, memory and calls beside their goals, and what reading ages of pages costs where\nthe kernel tells them. Two and a half minutes; --quick: one.",
		host: true, quick: "shorter, and only the smallest and the largest size",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&tasks, "tasks", 150, "how many tasks the largest size has")
			cmd.Flags().StringVar(&only, "only", "", "the part to measure: "+bench.PartAges+" or "+bench.PartContention+" (default: all but the second)")
			cmd.Flags().IntVar(&mib, "mib", 20, "how many MiB each task has whose pages' ages are read")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			if tasks < 11 || tasks > 2000 {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--tasks %d: expected 11 to 2000", tasks))
			}
			if only != "" && only != bench.PartAges && only != bench.PartContention {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--only %s: expected %s or %s", only, bench.PartAges, bench.PartContention))
			}
			if mib < 1 || mib > 1<<20 {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--mib %d: expected 1 to %d", mib, 1<<20))
			}
			return bench.Run(ctx, bench.Options{Agent: o.Agent, Quick: o.Quick, Tasks: tasks, Only: only, MiB: mib, Log: os.Stderr})
		},
	}
}
