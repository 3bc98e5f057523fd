package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/commensal-io/commensal/kernel/outside"
)

const (
	// Within is how long one reading may take. Without the driver's persistence mode each call initialises every GPU, which takes seconds.
	Within = 20 * time.Second
	// endsWithin is how soon a process ends that was killed. One that hangs in the driver does not.
	endsWithin = 2 * time.Second

	maxOutput = 256 << 10 // 16 GPUs with hundreds of processes each
	maxSays   = 200       // of an error, in a line
)

// Command asks NVIDIA's command. There is one of its processes at most, also where one can be ended by nobody.
type Command struct {
	Path   string        // absolute
	Within time.Duration // 0: the constant

	mu   sync.Mutex
	left bool // a process of an earlier call is still there
}

// Read asks for everything, and takes up to Within. It is called by one goroutine at a time.
func (c *Command) Read(ctx context.Context) (r Reading, err error) {
	within := c.Within
	if within == 0 {
		within = Within
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("killed after %s", within))
	defer cancel()
	const fields, mode = "--query-gpu=uuid,utilization.gpu,memory.total,memory.free", "mig.mode.current"
	text, err := c.run(ctx, fields+","+mode)
	known := true
	if err != nil && bytes.Contains(text, []byte(mode)) { // a driver that is older than MIG names the field that it does not know
		known = false
		text, err = c.run(ctx, fields)
	}
	if err != nil {
		return Reading{}, err
	}
	if r.GPUs, err = parseGPUs(text, known); err != nil {
		return Reading{}, err
	}
	if text, err = c.run(ctx, "--query-compute-apps=pid,gpu_uuid,used_gpu_memory"); err != nil {
		return Reading{}, err
	}
	if r.Processes, err = parseProcesses(text); err != nil {
		return Reading{}, err
	}
	return r, nil
}

// run asks one thing. It comes back soon after the context ends, whatever the process does.
func (c *Command) run(ctx context.Context, query string) ([]byte, error) {
	c.mu.Lock()
	left := c.left
	c.left = true
	c.mu.Unlock()
	if left {
		return nil, fmt.Errorf("%s: the process of an earlier call was killed and does not end: the driver hangs", c.Path)
	}
	type end struct {
		text []byte
		err  error
	}
	done := make(chan end, 1)
	go func() {
		text, err := c.start(ctx, query)
		c.mu.Lock()
		c.left = false
		c.mu.Unlock()
		done <- end{text, err}
	}()
	select {
	case e := <-done:
		return e.text, e.err
	case <-ctx.Done():
	}
	select {
	case e := <-done:
		return e.text, e.err
	case <-time.After(endsWithin):
		return nil, fmt.Errorf("%s: %w, and does not end: the driver hangs", c.Path, context.Cause(ctx))
	}
}

// start runs the process to its end.
func (c *Command) start(ctx context.Context, query string) ([]byte, error) {
	if !filepath.IsAbs(c.Path) {
		return nil, fmt.Errorf("%q is no absolute path", c.Path)
	}
	cmd, err := outside.Command(ctx, c.Path, query, "--format=csv,noheader,nounits")
	if err != nil {
		return nil, err
	}
	out, says := &bounded{left: maxOutput}, &bounded{left: maxOutput}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = out, says
	switch err = outside.Run(cmd); {
	case out.over || says.over:
		return nil, fmt.Errorf("%s: %w: it prints more than %d bytes", c.Path, ErrMalformed, maxOutput)
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil { // what is wrong it says here or there
		text := append(out.kept[:min(len(out.kept), maxSays)], says.kept[:min(len(says.kept), maxSays)]...)
		return text, fmt.Errorf("%s: %w; it said %q", c.Path, err, bytes.TrimSpace(text))
	}
	return out.kept, nil
}

// errOver ends what reads from a process that floods: it then writes to nobody.
var errOver = errors.New("too much")

// bounded keeps what is written, up to a bound.
type bounded struct {
	kept []byte
	left int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.kept = append(b.kept, p[:n]...)
	if b.over = b.over || n < len(p); b.over {
		return n, errOver
	}
	return n, nil
}
