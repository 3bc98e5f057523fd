package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/calibrate"
)

func twinCommand(p *cli.Printer) *cobra.Command {
	cmd := &cobra.Command{
		Use: "twin", Short: "The simulated server: calibrate it, play scenarios on it, soak the agent in faults", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	calibration := calibrateExperiment()
	cmd.AddCommand(twinRunCommand(p), calibration.command(p), twinSoakCommand(p))
	return cmd
}

func calibrateExperiment() experiment {
	ablation := false
	return experiment{
		name: "calibrate", short: "Hold the simulated server's physics against the published curves",
		long: "Play the experiments behind the published curves on the simulated server (tasks run, their counters are read)\nand print each published point beside the twin's, with the error. It exits with 1 when an error is over\nits curve's bound or a published finding does not hold.",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&ablation, "ablation", false, "instead: what each term of the physics that is off by default changes, and how each fares against measurements")
		},
		play: func(context.Context, *options) (result, error) {
			if ablation {
				return calibrate.Ablate()
			}
			return calibrate.Run()
		},
	}
}
