package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/report"
)

// result is what an experiment's run comes to: a JSON document, and text for people. It may
// have more: see show.
type result interface{ WriteText(w io.Writer) error }

// experiment is a lab as a command: the flags that several labs share stand here once.
type experiment struct {
	name, short, long string
	// listed is what `list` says of it.
	listed string
	// host: it makes cgroups and runs the agent on this host; twin: it has a part on simulated
	// machines. With both, --host-only and --twin-only leave a part out.
	host, twin bool
	// The flags that it takes, by what each says of itself; "": it has none of that name.
	quick, seed, keep, svg, plots string
	html                          bool
	// flags adds those that no other experiment has.
	flags func(cmd *cobra.Command)
	play  func(ctx context.Context, o *options) (result, error)
}

// options are the values of the flags that several experiments share.
type options struct {
	Quick, HostOnly, TwinOnly bool
	Seed                      uint64
	Agent, Keep               string
	html, svg, plots          string
}

// command builds an experiment's command.
func (e *experiment) command(p *cli.Printer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: e.name, Short: e.short, Long: e.long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			res, err := e.run(cmd.Context(), &o)
			if err != nil {
				return err
			}
			return show(p, res, &o)
		},
	}
	f := cmd.Flags()
	for _, flag := range []struct {
		to          *string
		name, usage string
	}{
		{&o.Keep, "keep", e.keep}, {&o.svg, "svg", e.svg}, {&o.plots, "plots", e.plots},
	} {
		if flag.usage != "" {
			f.StringVar(flag.to, flag.name, "", flag.usage)
		}
	}
	if e.quick != "" {
		f.BoolVar(&o.Quick, "quick", false, e.quick)
	}
	if e.seed != "" {
		f.Uint64Var(&o.Seed, "seed", 1, e.seed)
	}
	if e.html {
		f.StringVar(&o.html, "html", "", "also write the tables with plots as a page here")
	}
	if e.host {
		f.StringVar(&o.Agent, "agent", "", "the agent's binary (default: beside this one)")
	}
	if e.host && e.twin {
		f.BoolVar(&o.HostOnly, "host-only", false, "without the twin")
		f.BoolVar(&o.TwinOnly, "twin-only", false, "without this host")
	}
	if e.flags != nil {
		e.flags(cmd)
	}
	return cmd
}

// run plays the experiment until it ends or somebody interrupts it; on this host as root, and
// with the agent's binary found.
func (e *experiment) run(parent context.Context, o *options) (result, error) {
	if o.HostOnly && o.TwinOnly {
		return nil, cli.Fail(cli.CodeBadInput, errors.New("--host-only and --twin-only: expected one of them"))
	}
	if err := o.folders(); err != nil {
		return nil, err
	}
	onHost := e.host && !o.TwinOnly
	if onHost {
		if os.Geteuid() != 0 {
			without := ""
			if e.twin {
				without = " (--twin-only leaves that out)"
			}
			return nil, cli.Fail(cli.CodePrivilege, fmt.Errorf("%s makes cgroups and runs the agent: run it as root%s", e.name, without))
		}
		if err := cli.FindAgent(&o.Agent); err != nil {
			return nil, err
		}
	}
	ctx, stop := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	res, err := e.play(ctx, o)
	if onHost && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil, errors.New("interrupted; everything was put back")
	}
	return res, err
}

// folders makes the folder for plots, and looks for those that files are to go into: before a run that may take
// an hour, not after it.
func (o *options) folders() error {
	if o.plots != "" {
		if err := os.MkdirAll(o.plots, 0o755); err != nil {
			return cli.Fail(cli.CodeBadInput, err)
		}
	}
	for _, file := range []string{o.html, o.svg} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(filepath.Dir(file)); err != nil {
			return cli.Fail(cli.CodeBadInput, fmt.Errorf("no folder for %s: %w", file, err))
		}
	}
	return nil
}

// show writes the page and the pictures that were asked for, prints the result, and turns its
// outcome into the exit code.
func show(p *cli.Printer, res result, o *options) error {
	if r, ok := res.(interface{ Report() report.Report }); ok && o.html != "" {
		if err := writeFile(o.html, r.Report().WriteHTML); err != nil {
			return err
		}
	}
	if r, ok := res.(interface{ Chart() (report.Chart, bool) }); ok && o.svg != "" {
		if c, drawn := r.Chart(); drawn {
			if err := writeFile(o.svg, c.WriteSVG); err != nil {
				return err
			}
		}
	}
	if r, ok := res.(interface {
		Plots() map[string]report.Chart
	}); ok && o.plots != "" {
		for name, c := range r.Plots() {
			if err := writeFile(filepath.Join(o.plots, name), c.WriteSVG); err != nil {
				return err
			}
		}
	}
	outcome := report.Pass
	if r, ok := res.(interface{ Outcome() report.Outcome }); ok {
		outcome = r.Outcome()
	}
	return finish(p, res, res.WriteText, outcome)
}

// finish prints a result and turns its outcome into the exit code.
func finish(p *cli.Printer, v any, text func(io.Writer) error, outcome report.Outcome) error {
	if err := p.Print(v, text); err != nil {
		return err
	}
	if code := outcome.Code(); code != cli.CodeDone {
		return cli.Fail(code, &cli.Told{})
	}
	return nil
}

// writeFile writes a file anew.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return cli.Fail(cli.CodeBadInput, err)
	}
	return errors.Join(write(f), f.Close())
}
