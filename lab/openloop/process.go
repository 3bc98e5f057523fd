package openloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/commensal-io/commensal/lab/stage"
)

// The hidden words of the lab's binary with which it is a service, or batch work.
const (
	serveCommand = "serve"
	burnCommand  = "burn"
)

// Play plays the part of a service, of batch work, or of a program's way into its group, when
// these are a process's arguments; it then does not return. Every program that starts services
// calls it first: they are the same program.
func Play(args []string) {
	var err error
	switch {
	case len(args) > 3 && args[0] == stage.ExecCommand:
		err = stage.Exec(args[1], args[3:])
	case len(args) == 2 && args[0] == serveCommand:
		err = serveFile(args[1])
	case len(args) == 2 && args[0] == burnCommand:
		err = burn(args[1])
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The files of a service are its order and, with logSuffix, its log.
const logSuffix = ".log"

func serveFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("openloop: order: %w", err)
	}
	var o Order
	if err := json.Unmarshal(text, &o); err != nil {
		return fmt.Errorf("openloop: order %s: %w", path, err)
	}
	if text, err = json.Marshal(serve(&o)); err == nil {
		err = os.WriteFile(path+logSuffix, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("openloop: log: %w", err)
	}
	return nil
}

// Service is one that runs on a stage.
type Service struct {
	*stage.Proc
	order string // path
}

// Start starts a service in a group of the stage. Its requests may begin a second later.
func Start(st *stage.Stage, group, name string, o *Order) (*Service, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("openloop: order: %w", err)
	}
	s := &Service{order: filepath.Join(st.Dir, name+".order")}
	if err := os.WriteFile(s.order, text, 0o600); err != nil {
		return nil, fmt.Errorf("openloop: order: %w", err)
	}
	s.Proc, err = st.Start(group, name, "/proc/self/exe", serveCommand, s.order)
	return s, err
}

// Burn starts batch work in a group: so many threads that use all the CPU they are given.
func Burn(st *stage.Stage, group, name string, threads int) (*stage.Proc, error) {
	return st.Start(group, name, "/proc/self/exe", burnCommand, strconv.Itoa(threads))
}

// Finish waits for the service's end and returns its log.
func (s *Service) Finish(ctx context.Context) (*Log, error) {
	if err := s.Wait(ctx); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(s.order + logSuffix)
	if err != nil {
		return nil, fmt.Errorf("openloop: log: %w", err)
	}
	var log Log
	if err := json.Unmarshal(text, &log); err != nil {
		return nil, fmt.Errorf("openloop: log: %w", err)
	}
	return &log, errors.Join(os.Remove(s.order), os.Remove(s.order+logSuffix))
}
