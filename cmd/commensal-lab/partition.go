package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/lab/partition"
)

func partitionCommand(p *cli.Printer) *cobra.Command {
	var o partition.Options
	var html, svg string
	cmd := &cobra.Command{
		Use: "partition", Short: "The cpuset partition under a load that swings tenfold, on this host and on the twin", Args: cobra.NoArgs,
		Long: "An LC service whose load steps up tenfold beside BE that takes what it can get: no BE, no control, cpu.idle,\n" +
			"cpu.shares 2 and ours. On this host the time from a step to the core's hand-back is judged, with the real agent;\n" +
			"on a 64-core twin the tail against (a) and the utilisation against (b). Exit 0 when every goal is met, 1 when one\n" +
			"is not, 3 when the host was too noisy, or the run too short, to tell. In full about half an hour, --quick 5 minutes.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.HostOnly && o.TwinOnly {
				return cli.Fail(cli.CodeBadInput, errors.New("--host-only and --twin-only: expected one of them"))
			}
			o.Log = os.Stderr
			play := func(ctx context.Context) error { return playPartition(ctx, p, o, html, svg) }
			if !o.TwinOnly {
				return onHost(cmd.Context(), "the host's part of partition (--twin-only leaves it out)", &o.Agent, play)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return play(ctx)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Quick, "quick", false, "fewer rounds and a shorter day")
	f.Uint64Var(&o.Seed, "seed", 1, "of loads, orders and machines")
	f.BoolVar(&o.HostOnly, "host-only", false, "without the twin")
	f.BoolVar(&o.TwinOnly, "twin-only", false, "without this host")
	f.StringVar(&o.Agent, "agent", "", "the agent's binary (default: beside this one)")
	f.StringVar(&o.Keep, "keep", "", "folder to keep the agents' records and logs in")
	f.StringVar(&html, "html", "", "also write the tables with plots as a page here")
	f.StringVar(&svg, "svg", "", "also write the picture of the partition at work here")
	return cmd
}

func playPartition(ctx context.Context, p *cli.Printer, o partition.Options, html, svg string) error {
	res, err := partition.Run(ctx, o)
	if err != nil {
		return err
	}
	if html != "" {
		if err := writeFile(html, res.Report().WriteHTML); err != nil {
			return err
		}
	}
	if svg != "" && len(res.Twin) > 0 {
		if err := writeFile(svg, res.Twin[0].Chart().WriteSVG); err != nil {
			return err
		}
	}
	if err := p.Print(res, func(w io.Writer) error { return res.WriteText(w) }); err != nil {
		return err
	}
	if res.Code != 0 {
		return cli.Fail(res.Code, &cli.Told{})
	}
	return nil
}

// partitionTaskCommands are the tasks that the lab puts on the stage.
func partitionTaskCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: partition.ServeCommand + " ORDER", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return partition.Serve(args[0]) },
		},
		{
			Use: partition.BatchCommand + " THREADS", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				n, err := strconv.Atoi(args[0])
				if err != nil || n < 1 {
					return cli.Fail(cli.CodeBadInput, fmt.Errorf("%q threads; expected at least 1", args[0]))
				}
				partition.Batch(n)
				return nil
			},
		},
	}
}
