package main

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/reliability"
	"github.com/commensal-io/commensal/lab/report"
)

// reliabilityTable is a table with its outcome: one knob that is not as it should be fails.
type reliabilityTable struct{ reliability.Table }

func (t reliabilityTable) Outcome() report.Outcome {
	if t.Wrong() > 0 {
		return report.Fail
	}
	return report.Pass
}

func reliabilityExperiment() experiment {
	var rounds, hostRounds int
	var into string
	return experiment{
		name: "reliability", short: "One fault after the other, until all is put back", host: true, twin: true,
		listed: "short rounds with one fault each, on the twin and with real agents on this host: is all put back, and when",
		long:   "In each round something is held when a fault comes: the agent dies, hangs, its disks fill, its cgroups go.\nCounted are the knobs that are not as they should be once all is put back (exit 1 when there is one), and how long that took.",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&rounds, "rounds", 1000, "rounds of each fault on the twin")
			cmd.Flags().IntVar(&hostRounds, "host-rounds", 100, "rounds of each fault on this host")
			cmd.Flags().StringVar(&into, "into", "", "document to put the tables into")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			if rounds < 1 || hostRounds < 1 {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--rounds %d, --host-rounds %d: expected at least 1", rounds, hostRounds))
			}
			var all reliabilityTable
			tell := func(r *reliability.Row) {
				fmt.Fprintln(os.Stderr, r)
			}
			keep := func(t reliability.Table, where string, err error) error {
				all.Table = append(all.Table, t...)
				if err != nil || into == "" {
					return err
				}
				return t.WriteInto(into, where)
			}
			if !o.HostOnly {
				t, err := reliability.Twin(rounds, runtime.GOMAXPROCS(0), tell)
				if err := keep(t, "twin", err); err != nil {
					return nil, err
				}
			}
			if !o.TwinOnly {
				t, err := reliability.Host(ctx, o.Agent, hostRounds, tell)
				if err := keep(t, "host", err); err != nil {
					return nil, err
				}
			}
			return all, nil
		},
	}
}
