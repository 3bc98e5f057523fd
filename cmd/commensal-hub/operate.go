package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
)

// failed gives what a hub answers its exit code.
func failed(err error) error {
	var r *client.Refused
	if !errors.As(err, &r) {
		return err
	}
	return cli.Answered(r.Code, err)
}

// reasoned looks at the reason for what changes the fleet, before the hub is asked. Where there is none it says the whole line: of the kill switch that is
// what somebody in a hurry copies.
func reasoned(why string) error {
	err := hub.CheckWhy(why)
	if err != nil && why == "" {
		err = fmt.Errorf("%w; say: %s --why \"...\"", err, quoted(os.Args))
	}
	return cli.Fail(cli.CodeBadInput, err)
}

// quoted is a command's line as a shell reads it.
func quoted(args []string) string {
	words := []string{filepath.Base(args[0])}
	for _, arg := range args[1:] {
		if strings.ContainsFunc(arg, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:=,@%", r)
		}) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

func statusCommand(p *cli.Printer) *cobra.Command {
	var c client.Client
	cmd := &cobra.Command{
		Use: "status", Short: "Show the hub, and all its nodes together", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st hub.Status
			if err := c.Do(cmd.Context(), "/v1/fleet", nil, &st); err != nil {
				return failed(err)
			}
			return p.Print(&st, func(w io.Writer) error { return printStatus(w, &st) })
		},
	}
	c.Flags(cmd.Flags())
	return cmd
}

func printStatus(w io.Writer, st *hub.Status) error {
	fmt.Fprintf(w, "hub %s since %s; nodes connect to %s\n", st.Version, st.Started.Local().Format(time.DateTime), st.NodesURL)
	if st.Partitions > 1 {
		fmt.Fprintf(w, "shard %s: of the fleet's %d partitions %v are this hub's, and all that follows is of their jobs\n", st.Shard, st.Partitions, st.Mine)
	}
	if st.Problem != "" {
		fmt.Fprintf(w, "batches are not read: %s\n", st.Problem)
	}
	if st.Off != nil && st.Off.Off.Off {
		fmt.Fprintf(w, "THE KILL SWITCH IS ON (%s: %s): nothing is held on any node\n", st.Off.By, st.Off.Why)
	}
	if st.Protection != nil {
		printProtection(w, st.Protection)
	}
	fmt.Fprintf(w, "%d jobs; %d rows wait for the store", st.Jobs, st.Waiting)
	for _, u := range st.Store {
		fmt.Fprintf(w, "; %s: %d files, %d bytes", u.Table, u.Files, u.Bytes)
	}
	fmt.Fprintln(w)
	if st.Passed > 0 {
		fmt.Fprintf(w, "%d samples were not learned from: some node is the only one to speak of very many jobs\n", st.Passed)
	}
	if b := st.Bucket; b != nil {
		fmt.Fprintf(w, "%s: %d files, %d bytes wait for it", b.Bucket, b.WaitingFiles, b.WaitingBytes)
		if b.Problem != "" {
			fmt.Fprintf(w, "; since %s: %s", b.Since.Local().Format(time.DateTime), b.Problem)
		}
		if len(b.Gone) > 0 {
			fmt.Fprintf(w, "; SOMEBODY ELSE DELETED %v", b.Gone)
		}
		fmt.Fprintln(w)
	}
	n := &st.Nodes
	fmt.Fprintf(w, "%d nodes, of which %d are enrolled and %d were heard since; %d of these are silent; %d samples, %d incidents; lost batches %d, refused %d (of %d nodes)\n", n.Known, n.Enrolled, n.Heard, n.Silent, n.Samples, n.Incidents, n.Lost, n.Refused, n.Refusing)
	fmt.Fprintln(w, "`commensal-hub nodes` lists them")
	return nil
}

// pages asks for all pages of a list.
func pages[P any](ctx context.Context, c *client.Client, path string, q url.Values, take func(page *P) (next string)) error {
	q.Set("limit", "1000")
	for {
		var page P
		if err := c.Do(ctx, path+"?"+q.Encode(), nil, &page); err != nil {
			return failed(err)
		}
		next := take(&page)
		if next == "" {
			return nil
		}
		q.Set("after", next)
	}
}

