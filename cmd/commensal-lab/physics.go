package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
)

// physicsFlag adds the flag under which physics simulated machines are played.
func physicsFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "physics", "usual", "of the simulated machines: usual, or published, with all terms that public measurements add (docs/TWIN.md)")
}

// physicsOf says whether the physics that was asked for is the published one.
func physicsOf(name string) (published bool, err error) {
	switch name {
	case "usual":
		return false, nil
	case "published":
		return true, nil
	}
	return false, cli.Fail(cli.CodeBadInput, fmt.Errorf("--physics is %q; expected usual or published", name))
}
