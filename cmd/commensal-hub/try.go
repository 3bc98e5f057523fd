package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
)

const (
	tryLong = `Run a hub and an agent on this machine, print the address of the pages, and end both at Ctrl-C. The hub listens on this machine
only. The agent observes: it watches what commensal init guesses of this host, and a small program in a cgroup that try makes, and
holds nothing. All that both keep is in one folder. It is removed at the end, unless --dir names it: then it stays, and the next try
goes by its config.yaml, whose rules may be edited.

Exit codes: 0 ended by Ctrl-C; 2 bad input; 4 a privilege is missing; 5 hub or agent failed.`

	// tryGroup begins the name of the cgroup that a try makes; its process id follows.
	tryGroup = "/commensal-try-"
	// smallProgram uses about a twentieth of a CPU.
	smallProgram = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.2; done"
	// hearWait is how long it may take until the hub has heard the agent, endWait until the agent has ended.
	hearWait, endWait = 2 * time.Minute, 15 * time.Second
)

// trial is a hub and an agent of this host, as people are told of it.
type trial struct {
	Pages string `json:"pages"` // with the administrator's token
	Node  string `json:"node"`
	Tasks int    `json:"tasks"` // of which the hub has heard
	Dir   string `json:"dir"`
	PID   int    `json:"agent"`

	program, listen string
	keep            bool // the folder
	children        []*child
}

// child is a program that ends with this one, also when this one is killed: the kernel then tells it to.
type child struct {
	*exec.Cmd
	done chan struct{}
}

func tryCommand(p *cli.Printer) *cobra.Command {
	t := &trial{}
	cmd := &cobra.Command{
		Use: "try", Short: "Run a hub and an agent that observes this host, to look at, until Ctrl-C", Args: cobra.NoArgs, Long: tryLong,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			runtime.LockOSThread() // the kernel tells children that the thread has ended which started them
			if err := cli.FindAgent(&t.program); err != nil {
				return err
			}
			if t.keep = t.Dir != ""; !t.keep {
				if t.Dir, err = os.MkdirTemp("", "commensal-try-"); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, os.RemoveAll(t.Dir)) }()
			}
			if t.Dir, err = filepath.Abs(t.Dir); err != nil {
				return err
			}
			if err = t.run(ctx, p); errors.Is(err, os.ErrPermission) {
				err = cli.Fail(cli.CodePrivilege, fmt.Errorf("%w; run it as root", err))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&t.Dir, "dir", "", "where all is kept (default: a temporary folder, which is removed at the end)")
	cmd.Flags().StringVar(&t.listen, "listen", "127.0.0.1:8469", "pages, on this machine; with port 0: any that is free")
	cmd.Flags().StringVar(&t.program, "agent", "", "the agent's binary (default: beside this one)")
	return cmd
}

// run serves the hub, starts the rest beside it, says where the pages are once it has heard the agent, and ends all of it.
func (t *trial) run(ctx context.Context, p *cli.Printer) (err error) {
	dir := filepath.Join(t.Dir, "hub")
	name, _ := os.Hostname() // none is none
	t.Node = cmp.Or(strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-"), "-"), "this-host")
	seed, err := hub.Enrol(dir, t.Node, time.Now())
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(t.Dir, "hub.log"))
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // a log
	how := spec.Defaults()
	how.PeriodNsec, how.MinTasks = 10e9, 1 // a job has one task here, and somebody waits
	h, err := hub.New(hub.Config{Dir: dir, Listen: t.listen, NATSListen: "127.0.0.1:0", Keep: 90 * 24 * time.Hour, Spec: how, Version: version, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		return cli.Fail(cli.CodeBadInput, err)
	}
	hubCtx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it ends last
	ended := make(chan error, 1)
	go func() { ended <- h.Run(hubCtx) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	select {
	case <-h.Ready():
	case e := <-ended:
		ended <- nil
		return e
	}
	defer func() { err = errors.Join(err, t.end()) }()
	agent, err := t.start(ctx, h, seed)
	if err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case e := <-ended:
			ended <- nil
			return errors.Join(errors.New("the hub ended"), e)
		case <-agent.done:
			return cli.Fail(max(cli.CodeFailed, agent.ProcessState.ExitCode()), fmt.Errorf("the agent ended: %s", t.said()))
		case <-tick.C:
		}
		switch heard, err := t.heard(ctx, h); {
		case ctx.Err() != nil || t.Pages != "" && !heard:
		case err != nil:
			return err
		case heard:
			if err := p.Print(t, t.print); err != nil {
				return err
			}
		case time.Since(begin) > hearWait:
			return fmt.Errorf("within %s the hub has heard nothing of the agent, which says: %s", hearWait, t.said())
		}
	}
}

// heard asks the hub, until it has heard the agent, and is true once.
func (t *trial) heard(ctx context.Context, h *hub.Hub) (bool, error) {
	if t.Pages != "" {
		return false, nil
	}
	token := hub.AdminToken(filepath.Join(t.Dir, "hub"))
	var page hub.NodePage
	if err := (&client.Client{URL: h.URL(), TokenFile: token}).Do(ctx, "/v1/nodes?node="+t.Node, nil, &page); err != nil {
		return false, err
	}
	if len(page.Nodes) == 0 || page.Nodes[0].Samples == 0 {
		return false, nil
	}
	text, err := os.ReadFile(token)
	t.Pages, t.Tasks = h.URL()+"/#token="+strings.TrimSpace(string(text)), page.Nodes[0].Tasks
	return err == nil, err
}

