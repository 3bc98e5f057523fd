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
	var cpus, memory []string
	return experiment{
		name: "headroom", short: "How good the forecast of what services will use is, against other systems'",
		listed: "Alibaba §3.1: what best-effort work may be offered, by the policy's forecast and by Crane's, Koordinator's and Katalyst's (a minute)",
		long: "Show drawn loads (tides, weekends, trends, deploys, bursts, holes) to the policy headroom and to other systems' forecasters,\n" +
			"and print in how many windows services then used more, and what best-effort work was offered. --trace and\n" +
			"--memory-trace add recorded loads: a CSV of seconds since some midnight, a task's name (node/task where there are several\n" +
			"machines), and the CPUs or GiB that it used.",
		quick: "8 nodes instead of 48",
		seed:  "the first that is reported, at least 1000 (default 1000); those below are for development",
		html:  true,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringArrayVar(&cpus, "trace", nil, "also judge a recorded load: CSV of time in seconds, task, CPUs; may be given several times")
			cmd.Flags().StringArrayVar(&memory, "memory-trace", nil, "the same of memory: time in seconds, task, GiB in use")
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
			var errs [2]error
			opt.Traces, errs[0] = readLoads(cpus)
			opt.MemoryTraces, errs[1] = readLoads(memory)
			if err := errors.Join(errs[:]...); err != nil {
				return nil, cli.Fail(cli.CodeBadInput, err)
			}
			return headroom.Run(ctx, opt)
		},
	}
}

func readLoads(paths []string) (all []*headroom.Traces, err error) {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		t, err := headroom.ReadTrace(path, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}
