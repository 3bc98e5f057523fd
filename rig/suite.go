package rig

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/rig/wire"
)

// Unit is a package whose tests run in one boot.
type Unit struct {
	Package string // below the module, "kernel/psi"
	Timeout time.Duration
	// Only and Not select top-level tests by regular expression; "" is no selection.
	Only, Not string
	// Brief goes before Only where everything is run: for tests of the project's own code, to which another kernel says little and
	// which take long in a guest. NewestWhole: not on the newest. Who names the package gets all of it.
	Brief       string
	NewestWhole bool
}

// newest is the series of the kernel on which least is left out.
const newest = "6.12"

// Stage is a boot and what it runs.
type Stage struct {
	Name  string
	Exact bool // virtual time follows instructions: counters are exact
	// Contention closes the loop: what a task ran changes what its neighbours'
	// counters say.
	Contention bool
	NeedRDT    bool // the stage has nothing for a machine without
	// NotOn is the series of a kernel that cannot run the stage, with the reason.
	NotOn, Why string
	Units      []Unit
}

const (
	// exactTests need counters that follow the instructions executed.
	exactTests = "Exact"
	// contentionTests need counters that depend on who ran.
	contentionTests = "Contention"
)

// stages is what `make rig-test` runs. A package whose tests talk to the kernel has a
// line here.
var stages = []Stage{
	{
		Name: "kernel",
		Units: []Unit{
			{Package: "kernel/hostfs"},
			{Package: "kernel/procstat"},
			{Package: "kernel/cputopology"},
			{Package: "kernel/taskstats"},
			{Package: "kernel/guest"},
			{Package: "kernel/psi"},
			{Package: "kernel/cgroup"},
			{Package: "kernel/schedwait", Timeout: 5 * time.Minute},
			{Package: "kernel/numa", Timeout: 5 * time.Minute},
			{Package: "kernel/reclaim"},
			{Package: "kernel/blkio"},
			{Package: "kernel/uncore"},
			{Package: "kernel/probe"},
			{Package: "node/linux", Timeout: 10 * time.Minute}, // four and more beside other work
			{Package: "lab/stage"},
			{
				Package: "agent", Timeout: 20 * time.Minute, Not: contentionTests,
				// What hangs on cgroup v2: holds of each kind, that they end whoever is killed, memory. The rest plays on cgroup v1 in every `make test`.
				Brief: "^Test(StopRestores|KilledAgent|KilledAgentAndGuardian|HungAgent|KillSwitch|Interference|MemoryRunsOut|Pqos|OneAgentAHost|Commands|TargetMissed|UnkillableAgent|RestoreBeside|NobodyTakesTheDescriptors)$",
			},
		},
	},
	// RMIDs are handed out in order only once a boot, and those that the rig answers for
	// are told by it: packages that take many have boots of their own.
	{
		Name:  "counters",
		Units: []Unit{{Package: "kernel/perf", Timeout: 5 * time.Minute, Not: exactTests}},
	},
	{
		Name:  "resctrl",
		Units: []Unit{{Package: "kernel/resctrl", Timeout: 5 * time.Minute}},
	},
	{
		Name:    "exact",
		Exact:   true,
		NeedRDT: true,
		NotOn:   "6.1",
		Why:     "with -icount it does not get through its boot",
		Units:   []Unit{{Package: "kernel/perf", Only: exactTests}},
	},
	{
		Name:       "contention",
		Contention: true,
		NeedRDT:    true,
		Units:      []Unit{{Package: "agent", Timeout: 20 * time.Minute, Only: contentionTests, Brief: "^TestContentionCPI$", NewestWhole: true}},
	},
}

// unitTimeout is for packages that name none; the longest takes about a minute.
const unitTimeout = 3 * time.Minute

// Selection narrows a run down.
type Selection struct {
	Packages []string // "" or "./kernel/psi"; none: all
	Run      string   // as go test's -run
	Verbose  bool
	Args     []string      // for the test binaries
	Timeout  time.Duration // of each package; 0: its own
}

// has says whether a package was selected.
func (s *Selection) has(pkg string) bool {
	if len(s.Packages) == 0 {
		return true
	}
	return slices.ContainsFunc(s.Packages, func(p string) bool {
		return path.Clean(strings.TrimPrefix(p, "./")) == pkg
	})
}

// whole says whether nothing was left out.
func (s *Selection) whole() bool { return len(s.Packages) == 0 && s.Run == "" }

// Builder makes what goes into a guest.
type Builder struct {
	Repo string // the checkout
	Dir  string // where binaries go
	Go   string // the go command
}

// Binary returns where a package's test binary is.
func (b *Builder) Binary(pkg string) string {
	return filepath.Join(b.Dir, "tests", strings.ReplaceAll(pkg, "/", "-")+".test")
}

