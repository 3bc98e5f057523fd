package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/headroom"
)

func headroomExperiment() experiment {
	var trace string
	return experiment{
		name: "headroom", short: "How good the forecast of what services will use is, against other systems'",
		listed: "Alibaba §3.1: what best-effort work may be offered, by the policy's forecast and by Crane's, Koordinator's and Katalyst's (a minute)",
		long: "Show drawn loads (tides, weekends, trends, deploys, bursts, holes) to the policy headroom and to other systems' forecasters,\n" +
			"and print in how many windows services then used more, and what best-effort work was offered. --trace adds a recorded\n" +
			"load: a CSV of seconds since some midnight, a task's name, and the CPUs that it used.",
		quick: "8 nodes instead of 48",
		seed:  "the first that is reported, at least 1000 (default 1000); those below are for development",
		html:  true,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&trace, "trace", "", "also judge a recorded load: CSV of time in seconds, task, CPUs")
			if f := cmd.Flags().Lookup("seed"); f != nil { // results has a seed of its own
				_ = f.Value.Set("1000") // what a number is
				f.DefValue = "1000"
			}
		},
		play: func(ctx context.Context, o *options) (result, error) {
			opt := headroom.Options{Seed: o.Seed, Quick: o.Quick, Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
			if o.Seed < headroom.FirstSeed {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--seed %d: expected at least %d; those below are for development", o.Seed, headroom.FirstSeed))
			}
			if trace != "" {
				n, err := readLoads(trace)
				if err != nil {
					return nil, cli.Fail(cli.CodeBadInput, err)
				}
				opt.Trace = n
			}
			return headroom.Run(ctx, opt)
		},
	}
}

func readLoads(path string) (n *headroom.Node, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return headroom.ReadTrace(path, f)
}
