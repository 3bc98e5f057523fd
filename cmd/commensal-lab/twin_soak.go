package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/twin/soak"
)

func twinSoakCommand(p *cli.Printer) *cobra.Command {
	var o soak.Options
	var seeds string
	var workers int
	var list bool
	cmd := &cobra.Command{
		Use: "soak", Short: "Run the agent on simulated machines with faults, by seed, with checkers", Args: cobra.NoArgs,
		Long: "Each seed is a machine, tasks, a configuration and what goes wrong; the agent's own code runs on it through a\nsimulated kernel's files while checkers watch. A failure prints the command that plays its seed again (exit 1).\n--checks lists what is checked, and what not.",
		RunE: func(*cobra.Command, []string) error {
			if list {
				return p.Print(soak.Checks(), printChecks)
			}
			first, last, err := seedRange(seeds)
			if err != nil {
				return cli.Fail(cli.CodeBadInput, err)
			}
			defer debug.SetGCPercent(debug.SetGCPercent(soakGCPercent))
			o.Dir = memoryFolder(workers)
			sum, err := soak.Sweep(first, last, o, workers, soakProgress(last-first+1))
			if err != nil {
				return err
			}
			outcome := report.Pass
			if sum.Failed > 0 {
				outcome = report.Fail
			}
			return finish(p, sum, sum.Print, outcome)
		},
	}
	f := cmd.Flags()
	f.StringVar(&seeds, "seeds", "1..100", "first..last, or one seed")
	f.Float64Var(&o.Minutes, "minutes", soak.DefaultMinutes, "simulated minutes of each seed")
	f.IntVar(&workers, "workers", runtime.GOMAXPROCS(0), "seeds that are played at once; results do not depend on it")
	f.BoolVar(&o.Calm, "calm", false, "no faults: only kills, strangers and operators")
	f.BoolVar(&list, "checks", false, "list the checks")
	return cmd
}

// soakGCPercent is how much garbage may lie about. A seed is a few MiB, which the collector would
// look through at every few MiB that it makes: a quarter of its CPU time. Beyond this nothing is
// gained: caches are only so large.
const soakGCPercent = 400

// memoryFolder is where the records of so many seeds at a time are written and read again: in
// memory where there is plenty, which saves a tenth of a seed; "": where temporary files are.
func memoryFolder(workers int) string {
	const folder, each = "/dev/shm", 256 << 20 // several times the most that a configuration draws
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil || st.Type != unix.TMPFS_MAGIC || int64(st.Bavail)*st.Bsize < int64(max(1, workers))*each {
		return ""
	}
	if unix.Access(folder, unix.W_OK) != nil {
		return ""
	}
	return folder
}

// seedRange reads "A..B" or "A".
func seedRange(s string) (first, last uint64, err error) {
	a, b, ok := strings.Cut(s, "..")
	if !ok {
		b = a
	}
	first, err = strconv.ParseUint(a, 10, 64)
	last, errLast := strconv.ParseUint(b, 10, 64)
	if err = errors.Join(err, errLast); err != nil || last < first {
		return 0, 0, fmt.Errorf("--seeds %q: expected first..last, or one seed", s)
	}
	if last-first >= soak.MaxSeeds {
		return 0, 0, fmt.Errorf("--seeds %q: expected at most %d seeds", s, soak.MaxSeeds)
	}
	return first, last, nil
}

// soakProgress prints each failure as it comes, and now and then how far it is.
func soakProgress(seeds uint64) func(r *soak.Result) {
	begin, told, done, failed := time.Now(), time.Now(), uint64(0), 0
	return func(r *soak.Result) {
		done++
		if r.Failure != nil {
			failed++
			fmt.Fprintf(os.Stderr, "seed %d: %s: %s\n", r.Seed, r.Failure.Check, r.Failure.What)
		}
		if time.Since(told) < 5*time.Second && done < seeds {
			return
		}
		told = time.Now()
		fmt.Fprintf(os.Stderr, "%d of %d seeds, %d failed, %.0f s\n", done, seeds, failed, time.Since(begin).Seconds())
	}
}

func printChecks(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range soak.Checks() {
		fmt.Fprintf(t, "%s\t%s\n\tnot verified: %s\n", c.Name, c.What, c.Blind)
	}
	return t.Flush()
}
