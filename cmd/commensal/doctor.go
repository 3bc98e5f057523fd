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
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/probe"
)

// diagnosis is what doctor prints.
type diagnosis struct {
	Findings  []probe.Finding `json:"findings"`
	Signals   []ability       `json:"signals"`
	Remedies  []ability       `json:"remedies"`
	Prospects *prospects      `json:"prospects,omitempty"` // of this host, not of a captured tree
}

// ability is what this machine has of a signal or a remedy, and who makes use of it.
type ability struct {
	probe.Ability
	UsedBy string // policies, with commas between them; "": not built yet
}

func abilities(list []probe.Ability) []ability {
	out := make([]ability, len(list))
	for i, a := range list {
		out[i] = ability{a, usedBy(a.Name)}
	}
	return out
}

const doctorLong = `What this machine has, which signals of distress and which remedies that gives, why
not the others, and what would give them.

Doctor looks and changes nothing: it reads files, and opens counters on itself to see
whether they count. An answer is yes, no, "owned by another" (it is there, and somebody
else uses it) or "could not tell". What it says is of the process that asks: run it as
the agent runs, as root.

What it prints is the summary: what this machine has of what this version uses, what would give
the rest, which signals and remedies no policy uses yet, and what to do next. --all prints every
finding with its evidence, and why each signal and remedy is there or is not.`

func doctorCommand(p *cli.Printer) *cobra.Command {
	var root, capture, path string
	var all bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "What this machine has, which signals and remedies that gives, and why not the others", Args: cobra.NoArgs,
		Long: doctorLong,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings, err := diagnose(root, capture)
			if err != nil {
				return err
			}
			d := diagnosis{Findings: findings, Signals: abilities(probe.Signals(findings)), Remedies: abilities(probe.Remedies(findings))}
			if root == "/" {
				d.Prospects = prospect(cmd.Context(), path, findings)
			}
			if all {
				return p.Print(d, func(w io.Writer) error { return printDiagnosis(w, &d) })
			}
			return p.Print(d, func(w io.Writer) error { return printShort(w, &d) })
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&all, "all", false, "print every finding, and why each signal and remedy is there or is not")
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
		title string
		list  []ability
	}{{"SIGNALS", d.Signals}, {"REMEDIES, mildest first", d.Remedies}}
	for _, kind := range kinds {
		fmt.Fprintf(w, "\n%s\n", kind.title)
		tw = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, a := range kind.list {
			because := a.Because
			if a.UsedBy == "" {
				because = "(not built yet: no policy uses it) " + because
			}
			fmt.Fprintf(tw, "  %s\t%s\t%s\n", yesNo(a.Available), a.Name, because)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	return printShort(w, d)
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
			return p.Print(&c, func(w io.Writer) error {
				b, err := c.Print()
				if err != nil {
					return err
				}
				_, err = w.Write(b)
				return err
			})
		},
	}
	defaults.Flags().StringVar(&profile, "profile", config.DefaultProfile, "cpi2, relief or single-node")
	check := &cobra.Command{
		Use: "check FILE", Short: "Check a configuration file; exit 2 with one line when it is wrong", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := load(args[0])
			if err != nil {
				return err
			}
			warning := noSpecHere(c)
			return p.Print(map[string]any{"file": args[0], "ok": true, "rules": len(c.Tasks), "warning": warning}, func(w io.Writer) error {
				if warning != "" {
					warning = "WARNING, on this host: " + warning + "\n"
				}
				_, err := fmt.Fprintf(w, "%s is good: %s, %d rules\n%s", args[0], modes(c), len(c.Tasks), warning)
				return err
			})
		},
	}
	cmd.AddCommand(defaults, check, matchCommand(p))
	return cmd
}
