package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputrace"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const recordLong = `Record the CPU use of a cgroup by the millisecond. The agent need not run, and the task notices nothing. The
trace goes to stdout, or to the file of -o; commensal-lab run burst --trace FILE recommends a bucket for it.

TASK is a cgroup's path as in commensal status ("/services/web"), on v1 below each hierarchy. Record at a
busy time, a minute or more, and where no quota throttles the task: what was held back is not in the trace,
and the trace says so.

How fine it is: the kernel charges CPU time when a task leaves a CPU and at each tick (4 ms with HZ=250), and no
reading makes it do so sooner. What comes in one step is put back to where it must have been used. On cgroup
v1, which counts by CPU, the result is right to within 2 ms; on v2, how many CPUs were used at a time is right on
average over a tick. The header of the trace has the share of such steps, how late readings were, and what the
recording cost.

Exit codes: 2 no such cgroup; 3 it used no CPU; 4 it may not be read. A recording that was interrupted, or whose cgroup
went away, is written as far as it came.`

func recordCommand(p *cli.Printer) *cobra.Command {
	var task, out string
	var d time.Duration
	cmd := &cobra.Command{
		Use: "record --cpu-trace TASK", Short: "Record a cgroup's CPU use by the millisecond, to choose its burst by", Args: cobra.NoArgs,
		Long: recordLong,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return recordTrace(ctx, p, cmd.ErrOrStderr(), task, out, d)
		},
	}
	cmd.AddCommand(exportCommand(p))
	f := cmd.Flags()
	f.StringVar(&task, "cpu-trace", "", "the cgroup's path")
	f.DurationVar(&d, "for", time.Minute, "how long, at most "+cputrace.MaxDuration.String())
	f.StringVarP(&out, "output", "o", "", "file to write (default: stdout)")
	if err := cmd.MarkFlagRequired("cpu-trace"); err != nil {
		panic(err) // a name that is not three lines above
	}
	return cmd
}

// recordTrace records, and writes once it is over: nothing but reading goes on before.
func recordTrace(ctx context.Context, p *cli.Printer, log io.Writer, task, out string, d time.Duration) (err error) {
	var file *os.File
	if out != "" {
		// Made now, so that a folder that is not there is heard of before the hour is over.
		if file, err = os.CreateTemp(filepath.Dir(out), ".commensal-trace-*"); err != nil {
			return recordFailed(err)
		}
		defer func() { // after a rename there is nothing left
			_ = file.Close()
			_ = os.Remove(file.Name())
		}()
	}
	fmt.Fprintf(log, "recording %s for %s\n", task, d)
	r, err := cputrace.Record(ctx, hostfs.NewRoot("/"), task, d)
	if err != nil {
		return recordFailed(err)
	}
	if file == nil {
		return p.Print(traceJSON{Recording: r, Trace: r.Msec()}, r.Write)
	}
	err = r.Write(file)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), out)
	}
	if err != nil {
		return err
	}
	return p.Print(traceJSON{Recording: r, File: out}, func(w io.Writer) error {
		for _, line := range r.Facts() {
			fmt.Fprintln(w, line)
		}
		_, err := fmt.Fprintf(w, "written to %s; next: commensal-lab run burst --trace %s\n", out, out)
		return err
	})
}

// traceJSON is a recording as a document: the trace itself where it is in no file.
type traceJSON struct {
	*cputrace.Recording
	File  string    `json:"file,omitempty"`
	Trace []float64 `json:"trace_ms,omitempty"`
}

// recordFailed gives the errors of a recording their exit codes.
func recordFailed(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return cli.Fail(cli.CodePrivilege, fmt.Errorf("%w; run it as root, or as a user who may read the cgroup's files", err))
	case errors.Is(err, cputrace.ErrIdle):
		return cli.Fail(cli.CodeUnknown, err)
	case errors.Is(err, cgroup.ErrUnsupportedLayout), errors.Is(err, cgroup.ErrUnsupported):
		return cli.Fail(cli.CodePrivilege, err)
	case errors.Is(err, cgroup.ErrVanished), errors.Is(err, cgroup.ErrRootGroup), errors.Is(err, hostfs.ErrBadPath),
		errors.Is(err, cputrace.ErrDuration), errors.Is(err, os.ErrNotExist):
		return cli.Fail(cli.CodeBadInput, err)
	}
	return err
}
