package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/lab/demo"
)

// agentBinary finds the agent beside the lab's own binary.
func agentBinary(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), "commensal")
	if _, err := os.Stat(path); err != nil {
		return "", cli.Fail(cli.CodeBadInput, fmt.Errorf("the agent's binary is not at %s; `make build` makes it, or name it with --agent", path))
	}
	return path, nil
}

// needRoot says so before anything was set up.
func needRoot(what string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return cli.Fail(cli.CodePrivilege, fmt.Errorf("%s makes cgroups and runs the agent: run it as root", what))
}

func demoCommand(p *cli.Printer) *cobra.Command {
	var o demo.Options
	var svg string
	cmd := &cobra.Command{
		Use: "demo", Short: "First light on this host: name the noisy neighbour, hold it back, verify, put everything back", Args: cobra.NoArgs,
		Long: "Run memcached under load beside six bystanders and one bursty antagonist, with the agent's policies off and\non in turn and against simple baselines. Exit 0 when the antagonist, and nobody else, was held and p99 fell\nbelow half; 1 when not; 3 when the host was too noisy to tell.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needRoot("the demo"); err != nil {
				return err
			}
			var err error
			if o.Agent, err = agentBinary(o.Agent); err != nil {
				return err
			}
			o.Log = os.Stderr
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			out, err := demo.Run(ctx, o)
			if ctx.Err() != nil {
				return errors.New("interrupted; everything was put back")
			}
			if err != nil {
				return err
			}
			if svg != "" {
				if err := writeSVG(svg, out); err != nil {
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

func writeSVG(path string, out *demo.Outcome) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(out.Chart().WriteSVG(f), f.Close())
}
