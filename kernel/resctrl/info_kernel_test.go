package resctrl

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// TestKernelDiscover: before and after mounting, second mounts, options that the kernel
// does not have, and a driver whose mount goes away under it.
func TestKernelDiscover(t *testing.T) {
	rigtest.Only(t, "mounts resctrl")
	rigtest.NeedRDT(t)
	root := hostfs.NewRoot("/")
	_, err := Discover(root)
	wantError(t, "Discover before mount", err, "", ErrNotMounted)

	d := mounted(t, MountOptions{})
	if want := (MountInfo{Point: DefaultPoint, Device: d.at.Device}); d.Mounted() != want || d.at.Device == "" {
		t.Errorf("Mounted = %+v, want %+v", d.Mounted(), want)
	}
	wantError(t, "second mount", Mount(t.TempDir(), MountOptions{}), "mounted already", unix.EBUSY)

	// Another mount at the same place, with other options: numbers mean something else.
	if err := Unmount(DefaultPoint); err != nil {
		t.Fatal(err)
	}
	_, err = d.Info()
	wantError(t, "Info when unmounted", err, "", ErrNotMounted)
	_, err = d.ReadSchemata(Name{})
	wantError(t, "ReadSchemata when unmounted", err, "", ErrNotMounted)
	_, err = d.CreateGroup("x", 0)
	wantError(t, "CreateGroup when unmounted", err, "", ErrNotMounted)
	_, err = Open(root, d.Mounted(), DefaultOptions())
	wantError(t, "Open when unmounted", err, "", ErrNotMounted)
	if err := Mount(DefaultPoint, MountOptions{CDP: true}); err != nil {
		t.Fatal(err)
	}
	_, err = d.Info()
	wantError(t, "Info with other options", err, `"cdp", was ""`, ErrRemounted)
	if newest() {
		testMountedAnew(t)
	}
	if at, err := Discover(root); err != nil || at.Options != (MountOptions{CDP: true}) {
		t.Errorf("Discover = %+v, %v", at, err)
	}
	wantError(t, "unmount twice", Unmount("/sys/fs/cgroup/nowhere"), "", unix.ENOENT)

	if err := Unmount(DefaultPoint); err != nil {
		t.Fatal(err)
	}
	err = Mount(DefaultPoint, MountOptions{Debug: true})
	if newest() {
		if err != nil {
			t.Errorf("mount with debug: %v", err)
		}
	} else {
		wantError(t, "mount with debug", err, "with debug", unix.EINVAL, ErrUnsupported)
		if err := Mount(DefaultPoint, MountOptions{}); err != nil {
			t.Fatal(err) // for the unmount at the end
		}
	}
}

// testMountedAnew: where another mount with the same options took the place of the one
// that was opened, a stranger's group has the name and the inode of ours.
func testMountedAnew(t *testing.T) {
	d := openLive(t)
	ours := ctrlGroup(t, d, "s")
	if err := Unmount(DefaultPoint); err != nil {
		t.Fatal(err)
	}
	if err := Mount(DefaultPoint, d.at.Options); err != nil {
		t.Fatal(err)
	}
	theirs := stranger(t, d, ours.Name)
	if theirs != ours.Identity {
		t.Errorf("the new group is %+v, was %+v: this kernel goes on numbering, and the check is not needed", theirs, ours.Identity)
	}
	before := get(t, d.path(ours.Name)+"/schemata")
	var want Schemata
	want.Set(MB, 0, 50)
	_, err := d.WriteSchemata(ours.Identity, want)
	wantError(t, "WriteSchemata in another mount", err, "mount ", ErrRemounted)
	if now := get(t, d.path(ours.Name)+"/schemata"); now != before {
		t.Errorf("a stranger's group was written: %q, was %q", now, before)
	}
}

// rawMkdir is mkdir without the budget.
func (d *Driver) rawMkdir(n Name) error {
	path := d.path(n)
	return d.change(appends, "mkdir", path, "", func() error {
		return d.fs.(*hostfs.Root).Mkdir(path, 0o755)
	})
}
