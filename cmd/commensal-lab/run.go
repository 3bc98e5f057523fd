package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/lab/firstlight"
)

// experiment is one thing that `run` knows.
type experiment struct {
	Name string `json:"name"`
	What string `json:"what"`
}

func experiments() []experiment {
	return []experiment{
		{"first-light", "short real rounds on this host, with and without an antagonist: precision, recall, time to name (a minute a round)"},
		{"cpi2", "the evaluation of CPI2 (EuroSys'13) on simulated machines, beside its figures: half an hour, --quick 4 minutes"},
		{"burst", "seed 001, figure 14: which bucket a burstable CFS quota should have, from drawn or recorded bursts (seconds)"},
		{"throttle", "seed 001, figures 12, 13, 15 and 23: quotas, burst and the shared pool on this host and on the twin: a quarter of an hour, --quick 4 minutes"},
		{"partition", "an LC service whose load swings tenfold, BE taking what is free: hand-back of cores on this host, tail and utilisation on the twin (half an hour, --quick 5 minutes)"},
	}
}

func listCommand(p *cli.Printer) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The experiments", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list := experiments()
			return p.Print(list, func(w io.Writer) error {
				for _, e := range list {
					fmt.Fprintf(w, "%-14s %s\n", e.Name, e.What)
				}
				return nil
			})
		},
	}
}

func runCommand(p *cli.Printer) *cobra.Command {
	cmd := &cobra.Command{Use: "run EXPERIMENT", Short: "Run an experiment and print its tables", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return cli.Fail(cli.CodeBadInput, fmt.Errorf("no experiment %q; `commensal-lab list` names them", args[0]))
		},
	}
	cmd.AddCommand(firstLightCommand(p), cpi2Command(p), burstCommand(p), partitionCommand(p), throttleCommand(p))
	return cmd
}

// firstLight is what `run first-light --json` prints.
type firstLight struct {
	Rounds    []firstlight.Round   `json:"rounds"`
	Detectors []firstlight.Summary `json:"detectors"`
}

func firstLightCommand(p *cli.Printer) *cobra.Command {
	var o firstlight.Options
	cmd := &cobra.Command{
		Use: "first-light", Short: "Short real rounds on this host, judged", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Rounds < 1 {
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("--seeds %d: expected at least 1", o.Rounds))
			}
			o.Log = os.Stderr
			return onHost(cmd.Context(), "first-light", &o.Agent, func(ctx context.Context) error {
				rounds, err := firstlight.Run(ctx, o)
				// What was played until somebody interrupted it is still worth printing.
				if err != nil && (!errors.Is(err, context.Canceled) || len(rounds) == 0) {
					return err
				}
				return p.Print(firstLight{rounds, firstlight.Summarise(rounds)}, func(w io.Writer) error { return firstlight.WriteText(w, rounds) })
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "seeds", 20, "how many rounds")
	f.Uint64Var(&o.FirstSeed, "first-seed", 0, "the first round's seed")
	f.StringVar(&o.Agent, "agent", "", "the agent's binary (default: beside this one)")
	f.StringVar(&o.Keep, "keep", "", "folder to keep the agents' records in")
	return cmd
}
