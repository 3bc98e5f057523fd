// Package scene is the play that the labs of first light put on a stage: memcached under
// open-loop load as the LC victim, six honest bystanders and one antagonist as BE
// tasks of equal standing, and the agent beside them. A seed chooses the rhythms and
// which of the seven BE tasks is the antagonist; its name does not tell.
package scene

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/lab/load"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
)

// beTasks is the number of BE tasks: six bystanders and the antagonist.
const beTasks = 7

// Weight is what every task of the play has, as cpu.shares of cgroup v1 counts it: the kernel's default,
// as where nobody sets any.
const Weight = 1024

// Harm is how an antagonist does its harm.
type Harm string

// The ways, all by stress-ng. At equal weights a kernel with EEVDF keeps threads that only calculate from
// most of their harm on fast hosts, and hardly helps against who forks or sleeps all the time: each
// newcomer begins a slice of its own. p99 at equal weights, seen on two CPUs: 0.3 to 0.6 ms without any of
// them, 0.6 to 4 beside Spin, 6 to 13 beside Memory, 200 to 500 beside Fork.
const (
	Fork   Harm = "fork"   // starts processes all the time, as a build does
	Memory Harm = "memory" // maps, writes and unmaps memory
	Spin   Harm = "spin"   // calculates
)

// stressors are the arguments of stress-ng.
var stressors = map[Harm]string{Fork: "--fork 4", Memory: "--vm 4 --vm-bytes 64m", Spin: "--cpu 4 --cpu-method int64"}

// Harms lists the ways.
func Harms() []Harm { return slices.Sorted(maps.Keys(stressors)) }

// Shares returns the weight of a BE task.
func (s *Scene) Shares(path string) uint64 {
	if path == s.Antagonist {
		return cmp.Or(s.opt.Weight, Weight)
	}
	return Weight
}

// Rate is the victim's load in requests per second: memcached then uses 0.05 to 0.1 CPU.
const Rate = 4000

// Options say which play it is.
type Options struct {
	Seed  uint64
	Agent string          // path of the agent's binary
	Rate  int             // of the victim's load in requests per second; 0: Rate
	Rates []load.RateStep // its changes
	For   time.Duration   // of the load
	// Of the antagonist:
	Harm    Harm
	Weight  uint64 // 0: as everybody's
	Steady  bool   // it does not rest
	Outside bool   // it is where no rule of the agent looks
	// Beside has honest work run there too, all the time, that uses about half a CPU.
	Beside bool
	Log    io.Writer // what the stage has to say
}

// Scene is a running play.
type Scene struct {
	Stage  *stage.Stage
	Victim string   // cgroup path
	BE     []string // cgroup paths, the antagonist among them
	// Antagonist is the path of the task that will be started as the antagonist.
	Antagonist string
	Rhythms    []string // what each BE task does, for people

	opt     Options
	rng     *rand.Rand
	agent   *stage.Agent
	load    *stage.Proc
	hurting *stage.Proc // the antagonist, while it runs
	loadOut bytes.Buffer
	burst   string // the antagonist's shell loop
}

// Open sets the stage: groups, memcached and bystanders run when it returns, the
// antagonist does not yet. What was opened is closed again on an error.
func Open(ctx context.Context, o Options) (*Scene, error) {
	if stressors[o.Harm] == "" {
		return nil, fmt.Errorf("scene: no antagonist does %q; expected one of %v", o.Harm, Harms())
	}
	st, err := stage.Open(o.Log)
	if err != nil {
		return nil, err
	}
	s := &Scene{Stage: st, opt: o, rng: rand.New(rand.NewPCG(o.Seed, 0x6c61622d73636e65))}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Scene) open(ctx context.Context) error {
	var err error
	if s.Victim, err = s.Stage.Group("memcached"); err != nil {
		return err
	}
	addr, err := stage.FreeAddress()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(addr)
	if _, err := s.Stage.Start(s.Victim, "memcached", "memcached", "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", "0", "-t", "4", "-m", "64"); err != nil {
		return err
	}
	if err := s.openBE(); err != nil {
		return err
	}
	if s.opt.Beside {
		path, err := s.Stage.Group("outside")
		if err != nil {
			return err
		}
		if _, err := s.Stage.Start(path, "outside", "sh", "-c", "while :; do head -c 100000000 /dev/zero | sha256sum >/dev/null; sleep 0.2; done"); err != nil {
			return err
		}
	}
	if err := waitFor(ctx, addr); err != nil {
		return err
	}
	if err := load.Populate(ctx, load.Config{Network: "tcp", Address: addr, RatePerSec: Rate, Duration: time.Second, Seed: s.opt.Seed}); err != nil {
		return err
	}
	if s.agent, err = s.Stage.StartAgent(ctx, s.opt.Agent, "agent", s.config(addr)); err != nil {
		return err
	}
	if err := s.Protect(ctx, false); err != nil {
		return err
	}
	return s.startLoad(addr)
}

