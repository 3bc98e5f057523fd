package resctrltest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/resctrl"
)

// info is what info says.
func (r *rig) info() *resctrl.Info {
	r.Helper()
	return must[*resctrl.Info](r)(r.d.Info())
}

// schemata reads a group's.
func (r *rig) schemata(n resctrl.Name) resctrl.Schemata {
	r.Helper()
	return must[resctrl.Schemata](r)(r.d.ReadSchemata(n))
}

// testInfo reads info and the root group, and holds it against the CPU's numbers.
func testInfo(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	r.wantError("second mount", bed.Mount(resctrl.MountOptions{}), "", unix.EBUSY)
	info := r.info()
	l3, mb, mon := info.Cache(resctrl.L3), info.Bandwidth(resctrl.MB), info.Monitoring
	if l3 == nil || mb == nil || mon == nil {
		t.Fatalf("Info = %+v", info)
	}
	sparse := resctrl.SparseUnknown // no such file before 6.7
	if bed.Newest() {
		sparse = resctrl.SparseNo
	}
	if l3.FullMask != 0x7ff || l3.MinBits != 1 || l3.ShareableBits != 0x600 || l3.Sparse != sparse || l3.IOAlloc != "" || l3.NumCLOSIDs != 8 {
		t.Errorf("L3 = %+v", l3)
	}
	if mb.Unit != resctrl.Percent || mb.Min != 10 || mb.Max != 100 || mb.Gran != 10 || !mb.Linear || mb.ThrottleMode != "max" {
		t.Errorf("MB = %+v", mb)
	}
	if !mon.Occupancy || !mon.Total || !mon.Local || mon.AssignMode != "" || mon.FreeCounters != nil || mon.MaxThresholdOccupancyBytes == 0 {
		t.Errorf("L3_MON = %+v", mon)
	}
	if len(info.Unknown) != 0 || info.NumCLOSIDs() != min(l3.NumCLOSIDs, mb.NumCLOSIDs) {
		t.Errorf("unknown %v, %d CLOSIDs", info.Unknown, info.NumCLOSIDs())
	}
	pid := bed.Idle(t, 3)
	groups := must[[]resctrl.Group](t)(r.d.Groups(resctrl.ListOptions{Tasks: true}))
	if len(groups) != 1 || !groups[0].Name.IsRoot() {
		t.Fatalf("groups = %v", names(groups))
	}
	g := groups[0]
	if g.Ours || g.Mode != resctrl.Shareable || !slices.Equal(g.CPUs, []int{0, 1, 2, 3}) || g.Tasks < 3 || g.CtrlID != -1 || !slices.Contains(r.tasks(g.Name), pid) {
		t.Errorf("root group = %+v", g)
	}
	want := resctrl.Schemata{
		{Resource: resctrl.MB, Domains: []resctrl.Value{{Domain: 0, Value: 100}, {Domain: 1, Value: 100}}},
		{Resource: resctrl.L3, Domains: []resctrl.Value{{Domain: 0, Value: 0x7ff}, {Domain: 1, Value: 0x7ff}}},
	}
	if diff := cmp.Diff(want, g.Schemata); diff != "" {
		t.Errorf("root schemata (-want +got):\n%s", diff)
	}
	if got := r.get(path(g.Name, "bit_usage")[:len(resctrl.DefaultPoint)] + "/info/L3/bit_usage"); got != "0=XXSSSSSSSSS;1=XXSSSSSSSSS\n" {
		t.Errorf("bit_usage = %q", got)
	}
	for file, text := range map[string]string{"cpus": "f\n", "mode": "shareable\n", "size": "    MB:0=100;1=100\n    L3:0=16777211;1=16777211\n"} {
		if got := r.get(path(g.Name, file)); got != text {
			t.Errorf("%s = %q, want %q", file, got, text)
		}
	}
	b := must[resctrl.Budget](t)(r.d.Budget())
	if b.CLOSIDs != (resctrl.Pool{Known: true, Total: info.NumCLOSIDs(), Others: 1}) || b.RMIDs.Others != 1 || b.RMIDs.Total != mon.NumRMIDs {
		t.Errorf("budget = %+v", b)
	}
}

