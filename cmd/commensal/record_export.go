package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/record/export"
)

func exportCommand(p *cli.Printer) *cobra.Command {
	var dir string
	var lines, columns bool
	cmd := &cobra.Command{
		Use: "export --jsonl|--parquet RECORD", Short: "Write a record as tables: samples, nodes, decisions, facts, incidents", Args: cobra.ExactArgs(1),
		Long: `Write a record, a folder or one segment, as tables that other programs read: what was
measured of each task and of the node, what was decided and by which facts, and incidents as
they stood last. Both formats have the same tables and columns; docs/RECORD.md is the schema.
Files that are there already are not written over. A segment that is damaged is named, and
exported as far as it is good; the exit code is 2 then.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if lines == columns {
				return cli.Fail(cli.CodeBadInput, errors.New("expected one of --jsonl and --parquet"))
			}
			write := export.JSONL
			if columns {
				write = export.Parquet
			}
			res, err := write(args[0], dir)
			if err != nil {
				return recordError(err)
			}
			err = p.Print(res, func(w io.Writer) error {
				for _, t := range export.Tables() {
					fmt.Fprintf(w, "%s/%s.%s: %d rows\n", res.Dir, t.Name, res.Format, res.Rows[t.Name])
				}
				printReading(w, &res.Reading, "exported")
				return nil
			})
			if err == nil && len(res.Damaged) > 0 {
				err = cli.Fail(cli.CodeBadInput, &cli.Told{})
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&lines, "jsonl", false, "lines of JSON")
	f.BoolVar(&columns, "parquet", false, "Parquet, compressed with zstd")
	f.StringVar(&dir, "to", "export", "the folder to write to")
	return cmd
}