// Build builds the tests of the packages, static and without symbols, and the programs.
func (b *Builder) Build(ctx context.Context, packages []string) error {
	// What an earlier run built may be of another package list.
	for _, old := range []string{"bin", "tests"} {
		if err := os.RemoveAll(filepath.Join(b.Dir, old)); err != nil {
			return err
		}
	}
	// The version is the one that the tests' goldens name.
	args := []string{"build", "-trimpath", "-ldflags=-s -w -X main.version=test", "-o", filepath.Join(b.Dir, "bin") + "/", "./cmd/commensal", "./cmd/commensal-lab", "./cmd/commensal-guest", "./rig/guest"}
	if err := b.run(ctx, args...); err != nil {
		return err
	}
	for _, pkg := range packages {
		if err := b.run(ctx, "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", b.Binary(pkg), "./"+pkg); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, b.Go, args...)
	cmd.Dir = b.Repo
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Tests lists the top-level tests of a package that a unit runs under a selection.
func (b *Builder) Tests(ctx context.Context, u *Unit, run string) ([]string, error) {
	wanted, err := topLevel(run)
	if err != nil {
		return nil, fmt.Errorf("RUN: %w", err)
	}
	only, err := regexp.Compile(u.Only)
	if err != nil {
		return nil, fmt.Errorf("%s: Only: %w", u.Package, err)
	}
	not, err := regexp.Compile(u.Not)
	if err != nil {
		return nil, fmt.Errorf("%s: Not: %w", u.Package, err)
	}
	cmd := exec.CommandContext(ctx, b.Binary(u.Package), "-test.list", ".")
	cmd.Dir = filepath.Join(b.Repo, u.Package)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", u.Package, err)
	}
	var names []string
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Benchmark") || u.Not != "" && not.MatchString(name) || !wanted.MatchString(name) || !only.MatchString(name) {
			continue
		}
		names = append(names, name)
	}
	return names, nil
}

// topLevel returns what of a pattern of -run is for top-level tests: what stands before
// the first slash.
func topLevel(run string) (*regexp.Regexp, error) {
	top, _, sub := strings.Cut(run, "/")
	// go test would give each alternative subtests of its own.
	depth := 0
	for _, c := range run {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if sub && depth == 0 {
				return nil, fmt.Errorf("%q: alternatives beside subtests go in parentheses: (A|B)/sub", run)
			}
		}
	}
	return regexp.Compile(top)
}

// step returns what the guest runs for a unit.
func (u *Unit) step(tests []string, sel *Selection) wire.Step {
	run := sel.Run
	pattern := "^(" + strings.Join(tests, "|") + ")$"
	if _, sub, ok := strings.Cut(run, "/"); ok {
		pattern += "/" + sub
	}
	timeout := cmp.Or(sel.Timeout, u.Timeout, unitTimeout)
	dir := "/src/" + u.Package
	return wire.Step{
		Name: u.Package,
		Dir:  dir,
		Argv: append([]string{
			dir + "/" + path.Base(u.Package) + ".test",
			"-test.v=test2json", "-test.count=1", "-test.paniconexit0",
			// One CPU of the host emulates all of the guest's: more at once only makes each wait for the others.
			"-test.timeout=" + timeout.String(), "-test.parallel=2", "-test.run=" + pattern,
		}, sel.Args...),
		// go test's own timeout says more; this one is for a process that hangs in the kernel.
		TimeoutSec: int(timeout.Seconds()) + 20,
	}
}

// files maps paths in the guest to files of the host.
func (b *Builder) files(units []Unit) map[string]string {
	files := map[string]string{
		"/rig/bin":     filepath.Join(b.Dir, "bin"),
		"/bin/busybox": filepath.Join(b.Repo, artefacts, "busybox"),
	}
	if pqos := filepath.Join(b.Repo, artefacts, "pqos"); exists(pqos) { // for machine stock nobody fetches it
		files[rigtest.PqosDir] = pqos
	}
	for _, u := range units {
		dir := "/src/" + u.Package
		files[dir+"/"+path.Base(u.Package)+".test"] = b.Binary(u.Package)
		if data := filepath.Join(b.Repo, u.Package, "testdata"); exists(data) {
			files[dir+"/testdata"] = data
		}
	}
	return files
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// environment is what internal/rigtest reads.
func environment(k *Kernel, m Machine, s *Stage) []string {
	env := []string{
		rigtest.EnvKernel + "=" + k.Series,
		rigtest.EnvMachine + "=" + string(m),
		rigtest.EnvOut + "=/out",
	}
	if s.Contention {
		env = append(env, rigtest.EnvContention+"=1")
	}
	return env
}
