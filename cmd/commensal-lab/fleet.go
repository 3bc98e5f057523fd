package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/fleet"
)

func fleetBenchExperiment() experiment {
	var only []string
	return experiment{
		name: "fleet-bench", short: "What the hub's work costs: ingest, store, memory, specs to nodes, questions",
		listed: "what the hub's work costs, beside its goals and two rivals (some ten minutes)",
		long: "Measure a hub on this machine: samples a second from 200 agents' uplinks to Parquet, bytes a stored sample, memory of the learner and of a whole hub\n" +
			"from 100 to 100,000 jobs, how soon a spec and a command are at 1,000 agents' uplinks, how long the ready-made questions take on a month of\n" +
			"incidents, what the same samples cost VictoriaMetrics and Prometheus where they are installed (scripts/setup rivals), and what connections and\n" +
			"synced messages cost the transport. Exit 1 when a goal is missed, which the end lists; 3 when a part could not be measured.",
		quick: "a tenth of it", seed: "of what is drawn", twin: true,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringSliceVar(&only, "only", nil, "the parts to measure: "+strings.Join(fleet.Parts, ", ")+" (default: all)")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			for _, part := range only {
				if !slices.Contains(fleet.Parts, part) || part == "rivals" && !slices.Contains(only, "ingest") {
					return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--only %s: expected some of %s; rivals with ingest", strings.Join(only, ","), strings.Join(fleet.Parts, ", ")))
				}
			}
			return fleet.Bench(ctx, o.Seed, o.Quick, only, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
		},
	}
}

func fleetExperiment() experiment {
	nodes, stay := 200, false
	return experiment{
		name: "fleet", short: "A hub, 200 simulated nodes and two real agents: specs form, antagonists are held, an operator's command and the kill switch take effect",
		listed: "a hub with 200 simulated nodes on two platforms and two real agents, faster than life (some minutes)",
		long: "Play a small fleet: specs form from all nodes' samples and come down, antagonists arrive on one node in ten, an operator caps a task on\n" +
			"one node, the kill switch is pulled. Exit 1 when any of that had not the effect that it should have.",
		host: true, twin: true, seed: "of the machines and of who gets an antagonist; those below 1000 are for development",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&nodes, "nodes", nodes, "simulated nodes")
			cmd.Flags().BoolVar(&stay, "stay", false, "leave the pages open in the end, until Ctrl-C")
		},
		play: func(ctx context.Context, o *options) (result, error) {
			if nodes < 20 || nodes > 5000 || o.HostOnly {
				return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--nodes %d: expected 20 to 5000, and not --host-only", nodes))
			}
			opt := fleet.Options{Seed: o.Seed, Nodes: nodes, Stay: stay, Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
			if !o.TwinOnly {
				opt.Agent = o.Agent
			}
			return fleet.Run(ctx, opt)
		},
	}
}
