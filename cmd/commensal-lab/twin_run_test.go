package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/twin/scenario"
)

// runTwin plays what a person would type behind `commensal-lab twin`.
func runTwin(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	p := &cli.Printer{}
	root := &cobra.Command{Use: "commensal-lab"}
	root.AddCommand(twinRunCommand(p))
	root.SetOut(&b)
	root.SetArgs(append([]string{"run"}, args...))
	return cli.Execute(root, p), b.String()
}

const small = `version: 1
name: small
duration: 3s
tasks: [{name: a, class: BE, cpi: 1}]
expect: {figures: [{task: a, figure: cpu, above: 0.9}]}
`

func TestTwinRunExitCodes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	met := write("met.yaml", small)
	missed := write("missed.yaml", strings.Replace(small, "above: 0.9", "above: 2", 1))
	heavy := write("heavy.yaml", strings.Replace(small, "cpi: 1", "cpi: 1, shares: 200000", 1))
	wrong := write("wrong.yaml", strings.Replace(small, "cpi: 1", "cpi: none", 1))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{met}, cli.CodeDone, "Passed: all 1 expectations"},
		{[]string{missed}, cli.CodeFailed, "Failed: 1 of 1 expectations"},
		{[]string{missed, "--policies", "off"}, cli.CodeDone, "nothing was expected"},
		{[]string{wrong, "--json"}, cli.CodeBadInput, `wrong.yaml:4: tasks[0].cpi: is \"none\"; expected a number`},
		{[]string{"no-such-scenario"}, cli.CodeBadInput, ""},
		{[]string{filepath.Join(dir, "none.yaml")}, cli.CodeBadInput, ""},
		{[]string{}, cli.CodeBadInput, ""},
		{[]string{met, "--policies", "gruops"}, cli.CodeBadInput, ""},
		{[]string{met, "--profile", "big"}, cli.CodeBadInput, ""},
		{[]string{met, "--seam", "files"}, cli.CodeDone, "seam: files, cgroup v2"},
		{[]string{met, "--seam", "files", "--layout", "hybrid"}, cli.CodeDone, "seam: files, cgroup hybrid"},
		{[]string{met, "--seam", "wires"}, cli.CodeBadInput, ""},
		{[]string{met, "--layout", "v2"}, cli.CodeBadInput, ""},
		{[]string{met, "--seam", "files", "--layout", "v3"}, cli.CodeBadInput, ""},
		{[]string{heavy, "--seam", "files", "--json"}, cli.CodeBadInput, "heavy.yaml:4: tasks[0].shares: is 200000; on cgroup v2"},
		{[]string{heavy, "--seam", "files", "--layout", "hybrid"}, cli.CodeDone, "Passed"},
		{[]string{"--list"}, cli.CodeDone, "case-6"},
	} {
		code, out := runTwin(t, c.args...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, want %d and %q:\n%s", c.args, code, c.code, c.want, out)
		}
	}
}

func TestTwinRunJSON(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	code, out := runTwin(t, "no-pmu", "--json", "--baseline", "--seed", "5", "--policies", "observe,groups,feedback,confirm", "--html", page)
	var res scenario.Result
	if err := json.Unmarshal([]byte(strings.ReplaceAll(out, "null", "0")), &res); err != nil || code != cli.CodeDone {
		t.Fatalf("exit %d, %v", code, err)
	}
	if res.Seed != 5 || res.Mode != "observe" || len(res.Runs) != 1 || res.Runs[0].Baseline == nil || res.Passed != nil {
		t.Errorf("%+v", res)
	}
	if b, err := os.ReadFile(page); err != nil || !bytes.Contains(b, []byte("</html>")) {
		t.Errorf("the page: %v", err)
	}
}
