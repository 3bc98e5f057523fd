package reliability

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
)

// hostFault is a fault that befalls a real agent.
type hostFault struct {
	name  string
	lanes int // rounds at once: more where most of the time is waiting
	// befall lets it come. It returns when the time begins to run.
	befall func(l *lane) (from time.Time, err error)
	// notPlayed says why not here; "": it is.
	notPlayed string
}

func hostFaults() []hostFault {
	return []hostFault{
		{name: "agent killed", lanes: 2, befall: (*lane).kill},
		{name: "agent and guardian killed", lanes: 2, befall: (*lane).killBoth},
		{name: "agent hung", lanes: 8, befall: (*lane).hang},
		{name: "disk full", lanes: 2, befall: after((*lane).fill)},
		{name: "disk read-only", notPlayed: "the kernel makes no file system read-only on which files are open for writing; on the twin"},
		{name: "disk slow", notPlayed: "there is no device here that could be slowed; on the twin"},
		{name: "descriptors used up", lanes: 2, befall: after((*lane).noDescriptors)},
		{name: "memory limit reached", lanes: 2, befall: (*lane).outOfMemory},
		{name: "cgroup removed and made anew", lanes: 2, befall: after((*lane).remake)},
		{name: "cgroup renamed (v1)", lanes: 2, befall: (*lane).rename},
		{name: "stranger at 20 Hz", lanes: 4, befall: after((*lane).stranger)},
		{name: "CPU unplugged", notPlayed: "other work runs on this host's CPUs; on the twin and in the rig"},
		{name: "reboot", notPlayed: "of this host; on the twin and in the rig"},
	}
}

// Host plays so many rounds of each fault with the agent's binary on this host, as root, below
// a folder of cgroups of its own.
func Host(ctx context.Context, binary string, rounds int, done func(r *Row)) (table Table, err error) {
	s, err := stage.Open(os.Stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, f := range hostFaults() {
		row := Row{Fault: f.name, Where: "host", NotPlayed: f.notPlayed}
		if f.name == "cgroup renamed (v1)" && s.Cgroups().Layout() == cgroup.LayoutV2 {
			row.NotPlayed = "this host has cgroup v2, whose groups keep their names"
		}
		if row.NotPlayed == "" {
			if err := row.play(ctx, s, binary, &f, rounds); err != nil {
				return table, fmt.Errorf("reliability: %s: %w", f.name, err)
			}
		}
		table = append(table, row)
		done(&row)
	}
	return table, nil
}

// play plays the rounds of a fault.
func (r *Row) play(ctx context.Context, s *stage.Stage, binary string, f *hostFault, rounds int) error {
	var mu sync.Mutex
	var took []time.Duration
	var g errgroup.Group
	for n := range f.lanes {
		g.Go(func() error {
			for i := n; i < rounds; i += f.lanes {
				l := &lane{stage: s, binary: binary, name: fmt.Sprintf("%s-%d", strings.Map(letters, f.name), i), rng: rand.New(rand.NewPCG(uint64(i), 7))}
				back, err := l.round(ctx, f)
				if err = errors.Join(err, l.close()); err != nil {
					return fmt.Errorf("round %d: %w", i, err)
				}
				mu.Lock()
				took = append(took, back)
				r.Knobs += l.knobs
				if r.Wrong += len(l.wrong); len(l.wrong) > 0 && len(r.Failed) < maxFailed {
					r.Failed = append(r.Failed, fmt.Sprintf("round %d: %s", i, strings.Join(l.wrong, "; ")))
				}
				mu.Unlock()
			}
			return nil
		})
	}
	err := g.Wait()
	r.sum(took)
	return err
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' {
		return r
	}
	return -1
}

// lane is where one round takes place: an agent of its own with groups of its own.
type lane struct {
	stage  *stage.Stage
	binary string
	name   string
	rng    *rand.Rand
	agent  *stage.Agent
	guard  int // process id of its guardian
	mounts []string
	memory string // folder of a memory cgroup

	groups []group
	knobs  int
	wrong  []string // knobs that are not as they should be
}

// group is one cgroup and what should stand there in the end.
type group struct {
	path string
	max  cgroup.CPUMax
	cpus string
}

// backWait is how long all may take to be put back.
const backWait = 30 * time.Second

func (l *lane) round(ctx context.Context, f *hostFault) (time.Duration, error) {
	if err := l.make(); err != nil {
		return 0, err
	}
	if err := l.hold(ctx); err != nil {
		return 0, err
	}
	from, err := f.befall(l)
	if err != nil {
		return 0, err
	}
	for len(l.look()) > 0 && time.Since(from) < backWait {
		time.Sleep(time.Millisecond)
	}
	back := time.Since(from)
	if err := l.end(ctx); err != nil {
		return 0, err
	}
	l.knobs, l.wrong = 2*len(l.groups), l.look()
	return back, nil
}

