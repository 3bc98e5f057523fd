package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/rig/wire"
)

// Options say what Test runs.
type Options struct {
	Repo    string // the checkout; artefacts are in its folder .rig
	Go      string // the go command
	Series  string // of the kernel
	Machine Machine
	Seed    uint64 // of what the emulated hardware leaves to chance
	Select  Selection
	// Files are what Exec takes into the guest: a path there to a file or folder here.
	Files map[string]string
}

// ErrFailed: a test failed, or did not run.
var ErrFailed = errors.New("FAIL")

const (
	// artefacts is the folder of what is fetched, built and written, below the checkout.
	artefacts = ".rig"
	// bootTime is what a guest may take besides its tests, on a busy host.
	bootTime = 3 * time.Minute
	// testName names a run of tests.
	testName = "test"
	// skipList names the tests that may be skipped.
	skipList = "rig/skips"
)

// guestModules are what steps are promised: a disk, ext4, swap that is compressed, and vsock of the guest with itself.
var guestModules = []string{"virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "zram", "lz4", "lzo", "vsock_loopback"}

// Test builds the tests, runs them in guests and prints what became of them. It returns
// ErrFailed when they did not all pass, and another error when that is not known.
func Test(ctx context.Context, o Options, out io.Writer) error {
	t, err := newTester(o, testName, out)
	if err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	lock, err := t.lock()
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	began := time.Now()
	if err := t.builder.Build(ctx, t.packages()); err != nil {
		return interrupted(ctx, err)
	}
	fmt.Fprintf(out, "built in %.0f s\n", time.Since(began).Seconds())
	ran := 0
	for i := range stages {
		if s := &stages[i]; s.NotOn == o.Series && o.Select.whole() {
			fmt.Fprintf(out, "stage %s: not on kernel %s: %s\n", s.Name, s.NotOn, s.Why)
		}
		n, err := t.stageTwice(ctx, &stages[i])
		if err != nil {
			return interrupted(ctx, err)
		}
		ran += n
	}
	if ran == 0 && len(t.bad) == 0 {
		return fmt.Errorf("nothing was selected: no test of %v matches %q", o.Select.Packages, o.Select.Run)
	}
	// What a failed run did not get to was not skipped either.
	if o.Select.whole() && len(t.bad) == 0 {
		t.bad = append(t.bad, t.stale()...)
	}
	fmt.Fprintf(out, "kernel %s, machine %s: %d packages in %.0f s\n", t.kernel.Release, o.Machine, ran, time.Since(began).Seconds())
	if len(t.flaky) > 0 {
		fmt.Fprintf(out, "failed in one boot and passed in another: %s\n", strings.Join(t.flaky, ", "))
	}
	if len(t.bad) > 0 {
		return fmt.Errorf("%w on kernel %s: %s", ErrFailed, o.Series, strings.Join(t.bad, "; "))
	}
	return nil
}

// interrupted returns why ctx ended, if it did: an error of what was killed for it is no
// error of its own.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// tester is one call of Test.
type tester struct {
	Options
	out     io.Writer
	dir     string // of artefacts
	work    string // of this run alone: what it builds and boots, and its lock
	kernel  *Kernel
	builder Builder
	skips   *Skips
	bad     []string            // packages and stages that failed
	failed  map[string][]string // by package, of the last boot: top-level tests, where nothing but tests failed
	flaky   []string            // packages that failed, and passed in a boot of their own
}

// newTester returns one for a run of this name: each has a folder of its own, so that runs of different names and kernels go on beside each other.
func newTester(o Options, name string, out io.Writer) (*tester, error) {
	repo, err := filepath.Abs(o.Repo)
	if err != nil {
		return nil, err
	}
	o.Repo = repo
	t := &tester{Options: o, out: out, dir: filepath.Join(repo, artefacts)}
	t.work = filepath.Join(t.dir, "run", o.Series, name)
	if _, err := o.Machine.emulator(t.dir); err != nil {
		return nil, err
	}
	if t.kernel, err = OpenKernel(t.dir, o.Series); err != nil {
		return nil, err
	}
	list, err := os.ReadFile(filepath.Join(repo, skipList))
	if err != nil {
		return nil, err
	}
	if t.skips, err = ParseSkips(skipList, string(list)); err != nil {
		return nil, err
	}
	t.builder = Builder{Repo: repo, Dir: filepath.Join(t.work, "build"), Go: o.Go}
	return t, nil
}

// check refuses, before anything is built, a selection that nothing can match.
func (t *tester) check() error {
	var all, unknown []string
	for _, s := range stages {
		for _, u := range s.Units {
			all = append(all, u.Package)
		}
	}
	for _, p := range t.Select.Packages {
		one := Selection{Packages: []string{p}}
		if !slices.ContainsFunc(all, one.has) {
			unknown = append(unknown, p)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(all)
		return fmt.Errorf("not a package of the rig: %s (it has %s)", strings.Join(unknown, ", "), strings.Join(slices.Compact(all), ", "))
	}
	top, sub, _ := strings.Cut(t.Select.Run, "/")
	for _, pattern := range []string{top, sub} {
		if _, err := regexp.Compile(pattern); err != nil {
			return fmt.Errorf("RUN: %w", err)
		}
	}
	return nil
}

// lock keeps a second run of the same name and kernel in the same checkout out: each would start its guests from the
// other's files. It is held until the file is closed.
func (t *tester) lock() (*os.File, error) {
	if err := os.MkdirAll(t.work, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(t.work, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another such run of the rig in this checkout is not finished: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// packages lists what the selected stages need, each once.
func (t *tester) packages() []string {
	var list []string
	for _, s := range stages {
		for _, u := range t.units(&s) {
			list = append(list, u.Package)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// units are those of a stage that are to run on this machine.
func (t *tester) units(s *Stage) []Unit {
	var list []Unit
	for _, u := range s.Units {
		if t.Select.has(u.Package) && (!s.NeedRDT || t.Machine == RDT) && s.NotOn != t.Series {
			if u.Brief != "" && t.Select.whole() && (!u.NewestWhole || t.Series != newest) {
				u.Only = u.Brief
			}
			list = append(list, u)
		}
	}
	return list
}

// stageTwice runs a stage, and what failed there once more in a boot of its own: emulated
// CPUs stand still for as long as the host likes, and one test of a thousand that meets
// this must not hide what the others say. A fault of ours fails in both boots; a guest that
// died or a kernel that complained is one in any. Who asked for a part of the suite looks
// for a fault, and is told of the first.
func (t *tester) stageTwice(ctx context.Context, s *Stage) (int, error) {
	before := len(t.bad)
	ran, err := t.stage(ctx, s)
	failed := slices.Clone(t.bad[before:])
	if err != nil || len(failed) == 0 || !t.Select.whole() {
		return ran, err
	}
	again := *s
	again.Name += "-again"
	again.Units = nil
	for _, u := range s.Units {
		if tests := t.failed[u.Package]; len(tests) > 0 && slices.Contains(failed, u.Package) {
			u.Only = "^(" + strings.Join(tests, "|") + ")$"
			again.Units = append(again.Units, u)
		}
	}
	if len(again.Units) < len(failed) {
		return ran, nil // it was not only tests that failed
	}
	t.bad = t.bad[:before]
	if _, err := t.stage(ctx, &again); err != nil {
		return ran, err
	}
	for _, u := range again.Units {
		if !slices.Contains(t.bad[before:], u.Package) {
			t.flaky = append(t.flaky, u.Package)
		}
	}
	return ran, nil
}

// stage runs one boot and returns how many packages it tested.
func (t *tester) stage(ctx context.Context, s *Stage) (int, error) {
	var units []Unit
	expected := map[string][]string{}
	plan := wire.Plan{Disk: "/dev/vda", Env: environment(t.kernel, t.Machine, s)}
	limit := bootTime
	for _, u := range t.units(s) {
		tests, err := t.builder.Tests(ctx, &u, t.Select.Run)
		if err != nil {
			return 0, err
		}
		if len(tests) == 0 {
			if t.Select.Run == "" {
				fmt.Fprintf(t.out, "FAIL\t%s\tit has no test for stage %s\n", u.Package, s.Name)
				t.bad = append(t.bad, fmt.Sprintf("%s has no test for stage %s", u.Package, s.Name))
			}
			continue
		}
		units = append(units, u)
		expected[u.Package] = tests
		step := u.step(tests, &t.Select)
		limit += time.Duration(step.TimeoutSec) * time.Second
		plan.Steps = append(plan.Steps, step)
	}
	if len(units) == 0 {
		return 0, nil
	}
	boot, err := t.boot(s.Name, t.builder.files(units), plan)
	if err != nil {
		return 0, err
	}
	boot.Exact = s.Exact
	log, err := newResults(filepath.Join(t.dir, "results", t.Series, s.Name), t.out, t.Select.Verbose)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(t.out, "stage %s: kernel %s\n", s.Name, t.kernel.Release)
	if s.Contention {
		fmt.Fprintf(t.out, "seed %d (replay: make rig-test KERNEL=%s PKG=./%s RUN=%s ARGS=-seed=%d)\n", t.Seed, t.Series, units[0].Package, units[0].Only, t.Seed)
	}
	log.judge = func(pkg string, raw []byte, end *wire.Message) *Result {
		return judge(t.Go, t.kernel, t.Machine, pkg, expected[pkg], raw, end, t.skips)
	}
	err = t.run(ctx, s, boot, limit, log.console, log.take)
	if cancelled := ctx.Err(); cancelled != nil {
		return 0, errors.Join(cancelled, log.close())
	}
	if err != nil && !ofGuest(err) {
		return 0, errors.Join(fmt.Errorf("stage %s: %w", s.Name, err), log.close())
	}
	for _, u := range units {
		log.missing(u.Package)
	}
	if err != nil {
		fmt.Fprintf(t.out, "FAIL\tstage %s: %v\n", s.Name, err)
		log.bad = append(log.bad, "stage "+s.Name)
	}
	t.bad, t.failed = append(t.bad, log.bad...), log.failed
	return len(units), log.close()
}

// boot writes the initramfs of a boot.
func (t *tester) boot(name string, files map[string]string, plan wire.Plan) (*Boot, error) {
	dir := filepath.Join(t.work, "boot", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	modules, err := t.kernel.Modules(guestModules...)
	if err != nil {
		return nil, err
	}
	initramfs := &Initramfs{
		Init:    filepath.Join(t.builder.Dir, "bin", "guest"),
		Files:   files,
		Modules: modules,
		Plan:    plan,
	}
	b := &Boot{
		Machine: t.Machine, Kernel: t.kernel,
		Initramfs: filepath.Join(dir, "initramfs"), Dir: dir, Table: filepath.Join(dir, "table"),
	}
	return b, initramfs.Write(b.Initramfs)
}

// run starts the guest, beside it what answers for its hardware.
func (t *tester) run(ctx context.Context, s *Stage, b *Boot, limit time.Duration, console func(string), each func(wire.Message)) error {
	table, err := CreateTable(b.Table)
	if err != nil {
		return err
	}
	defer table.Close() //nolint:errcheck // what it held does not outlive the guest
	for rmid, a := range fixedAnswers {
		if err := table.SetAll(rmid, a); err != nil {
			return err
		}
	}
	if !s.Contention {
		return Run(ctx, t.dir, b, limit, console, each)
	}
	ctx, stop := context.WithCancelCause(ctx)
	answering := make(chan error, 1)
	c := &Contention{Table: table, Machine: contended(), Seed: t.Seed, Tenants: tenants}
	go func() {
		err := c.Run(ctx)
		if err != nil {
			stop(err)
		}
		answering <- err
	}()
	err = Run(ctx, t.dir, b, limit, console, func(m wire.Message) {
		if m.Kind == wire.Line {
			c.Hear(m.Text)
		}
		each(m)
	})
	stop(nil)
	// When the rule failed first, Run ended for its error.
	if failed := <-answering; failed != nil && !errors.Is(err, failed) {
		err = errors.Join(err, failed)
	}
	return err
}

// ofGuest says whether an error of Run is a guest's; others are of the rig itself.
func ofGuest(err error) bool {
	return slices.ContainsFunc([]error{ErrSilent, ErrDied, ErrLate, ErrFault, ErrGarbled}, func(target error) bool {
		return errors.Is(err, target)
	})
}

// stale names the entries of the list of skips that no test needed.
func (t *tester) stale() []string {
	list := t.skips.Stale(t.Series, t.Machine)
	for i, s := range list {
		list[i] = skipList + " " + s
	}
	return list
}
