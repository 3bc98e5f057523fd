package main

import (
	_ "embed"
	"io"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
)

// notice is what the licenses of the code that this binary links ask to be passed on with it;
// `make notice` writes it.
//
//go:embed NOTICE
var notice string

func licensesCommand(p *cli.Printer) *cobra.Command {
	var bill bool
	cmd := &cobra.Command{
		Use: "licenses", Short: "Print the licenses of the code that is in this program, or its bill of materials", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if bill {
				b, err := ownBill()
				if err != nil {
					return err
				}
				return (&cli.Printer{JSON: true, Out: p.Out}).Print(b, nil)
			}
			return p.Print(map[string]string{"notice": notice}, func(w io.Writer) error {
				_, err := io.WriteString(w, notice)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&bill, "sbom", false, "print a CycloneDX document: the modules that were linked, with versions and checksums")
	return cmd
}
