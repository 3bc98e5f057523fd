package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
)

const (
	// answerWait is how long the agent may take until it answers: one that is emulated on a busy host reads the kernel's types
	// for half a minute. One that ends is not waited for.
	answerWait = 2 * time.Minute
	// restoreWait is how long it may take to put everything back.
	restoreWait = 15 * time.Second
)

// Agent is the agent's own binary, running beside the groups of a stage.
type Agent struct {
	*Proc
	Client *agent.Client
	Config string // path of its configuration
	dir    string
}

// AgentConfig is what labs configure the agent by: the profile single-node, which observes,
// without metrics, and which finds new groups within a second.
func AgentConfig() *config.Config {
	c, _ := config.Defaults(config.ProfileSingleNode) // which is there
	c.Agent.MetricsListen, c.Agent.DiscoverEvery = "", time.Second
	return &c
}

// StartAgent starts the agent with a configuration and waits until its loop runs. name parts it
// from other agents of the stage; its folders, socket and kill switch are put on the stage.
func (s *Stage) StartAgent(ctx context.Context, binary, name string, cfg *config.Config) (*Agent, error) {
	a := &Agent{dir: filepath.Join(s.Dir, name), Config: filepath.Join(s.Dir, name+".yaml")}
	binary, err := filepath.Abs(binary) // programs of a stage run in its folder
	if err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	c := *cfg
	c.Agent.StateDir, c.Agent.RunDir, c.Agent.Socket, c.Agent.KillSwitch = a.dir, a.dir+".run", a.dir+".sock", a.dir+".off"
	text, err := c.Print()
	if err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	if err := os.WriteFile(a.Config, text, 0o600); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	if a.Proc, err = s.Start("", name, binary, "agent", "--config", a.Config, "--beside-another"); err != nil {
		return nil, err
	}
	a.wait = restoreWait
	a.Client = agent.NewClient(c.Agent.Socket)
	if err := a.await(ctx); err != nil {
		return nil, errors.Join(a.failed(err), a.Finish())
	}
	return a, nil
}

func (a *Agent) await(ctx context.Context) error {
	for deadline := time.Now().Add(answerWait); ; {
		_, err := a.Client.Brief(ctx)
		switch {
		case err == nil:
			return nil
		case a.Ended():
			return errors.New("it ended")
		case time.Now().After(deadline):
			return fmt.Errorf("it does not answer: %w", err)
		}
		if err := Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// Finish ends the agent, which puts everything back and leaves its record. One that has been
// ended is left as it is.
func (a *Agent) Finish() error {
	a.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), restoreWait)
	defer cancel()
	return a.Wait(ctx)
}

// RecordPath is the folder of the agent's record.
func (a *Agent) RecordPath() string { return agent.RecordPath(a.dir) }

// Keep copies the agent's record and log to a folder.
func (a *Agent) Keep(dir string) error {
	if err := os.CopyFS(dir, os.DirFS(a.RecordPath())); err != nil {
		return fmt.Errorf("keep the record: %w", err)
	}
	text, err := os.ReadFile(a.log)
	if err != nil {
		return fmt.Errorf("keep the log: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "agent.log"), text, 0o600)
}
