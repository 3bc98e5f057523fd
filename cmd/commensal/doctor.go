package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/internal/cli"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/probe"
)

// diagnosis is what doctor prints.
type diagnosis struct {
	Findings []probe.Finding `json:"findings"`
	Signals  []probe.Ability `json:"signals"`
	Remedies []probe.Ability `json:"remedies"`
}

const doctorLong = `What this machine has, which signals of distress and which remedies that gives, why
not the others, and what would give them.

Doctor looks and changes nothing: it reads files, and opens counters on itself to see
whether they count. An answer is yes, no, "owned by another" (it is there, and somebody
else uses it) or "could not tell". What it says is of the process that asks: run it as
the agent runs, as root.

The last table is the summary: what this machine can have, and what it would take to have
the rest. A remedy in it is one that the kernel offers us; which of them the agent uses is
a matter of its configuration.`

func doctorCommand(p *cli.Printer) *cobra.Command {
	var root, capture string
	cmd := &cobra.Command{
		Use: "doctor", Short: "What this machine has, which signals and remedies that gives, and why not the others", Args: cobra.NoArgs,
		Long: doctorLong,
		RunE: func(*cobra.Command, []string) error {
			findings, err := diagnose(root, capture)
			if err != nil {
				return err
			}
			d := diagnosis{Findings: findings, Signals: probe.Signals(findings), Remedies: probe.Remedies(findings)}
			return p.Print(d, func(w io.Writer) error { return printDiagnosis(w, &d) })
		},
	}
	cmd.Flags().StringVar(&root, "root", "/", "a captured tree to look at instead of this machine")
	cmd.Flags().StringVar(&capture, "capture", "", "an empty folder, for a copy of what is looked at (for a report; --root reads it)")
	return cmd
}

// diagnose probes this machine, into a captured tree if that is asked for, or such a tree.
func diagnose(root, capture string) ([]probe.Finding, error) {
	switch {
	case capture != "" && root != "/":
		return nil, cli.Fail(cli.CodeBadInput, errors.New("--capture copies from this machine: it goes without --root"))
	case capture != "":
		findings, err := probe.Capture(capture)
		if errors.Is(err, os.ErrExist) {
			return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--capture: %w", err))
		}
		return findings, err
	}
	if _, err := os.Stat(filepath.Join(root, "proc")); err != nil {
		return nil, cli.Fail(cli.CodeBadInput, fmt.Errorf("--root: expected a folder with the files of a machine: %w", err))
	}
	return probe.Run(probe.Options{FS: hostfs.NewRoot(root), Live: root == "/"}), nil
}

// printDiagnosis writes the details first: what people came for is left standing at the end of their terminal.
func printDiagnosis(w io.Writer, d *diagnosis) error {
	fmt.Fprintln(w, "FINDINGS")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range d.Findings {
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", f.Answer, f.Name, f.Why)
		if f.Needs != "" {
			fmt.Fprintf(tw, "  \t\tneeds: %s\n", f.Needs)
		}
		if f.Only != "" {
			fmt.Fprintf(tw, "  \t\tonly for %s\n", f.Only)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	kinds := []struct {
		title, name string
		list        []probe.Ability
	}{{"SIGNALS", "signal", d.Signals}, {"REMEDIES, mildest first", "remedy", d.Remedies}}
	for _, kind := range kinds {
		fmt.Fprintf(w, "\n%s\n", kind.title)
		tw = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, a := range kind.list {
			fmt.Fprintf(tw, "  %s\t%s\t%s\n", yesNo(a.Available), a.Name, a.Because)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "\nIN SHORT")
	tw = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, kind := range kinds {
		for _, a := range kind.list {
			line := fmt.Sprintf("  %s\t%s\t%s", kind.name, a.Name, yesNo(a.Available))
			switch {
			case a.Wants != "":
				line += "   wants " + a.Wants
			case a.Limit != "":
				line += "  " + a.Limit
			}
			fmt.Fprintln(tw, line)
		}
	}
	return tw.Flush()
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func configCommand(p *cli.Printer) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Print the defaults, check a file, or say which cgroups it makes tasks", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	var profile string
	defaults := &cobra.Command{
		Use: "defaults", Short: "Print every default of a profile, with its source", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, ok := config.Defaults(profile)
			if !ok {
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("--profile %s: expected one of %v", profile, config.Profiles()))
			}
			return p.Print(c, func(w io.Writer) error {
				b, err := c.Print()
				if err != nil {
					return err
				}
				_, err = w.Write(b)
				return err
			})
		},
	}
	defaults.Flags().StringVar(&profile, "profile", config.ProfileCPI2, "cpi2 or single-node")
	check := &cobra.Command{
		Use: "check FILE", Short: "Check a configuration file; exit 2 with one line when it is wrong", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := load(args[0])
			if err != nil {
				return err
			}
			return p.Print(map[string]any{"file": args[0], "ok": true, "rules": len(c.Tasks)}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s is good: profile %s, hard cap %s, cpuset %s, cpu_pool %s, burst %s, %d rules\n",
					args[0], c.Profile, c.Mode, c.CPUSet.Mode, c.CPUPool.Mode, c.Burst.Mode, len(c.Tasks))
				return err
			})
		},
	}
	cmd.AddCommand(defaults, check, matchCommand(p))
	return cmd
}