func (t *trial) print(w io.Writer) error {
	end := ", and is removed then"
	if t.keep {
		end = ", and stays"
	}
	_, err := fmt.Fprintf(w, "The hub has heard the agent of this host (node %s), which watches tasks: %d, and holds nothing. The pages, with the administrator's token:\n\n    %s\n\nCtrl-C ends both. What they keep is in %s%s.\n", t.Node, t.Tasks, t.Pages, t.Dir, end)
	return err
}

// start starts the small program and the agent, which observes it beside what is guessed of this host.
func (t *trial) start(ctx context.Context, h *hub.Hub, seed []byte) (*child, error) {
	at := func(name string) string { return filepath.Join(t.Dir, name) }
	guessed := at("config.yaml")
	if _, err := os.Stat(guessed); errors.Is(err, os.ErrNotExist) {
		if out, err := exec.CommandContext(ctx, t.program, "init", "-o", guessed).CombinedOutput(); err != nil { //nolint:gosec // the agent's own binary
			return nil, fmt.Errorf("%s init: %w: %s", t.program, err, bytes.TrimSpace(out))
		}
	}
	c, err := config.Load(guessed)
	if err != nil {
		return nil, cli.Fail(cli.CodeBadInput, err)
	}
	for _, s := range c.Policies.Sections() {
		if *s.Mode == model.ModeEnforce {
			*s.Mode = model.ModeObserve
		}
	}
	group := tryGroup + strconv.Itoa(os.Getpid())
	c.Tasks = append(c.Tasks, config.Task{Match: group, Job: "try", Class: model.LC.String()})
	c.Agent.StateDir, c.Agent.RunDir, c.Agent.Socket, c.Agent.KillSwitch, c.Agent.MetricsListen = at("agent"), at("agent.run"), at("agent.sock"), at("agent.off"), ""
	c.Agent.DiscoverEvery = time.Second
	c.Fleet.Hub, c.Fleet.Node, c.Fleet.SeedFile, c.Fleet.Every = h.NodesURL(), t.Node, at("node.seed"), 5*time.Second
	text, err := c.Print()
	if err = errors.Join(err, os.WriteFile(at("agent.yaml"), text, 0o600), os.WriteFile(at("node.seed"), seed, 0o600)); err != nil {
		return nil, err
	}
	cg, err := openGroups()
	if err != nil {
		return nil, err
	}
	if err := cg.Mkdir(group); err != nil {
		return nil, err
	}
	small, err := t.spawn("", "sh", "-c", smallProgram)
	if err == nil {
		err = cg.MovePID(group, small.Process.Pid)
	}
	if err != nil {
		return nil, err
	}
	agent, err := t.spawn(at("agent.log"), t.program, "agent", "--config", at("agent.yaml"), "--beside-another")
	if err == nil {
		t.PID = agent.Process.Pid
	}
	return agent, err
}

// spawn starts a program in a process group of its own: a terminal's Ctrl-C comes to us, and we end it in order.
func (t *trial) spawn(log, program string, args ...string) (*child, error) {
	c := &child{Cmd: exec.Command(program, args...), done: make(chan struct{})} //nolint:gosec // named by who runs this
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if log != "" {
		f, err := os.Create(log) //nolint:gosec // in our folder
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // the child has its own
		c.Stdout, c.Stderr = f, f
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	go func() { _ = c.Wait(); close(c.done) }() // how it ended ProcessState says
	t.children = append(t.children, c)
	return c, nil
}

// end ends the children, the last one first, and removes the group.
func (t *trial) end() error {
	for i := len(t.children) - 1; i >= 0; i-- {
		c := t.children[i]
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			_ = syscall.Kill(-c.Process.Pid, sig) // it may have ended
			select {
			case <-c.done:
			case <-time.After(endWait):
				continue
			}
			break
		}
	}
	cg, err := openGroups()
	for begin := time.Now(); err == nil; time.Sleep(10 * time.Millisecond) {
		if err = cg.Rmdir(tryGroup + strconv.Itoa(os.Getpid())); err == nil || errors.Is(err, cgroup.ErrVanished) {
			return nil
		}
		if time.Since(begin) < endWait { // its last sleep goes by
			err = nil
		}
	}
	return err
}

// openGroups opens this host's cgroups, and removes those that tries left which were killed.
func openGroups() (cgroup.Driver, error) {
	fs := hostfs.NewRoot("/")
	m, err := cgroup.Discover(fs)
	if err != nil {
		return nil, err
	}
	cg, err := cgroup.Open(fs, m)
	if err != nil {
		return nil, err
	}
	list, _ := cg.List() // what cannot be listed stays
	for _, g := range list {
		rest, ours := strings.CutPrefix(g, tryGroup)
		if pid, err := strconv.Atoi(rest); ours && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = cg.Rmdir(g) // it may not be empty yet
		}
	}
	return cg, nil
}

// said is the last line that the agent said.
func (t *trial) said() string {
	text, _ := os.ReadFile(filepath.Join(t.Dir, "agent.log")) // none is none
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "commensal: ")
}