// make makes two best-effort tasks, one with a group in it, with limits as somebody left them.
func (l *lane) make() error {
	cg := l.stage.Cgroups()
	for _, name := range []string{"", "/be-0", "/be-0/a", "/be-1"} {
		path, err := l.stage.Group(l.name + name)
		if err != nil {
			return err
		}
		if name == "" {
			continue
		}
		g := group{path: path, max: cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}}
		if name != "/be-0/a" && l.rng.IntN(2) == 0 {
			g.max = cgroup.CPUMax{QuotaUsec: 20_000 + 1000*l.rng.Int64N(100), PeriodUsec: 50_000}
			if err := cg.WriteCPUMax(path, g.max); err != nil {
				return err
			}
		}
		if g.cpus, err = cg.ReadCPUs(path); err != nil && !errors.Is(err, cgroup.ErrNoController) {
			return err
		}
		l.groups = append(l.groups, g)
	}
	for _, dir := range []string{l.name, l.name + ".run"} {
		dir = filepath.Join(l.stage.Dir, dir)
		if err := os.Mkdir(dir, 0o750); err != nil {
			return err
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
			return fmt.Errorf("a disk of its own: %w", err)
		}
		l.mounts = append(l.mounts, dir)
	}
	return nil
}

// hold starts an agent and has both tasks capped.
func (l *lane) hold(ctx context.Context) error {
	cfg := stage.AgentConfig()
	cfg.Policies.Mode, cfg.Agent.DiscoverEvery = model.ModeEnforce, 200*time.Millisecond
	cfg.Tasks = append(cfg.Tasks, config.Task{
		Match: l.stage.Root + "/" + l.name + "/be-*", Job: "batch", Class: model.BE.String(), Importance: model.BestEffort.String(),
	})
	var err error
	if l.agent, err = l.stage.StartAgent(ctx, l.binary, l.name, cfg); err != nil {
		return err
	}
	for _, i := range []int{0, 2} {
		req := agent.Request{Kind: model.CommandCap, Task: l.groups[i].path, Cap: 0.01 + 0.1*l.rng.Float64(), Duration: 600}
		for deadline := time.Now().Add(backWait); ; time.Sleep(20 * time.Millisecond) {
			if err = l.agent.Client.Command(ctx, req); err == nil || time.Now().After(deadline) {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(backWait); len(l.look()) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("nothing is held")
		}
	}
	l.guard, err = guardianOf(l.agent.Pid())
	return err
}

// look returns what is not as it should be.
func (l *lane) look() (wrong []string) {
	cg := l.stage.Cgroups()
	for i := range l.groups {
		g := &l.groups[i]
		now, err := cg.ReadCPUMax(g.path)
		if err != nil || now != g.max {
			wrong = append(wrong, fmt.Sprintf("%s has %s (%v); expected %s", g.path, now, err, g.max))
		}
		if cpus, err := cg.ReadCPUs(g.path); cpus != g.cpus && !errors.Is(err, cgroup.ErrNoController) {
			wrong = append(wrong, fmt.Sprintf("%s has CPUs %s (%v); expected %s", g.path, cpus, err, g.cpus))
		}
	}
	return wrong
}

// end ends whoever is left: the agent in order, and then its guardian is gone.
func (l *lane) end(ctx context.Context) error {
	_ = os.Remove(l.off())
	if l.agent != nil && !l.agent.Ended() {
		l.agent.Signal(syscall.SIGCONT)
		if err := l.agent.Finish(); err != nil && !l.agent.Ended() {
			return err // how it ended is its own affair: the knobs tell
		}
	}
	for deadline := time.Now().Add(backWait); l.guard > 0 && unix.Kill(l.guard, 0) == nil; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return errors.Join(ctx.Err(), errors.New("the guardian stays"))
		}
	}
	return nil
}

// close removes what the round made.
func (l *lane) close() error {
	if l.agent != nil && !l.agent.Ended() {
		l.agent.Stop()
	}
	var errs []error
	for _, dir := range l.mounts {
		errs = append(errs, unix.Unmount(dir, unix.MNT_DETACH))
	}
	cg := l.stage.Cgroups()
	for _, g := range slices.Backward(l.groups) {
		errs = append(errs, cg.Rmdir(g.path))
	}
	if l.memory != "" {
		errs = append(errs, os.Remove(l.memory))
	}
	return errors.Join(append(errs, cg.Rmdir(l.stage.Root+"/"+l.name))...)
}

// off is the agent's kill switch.
func (l *lane) off() string { return filepath.Join(l.stage.Dir, l.name+".off") }

// guardianOf finds an agent's guardian: its child.
func guardianOf(pid int) (int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, f := range dirs {
		text, err := os.ReadFile(f) //nolint:gosec // of /proc
		if err != nil {
			continue // it ended
		}
		// Behind the name, which may hold anything: state, parent.
		rest := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(rest) > 1 && rest[1] == strconv.Itoa(pid) {
			return strconv.Atoi(filepath.Base(filepath.Dir(f)))
		}
	}
	return 0, errors.New("the agent has no guardian")
}

