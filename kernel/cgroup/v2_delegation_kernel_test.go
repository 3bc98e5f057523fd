package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

const nobody = 65534

// TestKernelV2Delegation gives a group to an unprivileged user in the kernel's way, and
// lets a process of that user find out what is his.
func TestKernelV2Delegation(t *testing.T) {
	d := liveV2(t)
	top := ownGroup(t, d, "delegation")
	user := top + "/user"
	makeGroup(t, d, user)
	makeGroup(t, d, top+"/other")
	makeGroup(t, d, user+"/own")
	data, err := os.ReadFile("/sys/kernel/cgroup/delegate") // what a delegatee owns in the group itself
	files := strings.Fields(string(data))
	if err != nil || !slices.Contains(files, "cgroup.procs") || !slices.Contains(files, "cgroup.subtree_control") {
		t.Fatalf("delegatable: %v, %v", files, err)
	}
	for _, path := range []string{user, user + "/own"} {
		for _, name := range append([]string{""}, files...) {
			file, err := d.file(path, name)
			must(t, err)
			// Files of controllers that the group has not are listed, and not there.
			if err := os.Chown(file, nobody, nobody); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	if rigtest.Inside() {
		must(t, os.Chmod("/", 0o755)) // an initramfs may let nobody else through
	}
	runCheck(t, d, user+"/own", "delegatee "+top, syscall.SysProcAttr{})
	removeGroup(t, d, user+"/own/leaf")
}

// delegatee runs in top/user/own: it makes leaf below and works there.
func delegatee(_ *testchild.Parent, args []string) error {
	top := args[0]
	fsys := hostfs.NewRoot("/")
	m, err := Discover(fsys)
	if err != nil {
		return err
	}
	d, err := OpenUnified(fsys, m)
	if err != nil {
		return err
	}
	// After the look at /proc/self, which is root's for a process that gave root up.
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody), syscall.Setresuid(nobody, nobody, nobody)); err != nil {
		return err
	}
	user, own := top+"/user", top+"/user/own"
	leaf, self := own+"/leaf", os.Getpid()
	has := func(path string, c Controller) bool {
		list, err := d.ReadControllers(path)
		return err == nil && slices.Contains(list, c)
	}
	var failed []error
	expect := func(what string, err, want error) {
		if (want == nil) != (err == nil) || (want != nil && !errors.Is(err, want)) {
			failed = append(failed, fmt.Errorf("%s: %w, want %w", what, orNone(err), orNone(want)))
		}
		if errors.Is(err, ErrVanished) || errors.Is(err, ErrUnsupported) {
			failed = append(failed, fmt.Errorf("%s: a refusal became an absence: %w", what, err))
		}
	}
	// Mine: the tree below. Mkdir enables nothing above where nothing is missing, and
	// fails before it leaves something where it may not.
	expect("mkdir in a group with processes, which may hand nothing on", ignore(d.Mkdir(leaf), ErrHasProcesses), nil)
	if _, err := d.Inode(leaf); errors.Is(err, ErrVanished) {
		expect("plain mkdir", os.Mkdir(d.top+leaf, groupPerm), nil)
	}
	expect("moving myself down", d.MovePID(leaf, self), nil)
	expect("freezing below", d.WriteFreezer(own+"/leaf", Thawed, patience), nil)
	if has(user, CPU) && has(own, CPU) {
		expect("a limit that its owner set", d.WriteCPUMax(own, CPUMax{20000, 100000, 0}), unix.EACCES)
		_, err := d.ReadCPUMax(own)
		expect("reading it", err, nil)
		expect("a weight", d.WriteShares(user, 10), unix.EACCES)
		expect("handing on", d.Enable(own, CPU), nil)
		expect("a limit of mine", d.WriteCPUMax(leaf, CPUMax{20000, 100000, 10000}), nil)
		expect("keeping", d.Disable(own, CPU), nil)
	}
	// Not mine: the group's own switches, what is beside it, and the way out.
	expect("freezing the delegated group", d.WriteFreezer(user, Frozen, patience), unix.EACCES)
	expect("mkdir beside", d.Mkdir(top+"/x"), unix.EACCES)
	expect("rmdir beside", d.Rmdir(top+"/other"), unix.EACCES)
	expect("moving myself out", d.MovePID(top+"/other", self), unix.EACCES)
	expect("to enable above", d.Enable(top, CPU), ignoreAbsent(d, top, unix.EACCES))
	// To leave the leaf empty for who removes it.
	expect("moving myself up", d.MovePID(own, self), nil)
	expect("rmdir of mine", d.Rmdir(leaf), nil)
	return errors.Join(failed...)
}