// startWait is how long a program may take until it answers, on a machine that is slow
// and busy.
const startWait = 30 * time.Second

// waitFor waits until memcached answers.
func waitFor(ctx context.Context, addr string) error {
	var err error
	for deadline := time.Now().Add(startWait); time.Now().Before(deadline); {
		var c net.Conn
		if c, err = net.Dial("tcp", addr); err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("scene: memcached does not answer at %s: %w", addr, err)
}

// bystander is an honest batch job: a real program over real data, then a pause.
type bystander struct {
	name  string
	shell string // one round of work
}

// bystanders are programs that every Debian and Ubuntu has. Each round takes a tenth of
// a CPU-second or two.
var bystanders = [...]bystander{
	{"compress", "head -c 3000000 /usr/bin/memcached /usr/bin/stress-ng 2>/dev/null | gzip -6 >/dev/null"},
	{"checksum", "head -c 30000000 /dev/zero | sha256sum >/dev/null"},
	{"sort", "seq 1 60000 | sort -R --random-source=/usr/bin/stress-ng | sort -n >/dev/null"},
	{"search", "grep -rc commensal /usr/include /usr/share/doc/memcached /etc >/dev/null 2>&1"},
	{"arithmetic", "awk 'BEGIN { for (i = 0; i < 1500000; i++) s += i * i; print s }' >/dev/null"},
	{"archive", "tar -cf - /usr/share/perl* /usr/lib/python3 2>/dev/null | head -c 20000000 | md5sum >/dev/null"},
}

// openBE makes the BE groups and starts the bystanders with rhythms of their own.
func (s *Scene) openBE() error {
	antagonist := s.rng.IntN(beTasks)
	s.Antagonist = s.Stage.Root + "/" + beName(antagonist)
	order := s.rng.Perm(len(bystanders))
	pause := func(lo, hi float64) string { return strconv.FormatFloat(lo+s.rng.Float64()*(hi-lo), 'f', 2, 64) }
	for i := range beTasks {
		path, err := s.Stage.Group(beName(i))
		if err != nil {
			return err
		}
		if err := s.Stage.Cgroups().WriteShares(path, s.Shares(path)); err != nil {
			return err
		}
		s.BE = append(s.BE, path)
		if i == antagonist {
			on, off := 2+s.rng.IntN(3), pause(1, 2)
			with := stressors[s.opt.Harm]
			if s.opt.Steady {
				s.burst = fmt.Sprintf("exec stress-ng %s -q", with)
				s.Rhythms = append(s.Rhythms, "stress-ng "+with)
				continue
			}
			s.burst = fmt.Sprintf("while :; do stress-ng %s --timeout %d -q; sleep %s; done", with, on, off)
			s.Rhythms = append(s.Rhythms, fmt.Sprintf("stress-ng %s for %d s, then %s s of rest", with, on, off))
			continue
		}
		b := bystanders[order[0]]
		order = order[1:]
		rest := pause(0.8, 2.5)
		s.Rhythms = append(s.Rhythms, fmt.Sprintf("%s, then %s s of rest", b.name, rest))
		if _, err := s.Stage.Start(path, filepath.Base(path), "sh", "-c", fmt.Sprintf("while :; do %s; sleep %s; done", b.shell, rest)); err != nil {
			return err
		}
	}
	return nil
}

// beName does not tell what the task is.
func beName(i int) string { return fmt.Sprintf("batch-%d", i+1) }

// config is the agent's configuration: the single-node profile, enforcing.
func (s *Scene) config(addr string) *config.Config {
	c := stage.AgentConfig()
	c.Policies.Mode = model.ModeEnforce
	c.Tasks = []config.Task{{Match: s.Victim, Job: "memcached", Class: "LC", Production: true}}
	for _, p := range s.BE {
		if s.opt.Outside && p == s.Antagonist {
			continue // the one that will hurt is where no rule looks
		}
		c.Tasks = append(c.Tasks, config.Task{Match: p, Job: "batch", Class: "BE", Importance: "best-effort"})
	}
	c.SLO = []config.SLO{{Job: "memcached", Kind: "memcached", Address: addr}}
	return c
}

// RecordPath is the agent's record.
func (s *Scene) RecordPath() string { return s.agent.RecordPath() }

// backWait is how long the agent has to put everything back.
const backWait = 10 * time.Second

// Protect turns the agent's protection on, or off until nothing is held any more.
func (s *Scene) Protect(ctx context.Context, on bool) error {
	if on {
		return s.agent.Client.Command(ctx, agent.Request{Kind: "protect-on"})
	}
	if err := s.agent.Client.Command(ctx, agent.Request{Kind: "protect-off"}); err != nil {
		return err
	}
	for deadline := time.Now().Add(backWait); ; {
		st, err := s.agent.Client.Status(ctx)
		switch {
		case err != nil:
			return err
		case !slices.ContainsFunc(st.Held, func(h agent.HeldStatus) bool { return h.State == engine.KnobAsked || h.State == engine.KnobHeld }):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("scene: the agent still holds %s", st.Held[0].Path)
		}
		if err := stage.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// startLoad starts the load in a process of its own, which protects itself.
func (s *Scene) startLoad(addr string) error {
	b, err := json.Marshal(s.opt.Rates)
	if err != nil {
		return fmt.Errorf("scene: %w", err)
	}
	self, err := os.Executable() // by its own name, for who reads who ran
	if err != nil {
		return fmt.Errorf("scene: %w", err)
	}
	cmd := exec.Command(self, "load", "--json", "--address", addr, "--rate", strconv.Itoa(cmp.Or(s.opt.Rate, Rate)),
		"--for", s.opt.For.String(), "--seed", strconv.FormatUint(s.opt.Seed, 10), "--steps", string(b))
	cmd.Stdout, cmd.Stderr = &s.loadOut, os.Stderr
	s.load, err = s.Stage.StartCmd(cmd, "load")
	return err
}

// Provoke starts the antagonist.
func (s *Scene) Provoke() (err error) {
	s.hurting, err = s.Stage.Start(s.Antagonist, filepath.Base(s.Antagonist), "sh", "-c", s.burst)
	return err
}

// Calm ends the antagonist.
func (s *Scene) Calm() { s.hurting.Stop() }

// Status is what the agent says of itself.
func (s *Scene) Status(ctx context.Context) (*agent.Status, error) { return s.agent.Client.Status(ctx) }

// LoadOutput is what the load's process prints with --json.
type LoadOutput struct {
	StartNsec int64        `json:"start_mono_nsec"`
	Result    *load.Result `json:"result"`
}

// loadEndWait is how long the load may take to end and print what it measured: a fifth of a second
// after five minutes of windows here, ten seconds and more on an emulated CPU.
const loadEndWait = time.Minute

// FinishLoad ends the load and returns what it measured.
func (s *Scene) FinishLoad(ctx context.Context) (*LoadOutput, error) {
	s.load.Signal(syscall.SIGINT)
	ctx, cancel := context.WithTimeout(ctx, loadEndWait)
	defer cancel()
	if err := s.load.Wait(ctx); err != nil {
		return nil, fmt.Errorf("scene: load: %w", err)
	}
	var out LoadOutput
	if err := json.Unmarshal(s.loadOut.Bytes(), &out); err != nil {
		return nil, fmt.Errorf("scene: load: %w", err)
	}
	return &out, nil
}

// FinishAgent ends the agent, which puts everything back, and leaves its record.
func (s *Scene) FinishAgent() error { return s.agent.Finish() }

// AgentCPU is what the agent used, after its end.
func (s *Scene) AgentCPU() time.Duration { return s.agent.CPU() }

// Now is the clock of the record and of the load.
func Now() int64 { return linux.MonotonicNsec() }

// Close ends everything and removes it: what was started last first, so that the agent restores
// what it holds.
func (s *Scene) Close() error { return s.Stage.Close() }
