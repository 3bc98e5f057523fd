package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
)

func TestThrottleExitCodes(t *testing.T) {
	run := func(args ...string) (int, string) {
		var b bytes.Buffer
		p := &cli.Printer{}
		root := &cobra.Command{Use: "commensal-lab"}
		e := throttleExperiment()
		root.AddCommand(e.command(p))
		root.SetOut(&b)
		root.SetArgs(append([]string{"throttle", "--json"}, args...))
		return cli.Execute(root, p), b.String()
	}
	want := cli.CodeBadInput
	if os.Geteuid() != 0 {
		want = cli.CodePrivilege
	}
	// The agent's binary is not beside the test's.
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--twin-only", "--host-only"}, cli.CodeBadInput},
		{[]string{"--seed", "x"}, cli.CodeBadInput},
		{[]string{"more"}, cli.CodeBadInput},
		{[]string{"--host-only"}, want},
	} {
		code, out := run(c.args...)
		var doc struct {
			Error    string `json:"error"`
			ExitCode int    `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code != c.code || doc.ExitCode != code || doc.Error == "" {
			t.Errorf("%v: exit %d, want %d: %q, %v", c.args, code, c.code, out, err)
		}
	}
}
