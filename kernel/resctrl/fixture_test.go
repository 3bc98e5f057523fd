package resctrl

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/mountinfo"
)

// openTree opens a driver on a captured or documented tree; its README says which is which.
func openTree(t *testing.T, dir string) *Driver {
	t.Helper()
	root := hostfs.NewRoot(dir)
	at, err := Discover(root)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(root, at, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCapturedTrees(t *testing.T) {
	for _, c := range []struct {
		tree   string
		sparse Sparse
	}{{"qemu-rdt-6.1", SparseUnknown}, {"qemu-rdt-6.12", SparseNo}} {
		t.Run(c.tree, func(t *testing.T) {
			d := openTree(t, "testdata/"+c.tree)
			info := must[*Info](t)(d.Info())
			usage := func(dom int) DomainUsage {
				return DomainUsage{Domain: dom, Hardware: 0x600, Shareable: 0x7f0, Exclusive: 0xf}
			}
			want := &Info{
				Caches: []Cache{{
					Resource: L3, NumCLOSIDs: 8, FullMask: 0x7ff, MinBits: 1, ShareableBits: 0x600, Sparse: c.sparse,
					Usage: []DomainUsage{usage(0), usage(1)},
				}},
				Bandwidths: []Bandwidth{{Resource: MB, NumCLOSIDs: 8, Unit: Percent, Min: 10, Max: 100, Gran: 10, Linear: true, ThrottleMode: "max"}},
				Monitoring: &Monitoring{NumRMIDs: 64, Occupancy: true, Total: true, Local: true, MaxThresholdOccupancyBytes: 262144},
			}
			if diff := cmp.Diff(want, info); diff != "" {
				t.Errorf("info (-want +got):\n%s", diff)
			}
			groups := must[[]Group](t)(d.Groups(ListOptions{Tasks: true}))
			if diff := cmp.Diff([]string{"/", "/mon_groups/cadvisor-app", "/COS1", "/commensal-be", "/commensal-be/mon_groups/commensal-m"}, names(groups)); diff != "" {
				t.Fatalf("groups:\n%s", diff)
			}
			be := groups[3]
			if !be.Ours || be.Mode != Shareable || be.Tasks != 1 || !cmp.Equal(be.CPUs, []int{3}) || be.Schemata.String() != "MB:0=20;1=50\nL3:0=30;1=60\n" {
				t.Errorf("%+v", be)
			}
			if g := groups[2]; g.Ours || g.Mode != Exclusive || g.Tool == "" || g.Schemata.String() != "MB:0=100;1=100\nL3:0=f;1=f\n" {
				t.Errorf("%+v", g)
			}
			if g := groups[4]; !g.Ours || g.Mode != "" || g.Schemata != nil || g.Tasks != 0 {
				t.Errorf("%+v", g)
			}
			if got := TakenBits(groups, L3, nil); !cmp.Equal(got, map[int]Mask{0: 0xf, 1: 0xf}) {
				t.Errorf("taken %v", got)
			}
			b := must[Budget](t)(d.Budget())
			wantBudget := Budget{
				CLOSIDs: Pool{Known: true, Total: 8, Ours: 1, Others: 2},
				RMIDs:   Pool{Known: true, Total: 64, Ours: 2, Others: 3},
				Bound:   Bound{CtrlGroups: 4, MonGroups: 55, MonBeside: 51},
			}
			if diff := cmp.Diff(wantBudget, b); diff != "" {
				t.Errorf("budget (-want +got):\n%s", diff)
			}
			if got := names(must[[]Group](t)(d.Strangers())); !cmp.Equal(got, []string{"/mon_groups/cadvisor-app", "/COS1"}) {
				t.Errorf("strangers %v", got)
			}
			mon := must[*Monitor](t)(d.OpenMonitor(be.Name))
			defer mon.Close()
			got := must[[]Monitored](t)(mon.Read(nil))
			if len(got) != 2 || got[0].Domain != 0 || got[1].Domain != 1 || got[0].Occupancy.State != Counted || got[1].Local.State != Counted {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestCapturedCDPAndMBps(t *testing.T) {
	d := openTree(t, "testdata/qemu-rdt-6.12-cdp-mbps")
	if want := (MountOptions{CDP: true, MBps: true, Debug: true}); d.Mounted().Options != want {
		t.Errorf("mounted %+v", d.Mounted())
	}
	info := must[*Info](t)(d.Info())
	if len(info.Caches) != 2 || info.Caches[0].Resource != L3Code || info.Caches[1].NumCLOSIDs != 4 || info.NumCLOSIDs() != 4 {
		t.Errorf("%+v", info.Caches)
	}
	if mb := info.Bandwidth(MB); mb.Unit != MiBps || mb.Min != 0 || mb.Max != 0 || mb.Gran != 1 {
		t.Errorf("%+v", mb)
	}
	groups := must[[]Group](t)(d.Groups(ListOptions{}))
	if len(groups) != 2 || groups[1].CtrlID != 1 || groups[1].MonID < 1 ||
		groups[1].Schemata.String() != "MB:0=300;1=4294967295\nL3DATA:0=30;1=7ff\nL3CODE:0=3;1=7ff\n" {
		t.Errorf("%+v", groups)
	}
	if s := d.status(); s != "Unknown or unsupported resource name 'L3'" {
		t.Errorf("status %q", s)
	}
}

func TestDocumentedAMD(t *testing.T) {
	d := openTree(t, "testdata/documented-amd-6.12")
	info := must[*Info](t)(d.Info())
	l3 := info.Cache(L3)
	if l3.MinBits != 0 || l3.Sparse != SparseYes || l3.ShareableBits != 0 || l3.FullMask != 0xffff {
		t.Errorf("%+v", l3)
	}
	for _, r := range []Resource{MB, SMBA} {
		if b := info.Bandwidth(r); b.Unit != EighthGBps || b.Min != 0 || b.Max != 0 || b.Gran != 1 || b.ThrottleMode != "" || b.Round(33) != 33 {
			t.Errorf("%+v", b)
		}
	}
	if diff := cmp.Diff([]string{"mbm_total_bytes_config", "mbm_local_bytes_config"}, info.Monitoring.OtherFeatures); diff != "" {
		t.Error(diff)
	}
	s := must[Schemata](t)(d.ReadSchemata(Name{Ctrl: "commensal-be"}))
	if s.String() != "SMBA:0=64;1=2048\nMB:0=16;1=2048\nL3:0=101;1=ffff\n" {
		t.Errorf("%q", s)
	}
	read := func(n Name) []Monitored {
		mon := must[*Monitor](t)(d.OpenMonitor(n))
		defer mon.Close()
		return must[[]Monitored](t)(mon.Read(nil))
	}
	number := Count{Counted, 7654604800}
	all := func(s CountState) Monitored {
		return Monitored{Domain: 1, Occupancy: Count{State: s}, Total: Count{State: s}, Local: Count{State: s}}
	}
	if diff := cmp.Diff([]Monitored{{0, Count{Counted, 16777216}, number, number}, all(Unavailable)}, read(Name{})); diff != "" {
		t.Error(diff)
	}
	if got := read(Name{Ctrl: "commensal-be"}); got[1] != all(Failed) {
		t.Errorf("%+v", got)
	}
}

func TestDocumentedUpstream(t *testing.T) {
	d := openTree(t, "testdata/documented-upstream-6.19")
	info := must[*Info](t)(d.Info())
	l3 := info.Cache(L3)
	if l3.IOAlloc != "enabled" || l3.Sparse != SparseYes || l3.Usage[0] != (DomainUsage{0, 0xf00, 0x300, 0x3c, 0xc0, 0x3}) {
		t.Errorf("%+v", l3)
	}
	if diff := cmp.Diff([]string{"PERF_PKG_MON"}, info.Unknown); diff != "" {
		t.Error(diff)
	}
	if m := info.Monitoring; m.AssignMode != "mbm_event" || !cmp.Equal(m.FreeCounters, []DomainCount{{0, 30}, {1, 31}}) {
		t.Errorf("%+v", m)
	}
	if info.Bandwidth(MB).ThrottleMode != "per-thread" || info.Cache(L2Code) == nil || info.NumCLOSIDs() != 8 {
		t.Errorf("%+v", info)
	}
	// The root group, io_alloc, alone, setup and ours take CLOSIDs; locked takes none, and
	// of those setup no RMID.
	b := must[Budget](t)(d.Budget())
	if b.CLOSIDs != (Pool{Known: true, Total: 8, Ours: 1, Others: 4}) || b.RMIDs != (Pool{Known: true, Total: 256, Ours: 1, Others: 2}) {
		t.Errorf("%+v", b)
	}
	groups := must[[]Group](t)(d.Groups(ListOptions{}))
	if got := TakenBits(groups, L3, nil); !cmp.Equal(got, map[int]Mask{0: 0xc3, 1: 0xc0}) {
		t.Errorf("taken %v", got)
	}
	if groups[0].CtrlID != 0 || groups[0].MonID != 0 || groups[3].CtrlID != -1 {
		t.Errorf("%+v", groups)
	}
	root := groups[0].Schemata
	if root[len(root)-1].Raw != "0=5;1=5" || !cmp.Equal(root.Domains(L2Data), []int{0, 1, 2, 3}) {
		t.Errorf("%+v", root)
	}
	var want Schemata
	want.Set(L2, 3, 0x3)
	plan := must[Plan](t)(PlanSchemata(info, root, want))
	if plan.Write.String() != "L2CODE:3=3\nL2DATA:3=3\n" {
		t.Errorf("%+v", plan)
	}
	mon := must[*Monitor](t)(d.OpenMonitor(Name{}))
	defer mon.Close()
	un := Count{State: Unassigned}
	wantRead := []Monitored{{0, Count{Counted, 100}, Count{Counted, 7}, un}, {1, Count{Counted, 200}, un, un}}
	if diff := cmp.Diff(wantRead, must[[]Monitored](t)(mon.Read(nil))); diff != "" {
		t.Error(diff)
	}
}

// TestDiscoverTrees: what a host says that has no resctrl, or has not mounted it.
func TestDiscoverTrees(t *testing.T) {
	write := func(files map[string]string) *hostfs.Root {
		dir := t.TempDir()
		for p, text := range files {
			f := filepath.Join(dir, p)
			if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return hostfs.NewRoot(dir)
	}
	const none = "1 1 0:2 / / rw - rootfs rootfs rw\n"
	_, err := Discover(write(map[string]string{mountinfo.Path: none, filesystemsPath: "nodev\tresctrl\n"}))
	wantError(t, "not mounted", err, "", ErrNotMounted)
	_, err = Discover(write(map[string]string{mountinfo.Path: none, filesystemsPath: "nodev\tproc\n"}))
	wantError(t, "no resctrl", err, "no resctrl", ErrUnsupported)
	_, err = Discover(write(map[string]string{mountinfo.Path: "1 - resctrl x\n"}))
	wantError(t, "malformed", err, "", ErrMalformed)
	_, err = Discover(write(nil))
	wantError(t, "no proc", err, "", os.ErrNotExist)
	half := infoReader{d: &Driver{fs: write(map[string]string{"/MB/bandwidth_gran": "1", "/MB/min_bandwidth": "10\n"})}, dir: "/MB"}
	if half.number("min_bandwidth", 10) != 10 || half.number("bandwidth_gran", 10) != 0 {
		t.Error("a file that was read half way was believed")
	}
	wantError(t, "read half way", half.err, "bandwidth_gran", ErrMalformed)
	// Mounted according to mountinfo, and something else lies over it.
	hidden := write(map[string]string{mountinfo.Path: "30 25 0:26 / /r rw - resctrl r rw\n", "/r/other": ""})
	at := must[MountInfo](t)(Discover(hidden))
	_, err = Open(hidden, at, DefaultOptions())
	wantError(t, "hidden", err, "", ErrNotMounted)
	for _, o := range []Options{{}, {Prefix: "a/b"}, {Prefix: "c-", LockWait: -1}, {Prefix: "c-", ReserveRMIDs: -1}, {Prefix: "."}} {
		if _, err := Open(hidden, at, o); err == nil {
			t.Errorf("Open with %+v", o)
		}
	}
	// This very host: any answer, none of them a surprise.
	if at, err := Discover(hostfs.NewRoot("/")); err != nil {
		t.Logf("here: %v", err)
		wantOneOf(t, err, ErrNotMounted, ErrUnsupported)
	} else {
		t.Logf("here: %+v", at)
	}
}

func wantOneOf(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if strings.Contains(err.Error(), target.Error()) {
			return
		}
	}
	t.Errorf("%v, want one of %v", err, targets)
}

// copied makes a tree that may be written to.
func copied(t *testing.T, tree string) *Driver {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/"+tree)); err != nil {
		t.Fatal(err)
	}
	return openTree(t, dir)
}

// TestRefusedBeforeTheKernel: what the driver does not even try. In a folder every write
// would succeed, so it shows if one was made.
func TestRefusedBeforeTheKernel(t *testing.T) {
	d := copied(t, "qemu-rdt-6.12")
	groups := must[[]Group](t)(d.Groups(ListOptions{}))
	root, theirs, ours, mon := groups[0].Identity, groups[2].Identity, groups[3].Identity, groups[4].Identity
	var want Schemata
	want.Set(L3, 0, 1)
	for name, c := range map[string]struct {
		err error
		is  error
	}{
		"schemata of the root group": {second(d.WriteSchemata(root, want)), ErrForeign},
		"schemata of another's":      {second(d.WriteSchemata(theirs, want)), ErrForeign},
		"schemata of a mon group":    {second(d.WriteSchemata(mon, want)), ErrUnsupported},
		"schemata of the one before": {second(d.WriteSchemata(Identity{ours.Name, ours.Inode + 1}, want)), ErrVanished},
		"schemata of none":           {second(d.WriteSchemata(Identity{Name: Name{Ctrl: "commensal-x"}}, want)), ErrVanished},
		"L2":                         {second(d.WriteSchemata(ours, Schemata{{Resource: L2, Domains: []Value{{0, 1}}}})), ErrUnsupported},
		"mode of another's":          {d.WriteMode(theirs, Shareable), ErrForeign},
		"mode locked":                {d.WriteMode(ours, PseudoLocked), unix.EINVAL},
		"mode of a mon group":        {d.WriteMode(mon, Exclusive), unix.EINVAL},
		"cpus of another's":          {d.WriteCPUs(theirs, cpus.Set{}), ErrForeign},
		"threads to another's":       {second(d.MoveThreads(theirs, nil)), ErrForeign},
		"remove another's":           {second(d.Remove(theirs, true)), ErrForeign},
		"remove the root group":      {second(d.Remove(root, true)), ErrForeign},
		"move a control group":       {second(d.MoveMonGroup(ours, Name{})), ErrBadName},
		"move to another's":          {second(d.MoveMonGroup(mon, theirs.Name)), ErrForeign},
		"a name with a slash":        {second(d.CreateGroup("a/b", 0)), ErrBadName},
		"a mon group in a mon group": {second(d.CreateMonGroup(mon.Name, "a", 0)), ErrBadName},
		"a monitor of none":          {second(d.OpenMonitor(Name{Ctrl: "x"})), ErrVanished},
		"group of no thread":         {second(d.GroupOf(1)), unix.ESRCH},
	} {
		wantError(t, name, c.err, "", c.is)
	}
	before := copied(t, "qemu-rdt-6.12")
	if diff := cmp.Diff(must[[]Group](t)(before.Groups(ListOptions{})), groups, cmp.Transformer("noInode", func(id Identity) Name { return id.Name })); diff != "" {
		t.Errorf("something was changed:\n%s", diff)
	}
	if r := must[Removal](t)(d.Remove(Identity{Name: Name{Ctrl: "commensal-x"}, Inode: 1}, false)); r.Outcome != WasGone {
		t.Errorf("%+v", r)
	}
	if r := must[Removal](t)(d.Remove(Identity{ours.Name, ours.Inode + 1}, false)); r.Outcome != MadeAnew {
		t.Errorf("%+v", r)
	}
	// Full up: seven control groups beside the root group.
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if err := os.Mkdir(filepath.Join(dirOf(t, d), name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := d.CreateGroup("more", time.Hour) // what is exhausted is not waited for
	wantError(t, "budget", err, "0 of 8 free (1 ours, 7 others'), 1 kept for others", ErrExhausted)
	if strings.Contains(err.Error(), "kernel says") {
		t.Error(err)
	}
}

// second returns a call's error.
func second[T any](_ T, err error) error { return err }

// dirOf returns where a copied tree's mount point is on this host.
func dirOf(t *testing.T, d *Driver) string {
	t.Helper()
	fd, closeDir, err := d.fs.OpenDir(d.at.Point)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDir()
	dir, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestReadBackDiffers: a folder keeps what is written instead of rounding it, and of a
// partial write only a part: what the driver must not take for success.
func TestReadBackDiffers(t *testing.T) {
	d := copied(t, "qemu-rdt-6.12")
	be := must[[]Group](t)(d.Groups(ListOptions{}))[3]
	var want Schemata
	want.Set(MB, 0, 33)
	c, err := d.WriteSchemata(be.Identity, want)
	wantError(t, "not rounded", err, "", ErrMalformed) // "MB:0=33\n" over a longer text
	if c.Written != "MB:0=33\n" || c.Found == nil {
		t.Errorf("%+v", c)
	}
	path := filepath.Join(dirOf(t, d), "commensal-be/schemata")
	if err := os.WriteFile(path, []byte("MB:0=10\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err = d.WriteSchemata(be.Identity, want)
	wantError(t, "not rounded", err, "MB:0 is 33, not 40", ErrReadBack)
	if v, _ := c.Now.Get(MB, 0); v != 33 {
		t.Errorf("%+v", c)
	}
}

// TestLockOnATree: the lock on any directory is the kernel's own.
func TestLockOnATree(t *testing.T) {
	d := copied(t, "qemu-rdt-6.12")
	fd := must[int](t)(unix.Open(dirOf(t, d), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	d.opt.LockWait = 20 * time.Millisecond
	_, err := d.Groups(ListOptions{})
	wantError(t, "Groups", err, "cannot be told", ErrLocked, unix.EWOULDBLOCK) // no /proc/locks in the tree
	if _, err := d.ReadSchemata(Name{}); err != nil {
		t.Error(err)
	}
	if err := unix.Flock(fd, unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Groups(ListOptions{}); err != nil {
		t.Error(err)
	}
	err = d.WriteCPUs(Identity{Name: Name{Ctrl: "commensal-be"}}, cpus.Set{})
	wantError(t, "WriteCPUs beside a reader", err, "", ErrLocked)
}

// TestMonitorDoesNotAllocate on a tree; on the kernel see TestKernelMonitor.
func TestMonitorDoesNotAllocate(t *testing.T) {
	d := openTree(t, "testdata/qemu-rdt-6.12")
	mon := must[*Monitor](t)(d.OpenMonitor(Name{Ctrl: "commensal-be"}))
	defer mon.Close()
	dst := make([]Monitored, 0, 2)
	if n := testing.AllocsPerRun(100, func() {
		var err error
		if dst, err = mon.Read(dst); err != nil || len(dst) != 2 {
			t.Fatal(dst, err)
		}
	}); n != 0 {
		t.Errorf("Read allocates %v times", n)
	}
	if err := mon.Close(); err != nil {
		t.Error(err)
	}
	_, err := mon.Read(dst)
	wantError(t, "Read after Close", err, "", os.ErrClosed)
	wantError(t, "Refresh after Close", mon.Refresh(), "", os.ErrClosed)
}

// orphanFS shows one thread whose numbers no group has: the kernel opens its file, and
// then fails to read it.
type orphanFS struct {
	*hostfs.Root
	path string
}

func (f orphanFS) ReadFile(path string, buf []byte) ([]byte, error) {
	if path == f.path {
		return buf[:0], &fs.PathError{Op: "read", Path: path, Err: unix.ENOENT}
	}
	return f.Root.ReadFile(path, buf)
}

// TestOrphanThread: a thread that carries the numbers of a group that is gone is moved,
// but into no group of others.
func TestOrphanThread(t *testing.T) {
	d := copied(t, "qemu-rdt-6.12")
	dir := strings.TrimSuffix(dirOf(t, d), DefaultPoint)
	for _, tid := range []string{"70", "71"} {
		if err := os.MkdirAll(dir+"/proc/"+tid, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/proc/70/cpu_resctrl_groups", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d.fs = orphanFS{Root: hostfs.NewRoot(dir), path: "/proc/70/cpu_resctrl_groups"}
	groups := must[[]Group](t)(d.Groups(ListOptions{}))
	ours, theirs := groups[3].Identity, groups[2].Identity
	moved, err := d.MoveThreads(ours, []int32{70})
	if err != nil || moved != (Moved{Moved: 1, Passes: 1}) {
		t.Errorf("%+v, %v", moved, err)
	}
	if got := must[[]int32](t)(d.Tasks(ours.Name, nil)); len(got) != 1 || got[0] != 70 {
		t.Errorf("tasks = %v", got)
	}
	mon := Name{Ctrl: theirs.Name.Ctrl, Mon: "commensal-m"}
	if err := os.MkdirAll(dir+d.path(mon), 0o755); err != nil {
		t.Fatal(err)
	}
	at := Identity{mon, must[uint64](t)(d.fs.Inode(d.path(mon)))}
	if moved, err = d.MoveThreads(at, []int32{70}); err != nil || moved != (Moved{Foreign: 1, Passes: 1}) {
		t.Errorf("%+v, %v", moved, err)
	}
	// A kernel without that file: whose thread it is cannot be told, so nothing is moved.
	_, err = d.MoveThreads(ours, []int32{71})
	wantError(t, "no cpu_resctrl_groups", err, "", ErrUnsupported)
}
