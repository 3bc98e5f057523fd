package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/cmd/commensal/top"
)

const topLong = `Show the tasks, what is held and why, live: a screen over the one of the shell, which comes back at the end.

Keys: q or Ctrl-C ends; c, s, t, n, i sort by CPU, signal against threshold, throttling, name, idle memory; a shows how
long the tasks' memory lay idle, and back; arrows, j, k, PgUp, PgDn, Home and End scroll; Ctrl-L draws anew; Ctrl-Z suspends.

DELAY is (run + delay) / run of the scheduler; THROT the share of CFS periods in which a quota stopped the task;
SIGNAL/LIMIT what the task is judged by (cpi, or slowdown without the task's own queueing) and its outlier threshold.
Figures are those of the last sampling window. Under a task stands what is claimed for it, by whom and why.

With a, or --ages, there are two lines a task instead, of anonymous and of file pages: how many per cent of the task's
memory were not used for ten seconds to two days or longer, when the agent last read that, and how many MiB may go by it.
Policy coldpages has ages read, in mode observe or enforce, and not every kernel tells them.

Where stdout is no terminal (or a dumb one), and with --once, one plain table is printed; with --json, the document of
commensal status. NO_COLOR is honoured; nothing is said by colour alone. When the agent goes away the view
says so and waits for it.`

func topCommand(p *cli.Printer) *cobra.Command {
	var t target
	var once, batch, ages bool
	var interval time.Duration
	var by string
	cmd := &cobra.Command{
		Use: "top", Short: "Watch tasks, their signals, what is held and why", Args: cobra.NoArgs, Long: topLong,
		RunE: func(cmd *cobra.Command, _ []string) error {
			order, err := sortBy(by)
			if err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			if interval < 100*time.Millisecond || interval > time.Hour {
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("--interval %s: expected 100ms to 1h", interval))
			}
			c, err := t.client()
			if err != nil {
				return err
			}
			st, err := c.Status(cmd.Context())
			live := !once && !batch && !p.JSON && top.IsTerminal(os.Stdout) && !dumb(os.Getenv("TERM"))
			if err != nil && (!live || errors.Is(err, os.ErrPermission)) {
				return asked(err)
			}
			if live {
				return watch(cmd.Context(), c, interval, order, ages)
			}
			return p.Print(st, func(w io.Writer) error { return printTop(w, st, order, ages) })
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&once, "once", false, "print one plain table and end")
	f.BoolVarP(&batch, "batch", "b", false, "the same as --once")
	f.BoolVar(&ages, "ages", false, "show how long the tasks' memory lay idle")
	f.DurationVar(&interval, "interval", time.Second, "time between two readings")
	f.StringVar(&by, "sort", top.SortCPU.String(), "cpu, signal, throttled, name or idle")
	return cmd
}

// sortBy reads the name of an order.
func sortBy(name string) (top.Sort, error) {
	for _, s := range top.Sorts {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("--sort %s: expected cpu, signal, throttled, name or idle", name)
}

// dumb reports whether a terminal takes no escape sequences.
func dumb(term string) bool { return term == "" || term == "dumb" }

// utf8Locale reports whether the terminal's locale is of UTF-8: the first variable that is
// set decides.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return slices.ContainsFunc([]string{"utf-8", "utf8"}, func(s string) bool { return strings.Contains(v, s) })
		}
	}
	return false
}

// watch runs the live view.
func watch(ctx context.Context, c *agent.Client, interval time.Duration, order top.Sort, ages bool) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(signals)
	return top.Run(ctx, top.Options{
		Fetch: c.Brief, Interval: interval, Sort: order, Ages: ages, In: os.Stdin, Out: os.Stdout,
		Colour: os.Getenv("NO_COLOR") == "", UTF8: utf8Locale(), Signals: signals,
	})
}

// printTop prints one plain table.
func printTop(w io.Writer, st *agent.Status, order top.Sort, ages bool) error {
	f := top.Render(&top.View{Status: st, Now: time.Now(), Sort: order, Ages: ages, UTF8: utf8Locale(), Batch: true})
	for _, l := range f.Lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return nil
}
