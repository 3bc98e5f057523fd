package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/firstlight"
	"github.com/commensal-io/commensal/lab/report"
)

// experiments are what `run` knows, in the order of `list`.
func experiments() []experiment {
	return []experiment{firstLightExperiment(), cpi2Experiment(), burstExperiment(), cacheExperiment(), drcExperiment(), balmExperiment(), rdtExperiment(), oracleExperiment(), pressureExperiment(), coldPagesExperiment(), diskExperiment(), thrashExperiment(), throttleExperiment(), partitionExperiment(), headroomExperiment(), reliabilityExperiment(), fleetExperiment(), fleetBenchExperiment()}
}

// listing is one line of `list`.
type listing struct {
	Name string `json:"name"`
	What string `json:"what"`
}

func listCommand(p *cli.Printer) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The experiments", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var list []listing
			for _, e := range experiments() {
				list = append(list, listing{e.name, e.listed})
			}
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
	for _, e := range experiments() {
		cmd.AddCommand(e.command(p))
	}
	return cmd
}

// firstLight is what `run first-light --json` prints.
type firstLight struct {
	Rounds    []firstlight.Round     `json:"rounds"`
	Detectors []firstlight.Summary   `json:"detectors"`
	Twin      []firstlight.TwinRound `json:"twin,omitempty"`
	// Areas are those under the operating characteristic of the share of the blame that is asked for.
	Area     firstlight.Area `json:"area"`
	TwinArea firstlight.Area `json:"twin_area"`
}

// WriteText writes the tables for people.
func (f firstLight) WriteText(w io.Writer) error { return firstlight.WriteText(w, f.Rounds, f.Twin) }

// Chart is the operating characteristic.
func (f firstLight) Chart() (report.Chart, bool) { return firstlight.Chart(f.Rounds, f.Twin) }

func firstLightExperiment() experiment {
	var rounds int
	var first uint64
	var live bool
	return experiment{
		name: "first-light", short: "Short rounds on this host and scenes on simulated machines, judged", host: true, twin: true,
		listed: "short real rounds on this host, with and without an antagonist: precision, recall, time to name (a minute a round); scenes of waiting on simulated machines (half a minute a seed)",
		keep:   "folder to keep the agents' records in", svg: "also write the operating characteristic of the share of the blame here",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&rounds, "seeds", 16, "how many rounds; a scene comes back after eight. On simulated machines each plays all scenes")
			cmd.Flags().BoolVar(&live, "live", false, "play each round again without control, with the agent and under four simple remedies: seven minutes a round")
			cmd.Flags().Uint64Var(&first, "first-seed", 0, "the first round's seed")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			if rounds < 1 {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--seeds %d: expected at least 1", rounds))
			}
			if err := firstlight.CheckSeeds(first, rounds); err != nil {
				return nil, cli.Fail(cli.CodeBadInput, err)
			}
			res := firstLight{Rounds: []firstlight.Round{}, Detectors: []firstlight.Summary{}}
			var err error
			if !o.TwinOnly {
				res.Rounds, err = firstlight.Run(ctx, firstlight.Options{Rounds: rounds, FirstSeed: first, Agent: o.Agent, Keep: o.Keep, Live: live, Log: os.Stderr})
				// What was played until somebody interrupted it is still worth printing.
				if err != nil && (!errors.Is(err, context.Canceled) || len(res.Rounds) == 0) {
					return nil, err
				}
				res.Detectors = firstlight.Summarise(res.Rounds)
			}
			if !o.HostOnly && err == nil {
				if res.Twin, err = firstlight.Twin(ctx, first, rounds, os.Stderr); err != nil && len(res.Rounds) == 0 {
					return nil, err
				}
			}
			res.Area, res.TwinArea = firstlight.Areas(res.Rounds, res.Twin)
			return res, nil
		},
	}
}
