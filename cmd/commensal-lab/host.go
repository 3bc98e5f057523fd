package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/commensal-io/commensal/internal/cli"
)

// errInterrupted: an experiment was stopped from outside and cleaned up behind itself.
var errInterrupted = errors.New("interrupted; everything was put back")

// onHost plays an experiment on this host: as root, with the agent's binary found, and
// until it ends or somebody interrupts it.
func onHost(parent context.Context, what string, agent *string, play func(ctx context.Context) error) error {
	if os.Geteuid() != 0 {
		return cli.Fail(cli.CodePrivilege, fmt.Errorf("%s makes cgroups and runs the agent: run it as root", what))
	}
	if err := findAgent(agent); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := play(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return err
}

// findAgent finds the agent beside the lab's own binary, unless it was named.
func findAgent(path *string) error {
	if *path != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	*path = filepath.Join(filepath.Dir(self), "commensal")
	if _, err := os.Stat(*path); err != nil {
		return cli.Fail(cli.CodeBadInput, fmt.Errorf("the agent's binary is not at %s; `make build` makes it, or name it with --agent", *path))
	}
	return nil
}