// testDebug: the hardware's numbers.
func testDebug(t *testing.T, bed Bed) {
	if !bed.Newest() {
		err := bed.Mount(resctrl.MountOptions{Debug: true})
		if err == nil {
			err = errors.Join(errors.New("mounted with debug"), bed.Unmount())
		}
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("mount with debug: %v, want EINVAL", err)
		}
		return
	}
	r := mounted(t, bed, resctrl.MountOptions{Debug: true})
	a, _ := r.ctrl("a"), r.ctrl("b")
	r.mon(a.Name, "m")
	ids, rmids := map[string]int{}, map[int]bool{}
	for _, g := range must[[]resctrl.Group](t)(r.d.Groups(resctrl.ListOptions{})) {
		ids[g.Name.String()] = g.CtrlID
		rmids[g.MonID] = true
	}
	want := map[string]int{"/": 0, "/commensal-a": 1, "/commensal-b": 2, "/commensal-a/mon_groups/commensal-m": 1}
	if diff := cmp.Diff(want, ids); diff != "" || len(rmids) != 4 || !rmids[0] {
		t.Errorf("CLOSIDs (-want +got):\n%s; RMIDs %v", diff, rmids)
	}
}

// testCDP: masks for code and data apart, half the CLOSIDs, and a wish for L3 that means both.
func testCDP(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{CDP: true})
	info := r.info()
	code, data := info.Cache(resctrl.L3Code), info.Cache(resctrl.L3Data)
	if code == nil || data == nil || info.Cache(resctrl.L3) != nil || code.NumCLOSIDs != 4 || data.NumCLOSIDs != 4 || info.NumCLOSIDs() != 4 {
		t.Fatalf("caches = %+v", info.Caches)
	}
	g := r.ctrl("cdp")
	var want resctrl.Schemata
	want.Set(resctrl.L3, 0, 0x3)
	c, err := r.d.WriteSchemata(g.Identity, want)
	if err != nil || c.Written != "L3CODE:0=3\nL3DATA:0=3\n" {
		t.Errorf("write L3: %+v, %v", c, err)
	}
	want = nil
	want.Set(resctrl.L3Data, 1, 0x30)
	want.Set(resctrl.L3Code, 0, 0x3) // stands already
	if c, err = r.d.WriteSchemata(g.Identity, want); err != nil || c.Written != "L3DATA:1=30\n" {
		t.Errorf("write L3DATA: %+v, %v", c, err)
	}
	if got := r.get(path(g.Name, "schemata")); got != "    MB:0=100;1=100\nL3DATA:0=003;1=030\nL3CODE:0=003;1=7ff\n" {
		t.Errorf("schemata = %q", got)
	}
	want = nil
	want.Set(resctrl.L2, 0, 1)
	_, err = r.d.WriteSchemata(g.Identity, want)
	r.wantError("L2", err, "no L2 here", resctrl.ErrUnsupported)
	r.refused(path(g.Name, "schemata"), "L3:0=3\n", "Unknown or unsupported resource name 'L3'", unix.EINVAL)
	r.refused(path(g.Name, "mode"), "pseudo-locksetup\n", "CDP enabled", unix.EINVAL)
}

// testMBps: bandwidth in MiB/s, unlimited at first; values are stored while they are parsed,
// so a refused write stands in part.
func testMBps(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{MBps: true})
	if mb := r.info().Bandwidth(resctrl.MB); mb == nil || mb.Unit != resctrl.MiBps || mb.Round(333) != 333 || mb.Max != 0 {
		t.Fatalf("MB = %+v", mb)
	}
	g := r.ctrl("mbps")
	if v, ok := g.Schemata.Get(resctrl.MB, 0); !ok || v != resctrl.Unlimited {
		t.Errorf("new group: %d, %v", v, ok)
	}
	var want resctrl.Schemata
	want.Set(resctrl.MB, 0, 333)
	want.Set(resctrl.L3, 0, 0x1)
	want.Set(resctrl.L3, 7, 0x1) // no such domain: left out, and said so
	c, err := r.d.WriteSchemata(g.Identity, want)
	if err != nil || c.Written != "L3:0=1\nMB:0=333\n" || !slices.Equal(c.Missing, []resctrl.Ref{{Resource: resctrl.L3, Domain: 7}}) {
		t.Errorf("write = %+v, %v", c, err)
	}
	if v, _ := c.Now.Get(resctrl.MB, 0); v != 333 {
		t.Errorf("MB = %d, want it unrounded", v)
	}
	r.refused(path(g.Name, "schemata"), "MB:0=400;7=20\n", "ok", unix.EINVAL)
	if v, _ := r.schemata(g.Name).Get(resctrl.MB, 0); v != 400 {
		t.Errorf("MB = %d, want the part before the bad domain to stand", v)
	}
	// The driver writes bandwidth last, so that a bad mask stops all of it.
	want = nil
	want.Set(resctrl.MB, 0, 555)
	want.Set(resctrl.L3, 0, 0x5)
	c, err = r.d.WriteSchemata(g.Identity, want)
	r.wantError("bad mask", err, "non-consecutive", unix.EINVAL)
	if v, _ := c.Now.Get(resctrl.MB, 0); v != 400 || !strings.HasPrefix(c.Written, "L3:") {
		t.Errorf("MB = %d after a refused write of %q", v, c.Written)
	}
}

