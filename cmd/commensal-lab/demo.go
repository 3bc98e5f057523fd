package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/lab/demo"
)

func demoCommand(p *cli.Printer) *cobra.Command {
	var o demo.Options
	var svg string
	cmd := &cobra.Command{
		Use: "demo", Short: "First light on this host: name the noisy neighbour, hold it back, verify, put everything back", Args: cobra.NoArgs,
		Long: "Run memcached under load beside six bystanders and one bursty antagonist, with the agent's policies off and\non in turn and against simple baselines. Exit 0 when the antagonist, and nobody else, was held and p99 fell\nbelow half; 1 when not; 3 when the host was too noisy to tell.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = os.Stderr
			return onHost(cmd.Context(), "the demo", &o.Agent, func(ctx context.Context) error {
				out, err := demo.Run(ctx, o)
				if err != nil {
					return err
				}
				return showDemo(p, out, svg)
			})
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", 1, "chooses rhythms and which task is the antagonist")
	f.StringVar(&o.Agent, "agent", "", "the agent's binary (default: beside this one)")
	f.StringVar(&o.Report, "report", "commensal-demo.html", "where to write the report")
	f.StringVar(&o.Record, "record", "", "folder to keep the agent's record in, for explain and replay")
	f.StringVar(&svg, "svg", "", "also write the picture of the first cap here")
	return cmd
}

// showDemo prints the outcome and turns it into the exit code.
func showDemo(p *cli.Printer, out *demo.Outcome, svg string) error {
	if svg != "" {
		if err := writeFile(svg, out.Chart().WriteSVG); err != nil {
			return err
		}
	}
	if err := p.Print(out, func(w io.Writer) error { return out.WriteText(w) }); err != nil {
		return err
	}
	if out.Code != 0 {
		return cli.Fail(out.Code, &cli.Told{})
	}
	return nil
}

// writeFile writes a file anew.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
