package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/bench"
)

func benchExperiment() experiment {
	tasks, mib, only := 0, 0, ""
	parts := []string{bench.PartAges, bench.PartContention, bench.PartMoves}
	return experiment{
		name: "bench", short: "What the agent costs on this host, against a floor",
		long: "Run the agent's cycle and the agent itself against up to 150 cgroups with a real process each, by turns with\nthe bare system calls, and print times, memory and calls beside their goals, and what reading ages of pages costs where\nthe kernel tells them. Two and a half minutes; --quick: one.",
		host: true, quick: "shorter, and only the smallest and the largest size",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&tasks, "tasks", 150, "how many tasks the largest size has")
			cmd.Flags().StringVar(&only, "only", "", "the part to measure: "+strings.Join(parts, ", ")+" (default: all but the last two)")
			cmd.Flags().IntVar(&mib, "mib", 0, "how many MiB each task has whose pages' ages are read, or pages move (default 20, and 256)")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			if tasks < 11 || tasks > 2000 {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--tasks %d: expected 11 to 2000", tasks))
			}
			if only != "" && !slices.Contains(parts, only) {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--only %s: expected one of %s", only, strings.Join(parts, ", ")))
			}
			if mib < 0 || mib > 1<<20 {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--mib %d: expected 1 to %d, 0: the default", mib, 1<<20))
			}
			return bench.Run(ctx, bench.Options{Agent: o.Agent, Quick: o.Quick, Tasks: tasks, Only: only, MiB: mib, Log: os.Stderr})
		},
	}
}
