package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/report"
	scenariolab "github.com/commensal-io/commensal/lab/scenario"
	"github.com/commensal-io/commensal/scenarios"
	"github.com/commensal-io/commensal/twin/scenario"
	"github.com/commensal-io/commensal/twin/scenario/files"
)

// twinRun are the flags of `twin run`.
type twinRun struct {
	seed              uint64
	profile, policies string
	html, svg         string
	seam, layout      string
	baseline, list    bool
}

// The seams that a scenario can be played through.
const seamTyped, seamFiles = "typed", "files"

func twinRunCommand(p *cli.Printer) *cobra.Command {
	var o twinRun
	cmd := &cobra.Command{
		Use: "run FILE|NAME", Short: "Play a scenario on the simulated server", Args: cobra.MaximumNArgs(1),
		Long: "Play a scenario from a file, or by its name from the library (--list), and print what was measured, who was\nnamed and what was done. docs/SCENARIOS.md explains the format. Exit 0 when everything that the scenario\nexpects came true or it expects nothing, 1 when not, 2 when the scenario cannot be.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.list {
				return listScenarios(p)
			}
			if len(args) != 1 {
				return cli.Fail(cli.CodeBadInput, errors.New("expected a scenario: a file, or a name of the library (--list)"))
			}
			opts, err := o.options(cmd.Flags().Changed("seed"))
			if err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			f, err := openScenario(args[0], opts)
			if err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			bed, err := o.bed(f, cmd.Flags().Changed("layout"))
			if err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			return o.play(p, f, bed)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.seed, "seed", 1, "of everything that is drawn (default: the scenario's)")
	f.StringVar(&o.profile, "profile", "", "cpi2, relief or single-node instead of the scenario's")
	f.StringVar(&o.policies, "policies", "", "off, observe or enforce instead of the scenario's; after commas, of groups, feedback and confirm those to switch on")
	f.StringVar(&o.html, "html", "", "also write a page with plots here")
	f.StringVar(&o.svg, "svg", "", "also write the picture of the first run here")
	f.StringVar(&o.seam, "seam", seamTyped, "typed: fast; files: through drivers, journal and restore, on a simulated kernel")
	f.StringVar(&o.layout, "layout", files.Layouts()[0], "cgroups of --seam files: "+strings.Join(files.Layouts(), " or "))
	f.BoolVar(&o.baseline, "baseline", false, "also play it with policies off, and compare")
	f.BoolVar(&o.list, "list", false, "list the library")
	return cmd
}

// extras are the policies beyond CPI² that --policies can switch on.
func extras() []string { return []string{"groups", "feedback", "confirm"} }

func (o *twinRun) options(seeded bool) (scenario.Options, error) {
	opts := scenario.Options{Profile: o.profile}
	if seeded {
		opts.Seed = &o.seed
	}
	if o.profile != "" && !slices.Contains(config.Profiles(), o.profile) {
		return opts, fmt.Errorf("--profile %q: expected one of %s", o.profile, strings.Join(config.Profiles(), ", "))
	}
	if o.policies == "" {
		return opts, nil
	}
	for _, word := range strings.Split(o.policies, ",") {
		switch {
		case slices.Contains([]string{"off", "observe", "enforce"}, word):
			if opts.Mode != "" {
				return opts, fmt.Errorf("--policies %q: %s and %s", o.policies, opts.Mode, word)
			}
			opts.Mode = word
		case slices.Contains(extras(), word):
			opts.Switches = append(opts.Switches, scenario.Setting{Key: word + ".enabled", Value: "true"})
		default:
			return opts, fmt.Errorf("--policies %q: expected off, observe or enforce, and of %s those to switch on", o.policies, strings.Join(extras(), ", "))
		}
	}
	return opts, nil
}

// openScenario reads a file, or a scenario of the library where there is no such file.
func openScenario(name string, o scenario.Options) (*scenario.File, error) {
	if _, err := os.Stat(name); err == nil || strings.ContainsAny(name, "/.") {
		return scenario.Load(name, o)
	}
	b, ok := scenarios.Find(name)
	if !ok {
		return nil, fmt.Errorf("%s: is no file and no scenario of the library; `commensal-lab twin run --list` names those", name)
	}
	return scenario.Parse(name+".yaml", b, o)
}

// bed returns what the scenario is played on, or why it cannot be.
func (o *twinRun) bed(f *scenario.File, layout bool) (scenario.NewBed, error) {
	switch {
	case o.seam == seamTyped && layout:
		return nil, errors.New("--layout is of --seam files")
	case o.seam == seamTyped:
		return scenario.Typed, nil
	case o.seam != seamFiles:
		return nil, fmt.Errorf("--seam %q: expected %s or %s", o.seam, seamTyped, seamFiles)
	}
	opts, err := files.ParseOptions(o.layout)
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return files.Bed(opts), opts.Check(f)
}

func (o *twinRun) play(p *cli.Printer, f *scenario.File, bed scenario.NewBed) error {
	res, err := f.PlayAll(bed, o.baseline)
	if err != nil {
		return err
	}
	for _, out := range [...]struct {
		file  string
		write func(io.Writer, *scenario.Result) error
	}{{o.html, scenariolab.WriteHTML}, {o.svg, scenariolab.WriteSVG}} {
		if out.file == "" {
			continue
		}
		if err := writeFile(out.file, func(w io.Writer) error { return out.write(w, res) }); err != nil {
			return err
		}
	}
	outcome := report.Pass // also where nothing was expected
	if res.Passed != nil && !*res.Passed {
		outcome = report.Fail
	}
	return finish(p, res, func(w io.Writer) error { return scenariolab.WriteText(w, res) }, outcome)
}

// listed is one scenario of the library.
type listed struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

func listScenarios(p *cli.Printer) error {
	var list []listed
	for _, name := range scenarios.Names() {
		f, err := openScenario(name, scenario.Options{})
		if err != nil {
			return err
		}
		list = append(list, listed{name, f.Plans[0].Scenario.About})
	}
	return p.Print(list, func(w io.Writer) error {
		for _, s := range list {
			fmt.Fprintf(w, "%-10s %s\n", s.Name, s.About)
		}
		return nil
	})
}
