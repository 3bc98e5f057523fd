package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/probe"
	"github.com/commensal-io/commensal/node"
)

// defaultConfig is where the unit expects the configuration, and `commensal init` puts it.
const defaultConfig = "/etc/commensal/config.yaml"

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", defaultConfig, "configuration file")
}

func load(path string) (*config.Config, error) {
	c, err := config.Load(path)
	if path == defaultConfig && errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w; `commensal init` writes one", err)
	}
	return c, cli.Fail(cli.CodeBadInput, err)
}

// stderrLog is the programs' log: text, on stderr.
func stderrLog(debug bool) *slog.Logger {
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func agentCommand() *cobra.Command {
	var path string
	var debug bool
	cmd := &cobra.Command{
		Use: "agent", Short: "Run the agent until it is told to stop; everything is put back at the end", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load(path)
			if err != nil {
				return err
			}
			if err := privileged(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return agent.New(c, version, stderrLog(debug)).Run(ctx)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&debug, "debug", false, "log more")
	return cmd
}

// privileged says which capabilities the agent misses when it cannot work at all, and
// what works without them. Lack of CAP_NET_ADMIN alone is no reason to refuse: the delay
// then comes from /proc, which the log says.
func privileged() error {
	findings := probe.Run(probe.Options{FS: hostfs.NewRoot("/"), Live: true})
	lacks := func(name string) bool { return probe.Find(findings, name).Answer == probe.No }
	if os.Geteuid() == 0 || !lacks(probe.CapDACOverride) {
		return nil
	}
	missing := "CAP_DAC_OVERRIDE (to write cgroup files)"
	if lacks(probe.CapNetAdmin) {
		missing += " and CAP_NET_ADMIN (for taskstats)"
	}
	return cli.Fail(cli.CodePrivilege, fmt.Errorf("the agent lacks %s; run it as root. Without them doctor, config, explain and replay work", missing))
}

func guardianCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "guardian", Hidden: true, Args: cobra.NoArgs, Short: "Started by the agent: restores when the agent is gone",
		RunE: func(*cobra.Command, []string) error { return agent.Guard(dir, stderrLog(false)) },
	}
	cmd.Flags().StringVar(&dir, "state-dir", "", "the agent's state directory")
	return cmd
}

func restoreCommand(p *cli.Printer) *cobra.Command {
	var path, dir string
	cmd := &cobra.Command{
		Use: "restore", Short: "Put back what a dead agent left; refuses while one is running", Args: cobra.NoArgs,
		Long: "Put back, from the journal, every limit that is still as the agent wrote it. Values that another program\nwrote since are left and reported. Exit 1 when something of ours may remain.",
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				c, err := load(path)
				if err != nil {
					return err
				}
				dir = c.Agent.StateDir
			}
			rep, err := agent.RestoreNow(dir)
			if errors.Is(err, agent.ErrRunning) {
				return fmt.Errorf("%w: stop it, or create its kill-switch file to have it release everything", err)
			}
			if err != nil {
				if errors.Is(err, os.ErrPermission) {
					return cli.Fail(cli.CodePrivilege, err)
				}
				return err
			}
			if err := p.Print(rep, func(w io.Writer) error { return printReport(w, &rep) }); err != nil {
				return err
			}
			if !rep.Complete() {
				return cli.Fail(cli.CodeFailed, &cli.Told{})
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&dir, "state-dir", "", "the agent's state directory, where a configuration may be broken (default: from the configuration)")
	return cmd
}

func printReport(w io.Writer, rep *node.Report) error {
	if len(rep.Items) == 0 && rep.Unreadable == "" {
		what := "nothing to restore"
		if rep.Rebooted {
			what += ": the journal is of an earlier boot, and the kernel forgot it all"
		}
		_, err := fmt.Fprintln(w, what)
		return err
	}
	for _, it := range rep.Items {
		line := fmt.Sprintf("%-12s %s: %s", it.Kind, it.Path, it.Now.Brief())
		if it.Kind == node.LeftForeign {
			line += fmt.Sprintf(" (not ours; we had found %s)", it.Found.Brief())
		}
		if it.Error != "" {
			line += ": " + it.Error
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if rep.Unreadable != "" {
		_, err := fmt.Fprintf(w, "WARNING: part of the journal could not be read, so a limit of ours may remain: %s\n", rep.Unreadable)
		return err
	}
	return nil
}

// client returns a client of the running agent.
func client(socket, path string) (*agent.Client, error) {
	if socket == "" {
		d, _ := config.Defaults(config.ProfileCPI2)
		socket = d.Agent.Socket
		if _, err := os.Stat(path); err == nil {
			c, err := load(path)
			if err != nil {
				return nil, err
			}
			socket = c.Agent.Socket
		}
	}
	return agent.NewClient(socket), nil
}

// asked maps the client's errors to exit codes.
func asked(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return cli.Fail(cli.CodePrivilege, fmt.Errorf("%w; only root and members of the agent's socket_group may operate it", err))
	case errors.Is(err, agent.ErrRejected):
		return cli.Fail(cli.CodeBadInput, err)
	case errors.Is(err, agent.ErrNoAgent), errors.Is(err, context.DeadlineExceeded):
		return cli.Fail(cli.CodeBroken, err)
	}
	return err
}
