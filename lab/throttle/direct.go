package throttle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/commensal-io/commensal/lab/stage"
)

// agentConfig is the agent's configuration for a block: the instances are shared LC tasks,
// and of the policies only those of the column act.
func agentConfig(dir, match string, c Column) []byte {
	mode := func(on bool) string {
		if on {
			return "enforce"
		}
		return "off"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "profile: single-node\nmode: observe\n")
	fmt.Fprintf(&b, "cpuset:\n  mode: off\ncpu_pool:\n  mode: %s\nburst:\n  mode: %s\n", mode(c.pool()), mode(c.burst()))
	fmt.Fprintf(&b, "tasks:\n  - {match: %q, job: pool, class: LC, production: true}\n", match)
	fmt.Fprintf(&b, "agent:\n  state_dir: %s\n  socket: %s\n  kill_switch: %s\n  metrics_listen: \"\"\n  discover_every: 1s\n",
		dir, filepath.Join(dir, "agent.sock"), filepath.Join(dir, "off"))
	return b.Bytes()
}

// director is the agent of a block.
type director struct {
	proc *stage.Proc
	log  string
	dir  string
}

const (
	// answerWait is how long the agent may take until it answers, on a busy machine.
	answerWait = 30 * time.Second
	// endWait is how long it may take to put everything back.
	endWait = 15 * time.Second
)

// direct starts the agent of a column and waits until it answers.
func (b *bed) direct(ctx context.Context, t *troupe, c Column) (*director, error) {
	return b.directOne(ctx, t, b.stage.Root+"/"+t.name+"-*", c)
}

// directOne is direct for the groups that a pattern matches.
func (b *bed) directOne(ctx context.Context, t *troupe, match string, c Column) (*director, error) {
	d := &director{dir: filepath.Join(b.stage.Dir, "agent-"+t.name)}
	d.log = d.dir + ".log"
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("throttle: %w", err)
	}
	path := filepath.Join(d.dir, "config.yaml")
	if err := os.WriteFile(path, agentConfig(d.dir, match, c), 0o600); err != nil {
		return nil, fmt.Errorf("throttle: %w", err)
	}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, fmt.Errorf("throttle: %w", err)
	}
	defer log.Close() //nolint:errcheck // the agent has its own
	cmd := exec.Command(b.opt.Agent, "agent", "--config", path)
	cmd.Stdout, cmd.Stderr = log, log
	if d.proc, err = b.stage.StartCmd(cmd, "agent"); err != nil {
		return nil, err
	}
	if err := d.await(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, tail(d.log)), d.end())
	}
	return d, nil
}

// await waits until the agent's socket takes calls, which is once its loop runs.
func (d *director) await(ctx context.Context) error {
	for deadline := time.Now().Add(answerWait); time.Now().Before(deadline); {
		conn, err := net.Dial("unix", filepath.Join(d.dir, "agent.sock"))
		if err == nil {
			return conn.Close()
		}
		if d.proc.Ended() {
			return errors.New("throttle: the agent ended")
		}
		if err := stage.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("throttle: the agent does not answer")
}

// end ends the agent, which puts every limit back.
func (d *director) end() error {
	if d.proc == nil {
		return nil
	}
	d.proc.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	defer cancel()
	if err := d.proc.Wait(ctx); err != nil {
		return fmt.Errorf("throttle: agent: %w\n%s", err, tail(d.log))
	}
	return nil
}
