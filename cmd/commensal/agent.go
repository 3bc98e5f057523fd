package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/probe"
	"github.com/commensal-io/commensal/model"
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

// stderrLog is the log of agent and guardian: text, on stderr, for which neither ever waits.
// close writes what is left. A log whose reader has ended, or that may not grow, ends neither of them.
func stderrLog(debug bool) (log *slog.Logger, close func()) {
	signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ)
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	q := agent.NewLogQueue(os.Stderr)
	return slog.New(slog.NewTextHandler(q, &slog.HandlerOptions{Level: level})), q.Close
}

func agentCommand() *cobra.Command {
	var path string
	var debug, beside, first bool
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
			if os.Getpid() == 1 && enforces(c) && !first {
				return cli.Fail(cli.CodeBadInput, errors.New("the agent is process 1 of a container: with it dies the guardian, and nobody puts back what it did; give the container the host's processes (hostPID, --pid=host), let it observe, or accept that with --as-pid-1"))
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			log, flush := stderrLog(debug)
			defer flush()
			defer onHangup(log)()
			a := agent.New(c, version, log)
			a.BesideAnother = beside
			return a.Run(ctx)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&debug, "debug", false, "log more")
	cmd.Flags().BoolVar(&beside, "beside-another", false, "run although another agent runs on this host; only where no cgroup is both's")
	cmd.Flags().BoolVar(&first, "as-pid-1", false, "enforce as process 1 of a container, although nobody outlives it to put things back")
	return cmd
}

// enforces reports whether any policy may write.
func enforces(c *config.Config) bool {
	return slices.ContainsFunc(c.Policies.Sections(), func(s engine.Section) bool { return *s.Mode == model.ModeEnforce })
}

// onHangup says that SIGHUP does nothing, until the returned function is called. A closed
// terminal, or somebody's log rotation, must not disarm a host.
func onHangup(log *slog.Logger) (stop func()) {
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	go func() {
		for range hups {
			log.Warn("SIGHUP does nothing: to take up a changed configuration, restart the agent")
		}
	}()
	return func() { signal.Stop(hups); close(hups) }
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
	var w agent.Ward
	cmd := &cobra.Command{
		Use: "guardian", Hidden: true, Args: cobra.NoArgs, Short: "Started by the agent: restores when the agent is gone, and ends it when it hangs",
		RunE: func(*cobra.Command, []string) error {
			log, flush := stderrLog(false)
			defer flush()
			return agent.Guard(w, log)
		},
	}
	cmd.Flags().StringVar(&w.RunDir, "run-dir", "", "the agent's run directory")
	cmd.Flags().IntVar(&w.PID, "agent", 0, "the agent's process")
	cmd.Flags().DurationVar(&w.Silence, "silence", time.Minute, "without a sign of life from the agent's loop, after which it hangs")
	return cmd
}

func restoreCommand(p *cli.Printer) *cobra.Command {
	var path, run, state string
	var force bool
	cmd := &cobra.Command{
		Use: "restore", Short: "Put back what a dead agent left; refuses while one is running, without --force", Args: cobra.NoArgs,
		Long: "Put back, from the journal, every limit that is still as the agent wrote it. Values that another program\nwrote since are left and reported. Exit 1 when something of ours may remain.\n\nWhere the configuration cannot be read the default directories are looked at, and the exit code is 2.",
		RunE: func(*cobra.Command, []string) error {
			var broken error // the configuration; the default directories are restored from all the same
			if run == "" && state == "" {
				c, err := load(path)
				if err != nil {
					d, _ := config.Defaults(config.ProfileCPI2)
					c, broken = &d, err
				}
				run, state = c.Agent.RunDir, c.Agent.StateDir
			}
			rep, err := agent.RestoreNow(run, state, force)
			if errors.Is(err, agent.ErrRunning) {
				return fmt.Errorf("%w: stop it, or create its kill-switch file to have it release everything; --force ends one that hangs", err)
			}
			alive := errors.Is(err, agent.ErrUnkillable)
			if alive {
				fmt.Fprintf(os.Stderr, "commensal: %v; what it held was put back beside it: restore again when it is gone\n", err)
				err = nil
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
			if alive || !rep.Complete() {
				return cli.Fail(cli.CodeFailed, &cli.Told{})
			}
			if broken != nil && (path != defaultConfig || !errors.Is(broken, os.ErrNotExist)) {
				fmt.Fprintf(os.Stderr, "commensal: %v; looked in the default directories %s and %s\n", broken, run, state)
				return cli.Fail(cli.CodeBadInput, &cli.Told{})
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&force, "force", false, "end an agent that runs (SIGKILL), and restore; for one that hangs")
	cmd.Flags().StringVar(&run, "run-dir", "", "the agent's run directory, which has the journal (default: from the configuration)")
	cmd.Flags().StringVar(&state, "state-dir", "", "the agent's state directory, where older versions had the journal (default: from the configuration)")
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
		switch it.Kind {
		case node.LeftForeign:
			line += fmt.Sprintf(" (not ours; we had found %s)", it.Found.Brief())
		case node.LeftGone: // nothing of it can be read
			line = fmt.Sprintf("%-12s %s", it.Kind, it.Path)
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