// after lets a fault come, waits for a moment, and then ends what is held, each way in turn.
func after(befall func(l *lane) error) func(l *lane) (time.Time, error) {
	return func(l *lane) (time.Time, error) {
		if err := befall(l); err != nil {
			return time.Time{}, err
		}
		time.Sleep(time.Duration(l.rng.IntN(300)) * time.Millisecond)
		from := time.Now()
		switch l.rng.IntN(3) {
		case 0:
			return from, os.WriteFile(l.off(), nil, 0o600)
		case 1:
			return from, unix.Kill(l.agent.Pid(), unix.SIGTERM)
		}
		return from, unix.Kill(l.agent.Pid(), unix.SIGKILL)
	}
}

func (l *lane) kill() (time.Time, error) {
	return time.Now(), unix.Kill(l.agent.Pid(), unix.SIGKILL)
}

// killBoth leaves it to `commensal restore`, as the unit's ExecStopPost does.
func (l *lane) killBoth() (time.Time, error) {
	from := time.Now()
	// Stopped first: it must not see the agent's end.
	if err := errors.Join(unix.Kill(l.guard, unix.SIGSTOP), unix.Kill(l.agent.Pid(), unix.SIGKILL), unix.Kill(l.guard, unix.SIGKILL)); err != nil {
		return from, err
	}
	for !l.agent.Ended() && time.Since(from) < backWait { // a service manager waits for its end, too
		time.Sleep(time.Millisecond)
	}
	if out, err := exec.Command(l.binary, "restore", "--config", l.agent.Config).CombinedOutput(); err != nil {
		return from, fmt.Errorf("restore: %w: %s", err, out)
	}
	return from, nil
}

func (l *lane) hang() (time.Time, error) {
	return time.Now(), unix.Kill(l.agent.Pid(), unix.SIGSTOP)
}

// fill fills the disks of the agent's folders.
func (l *lane) fill() error {
	for _, dir := range l.mounts {
		f, err := os.Create(filepath.Join(dir, "full"))
		if err != nil {
			return err
		}
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		_ = f.Close()
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	return nil
}

// noDescriptors leaves the agent no descriptor but those that it has.
func (l *lane) noDescriptors() error {
	pid := l.agent.Pid()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	most := 0
	for _, e := range open {
		n, _ := strconv.Atoi(e.Name()) // they are numbers
		most = max(most, n)
	}
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(most + 1), Max: uint64(most + 1)}, nil)
}

// outOfMemory puts the agent under a limit that has no room, and the kernel kills it. In a unit
// the guardian is under the same limit, and has the room that the agent leaves; here, with a
// limit that an agent at rest reaches, it would have none.
func (l *lane) outOfMemory() (time.Time, error) {
	mount, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if l.stage.Cgroups().Layout() == cgroup.LayoutV2 {
		mount, limit = "/sys/fs/cgroup", "memory.max"
	}
	l.memory = filepath.Join(mount, "commensal-lab-memory-"+strconv.Itoa(l.agent.Pid()))
	err := os.Mkdir(l.memory, 0o755)
	write := func(name, text string) {
		if err == nil {
			err = os.WriteFile(filepath.Join(l.memory, name), []byte(text), 0o600)
		}
	}
	write(limit, strconv.Itoa(256<<10))
	write("cgroup.procs", strconv.Itoa(l.agent.Pid()))
	for deadline := time.Now().Add(backWait); err == nil && !l.agent.Ended(); {
		if time.Now().After(deadline) {
			return time.Time{}, errors.New("the limit was not reached")
		}
		_, _ = l.agent.Client.Status(context.Background()) // it needs memory to answer; it may die of it
		time.Sleep(time.Millisecond)
	}
	return time.Now(), err
}

// remake removes a task's group and makes it anew, as a runtime does that restarts a container.
func (l *lane) remake() error {
	cg, g := l.stage.Cgroups(), &l.groups[2]
	err := errors.Join(cg.Rmdir(g.path), cg.Mkdir(g.path))
	if err == nil {
		g.max, err = cg.ReadCPUMax(g.path)
	}
	return err
}

// rename gives a task's groups another name, in all hierarchies. The agent finds that by itself;
// the others are put back at its end, which comes behind.
func (l *lane) rename() (time.Time, error) {
	from := time.Now()
	to := l.stage.Root + "/" + l.name + "/was"
	dirs, err := filepath.Glob("/sys/fs/cgroup/*" + l.groups[2].path)
	for _, dir := range dirs {
		if e := os.Rename(dir, filepath.Join(filepath.Dir(dir), "was")); e != nil && !errors.Is(e, fs.ErrPermission) {
			err = errors.Join(err, e)
		}
	}
	l.groups[2].path = to
	if err == nil {
		time.Sleep(time.Duration(l.rng.IntN(300)) * time.Millisecond)
		err = unix.Kill(l.agent.Pid(), []unix.Signal{unix.SIGTERM, unix.SIGKILL}[l.rng.IntN(2)])
	}
	return from, err
}

// stranger writes a limit 20 times a second; his last word stands.
func (l *lane) stranger() error {
	cg, g := l.stage.Cgroups(), &l.groups[2]
	for i := range 20 {
		g.max = cgroup.CPUMax{QuotaUsec: 30_000 + int64(i), PeriodUsec: 40_000}
		if err := cg.WriteCPUMax(g.path, g.max); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
