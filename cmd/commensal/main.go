// Command commensal is the node's agent and its operators' tool.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
)

// version is set by the build.
var version = "dev"

func main() {
	p := &cli.Printer{}
	root := &cobra.Command{
		Use:     "commensal",
		Short:   "Let best-effort work share this server without harming its services",
		Version: version,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		doctorCommand(p), initCommand(p), agentCommand(), configCommand(p), statusCommand(p), headroomCommand(p), topCommand(p), capCommand(p), demoteCommand(p), uncapCommand(p), reclaimCommand(p), movePagesCommand(p),
		protectCommand(p), explainCommand(p), replayCommand(p), restoreCommand(p), guardianCommand(), recordCommand(p), waitsCommand(p), queryCommand(p), licensesCommand(p),
	)
	os.Exit(cli.Execute(root, p))
}
