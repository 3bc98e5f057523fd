package resctrl

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// TestKernelInfo reads info and the root group, and holds it against the CPU's numbers.
func TestKernelInfo(t *testing.T) {
	d := mounted(t, MountOptions{})
	info := must[*Info](t)(d.Info())
	l3, mb, mon := info.Cache(L3), info.Bandwidth(MB), info.Monitoring
	if l3 == nil || mb == nil || mon == nil {
		t.Fatalf("Info = %+v", info)
	}
	if l3.FullMask == 0 || !l3.FullMask.Contiguous() || l3.MinBits != 1 || l3.ShareableBits == 0 || l3.ShareableBits&^l3.FullMask != 0 {
		t.Errorf("L3 = %+v", l3)
	}
	sparse := SparseUnknown // no such file before 6.7
	if newest() {
		sparse = SparseNo
	}
	if l3.Sparse != sparse || l3.IOAlloc != "" {
		t.Errorf("L3: sparse %v, io_alloc %q", l3.Sparse, l3.IOAlloc)
	}
	if mb.Unit != Percent || mb.Min != 10 || mb.Max != 100 || mb.Gran != 10 || !mb.Linear || mb.ThrottleMode != "max" {
		t.Errorf("MB = %+v", mb)
	}
	if !mon.Occupancy || !mon.Total || !mon.Local || mon.AssignMode != "" || mon.FreeCounters != nil || mon.MaxThresholdOccupancyBytes == 0 {
		t.Errorf("L3_MON = %+v", mon)
	}
	if len(info.Unknown) != 0 || info.NumCLOSIDs() != min(l3.NumCLOSIDs, mb.NumCLOSIDs) {
		t.Errorf("unknown %v, %d CLOSIDs", info.Unknown, info.NumCLOSIDs())
	}

	groups := must[[]Group](t)(d.Groups(ListOptions{Tasks: true}))
	if len(groups) != 1 || !groups[0].Name.IsRoot() {
		t.Fatalf("groups = %v", names(groups))
	}
	g := groups[0]
	if g.Ours || g.Tool != "" || g.Mode != Shareable || !slices.Equal(g.CPUs, []int{0, 1, 2, 3}) || g.Tasks < 20 || g.CtrlID != -1 {
		t.Errorf("root group = %+v", g)
	}
	want := Schemata{
		{Resource: MB, Domains: []Value{{0, 100}, {1, 100}}},
		{Resource: L3, Domains: []Value{{0, uint64(l3.FullMask)}, {1, uint64(l3.FullMask)}}},
	}
	if diff := cmp.Diff(want, g.Schemata); diff != "" {
		t.Errorf("root schemata (-want +got):\n%s", diff)
	}
	for _, u := range l3.Usage {
		if u.Hardware != l3.ShareableBits || u.Shareable != l3.FullMask || u.Unused|u.Exclusive|u.PseudoLocked != 0 {
			t.Errorf("bit_usage = %+v", u)
		}
	}
	b := must[Budget](t)(d.Budget())
	wantPool := Pool{Known: true, Total: info.NumCLOSIDs(), Others: 1}
	if b.CLOSIDs != wantPool || b.RMIDs != (Pool{Known: true, Total: mon.NumRMIDs, Others: 1}) {
		t.Errorf("budget = %+v", b)
	}
}

// TestKernelDebug: the hardware's numbers, and that the driver's group is what the kernel
// says it is.
func TestKernelDebug(t *testing.T) {
	rigtest.Only(t, "mounts resctrl")
	if !newest() {
		// Linux 6.1 has no option debug: TestKernelDiscover holds it to the refusal, and
		// without it there must be no numbers.
		d := mounted(t, MountOptions{})
		made := ctrlGroup(t, d, "a")
		for _, g := range must[[]Group](t)(d.Groups(ListOptions{})) {
			if g.CtrlID != -1 || g.MonID != -1 {
				t.Errorf("%s: ids %d, %d", made.Name, g.CtrlID, g.MonID)
			}
		}
		return
	}
	d := mounted(t, MountOptions{Debug: true})
	a, b := ctrlGroup(t, d, "a"), ctrlGroup(t, d, "b")
	monGroup(t, d, a.Name, "m")
	ids := map[string][2]int{}
	rmids := map[int]bool{}
	for _, g := range must[[]Group](t)(d.Groups(ListOptions{})) {
		ids[g.Name.String()] = [2]int{g.CtrlID, g.MonID}
		rmids[g.MonID] = true
	}
	if ids["/"] != [2]int{0, 0} || ids[a.Name.String()][0] != 1 || ids[b.Name.String()][0] != 2 ||
		ids["/commensal-a/mon_groups/commensal-m"][0] != 1 || len(rmids) != 4 {
		t.Errorf("ids = %v", ids)
	}
}

