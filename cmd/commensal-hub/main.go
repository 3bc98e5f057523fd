// Command commensal-hub is the fleet's service, and its operators' tool.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
)

// version is set by the build.
var version = "dev"

// defaultDir is where a hub keeps everything.
const defaultDir = "/var/lib/commensal-hub"

func main() {
	p := &cli.Printer{}
	root := &cobra.Command{
		Use:     "commensal-hub",
		Short:   "Learn what is normal across a fleet, keep what happened, answer people",
		Version: version,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serveCommand(), tryCommand(p), nodeCommand(p), personCommand(p), statusCommand(p), nodesCommand(p), jobsCommand(p), specCommand(p), offCommand(p), rolloutCommand(p), nodeCommandCommand(p), schemaCommand(p), storeCommand(p))
	os.Exit(cli.Execute(root, p))
}