// ignoreAbsent returns want, or the error that comes first where top has no cpu controller.
func ignoreAbsent(d *V2, top string, want error) error {
	if list, err := d.ReadControllers(top); err == nil && !slices.Contains(list, CPU) {
		return ErrNoController
	}
	return want
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// TestKernelV2Namespace looks at the hierarchy from a cgroup namespace.
func TestKernelV2Namespace(t *testing.T) {
	d := liveV2(t)
	top := ownGroup(t, d, "namespace")
	own := top + "/own"
	makeGroup(t, d, own)
	makeGroup(t, d, top+"/outside")
	attr := syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | unix.CLONE_NEWCGROUP}
	_, m := liveMounts(t)
	runCheck(t, d, own, fmt.Sprintf("namespace %s %s %v", d.top, top, m.NSDelegate), attr)
	if !rigtest.Inside() || m.NSDelegate {
		return
	}
	// The same with the other mount option, which is the whole machine's.
	must(t, unix.Mount("", d.top, "", unix.MS_REMOUNT, "nsdelegate"))
	t.Cleanup(func() { must(t, unix.Mount("", d.top, "", unix.MS_REMOUNT, "")) })
	_, again := liveMounts(t)
	if !again.NSDelegate {
		t.Errorf("remounted with nsdelegate, and Discover says %+v", again)
	}
	runCheck(t, d, own, fmt.Sprintf("namespace %s %s true", d.top, top), attr)
}

// insideNamespace runs in top/own, which is the root of its cgroup namespace, with mounts
// of its own: first the host's mount is there, then only the namespace's.
func insideNamespace(_ *testchild.Parent, args []string) error {
	host, top, delegate := args[0], args[1], args[2] == "true"
	fsys := hostfs.NewRoot("/")
	m, err := Discover(fsys)
	if err != nil || m.Unified != host || m.UnifiedPartial || m.NSDelegate != delegate {
		return fmt.Errorf("with the host's mount: %+v, %w", m, orNone(err))
	}
	whole, err := OpenUnified(fsys, m)
	if err != nil {
		return err
	}
	if list, err := whole.List(); err != nil || !slices.Contains(list, top+"/outside") {
		return fmt.Errorf("the host's groups: %v, %w", list, orNone(err))
	}
	err = whole.MovePID(top+"/outside", os.Getpid())
	if delegate && !errors.Is(err, ErrOutsideNamespace) || !delegate && err != nil {
		return fmt.Errorf("moving out of the namespace: %w", orNone(err))
	}
	if err := whole.MovePID(top+"/own", os.Getpid()); err != nil {
		return err
	}
	// A second mount shows the namespace; the host's is still the better one.
	const dir = "/tmp/commensal-test-cgroup"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		return err
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	if m, err = Discover(fsys); err != nil || m.Unified != host {
		return fmt.Errorf("with both mounts: %+v, %w", m, orNone(err))
	}
	if err := unix.Unmount(host, unix.MNT_DETACH); err != nil {
		return err
	}
	if m, err = Discover(fsys); err != nil || m.Unified != dir || !m.UnifiedPartial {
		return fmt.Errorf("with the namespace's mount: %+v, %w", m, orNone(err))
	}
	d, err := OpenUnified(fsys, m)
	if err != nil {
		return err
	}
	return fromInside(d)
}

// fromInside uses the driver of a partial hierarchy.
func fromInside(d *V2) error {
	var failed []error
	expect := func(what string, err, want error) {
		if (want == nil) != (err == nil) || (want != nil && !errors.Is(err, want)) {
			failed = append(failed, fmt.Errorf("%s: %w, want %w", what, orNone(err), orNone(want)))
		}
	}
	_, err := d.OpenRootUsage()
	expect("the machine's usage", err, ErrUnsupported)
	if err == nil || !strings.Contains(err.Error(), "namespace") {
		failed = append(failed, fmt.Errorf("it does not say why: %w", orNone(err)))
	}
	if pids, err := d.Procs("/"); err != nil || !slices.Contains(pids, int32(os.Getpid())) {
		failed = append(failed, fmt.Errorf("processes of the namespace's root: %v, %w", pids, orNone(err)))
	}
	if typ, err := d.ReadType("/"); err != nil || typ != Domain {
		failed = append(failed, fmt.Errorf("type of the namespace's root: %q, %w", typ, orNone(err)))
	}
	expect("mkdir", os.Mkdir(d.top+"/inner", groupPerm), nil)
	expect("moving inside", d.MovePID("/inner", os.Getpid()), nil)
	if list, err := d.List(); err != nil || !slices.Equal(list, []string{"/inner"}) {
		failed = append(failed, fmt.Errorf("groups inside: %v, %w", list, orNone(err)))
	}
	expect("freezer of a group inside", d.WriteFreezer("/inner", Thawed, patience), nil)
	expect("the namespace's root", d.WriteFreezer("/", Frozen, patience), ErrRootGroup)
	if _, err := d.ReadFreezer("/"); err != nil {
		failed = append(failed, fmt.Errorf("freezer of the namespace's root: %w", err))
	}
	g, err := d.Open("/inner")
	if err == nil {
		_, err = g.UsageNsec()
		err = errors.Join(err, g.Close())
	}
	expect("usage inside", err, nil)
	expect("moving back", d.MovePID("/", os.Getpid()), nil)
	expect("rmdir", d.Rmdir("/inner"), nil)
	return errors.Join(failed...)
}
