package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/internal/webhook"
	"github.com/commensal-io/commensal/kernel/outside"
	"github.com/commensal-io/commensal/model"
)

// A hook tells somebody else what this agent cannot fix: who evicts, pages or moves work. Each decision `cannot-fix` is handed on,
// one at a time and beside the loop, which never waits; a program that hangs is killed with all that it started. Where the configuration says so
// (`pressure.hook`) it is told as well whom policy pressure freezes, lets go on and ends, and what came of it.

const (
	maxHooked   = 16      // decisions that wait to be told; more are left out and counted
	keptForWord = 4       // of these places, for what cannot be fixed
	maxAwaited  = 1024    // decisions whose result is awaited
	maxHookSays = 1 << 10 // bytes of what a program says that are logged
)

// Unfixed is what a hook is told, as JSON: on a program's standard input, and as the body of a POST.
type Unfixed struct {
	Version  int            `json:"version"` // of this document: 1
	Host     string         `json:"host"`
	Decision model.Decision `json:"decision"`
	// Result is what came of a decision that was told before, nil: it is told now, as it is written.
	Result *model.Result `json:"result,omitempty"`
}

// hook hands decisions on. A nil hook is none.
type hook struct {
	program, url string
	host         string
	timeout      time.Duration // for the program, and for the URL
	log          *slog.Logger
	in           chan Unfixed
	done         chan struct{}
	lost         int                              // since it was last said; of the loop
	closed       bool                             // likewise
	awaited      map[model.TaskNum]model.Decision // by task: told, and not yet what came of it; likewise
}

// startHook starts what the configuration names; nil: nothing.
func startHook(ctx context.Context, a *config.Agent, log *slog.Logger) *hook {
	return startHookWithin(ctx, webhook.Timeout, a, log)
}

// startHookWithin starts it with another bound on the time that one decision may take of each.
func startHookWithin(ctx context.Context, timeout time.Duration, a *config.Agent, log *slog.Logger) *hook {
	if a.HookProgram == "" && a.HookURL == "" {
		return nil
	}
	h := &hook{program: a.HookProgram, url: a.HookURL, timeout: timeout, log: log, in: make(chan Unfixed, maxHooked), done: make(chan struct{}), awaited: map[model.TaskNum]model.Decision{}}
	h.host, _ = os.Hostname() // "" where it has none
	go h.run(ctx)
	return h
}

// tell hands a decision in, and never waits; tells: its policy's are that freeze, let go on or end a task.
func (h *hook) tell(d *model.Decision, tells bool) {
	if h == nil || h.closed {
		return
	}
	gives := tells && d.Kind.Hooked() != 0
	if d.Kind != model.DecideCannotFix && !gives {
		return
	}
	told := *d
	told.Facts = append([]model.Fact(nil), d.Facts...)
	if gives && d.Mode == model.ModeEnforce.String() {
		if len(h.awaited) >= maxAwaited { // nothing came of them
			clear(h.awaited)
		}
		h.awaited[d.Task] = told
	}
	h.hand(Unfixed{Version: 1, Host: h.host, Decision: told})
}

// became hands in what came of a decision that was told, and never waits.
func (h *hook) became(r *model.Result) {
	if h == nil || h.closed || r.Scope != model.ScopeTask {
		return
	}
	d, told := h.awaited[r.Num]
	if !told || r.Kind != model.Vanished && r.Now.Knob != d.Kind.Hooked() {
		return
	}
	delete(h.awaited, r.Num)
	result := *r
	h.hand(Unfixed{Version: 1, Host: h.host, Decision: d, Result: &result})
}

func (h *hook) hand(doc Unfixed) {
	if doc.Decision.Kind != model.DecideCannotFix && len(h.in) >= maxHooked-keptForWord {
		h.lost++
		return
	}
	select {
	case h.in <- doc:
		if h.lost > 0 {
			h.log.Warn("the hook was too slow: decisions were not handed on", "left_out", h.lost)
			h.lost = 0
		}
	default:
		h.lost++
	}
}

// close waits a moment for what is under way; the context, which has ended, ends it.
func (h *hook) close() {
	if h == nil {
		return
	}
	h.closed = true
	close(h.in)
	select {
	case <-h.done:
	case <-time.After(2 * time.Second):
	}
}

func (h *hook) run(ctx context.Context) {
	defer close(h.done)
	for told := range h.in {
		if ctx.Err() != nil {
			return // of an agent that ends nobody acts on what it could not fix
		}
		doc, err := json.Marshal(told)
		if err != nil {
			h.log.Error("the hook failed: the decision cannot be written", "error", err)
			continue
		}
		if h.program != "" {
			h.say("program", h.program, h.start(ctx, doc))
		}
		if h.url != "" {
			h.say("url", h.url, h.post(ctx, doc))
		}
	}
}

func (h *hook) post(ctx context.Context, doc []byte) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	return webhook.Post(ctx, h.url, doc)
}

func (h *hook) say(what, to string, err error) {
	if err != nil {
		h.log.Error("the hook failed", what, to, "error", err)
	}
}

// start runs the program.
func (h *hook) start(ctx context.Context, doc []byte) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	says := &head{left: maxHookSays}
	cmd, err := outside.Command(ctx, h.program)
	if err != nil {
		return err
	}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(doc), says, says
	err = outside.Run(cmd)
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("killed after %s: %w", h.timeout, err)
	}
	if err != nil && len(says.kept) > 0 {
		err = fmt.Errorf("%w; it said %q", err, says.kept)
	}
	return err
}

// head keeps the first bytes of what is written. It embeds no buffer, which would take all at once (io.ReaderFrom).
type head struct {
	kept []byte
	left int
}

func (h *head) Write(b []byte) (int, error) {
	n := min(len(b), h.left)
	h.left -= n
	h.kept = append(h.kept, b[:n]...)
	return len(b), nil
}