// TestKernelCDP: masks for code and data apart, half the CLOSIDs, and a wish for L3 that
// means both.
func TestKernelCDP(t *testing.T) {
	plain := func() int {
		d := mounted(t, MountOptions{})
		n := must[*Info](t)(d.Info()).Cache(L3).NumCLOSIDs
		if err := Unmount(DefaultPoint); err != nil {
			t.Fatal(err)
		}
		if err := Mount(DefaultPoint, MountOptions{CDP: true}); err != nil {
			t.Fatal(err)
		}
		return n
	}()
	d := openLive(t)
	info := must[*Info](t)(d.Info())
	code, data := info.Cache(L3Code), info.Cache(L3Data)
	if code == nil || data == nil || info.Cache(L3) != nil || code.NumCLOSIDs != plain/2 || data.NumCLOSIDs != plain/2 {
		t.Fatalf("caches = %+v", info.Caches)
	}
	if n := info.NumCLOSIDs(); n != min(plain/2, info.Bandwidth(MB).NumCLOSIDs) {
		t.Errorf("%d CLOSIDs", n)
	}
	g := ctrlGroup(t, d, "cdp")
	var want Schemata
	want.Set(L3, 0, 0x3)
	c, err := d.WriteSchemata(g.Identity, want)
	if err != nil || c.Written != "L3CODE:0=3\nL3DATA:0=3\n" {
		t.Errorf("write L3: %+v, %v", c, err)
	}
	want = nil
	want.Set(L3Data, 1, 0x30)
	want.Set(L3Code, 0, 0x3) // stands already
	c, err = d.WriteSchemata(g.Identity, want)
	if err != nil || c.Written != "L3DATA:1=30\n" {
		t.Errorf("write L3DATA: %+v, %v", c, err)
	}
	for _, x := range []struct {
		r    Resource
		dom  int
		want uint64
	}{{L3Code, 0, 3}, {L3Data, 0, 3}, {L3Code, 1, uint64(code.FullMask)}, {L3Data, 1, 0x30}} {
		if v, ok := c.Now.Get(x.r, x.dom); !ok || v != x.want {
			t.Errorf("%s:%d = %x, %v, want %x", x.r, x.dom, v, ok, x.want)
		}
	}
	want = nil
	want.Set(L2, 0, 1)
	_, err = d.WriteSchemata(g.Identity, want)
	wantError(t, "L2", err, "no L2 here", ErrUnsupported)
	err = d.writeSchemata(g.Name, "L3:0=3\n")
	wantError(t, "L3 under cdp", err, "Unknown or unsupported resource name 'L3'", unix.EINVAL)
}

