package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// patience bounds every wait: far more than any of it takes on a machine with nothing
// else to do, and less than a test run may take. In the rig all takes longer.
func patience() time.Duration {
	if rigtest.Inside() {
		return 90 * time.Second
	}
	return 40 * time.Second
}

// bed is where one test takes place.
type bed struct {
	t      *testing.T
	cg     cgroup.Driver
	root   string // cgroup path of its folder
	dir    string // scratch directory, with the agent's files
	config string
	groups []string // with a limit each, all below root
	flags  []string // of its agents
	env    []string // of its agents, besides ours
	stderr *os.File // of its agents; nil: a file each
}

// settings are what tests change in the configuration.
type settings struct {
	mode    string // "": enforce
	group   string // of the socket; "": none
	metrics string // listen address; "": none
	judge   bool   // windows are what the test is about
	cpuset  bool   // LC and BE are kept on CPUs of their own
	mildly  bool   // antagonists are demoted before they are capped
}

// newBed makes the folder, the directory and the configuration: an LC task /victim and
// BE tasks /be-*.
func newBed(t *testing.T, name string, s settings) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups are made and limited")
	}
	cg, err := openCgroups()
	if err != nil {
		t.Skipf("this kernel has no cgroups that the agent drives: %v", err)
	}
	dir, err := os.MkdirTemp("", "commensal-test-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, cg: cg, root: prefix + strconv.Itoa(os.Getpid()) + "-" + name, dir: dir, flags: []string{"--beside-another"}}
	t.Cleanup(func() {
		b.killAgents()
		if err := removeTree(cg, b.root); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	if err := os.Chmod(dir, 0o755); err != nil { // tests run programs as another user, too
		t.Fatal(err)
	}
	if err := cg.Mkdir(b.root); err != nil {
		t.Fatal(err)
	}
	b.configure(s)
	return b
}

// configure writes the configuration.
func (b *bed) configure(s settings) {
	b.t.Helper()
	if s.mode == "" {
		s.mode = "enforce"
	}
	if s.group == "" {
		s.group = "no-such-group"
	}
	window := "200ms"
	if rigtest.Inside() && !s.judge {
		window = "500ms" // the windows are most of what an idle agent does
	}
	b.config = filepath.Join(b.dir, "config.yaml")
	text := fmt.Sprintf(`version: 1
profile: single-node
signals: [slowdown]
hard_cap:
  mode: %[1]s
  demote: {enabled: %[8]t, duration: 8s}
  cpi2:
    sampling_duration: %[6]s
    sampling_frequency: %[6]s
    outlier_threshold_2: {violations: 3, window: 2s}
    correlation_window: 12s
    analysis_every: 200ms
    min_samples_per_task: 10
    verify_windows: 12
    search_windows: 20
    hard_capping_duration: 6s
    retry_after: 1s
tasks:
  - {match: %[2]s/victim, job: victim, class: LC, production: true}
  - {match: %[2]s/be-*, job: batch, class: BE, importance: best-effort}
agent:
  state_dir: %[3]s/state
  run_dir: %[3]s/run
  socket: %[3]s/agent.sock
  socket_group: %[4]s
  kill_switch: %[3]s/off
  metrics_listen: "%[5]s"
  discover_every: 200ms
  waits: %[7]t
record:
  max_bytes: 67108864
`, s.mode, b.root, b.dir, s.group, s.metrics, window, !rigtest.Inside(), s.mildly) // to read the kernel's BTF takes an emulated CPU seconds at each start
	if s.cpuset {
		text += "cpuset: {mode: enforce, floor_cores: 0, floor_share: 0}\n" // two cores of which BE keeps one are not divided
	}
	if err := os.WriteFile(b.config, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// configureFor writes a configuration of one policy, beside which nothing else is done: its lines, and the name and importance of each BE task /be-NAME.
func (b *bed) configureFor(policy string, batch ...[2]string) {
	b.t.Helper()
	text := fmt.Sprintf(`version: 1
profile: single-node
mode: off
signals: [slowdown]
resctrl: {monitor: off}
agent:
  state_dir: %[2]s/state
  run_dir: %[2]s/run
  socket: %[2]s/agent.sock
  socket_group: no-such-group
  kill_switch: %[2]s/off
  metrics_listen: ""
  waits: false # to read the kernel's BTF takes an emulated CPU seconds
%[3]s
tasks:
  - {match: %[1]s/victim, job: victim, class: LC, production: true}
`, b.root, b.dir, policy)
	for _, of := range batch {
		text += fmt.Sprintf("  - {match: %s/be-%s, job: %[2]s, class: BE, importance: %s}\n", b.root, of[0], of[1])
	}
	if err := os.WriteFile(b.config, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// usual waits until the agent knows how /victim usually is by a signal.
func (b *bed) usual(by model.Source) (spec *model.Spec) {
	b.t.Helper()
	eventually(b.t, "it is known how the service usually is by signal "+by.String(), func() bool {
		if st, err := b.ask(); err == nil {
			if at := slices.IndexFunc(st.Specs, func(sp *model.Spec) bool { return sp.Source == by && sp.Job == "victim" }); at >= 0 {
				spec = st.Specs[at]
			}
		}
		return spec != nil
	})
	return spec
}

// accused is who was found guilty so far.
type accused struct {
	held   bool // who should be, was
	others []string
}

// see notes who is held now, and who was named; whom should be, by that knob.
func (a *accused) see(b *bed, whom string, knob model.KnobKind) {
	other := func(path string) {
		if path != "" && path != whom && !slices.Contains(a.others, path) {
			a.others = append(a.others, path)
		}
	}
	st := b.status()
	for i := range st.Held {
		if h := &st.Held[i]; h.State == engine.KnobHeld && h.Path == whom && h.Knob == knob {
			a.held = true
		} else {
			other(h.Path)
		}
	}
	for _, inc := range st.Incidents {
		for i := range inc.Rounds {
			other(inc.Rounds[i].ChosenPath)
		}
	}
}

// group makes a group with a limit and returns its path.
func (b *bed) group(name string, limit cgroup.CPUMax) string {
	b.t.Helper()
	path := b.root + "/" + name
	if err := b.cg.Mkdir(path); err != nil {
		b.t.Fatal(err)
	}
	b.write(path, limit)
	b.groups = append(b.groups, path)
	return path
}

var unlimited = cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}

// tree makes three BE tasks, of which two have descendants with limits of their own.
func (b *bed) tree() []string {
	b.t.Helper()
	be0 := b.group("be-0", unlimited)
	b.group("be-0/a", cgroup.CPUMax{QuotaUsec: 50_000, PeriodUsec: 100_000, BurstUsec: 10_000})
	b.group("be-0/a/x", cgroup.CPUMax{QuotaUsec: 20_000, PeriodUsec: 100_000, BurstUsec: 20_000})
	b.group("be-0/b", unlimited)
	be1 := b.group("be-1", cgroup.CPUMax{QuotaUsec: 160_000, PeriodUsec: 200_000, BurstUsec: 20_000})
	b.group("be-1/c", cgroup.CPUMax{QuotaUsec: 30_000, PeriodUsec: 50_000})
	b.group("be-1/c/y", cgroup.CPUMax{QuotaUsec: 5_000, PeriodUsec: 100_000, BurstUsec: 1_000})
	be2 := b.group("be-2", cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: 50_000, BurstUsec: 70_000})
	return []string{be0, be1, be2}
}

func (b *bed) write(path string, limit cgroup.CPUMax) {
	b.t.Helper()
	if err := b.cg.WriteCPUMax(path, limit); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) read(path string) cgroup.CPUMax {
	b.t.Helper()
	v, err := b.cg.ReadCPUMax(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// knobs reads every limit of the bed: quota, period and burst.
func (b *bed) knobs() map[string]cgroup.CPUMax {
	b.t.Helper()
	all := map[string]cgroup.CPUMax{}
	for _, g := range b.groups {
		all[g] = b.read(g)
	}
	return all
}

// below checks what a hold did to a group below the held task: on cgroup v1, where no limit
// may exceed that of the group above, it was lowered too; on v2 it is nobody's business.
func (b *bed) below(child string, now, found map[string]cgroup.CPUMax) {
	b.t.Helper()
	if lowered := now[child] != found[child]; lowered != (b.cg.Layout() != cgroup.LayoutV2) {
		b.t.Fatalf("cgroup %s: %s below a held task was %s and is %s", b.cg.Layout(), child, found[child], now[child])
	}
}

// same fails unless every limit is as it was found.
func (b *bed) same(when string, found map[string]cgroup.CPUMax) {
	b.t.Helper()
	if diff := cmp.Diff(found, b.knobs()); diff != "" {
		b.t.Fatalf("%s: limits are not as they were found (-found +now):\n%s", when, diff)
	}
}

// proc is a running agent.
type proc struct {
	b   *bed
	cmd *exec.Cmd
	log *os.File
	end chan error
}

// agent starts an agent and waits until it answers and knows its tasks.
func (b *bed) agent() *proc {
	b.t.Helper()
	p := b.launch()
	tasks := 0
	for _, g := range b.groups {
		if strings.Count(g, "/") == 2 {
			tasks++
		}
	}
	eventually(b.t, "the agent is ready", func() bool {
		select {
		case err := <-p.end:
			b.t.Fatalf("the agent ended: %v\n%s", err, p.text())
		default:
		}
		st, err := b.ask()
		return err == nil && len(st.Tasks) == tasks
	})
	return p
}

// capped is a bed whose agent holds one task by an operator's word.
func capped(t *testing.T, name string) (b *bed, p *proc, found map[string]cgroup.CPUMax) {
	t.Helper()
	b = newBed(t, name, settings{})
	tasks := b.tree()
	found = b.knobs()
	p = b.agent()
	b.hold(tasks[0], "0.05", "10m")
	return b, p, found
}

// launch starts an agent.
func (b *bed) launch() *proc {
	b.t.Helper()
	log, err := os.CreateTemp(b.dir, "agent-*.log")
	if err != nil {
		b.t.Fatal(err)
	}
	p := &proc{b: b, log: log, cmd: exec.Command(binary, append([]string{"agent", "--config", b.config}, b.flags...)...), end: make(chan error, 1)}
	p.cmd.Stderr, p.cmd.Env = log, append(os.Environ(), b.env...)
	if b.stderr != nil {
		p.cmd.Stderr = b.stderr
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig comes when the thread ends that started it
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if started <- err; err == nil {
			p.end <- p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		b.t.Fatal(err)
	}
	return p
}

// text is what the agent and its guardian have logged.
func (p *proc) text() string {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *proc) signal(sig syscall.Signal) {
	p.b.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.b.t.Fatal(err)
	}
}

// wait waits for the agent's end and returns its exit code, -1 when a signal ended it.
func (p *proc) wait() int {
	p.b.t.Helper()
	select {
	case <-p.end:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience()):
		p.b.t.Fatalf("the agent does not end\n%s", p.text())
		return 0
	}
}

// freeze stops the agent wherever it is, so that a test can look.
func (p *proc) freeze() {
	p.b.t.Helper()
	p.signal(unix.SIGSTOP)
	eventually(p.b.t, "the agent stands still", func() bool {
		// Every thread must: one may have been inside a write.
		tids, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid))
		for _, tid := range tids {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", p.cmd.Process.Pid, tid.Name()))
			if i := bytes.LastIndexByte(stat, ')'); err == nil && i > 0 && !bytes.HasPrefix(stat[i:], []byte(") T")) {
				return false
			}
		}
		return err == nil
	})
}

// kill ends the agent at once; its guardian lives on.
func (p *proc) kill() {
	p.b.t.Helper()
	p.signal(unix.SIGKILL)
	p.wait()
}

// killBoth ends the agent and its guardian at once: nobody is left to restore.
func (p *proc) killBoth() {
	p.b.t.Helper()
	p.freeze()
	for _, pid := range p.b.processes() {
		if pid != p.cmd.Process.Pid {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	p.kill()
	p.b.alone()
}

// processes lists the agents and guardians of this bed: they name its directory.
func (b *bed) processes() []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, name := range dirs {
		line, err := os.ReadFile(name)
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		if err == nil && pid != os.Getpid() && bytes.Contains(line, []byte(b.dir+"/")) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// guardian returns the pid of an agent's guardian.
func (p *proc) guardian() int {
	p.b.t.Helper()
	pid := 0
	eventually(p.b.t, "the guardian is there", func() bool {
		list := p.b.processes()
		i := slices.IndexFunc(list, func(pid int) bool { return pid != p.cmd.Process.Pid })
		if i >= 0 {
			pid = list[i]
		}
		return i >= 0
	})
	return pid
}

// alone waits until no agent and no guardian of this bed is left.
func (b *bed) alone() {
	b.t.Helper()
	eventually(b.t, "no process is left", func() bool { return len(b.processes()) == 0 })
}

// killAgents is the clean-up after a test that failed.
func (b *bed) killAgents() {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		pids := b.processes()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// result is what a command said.
type result struct {
	out, err string
	code     int
}

// run runs a command of the program.
func (b *bed) run(args ...string) result { return b.runAs(nil, args...) }

// runAs runs a command as another user, nil for root. One that gave the agent up, because
// the machine is very busy with something else, is run again.
func (b *bed) runAs(who *syscall.Credential, args ...string) result {
	b.t.Helper()
	for deadline := time.Now().Add(patience()); ; {
		r, err := tryRun(who, args...)
		if err != nil {
			b.t.Fatalf("%v: %v", args, err)
		}
		if !strings.Contains(r.out+r.err, "Client.Timeout exceeded") || time.Now().After(deadline) {
			return r
		}
		b.t.Logf("%v: %s%s", args, r.out, r.err)
	}
}

func tryRun(who *syscall.Credential, args ...string) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &stdout, &stderr, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}, nil
}

// must runs a command on this bed's agent and fails unless it exits with the code.
func (b *bed) must(code int, args ...string) result {
	b.t.Helper()
	r := b.run(append(args, "--config", b.config)...)
	if r.code != code {
		b.t.Fatalf("%v: exit %d, expected %d\n%s%s", args, r.code, code, r.out, r.err)
	}
	return r
}

// needsIdle skips the test where the kernel has no cpu.idle.
func (b *bed) needsIdle(path string) {
	b.t.Helper()
	if _, err := b.cg.ReadIdle(path); errors.Is(err, cgroup.ErrUnsupported) {
		b.t.Skip("this kernel has no cpu.idle")
	}
}

// idle reads a group's cpu.idle.
func (b *bed) idle(path string) bool {
	b.t.Helper()
	v, err := b.cg.ReadIdle(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// ask asks the agent for its status.
func (b *bed) ask() (*agent.Status, error) {
	return agent.NewClient(b.dir + "/agent.sock").Status(b.t.Context())
}

// status asks until there is an answer: on a machine that is very busy with something else
// one may come too late for the client.
func (b *bed) status() *agent.Status {
	b.t.Helper()
	var st *agent.Status
	var err error
	eventually(b.t, "the agent answers", func() bool {
		st, err = b.ask()
		return !errors.Is(err, context.DeadlineExceeded)
	})
	if err != nil {
		b.t.Fatal(err)
	}
	// node/linux's tests, which may run beside, make such cgroups for a moment.
	st.Warnings = slices.DeleteFunc(st.Warnings, func(w string) bool { return strings.HasPrefix(w, "not all cgroups can be listed") })
	return st
}

// held returns what the agent says of one task's knob, nil when it holds nothing there.
func (b *bed) held(path string) *agent.HeldStatus {
	b.t.Helper()
	st := b.status()
	for i := range st.Held {
		if st.Held[i].Path == path {
			return &st.Held[i]
		}
	}
	return nil
}

// hold caps a task and waits until the cap is in force.
func (b *bed) hold(path, cpus, d string) {
	b.t.Helper()
	b.must(0, "cap", path, "--cpus", cpus, "--for", d)
	eventually(b.t, path+" is held", func() bool {
		h := b.held(path)
		return h != nil && h.State == engine.KnobHeld && h.Cap > 0
	})
}

// eventually waits until a condition holds. In the rig to look costs so much that it would
// be most of what the machine does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, patience(), what, ok)
}

// within is eventually for what takes so long.
func within(t *testing.T, most time.Duration, what string, ok func() bool) {
	t.Helper()
	pause := 20 * time.Millisecond
	if rigtest.Inside() {
		pause = 100 * time.Millisecond
	}
	for deadline := time.Now().Add(most); !ok(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for this: %s", most, what)
		}
	}
}

// random returns the test's generator and says how to run it again.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("replay: go test ./agent -count=1 -run '^%s$' -args -seed=%d", t.Name(), s)
	return rand.New(rand.NewPCG(s, 0))
}