// testSchemataRefusals holds every refusal of a write to schemata that can be had without
// pseudo-locking against errno and words.
func testSchemataRefusals(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	g := r.ctrl("a")
	file := path(g.Name, "schemata")
	before := r.get(file)
	for _, c := range []struct{ text, status string }{
		{"L3\n", "Missing ':'"},
		{"\n", "Missing ':'"},
		{"L3:\n", "Missing 'L3' value"},
		{"L4:0=3\n", "Unknown or unsupported resource name 'L4'"},
		{"L3:x=3\n", "Missing '=' or non-numeric domain"},
		{"L3:0\n", "Missing '=' or non-numeric domain"},
		{"L3: 0=3\n", "Missing '=' or non-numeric domain"}, // a blank where the table has some
		{"L3:7=3\n", "ok"},                                 // not a word about a domain that is not there
		{"MB:7=20\n", "ok"},
		{"L3:0=3;0=7\n", "Duplicate domain 0"},
		{"L3:0=3\nL3:0=3\n", "Duplicate domain 0"},
		{"MB:0=20;0=30\n", "Duplicate domain 0"},
		{"L3:0=zz\n", "Non-hex character in the mask zz"},
		{"L3:0=\n", "Non-hex character in the mask "},
		{"L3:0=0\n", "Mask out of range"},
		{"L3:0=800\n", "Mask out of range"},
		{"L3:0=5\n", "The mask 5 has non-consecutive 1-bits"},
		{"MB:0=x\n", "Invalid MB value x"},
		{"MB:0=-1\n", "Invalid MB value -1"},
		{"MB:0=9\n", "MB value 9 out of range [10,100]"},
		{"MB:0=101\n", "MB value 101 out of range [10,100]"},
		{"L3:0=3\nMB:0=101\n", "MB value 101 out of range [10,100]"}, // and the first line is not kept
	} {
		r.refused(file, c.text, c.status, unix.EINVAL)
	}
	// Without a newline nothing is looked at, and what stands in the status is older.
	r.refused(file, "L4:0=3\n", "Unknown or unsupported resource name 'L4'", unix.EINVAL)
	r.refused(file, "L3:0=3", "Unknown or unsupported resource name 'L4'", unix.EINVAL)
	if now := r.get(file); now != before {
		t.Errorf("refused writes changed something: %q, was %q", now, before)
	}
	for _, text := range []string{"L3:0=3;\n", "L3:0=0x7;1= 7\n", "L3:0=3;1=3\nMB:0=20\n"} {
		r.put(file, text)
	}
	if got := r.get(file); got != "    MB:0= 20;1=100\n    L3:0=003;1=003\n" {
		t.Errorf("schemata = %q", got)
	}
	if got := r.get(path(g.Name, "size")); got != "    MB:0=20;1=100\n    L3:0=3050402;1=3050402\n" {
		t.Errorf("size = %q", got)
	}
	if err := r.rmdir(path(g.Name, "")); err != nil {
		t.Fatal(err)
	}
	_, err := r.write(file, "L3:0=3\n")
	r.wantError("group is gone", err, "", unix.ENOENT)
}

