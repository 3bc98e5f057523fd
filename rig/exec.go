package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/commensal-io/commensal/rig/wire"
)

const (
	// execName is the step and the folder of Exec.
	execName = "exec"
	// execScript is where the guest finds the script.
	execScript = "/rig/" + execName
	// execTime bounds a script, and a person at a shell.
	execTime = 12 * time.Hour
)

// ExitError is how a script in a guest ended, if not with 0; -1: by a signal.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the script ended with %d", e.Code) }

// Exec boots a guest of the machine and kernel, with o.Files in it, and runs a script there
// with busybox's shell; what it prints goes to out. script "" is a shell for whoever is at
// this process's terminal. What the script leaves in /out is in the folder
// .rig/results/KERNEL/exec/out afterwards. ExitError when the script failed; other errors
// are of the guest or of the rig.
func Exec(ctx context.Context, o Options, script string, out io.Writer) error {
	t, err := newTester(o, execName, out)
	if err != nil {
		return err
	}
	lock, err := t.lock()
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	if err := t.builder.Build(ctx, nil); err != nil {
		return interrupted(ctx, err)
	}
	step := wire.Step{Name: execName, Dir: "/", Argv: []string{"/bin/sh"}, TimeoutSec: int(execTime.Seconds()), Console: script == ""}
	files := t.builder.files(nil)
	maps.Copy(files, o.Files)
	if script != "" {
		files[execScript] = script
		step.Argv = append(step.Argv, execScript)
	}
	boot, err := t.boot(execName, files, wire.Plan{Disk: "/dev/vda", Env: environment(t.kernel, t.Machine, &Stage{}), Steps: []wire.Step{step}})
	if err != nil {
		return err
	}
	log, err := newResults(filepath.Join(t.dir, "results", t.Series, execName), out, false)
	if err != nil {
		return err
	}
	console := log.console
	if step.Console {
		boot.Terminal, console = out, func(string) {}
	}
	exit := 0
	err = t.run(ctx, &Stage{Name: execName}, boot, execTime+bootTime, console, func(m wire.Message) {
		switch m.Kind {
		case wire.Line:
			fmt.Fprintln(out, m.Text)
		case wire.End:
			exit = m.Exit
			if m.Text != "" {
				fmt.Fprintln(os.Stderr, "rig:", m.Text)
			}
		case wire.File, wire.Done:
			log.take(m)
		}
	})
	if err == nil && exit != 0 {
		err = &ExitError{exit}
	}
	return errors.Join(interrupted(ctx, err), log.close())
}