// TestKernelMBps: bandwidth in MiB/s, unlimited at first; the kernel stores values while
// it parses, so a refused write stands in part.
func TestKernelMBps(t *testing.T) {
	d := mounted(t, MountOptions{MBps: true})
	info := must[*Info](t)(d.Info())
	if mb := info.Bandwidth(MB); mb == nil || mb.Unit != MiBps || mb.Round(333) != 333 || mb.Max != 0 {
		t.Fatalf("MB = %+v", mb)
	}
	g := ctrlGroup(t, d, "mbps")
	if v, ok := g.Schemata.Get(MB, 0); !ok || v != Unlimited {
		t.Errorf("new group: %d, %v", v, ok)
	}
	var want Schemata
	want.Set(MB, 0, 333)
	want.Set(L3, 0, 0x1)
	want.Set(L3, 7, 0x1) // no such domain: left out, and said so
	c, err := d.WriteSchemata(g.Identity, want)
	if err != nil || c.Written != "L3:0=1\nMB:0=333\n" || !slices.Equal(c.Missing, []Ref{{L3, 7}}) {
		t.Errorf("write = %+v, %v", c, err)
	}
	if v, _ := c.Now.Get(MB, 0); v != 333 {
		t.Errorf("MB = %d, want it unrounded", v)
	}
	// The kernel's own order: what stands before the bad value is kept.
	err = d.writeSchemata(g.Name, "MB:0=400;7=20\n")
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, unix.EINVAL) || e.Status != "" {
		t.Errorf("partial write: %v", err)
	}
	if v, _ := must[Schemata](t)(d.ReadSchemata(g.Name)).Get(MB, 0); v != 400 {
		t.Errorf("MB = %d, want the part before the bad domain to stand", v)
	}
	// The driver writes bandwidth last, so that a bad mask stops all of it.
	want = nil
	want.Set(MB, 0, 555)
	want.Set(L3, 0, 0x5)
	c, err = d.WriteSchemata(g.Identity, want)
	wantError(t, "bad mask", err, "non-consecutive", unix.EINVAL)
	if v, _ := c.Now.Get(MB, 0); v != 400 || !strings.HasPrefix(c.Written, "L3:") {
		t.Errorf("MB = %d after a refused write of %q", v, c.Written)
	}
}

// rawMkdir is mkdir without the budget.
func (d *Driver) rawMkdir(n Name) error {
	path := d.path(n)
	return d.change(appends, "mkdir", path, "", func() error {
		return d.fs.(*hostfs.Root).Mkdir(path, 0o755)
	})
}

// TestKernelMkdirRefusals: everything else that mkdir and rmdir refuse.
func TestKernelMkdirRefusals(t *testing.T) {
	d := mounted(t, MountOptions{})
	a := ctrlGroup(t, d, "a")
	_, err := d.CreateGroup("a", 0)
	wantError(t, "there already", err, "", fs.ErrExist)
	for _, path := range []string{"/info/x", "/commensal-a/x", "/mon_data/x"} {
		err := d.change(appends, "mkdir", d.at.Point+path, "", func() error {
			return d.fs.(*hostfs.Root).Mkdir(d.at.Point+path, 0o755)
		})
		wantError(t, "mkdir "+path, err, "", unix.EPERM)
	}
	for _, name := range []string{"", "a/b", "a b", "a\nb", strings.Repeat("x", 200)} {
		_, err := d.CreateGroup(name, 0)
		wantError(t, "name "+name, err, "", ErrBadName)
	}
	_, err = d.CreateMonGroup(Name{Ctrl: "nowhere"}, "m", 0)
	wantError(t, "no such parent", err, "", ErrVanished, unix.ENOENT)
	_, err = d.CreateMonGroup(Name{Ctrl: "commensal-a", Mon: "m"}, "m", 0)
	wantError(t, "below a monitoring group", err, "", ErrBadName)
	for _, path := range []string{"/info", "/mon_data", "/commensal-a/mon_groups"} {
		err := d.change(appends, "rmdir", d.at.Point+path, "", func() error {
			return d.fs.(*hostfs.Root).Rmdir(d.at.Point + path)
		})
		wantError(t, "rmdir "+path, err, "", unix.EPERM)
	}
	_, err = d.Remove(Identity{Name: Name{}}, true)
	wantError(t, "remove the root group", err, "", ErrForeign)
	// A group that was made anew is not the one that is meant.
	if err := d.fs.(*hostfs.Root).Rmdir(d.path(a.Name)); err != nil {
		t.Fatal(err)
	}
	again := ctrlGroup(t, d, "a")
	if again.Inode == a.Inode {
		t.Fatalf("inode %d again", a.Inode)
	}
	if r := must[Removal](t)(d.Remove(a.Identity, true)); r.Outcome != MadeAnew {
		t.Errorf("remove the old one: %+v", r)
	}
	_, err = d.WriteSchemata(a.Identity, Schemata{})
	wantError(t, "write to the old one", err, "", ErrVanished)
}