// testWriteSchemata: one write of what differs, rounded as the kernel does, read back; what
// is wrong is refused as a whole; only our groups.
func testWriteSchemata(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	g := r.ctrl("be")
	var want resctrl.Schemata
	for dom := range 2 {
		want.Set(resctrl.L3, dom, 3)
		want.Set(resctrl.MB, dom, 33)
	}
	c, err := r.d.WriteSchemata(g.Identity, want)
	if err != nil || c.Written != "L3:0=3;1=3\nMB:0=33;1=33\n" || c.Missing != nil {
		t.Fatalf("write: %+v, %v", c, err)
	}
	if got := c.Now.String(); got != "MB:0=40;1=40\nL3:0=3;1=3\n" { // the next step up
		t.Errorf("now %q", got)
	}
	if diff := cmp.Diff(g.Schemata, c.Found); diff != "" {
		t.Errorf("found (-as made +found):\n%s", diff)
	}
	if c, err = r.d.WriteSchemata(g.Identity, want); err != nil || c.Written != "" {
		t.Errorf("the same again: %+v, %v", c, err)
	}
	want.Set(resctrl.MB, 1, 50)
	if c, err = r.d.WriteSchemata(g.Identity, want); err != nil || c.Written != "MB:1=50\n" {
		t.Errorf("one value: %+v, %v", c, err)
	}
	now := c.Now
	for what, bad := range map[string]resctrl.Value{"Mask out of range": {Value: 0}, "non-consecutive": {Value: 0x15}} {
		var s resctrl.Schemata
		s.Set(resctrl.L3, 0, bad.Value)
		s.Set(resctrl.MB, 0, 70)
		c, err = r.d.WriteSchemata(g.Identity, s)
		r.wantError(what, err, what, unix.EINVAL)
		if diff := cmp.Diff(now, c.Now); diff != "" {
			t.Errorf("a refused write changed something:\n%s", diff)
		}
	}
	root := must[resctrl.Identity](t)(r.d.Root())
	_, err = r.d.WriteSchemata(root, want)
	r.wantError("the root group", err, "", resctrl.ErrForeign)
	_, err = r.d.WriteSchemata(r.stranger(resctrl.Name{Ctrl: "COS1"}), want)
	r.wantError("another's group", err, "", resctrl.ErrForeign)
	_, err = r.d.WriteSchemata(r.mon(g.Name, "m").Identity, want)
	r.wantError("a monitoring group", err, "", resctrl.ErrUnsupported)
}

// testExclusive: another tool's exclusive ways are seen, avoided, and refused by the kernel
// to whoever asks for them; ours cannot become exclusive while the root group shares them.
func testExclusive(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	ours := r.ctrl("be")
	r.wantError("exclusive beside the root group", r.d.WriteMode(ours.Identity, resctrl.Exclusive), `kernel says "Schemata overlaps"`, unix.EINVAL)
	r.wantError("pseudo-lock", r.d.WriteMode(ours.Identity, resctrl.PseudoLocked), "", unix.EINVAL)
	if err := r.d.WriteMode(ours.Identity, resctrl.Shareable); err != nil {
		t.Errorf("shareable as it is: %v", err)
	}
	mode := path(ours.Name, "mode")
	r.refused(mode, "pseudo-locksetup\n", "Pseudo-locking not supported", unix.EINVAL)
	r.refused(path(resctrl.Name{}, "mode"), "pseudo-locksetup\n", "Cannot pseudo-lock default group", unix.EINVAL)
	r.refused(mode, "foo\n", "Unknown or unsupported mode", unix.EINVAL)
	r.refused(mode, "exclusive", "Unknown or unsupported mode", unix.EINVAL)

	// An operator gives the low ways to one group alone.
	theirs := r.stranger(resctrl.Name{Ctrl: "critical"})
	r.put(path(resctrl.Name{}, "schemata"), "L3:0=7f0;1=7f0\n")
	r.put(path(ours.Name, "schemata"), "L3:0=7f0;1=7f0\n")
	r.put(path(theirs.Name, "schemata"), "L3:0=f;1=f\n")
	r.put(path(theirs.Name, "mode"), "exclusive\n")
	groups := must[[]resctrl.Group](t)(r.d.Groups(resctrl.ListOptions{}))
	if diff := cmp.Diff([]string{"/", "/commensal-be", "/critical"}, names(groups)); diff != "" {
		t.Errorf("groups: %s", diff)
	}
	taken := resctrl.TakenBits(groups, resctrl.L3, func(g resctrl.Group) bool { return g.Ours })
	if want := map[int]resctrl.Mask{0: 0xf, 1: 0xf}; !cmp.Equal(taken, want) {
		t.Errorf("taken = %v", taken)
	}
	if got := r.get(resctrl.DefaultPoint + "/info/L3/bit_usage"); got != "0=XXSSSSSEEEE;1=XXSSSSSEEEE\n" {
		t.Errorf("bit_usage = %q", got)
	}
	var bad resctrl.Schemata
	bad.Set(resctrl.L3, 0, 0x18)
	c, err := r.d.WriteSchemata(ours.Identity, bad)
	r.wantError("their way", err, `kernel says "Overlaps with exclusive group"`, unix.EINVAL)
	if v, _ := c.Now.Get(resctrl.L3, 0); v != 0x7f0 {
		t.Errorf("after the refusal: %x", v)
	}
	if v, _ := r.ctrl("new").Schemata.Get(resctrl.L3, 0); v != 0x7f0 {
		t.Errorf("a new group got %x, want all but the exclusive ways", v)
	}
	// Their group that grows into others' ways is refused too, by the kernel.
	r.refused(path(theirs.Name, "schemata"), "L3:0=1f\n", "Overlaps with other group", unix.EINVAL)
}

