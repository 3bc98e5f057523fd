package main

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/lab/burst"
)

func burstCommand(p *cli.Printer) *cobra.Command {
	params := burst.Defaults()
	var trace string
	cmd := &cobra.Command{
		Use: "burst", Short: "Which bucket a burstable CFS quota should have: seed 001's figure 14", Args: cobra.NoArgs,
		Long: "Play 20 bursty applications that share a CPU pool, with buckets of k times their quota, and print what a bucket\n" +
			"saves in queueing delay and costs in peak utilisation. --trace takes CPU use recorded by the millisecond.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			source := "drawn"
			if trace != "" {
				t, err := readTrace(trace)
				if err != nil {
					return cli.Fail(cli.CodeBadInput, err)
				}
				params.Source, source = t, trace
			}
			r, err := burst.Run(cmd.Context(), params, source)
			if err != nil {
				return err
			}
			return p.Print(r, func(w io.Writer) error { return r.WriteText(w) })
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&params.Seed, "seed", params.Seed, "of the requests")
	f.StringVar(&trace, "trace", "", "CPU use by the millisecond, a number a line")
	return cmd
}

func readTrace(path string) (t burst.Trace, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return burst.ReadTrace(path, f)
}
