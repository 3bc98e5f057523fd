package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/lab/bench"
)

func benchCommand(p *cli.Printer) *cobra.Command {
	var o bench.Options
	cmd := &cobra.Command{
		Use: "bench", Short: "What the agent costs on this host, against a floor", Args: cobra.NoArgs,
		Long: "Run the agent's cycle and the agent itself against up to 150 cgroups with a real process each, by turns with\nthe bare system calls, and print times, memory and calls beside their goals. Two and a half minutes; --quick: one.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = os.Stderr
			return onHost(cmd.Context(), "the bench", &o.Agent, func(ctx context.Context) error {
				res, err := bench.Run(ctx, o)
				if err != nil {
					return err
				}
				return p.Print(res, func(w io.Writer) error { return res.WriteText(w) })
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Quick, "quick", false, "shorter, and only the smallest and the largest size")
	f.StringVar(&o.Agent, "agent", "", "the agent's binary (default: beside this one)")
	return cmd
}

func benchTaskCommand() *cobra.Command {
	return &cobra.Command{
		Use: bench.TaskCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			bench.Task()
			return nil
		},
	}
}