func nodesCommand(p *cli.Printer) *cobra.Command {
	var c client.Client
	var match, only string
	cmd := &cobra.Command{
		Use: "nodes", Short: "Show nodes: when they were heard, and what they sent", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []hub.NodeStatus{}
			err := pages(cmd.Context(), &c, "/v1/nodes", url.Values{"match": {match}, "only": {only}}, func(page *hub.NodePage) string {
				list = append(list, page.Nodes...)
				return page.Next
			})
			if err != nil {
				return err
			}
			return p.Print(list, func(w io.Writer) error { return printNodes(w, list) })
		},
	}
	c.Flags(cmd.Flags())
	cmd.Flags().StringVar(&match, "match", "", "part of their names")
	cmd.Flags().StringVar(&only, "only", "", "silent (for three minutes), refused (some of their batches were), lost (they dropped batches), unknown (they are not enrolled)")
	return cmd
}

func printNodes(w io.Writer, list []hub.NodeStatus) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NODE\tHEARD\tTASKS\tSAMPLES\tINCIDENTS\tLOST\tREFUSED\tPLATFORM")
	for _, n := range list {
		heard := "never"
		if !n.Seen.IsZero() {
			heard = time.Since(n.Seen).Round(time.Second).String() + " ago"
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", n.Name, heard, n.Tasks, n.Samples, n.Incidents, n.Lost, n.Refused, n.Platform)
		if n.Why != "" {
			fmt.Fprintf(tw, "\trefused: %s\n", n.Why)
		}
	}
	return tw.Flush()
}

func jobsCommand(p *cli.Printer) *cobra.Command {
	var c client.Client
	var match, only string
	cmd := &cobra.Command{
		Use: "jobs", Short: "Show jobs and their specs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []hub.JobStatus{}
			err := pages(cmd.Context(), &c, "/v1/jobs", url.Values{"match": {match}, "only": {only}}, func(page *hub.JobPage) string {
				list = append(list, page.Jobs...)
				return page.Next
			})
			if err != nil {
				return err
			}
			return p.Print(list, func(w io.Writer) error {
				tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintln(tw, "JOB\tSIGNAL\tSHEET\tSAMPLES\tTASKS\tMEAN\tDEVIATION\tTHRESHOLD\tSIZE\tPLATFORM")
				for _, j := range list {
					for _, s := range j.Signals {
						sheet := "-"
						if s.Published {
							sheet = fmt.Sprint(j.Revision)
						}
						if j.Pinned {
							sheet += " pinned"
						}
						fmt.Fprintf(tw, "%s\t%s\t%s\t%.0f\t%d\t%.4g\t%.3g\t%.4g\t%s\t%s\n", j.Job, s.Signal, sheet, s.Samples, s.Tasks, s.Mean, s.StdDev, s.Threshold, cmp.Or(j.Size, "all"), j.Platform)
						if s.Held != "" {
							fmt.Fprintf(tw, "\theld back: %s\n", s.Held)
						}
					}
				}
				return tw.Flush()
			})
		},
	}
	c.Flags(cmd.Flags())
	cmd.Flags().StringVar(&match, "match", "", "part of their names")
	cmd.Flags().StringVar(&only, "only", "", "held: those of which a spec is held back")
	return cmd
}

func specCommand(p *cli.Printer) *cobra.Command {
	var c client.Client
	var platform, size, why string
	var revision uint64
	cmd := &cobra.Command{
		Use: "spec accept|rollback|unpin JOB --platform P --why TEXT", Short: "Publish a spec that is held back, or go back to an older one", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := reasoned(why); err != nil {
				return err
			}
			var sh wire.SpecSheet
			err := c.Do(cmd.Context(), "/v1/spec", map[string]any{"job": args[1], "platform": platform, "size": size, "what": args[0], "revision": revision, "why": why}, &sh)
			if err != nil {
				return failed(err)
			}
			return p.Print(&sh, func(w io.Writer) error {
				if args[0] == "unpin" {
					fmt.Fprintf(w, "%s follows what is learned again\n", args[1])
					return nil
				}
				fmt.Fprintf(w, "revision %d of %s is published\n", sh.Revision, spec.KeyOf(&sh))
				for i := range sh.Specs {
					sp := &sh.Specs[i]
					fmt.Fprintf(w, "  %s: %.4g ± %.3g", sp.Source, sp.Mean, sp.StdDev)
					if sp.P99 > 0 {
						fmt.Fprintf(w, "; p50 %.4g, p90 %.4g, p99 %.4g", sp.P50, sp.P90, sp.P99)
					}
					fmt.Fprintln(w)
				}
				return nil
			})
		},
	}
	c.Flags(cmd.Flags())
	cmd.Flags().StringVar(&platform, "platform", "", "the CPU type, as `commensal-hub jobs` shows it")
	cmd.Flags().StringVar(&size, "size", "", "of the tasks, where the spec is of one size (default: of all)")
	cmd.Flags().Uint64Var(&revision, "revision", 0, "of rollback (default: the one before the last)")
	cmd.Flags().StringVar(&why, "why", "", forAudit)
	return cmd
}