// testMkdirRefusals: what mkdir and rmdir refuse, but for numbers that run out.
func testMkdirRefusals(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	a := r.ctrl("a")
	_, err := r.d.CreateGroup("a", 0)
	r.wantError("there already", err, "", fs.ErrExist)
	for _, p := range []string{"/info/x", "/commensal-a/x", "/mon_data/x"} {
		r.wantError("mkdir "+p, r.mkdir(resctrl.DefaultPoint+p), "", unix.EPERM)
	}
	r.wantError("a newline", r.mkdir(resctrl.DefaultPoint+"/a\nb"), "", unix.EINVAL)
	_, err = r.d.CreateMonGroup(resctrl.Name{Ctrl: "nowhere"}, "m", 0)
	r.wantError("no such parent", err, "", resctrl.ErrVanished, unix.ENOENT)
	for _, p := range []string{"/info", "/mon_data", "/commensal-a/mon_groups"} {
		r.wantError("rmdir "+p, r.rmdir(resctrl.DefaultPoint+p), "", unix.EPERM)
	}
	_, err = r.d.Remove(resctrl.Identity{}, true)
	r.wantError("remove the root group", err, "", resctrl.ErrForeign)
	// A group that was made anew is not the one that is meant.
	if err := r.rmdir(path(a.Name, "")); err != nil {
		t.Fatal(err)
	}
	again := r.ctrl("a")
	if again.Inode == a.Inode {
		t.Fatalf("inode %d again", a.Inode)
	}
	if got := must[resctrl.Removal](t)(r.d.Remove(a.Identity, true)); got.Outcome != resctrl.MadeAnew {
		t.Errorf("remove the old one: %+v", got)
	}
	_, err = r.d.WriteSchemata(a.Identity, resctrl.Schemata{})
	r.wantError("write to the old one", err, "", resctrl.ErrVanished)
}

// testStatus: what mkdir and cpus_list say is told apart from what an earlier command left,
// up to the point where the kernel's buffer is full.
func testStatus(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	a := r.ctrl("a")
	tasks := path(a.Name, "tasks")
	_, err := r.write(tasks, "4194305\n")
	r.wantError("a task that is not there", err, "", unix.ESRCH)
	left := r.status()
	if !strings.Contains(left, "No task 4194305") {
		t.Fatalf("status = %q", left)
	}
	// A success does not clear it either.
	r.stranger(resctrl.Name{Ctrl: "theirs"})
	if got := r.status(); got != left {
		t.Errorf("status after mkdir = %q", got)
	}
	_, err = r.d.CreateGroup("a", 0)
	var e *resctrl.Error
	if !errors.As(err, &e) || e.Status != "" {
		t.Errorf("mkdir of what is there: %v", err)
	}
	err = r.d.WriteCPUs(a.Identity, cpus.Of(9))
	if !errors.As(err, &e) || e.Status == "" || strings.Contains(e.Status, "No task") {
		t.Errorf("offline CPU: %v", err)
	}
	first := e.Status
	// Now until the buffer is full: no later refusal may be explained by older words.
	for range 40 {
		err = r.d.WriteCPUs(a.Identity, cpus.Of(9))
		if !errors.As(err, &e) || e.Status != first && e.Status != "" {
			t.Fatalf("offline CPU: %v, want %q or nothing", err, first)
		}
	}
	if n := len(r.status()); e.Status != "" || n < 400 || n > 512 {
		t.Errorf("the buffer is not full: %q, %d bytes", e.Status, n)
	}
	// A command that clears makes room again.
	if err := r.d.WriteMode(a.Identity, resctrl.Shareable); err != nil {
		t.Error(err)
	}
	err = r.d.WriteCPUs(a.Identity, cpus.Of(9))
	if !errors.As(err, &e) || e.Status != first {
		t.Errorf("offline CPU: %v, want %q", err, first)
	}
	if err := r.d.WriteMode(a.Identity, resctrl.Shareable); err != nil || r.status() != "ok" {
		t.Errorf("%v, status %q", err, r.status())
	}
	if err := fmt.Errorf("%w", e); !strings.Contains(err.Error(), first) {
		t.Errorf("%v", err)
	}
}
