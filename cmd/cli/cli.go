// Package cli holds what the project's programs share towards scripts: exit codes, and
// results as text for people or as one JSON document (DESIGN.md, "Contracts").
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	CodeDone      = 0
	CodeFailed    = 1 // the run's own check failed
	CodeBadInput  = 2
	CodeUnknown   = 3 // could not tell
	CodePrivilege = 4
	CodeBroken    = 5 // failed while running
)

// Error is an error with the exit code that it leads to.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Fail gives an error its exit code; a nil error stays nil.
func Fail(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// Answered gives an error the exit code of the HTTP status that a server refused with.
func Answered(status int, err error) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return Fail(CodePrivilege, err)
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return Fail(CodeBadInput, err)
	}
	return err
}

// Printer writes results.
type Printer struct {
	JSON bool
	Out  io.Writer
}

// Print writes one result: v as a JSON document, or what text writes, cleaned.
func (p *Printer) Print(v any, text func(w io.Writer) error) error {
	if !p.JSON {
		c := &cleaner{w: p.Out}
		return errors.Join(text(c), c.close())
	}
	enc := json.NewEncoder(p.Out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Execute runs a root command and returns the exit code. With --json a failure without
// a result of its own is a JSON document on stdout as well.
func Execute(root *cobra.Command, p *Printer) int {
	p.Out = root.OutOrStdout()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentFlags().BoolVar(&p.JSON, "json", false, "print one JSON document; logs go to stderr")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Fail(CodeBadInput, err) })
	ran := false
	for _, c := range all(root) {
		if run := c.RunE; run != nil {
			c.RunE = func(cmd *cobra.Command, args []string) error {
				ran = true
				return run(cmd, args)
			}
		}
	}
	err := root.Execute()
	if err == nil {
		return CodeDone
	}
	code := CodeBroken
	if !ran {
		code = CodeBadInput // an unknown command, or a wrong number of arguments
		if c, _, found := root.Find(os.Args[1:]); found == nil && c != root {
			err = fmt.Errorf("%w; usage: %s", err, c.UseLine())
		}
	}
	var ce *Error
	if errors.As(err, &ce) {
		code = ce.Code
	}
	var told *Told
	if errors.As(err, &told) {
		return code
	}
	// Parsing may have failed before it came to --json.
	if p.JSON || slices.Contains(os.Args[1:], "--json") {
		_ = json.NewEncoder(p.Out).Encode(map[string]any{"error": err.Error(), "exit_code": code})
	}
	fmt.Fprintf(&cleaner{w: os.Stderr}, "%s: %v\n", root.Name(), err)
	return code
}

// FindAgent finds the agent's binary beside the program's own, unless path names one. Where it is not, the error says how it is made.
func FindAgent(path *string) error {
	if *path != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	*path = filepath.Join(filepath.Dir(self), "commensal")
	if _, err := os.Stat(*path); err != nil {
		return Fail(CodeBadInput, fmt.Errorf("the agent's binary is not at %s; `make build` makes it, or name it with --agent", *path))
	}
	return nil
}

// Told is an outcome that the printed result has said already.
type Told struct{}

func (*Told) Error() string { return "see the result" }

func all(c *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{c}
	for _, s := range c.Commands() {
		list = append(list, all(s)...)
	}
	return list
}