func rolloutCommand(p *cli.Printer) *cobra.Command {
	var c client.Client
	var q hub.RolloutChange
	var file string
	cmd := &cobra.Command{
		Use: "rollout [--overlay FILE] [--percent N] [--observe | --skip-observe] --why TEXT", Short: "Change policies on a part of the fleet first; without flags: how the change stands", Args: cobra.NoArgs,
		Long: `Lay a piece of configuration (policies and limits) over that of a part of the nodes, widen that part, or end the change with
--percent 0. What turns a policy to enforce has to be observed first, on as many nodes and for a time (serve --observe-for): the same
FILE with --observe, and then without. The hub halts a change whose nodes have clearly more incidents than the others.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var body any
			if cmd.Flags().Changed("percent") || file != "" || q.Observe || q.SkipObserve || q.Why != "" {
				switch {
				case !cmd.Flags().Changed("percent"):
					return cli.Fail(cli.CodeBadInput, errors.New("a change needs --percent; without any flag: how the change stands"))
				case q.Observe && q.SkipObserve:
					return cli.Fail(cli.CodeBadInput, errors.New("--observe and --skip-observe are one or the other"))
				}
				if err := reasoned(q.Why); err != nil {
					return err
				}
				if file != "" {
					text, err := os.ReadFile(file)
					if err != nil {
						return cli.Fail(cli.CodeBadInput, err)
					}
					q.Overlay = string(text)
				}
				body = &q
			}
			var st hub.RolloutStatus
			if err := c.Do(cmd.Context(), "/v1/rollout", body, &st); err != nil {
				return failed(err)
			}
			return p.Print(&st, func(w io.Writer) error { return printRollout(w, &st) })
		},
	}
	c.Flags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&file, "overlay", "", "file with what these nodes have otherwise, as in their configuration (default: the change that is there)")
	f.IntVar(&q.Percent, "percent", 0, "of the nodes; 0 ends the change")
	f.BoolVar(&q.Observe, "observe", false, "what the overlay has as enforce is only observed")
	f.BoolVar(&q.SkipObserve, "skip-observe", false, "enforce also what was not observed before; the audit has it")
	f.StringVar(&q.Why, "why", "", forAudit)
	return cmd
}

// forAudit says what a reason is for.
const forAudit = "the reason, for the audit and for whoever looks at a node"

func printRollout(w io.Writer, st *hub.RolloutStatus) error {
	if st.ID == "" {
		fmt.Fprintln(w, "no roll-out: every node has what its file says")
		return nil
	}
	if st.Halted != "" {
		fmt.Fprintf(w, "roll-out %s of %s is HALTED: %s\n", st.ID, st.By, st.Halted)
	} else {
		fmt.Fprintf(w, "roll-out %s of %s to %d %% of the nodes; in force on %d that were heard since\n", st.ID, st.By, st.Percent, st.InForce)
	}
	switch {
	case st.Halted != "":
	case len(st.Enforces) > 0:
		fmt.Fprintf(w, "it enforces; it was observed on %d %% before\n", st.Observed)
	default:
		fmt.Fprintf(w, "it enforces nothing that it does not find enforced; %d of the %d nodes that it is for have had it for %s\n", st.InForce, st.Meant, time.Duration(st.ObservedSeconds*float64(time.Second)).Round(time.Second))
	}
	fmt.Fprintf(w, "incidents since then: %d on these, %d on %d others (whose rate lets expect %.1f)\n", st.Inside, st.Outside, st.Outsiders, st.Expected)
	if st.Refusing > 0 {
		fmt.Fprintf(w, "%d nodes refuse it:\n", st.Refusing)
	}
	for _, node := range slices.Sorted(maps.Keys(st.Refused)) {
		fmt.Fprintf(w, "  %s: %s\n", node, st.Refused[node])
	}
	fmt.Fprintf(w, "%s\n", st.Overlay)
	return nil
}

func offCommand(p *cli.Printer) *cobra.Command {
	var c client.Client
	var why string
	var back bool
	cmd := &cobra.Command{
		Use: "off --why TEXT", Short: "Release everything on every node, until --back", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := reasoned(why); err != nil {
				return err
			}
			var off wire.Off
			if err := c.Do(cmd.Context(), "/v1/off", map[string]any{"off": !back, "why": why}, &off); err != nil {
				return failed(err)
			}
			return p.Print(&off, func(w io.Writer) error {
				if off.Off {
					fmt.Fprintln(w, "the kill switch is on: every node that is connected releases what it holds, and those that are not will when they are")
				} else {
					fmt.Fprintln(w, "the kill switch is off: nodes do again what they are configured to do")
				}
				return nil
			})
		},
	}
	c.Flags(cmd.Flags())
	cmd.Flags().StringVar(&why, "why", "", forAudit)
	cmd.Flags().BoolVar(&back, "back", false, "let the fleet go on")
	return cmd
}

// everywhere turns protection on or off in the whole fleet, and says how it stands then.
func everywhere(ctx context.Context, p *cli.Printer, c *client.Client, body map[string]any) error {
	var now wire.Protection
	if err := c.Do(ctx, "/v1/command", body, &now); err != nil {
		return failed(err)
	}
	return p.Print(&now, func(w io.Writer) error {
		printProtection(w, &now)
		if len(now.Off) == 0 {
			fmt.Fprintln(w, "protection is on in the whole fleet, but on nodes that were told otherwise themselves")
		}
		fmt.Fprintln(w, "nodes that are connected hear it at once, and those that are not will when they are")
		return nil
	})
}

func printProtection(w io.Writer, now *wire.Protection) {
	for i := range now.Off {
		fmt.Fprintf(w, "protection is OFF in the whole fleet for %s (%s: %s)\n", cmp.Or(now.Off[i].Job, "all jobs"), now.Off[i].By, now.Off[i].Why)
	}
}

// nodeCommandCommand is what an operator asks of one node.
func nodeCommandCommand(p *cli.Printer) *cobra.Command {
	var c client.Client
	var q wire.Command
	var duration time.Duration
	cmd := &cobra.Command{
		Use: "command NODE cap|demote|uncap|protect-on|protect-off|restart|confine --why TEXT", Short: "Hold or free a task of a node, turn protection there, or in the whole fleet (*), on or off, or ask the hook for more", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := reasoned(q.Why); err != nil {
				return err
			}
			q.Kind, q.Duration = args[1], duration.Seconds()
			body := map[string]any{"node": args[0], "kind": q.Kind, "task": q.Task, "job": q.Job, "cap": q.Cap, "duration_seconds": q.Duration, "why": q.Why}
			if args[0] == "*" {
				return everywhere(cmd.Context(), p, &c, body)
			}
			var ans wire.Answer
			if err := c.Do(cmd.Context(), "/v1/command", body, &ans); err != nil {
				return failed(err)
			}
			return p.Print(&ans, func(w io.Writer) error {
				fmt.Fprintf(w, "%s: done on %s\n", ans.Done, args[0])
				return nil
			})
		},
	}
	c.Flags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&q.Task, "task", "", "the cgroup's path")
	f.StringVar(&q.Job, "job", "", "of protect-on and protect-off (default: all jobs)")
	f.Float64Var(&q.Cap, "cpu", 0.1, "of cap: CPU-sec/sec")
	f.DurationVar(&duration, "for", 5*time.Minute, "of cap and demote")
	f.StringVar(&q.Why, "why", "", forAudit)
	return cmd
}
