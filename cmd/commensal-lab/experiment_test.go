package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/report"
)

// played is a result that has everything.
type played struct {
	Seed    uint64 `json:"seed"`
	outcome report.Outcome
}

func (p played) WriteText(w io.Writer) error {
	_, err := io.WriteString(w, "text of the run\n")
	return err
}
func (p played) Outcome() report.Outcome     { return p.outcome }
func (p played) Report() report.Report       { return report.Report{Title: "a page"} }
func (p played) Chart() (report.Chart, bool) { return report.Chart{Title: "a chart"}, true }
func (p played) Plots() map[string]report.Chart {
	return map[string]report.Chart{"one.svg": {Title: "one"}}
}

func runExperiment(e experiment, args ...string) (code int, out string) {
	var b bytes.Buffer
	p := &cli.Printer{}
	root := &cobra.Command{Use: "commensal-lab"}
	root.AddCommand(e.command(p))
	root.SetOut(&b)
	root.SetArgs(append([]string{e.name}, args...))
	return cli.Execute(root, p), b.String()
}

// The exit code is the outcome's, or that of what kept the run from one.
func TestExperimentExitCodes(t *testing.T) {
	if report.Pass.Code() != cli.CodeDone || report.Fail.Code() != cli.CodeFailed || report.CouldNotTell.Code() != cli.CodeUnknown {
		t.Error("an outcome's exit code is not the contract's")
	}
	for _, c := range []struct {
		name    string
		outcome report.Outcome
		err     error
		args    []string
		code    int
		text    string
	}{
		{"passed", report.Pass, nil, nil, cli.CodeDone, "text of the run"},
		{"failed", report.Fail, nil, nil, cli.CodeFailed, "text of the run"},
		{"could not tell", report.CouldNotTell, nil, []string{"--json"}, cli.CodeUnknown, `"seed": 1`},
		{"seed", report.Pass, nil, []string{"--json", "--seed", "7"}, cli.CodeDone, `"seed": 7`},
		{"broken", report.Pass, errors.New("broken"), []string{"--json"}, cli.CodeBroken, `"error":"broken"`},
		{"no such flag", report.Pass, nil, []string{"--quick"}, cli.CodeBadInput, ""},
		{"an argument", report.Pass, nil, []string{"x"}, cli.CodeBadInput, ""},
	} {
		e := experiment{name: "x", seed: "of it", play: func(_ context.Context, o *options) (result, error) {
			return played{o.Seed, c.outcome}, c.err
		}}
		if code, out := runExperiment(e, c.args...); code != c.code || !strings.Contains(out, c.text) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s", c.name, code, c.code, c.text, out)
		}
	}
}

func TestExperimentWritesWhatIsAsked(t *testing.T) {
	dir := t.TempDir()
	page, picture := filepath.Join(dir, "page.html"), filepath.Join(dir, "chart.svg")
	plots, runs := filepath.Join(dir, "made", "by it"), 0
	e := experiment{name: "x", html: true, svg: "a picture", plots: "all pictures", play: func(context.Context, *options) (result, error) {
		runs++
		return played{}, nil
	}}
	if code, out := runExperiment(e, "--html", page, "--svg", picture, "--plots", plots); code != cli.CodeUnknown {
		t.Fatalf("exit %d\n%s", code, out)
	}
	for path, want := range map[string]string{page: "a page", picture: "a chart", filepath.Join(plots, "one.svg"): "one"} {
		if b, err := os.ReadFile(path); err != nil || !bytes.Contains(b, []byte(want)) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if code, _ := runExperiment(e, "--html", filepath.Join(dir, "none", "page.html")); code != cli.CodeBadInput || runs != 1 {
		t.Errorf("a page that cannot be written: exit %d, and %d runs: it is to be said before one", code, runs)
	}
}

// Every experiment says what it is, and the parts of a run exclude each other.
func TestExperiments(t *testing.T) {
	for _, e := range append(experiments(), demoExperiment(), benchExperiment(), calibrateExperiment()) {
		cmd := e.command(&cli.Printer{})
		if cmd.Short == "" || e.host != (cmd.Flags().Lookup("agent") != nil) || (e.host && e.twin) != (cmd.Flags().Lookup("host-only") != nil) {
			t.Errorf("%s: %+v", e.name, cmd)
		}
	}
	for _, e := range experiments() {
		if e.listed == "" {
			t.Errorf("%s says nothing in the list", e.name)
		}
	}
	if code, _ := runExperiment(partitionExperiment(), "--host-only", "--twin-only"); code != cli.CodeBadInput {
		t.Errorf("both parts left out: exit %d", code)
	}
}
