package main

import (
	"fmt"
	"io"
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

func doctorCommand(p *cli.Printer) *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use: "doctor", Short: "What this machine has, which signals and remedies that gives, and why not the others", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f := probe.Run(probe.Options{FS: hostfs.NewRoot(root), Live: root == "/"})
			d := diagnosis{Findings: f, Signals: probe.Signals(f), Remedies: probe.Remedies(f)}
			return p.Print(d, func(w io.Writer) error { return printDiagnosis(w, &d) })
		},
	}
	cmd.Flags().StringVar(&root, "root", "/", "a captured tree to look at instead of this machine")
	return cmd
}

func printDiagnosis(w io.Writer, d *diagnosis) error {
	for _, part := range []struct {
		title string
		list  []probe.Ability
	}{{"SIGNALS", d.Signals}, {"REMEDIES, mildest first", d.Remedies}} {
		fmt.Fprintln(w, part.title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, a := range part.list {
			mark := "no"
			if a.Available {
				mark = "yes"
			}
			fmt.Fprintf(tw, "  %s\t%s\t%s\n", mark, a.Name, a.Because)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "FINDINGS")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range d.Findings {
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", f.Answer, f.Name, f.Why)
		if f.Answer != probe.Yes && f.Needs != "" {
			fmt.Fprintf(tw, "  \t\tneeds: %s\n", f.Needs)
		}
	}
	return tw.Flush()
}

func configCommand(p *cli.Printer) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Print the defaults, or check a file", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
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
				_, err := fmt.Fprintf(w, "%s is good: profile %s, mode %s, %d rules\n", args[0], c.Profile, c.Mode, len(c.Tasks))
				return err
			})
		},
	}
	cmd.AddCommand(defaults, check)
	return cmd
}
