// Command rig runs the project's tests in guests with real kernels (docs/RIG.md). It is
// what `make rig-test` calls after rig/prepare.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/commensal-io/commensal/rig"
)

func main() {
	os.Exit(run())
}

// run returns the exit code: 0 passed, 1 a test failed or did not run, 2 bad usage, 5
// the rig itself failed; with -exec, that of the script.
func run() int {
	o := rig.Options{Files: map[string]string{}}
	machine := flag.String("machine", string(rig.RDT), "rdt, or stock for the distribution's own emulator")
	packages := flag.String("packages", "", "only these, as ./kernel/psi, separated by spaces")
	flag.StringVar(&o.Series, "kernel", "6.12", "series of the guest's kernel")
	flag.StringVar(&o.Select.Run, "run", "", "only tests that match, as go test -run")
	flag.BoolVar(&o.Select.Verbose, "v", false, "print all that the tests print")
	flag.DurationVar(&o.Select.Timeout, "timeout", 0, "of each package; 0: its own")
	args := flag.String("args", "", "words for the test binaries, as go test -args")
	flag.StringVar(&o.Repo, "repo", ".", "the checkout")
	flag.StringVar(&o.Go, "go", "go", "the go command")
	flag.Uint64Var(&o.Seed, "seed", 0, "of what the emulated hardware leaves to chance; 0: a new one, which is printed")
	var script string
	flag.StringVar(&script, "exec", "", "no tests: run this `script` of the shell in a guest; - for a shell at this terminal")
	flag.Func("file", "`GUEST=HOST`: with -exec, take a file or folder into the guest; may be repeated", func(s string) error {
		guest, host, ok := strings.Cut(s, "=")
		if !ok || !strings.HasPrefix(guest, "/") {
			return errors.New("want /path/in/the/guest=path/here")
		}
		o.Files[guest] = host
		return nil
	})
	flag.Parse()
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	o.Machine = rig.Machine(*machine)
	o.Select.Packages, o.Select.Args = strings.Fields(*packages), strings.Fields(*args)
	if flag.NArg() > 0 || (o.Machine != rig.RDT && o.Machine != rig.Stock) {
		fmt.Fprintf(os.Stderr, "rig: unknown machine %q or argument %q\n", *machine, flag.Args())
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch script {
	case "":
		err = rig.Test(ctx, o, os.Stdout)
	case "-":
		err = rig.Exec(ctx, o, "", os.Stdout)
	default:
		err = rig.Exec(ctx, o, script, os.Stdout)
	}
	var ended *rig.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended) && ended.Code > 0:
		return ended.Code
	case errors.Is(err, rig.ErrFailed):
		fmt.Fprintln(os.Stderr, "rig:", err)
		return 1
	default:
		fmt.Fprintln(os.Stderr, "rig:", err)
		return 5
	}
}
