// Command commensal-lab judges the agent: it makes load, runs experiments on this host
// and prints their tables.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/bench"
	"github.com/commensal-io/commensal/lab/load"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/scene"
)

// version is set by the build.
var version = "dev"

func main() {
	openloop.Play(os.Args[1:])
	bench.Play(os.Args[1:])
	p := &cli.Printer{}
	root := &cobra.Command{
		Use: "commensal-lab", Short: "Load, demo and experiments that judge Commensal", Version: version, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	for _, e := range []experiment{demoExperiment(), benchExperiment()} {
		root.AddCommand(e.command(p))
	}
	root.AddCommand(loadCommand(p), runCommand(p), listCommand(p), twinCommand(p), resultsCommand(p))
	os.Exit(cli.Execute(root, p))
}

func loadCommand(p *cli.Printer) *cobra.Command {
	c := load.Config{Network: "tcp"}
	var steps string
	cmd := &cobra.Command{
		Use: "load", Short: "Open-loop load on a memcached on this machine", Args: cobra.NoArgs,
		Long: "Send requests at exponential intervals, whether or not the server keeps up, and measure latency from the\ntime each was meant to be sent. Only loopback and Unix sockets. Ctrl-C ends it with the result so far.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			protection, err := load.Protect()
			if err != nil {
				fmt.Fprintln(os.Stderr, "load is not protected:", err)
			}
			c.Protection = protection
			if steps != "" {
				if err := json.Unmarshal([]byte(steps), &c.Rates); err != nil {
					return cli.Fail(cli.CodeBadInput, fmt.Errorf("--steps: %w", err))
				}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			out := scene.LoadOutput{StartNsec: scene.Now()}
			out.Result, err = load.Run(ctx, c, progress(p))
			switch {
			case errors.Is(err, load.ErrConfig):
				return cli.Fail(cli.CodeBadInput, err)
			case err != nil && (out.Result == nil || ctx.Err() == nil):
				return err
			}
			return p.Print(out, func(w io.Writer) error { return out.Result.Table(w) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Address, "address", "127.0.0.1:11211", "where memcached is")
	f.StringVar(&c.Network, "network", "tcp", "tcp or unix")
	f.Float64Var(&c.RatePerSec, "rate", scene.Rate, "requests per second")
	f.DurationVar(&c.Duration, "for", 10*time.Second, "how long")
	f.IntVar(&c.Connections, "connections", load.DefaultConnections, "connections")
	f.Float64Var(&c.SetFraction, "sets", 0, "share of requests that are sets")
	f.Uint64Var(&c.Seed, "seed", 1, "of times, connections, keys and commands")
	f.StringVar(&steps, "steps", "", `changes of the rate, as JSON: [{"At": nanoseconds, "RatePerSec": n}]`)
	return cmd
}

// progress prints a line a second for people.
func progress(p *cli.Printer) func(load.Window) {
	if p.JSON {
		return nil
	}
	return func(w load.Window) {
		fmt.Fprintf(os.Stderr, "%4.0f s  %6d requests  p50 %8.3f ms  p99 %8.3f ms\n", w.Start.Seconds(), w.Sent, w.P50.Seconds()*1e3, w.P99.Seconds()*1e3)
	}
}
