package main

import (
	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/lab/calibrate"
)

func twinCalibrateCommand(p *cli.Printer) *cobra.Command {
	return &cobra.Command{
		Use: "calibrate", Short: "Hold the simulated server's physics against the published curves", Args: cobra.NoArgs,
		Long: "Play the experiments behind the published curves on the simulated server (tasks run, their counters are read)\nand print each published point beside the twin's, with the error. It exits with 1 when an error is over\nits curve's bound or a published finding does not hold.",
		RunE: func(*cobra.Command, []string) error {
			r, err := calibrate.Run()
			if err != nil {
				return err
			}
			if err := p.Print(r, r.WriteText); err != nil {
				return err
			}
			if len(r.Failures()) > 0 {
				return cli.Fail(cli.CodeFailed, &cli.Told{})
			}
			return nil
		},
	}
}
