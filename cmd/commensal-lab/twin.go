package main

import (
	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
)

func twinCommand(p *cli.Printer) *cobra.Command {
	cmd := &cobra.Command{
		Use: "twin", Short: "The simulated server: calibrate it, play scenarios on it, soak the agent in faults", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(twinRunCommand(p), twinCalibrateCommand(p), twinSoakCommand(p))
	return cmd
}
