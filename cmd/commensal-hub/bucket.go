package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/fleet/bucket"
	"github.com/commensal-io/commensal/fleet/bucket/s3"
	"github.com/commensal-io/commensal/fleet/hub"
)

const keepLocalDays = 7 // where there is a bucket and nothing else is said

func bucketFlags(f *pflag.FlagSet, where *s3.Config) {
	f.StringVar(&where.Where, "bucket", "", "s3://NAME/PREFIX, which has the store's days as well; credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials")
	f.StringVar(&where.Endpoint, "bucket-endpoint", "", "URL of another S3-compatible server than Amazon's")
	f.StringVar(&where.Region, "bucket-region", "", "the bucket's region (default: it is asked for)")
}

// openBucket puts what flags say of a bucket into a hub's configuration.
func openBucket(cfg *hub.Config, where s3.Config, keepLocal int) error {
	if where.Where == "" {
		if where.Endpoint != "" || where.Region != "" || keepLocal != 0 {
			return errors.New("--bucket-endpoint, --bucket-region and --keep-local-days need --bucket")
		}
		return nil
	}
	const day = 24 * time.Hour
	cfg.KeepLocal = min(keepLocalDays*day, cfg.Keep)
	if keepLocal != 0 {
		cfg.KeepLocal = time.Duration(keepLocal) * day
	}
	if cfg.KeepLocal < day || cfg.KeepLocal > cfg.Keep {
		return errors.New("--keep-local-days is 1 or more, and not more than --keep-days")
	}
	b, err := s3.Open(where)
	if err != nil {
		return err
	}
	cfg.Bucket = b
	return nil
}

func storeCommand(p *cli.Printer) *cobra.Command {
	var where s3.Config
	var from, to, into string
	cmd := &cobra.Command{
		Use: "store", Short: "Read what lies in the store's bucket", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	fetch := &cobra.Command{
		Use: "fetch --bucket s3://NAME/PREFIX --from DATE [--to DATE] --into FOLDER", Short: "Bring days from the bucket into a folder, as commensal-sql reads it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			first, err := time.Parse(time.DateOnly, from)
			last := first
			if err == nil && to != "" {
				last, err = time.Parse(time.DateOnly, to)
			}
			switch {
			case err != nil:
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("--from and --to are days like 2026-05-04: %w", err))
			case last.Before(first):
				return cli.Fail(cli.CodeBadInput, fmt.Errorf("--to %s is before --from %s", to, from))
			case into == "":
				return cli.Fail(cli.CodeBadInput, errors.New("--into is missing; expected a folder of its own"))
			}
			b, err := s3.Open(where)
			if err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			got, err := bucket.Fetch(cmd.Context(), b, into, first, last)
			if err != nil {
				return err
			}
			return p.Print(&got, func(w io.Writer) error {
				fmt.Fprintf(w, "%s has %d files, %d bytes of these days; %d were copied\n", into, got.Files, got.Bytes, got.Copied)
				return nil
			})
		},
	}
	bucketFlags(fetch.Flags(), &where)
	fetch.Flags().StringVar(&from, "from", "", "the first day (UTC)")
	fetch.Flags().StringVar(&to, "to", "", "the last day (default: --from)")
	fetch.Flags().StringVar(&into, "into", "", "the folder")
	cmd.AddCommand(fetch)
	return cmd
}
