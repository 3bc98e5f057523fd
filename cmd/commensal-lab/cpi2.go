package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/lab/cpi2"
)

func cpi2Command(p *cli.Printer) *cobra.Command {
	var o cpi2.Options
	var html string
	cmd := &cobra.Command{
		Use: "cpi2", Short: "The evaluation of CPI2 (EuroSys'13) on simulated machines, beside its figures", Args: cobra.NoArgs,
		Long: "Learn specs from a simulated fleet, draw random machines, let the policies find out who hurts whom, cap and judge\nas the paper does, and compare with what really happened. Exit 0 when the combination that was\nsettled on beforehand meets every goal on production victims, 1 when it does not, 3 when no production victim was tried. --quick: a few minutes; in full: half an hour on\ntwo CPUs.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Log = os.Stderr
			var err error
			if o.Cases, err = caseStudies(); err != nil {
				return err
			}
			return playCPI2(ctx, p, o, html)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Quick, "quick", false, "fewer machines")
	f.Uint64Var(&o.Seed, "seed", 1, "of the catalogue and of all machines")
	f.StringVar(&html, "html", "", "also write the tables with plots as a page here")
	return cmd
}

func playCPI2(ctx context.Context, p *cli.Printer, o cpi2.Options, html string) error {
	res, err := cpi2.Run(ctx, o)
	if err != nil {
		return err
	}
	if html != "" {
		if err := writeFile(html, res.Report().WriteHTML); err != nil {
			return err
		}
	}
	if err := p.Print(res, func(w io.Writer) error { return res.WriteText(w) }); err != nil {
		return err
	}
	switch {
	case len(res.Goals) == 0:
		return cli.Fail(cli.CodeUnknown, &cli.Told{})
	case !res.Passed():
		return cli.Fail(cli.CodeFailed, &cli.Told{})
	}
	return nil
}
