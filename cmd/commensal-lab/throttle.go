package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/throttle"
)

// throttleFlags are the flags of `run throttle` that are not options of the run.
type throttleFlags struct {
	twinOnly, hostOnly bool
	html, plots        string
}

func throttleCommand(p *cli.Printer) *cobra.Command {
	o := throttle.Options{Host: true, Twin: true}
	var f throttleFlags
	cmd := &cobra.Command{
		Use: "throttle", Short: "Throttling of bursty services: seed 001's figures 12, 13, 15 and 23, on this host and on the twin", Args: cobra.NoArgs,
		Long: "Play bursty services in real cgroups with real quotas under four ways to run them (the kernel's default, burst,\n" +
			"AIMD, both), by turns and with the same requests, then the same on simulated machines, bucket sizes, and a\n" +
			"surge. Exit 0 when every goal is met, 1 when not, 3 when others used this host too much to tell, 4 without\n" +
			"root. About a quarter of an hour; --quick: four minutes.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.twinOnly && f.hostOnly {
				return cli.Fail(cli.CodeBadInput, errors.New("--twin-only and --host-only: expected at most one of them"))
			}
			o.Host, o.Twin, o.Log = !f.twinOnly, !f.hostOnly, os.Stderr
			if o.Host {
				return onHost(cmd.Context(), "run throttle", &o.Agent, func(ctx context.Context) error { return playThrottle(ctx, p, o, &f) })
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return playThrottle(ctx, p, o, &f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Quick, "quick", false, "one round instead of three, shorter parts, fewer machines")
	flags.Uint64Var(&o.Seed, "seed", 1, "of all instances and their requests")
	flags.StringVar(&o.Agent, "agent", "", "the agent's binary (default: beside this one)")
	flags.BoolVar(&f.twinOnly, "twin-only", false, "only the simulated part")
	flags.BoolVar(&f.hostOnly, "host-only", false, "only the part on this host")
	flags.StringVar(&f.html, "html", "", "also write the tables with plots as a page here")
	flags.StringVar(&f.plots, "plots", "", "also write the policies' pictures into this folder")
	return cmd
}

func throttleServiceCommand() *cobra.Command {
	return &cobra.Command{
		Use: throttle.ServiceCommand, Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return throttle.Serve(cmd.OutOrStdout(), []byte(args[0]))
		},
	}
}

func playThrottle(ctx context.Context, p *cli.Printer, o throttle.Options, f *throttleFlags) error {
	res, err := throttle.Run(ctx, o)
	if err != nil {
		return err
	}
	if f.html != "" {
		if err := writeFile(f.html, res.Report().WriteHTML); err != nil {
			return err
		}
	}
	if f.plots != "" {
		for name, c := range res.Plots() {
			if err := writeFile(filepath.Join(f.plots, name), c.WriteSVG); err != nil {
				return err
			}
		}
	}
	if err := p.Print(res, func(w io.Writer) error { return res.WriteText(w) }); err != nil {
		return err
	}
	switch res.Verdict().Outcome {
	case report.Fail:
		return cli.Fail(cli.CodeFailed, &cli.Told{})
	case report.CouldNotTell:
		return cli.Fail(cli.CodeUnknown, &cli.Told{})
	}
	return nil
}
